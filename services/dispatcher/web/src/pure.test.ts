// Tests of what decides; run by `node --test` after a build by test.mjs, without a browser.
import assert from "node:assert/strict";
import { test } from "node:test";
import { againCommand, command, outsideCommand, quoted, runCommand } from "./commands";
import { depthOf, folded, label, type Frame } from "./flames";
import { checkpointAge, illFirst, severity, sparkLines } from "./health";
import { joined, uncounted } from "./history";
import { mainLog } from "./log_files";
import { carried, grouped, quantile, splitTrace, stageText } from "./diagnose";
import { bytes, count, counted, duration, percent, shortTime, SIZE_STEPS, subtaskOf, time, watermark, WHOLE } from "./format";
import { catchUp, caughtUp, idle, rates, sampled, together, type Samples } from "./kafka";
import { doubled } from "./latency";
import { layout } from "./layout";
import { hottest, inChain, ownShares } from "./operators";
import { jobPieces, pieces } from "./pieces";
import { change, spread } from "./rescaling";
import { apart, growth, signed, stateRows } from "./state";
import type { ComparedState, Finding, Health, JobRow, KafkaSources, OperatorRow, StateCheckpoint, StateSizes, Vertex, Worst } from "./types";
import { lines, renewed, type JobLog, type LogRecord } from "./records";
import { joinedTitle } from "./title";

const io = { "read-bytes": 0, "write-bytes": 0, "read-records": 0, "write-records": 0 };
const vertex = (id: string, worst: Worst): Vertex => ({
  id, name: id, parallelism: 2, maxParallelism: 128, status: "RUNNING", "start-time": 0, "end-time": -1, duration: 0, tasks: { RUNNING: 2 }, metrics: io, "firesteel-worst": worst,
}); // prettier-ignore

test("numbers are short", () => {
  assert.deepEqual([0, 7, 1234, 56_789, 123_456_789, NaN].map(count), ["0", "7", "1.23 k", "56.8 k", "123 M", "–"]);
  assert.deepEqual([0, 1536, -1, 5 << 20].map(bytes), ["0 B", "1.50 KiB", "–", "5.00 MiB"]);
  assert.deepEqual([5, 1500, 61_000, 3_700_000, -1].map(duration), ["5 ms", "1.5 s", "1 min 1 s", "1 h 1 min", "–"]);
  assert.deepEqual([0, 123, 1200, undefined].map(percent), ["0 %", "12 %", "100 %", "–"]);
});

test("ticks stand at whole numbers and whole sizes, subtasks are counted from one", () => {
  assert.ok(WHOLE.every(Number.isInteger));
  assert.deepEqual(SIZE_STEPS.slice(8, 12).map(bytes), ["256 B", "512 B", "1.00 KiB", "2.00 KiB"]);
  assert.equal(subtaskOf(0, 4), "1/4");
});

test("bytes that nobody counts are not shown as none", () => {
  assert.ok(Number.isNaN(counted(0, 5)), "a source that reads, a sink that writes");
  assert.deepEqual([counted(0, 0), counted(7, 5)], [0, 7]);
  const series = { numRecordsInPerSecond: [null, 5], numBytesInPerSecond: [null, 0], numRecordsOutPerSecond: [0, 0], numBytesOutPerSecond: [0, 0] };
  assert.deepEqual(Object.keys(series).filter((name) => uncounted(series, name)), ["numBytesInPerSecond"]);
});

test("a stage says how far it is, and how long it takes where that can be known", () => {
  const stage = { "tasks-done": 1, tasks: 4, "spilled-bytes": 0, "shuffled-bytes": 0 };
  const texts = [undefined, stage, { ...stage, percent: 99.9 }, { ...stage, percent: 25.4, "left-ms": 61_000 }, { ...stage, percent: 100 }].map(stageText);
  assert.deepEqual(texts, ["", "", "99 %", "25 %, 1 min 1 s left", ""]);
});

