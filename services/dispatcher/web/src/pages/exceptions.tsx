import { useState } from "preact/hooks";
import { at, usePolled } from "../api";
import { grouped, splitTrace, type FailureGroup } from "../diagnose";
import { count } from "../format";
import { Answer, Badge, Card, Copy, When } from "../parts";
import { href, useQuery } from "../router";
import { config, useStore } from "../store";
import { matches } from "../table";
import type { ExceptionEntry, Exceptions } from "../types";
import { place } from "./vertex";

const STEP = 20;

export function ExceptionsTab({ id }: { id: string }) {
  const [most, setMost] = useState(STEP);
  const [find, setFind] = useQuery("find");
  const of = usePolled<Exceptions>(`${at("jobs", id, "exceptions")}?maxExceptions=${most}`);
  return (
    <Answer of={of} what="exceptions">
      {({ exceptionHistory: { entries, truncated } }) => {
        const found = find ? entries.filter((one) => matches(`${one.stacktrace} ${one.taskName} ${one.taskManagerId}`, find)) : entries;
        return (
          <Card>
            <div class="table-tools">
              <input class="find" type="search" placeholder="Search in tracebacks and tasks" value={find} onInput={(event) => setFind(event.currentTarget.value)} />
              <span class="dim">{entries.length === 0 ? "" : `${find ? `${found.length} of ` : ""}${truncated ? "the last " : ""}${entries.length} ${entries.length === 1 ? "failure" : "failures"}`}</span>
            </div>
            {entries.length === 0 && <p class="empty">Nothing has gone wrong.</p>}
            {grouped(found).map((group, index) => (
              <Group id={id} key={`${group.first} ${group.entries[0]!.exceptionName}`} group={group} open={index === 0} />
            ))}
            {truncated && (
              <button type="button" class="plain" onClick={() => setMost(most + STEP)}>
                Earlier ones
              </button>
            )}
          </Card>
        );
      }}
    </Answer>
  );
}

/** A failure that came again and again: the newest, how often it came, and those before it. */
function Group({ id, group, open }: { id: string; group: FailureGroup; open: boolean }) {
  const [newest, ...others] = group.entries;
  if (group.count === 1) return <Entry id={id} entry={newest!} open={open} />;
  return (
    <div class="failures" data-failures={group.count}>
      <p class="dim">
        <b>{count(group.count)} times</b>, first <When ms={group.first} />, last <When ms={group.last} />
      </p>
      <Entry id={id} entry={newest!} open={open} />
      {others.length > 0 && (
        <details class="others">
          <summary>{others.length} before it{others.length + 1 < group.count ? " (no more are kept)" : ""}</summary>
          {others.map((entry, index) => (
            <Entry key={`${entry.timestamp} ${index}`} id={id} entry={entry} open={false} />
          ))}
        </details>
      )}
    </div>
  );
}

function Entry({ id, entry, open }: { id: string; entry: ExceptionEntry; open: boolean }) {
  const history = useStore(config)?.features["web-history"] ?? false;
  const { trace, record, message } = splitTrace(entry.stacktrace);
  const [, task = entry.taskName, subtask = ""] = /^(.*?)\s*\((\d+\/\d+)\)/.exec(entry.taskName ?? "") ?? [];
  const others = entry.concurrentExceptions ?? [];
  return (
    <details class="exception" open={open} data-exception={entry.exceptionName}>
      <summary>
        <span class="exception-message">{message}</span>
        <span class="dim">
          <When ms={entry.timestamp} />
        </span>
      </summary>
      <dl class="facts">
        {task && <div><dt>Task</dt><dd>{task}</dd></div>}
        {subtask && <div><dt>Subtask</dt><dd>{subtask}</dd></div>}
        {entry.taskManagerId && <div><dt>TaskManager</dt><dd>{place(entry.taskManagerId)}</dd></div>}
        {entry.endpoint && <div><dt>Host</dt><dd>{entry.endpoint}</dd></div>}
        {!history && <div><dt>Log</dt><dd><a href={href(["jobs", id, "logs"], { at: String(entry.timestamp) })} data-action="moment">What was logged at that moment</a></dd></div>}
        {Object.entries(entry.failureLabels ?? {}).map(([key, value]) => (
          <div key={key}><dt>{key === "kind" ? "Whose fault" : key}</dt><dd><Badge state={value} /></dd></div>
        ))}
      </dl>
      {record !== undefined && (
        <div class="record">
          <h4>The record at hand</h4>
          <code data-record>{record}</code>
        </div>
      )}
      <div class="trace">
        <Copy text={entry.stacktrace} label="Copy" />
        <pre tabIndex={0}>{trace.split("\n").map((line, index) => <span key={index} class={traceKind(line)}>{line}{"\n"}</span>)}</pre>
      </div>
      {others.length > 0 && (
        <details class="others">
          <summary>{others.length} more at about the same time</summary>
          {others.map((one, index) => (
            <Entry key={index} id={id} entry={one} open={false} />
          ))}
        </details>
      )}
    </details>
  );
}

/** Lines of the user's own code stand out. */
function traceKind(line: string): string {
  if (/^\s+File "/.test(line)) return /site-packages|\/firesteel\/|\/firesteel_/.test(line) ? "frame-ours" : "frame-user";
  return /^\S/.test(line) && !line.startsWith("Traceback") ? "frame-error" : "";
}
