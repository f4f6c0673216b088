// How the time of a vertex divides among the operators of its chain. Pure.
import { percent, subtaskOf } from "./format";
import type { HotKeys, OperatorRow, VertexOperators } from "./types";

/** Shares of operators, by name, from 0 to 1; `rest`: what was spent on reading, partitioning and sending records. While tasks run, of the busy time of the last minute; then of the operators' own time. */
export function ownShares(of: VertexOperators, runs: boolean): { shares: Map<string, number>; rest: number } {
  const own = (row: OperatorRow): number => (runs ? row["own-time-ms-per-second"] : row["own-time-ms"]);
  const sum = of.operators.reduce((total, row) => total + own(row), 0);
  const all = Math.max(sum, runs ? of["busy-time-ms-per-second"] : 0);
  return { shares: new Map(of.operators.map((row) => [row.name, all > 0 ? own(row) / all : 0])), rest: all > 0 ? (all - sum) / all : 0 };
}

/** In words: which operator takes most. */
export function inChain(rows: OperatorRow[], shares: Map<string, number>, rest: number): string {
  const most = [...rows].sort((a, b) => (shares.get(b.name) ?? 0) - (shares.get(a.name) ?? 0))[0];
  if (!most || !shares.get(most.name)) return "Counts are exact; times come from a sample of slices of records.";
  const beside = rest >= 0.005 ? ` Reading, partitioning and sending records take ${percent(1000 * rest)}.` : "";
  return `${most.name} takes most of the time: ${percent(1000 * shares.get(most.name)!)}.${beside} Counts are exact; times come from a sample of slices of records.`;
}

/** In words: how uneven the keys are. A subtask gets its share of the key groups, so a key that makes more than that is too much for it. */
export function hottest(of: HotKeys): string {
  const first = of.keys[0];
  const error = of.records > 0 && of.lost / of.records >= 0.005 ? `, up to ${percent((1000 * of.lost) / of.records)} more` : "";
  if (!first) return "Keys are counted in a sample of the records of about the last minute.";
  const fair = 1 / of.parallelism;
  const judged = first.share > 1.5 * fair ? `: more than the ${percent(1000 * fair)} that each subtask would get if keys were even. More subtasks do not help.` : ".";
  return `The most frequent key makes ${percent(1000 * first.share)} of the records${error}, all for subtask ${subtaskOf(first.subtask, of.parallelism)}${judged} Keys are counted in a sample of the records of about the last minute.`;
}
