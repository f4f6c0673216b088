import type { ComponentChildren } from "preact";
import { at, usePolled } from "../api";
import { bytes, count, duration, isNumber, subtaskOf } from "../format";
import { Answer, Badge, Bytes, Card, Copy, Facts, Figure, tone, When } from "../parts";
import { go, useQuery } from "../router";
import { Table, type Column } from "../table";
import { useTitle } from "../title";
import type { Checkpoint, Checkpoints, CheckpointSubtask, CheckpointTask, JobDetails, Summary } from "../types";

const kindOf = (one: Checkpoint) => one.checkpoint_type.toLowerCase().replace("_", " ");

const COLUMNS: Column<Checkpoint>[] = [
  { key: "id", title: "Id", value: (one) => one.id, number: true, wide: 0.6 },
  { key: "status", title: "State", value: (one) => one.status, wide: 1.2, show: (one) => <Badge state={one.status} /> },
  { key: "kind", title: "Kind", value: kindOf, wide: 1.1 },
  { key: "acks", title: "Acknowledged", value: (one) => one.num_acknowledged_subtasks, number: true, show: (one) => `${one.num_acknowledged_subtasks}/${one.num_subtasks}` },
  { key: "trigger", title: "Triggered", value: (one) => one.trigger_timestamp, number: true, wide: 1.2, show: (one) => <When ms={one.trigger_timestamp} short /> },
  { key: "duration", title: "Duration", value: (one) => one.end_to_end_duration, number: true, show: (one) => duration(one.end_to_end_duration) },
  { key: "size", title: "Written", help: "what this checkpoint wrote", value: (one) => one.checkpointed_size, number: true, show: (one) => <Bytes of={one.checkpointed_size} /> },
  { key: "full", title: "Full size", value: (one) => one.state_size, number: true, show: (one) => <Bytes of={one.state_size} /> },
  { key: "in-flight", title: "In flight", help: "records between tasks that were processed during alignment, and those that were stored", value: (one) => one.processed_data, number: true, wide: 1.3, show: (one) => `${bytes(one.processed_data)} (${bytes(one.persisted_data)})` },
]; // prettier-ignore

export function CheckpointsTab({ job, rest }: { job: JobDetails; rest: string[] }) {
  const of = usePolled<Checkpoints>(at("jobs", job.jid, "checkpoints"));
  const [id = "", vertex = ""] = rest;
  const choose = (one: Checkpoint) => go(["jobs", job.jid, "checkpoints", ...(String(one.id) === id ? [] : [String(one.id)])]);
  if (of.error?.status === 404 && /enabled/.test(of.error.message))
    return <Card><p class="empty">This job takes no checkpoints: execution.checkpointing.interval is not set, and nobody has asked for one.</p></Card>;
  return (
    <Answer of={of} what="checkpoints">
      {(found) => {
        const { completed, failed, restored } = found.latest;
        return (
          <>
            <div class="figures">
              <Figure name="completed" title="Completed" value={count(found.counts.completed)} tone="good" note={completed ? <>last: <When ms={completed.latest_ack_timestamp} short /></> : "none yet"} />
              <Figure name="in_progress" title="In progress" value={count(found.counts.in_progress)} />
              <Figure name="failed" title="Failed" value={count(found.counts.failed)} tone={found.counts.failed ? "bad" : ""} note={failed ? <When ms={failed.trigger_timestamp} short /> : undefined} />
              <Figure name="restored" title="Restored" value={count(found.counts.restored)} note={restored ? `from ${restored.is_savepoint ? "savepoint" : "checkpoint"} ${restored.id}` : undefined} />
              <Figure title="Last duration" value={duration(completed?.end_to_end_duration)} />
              <Figure title="Last size" value={bytes(completed?.state_size)} />
            </div>
            <Card title="History" name="history">
              <Strip of={found.history} chosen={id} choose={choose} />
              <Table name="checkpoints" columns={COLUMNS} rows={found.history} id={(one) => String(one.id)} sort="-id" chosen={id} open={choose} height={380} empty="None yet." />
            </Card>
            {id && <Details job={job} id={id} vertex={vertex} />}
            <Card title="Of all that completed"><Summaries of={found.summary} /></Card>
            <Card title="Settings"><Settings job={job} /></Card>
          </>
        );
      }}
    </Answer>
  );
}

