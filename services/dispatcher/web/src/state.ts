// The states of a job in a checkpoint, beside those in another one. Pure.
import { DASH, isNumber } from "./format";
import type { ComparedOperator, ComparedState, StateSizes } from "./types";

export interface StateRow extends ComparedState {
  id: string;
  operator: ComparedOperator;
  /** What it grows by in a minute, between the two checkpoints. */
  bytesPerMinute: number;
  entriesPerMinute: number;
}

const KINDS: Record<string, string> = { split: "operator list", union: "union list", table: "of the operator", "in flight": "records in flight" };
const TIMELESS = 1000;

/** What a kind of state is called, for people. */
export function kindOf(kind: string): string {
  return KINDS[kind] ?? kind;
}

/** Milliseconds between the two checkpoints; NaN where they are too near, or there is only one. */
export function apart(sizes: StateSizes): number {
  const ms = sizes.checkpoint && sizes.base ? sizes.checkpoint.trigger_timestamp - sizes.base.trigger_timestamp : NaN;
  return Math.abs(ms) >= TIMELESS ? ms : NaN;
}

function perMinute(now: number | null, then: number | null, ms: number): number {
  return now === null && then === null ? NaN : (((now ?? 0) - (then ?? 0)) / ms) * 60_000;
}

export function stateRows(sizes: StateSizes): StateRow[] {
  const ms = apart(sizes);
  return sizes.operators.flatMap((operator) =>
    operator.states.map((state) => ({
      ...state,
      id: `${operator.id} ${state.kind} ${state.name}`,
      operator,
      bytesPerMinute: perMinute(state.size, state["base-size"], ms),
      entriesPerMinute: perMinute(state.entries, state["base-entries"], ms),
    })),
  );
}

/** What all states together grow by in a minute. */
export function growth(sizes: StateSizes): number {
  return perMinute(sizes.checkpoint?.size ?? null, sizes.base?.size ?? null, apart(sizes));
}

/** A change with its sign, as `show` writes its amount; "0" for none. */
export function signed(value: number | null | undefined, show: (amount: number) => string): string {
  if (!isNumber(value)) return DASH;
  const text = show(Math.abs(value));
  return Number.parseFloat(text) === 0 ? "0" : `${value < 0 ? "−" : "+"}${text}`;
}
