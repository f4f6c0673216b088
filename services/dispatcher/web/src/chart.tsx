// Line charts over time (uPlot), and the history that the Dispatcher keeps for them.
import { useEffect, useRef, useState } from "preact/hooks";
import uPlot from "uplot";
import { ask, at, pollMs } from "./api";
import { clock, isNumber } from "./format";
import { config, Store, theme, useStore, zone } from "./store";
import { joined } from "./history";
import type { History } from "./types";

export interface Line {
  title: string;
  /** Name of a colour of the page; else the next one. */
  color?: string;
  values: (number | null)[];
}

interface Props {
  title: string;
  times: number[];
  lines: Line[];
  show: (value: number | null | undefined) => string;
  /** Least upper end of the scale. */
  top?: number;
  /** Distances that ticks of the scale may have. */
  steps?: number[];
  height?: number;
  since?: number;
}

const NAMES = ["--line-1", "--line-2", "--line-3", "--line-4", "--line-5", "--line-6"];
const marks = uPlot.sync("time");
export const dark = new Store(false);

export function Chart({ title, times, lines, show, top = 0, steps, height = 170, since }: Props) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const latest = useRef({ times, lines });
  latest.current = { times, lines };
  useStore(theme);
  const isDark = useStore(dark);
  const where = useStore(zone);
  const offset = useStore(config)?.["timezone-offset"] ?? 0;
  const titles = lines.map((line) => line.title).join("|");
  useEffect(() => {
    const element = box.current;
    if (!element) return;
    const style = getComputedStyle(document.documentElement);
    const color = (name: string) => style.getPropertyValue(name).trim();
    // where nothing is pointed at, the legend tells the last values
    const moments = (moment: number | undefined | null) => (isNumber(moment) ? clock(moment * 1000, where, offset) : "");
    const label = (_: uPlot, values: (number | null)[]) => values.map((value) => show(value));
    const made = new uPlot(
      {
        width: Math.max(200, element.clientWidth),
        height,
        cursor: { sync: { key: marks.key }, points: { size: 6 }, drag: { x: true, y: false } },
        legend: { live: true },
        scales: {
          x: { time: true },
          y: { range: (_, low, high) => [Math.min(0, low ?? 0), Math.max(top, (high ?? 0) * 1.08, 1e-9)] },
        },
        axes: [
          {
            stroke: color("--dim"),
            grid: { stroke: color("--grid"), width: 1 },
            ticks: { show: false },
            space: 60, // a time has 46 pixels: a minute or two get several
            size: 28,
            font: "11px system-ui",
            values: (_, moments) => moments.map((moment) => clock(moment * 1000, where, offset)),
          },
          {
            stroke: color("--dim"),
            grid: { stroke: color("--grid"), width: 1 },
            ticks: { show: false },
            size: 66,
            space: 34,
            ...(steps ? { incrs: steps } : {}),
            font: "11px system-ui",
            values: label,
          },
        ],
        series: [
          { label: "", value: (drawn, moment, _, at) => moments(at === null || at === undefined ? drawn.data[0].at(-1) : moment) },
          ...lines.map((line, index) => ({
            label: line.title,
            stroke: color(line.color ?? NAMES[index % NAMES.length]!),
            width: 1.5,
            points: { show: false },
            spanGaps: false,
            value: (drawn: uPlot, value: number | null, at: number, moment: number | null) => show(moment === null || moment === undefined ? drawn.data[at]!.at(-1) : value),
          })),
        ],
      },
      [[], ...lines.map(() => [])] as uPlot.AlignedData,
      element,
    );
    plot.current = made;
    fill(made, latest.current.times, latest.current.lines);
    const watcher = new ResizeObserver(() => made.setSize({ width: Math.max(200, element.clientWidth), height }));
    watcher.observe(element);
    return () => {
      watcher.disconnect();
      made.destroy();
      plot.current = null;
    };
  }, [titles, isDark, where, height]);
  useEffect(() => {
    if (plot.current) fill(plot.current, times, lines);
  }, [times, lines]);
  return (
    <figure class="chart" data-chart={title} data-points={times.length}>
      <figcaption>
        {title} {since !== undefined && <span class="dim">{times.length < 2 ? "– the first points come soon" : ""}</span>}
      </figcaption>
      <div ref={box} />
      <Values title={title} times={times} lines={lines} show={show} at={(ms) => clock(ms, where, offset)} />
    </figure>
  );
}

const MOST_ROWS = 200;

/** The numbers of a chart for those who can't see it, or want to copy them; the newest first. */
function Values({ title, times, lines, show, at: moment }: { title: string; times: number[]; lines: Line[]; show: Props["show"]; at: (ms: number) => string }) {
  const [open, setOpen] = useState(false);
  return (
    <details class="chart-values" onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>Values<span class="unseen"> of {title}</span></summary>
      {open && (
        <div class="chart-numbers" tabIndex={0} role="region" aria-label={`Values of ${title}`}>
          <table>
            <thead><tr><th scope="col">Time</th>{lines.map((line) => <th key={line.title} scope="col">{line.title}</th>)}</tr></thead>
            <tbody>
              {Array.from({ length: Math.min(MOST_ROWS, times.length) }, (_, back) => times.length - 1 - back).map((index) => (
                <tr key={times[index]}><th scope="row">{moment(times[index]!)}</th>{lines.map((line) => <td key={line.title}>{show(line.values[index])}</td>)}</tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </details>
  );
}

function fill(plot: uPlot, times: number[], lines: Line[]): void {
  plot.setData([times.map((ms) => ms / 1000), ...lines.map((line) => line.values)] as uPlot.AlignedData);
  if (!isNumber(plot.cursor.idx)) plot.setLegend({ idx: undefined }, false);
}

/** What the Dispatcher remembers of a vertex (or of the job itself, ""), and what comes on top of it. */
export function useHistory(job: string, vertex: string): History | undefined {
  const [found, setFound] = useState<History | undefined>();
  useEffect(() => {
    let all: History | undefined;
    let timer = 0;
    const control = new AbortController();
    setFound(undefined);
    const more = async () => {
      clearTimeout(timer);
      const since = all?.times.at(-1) ?? -1;
      try {
        const path = `${at("jobs", job, "metrics", "history")}?vertex=${encodeURIComponent(vertex)}&since=${since}`;
        const news = await ask<History>(path, { signal: control.signal });
        if (control.signal.aborted) return;
        all = all ? joined(all, news) : news;
        setFound(all);
      } catch {
        if (control.signal.aborted) return; // else the next time may go better
      }
      if (!document.hidden) timer = window.setTimeout(more, Math.max(pollMs, all?.interval ?? 0));
    };
    const seen = () => {
      if (!document.hidden) void more();
    };
    document.addEventListener("visibilitychange", seen);
    void more();
    return () => {
      control.abort();
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", seen);
    };
  }, [job, vertex]);
  return found;
}