/** The last checkpoints as bars: how long each took, and what became of it. */
function Strip({ of, chosen, choose }: { of: Checkpoint[]; chosen: string; choose: (one: Checkpoint) => void }) {
  const most = Math.max(1, ...of.map((one) => one.end_to_end_duration));
  const ordered = [...of].sort((a, b) => a.id - b.id);
  if (!ordered.length) return null;
  return (
    <div class="strip" role="group" aria-label="Checkpoints by duration" data-strip={ordered.length}>
      <span class="strip-scale">{duration(most)}</span>
      {ordered.map((one) => (
        <button
          type="button"
          key={one.id}
          class={`strip-bar ${String(one.id) === chosen ? "chosen" : ""}`}
          title={`${kindOf(one)} ${one.id}: ${one.status}, ${duration(one.end_to_end_duration)}, ${bytes(one.checkpointed_size)}`}
          onClick={() => choose(one)}
        >
          <span class={`strip-fill tone-${tone(one.status)} ${one.is_savepoint ? "savepoint" : ""}`} style={{ height: `${Math.max(4, (100 * one.end_to_end_duration) / most)}%` }} />
          <span class="strip-id">{one.id}</span>
        </button>
      ))}
    </div>
  );
}

interface TaskRow extends CheckpointTask {
  vertex: string;
  name: string;
}

function Details({ job, id, vertex }: { job: JobDetails; id: string; vertex: string }) {
  const of = usePolled<Checkpoint>(at("jobs", job.jid, "checkpoints", "details", id));
  useTitle(3, `Checkpoint ${id}`);
  const columns: Column<TaskRow>[] = [
    { key: "name", title: "Vertex", value: (one) => one.name, wide: 3 },
    { key: "acks", title: "Acknowledged", value: (one) => one.num_acknowledged_subtasks, number: true, show: (one) => `${one.num_acknowledged_subtasks}/${one.num_subtasks}` },
    { key: "last", title: "Last one", value: (one) => one.latest_ack_timestamp, number: true, wide: 1.4, show: (one) => <When ms={one.latest_ack_timestamp} short /> },
    { key: "duration", title: "Duration", value: (one) => one.end_to_end_duration, number: true, show: (one) => duration(one.end_to_end_duration) },
    { key: "size", title: "Written", value: (one) => one.checkpointed_size, number: true, show: (one) => <Bytes of={one.checkpointed_size} /> },
    { key: "full", title: "Full size", value: (one) => one.state_size, number: true, show: (one) => <Bytes of={one.state_size} /> },
    { key: "processed", title: "In flight", value: (one) => one.processed_data, number: true, show: (one) => <Bytes of={one.processed_data} /> },
  ]; // prettier-ignore
  return (
    <Card name="checkpoint" title={`Checkpoint ${id}`}>
      {of.error?.status === 404 ? <p class="empty">It has left the history, which keeps the last ones (web.checkpoints.history).</p> : <Answer of={of} what="this checkpoint">
        {(found) => {
          const rows = job.vertices.flatMap((one) => (found.tasks[one.id] ? [{ ...found.tasks[one.id]!, vertex: one.id, name: one.name }] : []));
          const slowest = rows.reduce<TaskRow | undefined>((best, one) => (!best || one.end_to_end_duration > best.end_to_end_duration ? one : best), undefined);
          const chosen = vertex || slowest?.vertex || "";
          const facts: [string, ComponentChildren][] = [["State", <Badge state={found.status} />], ["Kind", kindOf(found)]];
          if (found.external_path) facts.push(["Path", <Copy text={found.external_path} />]);
          if (found.discarded !== undefined) facts.push(["Files", found.discarded ? "removed since" : "kept"]);
          if (found.failure_message) facts.push(["Why it failed", found.failure_message]);
          return (
            <>
              <Facts of={facts} />
              <Table name="of-checkpoint" columns={columns} rows={rows} id={(one) => one.vertex} chosen={chosen} open={(one) => go(["jobs", job.jid, "checkpoints", id, one.vertex])} sort="-duration" height={260} />
              {chosen && <Bars job={job} id={id} vertex={chosen} />}
            </>
          );
        }}
      </Answer>}
    </Card>
  );
}

const PHASES = ["delay", "alignment", "sync", "async"] as const;
const TITLES = { delay: "start delay", alignment: "alignment", sync: "sync", async: "async", rest: "until acknowledged" };

interface Phased {
  delay: number;
  alignment: number;
  sync: number;
  async: number;
  rest: number;
  total: number;
}

export function phases(one: CheckpointSubtask): Phased {
  const part = (value: number | undefined) => Math.max(0, value ?? 0);
  const found = { delay: part(one.start_delay), alignment: part(one.alignment?.duration), sync: part(one.checkpoint?.sync), async: part(one.checkpoint?.async) };
  const known = found.delay + found.alignment + found.sync + found.async;
  const total = Math.max(known, one.end_to_end_duration ?? 0);
  return { ...found, rest: total - known, total };
}