test("the time of a vertex divides among the operators of its chain", () => {
  const row = (name: string, perSecond: number, total: number): OperatorRow => ({ name, "records-in": 1, "records-out": 1, "records-in-per-second": 1, "records-out-per-second": 1, "own-time-ms": total, "own-time-ms-per-second": perSecond, busiest: { value: perSecond, subtask: 1 } });
  const of = { "busy-time-ms-per-second": 800, operators: [row("read", 100, 5), row("slow", 600, 15)] };
  const running = ownShares(of, true);
  assert.deepEqual([...running.shares.values(), running.rest], [0.125, 0.75, 0.125]);
  assert.match(inChain(of.operators, running.shares, running.rest), /^slow takes most of the time: 75 %. Reading, partitioning and sending records take 13 %./);
  const ended = ownShares(of, false);
  assert.deepEqual([...ended.shares.values(), ended.rest], [0.25, 0.75, 0]);
  const nothing = ownShares({ "busy-time-ms-per-second": 0, operators: [row("read", 0, 0)] }, false);
  assert.deepEqual([nothing.shares.get("read"), nothing.rest], [0, 0]);
  assert.match(inChain([], new Map(), 0), /^Counts are exact/);
});

test("a key that makes more than the share of a subtask is told", () => {
  const of = { parallelism: 4, records: 1000, lost: 0, problems: [], keys: [{ key: "'hot'", share: 0.6, records: 600, subtask: 2 }] };
  assert.match(hottest(of), /^The most frequent key makes 60 % of the records, all for subtask 3\/4: more than the 25 % that each/);
  assert.match(hottest({ ...of, lost: 50, keys: [{ ...of.keys[0]!, share: 0.3 }] }), /makes 30 % of the records, up to 5 % more, all for subtask 3\/4\. Keys/);
  assert.match(hottest({ ...of, keys: [] }), /^Keys are counted in a sample/);
});

test("times are those of the zone that is chosen", () => {
  assert.equal(time(0, "utc"), "1970-01-01 00:00:00");
  assert.equal(time(0, "cluster", 3_600_000), "1970-01-01 01:00:00");
  assert.equal(shortTime(1000, 2000, "utc"), "00:00:01");
  assert.equal(shortTime(1000, 90_000_000, "utc"), "01-01 00:00");
});

test("a narrow frame shows its function first", () => {
  assert.equal(label("firesteel.runtime.loop.loop.TaskLoop.run_once:206"), "TaskLoop.run_once:206  firesteel.runtime.loop.loop");
  assert.equal(label("shop.shop.<locals>.price:42"), "shop.price:42  shop");
  assert.equal(label("root"), "root");
});

test("marks of watermarks are no times", () => {
  assert.equal(watermark("-9223372036854775808").kind, "none");
  assert.equal(watermark("9223372036854775807").kind, "end");
  assert.deepEqual(watermark("5"), { kind: "time", ms: 5 });
  assert.equal(watermark(undefined).kind, "none");
});

test("the log that is shown first is that of the process", () => {
  const files = (...names: string[]) => names.map((name) => ({ name, size: name.startsWith("empty") ? 0 : 9 }));
  assert.equal(mainLog(files("executor-vm-1.log", "firesteel-root-taskmanager-0-vm.log", "slot-0.log"))?.name, "firesteel-root-taskmanager-0-vm.log");
  assert.equal(mainLog(files("empty-executor.log", "slot-0.log"))?.name, "slot-0.log");
  assert.equal(mainLog([]), undefined);
});

test("frames of ours that lead nowhere else are folded", () => {
  const frame = (name: string, value: number, ...children: Frame[]): Frame => ({ name, value, children });
  const user = frame("__main__.Price.map:7", 6, frame("__main__.helper:9", 6, frame("json.loads:1", 6)));
  const tree = frame("root", 9, frame("__main__.main:3", 8, frame("firesteel.a:1", 8, frame("firesteel.b:2", 6, frame("firesteel.c:2", 6, user)), frame("firesteel.d:4", 2))), frame("firesteel.e:5", 1));
  const { tree: found, hidden } = folded(tree);
  assert.equal(hidden, 2);
  assert.deepEqual(found.children.map(({ name }) => name), ["firesteel.a:1", "firesteel.e:5"]);
  assert.deepEqual(found.children[0]!.children.map(({ name }) => name), ["firesteel.c:2", "firesteel.d:4"]);
  assert.deepEqual(found.children[0]!.children[0]!.children, [user]);
  assert.deepEqual([depthOf(tree), depthOf(found)], [8, 6]);
});

