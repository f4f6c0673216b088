// Histograms of latencies. Pure.
import type { LatencyPath } from "./types";

/** Buckets of the API as few that each reach to the double of the one before. */
export function doubled(histogram: LatencyPath["histogram"]): { upTo: number; count: number }[] {
  const counts = new Map<number, number>();
  for (const one of histogram) {
    const upTo = 2 ** Math.max(0, Math.ceil(Math.log2(one["up-to"] + 1)));
    counts.set(upTo, (counts.get(upTo) ?? 0) + one.count);
  }
  return [...counts].sort(([a], [b]) => a - b).map(([upTo, count]) => ({ upTo, count }));
}