/** Where each subtask's time went. */
function Bars({ job, id, vertex }: { job: JobDetails; id: string; vertex: string }) {
  const of = usePolled<{ subtasks: CheckpointSubtask[] }>(at("jobs", job.jid, "checkpoints", "details", id, "subtasks", vertex));
  const [sort] = useQuery("bars-sort");
  const name = job.vertices.find((one) => one.id === vertex)?.name ?? vertex;
  return (
    <Answer of={of} what="subtasks of a checkpoint">
      {({ subtasks }) => {
        const most = Math.max(1, ...subtasks.map((one) => phases(one).total));
        const columns: Column<CheckpointSubtask>[] = [
          { key: "index", title: "Sub\u200btask", value: (one) => one.index, number: true, wide: 1, show: (one) => subtaskOf(one.index, subtasks.length) },
          {
            key: "bar", title: `From the trigger to the acknowledgement (the whole width is ${duration(most)})`, value: (one) => phases(one).total, wide: 4.2,
            show: (one) => {
              if (one.status !== "completed") return <span class="dim">{one.status.replaceAll("_", " ")}</span>;
              const found = phases(one);
              return (
                <span class="track tall" title={[...PHASES, "rest" as const].map((phase) => `${TITLES[phase]} ${duration(found[phase])}`).join(", ")} data-phases>
                  {[...PHASES, "rest" as const].map((phase) => <span key={phase} class={`fill phase-${phase}`} style={{ width: `${(100 * found[phase]) / most}%` }} />)}
                </span>
              );
            },
          },
          { key: "total", title: "Duration", wide: 1.3, value: (one) => one.end_to_end_duration ?? NaN, number: true, show: (one) => duration(one.end_to_end_duration) },
          ...PHASES.map((phase): Column<CheckpointSubtask> => ({ key: phase, title: TITLES[phase], wide: 1.15, value: (one) => (one.status === "completed" ? phases(one)[phase] : NaN), number: true, show: (one) => (one.status === "completed" ? duration(phases(one)[phase]) : "–") })),
          { key: "size", title: "Written", value: (one) => one.checkpointed_size ?? NaN, number: true, show: (one) => <Bytes of={one.checkpointed_size} /> },
          { key: "unaligned", title: "Unaligned", value: (one) => (one.unaligned_checkpoint ? "yes" : ""), wide: 1.15 },
        ]; // prettier-ignore
        return (
          <>
            <h3>{name}</h3>
            <p class="legend">
              {[...PHASES, "rest" as const].map((phase) => <span key={phase}><i class={`fill phase-${phase}`} /> {TITLES[phase]}</span>)}
            </p>
            <Table name="bars" columns={columns} rows={subtasks} id={(one) => String(one.index)} sort={sort || "-total"} height={420} />
          </>
        );
      }}
    </Answer>
  );
}

const MEASURES: [string, string, (value: number) => string][] = [
  ["end_to_end_duration", "Duration", duration],
  ["checkpointed_size", "Written", bytes],
  ["state_size", "Full size", bytes],
  ["processed_data", "In flight", bytes],
  ["persisted_data", "In flight, stored", bytes],
];

function Summaries({ of }: { of: Record<string, Summary> }) {
  type Row = { title: string; show: (value: number) => string; of: Summary };
  const rows = MEASURES.flatMap(([key, title, show]) => (of[key] ? [{ title, show, of: of[key]! }] : []));
  const cell = (row: Row, value: number | string | undefined) => (isNumber(value) ? row.show(value) : "–");
  const columns: Column<Row>[] = [
    { key: "what", title: "", value: (row) => row.title, wide: 1.6 },
    ...(["min", "avg", "p50", "p95", "p99", "max"] as const).map((key): Column<Row> => ({ key, title: key, number: true, wide: 1.4, value: (row) => Number(row.of[key] ?? NaN), show: (row) => cell(row, row.of[key]) })),
  ]; // prettier-ignore
  return <Table name="summary" columns={columns} rows={rows} id={(row) => row.title} />;
}

const LONGEST = 2 ** 62;

function Settings({ job }: { job: JobDetails }) {
  const of = usePolled<Record<string, unknown>>(at("jobs", job.jid, "checkpoints", "config"), null);
  const times = new Set(["interval", "timeout", "min_pause", "aligned_checkpoint_timeout", "changelog_periodic_materialization_interval"]);
  const text = (key: string, value: unknown): string => {
    if (times.has(key) && isNumber(value)) return value > LONGEST ? "never by itself" : duration(value);
    if (typeof value === "object" && value !== null) return Object.entries(value).map(([name, one]) => `${name.replaceAll("_", " ")}: ${one}`).join(", ");
    return value === "" || value === null ? "–" : String(value);
  };
  return (
    <Answer of={of} what="settings of checkpoints">
      {(found) => <Facts of={Object.entries(found).filter(([key]) => !key.startsWith("changelog") && !key.startsWith("state_changelog")).map(([key, value]) => [key.replaceAll("_", " "), text(key, value)])} />}
    </Answer>
  );
}
