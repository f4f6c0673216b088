import { useEffect, useRef, useState } from "preact/hooks";
import { ask, at, pollMs } from "../api";
import { isBatch } from "../diagnose";
import { Chart, useHistory, type Line } from "../chart";
import { bytes, count, duration, isNumber, percent, SIZE_STEPS, WHOLE } from "../format";
import { Card, Trouble } from "../parts";
import { useQuery } from "../router";
import { matches } from "../table";
import { usePolled } from "../api";
import { uncounted } from "../history";
import type { History, JobDetails, MetricList, Vertex } from "../types";

type Show = (value: number | null | undefined) => string;
const perSecond = (show: Show): Show => (value) => (isNumber(value) ? `${show(value)}/s` : show(value));

interface Drawn {
  title: string;
  show: Show;
  top?: number;
  steps?: number[];
  lines: [title: string, name: string, color?: string][];
}

const OF_VERTEX: Drawn[] = [
  { title: "Records", show: perSecond(count), lines: [["read", "numRecordsInPerSecond"], ["written", "numRecordsOutPerSecond"]] },
  { title: "Time, average of the subtasks", show: percent, top: 1000, lines: [["busy", "busyTimeMsPerSecond", "--busy"], ["back-pressured", "backPressuredTimeMsPerSecond", "--held"], ["idle", "idleTimeMsPerSecond", "--idle"]] },
  { title: "Time, worst subtask (over a minute)", show: percent, top: 1000, lines: [["busy", "maxBusyTimeMsPerSecond", "--busy"], ["back-pressured", "maxBackPressuredTimeMsPerSecond", "--held"]] },
  { title: "Bytes", show: perSecond(bytes), steps: SIZE_STEPS, lines: [["read", "numBytesInPerSecond"], ["written", "numBytesOutPerSecond"]] },
  { title: "Records that wait to be read", show: count, steps: WHOLE, lines: [["lag", "pendingRecords"]] },
  { title: "Event time behind the clock", show: duration, lines: [["behind", "watermarkLag"]] },
]; // prettier-ignore

/** Spark tells nothing of busy tasks. */
const OF_STAGE = OF_VERTEX.filter(({ title }) => title === "Records" || title === "Bytes");

const OF_JOB: Drawn[] = [
  { title: "Duration of the last checkpoint", show: duration, lines: [["duration", "lastCheckpointDuration"]] },
  { title: "Size of the last checkpoint", show: bytes, steps: SIZE_STEPS, lines: [["written", "lastCheckpointSize"], ["full", "lastCheckpointFullSize"]] },
  { title: "Checkpoints", show: count, steps: WHOLE, lines: [["completed", "numberOfCompletedCheckpoints"], ["failed", "numberOfFailedCheckpoints"]] },
  { title: "Restarts", show: count, top: 1, steps: WHOLE, lines: [["restarts", "numRestarts"]] },
]; // prettier-ignore

function Drawings({ of, drawn }: { of: History; drawn: Drawn[] }) {
  return (
    <div class="charts">
      {drawn.map((one) => {
        const lines = one.lines
          .filter(([, name]) => of.series[name]?.some((value) => value !== null) && !uncounted(of.series, name))
          .map(([title, name, color]): Line => ({ title, color, values: of.series[name]! }));
        return lines.length > 0 && <Chart key={one.title} title={one.title} times={of.times} lines={lines} show={one.show} top={one.top} steps={one.steps} since={of.times[0]} />;
      })}
    </div>
  );
}

function Remembered({ of, ended }: { of: History | undefined; ended: boolean }) {
  if (!of) return null;
  if (of.interval === 0) return <p class="empty">The Dispatcher keeps no history: firesteel.metrics.history.interval is 0.</p>;
  if (of.times.length === 0 && ended)
    return <p class="empty">Nothing is remembered: the job ended before the Dispatcher had looked at it, which it does every {duration(of.interval)}, or before this Dispatcher began.</p>;
  if (of.times.length === 0) return <p class="empty">Nothing is remembered yet: the Dispatcher looks every {duration(of.interval)}.</p>;
  return (
    <p class="dim">
      Every {duration(of.interval)}, for the last {duration(of.interval * of.size)}, kept by the Dispatcher. Drag to zoom, double-click to see all.
    </p>
  );
}

