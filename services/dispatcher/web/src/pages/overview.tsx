import { usePolled, type Polled } from "../api";
import { count, duration } from "../format";
import { checkpointAge, illFirst, severity, sparkLines } from "../health";
import { Answer, Badge, Card, Copy, Count, Figure, PageTitle, tone, When } from "../parts";
import { go, href, useQuery } from "../router";
import { Table, type Column } from "../table";
import { config, useStore } from "../store";
import type { JobRow, Overview } from "../types";

const ORDER = ["running", "finished", "deploying", "initializing", "scheduled", "created", "canceling", "reconciling", "failed", "canceled"];

/** Tasks by state, as one bar. */
export function Tasks({ of }: { of: Record<string, number> }) {
  const total = of["total"] ?? Object.values(of).reduce((sum, one) => sum + one, 0);
  const low = Object.fromEntries(Object.entries(of).map(([state, number]) => [state.toLowerCase(), number]));
  const parts = ORDER.filter((state) => low[state]);
  return (
    <span class="tasks" title={parts.map((state) => `${low[state]} ${state}`).join(", ")}>
      <span class="track">
        {parts.map((state) => (
          <span key={state} class={`fill tone-${tone(state.toUpperCase())}`} style={{ width: `${(100 * low[state]!) / Math.max(1, total)}%` }} />
        ))}
      </span>
      <span class="share-number">
        {(low["running"] ?? 0) + (low["finished"] ?? 0)}/{total}
      </span>
    </span>
  );
}

const health = (job: JobRow) => job["firesteel-health"];

/** The worst that is found of a job; of one that has ended, why it has failed. */
function Finding({ job }: { job: JobRow }) {
  const finding = health(job)?.finding;
  if (!finding) return <span class="dim">–</span>;
  const target = finding.vertex ? ["overview", finding.vertex, "subtasks"] : [finding.page ?? "overview"];
  return (
    <a class={`health ${finding.kind}`} href={href(["jobs", job.jid, ...target])} title={finding.text} data-health={finding.kind}>
      {finding.kind === "good" && job.jobType !== "BATCH" ? "well" : finding.text}
    </a>
  );
}

/** Records in a second, and how they went in the last minutes. */
function Rate({ job }: { job: JobRow }) {
  const lines = sparkLines(health(job)?.["records-in-history"] ?? [], 56, 16);
  return (
    <span class="rate">
      {lines.length > 0 && (
        <svg class="spark" viewBox="-1 -1 58 18" width="58" height="18" role="img" aria-label="Records read in a second, over the last minutes">
          {lines.map((points, index) => <polyline key={index} points={points} />)}
        </svg>
      )}
      <span>{count(health(job)?.["records-in-per-second"])}</span>
    </span>
  );
}

function Restarts({ job }: { job: JobRow }) {
  const restarts = health(job)?.["restarts-in-last-hour"];
  const failure = health(job)?.["last-failure"];
  return <span class={restarts ? "warn-text" : ""} title={failure ? `last failure: ${failure}` : ""}>{restarts ?? "–"}</span>;
}

const FIRST: Column<JobRow>[] = [
  { key: "name", title: "Job", value: (job) => job.name, wide: 2.2, show: (job) => <a href={href(["jobs", job.jid])} title={job.name}>{job.name}</a> },
  {
    key: "state", title: "State", value: (job) => job.state, wide: 1.4,
    show: (job) => (<span title={job["firesteel-progress"] ?? ""}><Badge state={job.state} /></span>),
  },
  { key: "tasks", title: "Tasks", value: (job) => job.tasks["total"] ?? 0, number: true, wide: 1.2, show: (job) => <Tasks of={job.tasks} /> },
  { key: "health", title: "Health", help: "the worst finding; the ill come first", value: (job) => -severity(job), wide: 3.2, show: (job) => <Finding job={job} /> },
]; // prettier-ignore
const LIVE: Column<JobRow>[] = [
  { key: "in", title: "In /s", help: "records that its sources read, over the last minute", value: (job) => health(job)?.["records-in-per-second"] ?? NaN, number: true, wide: 1.6, show: (job) => <Rate job={job} /> },
  { key: "out", title: "Out /s", help: "records that its sinks write, over the last minute", value: (job) => health(job)?.["records-out-per-second"] ?? NaN, number: true, wide: 0.95, show: (job) => <Count of={health(job)?.["records-out-per-second"]} /> },
  { key: "lag", title: "Lag", help: "records that its sources have yet to read, where they tell", value: (job) => health(job)?.["pending-records"] ?? NaN, number: true, wide: 0.9, show: (job) => <Count of={health(job)?.["pending-records"]} /> },
  { key: "checkpoint", title: "Checkpoint", help: "age of the last completed checkpoint", value: checkpointAge, number: true, wide: 1.35, show: (job) => duration(checkpointAge(job)) },
  { key: "restarts", title: "Restarts", help: "in the last hour", value: (job) => health(job)?.["restarts-in-last-hour"] ?? NaN, number: true, wide: 1.1, show: (job) => <Restarts job={job} /> },
]; // prettier-ignore
const ENDED: Column<JobRow> = { key: "end", title: "Ended", value: (job) => job["end-time"], number: true, wide: 1.2, show: (job) => <When ms={job["end-time"]} short /> };
const DURATION: Column<JobRow> = { key: "duration", title: "Duration", value: (job) => job.duration, number: true, wide: 1.35, show: (job) => <span title={new Date(job["start-time"]).toISOString()}>{duration(job.duration)}</span> };
const ID: Column<JobRow> = { key: "id", title: "Id", value: (job) => job.jid, wide: 1.2, show: (job) => <Copy text={job.jid} label={`${job.jid.slice(0, 8)}…`} /> };
const STARTED: Column<JobRow> = { key: "start", title: "Started", value: (job) => job["start-time"], number: true, wide: 1.2, show: (job) => <When ms={job["start-time"]} short /> };

