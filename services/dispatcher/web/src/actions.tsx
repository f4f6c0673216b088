// What changes something: each asks first, and tells what became of it.
import { useState } from "preact/hooks";
import { RunAgain } from "./again";
import { ApiError, ask, at, send } from "./api";
import { command, type Chosen } from "./commands";
import { Copy, Dialog } from "./parts";
import { config, dismiss, loginWanted, note, useStore } from "./store";
import { isBatch } from "./diagnose";
import type { JobDetails } from "./types";

type Kind = "cancel" | "checkpoint" | "savepoint" | "stop";

interface Status {
  status: { id: string };
  operation: { location?: string; checkpointId?: number; "failure-cause"?: { "stack-trace": string } } | null;
}

const pause = (ms: number) => new Promise((done) => setTimeout(done, ms));

async function followed(path: string): Promise<Status["operation"]> {
  for (;;) {
    const found = await ask<Status>(path);
    if (found.status.id === "COMPLETED") return found.operation;
    await pause(500);
  }
}

async function carryOut(kind: Kind, job: string, options: Chosen): Promise<void> {
  const titles = { cancel: "Cancelling the job", checkpoint: "Checkpoint", savepoint: "Savepoint", stop: "Stopping with a savepoint" };
  const id = note("busy", `${titles[kind]} …`);
  try {
    if (kind === "cancel") {
      await send("PATCH", `${at("jobs", job)}?mode=cancel`);
      note("good", "The job is being cancelled.", undefined, id);
      return;
    }
    const directory = options.directory || null;
    const asked =
      kind === "checkpoint"
        ? await send<{ "request-id": string }>("POST", at("jobs", job, "checkpoints"), { checkpointType: options.full ? "FULL" : "CONFIGURED" })
        : kind === "savepoint"
          ? await send<{ "request-id": string }>("POST", at("jobs", job, "savepoints"), { "target-directory": directory, "cancel-job": false, formatType: options.format })
          : await send<{ "request-id": string }>("POST", at("jobs", job, "stop"), { targetDirectory: directory, drain: options.drain, formatType: options.format });
    const result = await followed(at("jobs", job, kind === "checkpoint" ? "checkpoints" : "savepoints", asked["request-id"]));
    const failure = result?.["failure-cause"];
    if (failure) note("bad", `${titles[kind]} failed.`, failure["stack-trace"], id);
    else if (kind === "checkpoint") note("good", `Checkpoint ${result?.checkpointId} is complete.`, undefined, id);
    else note("good", kind === "stop" ? "The job has stopped. Its savepoint:" : "The savepoint is complete:", result?.location, id);
  } catch (error) {
    if (error instanceof ApiError && error.status === 401) dismiss(id);
    else note("bad", `${titles[kind]} failed.`, error instanceof Error ? error.message : String(error), id);
  }
}

export function JobActions({ job }: { job: JobDetails }) {
  const found = useStore(config);
  const access = found?.["firesteel-access"] ?? { change: true, cancel: true };
  const ends = found?.features["web-cancel"] ?? true;
  const [open, setOpen] = useState<Kind | null>(null);
  if (job["end-time"] >= 0) return <RunAgain job={job} />;
  const ready = job.state === "RUNNING";
  const takes = !isBatch(job); // a batch job has no checkpoints: Spark runs again what is lost
  const press = (kind: Kind) => {
    if (kind === "cancel" ? access.cancel : access.change) setOpen(kind);
    else loginWanted.set("asked");
  };
  const locked = access.change ? "" : " locked";
  const why = access.change ? "" : " (log in first)";
  return (
    <div class="actions">
      {takes && <button type="button" class={`plain${locked}`} disabled={!ready} title={`Take a checkpoint now${why}`} onClick={() => press("checkpoint")} data-action="checkpoint">
        Checkpoint
      </button>}
      {takes && <button type="button" class={`plain${locked}`} disabled={!ready} title={`Take a savepoint; the job goes on${why}`} onClick={() => press("savepoint")} data-action="savepoint">
        Savepoint
      </button>}
      {takes && ends && <button type="button" class={`plain${locked}`} disabled={!ready} title={`Stop the job with a savepoint${why}`} onClick={() => press("stop")} data-action="stop">
        Stop …
      </button>}
      {ends && <button type="button" class={`danger${access.cancel ? "" : " locked"}`} title="Cancel the job" onClick={() => press("cancel")} data-action="cancel">
        Cancel …
      </button>}
      {open && <Confirm kind={open} job={job} close={() => setOpen(null)} />}
    </div>
  );
}

const TEXTS: Record<Kind, [string, string, string]> = {
  cancel: ["Cancel this job?", "It ends at once, without a savepoint. Results that are not committed are lost.", "Cancel the job"],
  checkpoint: ["Take a checkpoint now?", "The job goes on. Checkpoints that are due are taken as before.", "Take a checkpoint"],
  savepoint: ["Take a savepoint?", "The job goes on. The savepoint stays until somebody removes it.", "Take a savepoint"],
  stop: ["Stop this job with a savepoint?", "It takes a savepoint, commits its results and ends. It can be started again from the savepoint.", "Stop the job"],
};

function Confirm({ kind, job, close }: { kind: Kind; job: JobDetails; close: () => void }) {
  const [title, text, button] = TEXTS[kind];
  const [directory, setDirectory] = useState("");
  const [drain, setDrain] = useState(false);
  const [full, setFull] = useState(false);
  const [format, setFormat] = useState("CANONICAL");
  const act = (event: Event) => {
    event.preventDefault();
    close();
    void carryOut(kind, job.jid, { directory, drain, format, full });
  };
  return (
    <Dialog title={title} close={close} name={kind}>
      <form onSubmit={act}>
        <p>
          <b>{job.name}</b> <code>{job.jid}</code>
        </p>
        <p>{text}</p>
        {(kind === "savepoint" || kind === "stop") && (
          <>
            <label>
              Directory
              <input type="text" name="directory" value={directory} placeholder="as configured (execution.checkpointing.savepoint-dir)" onInput={(event) => setDirectory(event.currentTarget.value)} />
            </label>
            <label>
              Format
              <select value={format} onChange={(event) => setFormat(event.currentTarget.value)}>
                <option value="CANONICAL">canonical: any state backend reads it</option>
                <option value="NATIVE">native: faster</option>
              </select>
            </label>
          </>
        )}
        {kind === "stop" && (
          <label class="check">
            <input type="checkbox" checked={drain} onChange={(event) => setDrain(event.currentTarget.checked)} /> Drain: end event time, so that all
            windows fire. Not for jobs that are to go on later.
          </label>
        )}
        {kind === "checkpoint" && (
          <label class="check">
            <input type="checkbox" checked={full} onChange={(event) => setFull(event.currentTarget.checked)} /> Full: do not build on earlier checkpoints
          </label>
        )}
        <p>
          <Copy text={command(kind, job.jid, `${location.hostname}:${location.port || (location.protocol === "https:" ? 443 : 80)}`, { directory, drain, format, full })} label="Copy as command" />
        </p>
        <div class="dialog-buttons">
          <button type="button" class="plain" onClick={close}>
            Leave it
          </button>
          <button type="submit" class={kind === "cancel" || kind === "stop" ? "danger" : "primary"} data-confirm={kind}>
            {button}
          </button>
        </div>
      </form>
    </Dialog>
  );
}
