import { at, usePolled } from "../api";
import { count, duration } from "../format";
import { doubled } from "../latency";
import { Answer, Card, Figure } from "../parts";
import { href } from "../router";
import { Table, type Column } from "../table";
import type { JobDetails, Latencies, LatencyPath } from "../types";

const ms = (value: number) => <span title={`${value} ms`}>{duration(value)}</span>;
const columns = (job: JobDetails): Column<LatencyPath>[] => [
  { key: "source", title: "From", value: (row) => row.source, wide: 2.5, show: (row) => <span title={row.source}>{row.source}</span> },
  { key: "vertex", title: "To", value: (row) => row.vertex, wide: 2.5, show: (row) => <a title={row.vertex} href={href(["jobs", job.jid, "overview", row["vertex-id"], "subtasks"])}>{row.vertex}</a> },
  { key: "p50", title: "p50", help: "half of the markers came within this time", value: (row) => row.p50, number: true, show: (row) => ms(row.p50) },
  { key: "p95", title: "p95", value: (row) => row.p95, number: true, show: (row) => ms(row.p95) },
  { key: "p99", title: "p99", value: (row) => row.p99, number: true, show: (row) => ms(row.p99) },
  { key: "max", title: "Most", value: (row) => row.max, number: true, show: (row) => ms(row.max) },
  { key: "markers", title: "Markers", help: "that came since the tasks were started", value: (row) => row.markers, number: true, show: (row) => count(row.markers) },
]; // prettier-ignore

/** How long records wait on their way, as the latency markers of the sources measure it. */
export function LatencyTab({ job }: { job: JobDetails }) {
  const of = usePolled<Latencies>(at("jobs", job.jid, "latencies"));
  return (
    <Answer of={of} what="latencies">
      {({ paths }) => {
        const ends = paths.filter((path) => path["is-end"] && path["source-id"] !== path["vertex-id"]);
        return (
          <>
            {ends.map((path) => <Histogram key={`${path["source-id"]} ${path["vertex-id"]}`} path={path} />)}
            <Card name="latency" title="From each source to each operator">
              <Table name="latencies" columns={columns(job)} rows={paths} id={(row) => `${row["source-id"]} ${row["vertex-id"]}`} sort="-p99" empty="No latency marker has come yet." />
              <p class="dim">Markers travel among the records and wait as they do; the time inside a function is not counted. Clocks of different hosts have to agree.</p>
            </Card>
          </>
        );
      }}
    </Answer>
  );
}

function Histogram({ path }: { path: LatencyPath }) {
  const total = path.histogram.reduce((sum, one) => sum + one.count, 0);
  return (
    <Card name="latency-histogram" title={`${path.source} to ${path.vertex}`}>
      <div class="figures">
        {(["p50", "p95", "p99", "max"] as const).map((name) => <Figure key={name} name={name} title={name === "max" ? "Most" : name} value={duration(path[name])} />)}
      </div>
      <table class="bars">
        <caption class="dim">the last {count(total)} of {count(path.markers)} markers</caption>
        <thead><tr><th>Up to</th><th>Markers</th></tr></thead>
        <tbody>
          {doubled(path.histogram).map((one) => (
            <tr key={one.upTo}><td>{duration(one.upTo)}</td><td><span class="share"><span class="track"><span class="fill busy" style={{ width: `${(100 * one.count) / total}%` }} /></span><span class="share-number">{count(one.count)}</span></span></td></tr>
          ))}
        </tbody>
      </table>
    </Card>
  );
}
