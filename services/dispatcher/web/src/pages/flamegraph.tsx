import { useState } from "preact/hooks";
import { at, usePolled } from "../api";
import { ago, count } from "../format";
import { Answer } from "../parts";
import { useQuery } from "../router";
import type { JobDetails, Vertex } from "../types";

interface Frame {
  name: string;
  value: number;
  children: Frame[];
}

const KINDS: [string, string][] = [["full", "mixed"], ["on_cpu", "on CPU"], ["off_cpu", "off CPU"]];
const DEPTH = 60;

export function FlameGraph({ job, vertex }: { job: JobDetails; vertex: Vertex }) {
  const [kind, setKind] = useQuery("kind");
  const chosen = kind || "full";
  const of = usePolled<{ endTimestamp?: number; data?: Frame }>(`${at("jobs", job.jid, "vertices", vertex.id, "flamegraph")}?type=${encodeURIComponent(chosen)}`, 5000);
  const [trail, setTrail] = useState<string[]>([]);
  return (
    <>
      <div class="choices" role="group" aria-label="Kind">
        {KINDS.map(([key, title]) => (
          <button type="button" key={key} class={key === chosen ? "now" : ""} aria-pressed={key === chosen} onClick={() => setKind(key === "full" ? "" : key)}>
            {title}
          </button>
        ))}
        {trail.length > 0 && <button type="button" onClick={() => setTrail([])}>All of it</button>}
      </div>
      <Answer of={of} what="flame graphs">
        {(found) => {
          if (!found.data?.children?.length) return <p class="empty">Samples are being taken; they are shown in some seconds.</p>;
          let root = found.data;
          for (const name of trail) root = root.children.find((child) => child.name === name) ?? root;
          return (
            <>
              <p class="dim">Samples of the Python stacks of all subtasks, {found.endTimestamp ? ago(Math.max(0, job.now - found.endTimestamp)) : ""}. Wide frames take the time.</p>
              <div class="flames" data-flames={root.value}>
                <Flame frame={root} left={0} width={100} depth={0} enter={(path) => setTrail([...trail, ...path])} path={[]} />
              </div>
            </>
          );
        }}
      </Answer>
    </>
  );
}

function Flame({ frame, left, width, depth, enter, path }: { frame: Frame; left: number; width: number; depth: number; enter: (path: string[]) => void; path: string[] }) {
  if (width < 0.15 || depth > DEPTH) return null;
  let at = left;
  let hue = 0;
  for (const letter of frame.name) hue = (hue * 31 + letter.charCodeAt(0)) % 40;
  return (
    <>
      <button type="button" class="flame" style={{ left: `${left}%`, width: `${width}%`, top: `${depth * 20}px`, backgroundColor: `hsl(${12 + hue} 75% 62%)` }} title={`${frame.name}\n${count(frame.value)} samples`} onClick={() => enter(path)}>
        {frame.name}
      </button>
      {frame.children.map((child, index) => {
        const share = (width * child.value) / Math.max(1, frame.value);
        const start = at;
        at += share;
        return <Flame key={`${child.name}${index}`} frame={child} left={start} width={share} depth={depth + 1} enter={enter} path={[...path, child.name]} />;
      })}
    </>
  );
}
