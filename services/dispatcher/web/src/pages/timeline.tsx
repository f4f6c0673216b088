import { at, usePolled } from "../api";
import { duration, subtaskOf, time as timeText } from "../format";
import { Answer, Badge, Card, useTime } from "../parts";
import { go } from "../router";
import { FINAL, jobPieces, pieces, type Piece } from "../pieces";
import { Table, type Column } from "../table";
import { useTitle } from "../title";
import type { Exceptions, JobDetails, Vertex } from "../types";

interface Times {
  now: number;
  subtasks: { subtask: number; endpoint: string; duration: number; timestamps: Record<string, number> }[];
}
export function TimelineTab({ job, rest }: { job: JobDetails; rest: string[] }) {
  const [chosen = ""] = rest;
  const exceptions = usePolled<Exceptions>(`${at("jobs", job.jid, "exceptions")}?maxExceptions=100`);
  const when = useTime();
  const start = job["start-time"];
  const end = job["end-time"] >= 0 ? job["end-time"] : job.now;
  const span = Math.max(1, end - start);
  const at_ = (ms: number) => `${Math.min(100, Math.max(0, (100 * (ms - start)) / span))}%`;
  const failures = (exceptions.data?.exceptionHistory.entries ?? []).filter((one) => one.timestamp >= start);
  const vertex = job.vertices.find((one) => one.id === chosen);
  return (
    <>
      <Card title="Vertices" name="timeline">
        <p class="dim">
          From {when(start)} to {when(end)} ({duration(span)}). Bars are the current attempts of each vertex; red lines are failures. Choose one to see its subtasks.
        </p>
        <div class="gantt">
          <div class="gantt-row">
            <span class="gantt-name">The job</span>
            <span class="gantt-track">
              {jobPieces(job.timestamps, end).map((piece) => <Bar key={piece.state} piece={piece} at={at_} />)}
              {failures.map((one, index) => <i key={index} class="gantt-failure" style={{ left: at_(one.timestamp) }} title={`${one.exceptionName} in ${one.taskName ?? "the job"}`} />)}
            </span>
          </div>
          {job.vertices.map((one) => <Row key={one.id} vertex={one} end={end} at={at_} chosen={one.id === chosen} choose={() => go(["jobs", job.jid, "timeline", ...(one.id === chosen ? [] : [one.id])])} />)}
        </div>
        <p class="legend">
          {["CREATED", "SCHEDULED", "DEPLOYING", "INITIALIZING", "RUNNING", "FINISHED", "RESTARTING", "EARLIER"].map((state) => <span key={state}><i class={`fill state-${state}`} /> {state === "EARLIER" ? "earlier attempts" : state.toLowerCase()}</span>)}
        </p>
      </Card>
      {vertex && <SubtaskTimes job={job} vertex={vertex} />}
    </>
  );
}

function Bar({ piece, at }: { piece: Piece; at: (ms: number) => string }) {
  const width = `calc(${at(piece.to)} - ${at(piece.from)})`;
  return <span class={`gantt-bar state-${piece.state}`} style={{ left: at(piece.from), width: `max(2px, ${width})` }} title={`${piece.state} for ${duration(piece.to - piece.from)}, from ${timeText(piece.from, "utc")} UTC`} />;
}

function Row({ vertex, end, at, chosen, choose }: { vertex: Vertex; end: number; at: (ms: number) => string; chosen: boolean; choose: () => void }) {
  const from = vertex["start-time"];
  const to = vertex["end-time"] >= 0 ? vertex["end-time"] : end;
  return (
    <button type="button" class={`gantt-row ${chosen ? "chosen" : ""}`} onClick={choose} data-timeline={vertex.id}>
      <span class="gantt-name" title={vertex.name}>{vertex.name}</span>
      <span class="gantt-track">{from >= 0 && <Bar piece={{ state: vertex.status, from, to }} at={at} />}</span>
    </button>
  );
}

type TimeRow = Times["subtasks"][number];

function SubtaskTimes({ job, vertex }: { job: JobDetails; vertex: Vertex }) {
  const of = usePolled<Times>(at("jobs", job.jid, "vertices", vertex.id, "subtasktimes"));
  useTitle(3, vertex.name);
  return (
    <Card title={vertex.name} name="subtask-times">
      <Answer of={of} what="times of subtasks">
        {(found) => {
          const all = found.subtasks.flatMap((one) => pieces(one.timestamps, found.now));
          const start = Math.min(...all.map((one) => one.from), found.now);
          const end = Math.max(...all.map((one) => one.to), start + 1);
          const place = (ms: number) => `${(100 * (ms - start)) / (end - start)}%`;
          const state = (row: TimeRow) => FINAL.find((one) => row.timestamps[one]) ?? pieces(row.timestamps, found.now).at(-1)?.state ?? "CREATED";
          const columns: Column<TimeRow>[] = [
            { key: "subtask", title: "Subtask", value: (row) => row.subtask, number: true, wide: 0.9, show: (row) => subtaskOf(row.subtask, vertex.parallelism) },
            { key: "host", title: "Host", value: (row) => row.endpoint, wide: 1.4 },
            { key: "state", title: "State", value: state, wide: 1.1, show: (row) => <Badge state={state(row)} /> },
            { key: "bar", title: "Time in each state of the current attempt", value: (row) => row.duration, wide: 6, show: (row) => <span class="gantt-track inside">{pieces(row.timestamps, found.now).map((piece) => <Bar key={piece.state} piece={piece} at={place} />)}</span> },
            { key: "before", title: "Until running", help: "from CREATED to RUNNING", value: (row) => (row.timestamps["RUNNING"] ? row.timestamps["RUNNING"] - Math.min(...pieces(row.timestamps, found.now).map((one) => one.from)) : NaN), number: true, wide: 1.1, show: (row) => (row.timestamps["RUNNING"] ? duration(row.timestamps["RUNNING"] - Math.min(...pieces(row.timestamps, found.now).map((one) => one.from))) : "–") },
            { key: "duration", title: "Duration", value: (row) => row.duration, number: true, show: (row) => duration(row.duration) },
          ]; // prettier-ignore
          return <Table name="times" columns={columns} rows={found.subtasks} id={(row) => String(row.subtask)} filter />;
        }}
      </Answer>
    </Card>
  );
}

