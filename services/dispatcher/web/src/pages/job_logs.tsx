// What all processes have logged about a job, in order of time.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { ApiError, ask, at, pollMs } from "../api";
import { time } from "../format";
import { LogLines, saveAs } from "../logs";
import { Card, Trouble } from "../parts";
import { lines, renewed, type JobLog, type LogRecord } from "../records";
import { useQuery } from "../router";
import { config, useStore, zone } from "../store";
import type { JobDetails } from "../types";

/** How far back following looks in ms: clocks of hosts may differ by that much. */
const OVERLAP = 5000;
const PIECE = 1000;
const LEVELS: [string, string][] = [["", "all levels"], ["INFO", "INFO and above"], ["WARN", "WARN and above"], ["ERROR", "errors"]];

interface Loaded {
  records: LogRecord[];
  /** Moment from which on they are all there; -1 = from the first one on. */
  from: number;
  /** Moment from which on the next ones are asked for. */
  next: number;
  sources: JobLog["sources"];
}

export function JobLogsTab({ job }: { job: JobDetails }) {
  const [level, setLevel] = useQuery("level");
  const [text, setText] = useQuery("text");
  const [moment] = useQuery("at");
  const [log, setLog] = useState<Loaded | undefined>();
  const [error, setError] = useState<ApiError | undefined>();
  const [follow, setFollow] = useState(!moment);
  const current = useRef<Loaded | undefined>(undefined);
  current.current = log;
  const piece = (bounds: Record<string, number>, limit = PIECE) =>
    ask<JobLog>(`${at("jobs", job.jid, "logs")}?${new URLSearchParams({ level, text, limit: String(limit), ...Object.fromEntries(Object.entries(bounds).map(([name, ms]) => [name, String(ms)])) })}`);
  const attempt = async (work: () => Promise<void>) => {
    try {
      await work();
      setError(undefined);
    } catch (problem) {
      setError(problem instanceof ApiError ? problem : new ApiError(-1, String(problem), "logs"));
    }
  };
  const nextOf = (answer: JobLog) => (answer["complete-to"] >= 0 ? answer["complete-to"] : answer.now - OVERLAP);
  useEffect(() => {
    let alive = true;
    setLog(undefined);
    setFollow(!moment);
    void attempt(async () => {
      const before = await piece(moment ? { until: Number(moment) } : {}, moment ? PIECE / 2 : PIECE);
      let found: Loaded = { records: before.records, from: before["complete-to"], next: Math.max(before.now - OVERLAP, before["complete-to"]), sources: before.sources };
      if (moment) {
        const after = await piece({ since: Number(moment) }, PIECE / 2);
        found = { ...found, records: [...found.records, ...after.records], next: nextOf(after) };
      }
      if (alive) setLog(found);
    });
    return () => {
      alive = false;
    };
  }, [job.jid, level, text, moment]);
  const more = () =>
    attempt(async () => {
      const before = current.current;
      if (!before) return;
      const answer = await piece({ since: before.next });
      if (current.current !== before) return;
      const records = renewed(before.records, before.next, answer);
      const dropped = before.records.length > 0 && records[0] !== before.records[0] && records.length > 0;
      setLog({ records, from: dropped ? records[0]!.time : before.from, next: nextOf(answer), sources: answer.sources });
    });
  useEffect(() => {
    if (!follow) return;
    const timer = setInterval(() => {
      if (!document.hidden) void more();
    }, pollMs);
    return () => clearInterval(timer);
  }, [job.jid, level, text, follow]);
  const earlier = () =>
    attempt(async () => {
      const before = current.current!;
      const answer = await piece({ until: before.from });
      if (current.current === before) setLog({ ...before, records: [...answer.records, ...before.records], from: answer["complete-to"], sources: answer.sources });
    });
  const where = useStore(zone);
  const offset = useStore(config)?.["timezone-offset"] ?? 0;
  const { rows, start } = useMemo(() => {
    const found: string[] = [];
    let begin = -1;
    for (const record of log?.records ?? []) {
      if (moment && begin < 0 && record.time >= Number(moment)) begin = found.length;
      found.push(...lines(record, `${time(record.time, where, offset)},${String(record.time % 1000).padStart(3, "0")}`));
    }
    return { rows: found, start: begin };
  }, [log?.records, moment, where, offset]);
  const silent = log?.sources.filter((one) => one.error !== undefined) ?? [];
  const count = log?.records.length ?? 0;
  return (
    <Card title="What all processes have logged about this job" name="job-logs">
      <Trouble error={error} what="logs of a job" />
      {silent.map((one) => <p key={one.source} class="trouble quiet" role="status" data-silent={one.source}>Nothing of {one.source}: {one.error}</p>)}
      <LogLines
        name="the job" rows={rows} start={start} follow={follow} setFollow={setFollow}
        note={!log ? (error ? "" : "Loading …") : count === 0 ? "Nothing that matches was logged; the cluster of a program logs JobMaster and Dispatcher as the program does." : `${count} ${count === 1 ? "record" : "records"} of ${log.sources.length - silent.length} ${log.sources.length - silent.length === 1 ? "process" : "processes"}`}
        earlier={log && log.from >= 0 ? { label: "Load earlier", load: () => void earlier() } : undefined}
        download={() => saveAs(new Blob([`${rows.join("\n")}\n`], { type: "text/plain" }), `${job.jid}.log`)}
        searchAll={{ on: text !== "", set: setText }}
        tools={
          <>
            <select aria-label="Level" value={level} data-choice="level" onChange={(event) => setLevel(event.currentTarget.value)}>{LEVELS.map(([key, title]) => <option key={key} value={key}>{title}</option>)}</select>
            {!follow && log && <button type="button" class="plain" data-action="later" onClick={() => void more()}>Load later</button>}
          </>
        }
      />
    </Card>
  );
}
