import type { ComponentChildren } from "preact";
import { at, usePolled } from "../api";
import { count, DASH, duration, isNumber } from "../format";
import { Answer, Badge, Card, Facts, Figure, When } from "../parts";
import { change, spread } from "../rescaling";
import { go } from "../router";
import { Table, type Column } from "../table";
import { useTitle } from "../title";
import type { JobDetails, Rescale, RescaleCounts, Rescales, RescaledVertex, SchedulerState, Summary } from "../types";

const CAUSES: Record<string, string> = {
  INITIAL_SCHEDULE: "the job begins",
  UPDATE_REQUIREMENT: "other bounds",
  NEW_RESOURCE_AVAILABLE: "more slots",
  RECOVERABLE_FAILOVER: "a failure",
};
const REASONS: Record<string, string> = {
  SUCCEEDED: "all tasks run",
  NO_RESOURCES_OR_PARALLELISMS_CHANGE: "the slots were gone again",
  JOB_FINISHED: "the job finished",
  JOB_FAILED: "the job failed",
  JOB_CANCELED: "the job was cancelled",
  JOB_FAILOVER_RESTARTING: "a failure came between",
};
const words = (table: Record<string, string>, key: string | null) => (key === null ? DASH : (table[key] ?? key.toLowerCase().replaceAll("_", " ")));
const named = (table: Record<string, string>, key: string | null) => <span title={key ?? ""}>{words(table, key)}</span>;
const stateOf = (one: Rescale) => one.terminalState ?? "IN_PROGRESS";
const tookOf = (one: Rescale) => (one.endTimestampInMillis === null ? NaN : one.endTimestampInMillis - one.startTimestampInMillis);
const parallelism = (one: Rescale) => change(Object.values(one.vertices).map((v) => v.preRescaleParallelism), Object.values(one.vertices).map((v) => v.postRescaleParallelism));
const slots = (one: Rescale) => {
  const sum = (all: (number | null)[]) => (all.every((value) => value === null) ? null : all.reduce<number>((total, value) => total + (value ?? 0), 0));
  const found = Object.values(one.slots);
  return change([sum(found.map((s) => s.preRescaleSlots))], [sum(found.map((s) => s.postRescaleSlots))]);
};

const COLUMNS: Column<Rescale>[] = [
  { key: "attempt", title: "#", value: (one) => one.rescaleAttemptId, number: true, wide: 0.5 },
  { key: "state", title: "State", value: stateOf, wide: 1.4, show: (one) => <Badge state={stateOf(one)} /> },
  { key: "cause", title: "Why", help: "what it was begun for", value: (one) => words(CAUSES, one.triggerCause), wide: 1.4, show: (one) => named(CAUSES, one.triggerCause) },
  { key: "slots", title: "Slots", help: "that the job uses, before and after", value: slots, wide: 1 },
  { key: "parallelism", title: "Parallelism", help: "of its vertices, before and after; from the least to the most where they differ", value: parallelism, wide: 1.3 },
  { key: "start", title: "Began", value: (one) => one.startTimestampInMillis, number: true, wide: 1.2, show: (one) => <When ms={one.startTimestampInMillis} short /> },
  { key: "duration", title: "Duration", help: "until all tasks ran again; for more slots the wait for their use is part of it", value: tookOf, number: true, wide: 1.1, show: (one) => duration(tookOf(one)) },
  { key: "reason", title: "How it ended", value: (one) => words(REASONS, one.terminatedReason), wide: 1.8, show: (one) => named(REASONS, one.terminatedReason) },
]; // prettier-ignore

export function RescalesTab({ job, rest }: { job: JobDetails; rest: string[] }) {
  const overview = usePolled<Rescales>(at("jobs", job.jid, "rescales", "overview"));
  const history = usePolled<Rescale[]>(at("jobs", job.jid, "rescales", "history"));
  const [id = ""] = rest;
  const choose = (one: Rescale) => go(["jobs", job.jid, "rescales", ...(one.rescaleUuid === id ? [] : [one.rescaleUuid])]);
  return (
    <>
      <Answer of={overview} what="rescales">
        {({ rescalesCounts: counts, latest }) => (
          <div class="figures">
            <Figure name="rescales-completed" title="Completed" value={count(counts.completed)} tone="good" note={latest.completed ? <>last: <When ms={latest.completed.endTimestampInMillis} short /></> : "none yet"} />
            <Figure name="rescales-in-progress" title="In progress" value={count(counts.inProgress)} />
            <Figure name="rescales-ignored" title="Ignored" value={count(counts.ignored)} note={latest.ignored ? <When ms={latest.ignored.startTimestampInMillis} short /> : undefined} />
            <Figure name="rescales-failed" title="Failed" value={count(counts.failed)} tone={counts.failed ? "bad" : ""} note={latest.failed ? <When ms={latest.failed.startTimestampInMillis} short /> : undefined} />
            <Figure name="parallelism" title="Parallelism now" value={spread(job.vertices.map((one) => one.parallelism))} />
            <Figure title="Last duration" value={duration(latest.completed && tookOf(latest.completed))} />
          </div>
        )}
      </Answer>
      <Answer of={history} what="rescales">
        {(found) => (
          <Card title="History" name="rescale-history">
            <Table name="rescales" columns={COLUMNS} rows={found} id={(one) => one.rescaleUuid} sort="-attempt" chosen={id} open={choose} height={380} empty="None is kept: web.adaptive-scheduler.rescale-history.size says how many are." />
          </Card>
        )}
      </Answer>
      {id && <Details job={job} id={id} />}
      <div class="columns">
        <Card title="How long they took"><Summaries job={job} /></Card>
        <Card title="Settings"><Settings job={job} /></Card>
      </div>
    </>
  ); // prettier-ignore
}

