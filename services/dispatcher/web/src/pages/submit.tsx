import { useRef, useState } from "preact/hooks";
import { ApiError, ask, at, request, send, usePolled } from "../api";
import { runCommand } from "../commands";
import { Graph } from "../graph";
import { Answer, Card, Copy, Dialog, PageTitle, When } from "../parts";
import { go } from "../router";
import { config, loginWanted, note, useStore } from "../store";
import { Table, type Column } from "../table";
import type { JobDetails, PlanNode } from "../types";

interface Program {
  id: string;
  name: string;
  uploaded: number;
  entry: { name: string; description: string | null }[];
}

const told = (error: unknown) => (error instanceof Error ? error.message : String(error));

export function SubmitPage() {
  const programs = usePolled<{ files: Program[] }>("/jars");
  const allowed = useStore(config)?.["firesteel-access"]?.change ?? true;
  const [open, setOpen] = useState<Program | null>(null);
  const [removing, setRemoving] = useState<Program | null>(null);
  const file = useRef<HTMLInputElement>(null);
  const upload = async () => {
    const chosen = file.current?.files?.[0];
    if (!chosen) return;
    const id = note("busy", `Uploading ${chosen.name} …`);
    try {
      const body = new FormData();
      body.append("jarfile", chosen, chosen.name);
      await request("/jars/upload", { method: "POST", body });
      note("good", `${chosen.name} is uploaded.`, undefined, id);
      programs.refresh();
    } catch (error) {
      note("bad", `${chosen.name} was not uploaded.`, told(error), id);
    }
    file.current!.value = "";
  };
  const remove = async (program: Program) => {
    setRemoving(null);
    try {
      await send("DELETE", at("jars", program.id));
      note("good", `${program.name} is deleted.`);
      programs.refresh();
    } catch (error) {
      note("bad", `${program.name} was not deleted.`, told(error));
    }
  };
  const columns: Column<Program>[] = [
    { key: "name", title: "Program", value: (one) => one.name, wide: 3 },
    { key: "uploaded", title: "Uploaded", value: (one) => one.uploaded, number: true, wide: 1.5, show: (one) => <When ms={one.uploaded} short /> },
    { key: "entry", title: "Starts with", value: (one) => one.entry.map((entry) => entry.name).join(", "), wide: 2 },
    { key: "delete", title: "", value: () => "", show: (one) => <button type="button" class="plain" onClick={() => setRemoving(one)}>Delete …</button> },
  ];
  return (
    <>
      <PageTitle>Submit a program</PageTitle>
      <Card>
        {!allowed && <p class="trouble quiet">Programs run as whoever may change the cluster: <button type="button" class="plain" onClick={() => loginWanted.set("asked")}>log in</button> first.</p>}
        <Answer of={programs} what="submitting programs">
          {(found) => (
            <Table
              name="programs"
              columns={columns}
              rows={found.files}
              id={(one) => one.id}
              sort="-uploaded"
              chosen={open?.id}
              open={(one) => setOpen(one)}
              empty="Nothing is uploaded. A program is a .py file, or a .zip or .whl of modules."
              tools={
                <label class={`button primary ${allowed ? "" : "locked"}`}>
                  Upload a program
                  <input type="file" accept=".py,.zip,.whl,.jar" ref={file} onChange={upload} disabled={!allowed} hidden data-upload />
                </label>
              }
            />
          )}
        </Answer>
      </Card>
      {open && <Run key={open.id} program={open} />}
      {removing && (
        <Dialog title="Delete this program?" close={() => setRemoving(null)} name="delete">
          <p><b>{removing.name}</b>: jobs that it has started go on.</p>
          <div class="dialog-buttons">
            <button type="button" class="plain" onClick={() => setRemoving(null)}>Leave it</button>
            <button type="button" class="danger" onClick={() => remove(removing)} data-confirm="delete">Delete</button>
          </div>
        </Dialog>
      )}
    </>
  );
}

function words(text: string): string[] {
  return [...text.matchAll(/"([^"]*)"|'([^']*)'|(\S+)/g)].map((found) => found[1] ?? found[2] ?? found[3] ?? "");
}

