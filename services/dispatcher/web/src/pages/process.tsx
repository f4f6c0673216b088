// What TaskManagers and the JobManager have in common: log files, stacks.
import { usePolled } from "../api";
import { bytes } from "../format";
import { LogView } from "../logs";
import { Answer, Card, Copy, When } from "../parts";
import { go, useQuery } from "../router";
import { Table, type Column } from "../table";
import { matches } from "../table";

interface LogFile {
  name: string;
  size: number;
  mtime?: number;
}

const COLUMNS: Column<LogFile>[] = [
  { key: "name", title: "File", value: (file) => file.name, wide: 4 },
  { key: "size", title: "Size", value: (file) => file.size, number: true, show: (file) => bytes(file.size) },
  { key: "mtime", title: "Changed", value: (file) => file.mtime ?? NaN, number: true, wide: 1.5, show: (file) => <When ms={file.mtime} short /> },
];

/** Files, and the one that is open. */
export function Logs({ base, route, rest }: { base: string; route: string[]; rest: string[] }) {
  const of = usePolled<{ logs: LogFile[] }>(`${base}/logs`, 10_000);
  const [name] = rest;
  const open = name ?? of.data?.logs[0]?.name;
  return (
    <>
      <Card title="Log files">
        <Answer of={of} what="the list of log files">
          {(found) => <Table name="logs" columns={COLUMNS} rows={found.logs} id={(file) => file.name} chosen={open} open={(file) => go([...route, "logs", file.name])} filter={found.logs.length > 8} height={240} empty="There are none: a cluster inside of a program logs where that does." />}
        </Answer>
      </Card>
      {open && <Card title={open}><LogView path={`${base}/logs/${encodeURIComponent(open)}`} name={open} /></Card>}
    </>
  );
}

export function Stdout({ base }: { base: string }) {
  return <Card title="Standard output"><LogView path={`${base}/stdout`} name="stdout" /></Card>;
}

export function ThreadDump({ base }: { base: string }) {
  const of = usePolled<{ threadInfos: { threadName: string; stringifiedThreadInfo: string }[] }>(`${base}/thread-dump`, null);
  const [find, setFind] = useQuery("find");
  return (
    <Card title="Stacks of all threads">
      <div class="table-tools">
        <input class="find" type="search" placeholder="Search in names and stacks" value={find} onInput={(event) => setFind(event.currentTarget.value)} />
        <button type="button" class="plain" onClick={of.refresh}>Once more</button>
        {of.data && <Copy text={of.data.threadInfos.map((one) => one.stringifiedThreadInfo).join("\n")} label="Copy all" />}
      </div>
      <Answer of={of} what="thread dumps">
        {(found) =>
          found.threadInfos
            .filter((one) => !find || matches(`${one.threadName} ${one.stringifiedThreadInfo}`, find))
            .map((one, index) => (
              <details key={`${one.threadName} ${index}`} class="thread" open={found.threadInfos.length < 12}>
                <summary>{one.threadName}</summary>
                <pre>{one.stringifiedThreadInfo}</pre>
              </details>
            ))
        }
      </Answer>
    </Card>
  );
}