test("percentiles are values that occur", () => {
  const values = Array.from({ length: 100 }, (_, index) => index + 1);
  assert.deepEqual([0, 0.5, 0.95, 1].map((share) => quantile(values, share)), [1, 50, 95, 100]);
  assert.ok(Number.isNaN(quantile([], 0.5)));
});

test("a traceback is cut into message and record", () => {
  const found = splitTrace('Traceback (most recent call last):\n  File "a.py", line 1\n    boom()\nValueError: two\n  lines\nThe record at hand: {1}\n');
  assert.deepEqual([found.message, found.record], ["ValueError: two\n  lines", "{1}"]);
  assert.equal(splitTrace("plain").record, undefined);
});

test("a history goes on where it ended and keeps its size", () => {
  const piece = (times: number[], series: Record<string, (number | null)[]>) => ({ interval: 1000, size: 3, truncated: false, times, series });
  const found = joined(piece([1, 2], { a: [1, 2] }), piece([3, 4], { a: [3, 4], b: [5, 6] }));
  assert.deepEqual(found.times, [2, 3, 4]);
  assert.deepEqual(found.series, { a: [2, 3, 4], b: [null, 5, 6] });
});

test("states follow each other, and what was before the last failure is one piece", () => {
  assert.deepEqual(pieces({ CREATED: 1, RUNNING: 4, INITIALIZING: 4, FINISHED: 9, FAILED: 0 }, 12), [
    { state: "CREATED", from: 1, to: 4 },
    { state: "INITIALIZING", from: 4, to: 4 },
    { state: "RUNNING", from: 4, to: 9 },
  ]);
  assert.deepEqual(jobPieces({ INITIALIZING: 1, CREATED: 2, RUNNING: 20, RESTARTING: 15, FAILING: 0 }, 30), [
    { state: "EARLIER", from: 1, to: 15 },
    { state: "RESTARTING", from: 15, to: 20 },
    { state: "RUNNING", from: 20, to: 30 },
  ]);
});

test("vertices stand from left to right and do not overlap", () => {
  const drawn = layout([
    { id: "a", parallelism: 1, description: "" },
    { id: "b", parallelism: 1, description: "", inputs: [{ id: "a", ship_strategy: "HASH" }] },
    { id: "c", parallelism: 1, description: "", inputs: [{ id: "a" }, { id: "b" }, { id: "b" }] },
  ]);
  const x = Object.fromEntries(drawn.places.map((place) => [place.id, place.x]));
  assert.ok(x["a"]! < x["b"]! && x["b"]! < x["c"]!);
  assert.equal(drawn.links.length, 4, "two edges between the same vertices are two");
});

test("a rescale tells what was before and what after", () => {
  assert.deepEqual([spread([2, 2]), spread([3, 1, 2]), spread([null]), spread([])], ["2", "1 to 3", "–", "–"]);
  assert.deepEqual([change([2], [3]), change([null, null], [2, 2]), change([1, 2], [1, 2]), change([1, 2], [1, 3]), change([2], [null])], ["2 → 3", "– → 2", "1 to 2", "1 to 2 → 1 to 3", "2"]);
});

test("the rate of an edge leaves out what its writer writes elsewhere", () => {
  const from = { ...vertex("from", { numRecordsOutPerSecond: 300 }), name: "Map -> (Sink: Print, Filter)" };
  const to = vertex("to", { numRecordsInPerSecond: 200 });
  assert.equal(carried(from, to, false, false), 200, "the chained sink takes the others");
  assert.equal(carried(from, to, true, false), 200);
  assert.equal(carried(from, to, false, true), undefined);
  assert.equal(carried({ ...from, name: "Map" }, to, false, true), 300);
  assert.equal(carried({ ...from, name: "Map" }, to, true, true), undefined);
  assert.equal(carried(undefined, undefined, false, false), undefined);
});