function Run({ program }: { program: Program }) {
  const [entry, setEntry] = useState("");
  const [parallelism, setParallelism] = useState("");
  const [args, setArgs] = useState("");
  const [savepoint, setSavepoint] = useState("");
  const [skip, setSkip] = useState(false);
  const [plan, setPlan] = useState<JobDetails | null>(null);
  const [busy, setBusy] = useState(false);
  const [asking, setAsking] = useState(false);
  const body = () => ({
    ...(entry && { entryClass: entry }),
    ...(parallelism && { parallelism: Number(parallelism) }),
    programArgsList: words(args),
    ...(savepoint && { savepointPath: savepoint, allowNonRestoredState: skip }),
  });
  const attempt = async (what: string, work: () => Promise<void>) => {
    setBusy(true);
    try {
      await work();
    } catch (error) {
      if (!(error instanceof ApiError) || error.status !== 401) note("bad", what, told(error));
    }
    setBusy(false);
  };
  const show = () =>
    attempt("The plan could not be made.", async () => {
      const query = new URLSearchParams();
      if (entry) query.set("entry-class", entry);
      if (parallelism) query.set("parallelism", parallelism);
      for (const word of words(args)) query.append("programArg", word);
      const found = await ask<{ plan: { nodes: PlanNode[] } }>(`${at("jars", program.id, "plan")}?${query}`);
      setPlan(drawn(found.plan.nodes));
    });
  const run = () =>
    attempt("The program was not started.", async () => {
      setAsking(false);
      const found = await send<{ jobid: string }>("POST", at("jars", program.id, "run"), body());
      note("good", "The job is submitted.");
      go(["jobs", found.jobid]);
    });
  return (
    <Card title={program.name} name="run">
      <form class="form" onSubmit={(event) => { event.preventDefault(); setAsking(true); }}>
        <label>Module that it starts with<input type="text" value={entry} placeholder={program.entry[0]?.name ?? "as the file says"} onInput={(event) => setEntry(event.currentTarget.value)} /></label>
        <label>Parallelism<input type="number" min="1" value={parallelism} placeholder="as the program says" onInput={(event) => setParallelism(event.currentTarget.value)} /></label>
        <label>Arguments<input type="text" value={args} placeholder='--input "a file"' onInput={(event) => setArgs(event.currentTarget.value)} name="arguments" /></label>
        <label>From this savepoint<input type="text" value={savepoint} placeholder="none: a fresh start" onInput={(event) => setSavepoint(event.currentTarget.value)} /></label>
        {savepoint && <label class="check"><input type="checkbox" checked={skip} onChange={(event) => setSkip(event.currentTarget.checked)} /> Leave out state of operators that are no longer there</label>}
        <div class="dialog-buttons">
          <button type="button" class="plain" disabled={busy} onClick={show} data-action="plan">Show its graph</button>
          <button type="submit" class="primary" disabled={busy} data-action="run">Submit …</button>
        </div>
      </form>
      {plan && <Graph job={plan} chosen="" choose={() => {}} />}
      {asking && (
        <Dialog title="Submit this program?" close={() => setAsking(false)} name="run">
          <p><b>{program.name}</b> {words(args).join(" ")}</p>
          <p>{savepoint ? `It goes on from ${savepoint}.` : "It starts without state."}</p>
          <p><Copy text={runCommand(location.href.replace(/[?#].*/, ""), program.id, body())} label="Copy as command" /></p>
          <div class="dialog-buttons">
            <button type="button" class="plain" onClick={() => setAsking(false)}>Leave it</button>
            <button type="button" class="primary" onClick={run} data-confirm="run">Submit</button>
          </div>
        </Dialog>
      )}
    </Card>
  );
}

/** A plan, as a job that has not begun. */
function drawn(nodes: PlanNode[]): JobDetails {
  const io = { "read-bytes": 0, "write-bytes": 0, "read-records": 0, "write-records": 0 };
  const plain = (text: string) => text.replace(/<br\s*\/?>/g, " ").replace(/&gt;/g, ">").replace(/&lt;/g, "<").replace(/&quot;/g, '"').replace(/&#39;/g, "'").replace(/&amp;/g, "&");
  return {
    jid: "", name: "", state: "CREATED", "start-time": -1, "end-time": -1, duration: -1, now: 0, timestamps: {}, plan: { nodes },
    vertices: nodes.map((node) => ({
      id: node.id, name: plain(node.description), parallelism: node.parallelism, maxParallelism: -1, status: "CREATED", "start-time": -1, "end-time": -1, duration: -1, tasks: {}, metrics: io,
    })),
  }; // prettier-ignore
}
