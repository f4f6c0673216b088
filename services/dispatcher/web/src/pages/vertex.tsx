import { useState } from "preact/hooks";
import { hottest, inChain, ownShares } from "../operators";
import { at, usePolled, type Polled } from "../api";
import { quantile } from "../diagnose";
import { bytes, count, counted, duration, isNumber, percent, share, subtaskOf, watermark } from "../format";
import { Answer, Badge, Bytes, Card, Count, Share, Tabs, useTime, When } from "../parts";
import { go, href } from "../router";
import { config, useStore } from "../store";
import { Table, type Column } from "../table";
import { useTitle } from "../title";
import type { HotKeys, InputProgress, JobDetails, MetricList, OperatorRow, Subtask, Vertex, VertexDetails, VertexOperators } from "../types";
import { FlameGraph } from "./flamegraph";
import { VertexCharts } from "./charts";

const PANELS: [string, string][] = [
  ["subtasks", "Subtasks"],
  ["operators", "Operators"],
  ["backpressure", "Back pressure"],
  ["hotkeys", "Hot keys"],
  ["watermarks", "Watermarks"],
  ["charts", "Charts"],
  ["taskmanagers", "TaskManagers"],
  ["accumulators", "Accumulators"],
  ["flamegraph", "Flame graph"],
];

export function VertexPanel({ job, vertex, panel }: { job: JobDetails; vertex: Vertex; panel: string }) {
  const history = useStore(config)?.features["web-history"] ?? false;
  const keyed = job.plan.nodes.find((node) => node.id === vertex.id)?.inputs?.some((input) => input.ship_strategy === "HASH") ?? false;
  const hidden = [...(history ? ["charts", "flamegraph", "hotkeys"] : []), ...(keyed && job["end-time"] < 0 && job["job-type"] !== "BATCH" ? [] : ["hotkeys"])];
  const panels = PANELS.filter(([key]) => !hidden.includes(key));
  const now = panels.some(([key]) => key === panel) ? panel : "subtasks";
  useTitle(3, vertex.name);
  const rows = ["subtasks", "backpressure"].includes(now);
  const details = usePolled<VertexDetails>(rows ? at("jobs", job.jid, "vertices", vertex.id) : null);
  return (
    <Card name="vertex">
      <header class="panel-head">
        <h2 title={vertex.name}>{vertex.name}</h2>
        <span class="dim">
          parallelism {vertex.parallelism} of at most {vertex.maxParallelism} · <Badge state={vertex.status} />
        </span>
        <button type="button" class="plain" onClick={() => go(["jobs", job.jid, "overview"])} title="Back to all vertices (Escape)" data-close="vertex">
          All vertices
        </button>
      </header>
      <Tabs path={["jobs", job.jid, "overview", vertex.id]} tabs={panels} now={now} />
      {now === "subtasks" && <Subtasks of={details} />}
      {now === "backpressure" && <BackPressure of={details} />}
      {now === "operators" && <Operators job={job} vertex={vertex} />}
      {now === "hotkeys" && <HotKeyTable job={job} vertex={vertex} />}
      {now === "watermarks" && <Watermarks job={job} vertex={vertex} />}
      {now === "charts" && <VertexCharts job={job} vertex={vertex} />}
      {now === "taskmanagers" && <TaskManagers job={job} vertex={vertex} />}
      {now === "accumulators" && <Accumulators job={job} vertex={vertex} />}
      {now === "flamegraph" && <FlameGraph job={job} vertex={vertex} />}
    </Card>
  );
}

const live = (row: Subtask, name: string): number => row["firesteel-now"]?.[name] ?? NaN;
const perSecond = (row: Subtask, name: string): number => live(row, `${name}PerSecond`);
/** What the slot of a subtask has logged. */
const slotLog = (row: Subtask) => {
  const slot = row["firesteel-slot"] ?? -1;
  if (slot < 0 || config.get()?.features["web-history"]) return slot < 0 ? "–" : slot;
  return <a href={href(["taskmanagers", row["taskmanager-id"], "logs", `slot-${slot}.log`])} title="What the functions of this slot have logged">{slot}</a>;
};
export const place = (id: string) => (id.startsWith("(") || config.get()?.features["web-history"] ? <span class="dim">{id}</span> : <a href={href(["taskmanagers", id])}>{id}</a>);

