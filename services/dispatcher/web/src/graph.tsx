// The graph of a job: what each vertex does now, and what goes along the edges.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { carried, isBatch, level, stageText } from "./diagnose";
import { count, duration, isNumber, percent, share, subtaskOf, watermark } from "./format";
import { HEIGHT, layout, path, WIDTH } from "./layout";
import { tone } from "./parts";
import { phone, useStore } from "./store";
import type { JobDetails, Vertex, Worst } from "./types";

interface View {
  x: number;
  y: number;
  scale: number;
}

export function lagOf(worst: Worst | undefined, now: number): string {
  const mark = watermark(worst?.watermark?.value);
  if (mark.kind === "time") return `${duration(Math.max(0, now - mark.ms))} behind`;
  return worst?.watermark === undefined ? "–" : mark.kind === "end" ? "at the end" : "none yet";
}

/** How full the channels of an edge are, of the subtask where they are fullest; undefined where nobody can tell it of this edge alone. */
function filled(from: Worst | undefined, to: Worst | undefined, fromShared: boolean, toShared: boolean): number | undefined {
  const ends = [fromShared ? undefined : from?.outPool?.value, toShared ? undefined : to?.inPool?.value].filter(isNumber);
  return ends.length ? Math.max(...ends) : undefined;
}

