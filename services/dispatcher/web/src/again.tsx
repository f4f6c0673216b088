// Another run of a job that has ended.
import { useState } from "preact/hooks";
import { at, send } from "./api";
import { againCommand, outsideCommand } from "./commands";
import { Copy, Dialog } from "./parts";
import { go } from "./router";
import { config, loginWanted, note, useStore } from "./store";
import type { JobDetails } from "./types";

export function RunAgain({ job }: { job: JobDetails }) {
  const found = useStore(config);
  const [open, setOpen] = useState(false);
  const allowed = found?.["firesteel-access"]?.change ?? true;
  const runs = job["firesteel-program"] !== undefined && (found?.features["web-submit"] ?? false);
  return (
    <div class="actions">
      <button type="button" class={`plain${allowed || !runs ? "" : " locked"}`} onClick={() => (allowed || !runs ? setOpen(true) : loginWanted.set("asked"))} data-action="again">Run again …</button>
      {open && (runs ? <Again job={job} close={() => setOpen(false)} /> : <Outside job={job} history={found?.features["web-history"] ?? false} close={() => setOpen(false)} />)}
    </div>
  );
}

function From({ job, path, choose }: { job: JobDetails; path: string; choose: (path: string) => void }) {
  const choices = job["firesteel-restore-choices"] ?? [];
  return (
    <label>
      It begins
      <select value={path} onChange={(event) => choose(event.currentTarget.value)} name="from">
        <option value="">without state</option>
        {choices.map((one) => <option key={one.path} value={one.path}>from {one.kind} {one.id}</option>)}
      </select>
    </label>
  );
}

function Again({ job, close }: { job: JobDetails; close: () => void }) {
  const program = job["firesteel-program"]!;
  const [path, setPath] = useState("");
  const [drops, setDrops] = useState(false);
  const body = path ? { savepointPath: path, allowNonRestoredState: drops } : {};
  const run = async (event: Event) => {
    event.preventDefault();
    close();
    const id = note("busy", `${program.name} is started …`);
    try {
      const answer = await send<{ jobid: string }>("POST", at("jobs", job.jid, "run-again"), body);
      note("good", "The job is submitted.", undefined, id);
      go(["jobs", answer.jobid]);
    } catch (error) {
      note("bad", "The program was not started.", error instanceof Error ? error.message : String(error), id);
    }
  };
  return (
    <Dialog title="Run this program again?" close={close} name="again">
      <form onSubmit={run}>
        <p><b>{program.name}</b> {program.entry} <code>{program.arguments.join(" ")}</code></p>
        <p>With the same arguments, parallelism and settings as before.</p>
        <From job={job} path={path} choose={setPath} />
        {path && <p class="dim">{path}</p>}
        {path && <label class="check"><input type="checkbox" checked={drops} onChange={(event) => setDrops(event.currentTarget.checked)} /> Leave out state of operators that are no longer there</label>}
        <p><Copy text={againCommand(location.href.replace(/[?#].*/, ""), job.jid, body)} label="Copy as command" /></p>
        <div class="dialog-buttons">
          <button type="button" class="plain" onClick={close}>Leave it</button>
          <button type="submit" class="primary" data-confirm="again">Run it</button>
        </div>
      </form>
    </Dialog>
  );
}

function Outside({ job, history, close }: { job: JobDetails; history: boolean; close: () => void }) {
  const [path, setPath] = useState("");
  const text = outsideCommand(history ? "" : `${location.hostname}:${location.port || (location.protocol === "https:" ? 443 : 80)}`, path);
  return (
    <Dialog title="This job can't be run again from here" close={close} name="outside">
      <p>{history ? "This is a history server: it runs no jobs." : "It was submitted from outside: the cluster has its graph, but not the program."} Run the program again where it is, in place of PROGRAM with its arguments:</p>
      <From job={job} path={path} choose={setPath} />
      <p><code>{text}</code></p>
      <p><Copy text={text} label="Copy the command" /></p>
      <div class="dialog-buttons"><button type="button" class="plain" onClick={close}>Close</button></div>
    </Dialog>
  );
}
