import { useEffect, useRef, useState } from "preact/hooks";
import { at, usePolled } from "../api";
import { JobActions } from "../actions";
import { isBatch, stageText } from "../diagnose";
import { count, counted, duration, percent, subtaskOf, watermark } from "../format";
import { Graph, lagOf } from "../graph";
import { Badge, Bytes, Card, Copy, Count, PageTitle, Tabs, Trouble, When } from "../parts";
import { go, href } from "../router";
import { config, useStore } from "../store";
import { Table, type Column } from "../table";
import type { JobDetails, KafkaSources, Vertex } from "../types";
import { ChartsTab } from "./charts";
import { CheckpointsTab } from "./checkpoints";
import { ConfigurationTab } from "./configuration";
import { EventsTab } from "./events";
import { ExceptionsTab } from "./exceptions";
import { JobLogsTab } from "./job_logs";
import { KafkaTab } from "./kafka";
import { LatencyTab } from "./latency";
import { RescalesTab } from "./rescales";
import { StateTab } from "./state";
import { TimelineTab } from "./timeline";
import { VertexPanel } from "./vertex";

const TABS: [string, string][] = [
  ["overview", "Graph"],
  ["exceptions", "Exceptions"],
  ["events", "Events"],
  ["checkpoints", "Checkpoints"],
  ["state", "State"],
  ["timeline", "Timeline"],
  ["charts", "Charts"],
  ["logs", "Logs"],
  ["configuration", "Configuration"],
];
const RESCALES: [string, string] = ["rescales", "Rescales"];
const KAFKA: [string, string] = ["kafka", "Kafka"];
const LATENCY: [string, string] = ["latency", "Latency"];

export function JobPage({ id, tab, rest }: { id: string; tab: string; rest: string[] }) {
  const job = usePolled<JobDetails>(at("jobs", id));
  const history = useStore(config)?.features["web-history"] ?? false;
  const found = job.data;
  const readsKafka = useReadsKafka(id) || tab === "kafka";
  const tabsOfAll = [...TABS.slice(0, 5), ...(readsKafka ? [KAFKA] : []), ...(found?.["firesteel-has-latencies"] ? [LATENCY] : []), ...TABS.slice(5)];
  const adaptive = found?.schedulerType === "Adaptive" ? [...tabsOfAll, RESCALES] : tabsOfAll;
  const tabs = history ? adaptive.filter(([key]) => !["charts", "logs"].includes(key)) : adaptive; // an archive has neither
  const now = tabs.some(([key]) => key === tab) ? tab : "overview";
  if (!found) return <><PageTitle>Job</PageTitle>{job.error ? <Trouble error={job.error} what="this job" /> : <p class="empty">Loading …</p>}</>;
  return (
    <>
      <Trouble error={job.error} />
      <header class="job-head">
        <div>
          <PageTitle name={found.name}>{found.name} <Badge state={found.state} /></PageTitle>
          <p class="dim">
            <Copy text={found.jid} /> · started <When ms={found["start-time"]} />
            {found["end-time"] >= 0 && <> · ended <When ms={found["end-time"]} /></>} · {duration(found.duration)}
            {found["firesteel-progress"] && found.state !== "RUNNING" && <> · {found["firesteel-progress"]}</>}
          </p>
        </div>
        <JobActions job={found} />
      </header>
      <Tabs path={["jobs", id]} tabs={tabs} now={now} />
      {now === "overview" && <GraphTab job={found} rest={rest} />}
      {now === "exceptions" && <ExceptionsTab id={id} />}
      {now === "events" && <EventsTab id={id} />}
      {now === "checkpoints" && <CheckpointsTab job={found} rest={rest} />}
      {now === "kafka" && <KafkaTab job={found} />}
      {now === "latency" && <LatencyTab job={found} />}
      {now === "state" && <StateTab job={found} />}
      {now === "timeline" && <TimelineTab job={found} rest={rest} />}
      {now === "charts" && <ChartsTab job={found} />}
      {now === "logs" && <JobLogsTab job={found} />}
      {now === "configuration" && <ConfigurationTab id={id} />}
      {now === "rescales" && <RescalesTab job={found} rest={rest} />}
    </>
  );
}

