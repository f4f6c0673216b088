// Which jobs are ill, and the lines that their rates make. Pure.
import { isNumber } from "./format";
import type { JobRow } from "./types";

const SEVERITY: Record<string, number> = { bad: 3, warn: 2, good: 1 };

/** How ill a job is: 3 = something is wrong, 0 = there is nothing to say of it, as of one that has ended well. */
export const severity = (job: JobRow): number => SEVERITY[job["firesteel-health"]?.finding?.kind ?? ""] ?? 0;

/** What is ill comes first, and of the same the newest. */
export function illFirst(jobs: JobRow[]): JobRow[] {
  return [...jobs].sort((a, b) => severity(b) - severity(a) || b["start-time"] - a["start-time"]);
}

/** Milliseconds since the last completed checkpoint, by the cluster's clock; NaN = none yet, or the job takes none. */
export function checkpointAge(job: JobRow): number {
  const at = job["firesteel-health"]?.["last-checkpoint-timestamp"];
  return isNumber(at) ? Math.max(0, job["start-time"] + job.duration - at) : NaN;
}

/** Points of a line through values, from 0 at the bottom; a moment without a value begins a new line. */
export function sparkLines(values: (number | null)[], width: number, height: number): string[] {
  const top = Math.max(1e-9, ...values.map((value) => value ?? 0));
  const step = width / Math.max(1, values.length - 1);
  const lines: string[][] = [[]];
  values.forEach((value, index) => {
    if (value === null) lines.push([]);
    else lines.at(-1)!.push(`${Number((index * step).toFixed(1))},${Number((height - (value / top) * height).toFixed(1))}`);
  });
  return lines.filter((line) => line.length > 1).map((line) => line.join(" "));
}
