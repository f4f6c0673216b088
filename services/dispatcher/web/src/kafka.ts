// What Kafka sources read, and how fast: from answers that follow each other. Pure.
import { duration, isNumber } from "./format";
import type { KafkaPartition, KafkaSources } from "./types";

/** A moment of a partition: server time in ms, the offset that is read next, and the one behind the last record. */
export interface Sample {
  at: number;
  position: number;
  end: number;
}
export type Samples = Record<string, Sample[]>;
export interface Rates {
  /** Records in a second; NaN = not known yet. */
  read: number;
  written: number;
}

const WINDOW = 60_000;
const SHORTEST = 4_000;
const QUIET = 20_000;

export const keyOf = (vertex: string, one: KafkaPartition): string => `${vertex} ${one.topic}-${one.partition}`;

/** The samples with those of another answer; a partition that is read again from before begins anew, and so does a topic that was made again. */
export function sampled(before: Samples, found: KafkaSources): Samples {
  const samples: Samples = {};
  for (const source of found.sources)
    for (const one of source.partitions) {
      const key = keyOf(source["vertex-id"], one);
      const old = (before[key] ?? []).filter((sample) => found.now - sample.at <= WINDOW);
      if (one.position === null || one.lag === null) {
        samples[key] = old;
        continue;
      }
      const next = { at: found.now, position: one.position, end: one.position + one.lag };
      const last = old.at(-1);
      const anew = last !== undefined && (next.position < last.position || next.end < last.end);
      samples[key] = anew ? [next] : last?.at === next.at ? old : [...old, next];
    }
  return samples;
}

export function rates(samples: Sample[] | undefined): Rates {
  const [first, last] = [samples?.[0], samples?.at(-1)];
  if (!first || !last || last.at - first.at < SHORTEST) return { read: NaN, written: NaN };
  const seconds = (last.at - first.at) / 1000;
  return { read: (last.position - first.position) / seconds, written: (last.end - first.end) / seconds };
}

/** Nothing was written or read for a while, and nothing waits. */
export function idle(samples: Sample[] | undefined): boolean {
  const { read, written } = rates(samples);
  const [first, last] = [samples?.[0], samples?.at(-1)];
  return read === 0 && written === 0 && last!.at - first!.at >= QUIET && last!.end === last!.position;
}

export function together(all: Rates[]): Rates {
  const sum = (values: number[]) => (values.every(isNumber) && values.length ? values.reduce((total, value) => total + value, 0) : NaN);
  return { read: sum(all.map((one) => one.read)), written: sum(all.map((one) => one.written)) };
}

/** When the reader will have read all: "now" with less than two seconds of records, "never" where the lag does not shrink, else ms; NaN = not known yet. */
export function catchUp(lag: number | null, { read, written }: Rates): "now" | "never" | number {
  if (lag === 0) return "now";
  if (lag === null || !isNumber(read) || !isNumber(written)) return NaN;
  if (lag <= 2 * read) return "now";
  // By less than a hundredth of what comes in nothing shrinks: that is noise.
  return read - written <= Math.max(written * 0.01, 0) ? "never" : (lag / (read - written)) * 1000;
}

export function caughtUp(when: "now" | "never" | number): string {
  if (when === "now") return "caught up";
  if (when === "never") return "never";
  return isNumber(when) ? duration(when) : "–";
}