export function Graph({ job, chosen, choose }: { job: JobDetails; chosen: string; choose: (id: string) => void }) {
  const shape = JSON.stringify(job.plan.nodes.map((node) => [node.id, node.inputs]));
  const drawn = useMemo(() => layout(job.plan.nodes), [shape]);
  const asList = useStore(phone);
  const box = useRef<HTMLDivElement>(null);
  const [view, setView] = useState<View>({ x: 0, y: 0, scale: 1 });
  const byId = new Map(job.vertices.map((vertex) => [vertex.id, vertex]));
  const fit = () => {
    const element = box.current;
    if (!element) return;
    const scale = Math.min(1, element.clientWidth / drawn.width, element.clientHeight / drawn.height);
    const least = Math.max(scale, 0.35);
    setView({
      x: Math.max(0, (element.clientWidth - drawn.width * least) / 2),
      y: Math.max(0, (element.clientHeight - drawn.height * least) / 2),
      scale: least,
    });
  };
  useEffect(fit, [drawn, asList]);
  useEffect(() => {
    const element = box.current;
    if (!element) return;
    const watcher = new ResizeObserver(fit);
    watcher.observe(element);
    return () => watcher.disconnect();
  }, [drawn, asList]);
  const zoom = (factor: number, x?: number, y?: number) =>
    setView((before) => {
      const element = box.current!;
      const scale = Math.min(2, Math.max(0.1, before.scale * factor));
      const [atX, atY] = [x ?? element.clientWidth / 2, y ?? element.clientHeight / 2];
      const grown = scale / before.scale;
      return { scale, x: atX - (atX - before.x) * grown, y: atY - (atY - before.y) * grown };
    });
  const wheel = (event: WheelEvent) => {
    if (!event.ctrlKey && !event.metaKey) return; // else the page scrolls
    event.preventDefault();
    const frame = box.current!.getBoundingClientRect();
    zoom(event.deltaY < 0 ? 1.1 : 1 / 1.1, event.clientX - frame.left, event.clientY - frame.top);
  };
  const drag = (event: PointerEvent) => {
    if ((event.target as Element).closest(".node, button")) return;
    const element = box.current!;
    element.setPointerCapture(event.pointerId);
    let [x, y] = [event.clientX, event.clientY];
    const move = (to: PointerEvent) => {
      const [dx, dy] = [to.clientX - x, to.clientY - y];
      [x, y] = [to.clientX, to.clientY];
      setView((before) => ({ ...before, x: before.x + dx, y: before.y + dy }));
    };
    element.addEventListener("pointermove", move);
    element.addEventListener("pointerup", () => element.removeEventListener("pointermove", move), { once: true });
  };
  const factsOf = (link: (typeof drawn.links)[number]) => {
    const [from, to] = [byId.get(link.from), byId.get(link.to)];
    const fromShared = drawn.links.filter((one) => one.from === link.from).length > 1;
    const toShared = drawn.links.filter((one) => one.to === link.to).length > 1;
    const full = filled(from?.["firesteel-worst"], to?.["firesteel-worst"], fromShared, toShared);
    const rate = carried(from, to, fromShared, toShared);
    return (
      <>
        <b>{link.strategy}</b>
        {isNumber(rate) && !isBatch(job) && <span>{count(rate)}/s</span>}
        {full !== undefined && full >= 0.1 && <span class={full >= 0.9 ? "warn-text" : ""}>{share(full)} full</span>}
      </>
    );
  };
  if (asList) {
    const places = [...drawn.places].sort((a, b) => a.x - b.x || a.y - b.y); // as data flows
    return (
      <ol class="graph-list" data-graph={job.plan.nodes.length}>
        {places.map((place) => {
          const vertex = byId.get(place.id);
          return (
            vertex && (
              <li key={place.id}>
                {drawn.links.filter((link) => link.to === place.id).map((link, index) => (
                  <p key={index} class="edge-line" data-edge={`${link.from}-${link.to}`}>↓ {factsOf(link)} <span class="dim">from {byId.get(link.from)?.name}</span></p>
                ))}
                <Node vertex={vertex} batch={isBatch(job)} now={job.now} chosen={place.id === chosen} choose={choose} />
              </li>
            )
          );
        })}
      </ol>
    );
  }
  const height = Math.min(620, Math.max(220, drawn.height + 8));
  return (
    <div class="graph" ref={box} style={{ height: `${height}px` }} onWheel={wheel} onPointerDown={drag} data-graph={job.plan.nodes.length}>
      <div class="graph-inner" style={{ width: `${drawn.width}px`, height: `${drawn.height}px`, transform: `translate(${view.x}px,${view.y}px) scale(${view.scale})` }}>
        <svg width={drawn.width} height={drawn.height} aria-hidden="true">
          <defs>
            <marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="11" markerHeight="11" markerUnits="userSpaceOnUse" orient="auto">
              <path d="M0,0 L8,4 L0,8 z" class="arrow-head" />
            </marker>
          </defs>
          {drawn.links.map((link, index) => {
            const held = byId.get(link.from)?.["firesteel-worst"]?.backPressured?.value;
            return <path key={index} d={path(link.points)} class={`edge ${level(held)}`} marker-end="url(#arrow)" />;
          })}
        </svg>
        {drawn.links.map((link, index) => {
          const middle = link.points[Math.floor(link.points.length / 2)]!;
          return (
            <div key={index} class="edge-label" style={{ left: `${middle.x}px`, top: `${middle.y}px` }} data-edge={`${link.from}-${link.to}`}>
              {factsOf(link)}
            </div>
          );
        })}
        {drawn.places.map((place) => {
          const vertex = byId.get(place.id);
          return vertex && <Node key={place.id} vertex={vertex} batch={isBatch(job)} x={place.x} y={place.y} now={job.now} chosen={place.id === chosen} choose={choose} />;
        })}
      </div>
      <div class="graph-tools">
        <button type="button" title="Larger (Ctrl + wheel)" onClick={() => zoom(1.25)}>+</button>
        <button type="button" title="Smaller (Ctrl + wheel)" onClick={() => zoom(0.8)}>−</button>
        <button type="button" title="All of it" onClick={fit}>⤢</button>
      </div>
    </div>
  );
}

interface NodeProps {
  vertex: Vertex;
  batch: boolean;
  /** Where it is drawn; in a list it has no place. */
  x?: number;
  y?: number;
  now: number;
  chosen: boolean;
  choose: (id: string) => void;
}

