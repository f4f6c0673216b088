import { usePolled } from "../api";
import { duration } from "../format";
import { Answer, Badge, Card, Copy, Figure, tone, When } from "../parts";
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

const COLUMNS: Column<JobRow>[] = [
  { key: "name", title: "Job", value: (job) => job.name, wide: 3, show: (job) => <a href={href(["jobs", job.jid])}>{job.name}</a> },
  {
    key: "state", title: "State", value: (job) => job.state, wide: 1.1,
    show: (job) => (<span title={job["firesteel-progress"] ?? ""}><Badge state={job.state} /></span>),
  },
  { key: "tasks", title: "Tasks", value: (job) => job.tasks["total"] ?? 0, number: true, wide: 1.4, show: (job) => <Tasks of={job.tasks} /> },
  { key: "start", title: "Started", value: (job) => job["start-time"], number: true, wide: 1.2, show: (job) => <When ms={job["start-time"]} short /> },
  { key: "end", title: "Ended", value: (job) => job["end-time"], number: true, wide: 1.2, show: (job) => <When ms={job["end-time"]} short /> },
  { key: "duration", title: "Duration", value: (job) => job.duration, number: true, show: (job) => duration(job.duration) },
  { key: "id", title: "Id", value: (job) => job.jid, wide: 1.2, show: (job) => <Copy text={job.jid} label={`${job.jid.slice(0, 8)}…`} /> },
]; // prettier-ignore

export function JobTable({ jobs, name, empty, height }: { jobs: JobRow[]; name: string; empty: string; height?: number }) {
  return (
    <Table name={name} columns={COLUMNS} rows={jobs} id={(job) => job.jid} sort="-start" filter="Filter by name, state or id" open={(job) => go(["jobs", job.jid])} empty={empty} height={height} />
  );
}

export function OverviewPage() {
  const overview = usePolled<Overview>("/overview");
  const jobs = usePolled<{ jobs: JobRow[] }>("/jobs/overview");
  const history = useStore(config)?.features["web-history"] ?? false;
  return (
    <>
      <h1>{history ? "Jobs that have ended" : "Overview"}</h1>
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
  const jobs = usePolled<{ jobs: JobRow[] }>("/jobs/overview");
  const [state, setState] = useQuery("state");
  const chosen = CHOICES.find(([name]) => name === state) ?? CHOICES[0]!;
  return (
    <>
      <h1>Jobs</h1>
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