const row = (jid: string, start: number, health?: Partial<Health>): JobRow => ({ jid, name: jid, state: "RUNNING", "start-time": start, "end-time": -1, duration: 1000, tasks: {}, ...(health ? { "firesteel-health": { finding: null, ...health } } : {}) });

test("what is ill comes first, and of the same the newest", () => {
  const of = (kind: Finding["kind"]) => ({ finding: { kind, text: "" } });
  const jobs = [row("ended", 9), row("old", 1, of("good")), row("new", 2, of("good")), row("slow", 3, of("warn")), row("failed", 0, of("bad"))];
  assert.deepEqual(illFirst(jobs).map(({ jid }) => jid), ["failed", "slow", "new", "old", "ended"]);
  assert.deepEqual(jobs.map(severity), [0, 1, 1, 2, 3]);
});

test("the age of a checkpoint is by the cluster's clock", () => {
  assert.equal(checkpointAge(row("j", 5000, { "last-checkpoint-timestamp": 5400 })), 600);
  assert.ok(Number.isNaN(checkpointAge(row("j", 5000, {}))) && Number.isNaN(checkpointAge(row("j", 5000))));
});

test("a line of rates begins at 0 and has gaps", () => {
  assert.deepEqual(sparkLines([0, 5, 10], 20, 10), ["0,10 10,5 20,0"]);
  assert.deepEqual(sparkLines([0, 0, null, 4, 2], 40, 10), ["0,10 10,10", "30,0 40,5"]);
  assert.deepEqual([sparkLines([], 20, 10), sparkLines([3], 20, 10)], [[], []]);
});

const comparedState = (name: string, now: [number, number] | null, then: [number, number] | null): ComparedState => ({ name, kind: "value", entries: now?.[0] ?? null, size: now?.[1] ?? null, "entries-about": false, "size-about": false, "base-entries": then?.[0] ?? null, "base-size": then?.[1] ?? null, change: null, sizes: [] });
const atCheckpoint = (id: number, ms: number, size: number): StateCheckpoint => ({ id, trigger_timestamp: ms, is_savepoint: false, external_path: "", discarded: false, size });

test("states grow by so much a minute, and what was not there before was nothing", () => {
  const operator = { id: "o", uid: null, name: "count", states: [comparedState("seen", [30, 300], [10, 100]), comparedState("new", [1, 5], null), comparedState("gone", null, [2, 20])] };
  const sizes: StateSizes = { backend: "hashmap", checkpoint: atCheckpoint(2, 90_000, 305), base: atCheckpoint(1, 60_000, 120), checkpoints: [], operators: [operator] };
  assert.deepEqual(stateRows(sizes).map((row) => [row.name, row.bytesPerMinute, row.entriesPerMinute]), [["seen", 400, 40], ["new", 10, 2], ["gone", -40, -4]]);
  assert.equal(growth(sizes), 370);
  assert.equal(apart(sizes), 30_000);
  const first = { ...sizes, base: null };
  assert.ok(Number.isNaN(growth(first)) && Number.isNaN(stateRows(first)[0]!.bytesPerMinute), "with one checkpoint nothing is known");
  assert.ok(Number.isNaN(apart({ ...sizes, base: atCheckpoint(1, 89_990, 1) })), "too near");
  assert.equal(growth({ ...sizes, checkpoint: sizes.base, base: sizes.checkpoint }), 370, "the other way round as well");
});

test("changes have signs", () => {
  assert.deepEqual([signed(1536, bytes), signed(-3, count), signed(0, bytes), signed(0.001, count), signed(NaN, count), signed(null, bytes)], ["+1.50 KiB", "−3", "0", "0", "–", "–"]);
});

