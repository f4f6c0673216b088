// Levels, percentiles and tracebacks, for pages that say why a job is slow or has failed. Its findings are the Dispatcher's. Pure.
import { duration, isNumber } from "./format";
import type { ExceptionEntry, JobDetails, Stage, Vertex } from "./types";

const HIGH = 500;
const LOW = 100;

/** Flink's levels, of milliseconds per second. */
export function level(perThousand: number | undefined): "ok" | "low" | "high" {
  return !isNumber(perThousand) || perThousand <= LOW ? "ok" : perThousand <= HIGH ? "low" : "high";
}

export const isBatch = (job: JobDetails): boolean => job["job-type"] === "BATCH";

/** How far a stage is, in words: nothing of one that is done, and no time where none can be known. */
export function stageText(stage: Stage | undefined): string {
  if (stage?.percent === undefined || stage.percent >= 100) return "";
  const left = stage["left-ms"];
  return `${Math.floor(stage.percent)} %${left === undefined ? "" : `, ${duration(left)} left`}`;
}

/** The share of values that is below; nearest rank. NaN of nothing. */
export function quantile(values: number[], share: number): number {
  const ordered = values.filter(isNumber).sort((a, b) => a - b);
  return ordered.length ? ordered[Math.max(0, Math.ceil(share * ordered.length) - 1)]! : NaN;
}

export interface FailureGroup {
  entries: ExceptionEntry[]; // those that are kept, the newest first
  count: number; // of all
  first: number;
  last: number;
}

/** Failures with the same cause, in the order of their newest; the server counts those, too, that it does not keep. */
export function grouped(entries: ExceptionEntry[]): FailureGroup[] {
  const groups = new Map<string, FailureGroup>();
  for (const entry of entries) {
    const repeats = entry["firesteel-repeats"];
    const key = repeats ? `${repeats.number}` : `${entry.exceptionName} ${entry.taskName} ${splitTrace(entry.stacktrace).message.split("\n")[0]}`;
    const group = groups.get(key) ?? { entries: [], count: 0, first: Infinity, last: -Infinity };
    groups.set(key, group);
    group.entries.push(entry);
    group.count = Math.max(repeats?.count ?? 0, group.entries.length);
    group.first = Math.min(group.first, repeats?.first_ms ?? entry.timestamp);
    group.last = Math.max(group.last, repeats?.last_ms ?? entry.timestamp);
  }
  return [...groups.values()];
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
