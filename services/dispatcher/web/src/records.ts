// Records of a job's logs, as pieces of them come. Pure.
export interface LogRecord {
  time: number;
  level: string;
  logger: string;
  message: string;
  source: string;
  task?: string;
}

export interface JobLog {
  records: LogRecord[];
  /** Moment to which the records are all there; -1 = as far as there are any. */
  "complete-to": number;
  now: number;
  sources: { source: string; error?: string }[];
}

/** Records that are in the page at most. */
export const MOST = 20_000;

/** Records with those from a moment on read anew: a host may be late with some. One that does not answer keeps its own. */
export function renewed(before: LogRecord[], since: number, answer: JobLog): LogRecord[] {
  const silent = new Set(answer.sources.filter((one) => one.error !== undefined).map((one) => one.source));
  const kept = before.filter((one) => one.time < since || silent.has(one.source));
  if (kept.length === before.length && answer.records.length === 0) return before;
  return [...kept, ...answer.records].sort((a, b) => a.time - b.time).slice(-MOST);
}

/** A record as lines for people. */
export function lines(record: LogRecord, when: string): string[] {
  const about = record.task ? `${record.source}, ${record.task}` : record.source;
  return `${when} ${record.level.padEnd(5)} ${record.logger} [${about}]: ${record.message}`.split("\n");
}