const numberOf = (parallelism: number): Column<Subtask> => ({ key: "subtask", title: "Sub\u200btask", value: (row) => row.subtask, number: true, wide: 1, show: (row) => <small>{subtaskOf(row.subtask, parallelism)}</small> });

const SUBTASKS: Column<Subtask>[] = [
  { key: "status", title: "State", value: (row) => row.status, wide: 1.4, show: (row) => <Badge state={row.status} /> },
  { key: "busy", title: "Busy", value: (row) => perSecond(row, "busyTimeMs"), number: true, wide: 1.12, show: (row) => <Share of={perSecond(row, "busyTimeMs")} kind="busy" /> },
  { key: "held", title: "Back-pressured", value: (row) => perSecond(row, "backPressuredTimeMs"), number: true, wide: 1.27, show: (row) => <Share of={perSecond(row, "backPressuredTimeMs")} kind="held" /> },
  { key: "in-rate", title: "In /s", value: (row) => perSecond(row, "numRecordsIn"), number: true, wide: 0.8, show: (row) => count(perSecond(row, "numRecordsIn")) },
  { key: "out-rate", title: "Out /s", value: (row) => perSecond(row, "numRecordsOut"), number: true, wide: 0.85, show: (row) => count(perSecond(row, "numRecordsOut")) },
  { key: "in", title: "Read", help: "records", value: (row) => row.metrics["read-records"], number: true, wide: 0.88, show: (row) => <Count of={row.metrics["read-records"]} /> },
  { key: "out", title: "Written", help: "records", value: (row) => row.metrics["write-records"], number: true, wide: 0.98, show: (row) => <Count of={row.metrics["write-records"]} /> },
  { key: "bytes-in", title: "Bytes in", help: "bytes read", value: (row) => row.metrics["read-bytes"], number: true, wide: 1.12, show: (row) => <Bytes of={counted(row.metrics["read-bytes"], row.metrics["read-records"])} /> },
  { key: "bytes-out", title: "Bytes out", help: "bytes written", value: (row) => row.metrics["write-bytes"], number: true, wide: 1.12, show: (row) => <Bytes of={counted(row.metrics["write-bytes"], row.metrics["write-records"])} /> },
  { key: "attempt", title: "Attempt", value: (row) => row.attempt, number: true, wide: 1.07 },
  { key: "where", title: "Task\u200bManager", value: (row) => row["taskmanager-id"], wide: 1.13, show: (row) => place(row["taskmanager-id"]) },
  { key: "slot", title: "Slot", value: (row) => row["firesteel-slot"] ?? NaN, number: true, wide: 0.62, show: slotLog },
  { key: "start", title: "Started", value: (row) => row["start-time"], number: true, wide: 1.1, show: (row) => <When ms={row["start-time"]} short /> },
  { key: "duration", title: "Duration", value: (row) => row.duration, number: true, wide: 1.17, show: (row) => duration(row.duration) },
]; // prettier-ignore

const SHARES: [string, number][] = [["least", 0], ["p25", 0.25], ["median", 0.5], ["p75", 0.75], ["p95", 0.95], ["most", 1]];

interface Measure {
  name: string;
  values: number[];
  text: (value: number) => string;
  total: boolean;
}

function Percentiles({ rows }: { rows: Subtask[] }) {
  const measures: Measure[] = [
    { name: "Busy", values: rows.map((row) => perSecond(row, "busyTimeMs")), text: percent, total: false },
    { name: "Back-pressured", values: rows.map((row) => perSecond(row, "backPressuredTimeMs")), text: percent, total: false },
    { name: "Records in /s", values: rows.map((row) => perSecond(row, "numRecordsIn")), text: count, total: true },
    { name: "Records out /s", values: rows.map((row) => perSecond(row, "numRecordsOut")), text: count, total: true },
    { name: "Records in", values: rows.map((row) => row.metrics["read-records"]), text: count, total: true },
    { name: "Records out", values: rows.map((row) => row.metrics["write-records"]), text: count, total: true },
    { name: "Bytes in", values: rows.map((row) => row.metrics["read-bytes"]), text: bytes, total: true },
    { name: "Bytes out", values: rows.map((row) => row.metrics["write-bytes"]), text: bytes, total: true },
    { name: "Duration", values: rows.map((row) => row.duration), text: duration, total: false },
  ];
  const columns: Column<Measure>[] = [
    { key: "name", title: "Over all subtasks", value: (row) => row.name, wide: 1.5 },
    ...SHARES.map(([name, share]): Column<Measure> => ({ key: name, title: name, number: true, value: (row) => quantile(row.values, share), show: (row) => row.text(quantile(row.values, share)) })),
    { key: "sum", title: "sum", number: true, value: (row) => (row.total ? row.values.reduce((sum, one) => sum + (isNumber(one) ? one : 0), 0) : NaN), show: (row) => (row.total ? row.text(row.values.reduce((sum, one) => sum + (isNumber(one) ? one : 0), 0)) : "") },
  ]; // prettier-ignore
  return <Table name="percentiles" columns={columns} rows={measures} id={(row) => row.name} />;
}

