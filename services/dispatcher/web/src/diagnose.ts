// What a job's graph says about why it is slow. Pure.
import { ago, duration, isNumber, percent, subtaskOf, watermark } from "./format";
import type { ExceptionEntry, JobDetails, Vertex, Worst } from "./types";

export const HIGH = 500;
export const LOW = 100;
export const FULL = 900;
/** A failure is told for so long after the job was started again. */
const RECENT = 600_000;

/** Flink's levels, of milliseconds per second. */
export function level(perThousand: number | undefined): "ok" | "low" | "high" {
  return !isNumber(perThousand) || perThousand <= LOW ? "ok" : perThousand <= HIGH ? "low" : "high";
}

export interface Finding {
  kind: "bad" | "warn" | "good";
  text: string;
  vertex?: string;
  subtask?: number;
  /** Of the job, where more of it stands. */
  page?: string;
}

const short = (name: string): string => (name.length > 60 ? `${name.slice(0, 57)}…` : name);
const worst = (vertex: Vertex): Worst => vertex["firesteel-worst"] ?? {};

export const isBatch = (job: JobDetails): boolean => job["job-type"] === "BATCH";

/** Tasks of a stage that are done, and all that it has: their number may depend on its input. */
export function tasksDone(vertex: Vertex): { done: number; all: number } {
  const all = vertex.status === "FINISHED" ? vertex.parallelism : (vertex["firesteel-tasks"] ?? vertex.parallelism);
  const idle = vertex.status === "FINISHED" ? 0 : vertex.parallelism - all; // these end as soon as the others' number is known
  return { done: Math.max(0, (vertex.tasks["FINISHED"] ?? 0) - idle), all };
}

/** Who feeds whom: vertex id -> ids of those that read from it. */
export function readers(job: JobDetails): Map<string, string[]> {
  const found = new Map<string, string[]>(job.plan.nodes.map((node) => [node.id, []]));
  for (const node of job.plan.nodes) for (const input of node.inputs ?? []) found.get(input.id)?.push(node.id);
  return found;
}

/** What somebody who asks "why is it slow" should look at first, the worst first. `last`: its last failure, if there is one. */
export function diagnose(job: JobDetails, last?: ExceptionEntry): Finding[] {
  const what = last && splitTrace(last.stacktrace).message.split("\n")[0];
  if (job.state === "FAILED") return [{ kind: "bad", text: what ? `The job has failed: ${what}` : "The job has failed.", page: "exceptions" }];
  const findings: Finding[] = [];
  if (last && job["end-time"] < 0 && job.now - last.timestamp < RECENT)
    findings.push({ kind: "bad", text: `Failed ${ago(Math.max(0, job.now - last.timestamp))}${job.state === "RUNNING" ? ", and was started again" : ""}: ${what}`, page: "exceptions" });
  if (job["firesteel-waiting-for"]) findings.push({ kind: "warn", text: `The job waits for slots: ${job["firesteel-waiting-for"]}` });
  if (job.state !== "RUNNING") return findings;
  if (job["firesteel-checkpoint-warning"]) findings.push({ kind: "warn", text: `Checkpoints are slow: ${job["firesteel-checkpoint-warning"]}`, page: "checkpoints" });
  if (isBatch(job)) return [...findings, stages(job), ...skewed(job)];
  const byId = new Map(job.vertices.map((vertex) => [vertex.id, vertex]));
  const after = readers(job);
  const waiting = job.vertices.filter((vertex) => (vertex.tasks.RUNNING ?? 0) + (vertex.tasks.FINISHED ?? 0) < vertex.parallelism);
  if (waiting.length)
    findings.push({ kind: "warn", text: `${waiting.length} of ${job.vertices.length} vertices do not run with all subtasks yet${job["firesteel-progress"] ? `: ${job["firesteel-progress"]}` : "."}` });
  // a bottleneck: those upstream are back-pressured, it itself is not, and it is busy
  const bottlenecks = new Map<string, number>();
  for (const vertex of job.vertices) {
    const held = worst(vertex).backPressured?.value ?? 0;
    if (held <= LOW) continue;
    for (const end of culprits(vertex.id, byId, after)) bottlenecks.set(end, Math.max(held, bottlenecks.get(end) ?? 0));
  }
  for (const [id, held] of [...bottlenecks].sort((a, b) => b[1] - a[1])) {
    const vertex = byId.get(id);
    const busy = vertex && worst(vertex).busy;
    if (!vertex || !busy || (held < 2 * LOW && busy.value < HIGH)) continue; // a short wait that somebody busy has not caused
    if (busy.value < HIGH) { // it has time, and takes little
      findings.push({
        kind: "warn",
        text: `${short(vertex.name)} back-pressures what is upstream of it (up to ${percent(held)} of the time) though it is ${percent(busy.value)} busy at most: it waits for barriers of slower subtasks (see Checkpoints; unaligned ones do not wait), or for the processor, which others in its slots use.`,
        vertex: id,
      });
      continue;
    }
    findings.push({
      kind: held > HIGH ? "bad" : "warn",
      text: `${short(vertex.name)} back-pressures what is upstream of it (up to ${percent(held)} of the time): its subtask ${subtaskOf(busy.subtask, vertex.parallelism)} is ${percent(busy.value)} busy.`,
      vertex: id,
      subtask: busy.subtask,
    });
  }
  for (const vertex of job.vertices) {
    const { busy } = worst(vertex);
    if (busy && busy.value > FULL && !bottlenecks.has(vertex.id))
      findings.push({
        kind: "warn",
        text: `${short(vertex.name)}: subtask ${subtaskOf(busy.subtask, vertex.parallelism)} is ${percent(busy.value)} busy; more load would cause back pressure here.`,
        vertex: vertex.id,
        subtask: busy.subtask,
      });
  }
  findings.push(...skewed(job));
  const late = new Map(job.vertices.map((vertex) => [vertex.id, behind(vertex, job.now)]));
  for (const vertex of job.vertices) {
    const lag = late.get(vertex.id);
    const before = job.plan.nodes.find((node) => node.id === vertex.id)?.inputs ?? [];
    if (lag === undefined || before.some((input) => late.get(input.id) !== undefined)) continue; // it comes from there
    findings.push({
      kind: "warn",
      text: `${short(vertex.name)}: event time is ${duration(lag)} behind, furthest in subtask ${subtaskOf(worst(vertex).watermark!.subtask, vertex.parallelism)}; so it is in all that reads from it.`,
      vertex: vertex.id,
      subtask: worst(vertex).watermark!.subtask,
    });
  }
  return findings.length ? findings : [{ kind: "good", text: "No vertex is back-pressured, overloaded or late." }];
}

