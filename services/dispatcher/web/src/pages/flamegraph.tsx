import { useState } from "preact/hooks";
import { at, usePolled } from "../api";
import { depthOf, folded, isOurs, label, type Frame } from "../flames";
import { ago, count, percent, subtaskOf } from "../format";
import { Answer } from "../parts";
import { useQuery } from "../router";
import type { JobDetails, Vertex } from "../types";

const KINDS: [string, string][] = [["full", "mixed"], ["on_cpu", "on CPU"], ["off_cpu", "off CPU"]];
const DEPTH = 100;
const ROW = 20;
/** Choices of a subtask beyond this many are no list any more. */
const LISTED = 1000;

export function FlameGraph({ job, vertex }: { job: JobDetails; vertex: Vertex }) {
  const [kind, setKind] = useQuery("kind");
  const [subtask, setSubtask] = useQuery("subtask");
  const chosen = kind || "full";
  const one = /^\d+$/.test(subtask) ? `&subtaskindex=${subtask}` : "";
  const ended = job["end-time"] >= 0;
  const of = usePolled<{ endTimestamp?: number; data?: Frame | null }>(ended ? null : `${at("jobs", job.jid, "vertices", vertex.id, "flamegraph")}?type=${encodeURIComponent(chosen)}${one}`, 3000);
  const [trail, setTrail] = useState<string[]>([]);
  const [whole, setWhole] = useState(false);
  if (ended) return <p class="empty">The job has ended: there are no stacks to sample any more.</p>;
  return (
    <>
      <div class="choices wrap" role="group" aria-label="Kind">
        {KINDS.map(([key, title]) => (
          <button type="button" key={key} class={key === chosen ? "now" : ""} aria-pressed={key === chosen} onClick={() => setKind(key === "full" ? "" : key)}>
            {title}
          </button>
        ))}
        {vertex.parallelism > 1 && (
          <label class="inline">
            <span class="dim">of</span>
            <select value={subtask} onChange={(event) => { setTrail([]); setSubtask(event.currentTarget.value); }} data-choice="subtask">
              <option value="">all subtasks</option>
              {Array.from({ length: Math.min(vertex.parallelism, LISTED) }, (_, index) => <option key={index} value={String(index)}>subtask {subtaskOf(index, vertex.parallelism)}</option>)}
            </select>
          </label>
        )}
        {trail.length > 0 && <button type="button" onClick={() => setTrail([])}>All of it</button>}
      </div>
      <Answer of={of} what="flame graphs">
        {(found) => {
          if (found.endTimestamp === -2) return <p class="empty">Flame graphs are switched off (rest.flamegraph.enabled).</p>;
          if (!found.data) return <p class="empty">Samples are being taken; they are shown in some seconds.</p>;
          if (!found.data.children.length) return <p class="empty">No sample is of this kind: {chosen === "on_cpu" ? "the processor was not used" : "nothing was waited for"}.</p>;
          const { tree, hidden } = whole ? { tree: found.data, hidden: 0 } : folded(found.data);
          let root = tree;
          for (const name of trail) root = root.children.find((child) => child.name === name) ?? root;
          return (
            <>
              <p class="dim">
                Samples of the Python stacks{one ? ` of subtask ${subtaskOf(Number(subtask), vertex.parallelism)}` : " of all subtasks"}, {found.endTimestamp ? ago(Math.max(0, job.now - found.endTimestamp)) : ""}; taken anew every minute. Wide frames take the time; click to enter one.{" "}
                {hidden > 0 && <button type="button" class="copy" onClick={() => { setTrail([]); setWhole(true); }} data-fold="folded">{hidden} frames that lead nowhere else are folded</button>}
                {whole && <button type="button" class="copy" onClick={() => { setTrail([]); setWhole(false); }} data-fold="whole">fold frames that lead nowhere else</button>}
              </p>
              <div class="flames" data-flames={root.value}>
                <div class="flames-inner" style={{ height: `${Math.min(DEPTH + 1, depthOf(root)) * ROW}px` }}>
                  <Flame frame={root} total={found.data.value} left={0} width={100} depth={0} enter={setTrail} path={trail} />
                </div>
              </div>
            </>
          );
        }}
      </Answer>
    </>
  );
}

function Flame({ frame, total, left, width, depth, enter, path }: { frame: Frame; total: number; left: number; width: number; depth: number; enter: (path: string[]) => void; path: string[] }) {
  if (width < 0.15 || depth > DEPTH) return null;
  let at = left;
  let hue = 0;
  for (const letter of frame.name) hue = (hue * 31 + letter.charCodeAt(0)) % 40;
  const ours = isOurs(frame.name);
  return (
    <>
      <button
        type="button"
        class={`flame ${ours ? "ours" : ""}`}
        style={{ left: `${left}%`, width: `${width}%`, top: `${depth * ROW}px`, backgroundColor: `hsl(${12 + hue} ${ours ? 42 : 82}% ${ours ? 72 : 62}%)` }}
        title={`${frame.name}\n${count(frame.value)} samples, ${percent((1000 * frame.value) / Math.max(1, total))}`}
        onClick={() => enter(path)}
      >
        {label(frame.name)}
      </button>
      {frame.children.map((child, index) => {
        const share = (width * child.value) / Math.max(1, frame.value);
        const start = at;
        at += share;
        return <Flame key={`${child.name}${index}`} frame={child} total={total} left={start} width={share} depth={depth + 1} enter={enter} path={[...path, child.name]} />;
      })}
    </>
  );
}