function Subtasks({ of }: { of: Polled<VertexDetails> }) {
  const [summed, setSummed] = useState(false);
  return (
    <Answer of={of} what="subtasks">
      {(found) => (
        <>
          {summed && <Percentiles rows={found.subtasks} />}
          <Table
            name="subtasks"
            columns={[numberOf(found.parallelism), ...SUBTASKS]}
            rows={found.subtasks}
            id={(row) => String(row.subtask)}
            filter="Filter by state, TaskManager …"
            tools={
              <button type="button" class="plain" aria-pressed={summed} onClick={() => setSummed(!summed)} data-toggle="percentiles">
                {summed ? "Hide percentiles" : "Percentiles"}
              </button>
            }
          />
        </>
      )}
    </Answer>
  );
}

const PRESSURE: Column<Subtask>[] = [
  { key: "held", title: "Back-pressured", wide: 1.3, value: (row) => perSecond(row, "backPressuredTimeMs"), number: true, show: (row) => percent(perSecond(row, "backPressuredTimeMs")) },
  { key: "busy", title: "Busy", value: (row) => perSecond(row, "busyTimeMs"), number: true, show: (row) => percent(perSecond(row, "busyTimeMs")) },
  { key: "idle", title: "Idle", value: (row) => perSecond(row, "idleTimeMs"), number: true, show: (row) => percent(perSecond(row, "idleTimeMs")) },
  { key: "in-pool", title: "In front", help: "how full the fullest channel in front of it is: what is full there waits for this subtask", value: (row) => live(row, "buffers.inPoolUsage"), number: true, show: (row) => share(live(row, "buffers.inPoolUsage")) },
  { key: "out-pool", title: "Behind", help: "how full the fullest channel behind it is: what is full there waits for the next subtask", value: (row) => live(row, "buffers.outPoolUsage"), number: true, show: (row) => share(live(row, "buffers.outPoolUsage")) },
  {
    key: "bar", title: "Of each second", value: (row) => perSecond(row, "backPressuredTimeMs"), wide: 5,
    show: (row) => (
      <span class="track tall">
        {(["busy", "backPressured", "idle"] as const).map((kind) => (
          <span key={kind} class={`fill ${kind === "backPressured" ? "held" : kind}`} style={{ width: `${Math.max(0, perSecond(row, `${kind}TimeMs`) || 0) / 10}%` }} />
        ))}
      </span>
    ),
  },
  { key: "level", title: "Level", value: (row) => ratioLevel(perSecond(row, "backPressuredTimeMs")), show: (row) => <span class={`level ${ratioLevel(perSecond(row, "backPressuredTimeMs"))}`}>{ratioLevel(perSecond(row, "backPressuredTimeMs"))}</span> },
  { key: "where", title: "TaskManager", value: (row) => row["taskmanager-id"], wide: 1.7, show: (row) => place(row["taskmanager-id"]) },
]; // prettier-ignore

function ratioLevel(held: number): string {
  return !isNumber(held) ? "–" : held > 500 ? "high" : held > 100 ? "low" : "ok";
}

function BackPressure({ of }: { of: Polled<VertexDetails> }) {
  return (
    <Answer of={of} what="back pressure">
      {(found) => {
        const most = Math.max(...found.subtasks.map((row) => perSecond(row, "backPressuredTimeMs") || 0));
        return (
          <>
            <p>
              Back pressure is <span class={`level ${ratioLevel(most)}`} data-level={ratioLevel(most)}>{ratioLevel(most)}</span>
              {most > 0 ? `: the subtask that waits most for those behind it does so ${percent(most)} of the time.` : ": no subtask waits for those behind it."}
              {most > 100 && " Its cause is further to the right in the graph."}
            </p>
            <p class="legend"><span><i class="fill busy" /> busy</span><span><i class="fill held" /> back-pressured</span><span><i class="fill idle" /> idle</span><span>over the last minute</span></p>
            <Table name="pressure" columns={[numberOf(found.parallelism), ...PRESSURE]} rows={found.subtasks} id={(row) => String(row.subtask)} sort="-held" />
          </>
        );
      }}
    </Answer>
  );
}

