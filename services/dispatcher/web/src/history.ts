// Pieces of what the Dispatcher remembers. Pure.
import type { History } from "./types";

/** Two pieces of a history, the second behind the first; no more than its size. */
export function joined(before: History, after: History): History {
  const times = [...before.times, ...after.times];
  const cut = Math.max(0, times.length - after.size);
  const series: History["series"] = {};
  for (const name of new Set([...Object.keys(before.series), ...Object.keys(after.series)])) {
    const old = before.series[name] ?? before.times.map(() => null);
    series[name] = [...old, ...(after.series[name] ?? after.times.map(() => null))].slice(cut);
  }
  return { ...after, times: times.slice(cut), series };
}

const RECORDS: Record<string, string> = { numBytesInPerSecond: "numRecordsInPerSecond", numBytesOutPerSecond: "numRecordsOutPerSecond" };

/** Bytes that nobody counts: of a source or sink, where records flow all the same. */
export function uncounted(series: History["series"], name: string): boolean {
  const records = RECORDS[name];
  const flows = (values: (number | null)[] | undefined) => values?.some((value) => value !== null && value > 0) ?? false;
  return records !== undefined && !flows(series[name]) && flows(series[records]);
}
