// Time cut into states. Pure.
export interface Piece {
  state: string;
  from: number;
  to: number;
}

export const FINAL = ["FINISHED", "CANCELED", "FAILED"];
const ORDER = ["CREATED", "SCHEDULED", "DEPLOYING", "INITIALIZING", "RUNNING"];

/** States in the order in which they were entered; the last one lasts until now, unless it is an end. */
export function pieces(timestamps: Record<string, number>, now: number): Piece[] {
  const entered = Object.entries(timestamps).filter(([, ms]) => ms > 0).sort((a, b) => a[1] - b[1] || ORDER.indexOf(a[0]) - ORDER.indexOf(b[0]));
  return entered.flatMap(([state, from], index) => {
    const next = entered[index + 1];
    return FINAL.includes(state) ? [] : [{ state, from, to: next ? next[1] : now }];
  });
}

/** The same of a job, of which only the last entry of each state is known: what was before its last failure is one piece. */
export function jobPieces(timestamps: Record<string, number>, now: number): Piece[] {
  const failed = Math.max(timestamps["FAILING"] ?? 0, timestamps["RESTARTING"] ?? 0);
  if (!failed) return pieces(timestamps, now);
  const since = Object.fromEntries(Object.entries(timestamps).filter(([, ms]) => ms >= failed));
  const start = Math.min(...Object.values(timestamps).filter((ms) => ms > 0));
  const found = pieces(since, now);
  return start < failed ? [{ state: "EARLIER", from: start, to: failed }, ...found] : found;
}