/** Whether a reader of Kafka has reported; asked now and then until one has. */
function useReadsKafka(id: string): boolean {
  const [reads, setReads] = useState(false);
  const of = usePolled<KafkaSources>(reads ? null : at("jobs", id, "kafka"), 15_000);
  useEffect(() => {
    if (of.data?.sources.length) setReads(true);
  }, [of.data]);
  return reads;
}

function GraphTab({ job, rest }: { job: JobDetails; rest: string[] }) {
  const [chosen = "", panel = "subtasks"] = rest;
  const vertex = job.vertices.find((one) => one.id === chosen);
  const choose = (id: string) => go(id === chosen ? ["jobs", job.jid, "overview"] : ["jobs", job.jid, "overview", id, panel]);
  const box = useRef<HTMLDivElement>(null);
  useEffect(() => {
    if (vertex) box.current?.scrollIntoView({ block: "start" });
  }, [vertex?.id]);
  return (
    <>
      <Findings job={job} />
      <Card name="graph">
        <Graph job={job} chosen={chosen} choose={choose} />
      </Card>
      <div class="panel-place" ref={box} />
      {vertex ? <VertexPanel job={job} vertex={vertex} panel={panel} /> : <Card title="Vertices" name="vertices"><Vertices job={job} choose={choose} /></Card>}
    </>
  );
}

const AT_FIRST = 2;

function Findings({ job }: { job: JobDetails }) {
  const [all, setAll] = useState(false);
  const found = job["firesteel-findings"] ?? [];
  if (!found.length) return null;
  const shown = all || found.length <= AT_FIRST + 1 ? found : found.slice(0, AT_FIRST);
  return (
    <ul class="findings">
      {shown.map((one) => (
        <li key={`${one.vertex} ${one.text.replace(/\d+/g, "")}`} class={one.kind} data-finding={one.kind}>
          {one.vertex ? <a href={href(["jobs", job.jid, "overview", one.vertex, "subtasks"], { "subtasks-sort": "-busy" })}>{one.text}</a> : one.page ? <a href={href(["jobs", job.jid, one.page])}>{one.text}</a> : one.text}
        </li>
      ))}
      {found.length > AT_FIRST + 1 && (
        <li class="more">
          <button type="button" class="plain" aria-expanded={all} onClick={() => setAll(!all)} data-toggle="findings">
            {all ? "Fewer" : `${found.length - AT_FIRST} more`}
          </button>
        </li>
      )}
    </ul>
  );
}

const stateOf = (vertex: Vertex) => {
  const page = vertex["firesteel-spark"];
  return <span><Badge state={vertex.status} />{page && <> <a href={page} target="_blank" rel="noreferrer" title="The page of its stage in Spark, on the host of the driver" onClick={(event) => event.stopPropagation()}>Spark</a></>}</span>;
};

const tasksOf = (vertex: Vertex, batch: boolean) => {
  const states = Object.entries(vertex.tasks).filter(([, number]) => number > 0).map(([state, number]) => `${number} ${state.toLowerCase()}`);
  const tasks = vertex["firesteel-tasks"];
  if (tasks !== undefined && tasks < vertex.parallelism) states.push(`${tasks} had something to read`);
  const stage = vertex["firesteel-stage"];
  return <span title={states.join(", ")}>{batch && stage ? `${stage["tasks-done"]}/${stage.tasks}` : `${(vertex.tasks["RUNNING"] ?? 0) + (vertex.tasks["FINISHED"] ?? 0)}/${vertex.parallelism}`}</span>;
};