export function ChartsTab({ job }: { job: JobDetails }) {
  const [wanted, setWanted] = useQuery("vertex");
  const vertex = job.vertices.find((one) => one.id === wanted) ?? job.vertices[0];
  const ofJob = useHistory(job.jid, "");
  return (
    <>
      <Card title="The job">
        <Remembered of={ofJob} ended={job["end-time"] >= 0} />
        {ofJob && <Drawings of={ofJob} drawn={OF_JOB} />}
      </Card>
      {vertex && (
        <Card
          title={
            <label class="inline">
              Vertex
              <select value={vertex.id} onChange={(event) => setWanted(event.currentTarget.value)} aria-label="Vertex">
                {job.vertices.map((one) => (
                  <option key={one.id} value={one.id}>
                    {one.name}
                  </option>
                ))}
              </select>
            </label>
          }
        >
          <VertexCharts job={job} vertex={vertex} />
        </Card>
      )}
    </>
  );
}

export function VertexCharts({ job, vertex }: { job: JobDetails; vertex: Vertex }) {
  const found = useHistory(job.jid, vertex.id);
  return (
    <>
      <Remembered of={found} ended={job["end-time"] >= 0} />
      {found?.truncated && found.times.length > 0 && Object.keys(found.series).length === 0 && <p class="trouble quiet">The job has too many vertices: nothing is remembered of this one.</p>}
      {found && <Drawings of={found} drawn={isBatch(job) ? OF_STAGE : OF_VERTEX} />}
      <OwnMetrics job={job} vertex={vertex} />
    </>
  );
}

const MOST = 12;
const POINTS = 1200;

interface Sampled {
  times: number[];
  values: Record<string, (number | null)[]>;
}

/** Any metric of the vertex: drawn from the moment it is chosen. */
function OwnMetrics({ job, vertex }: { job: JobDetails; vertex: Vertex }) {
  const path = at("jobs", job.jid, "vertices", vertex.id, "metrics");
  const ids = usePolled<MetricList>(path, null);
  const [text, setText] = useQuery("metrics");
  const [find, setFind] = useState("");
  const chosen = text ? text.split(",") : [];
  const [sampled, setSampled] = useState<Sampled>({ times: [], values: {} });
  const now = useRef(chosen);
  now.current = chosen;
  useEffect(() => {
    if (!text) return;
    const control = new AbortController();
    let timer = 0;
    const sample = async () => {
      try {
        const found = await ask<MetricList>(`${path}?get=${encodeURIComponent(now.current.join(","))}`, { signal: control.signal });
        const values = new Map(found.map((one) => [one.id, Number(one.value)]));
        setSampled((before) => {
          const next: Sampled = { times: [...before.times, Date.now()].slice(-POINTS), values: {} };
          for (const id of now.current) {
            const old = before.values[id] ?? before.times.map(() => null);
            const value = values.get(id);
            next.values[id] = [...old, isNumber(value) ? value : null].slice(-POINTS);
          }
          return next;
        });
      } catch {
        if (control.signal.aborted) return;
      }
      timer = window.setTimeout(sample, pollMs);
    };
    void sample();
    return () => {
      control.abort();
      clearTimeout(timer);
    };
  }, [path, text]);
  const found = (ids.data ?? []).filter(({ id }) => !chosen.includes(id) && (!find || matches(id, find)));
  return (
    <div class="own-metrics">
      <h3>Any metric, from now on</h3>
      <Trouble error={ids.error} what="metrics" />
      <div class="table-tools">
        <input class="find" type="search" placeholder="Search among all metrics of all subtasks" value={find} onInput={(event) => setFind(event.currentTarget.value)} data-find="metrics" />
        <span class="dim">{count(ids.data?.length ?? 0)} metrics</span>
      </div>
      {find && (
        <div class="choices wrap">
          {found.slice(0, 40).map(({ id }) => (
            <button type="button" key={id} disabled={chosen.length >= MOST} onClick={() => { setText([...chosen, id].join(",")); setFind(""); }} data-metric={id}>
              + {id}
            </button>
          ))}
          {found.length > 40 && <span class="dim">and {count(found.length - 40)} more: search more narrowly</span>}
          {found.length === 0 && <span class="dim">no such metric</span>}
        </div>
      )}
      <div class="charts">
        {chosen.map((id) => (
          <div key={id} class="own-chart">
            <Chart title={id} times={sampled.times} lines={[{ title: id.replace(/^.*\./, ""), values: sampled.values[id] ?? sampled.times.map(() => null) }]} show={count} since={0} />
            <button type="button" class="plain remove" onClick={() => setText(chosen.filter((one) => one !== id).join(","))} aria-label={`Remove ${id}`}>
              ×
            </button>
          </div>
        ))}
      </div>
    </div>
  );
}