/** What runs inside the vertex. The share is of the time of all operators: of the last minute, or of all if the tasks have ended. */
function Operators({ job, vertex }: { job: JobDetails; vertex: Vertex }) {
  const of = usePolled<VertexOperators>(at("jobs", job.jid, "vertices", vertex.id, "operators"));
  return (
    <Answer of={of} what="operators of a vertex">
      {(found) => {
        const runs = vertex["end-time"] < 0 && found["busy-time-ms-per-second"] > 0;
        const { shares, rest } = ownShares(found, runs);
        const part = (row: OperatorRow): number => shares.get(row.name) ?? NaN;
        const columns: Column<OperatorRow>[] = [
          { key: "name", title: "Operator", value: (row) => row.name, wide: 2.6 },
          { key: "share", title: runs ? "Share of busy time" : "Share of own time", value: part, number: true, wide: 2, show: (row) => <Share of={1000 * part(row)} kind="busy" /> },
          { key: "in-rate", title: "In /s", value: (row) => row["records-in-per-second"], number: true, show: (row) => count(row["records-in-per-second"]) },
          { key: "out-rate", title: "Out /s", value: (row) => row["records-out-per-second"], number: true, show: (row) => count(row["records-out-per-second"]) },
          { key: "in", title: "Records in", value: (row) => row["records-in"], number: true, show: (row) => <Count of={row["records-in"]} /> },
          { key: "out", title: "Records out", value: (row) => row["records-out"], number: true, show: (row) => <Count of={row["records-out"]} /> },
          { key: "late", title: "Late", help: "records that came behind the watermark and were dropped", value: (row) => row["late-records"] ?? NaN, number: true, show: (row) => (row["late-records"] === undefined ? "–" : <Count of={row["late-records"]} />) },
          { key: "own", title: "Own time", help: "in which the operator itself worked, over all subtasks", value: (row) => row["own-time-ms"], number: true, show: (row) => duration(row["own-time-ms"]) },
          { key: "busiest", title: "Busiest", help: "share of each second in the subtask where it is largest", value: (row) => row.busiest.value, number: true, wide: 1.2, show: (row) => (runs ? <>{percent(row.busiest.value)} <small>{subtaskOf(row.busiest.subtask, vertex.parallelism)}</small></> : "–") },
        ]; // prettier-ignore
        return (
          <>
            <p>{inChain(found.operators, shares, rest)}</p>
            <Table name="operators" columns={columns} rows={found.operators} id={(row) => row.name} empty="Nothing is known of the operators of this vertex: its tasks have not run yet." />
          </>
        );
      }}
    </Answer>
  );
}

/** Which keys make most of the records. Keys become texts in the slots that send them, and only while somebody looks. */
function HotKeyTable({ job, vertex }: { job: JobDetails; vertex: Vertex }) {
  const of = usePolled<HotKeys>(at("jobs", job.jid, "vertices", vertex.id, "hot-keys"));
  const columns: Column<HotKeys["keys"][number]>[] = [
    { key: "key", title: "Key", value: (row) => row.key, wide: 4, show: (row) => <code class="wrap">{row.key}</code> },
    { key: "share", title: "Share of records", value: (row) => row.share, number: true, wide: 2, show: (row) => <Share of={1000 * row.share} kind="busy" /> },
    { key: "records", title: "Records", help: "about, of the last minute; those of long ago count less", value: (row) => row.records, number: true, show: (row) => count(row.records) },
    { key: "subtask", title: "Subtask", help: "to which all records of this key go", value: (row) => row.subtask, number: true, show: (row) => subtaskOf(row.subtask, vertex.parallelism) },
  ]; // prettier-ignore
  return (
    <Answer of={of} what="hot keys">
      {(found) => (
        <>
          <p>{hottest(found)}</p>
          {found.problems.map((problem) => <p key={problem} class="dim">{problem}</p>)}
          <Table name="hotkeys" columns={columns} rows={found.keys} id={(row) => `${row.subtask} ${row.key}`} empty="No keys have been counted: with one subtask they decide nothing, and firesteel.metrics.hot-keys may be off." />
        </>
      )}
    </Answer>
  );
}