/** How far a batch job is: its stages run one after the other, so those that wait for their input are no trouble. */
function stages(job: JobDetails): Finding {
  const done = job.vertices.filter((vertex) => vertex.status === "FINISHED").length;
  const active = job.vertices.filter((vertex) => vertex.status !== "FINISHED" && vertex["start-time"] >= 0);
  const running = active.map((vertex) => {
    const tasks = tasksDone(vertex);
    return `${short(vertex.name)} has ${tasks.done} of ${tasks.all} tasks done`;
  });
  const first = active[0];
  const text = `${done} of ${job.vertices.length} stages are done${running.length ? `; ${running.join("; ")}` : ""}.`;
  return { kind: "good", text, ...(first ? { vertex: first.id } : {}) };
}

function skewed(job: JobDetails): Finding[] {
  return job.vertices.flatMap((vertex): Finding[] => {
    const { skew } = worst(vertex);
    if (!isNumber(skew) || skew <= 80 || vertex.parallelism < 2) return [];
    return [{ kind: "warn", text: `${short(vertex.name)}: subtasks get very different numbers of records (skew ${Math.round(skew)} %).`, vertex: vertex.id }];
  });
}

/** How far event time is behind the clock, if that is more than a minute (and is a time of today at all). */
function behind(vertex: Vertex, now: number): number | undefined {
  const mark = watermark(worst(vertex).watermark?.value);
  const lag = now - mark.ms;
  return mark.kind === "time" && lag > 60_000 && lag < 3.2e11 ? lag : undefined;
}

/** Downstream of a vertex that is back-pressured: the first ones that are not so themselves, or have no time left. */
function culprits(id: string, byId: Map<string, Vertex>, after: Map<string, string[]>): Set<string> {
  const found = new Set<string>();
  const seen = new Set([id]);
  const look = [id];
  for (let next = look.pop(); next !== undefined; next = look.pop()) {
    const candidates = (after.get(next) ?? []).filter((one) => !seen.has(one));
    const busiest = candidates
      .map((one) => byId.get(one))
      .filter((one): one is Vertex => one !== undefined)
      .sort((a, b) => (worst(b).busy?.value ?? 0) + (worst(b).backPressured?.value ?? 0) - (worst(a).busy?.value ?? 0) - (worst(a).backPressured?.value ?? 0))[0];
    if (!busiest) continue;
    seen.add(busiest.id);
    const { busy, backPressured } = worst(busiest); // of different subtasks: one that works all the time is a cause itself
    if ((backPressured?.value ?? 0) > LOW && (busy?.value ?? 0) <= FULL) look.push(busiest.id);
    else found.add(busiest.id);
  }
  return found;
}

/** The share of values that is below; nearest rank. NaN of nothing. */
export function quantile(values: number[], share: number): number {
  const ordered = values.filter(isNumber).sort((a, b) => a - b);
  return ordered.length ? ordered[Math.max(0, Math.ceil(share * ordered.length) - 1)]! : NaN;
}

/** A traceback, and the record that the Dispatcher has put behind it. */
export function splitTrace(text: string): { trace: string; record: string | undefined; message: string } {
  const mark = "\nThe record at hand: ";
  const where = text.lastIndexOf(mark);
  const trace = (where < 0 ? text : text.slice(0, where)).trimEnd();
  const record = where < 0 ? undefined : text.slice(where + mark.length).trim();
  const lines = trace.split("\n");
  let last = lines.findLastIndex((line) => /^\s+File "/.test(line)) + 1; // of the last frame: what follows its code is the message, of many lines perhaps
  if (last === 0) last = lines.findLastIndex((line) => /^\S/.test(line));
  while (last < lines.length - 1 && /^\s/.test(lines[last]!)) last += 1;
  return { trace, record, message: lines.slice(last).join("\n") };
}

/** Records per second over an edge: what its reader reads, if this is its only edge, or what its writer writes, if all of that goes here; undefined where nobody can tell it of this edge alone. A vertex also writes to the sinks in its chain. */
export function carried(from: Vertex | undefined, to: Vertex | undefined, fromShared: boolean, toShared: boolean): number | undefined {
  if (!toShared) return to?.["firesteel-worst"]?.numRecordsInPerSecond;
  return fromShared || from?.name.includes("Sink: ") ? undefined : from?.["firesteel-worst"]?.numRecordsOutPerSecond;
}