test("failures with the same cause are one group, counted by the server", () => {
  const failure = (timestamp: number, number?: number): ExceptionEntry => ({
    exceptionName: "LookupError", taskName: "price (1/2)", stacktrace: `LookupError: no price ${number ?? "of old"}`, timestamp,
    ...(number === undefined ? {} : { "firesteel-repeats": { number, count: 40, first_ms: 5, last_ms: 90 } }),
  }); // prettier-ignore
  const found = grouped([failure(90, 0), failure(80, 1), failure(70, 0), failure(60), failure(50)]);
  assert.deepEqual(found.map(({ entries, count, first, last }) => [entries.length, count, first, last]), [[2, 40, 5, 90], [1, 40, 5, 90], [2, 2, 50, 60]]);
});

const logged = (time: number, message: string, source = "tm-1"): LogRecord => ({ time, level: "INFO", logger: "shop", message, source });
const answered = (records: LogRecord[], ...sources: JobLog["sources"]): JobLog => ({ records, "complete-to": -1, now: 99, sources });

test("records that are read anew replace those of their time, and who is silent keeps its own", () => {
  const before = [logged(1, "a"), logged(5, "b"), logged(6, "c", "tm-2")];
  const found = renewed(before, 5, answered([logged(5, "b"), logged(5, "late", "tm-3"), logged(8, "d")], { source: "tm-1" }, { source: "tm-2", error: "no answer" }));
  assert.deepEqual(found.map((one) => one.message), ["a", "b", "late", "c", "d"]);
  assert.equal(renewed(before, 9, answered([])), before);
});

test("a record says where it was logged and by which task", () => {
  assert.deepEqual(lines({ ...logged(1, "one\ntwo"), task: "price (2/2)#0" }, "12:00:00"), ["12:00:00 INFO  shop [tm-1, price (2/2)#0]: one", "two"]);
});

test("the title of a page begins with what tells it apart", () => {
  assert.equal(joinedTitle(new Map([[0, "Orders"], [2, "Checkpoints"], [3, "Checkpoint 4"]])), "Checkpoint 4 · Checkpoints · Orders · Firesteel");
  assert.equal(joinedTitle(new Map()), "Firesteel");
});

test("commands for a shell do what the dialogs do, whatever the names are", () => {
  assert.deepEqual(["a-b/c.1", "", "it's", "$(x) \"y\"", "<b>é"].map(quoted), ["a-b/c.1", "''", "'it'\\''s'", "'$(x) \"y\"'", "'<b>é'"]);
  const none = { directory: "", drain: false, format: "CANONICAL", full: false };
  const at = "h:8081";
  assert.equal(command("cancel", "j", at, none), "firesteel cancel -m h:8081 j");
  assert.equal(command("checkpoint", "j", at, { ...none, full: true }), "firesteel checkpoint -m h:8081 --full j");
  assert.equal(command("savepoint", "j", at, { ...none, directory: "/my place", format: "NATIVE" }), "firesteel savepoint -m h:8081 --type NATIVE j '/my place'");
  assert.equal(command("stop", "j", at, { ...none, directory: "-x", drain: true }), "firesteel stop -m h:8081 --drain --savepointPath=-x j");
  assert.equal(
    runCommand("http://h:1/", "a b.py", { programArgsList: ["it's"] }),
    `curl -X POST -H "Authorization: Bearer $(firesteel token)" -H 'Content-Type: application/json' --data-binary '{"programArgsList":["it'\\''s"]}' http://h:1/jars/a%20b.py/run`,
  );
});

const readOf = (now: number, ...partitions: [number | null, number | null][]): KafkaSources => ({ now, checkpoint: null, sources: [{ "vertex-id": "v", name: "in", operator: "in", parallelism: 2, lag: null, partitions: partitions.map(([position, lag], partition) => ({ topic: "a.b", partition, subtask: 0, position, lag, committed: null, checkpointed: null })) }] });
const samplesOf = (...answers: KafkaSources[]): Samples => answers.reduce(sampled, {} as Samples);