function Vertices({ job, choose }: { job: JobDetails; choose: (id: string) => void }) {
  const worst = (vertex: Vertex) => vertex["firesteel-worst"] ?? {};
  const batch = isBatch(job);
  const highest = (vertex: Vertex, name: "busy" | "backPressured") => {
    const found = worst(vertex)[name];
    return found ? <span class="stacked">{percent(found.value)} <small class="dim">{subtaskOf(found.subtask, vertex.parallelism)}</small></span> : "–";
  };
  const columns: Column<Vertex>[] = [
    { key: "name", title: "Vertex", value: (one) => one.name, wide: 1.5, show: (one) => <span class="two-lines" title={one.name}>{one.name}</span> },
    { key: "status", title: "State", value: (one) => one.status, wide: 1.4, show: stateOf },
    { key: "tasks", title: batch ? "Tasks done" : "Tasks", value: (one) => one.parallelism, number: true, wide: 1.3, show: (one) => tasksOf(one, batch) },
    { key: "progress", title: "Progress", help: "share of its input that was worked through, or of its tasks that are done; time that is left, where it can be known", value: (one) => one["firesteel-stage"]?.percent ?? NaN, number: true, wide: 1.7, show: (one) => stageText(one["firesteel-stage"]) || (one.status === "FINISHED" ? "100 %" : "–") },
    { key: "start", title: "Started", value: (one) => one["start-time"], number: true, wide: 1.2, show: (one) => <When ms={one["start-time"]} short /> },
    { key: "end", title: "Ended", value: (one) => one["end-time"], number: true, wide: 1.2, show: (one) => <When ms={one["end-time"]} short /> },
    { key: "busy", title: "Busy", help: "the busiest subtask, over the last minute", value: (one) => worst(one).busy?.value ?? NaN, number: true, wide: 1.15, show: (one) => highest(one, "busy") },
    { key: "held", title: "Back-pressured", help: "the subtask that is back-pressured most, over the last minute", value: (one) => worst(one).backPressured?.value ?? NaN, number: true, wide: 1.4, show: (one) => highest(one, "backPressured") },
    { key: "in-rate", title: "In /s", value: (one) => worst(one).numRecordsInPerSecond ?? NaN, number: true, wide: 0.85, show: (one) => count(worst(one).numRecordsInPerSecond) },
    { key: "out-rate", title: "Out /s", value: (one) => worst(one).numRecordsOutPerSecond ?? NaN, number: true, wide: 0.9, show: (one) => count(worst(one).numRecordsOutPerSecond) },
    { key: "in", title: "Read", help: "records", value: (one) => one.metrics["read-records"], number: true, wide: 0.9, show: (one) => <Count of={one.metrics["read-records"]} /> },
    { key: "out", title: "Written", help: "records", value: (one) => one.metrics["write-records"], number: true, wide: 1, show: (one) => <Count of={one.metrics["write-records"]} /> },
    { key: "bytes-in", title: "Bytes in", help: "bytes read", value: (one) => one.metrics["read-bytes"], number: true, wide: 1.2, show: (one) => <Bytes of={counted(one.metrics["read-bytes"], one.metrics["read-records"])} /> },
    { key: "bytes-out", title: "Bytes out", help: "bytes written", value: (one) => one.metrics["write-bytes"], number: true, wide: 1.2, show: (one) => <Bytes of={counted(one.metrics["write-bytes"], one.metrics["write-records"])} /> },
    { key: "spilled", title: "Spilled", help: "bytes written to local files, since they did not fit into memory", value: (one) => one["firesteel-stage"]?.["spilled-bytes"] ?? NaN, number: true, wide: 1.1, show: (one) => <Bytes of={one["firesteel-stage"]?.["spilled-bytes"]} /> },
    { key: "watermark", title: "Event time", help: "how far it is behind the clock", value: (one) => watermark(worst(one).watermark?.value).ms, number: true, wide: 1.35, show: (one) => lagOf(worst(one), job.now).replace(" behind", "") },
    { key: "duration", title: "Duration", value: (one) => one.duration, number: true, wide: 1.35, show: (one) => duration(one.duration) },
  ]; // prettier-ignore
  const streaming = new Set(["busy", "held", "in-rate", "out-rate", "watermark"]); // Spark tells nothing of these
  const stages = new Set(["progress", "start", "end", "spilled"]);
  const shown = columns.filter((one) => !(batch ? streaming : stages).has(one.key));
  return <Table name="vertices" columns={shown} rows={job.vertices} id={(one) => one.id} open={(one) => choose(one.id)} filter={job.vertices.length > 8} />;
}