interface Mark {
  id: string;
  subtask: number;
  what: string;
  value: string;
}

function Watermarks({ job, vertex }: { job: JobDetails; vertex: Vertex }) {
  const of = usePolled<MetricList>(at("jobs", job.jid, "vertices", vertex.id, "watermarks"));
  const time = useTime();
  const columns: Column<Mark>[] = [
    { key: "subtask", title: "Subtask", value: (row) => row.subtask, number: true, wide: 0.9, show: (row) => subtaskOf(row.subtask, vertex.parallelism) },
    { key: "what", title: "Of", value: (row) => row.what, wide: 2 },
    { key: "time", title: "Event time", value: (row) => watermark(row.value).ms, number: true, wide: 2, show: (row) => said(row.value, time) },
    { key: "lag", title: "Behind", value: (row) => job.now - watermark(row.value).ms, number: true, show: (row) => (watermark(row.value).kind === "time" ? duration(Math.max(0, job.now - watermark(row.value).ms)) : "–") },
    { key: "number", title: "Watermark", value: (row) => Number(row.value), number: true, wide: 2, show: (row) => <code>{row.value}</code> },
  ]; // prettier-ignore
  return (
    <Answer of={of} what="watermarks">
      {(found) => {
        const rows = found.map(({ id, value = "" }): Mark => {
          const [index = "", ...rest] = id.split(".");
          const name = rest.join(".");
          return { id, subtask: Number(index), what: name === "currentInputWatermark" ? "all inputs" : name.replace(/^split\./, "split ").replace(/\.watermark\.currentWatermark$/, ""), value };
        });
        return (
          <>
            <Holds job={job} vertex={vertex} />
            <Table name="watermarks" columns={columns} rows={rows} id={(row) => row.id} sort="time" filter empty="Sources have no input; none of their splits has a watermark." />
          </>
        );
      }}
    </Answer>
  );
}

/** What event time waits for: in words, and by input of the subtask that is furthest behind. */
function Holds({ job, vertex }: { job: JobDetails; vertex: Vertex }) {
  const time = useTime();
  const of = vertex["firesteel-event-time"];
  const sentences = (job["firesteel-watermark-holds"] ?? []).filter((hold) => hold.vertex === vertex.id || hold.cause === vertex.id);
  const name = (row: InputProgress): string => {
    const from = job.vertices.find((one) => one.id === row.source);
    if (from) return `${from.name}, subtask ${subtaskOf(row.subtask ?? 0, from.parallelism)}`;
    return row.split ? `split ${row.split}` : row.input === 0 ? (row.members ? "its own watermarks" : "no split") : "–";
  };
  const columns: Column<InputProgress>[] = [
    { key: "input", title: "Input", value: (row) => row.input, wide: 0.7, show: (row) => (row.input === 0 ? "own" : row.input) },
    { key: "slowest", title: "Waits for", help: "the channel or split whose watermark is the lowest, of those that are not idle", value: name, wide: 3 },
    { key: "time", title: "Event time", value: (row) => row.watermark ?? NaN, number: true, wide: 2, show: (row) => (row.watermark === undefined ? "–" : said(exactly(row.watermark), time)) },
    { key: "behind", title: "Behind the fastest", value: (row) => (row.ahead ?? NaN) - (row.watermark ?? NaN), number: true, wide: 1.3, show: (row) => behindFastest(row) },
    { key: "still", title: "Not moved for", value: (row) => row.still_ms ?? NaN, number: true, wide: 1.2, show: (row) => (row.still_ms === undefined ? "–" : duration(row.still_ms)) },
    { key: "silent", title: "No records for", help: "of a split, or of an operator that makes watermarks", value: (row) => row.silent_ms ?? NaN, number: true, wide: 1.2, show: (row) => (row.silent_ms === undefined ? "–" : row.silent_ms < 0 ? "none yet" : duration(row.silent_ms)) },
    { key: "idle", title: "Idle", help: "channels or splits that are idle, of all; they hold nothing back", value: (row) => row.idle, number: true, show: (row) => `${row.idle}/${row.members}` },
  ]; // prettier-ignore
  if (!of) return null;
  const idle = of["idle-count"] ?? 0;
  return (
    <>
      {sentences.map((hold) => <p key={hold.text} class="hold" data-hold={hold.cause}>{hold.text}</p>)}
      {idle > 0 && (
        <p data-idle={idle}>
          {idle} of {vertex.parallelism} subtasks {idle === 1 ? "is" : "are"} idle, and hold{idle === 1 ? "s" : ""} nothing back: {(of.idle ?? []).map((one) => subtaskOf(one, vertex.parallelism)).join(", ")}
          {idle > (of.idle ?? []).length && " …"}.
        </p>
      )}
      {of.inputs && of.inputs.length > 0 && (
        <>
          <h3>Subtask {subtaskOf(of.subtask ?? 0, vertex.parallelism)}, whose event time is furthest behind</h3>
          <Table name="holds" columns={columns} rows={of.inputs} id={(row) => String(row.input)} />
        </>
      )}
    </>
  );
}