const VERTICES: Column<RescaledVertex>[] = [
  { key: "name", title: "Vertex", value: (one) => one.jobVertexName, wide: 3, show: (one) => <span title={one.jobVertexName}>{one.jobVertexName}</span> },
  { key: "group", title: "Slot sharing group", value: (one) => one.slotSharingGroupName, wide: 1.6 },
  { key: "before", title: "Before", value: (one) => one.preRescaleParallelism ?? NaN, number: true, show: (one) => one.preRescaleParallelism ?? DASH },
  { key: "after", title: "After", value: (one) => one.postRescaleParallelism ?? NaN, number: true, show: (one) => one.postRescaleParallelism ?? DASH },
  { key: "least", title: "At least", help: "the job does not run with less", value: (one) => one.sufficientParallelism, number: true },
  { key: "most", title: "At most", help: "the vertex uses no more slots than that", value: (one) => one.desiredParallelism, number: true },
]; // prettier-ignore

const PHASES: Column<SchedulerState>[] = [
  { key: "state", title: "State of the scheduler", value: (one) => one.state, wide: 2 },
  { key: "entered", title: "Entered", value: (one) => one.enterTimestampInMillis, number: true, wide: 1.3, show: (one) => <When ms={one.enterTimestampInMillis} short /> },
  { key: "took", title: "Duration", value: (one) => one.durationInMillis ?? NaN, number: true, show: (one) => duration(one.durationInMillis) },
  { key: "error", title: "What failed", value: (one) => one.stringifiedException ?? "", wide: 4, show: (one) => <span title={one.stringifiedException ?? ""}>{one.stringifiedException?.trim().split("\n")[0] ?? ""}</span> },
]; // prettier-ignore

function Details({ job, id }: { job: JobDetails; id: string }) {
  const of = usePolled<Rescale>(at("jobs", job.jid, "rescales", "details", id));
  useTitle(3, `Rescale ${of.data?.rescaleAttemptId ?? ""}`);
  return (
    <Card name="rescale" title={`Rescale ${of.data?.rescaleAttemptId ?? ""}`}>
      <Answer of={of} what="this rescale">
        {(found) => {
          const facts: [string, ComponentChildren][] = [
            ["State", <Badge state={stateOf(found)} />],
            ["Why", named(CAUSES, found.triggerCause)],
            ["Began", <When ms={found.startTimestampInMillis} />],
            ["Ended", <When ms={found.endTimestampInMillis} />],
            ["How it ended", named(REASONS, found.terminatedReason)],
          ];
          return (
            <>
              <Facts of={facts} />
              <Table name="rescaled" columns={VERTICES} rows={Object.values(found.vertices)} id={(one) => one.jobVertexId} height={300} />
              <h3>Where the time went</h3>
              <Table name="scheduler-states" columns={PHASES} rows={found.schedulerStates} id={(one) => `${one.enterTimestampInMillis} ${one.state}`} height={240} />
            </>
          );
        }}
      </Answer>
    </Card>
  );
}

const KINDS: [string, string][] = [
  ["rescalesDurationStatsInMillis", "All"],
  ["completedRescalesDurationStatsInMillis", "Completed"],
  ["ignoredRescalesDurationStatsInMillis", "Ignored"],
  ["failedRescalesDurationStatsInMillis", "Failed"],
];

function Summaries({ job }: { job: JobDetails }) {
  const of = usePolled<Record<string, Summary> & { rescalesCounts: RescaleCounts }>(at("jobs", job.jid, "rescales", "summary"));
  type Row = { title: string; of: Summary };
  const columns: Column<Row>[] = [
    { key: "what", title: "", value: (row) => row.title, wide: 1.6 },
    ...(["min", "avg", "p50", "p95", "p99", "max"] as const).map((key): Column<Row> => ({ key, title: key, number: true, value: (row) => Number(row.of[key] ?? NaN), show: (row) => (isNumber(row.of[key]) && row.of.max > 0 ? duration(row.of[key]) : DASH) })),
  ]; // prettier-ignore
  return (
    <Answer of={of} what="a summary of rescales">
      {(found) => <Table name="rescale-summary" columns={columns} rows={KINDS.flatMap(([key, title]) => (found[key] ? [{ title, of: found[key]! }] : []))} id={(row) => row.title} />}
    </Answer>
  );
}

const SETTINGS: [string, string, (value: number) => string][] = [
  ["rescaleHistoryMax", "kept in the history", count],
  ["submissionResourceWaitTimeoutInMillis", "longest wait for the first slots", (ms) => (ms < 0 ? "for ever" : duration(ms))],
  ["submissionResourceStabilizationTimeoutInMillis", "begins when no slot has come for", duration],
  ["executingResourceStabilizationTimeoutInMillis", "more slots are used after", duration],
  ["executingCooldownTimeoutInMillis", "pause between rescales", duration],
  ["maximumDelayForTriggeringRescaleInMillis", "longest wait for a checkpoint", duration],
  ["rescaleOnFailedCheckpointCount", "or until so many have failed", count],
];

function Settings({ job }: { job: JobDetails }) {
  const of = usePolled<Record<string, number | string | null>>(at("jobs", job.jid, "rescales", "config"), null);
  return (
    <Answer of={of} what="settings of rescales">
      {(found) => <Facts of={[["mode", String(found["schedulerExecutionMode"] ?? DASH).toLowerCase()], ...SETTINGS.flatMap(([key, title, show]): [string, ComponentChildren][] => (isNumber(found[key]) ? [[title, show(found[key])]] : []))]} />}
    </Answer>
  );
}
