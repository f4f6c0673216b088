import { at, usePolled } from "../api";
import { bytes, count, duration, exact, isNumber } from "../format";
import { sparkLines } from "../health";
import { Answer, Card, Copy, Facts, Figure, When } from "../parts";
import { href, useQuery } from "../router";
import { apart, growth, kindOf, signed, stateRows, type StateRow } from "../state";
import { Table, type Column } from "../table";
import type { JobDetails, StateCheckpoint, StateSizes } from "../types";

const KINDS: Record<string, string> = { new: "good", gone: "off", grown: "warn", shrunk: "done" };
const about = (text: string, estimated: boolean) => (estimated && !/^0( |$)/.test(text) ? <span title="an estimate of the state backend">about {text}</span> : text);
const was = (before: number | null, show: (value: number) => string) => (before === null ? "" : `before: ${show(before)}`);
const difference = (now: number | null, before: number | null) => (now === null && before === null ? NaN : (now ?? 0) - (before ?? 0));

/** How a state went in the checkpoints that are known. */
function Trend({ of, title }: { of: (number | null)[]; title: string }) {
  const lines = sparkLines(of, 96, 20);
  if (!lines.length) return <span class="dim">–</span>;
  return (
    <svg class="spark" viewBox="-1 -1 98 22" width="98" height="22" role="img" aria-label={title}>
      <title>{title}</title>
      {lines.map((points, index) => <polyline key={index} points={points} />)}
    </svg>
  );
}

const COLUMNS: Column<StateRow>[] = [
  { key: "operator", title: "Operator", value: (row) => row.operator.name, wide: 2, show: (row) => <span class="two-lines" title={row.operator.uid ? `uid ${row.operator.uid}` : "it has no uid"}>{row.operator.name}</span> },
  { key: "name", title: "State", value: (row) => row.name, wide: 1.6 },
  { key: "kind", title: "Kind", value: (row) => kindOf(row.kind), wide: 1.3 },
  { key: "entries", title: "Keys", help: "keys; of timers, lists of operator state and splits: how many there are, in all subtasks", value: (row) => row.entries ?? NaN, number: true, wide: 1.3, show: (row) => <span title={`${exact(row.entries)} ${was(row["base-entries"], exact)}`}>{about(count(row.entries), row["entries-about"])}</span> },
  { key: "more-entries", title: "Change", help: "of the number of keys", value: (row) => difference(row.entries, row["base-entries"]), number: true, wide: 1, show: (row) => signed(difference(row.entries, row["base-entries"]), count) },
  { key: "size", title: "Size", help: "in the checkpoint", value: (row) => row.size ?? NaN, number: true, wide: 1.5, show: (row) => <span title={`${exact(row.size)} bytes ${was(row["base-size"], bytes)}`}>{about(bytes(row.size), row["size-about"])}</span> },
  { key: "more-size", title: "Change", help: "of the size", value: (row) => difference(row.size, row["base-size"]), number: true, wide: 1.1, show: (row) => signed(difference(row.size, row["base-size"]), bytes) },
  { key: "rate", title: "A minute", help: "what the size grows by in a minute, between the two checkpoints", value: (row) => row.bytesPerMinute, number: true, wide: 1.1, show: (row) => signed(row.bytesPerMinute, bytes) },
  { key: "change", title: "Became", value: (row) => row.change ?? "", wide: 0.9, show: (row) => (row.change && row.change !== "same" ? <span class={`badge ${KINDS[row.change] ?? "off"}`}>{row.change}</span> : <span class="dim">{row.change ?? "–"}</span>) },
  { key: "trend", title: "Trend", help: "size in the checkpoints that are known, from 0 on", value: () => "", wide: 1.6, show: (row) => <Trend of={row.sizes} title={`${row.name}: ${row.sizes.map(bytes).join(", ")}`} /> },
]; // prettier-ignore

const nameOf = (one: StateCheckpoint) => `${one.is_savepoint ? "savepoint" : "checkpoint"} ${one.id}`;

export function StateTab({ job }: { job: JobDetails }) {
  const [chosen, choose] = useQuery("checkpoint");
  const [base, chooseBase] = useQuery("base");
  const query = new URLSearchParams({ ...(chosen && { checkpoint: chosen }), ...(base && { base }) }).toString();
  const of = usePolled<StateSizes>(`${at("jobs", job.jid, "state")}${query && `?${query}`}`);
  if (of.error?.status === 404 && /enabled/.test(of.error.message))
    return <Card name="state"><p class="empty">This job takes no checkpoints, and its state is measured when one is taken: set execution.checkpointing.interval, or take one by the button.</p></Card>;
  return (
    <Answer of={of} what="the size of state">
      {(found) => {
        const now = found.checkpoint;
        if (!now)
          return <Card name="state"><p class="empty">State is measured when a checkpoint is taken, and none has completed yet. <a href={href(["jobs", job.jid, "checkpoints"])}>Checkpoints</a></p></Card>;
        const rows = stateRows(found);
        const rate = growth(found);
        const choice = (value: string, set: (value: string) => void, otherwise: string, name: string) => (
          <label class="inline">
            {name}
            <select value={value} onChange={(event) => set(event.currentTarget.value)} data-choice={name}>
              <option value="">{otherwise}</option>
              {[...found.checkpoints].reverse().map((one) => <option key={one.id} value={String(one.id)}>{nameOf(one)} ({bytes(one.size)})</option>)}
            </select>
          </label>
        );
        return (
          <>
            <div class="figures">
              <Figure name="state-size" title="State" value={bytes(now.size)} note={<>{nameOf(now)}, <When ms={now.trigger_timestamp} short /></>} />
              <Figure name="state-growth" title="Growth a minute" value={signed(rate, bytes)} tone="" note={found.base ? `in ${duration(Math.abs(apart(found)))}, since ${nameOf(found.base)}` : "known with the next checkpoint"} />
              <Figure name="state-keys" title="Largest" value={bytes(Math.max(0, ...rows.map((row) => row.size ?? 0)))} note={largest(rows)} />
              <Figure name="state-backend" title="State backend" value={found.backend} note={`${rows.length} states`} />
            </div>
            <Card title="By operator and state" name="state">
              <div class="table-tools">
                {choice(chosen, choose, "the last one", "Checkpoint")}
                {choice(base, chooseBase, "the first that is known", "compared with")}
              </div>
              <Table name="states" columns={COLUMNS} rows={rows} id={(row) => row.id} sort="-size" filter={rows.length > 8} empty="This job has no state." />
              <p class="dim">What slots counted as they wrote the checkpoint. Where a backend keeps state in files of its own, keys and the parts of each state are its estimates ("about"); sums are exact.</p>
              {found.base && !found.base.discarded && !now.discarded && now.external_path && found.base.external_path && (
                <Facts of={[["In the terminal", <Copy text={`firesteel savepoint compare ${found.base.external_path} ${now.external_path}`} />]]} />
              )}
            </Card>
          </>
        );
      }}
    </Answer>
  );
}

function largest(rows: StateRow[]): string {
  const known = rows.filter((row) => isNumber(row.size));
  const first = known.reduce<StateRow | undefined>((best, row) => (best && (best.size ?? 0) >= (row.size ?? 0) ? best : row), undefined);
  return first ? `${first.name} of ${first.operator.name}` : "";
}
