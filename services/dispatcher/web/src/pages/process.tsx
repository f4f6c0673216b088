// What TaskManagers and the JobManager have in common: log files, stacks.
import { useState } from "preact/hooks";
import { ApiError, request, send, usePolled } from "../api";
import { bytes } from "../format";
import { mainLog } from "../log_files";
import { LogView, saveAs } from "../logs";
import { Answer, Badge, Card, Copy, When } from "../parts";
import { go, useQuery } from "../router";
import { config, loginWanted, note, useStore } from "../store";
import { Table, type Column } from "../table";
import { matches } from "../table";
import { useTitle } from "../title";

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
  const open = name ?? mainLog(of.data?.logs ?? [])?.name;
  const missing = name !== undefined && of.data !== undefined && !of.data.logs.some((file) => file.name === name);
  useTitle(route.length + 1, name ?? "");
  return (
    <>
      <Card title="Log files">
        <Answer of={of} what="the list of log files">
          {(found) => <Table name="logs" columns={COLUMNS} rows={found.logs} id={(file) => file.name} chosen={open} open={(file) => go([...route, "logs", file.name])} filter={found.logs.length > 8} height={240} empty="There are none: a cluster inside of a program logs where that does." />}
        </Answer>
      </Card>
      {missing && <Card title={name}><p class="empty">There is no such file. What a slot logs and prints is there from its first line on.</p></Card>}
      {open && !missing && <Card title={open}><LogView path={`${base}/logs/${encodeURIComponent(open)}`} name={open} /></Card>}
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

interface Profile {
  status: string;
  mode: string;
  triggerTime: number;
  duration: number;
  message: string | null;
  outputFile: string | null;
}

const MODES: [string, string][] = [["CPU", "what used the processor"], ["WALL", "all that threads do"]];

/** Runs of the profiler: asked for, listed, downloaded. */
export function Profiles({ base }: { base: string }) {
  const of = usePolled<{ profilingList: Profile[] }>(`${base}/profiler`);
  const access = useStore(config)?.["firesteel-access"];
  const [mode, setMode] = useState("CPU");
  const [seconds, setSeconds] = useState("10");
  const begin = async () => {
    if (access && !access.change) return loginWanted.set("asked");
    try {
      await send("POST", `${base}/profiler`, { mode, duration: Number(seconds) });
      of.refresh();
    } catch (error) {
      if (!(error instanceof ApiError && error.status === 401)) note("bad", "No profile is taken.", error instanceof Error ? error.message : String(error));
    }
  };
  const save = async (name: string) => {
    try {
      saveAs(await (await request(`${base}/profiler/${encodeURIComponent(name)}`)).blob(), name);
    } catch (error) {
      note("bad", "The profile can't be had.", error instanceof Error ? error.message : String(error));
    }
  };
  const busy = of.data?.profilingList.some((one) => one.status === "RUNNING") ?? false;
  const columns: Column<Profile>[] = [
    { key: "when", title: "Begun", value: (one) => one.triggerTime, number: true, show: (one) => <When ms={one.triggerTime} short /> },
    { key: "mode", title: "Of", value: (one) => one.mode, wide: 2, show: (one) => `${MODES.find(([key]) => key === one.mode)?.[1] ?? one.mode}, ${one.duration} s` },
    { key: "status", title: "State", value: (one) => one.status, show: (one) => <span title={one.message ?? ""}><Badge state={one.status} /></span> },
    { key: "file", title: "Page", value: (one) => one.outputFile ?? "", wide: 2, show: (one) => (one.outputFile ? <button type="button" class="copy" onClick={() => void save(one.outputFile!)}>{one.outputFile}</button> : (one.message ?? "–")) },
  ]; // prettier-ignore
  return (
    <Card title="Profiles" name="profiles">
      <p class="dim">Python stacks of all threads, looked at a hundred times a second. The page can be opened in any browser.</p>
      <div class="table-tools">
        <label class="inline">
          Show
          <select value={mode} onChange={(event) => setMode(event.currentTarget.value)}>{MODES.map(([key, title]) => <option key={key} value={key}>{title}</option>)}</select>
        </label>
        <label class="inline">
          for
          <select value={seconds} onChange={(event) => setSeconds(event.currentTarget.value)}>{["3", "10", "30", "60"].map((one) => <option key={one} value={one}>{one} s</option>)}</select>
        </label>
        <button type="button" class={`plain${access?.change === false ? " locked" : ""}`} disabled={busy} onClick={() => void begin()} data-action="profile">{busy ? "Sampling …" : "Take a profile"}</button>
      </div>
      <Answer of={of} what="profiles">{(found) => <Table name="profiles" columns={columns} rows={found.profilingList} id={(one) => String(one.triggerTime)} empty="None was taken; the last ten are kept." height={240} />}</Answer>
    </Card>
  );
}
