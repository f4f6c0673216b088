// How a rescale is written: what was before, and what after. Pure.
import { DASH } from "./format";

/** One number, or from the least to the most. */
export function spread(values: (number | null)[]): string {
  const known = values.filter((value) => value !== null);
  if (!known.length) return DASH;
  const [least, most] = [Math.min(...known), Math.max(...known)];
  return least === most ? String(least) : `${least} to ${most}`;
}

/** `2 → 3`; before the first one there was nothing, and after one that came to nothing all is as it was. */
export function change(before: (number | null)[], after: (number | null)[]): string {
  const [from, to] = [spread(before), spread(after)];
  return to === DASH || from === to ? from : `${from} → ${to}`;
}
