import { useEffect, useState } from "preact/hooks";
import { at, usePolled } from "../api";
import { count, exact, isNumber, subtaskOf } from "../format";
import { catchUp, caughtUp, idle, keyOf, rates, sampled, together, type Rates, type Samples } from "../kafka";
import { Answer, Card, Figure } from "../parts";
import { href } from "../router";
import { Table, type Column } from "../table";
import type { JobDetails, KafkaPartition, KafkaSource, KafkaSources } from "../types";

interface Row extends KafkaPartition {
  id: string;
  rates: Rates;
  when: "now" | "never" | number;
  idle: boolean;
}

const order = (when: Row["when"]) => (when === "never" ? Infinity : when === "now" ? 0 : when);
const offset = (value: number | null) => (value === null ? <span class="dim">–</span> : exact(value));
/** An offset, and how far it is behind the one that is read next. */
const behind = (value: number | null, position: number | null) =>
  value === null ? <span class="dim">–</span> : <span title={`offset ${exact(value)}`}>{position === null ? exact(value) : position === value ? "same" : `${count(position - value)} before`}</span>;

const columns = (source: KafkaSource, job: JobDetails): Column<Row>[] => [
  { key: "topic", title: "Topic", value: (row) => row.topic, wide: 2 },
  { key: "partition", title: "Partition", value: (row) => row.partition, number: true, wide: 0.9 },
  { key: "subtask", title: "Subtask", help: "that reads it", value: (row) => row.subtask, wide: 0.9, number: true, show: (row) => <a href={href(["jobs", job.jid, "overview", source["vertex-id"], "subtasks"])}>{subtaskOf(row.subtask, source.parallelism)}</a> },
  { key: "lag", title: "Lag", help: "records that wait", value: (row) => row.lag ?? NaN, number: true, show: (row) => <span title={exact(row.lag)}>{count(row.lag)}</span> },
  { key: "read", title: "Read /s", help: "since this page was opened, a minute at most", value: (row) => row.rates.read, number: true, show: (row) => count(row.rates.read) },
  { key: "written", title: "Written /s", help: "to the partition, by all producers", value: (row) => row.rates.written, number: true, wide: 1.1, show: (row) => count(row.rates.written) },
  { key: "when", title: "Caught up in", help: "at the rates of now", value: (row) => order(row.when), number: true, wide: 1.6, show: (row) => (row.idle ? <span class="badge off">idle</span> : <span class={row.when === "never" ? "warn-text" : ""} title={row.when === "never" ? "never at this rate: more is written than read" : ""}>{caughtUp(row.when)}</span>) },
  { key: "position", title: "Position", help: "offset of the next record", value: (row) => row.position ?? NaN, number: true, wide: 1.3, show: (row) => offset(row.position) },
  { key: "checkpointed", title: "Checkpoint", help: "where the job goes on from after a failure, against the position", value: (row) => (row.position ?? NaN) - (row.checkpointed ?? NaN), number: true, wide: 1.3, show: (row) => behind(row.checkpointed, row.position) },
  { key: "committed", title: "Committed", help: "for the group, against the position", value: (row) => (row.position ?? NaN) - (row.committed ?? NaN), number: true, wide: 1.3, show: (row) => behind(row.committed, row.position) },
]; // prettier-ignore

export function KafkaTab({ job }: { job: JobDetails }) {
  const of = usePolled<KafkaSources>(at("jobs", job.jid, "kafka"));
  const [samples, setSamples] = useState<Samples>({});
  const ended = job["end-time"] >= 0;
  useEffect(() => {
    if (of.data && !ended) setSamples((before) => sampled(before, of.data!));
  }, [of.data, ended]);
  return (
    <Answer of={of} what="Kafka sources">
      {(found) =>
        found.sources.length ? (
          <>
            {found.sources.map((source) => <Source key={source.operator} source={source} job={job} samples={samples} checkpoint={found.checkpoint} />)}
          </>
        ) : (
          <Card name="kafka"><p class="empty">No reader of Kafka has reported yet.</p></Card>
        )
      }
    </Answer>
  );
}

function Source({ source, job, samples, checkpoint }: { source: KafkaSource; job: JobDetails; samples: Samples; checkpoint: number | null }) {
  const rows = source.partitions.map((one): Row => {
    const id = keyOf(source["vertex-id"], one);
    const found = rates(samples[id]);
    return { ...one, id, rates: found, when: catchUp(one.lag, found), idle: idle(samples[id]) };
  });
  const all = together(rows.map((row) => row.rates));
  const when = catchUp(source.lag, all);
  const worst = rows.reduce<Row | undefined>((most, row) => (most && (most.lag ?? -1) >= (row.lag ?? -1) ? most : row), undefined);
  const quiet = rows.filter((row) => row.idle).length;
  const ended = job["end-time"] >= 0;
  return (
    <>
      <div class="figures">
        <Figure name="kafka-lag" title="Lag" value={count(source.lag)} note={worst && isNumber(worst.lag) && worst.lag > 0 ? `most: ${worst.topic}-${worst.partition}, ${count(worst.lag)}` : "records that wait"} />
        <Figure name="kafka-read" title="Read /s" value={count(all.read)} note={ended ? "the job has ended" : "since this page was opened, a minute at most"} />
        <Figure name="kafka-written" title="Written /s" value={count(all.written)} note="by all producers" />
        <Figure name="kafka-when" title="Caught up in" value={ended ? "–" : caughtUp(when)} tone={when === "never" ? "bad" : when === "now" ? "good" : ""} note={when === "never" ? "at this rate: more is written than read" : undefined} />
        <Figure name="kafka-partitions" title="Partitions" value={count(rows.length)} note={quiet ? `${quiet} idle` : undefined} />
      </div>
      <Card title={source.name} name="kafka">
        <Table name="partitions" columns={columns(source, job)} rows={rows} id={(row) => row.id} sort="-lag" filter={rows.length > 8} height={620} />
        <p class="dim">
          {checkpoint === null ? "No checkpoint has completed yet. " : `Checkpoint: ${checkpoint}, the last one that completed. `}
          Offsets are committed for the group when checkpoints complete, for others to see; the job itself never reads them.
        </p>
      </Card>
    </>
  );
}