export function JobTable({ jobs, name, empty, height }: { jobs: JobRow[]; name: string; empty: string; height?: number }) {
  const live = jobs.some((job) => job["end-time"] < 0);
  const ended = jobs.some((job) => job["end-time"] >= 0);
  // what fits into 1280 pixels: where there are both, of each the less
  const both = live && ended; // all columns of both would not fit
  const columns = [...FIRST, ...(live ? LIVE.filter(({ key }) => !both || (key !== "out" && key !== "lag")) : [STARTED]), ...(ended ? [ENDED] : []), DURATION, ...(live ? [] : [ID])];
  return (
    <Table name={name} columns={columns} rows={live ? illFirst(jobs) : jobs} id={(job) => job.jid} sort={live ? "health" : "-end"} filter="Filter by name, state or id" open={(job) => go(["jobs", job.jid])} empty={empty} height={height} />
  );
}

/** All jobs, in one answer; running ones with the rates of the last minutes. An archive has none. */
function useJobs(history: boolean): Polled<{ jobs: JobRow[] }> {
  return usePolled<{ jobs: JobRow[] }>(history ? "/jobs/overview" : "/jobs/overview?history=true");
}

export function OverviewPage() {
  const overview = usePolled<Overview>("/overview");
  const history = useStore(config)?.features["web-history"] ?? false;
  const jobs = useJobs(history);
  return (
    <>
      <PageTitle>{history ? "Jobs that have ended" : "Overview"}</PageTitle>
      <Answer of={overview} what="the overview">
        {(found) => {
          const used = found["slots-total"] - found["slots-available"];
          return (
            <div class="figures">
              {!history && <Figure name="slots" title="Slots in use" value={`${used} of ${found["slots-total"]}`} note={<span class="track"><span class="fill busy" style={{ width: `${found["slots-total"] ? (100 * used) / found["slots-total"] : 0}%` }} /></span>} />}
              {!history && <Figure name="taskmanagers" title="TaskManagers" value={<a href="#/taskmanagers">{found.taskmanagers}</a>} note={`${found["slots-available"]} ${found["slots-available"] === 1 ? "slot" : "slots"} free`} />}
              {!history && <Figure name="running" title="Running" value={found["jobs-running"]} tone="good" />}
              <Figure name="finished" title="Finished" value={found["jobs-finished"]} />
              <Figure name="cancelled" title="Cancelled" value={found["jobs-cancelled"]} />
              <Figure name="failed" title="Failed" value={found["jobs-failed"]} tone={found["jobs-failed"] ? "bad" : ""} />
            </div>
          );
        }}
      </Answer>
      <Answer of={jobs} what="the list of jobs">
        {(found) => (
          <>
            {!history && (
              <Card title="Running jobs" name="running">
                <JobTable name="running" jobs={found.jobs.filter((job) => job["end-time"] < 0)} empty="No job runs. Programs submit jobs with env.execute() or firesteel run." height={360} />
              </Card>
            )}
            <Card title={history ? "From the archives" : "Jobs that have ended"} name="ended">
              <JobTable name="ended" jobs={found.jobs.filter((job) => job["end-time"] >= 0)} empty="None yet." height={history ? 700 : 360} />
            </Card>
          </>
        )}
      </Answer>
    </>
  );
}

const CHOICES: [string, (job: JobRow) => boolean][] = [
  ["all", () => true],
  ["running", (job) => job["end-time"] < 0],
  ["finished", (job) => job.state === "FINISHED"],
  ["failed", (job) => job.state === "FAILED"],
  ["canceled", (job) => job.state === "CANCELED"],
];

export function JobsPage() {
  const jobs = useJobs(useStore(config)?.features["web-history"] ?? false);
  const [state, setState] = useQuery("state");
  const chosen = CHOICES.find(([name]) => name === state) ?? CHOICES[0]!;
  return (
    <>
      <PageTitle>Jobs</PageTitle>
      <Answer of={jobs} what="the list of jobs">
        {(found) => (
          <Card>
            <div class="choices" role="group" aria-label="State">
              {CHOICES.map(([name, has]) => (
                <button type="button" key={name} class={chosen[0] === name ? "now" : ""} aria-pressed={chosen[0] === name} onClick={() => setState(name === "all" ? "" : name)}>
                  {name} <span class="dim">{found.jobs.filter(has).length}</span>
                </button>
              ))}
            </div>
            <JobTable name="jobs" jobs={found.jobs.filter(chosen[1])} empty="No such job." height={700} />
          </Card>
        )}
      </Answer>
    </>
  );
}