/** The least and the greatest watermark are no numbers that JavaScript can hold exactly. */
const exactly = (value: number): string => (value <= -9.2e18 ? "-9223372036854775808" : value >= 9.2e18 ? "9223372036854775807" : String(value));

function behindFastest(row: InputProgress): string {
  if (row.watermark === undefined || row.ahead === undefined) return "–";
  if (watermark(exactly(row.ahead)).kind !== "time" || watermark(exactly(row.watermark)).kind !== "time") return row.ahead === row.watermark ? "–" : "has none yet";
  return duration(row.ahead - row.watermark);
}

function said(value: string, time: (ms: number) => string) {
  const mark = watermark(value);
  if (mark.kind === "time") return time(mark.ms);
  return <span class="dim">{mark.kind === "end" ? "the end: no more comes" : "none yet"}</span>;
}

type Group = Omit<Subtask, "subtask" | "attempt"> & { "status-counts": Record<string, number> };

function TaskManagers({ job, vertex }: { job: JobDetails; vertex: Vertex }) {
  const of = usePolled<{ taskmanagers: Group[] }>(at("jobs", job.jid, "vertices", vertex.id, "taskmanagers"));
  const columns: Column<Group>[] = [
    { key: "where", title: "TaskManager", value: (row) => row["taskmanager-id"], wide: 2.4, show: (row) => place(row["taskmanager-id"]) },
    { key: "tasks", title: "Tasks", value: (row) => Object.values(row["status-counts"]).reduce((sum, one) => sum + one, 0), number: true },
    { key: "status", title: "State", value: (row) => row.status, show: (row) => <Badge state={row.status} /> },
    { key: "in", title: "Read", help: "records", value: (row) => row.metrics["read-records"], number: true, wide: 0.9, show: (row) => <Count of={row.metrics["read-records"]} /> },
    { key: "out", title: "Written", help: "records", value: (row) => row.metrics["write-records"], number: true, wide: 1.07, show: (row) => <Count of={row.metrics["write-records"]} /> },
    { key: "bytes-in", title: "Bytes in", help: "bytes read", value: (row) => row.metrics["read-bytes"], number: true, wide: 1.1, show: (row) => <Bytes of={counted(row.metrics["read-bytes"], row.metrics["read-records"])} /> },
    { key: "bytes-out", title: "Bytes out", help: "bytes written", value: (row) => row.metrics["write-bytes"], number: true, wide: 1.2, show: (row) => <Bytes of={counted(row.metrics["write-bytes"], row.metrics["write-records"])} /> },
    { key: "start", title: "Started", value: (row) => row["start-time"], number: true, wide: 1.5, show: (row) => <When ms={row["start-time"]} short /> },
  ]; // prettier-ignore
  return <Answer of={of} what="TaskManagers of a vertex">{(found) => <Table name="workers" columns={columns} rows={found.taskmanagers} id={(row) => row["taskmanager-id"]} filter />}</Answer>;
}

interface Accumulator {
  name: string;
  type: string;
  value: string;
}

function Accumulators({ job, vertex }: { job: JobDetails; vertex: Vertex }) {
  const of = usePolled<{ "user-accumulators": Accumulator[] }>(at("jobs", job.jid, "vertices", vertex.id, "accumulators"));
  const columns: Column<Accumulator>[] = [
    { key: "name", title: "Name", value: (row) => row.name, wide: 2 },
    { key: "type", title: "Type", value: (row) => row.type },
    { key: "value", title: "Value", value: (row) => row.value, wide: 3 },
  ];
  return <Answer of={of} what="accumulators">{(found) => <Table name="accumulators" columns={columns} rows={found["user-accumulators"]} id={(row) => row.name} empty="The functions of this vertex have none." />}</Answer>;
}