test("rates of a partition are those of the last minute, and begin anew where it is read again", () => {
  const found = samplesOf(readOf(0, [0, 100]), readOf(5000, [50, 150]), readOf(10_000, [100, 200]));
  assert.deepEqual(rates(found["v a.b-0"]), { read: 10, written: 20 });
  assert.ok(Number.isNaN(rates(samplesOf(readOf(0, [0, 0]), readOf(3000, [9, 0]))["v a.b-0"]).read), "too short");
  assert.ok(Number.isNaN(rates(undefined).read));
  const again = sampled(found, readOf(15_000, [20, 280]));
  assert.equal(again["v a.b-0"]!.length, 1, "after a restart from a checkpoint");
  assert.equal(sampled(found, readOf(10_000, [100, 200]))["v a.b-0"]!.length, 3, "an answer that was given before");
  assert.equal(sampled(found, readOf(65_000, [100, 200]))["v a.b-0"]!.length, 3, "the first one is too old");
  assert.equal(sampled(found, readOf(15_000, [null, null]))["v a.b-0"]!.length, 3, "nothing is known while the reader starts");
  assert.deepEqual(together([{ read: 1, written: 2 }, { read: 3, written: 4 }]), { read: 4, written: 6 });
  assert.ok(Number.isNaN(together([{ read: 1, written: 2 }, { read: NaN, written: NaN }]).read));
  assert.ok(Number.isNaN(together([]).read));
});

test("when a reader has caught up is said honestly", () => {
  assert.equal(catchUp(6000, { read: 300, written: 200 }), 60_000);
  assert.deepEqual([catchUp(0, { read: NaN, written: NaN }), catchUp(500, { read: 300, written: 300 })], ["now", "now"], "less than two seconds of records");
  assert.deepEqual([catchUp(6000, { read: 100, written: 200 }), catchUp(6000, { read: 100, written: 100 }), catchUp(6000, { read: 0, written: 0 }), catchUp(6000, { read: 1005, written: 1000 })], ["never", "never", "never", "never"]);
  assert.ok(Number.isNaN(catchUp(6000, { read: NaN, written: NaN })));
  assert.ok(Number.isNaN(catchUp(null, { read: 1, written: 1 })));
  assert.deepEqual([caughtUp("now"), caughtUp("never"), caughtUp(90_000), caughtUp(NaN)], ["caught up", "never", "1 min 30 s", "–"]);
});

test("a partition is idle when nothing came for a while and nothing waits", () => {
  assert.ok(idle(samplesOf(readOf(0, [5, 0]), readOf(20_000, [5, 0]))["v a.b-0"]));
  assert.ok(!idle(samplesOf(readOf(0, [5, 0]), readOf(10_000, [5, 0]))["v a.b-0"]), "not for long");
  assert.ok(!idle(samplesOf(readOf(0, [5, 3]), readOf(20_000, [5, 3]))["v a.b-0"]), "three records wait: the reader stands still");
  assert.ok(!idle(samplesOf(readOf(0, [5, 0]), readOf(20_000, [6, 0]))["v a.b-0"]));
  assert.ok(!idle(undefined));
});

test("latencies are shown in few bars, each to the double of the one before", () => {
  const buckets = [0, 1, 2, 3, 33, 34].map((upTo) => ({ "up-to": upTo, count: 1 }));
  assert.deepEqual(doubled(buckets), [{ upTo: 1, count: 1 }, { upTo: 2, count: 1 }, { upTo: 4, count: 2 }, { upTo: 64, count: 2 }]);
});

test("the command for a job from outside, and the request for that of an upload", () => {
  assert.equal(outsideCommand("h:8081", "/s/a b"), "firesteel run -m h:8081 -s '/s/a b' PROGRAM");
  assert.equal(outsideCommand("", ""), "firesteel run PROGRAM");
  assert.ok(againCommand("http://h:1/", "ab", {}).endsWith("--data-binary '{}' http://h:1/jobs/ab/run-again"));
});
