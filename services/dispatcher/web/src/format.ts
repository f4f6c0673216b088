// Numbers, sizes and times as text. Pure.
const UNITS = ["", "k", "M", "G", "T", "P"];
const SIZES = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
export const DASH = "–";

function scaled(value: number, base: number, units: string[]): string {
  const sign = value < 0 ? "-" : "";
  let size = Math.abs(value);
  let unit = 0;
  while (size >= base && unit < units.length - 1) {
    size /= base;
    unit += 1;
  }
  const digits = unit === 0 ? (Number.isInteger(size) || size >= 100 ? 0 : size >= 10 ? 1 : 2) : size < 10 ? 2 : size < 100 ? 1 : 0;
  return `${sign}${size.toFixed(digits)}${units[unit] ? ` ${units[unit]}` : ""}`;
}

export function count(value: number | undefined | null): string {
  return isNumber(value) ? scaled(value, 1000, UNITS) : DASH;
}

export function bytes(value: number | undefined | null): string {
  return isNumber(value) && value >= 0 ? scaled(value, 1024, SIZES) : DASH;
}

/** Distances of ticks: of whole numbers, and of sizes, whose units are powers of 1024. */
export const WHOLE = Array.from({ length: 15 }, (_, power) => [1, 2, 5].map((digit) => digit * 10 ** power)).flat();
export const SIZE_STEPS = Array.from({ length: 51 }, (_, power) => 2 ** power);

/** Bytes that were counted; where records flow and no byte was, nobody counts them: sources read, and sinks write, outside. */
export function counted(size: number | undefined, records: number | undefined): number {
  return !isNumber(size) || (size === 0 && isNumber(records) && records > 0) ? NaN : size;
}

/** A subtask for people: its number from 1 on, of how many. The API counts from 0. */
export function subtaskOf(index: number, parallelism: number): string {
  return `${index + 1}/${parallelism}`;
}

export function exact(value: number | undefined | null): string {
  return isNumber(value) ? value.toLocaleString("en-US") : "";
}

/** Milliseconds of each second, as a share of it. */
export function percent(perThousand: number | undefined | null): string {
  return isNumber(perThousand) ? `${Math.round(Math.min(1000, Math.max(0, perThousand)) / 10)} %` : DASH;
}

/** A part of 1, as a share of it; a channel may hold a bit more than its room. */
export function share(part: number | undefined | null): string {
  return isNumber(part) ? percent(part * 1000) : DASH;
}

export function duration(ms: number | undefined | null): string {
  if (!isNumber(ms) || ms < 0) return DASH;
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 10_000) return `${Number((ms / 1000).toFixed(2))} s`;
  const seconds = Math.floor(ms / 1000);
  const [s, m, h, d] = [seconds % 60, Math.floor(seconds / 60) % 60, Math.floor(seconds / 3600) % 24, Math.floor(seconds / 86400)];
  if (d) return `${d} d ${h} h`;
  if (h) return `${h} h ${m} min`;
  if (m) return s ? `${m} min ${s} s` : `${m} min`;
  return `${(ms / 1000).toFixed(1)} s`;
}

export function isNumber(value: unknown): value is number {
  return typeof value === "number" && Number.isFinite(value);
}

/** Minutes that a zone is ahead of UTC: "utc", "cluster" (its offset in ms is given), or that of this browser. */
function shift(ms: number, zone: string, clusterOffset: number): number {
  if (zone === "utc") return 0;
  return zone === "cluster" ? clusterOffset / 60_000 : -new Date(ms).getTimezoneOffset();
}

export function time(ms: number | undefined | null, zone: string, clusterOffset = 0): string {
  if (!isNumber(ms) || ms < 0 || ms > 8.64e15) return DASH;
  const text = new Date(ms + shift(ms, zone, clusterOffset) * 60_000).toISOString();
  return `${text.slice(0, 10)} ${text.slice(11, 19)}`;
}

/** The time of a day, with its date if it is another day than that of `now`. */
export function shortTime(ms: number | undefined | null, now: number, zone: string, clusterOffset = 0): string {
  const text = time(ms, zone, clusterOffset);
  return text.slice(0, 10) === time(now, zone, clusterOffset).slice(0, 10) ? text.slice(11) : text.slice(5, 16);
}

export function clock(ms: number, zone: string, clusterOffset = 0): string {
  return time(ms, zone, clusterOffset).slice(11);
}

export function ago(ms: number): string {
  return ms < 2000 ? "just now" : `${duration(ms)} ago`;
}

/** Flink's marks for "none yet" and "no more". JSON texts of 64 bits are rounded here, which does not matter. */
export function watermark(value: unknown): { kind: "none" | "end" | "time"; ms: number } {
  const ms = typeof value === "string" || typeof value === "number" ? Number(value) : NaN;
  if (!Number.isFinite(ms) || ms < -9e18) return { kind: "none", ms: NaN };
  return ms > 9e18 ? { kind: "end", ms: NaN } : { kind: "time", ms };
}