function Node({ vertex, batch, x, y, now, chosen, choose }: NodeProps) {
  const worst = vertex["firesteel-worst"];
  const busy = worst?.busy?.value ?? 0;
  const held = worst?.backPressured?.value ?? 0;
  const heat = vertex.status === "FAILED" ? "failed" : level(held) !== "ok" ? "held" : busy > 900 ? "hot" : busy > 500 ? "warm" : "";
  const name = vertex.name;
  return (
    <button
      type="button"
      class={`node ${heat} ${chosen ? "chosen" : ""}`}
      style={x === undefined ? {} : { left: `${x}px`, top: `${y}px`, width: `${WIDTH}px`, height: `${HEIGHT}px` }}
      onClick={() => choose(vertex.id)}
      title={name}
      data-vertex={vertex.id}
    >
      <span class="node-name">{name}</span>
      <span class="node-line">
        <span class={`dot ${tone(vertex.status)}`} /> {vertex.status.toLowerCase()}
        <span class="spring" />
        parallelism {vertex.parallelism}
      </span>
      {batch ? (
        <StageBar vertex={vertex} />
      ) : worst?.busy ? (
        <>
          <Bar title="busy" kind="busy" of={worst.busy.value} subtask={worst.busy.subtask} parallelism={vertex.parallelism} />
          <Bar title="back-pressured" kind="held" of={held} subtask={worst.backPressured?.subtask} parallelism={vertex.parallelism} />
          <span class="node-line small">
            <span title="records read per second">▸ {count(worst.numRecordsInPerSecond)}/s</span>
            <span title="records written per second">{count(worst.numRecordsOutPerSecond)}/s ▸</span>
            <span class="spring" />
            <span title={`how far event time is behind the clock, in subtask ${worst.watermark ? subtaskOf(worst.watermark.subtask, vertex.parallelism) : "–"}`}>◷ {lagOf(worst, now).replace(" behind", "")}</span>
            {isNumber(worst.skew) && vertex.parallelism > 1 && (
              <span class={worst.skew > 80 ? "warn-text" : ""} title="skew: how uneven the records are that subtasks have read">
                ⚖ {Math.round(worst.skew)} %
              </span>
            )}
          </span>
        </>
      ) : (
        <span class="node-line small">
          {count(vertex.metrics["read-records"])} records in, {count(vertex.metrics["write-records"])} out · {duration(vertex.duration)}
        </span>
      )}
    </button>
  );
}

/** A stage of a batch job: tasks that are done, and what they have read and written so far. */
function StageBar({ vertex }: { vertex: Vertex }) {
  const stage = vertex["firesteel-stage"];
  const [done, all] = [stage?.["tasks-done"] ?? 0, stage?.tasks ?? vertex.parallelism];
  const begun = vertex["start-time"] >= 0;
  const metrics = vertex.metrics;
  return (
    <>
      <span class="node-bar" title="tasks that are done">
        <span class="node-bar-title">tasks done</span>
        <span class="track">
          <span class="fill state-FINISHED" style={{ width: `${stage?.percent ?? (all ? (100 * done) / all : 0)}%` }} />
        </span>
        <span class="node-bar-number">{done}/{all}</span>
      </span>
      <span class="node-line small" data-stage={begun ? "begun" : "waits"}>
        {begun ? [stageText(stage), `${count(metrics["read-records"])} in, ${count(metrics["write-records"])} out`, duration(vertex.duration)].filter(Boolean).join(" · ") : "waits for its input"}
      </span>
    </>
  );
}

function Bar({ title, kind, of, subtask, parallelism }: { title: string; kind: string; of: number; subtask?: number; parallelism: number }) {
  return (
    <span class="node-bar" title={`${title}: the highest of the subtasks, over the last minute`}>
      <span class="node-bar-title">{title}</span>
      <span class="track">
        <span class={`fill ${kind}`} style={{ width: `${Math.min(100, of / 10)}%` }} />
      </span>
      <span class="node-bar-number">{percent(of)}</span>
      <span class="node-bar-where">{parallelism > 1 && of > 0 && subtask !== undefined ? subtaskOf(subtask, parallelism) : ""}</span>
    </span>
  );
}
