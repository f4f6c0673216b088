import { at, usePolled } from "../api";
import { ago, bytes, count, isNumber } from "../format";
import { Answer, Card, Copy, Facts, Figure, PageTitle, Tabs } from "../parts";
import { go, href } from "../router";
import { Table, type Column } from "../table";
import type { JobRow } from "../types";
import { Logs, Stdout, Profiles, ThreadDump } from "./process";

interface Resource {
  cpuCores: number;
  taskHeapMemory: number;
  managedMemory: number;
  networkMemory: number;
}
interface Row {
  id: string;
  path: string;
  dataPort: number;
  timeSinceLastHeartbeat: number;
  slotsNumber: number;
  freeSlots: number;
  assignedTasks?: number;
  blocked?: boolean;
  hardware: { cpuCores: number; physicalMemory: number; freeMemory: number; managedMemory: number };
  memoryConfiguration: Record<string, number | null>;
}
interface Details extends Row {
  allocatedSlots: { jobId: string; resource: Resource; assignedTasks?: number; "firesteel-slot"?: number; "firesteel-memory"?: number; "firesteel-cpu"?: number }[];
  metrics: Record<string, number> & { garbageCollectors?: unknown };
}

const COLUMNS: Column<Row>[] = [
  { key: "id", title: "TaskManager", value: (row) => row.id, wide: 2.4, show: (row) => <a href={href(["taskmanagers", row.id])}>{row.id}</a> },
  { key: "path", title: "Address", value: (row) => row.path, wide: 2 },
  { key: "slots", title: "Slots in use", value: (row) => row.slotsNumber - row.freeSlots, number: true, wide: 1.4, show: (row) => <Slots of={row} /> },
  { key: "tasks", title: "Tasks", value: (row) => row.assignedTasks ?? NaN, number: true, show: (row) => count(row.assignedTasks) },
  { key: "cores", title: "Cores", value: (row) => row.hardware.cpuCores, number: true },
  { key: "memory", title: "Memory", value: (row) => row.hardware.physicalMemory, number: true, show: (row) => bytes(row.hardware.physicalMemory) },
  { key: "heartbeat", title: "Last heartbeat", value: (row) => row.timeSinceLastHeartbeat, number: true, wide: 1.2, show: (row) => heard(row) },
];

const cores = (load: number | undefined) => (isNumber(load) ? `${load.toFixed(2)} ${load === 1 ? "core" : "cores"}` : "–");
const heard = (row: Row) => (row.timeSinceLastHeartbeat > 0 ? ago(Math.max(0, Date.now() - row.timeSinceLastHeartbeat)) : "–");

function Slots({ of }: { of: Row }) {
  const used = of.slotsNumber - of.freeSlots;
  return (
    <span class="share">
      <span class="track"><span class="fill busy" style={{ width: `${of.slotsNumber ? (100 * used) / of.slotsNumber : 0}%` }} /></span>
      <span class="share-number">{used}/{of.slotsNumber}</span>
    </span>
  );
}

export function TaskManagersPage() {
  const of = usePolled<{ taskmanagers: Row[] }>("/taskmanagers");
  return (
    <>
      <PageTitle>TaskManagers</PageTitle>
      <Card>
        <Answer of={of} what="TaskManagers">
          {(found) => <Table name="taskmanagers" columns={COLUMNS} rows={found.taskmanagers} id={(row) => row.id} sort="id" filter="Filter by id or address" open={(row) => go(["taskmanagers", row.id])} empty="None has registered." height={700} />}
        </Answer>
      </Card>
    </>
  );
}

const TABS: [string, string][] = [["slots", "Slots and memory"], ["logs", "Logs"], ["stdout", "Stdout"], ["metrics", "Metrics"], ["threads", "Stacks"]];

export function TaskManagerPage({ id, tab, rest }: { id: string; tab: string; rest: string[] }) {
  const now = TABS.some(([key]) => key === tab) ? tab : "slots";
  const base = at("taskmanagers", id);
  return (
    <>
      <p class="crumbs"><a href="#/taskmanagers">TaskManagers</a></p>
      <PageTitle name={id}><Copy text={id} /></PageTitle>
      <Tabs path={["taskmanagers", id]} tabs={TABS} now={now} />
      {now === "slots" && <SlotsAndMemory base={base} />}
      {now === "logs" && <Logs base={base} route={["taskmanagers", id]} rest={rest} />}
      {now === "stdout" && <Stdout base={base} />}
      {now === "metrics" && <Metrics base={base} />}
      {now === "threads" && <><Profiles base={base} /><ThreadDump base={base} /></>}
    </>
  );
}

const MEMORY: [string, string][] = [
  ["frameworkHeap", "framework heap"], ["taskHeap", "task heap"], ["frameworkOffHeap", "framework off-heap"], ["taskOffHeap", "task off-heap"],
  ["networkMemory", "network"], ["managedMemory", "managed"], ["jvmMetaspace", "metaspace"], ["jvmOverhead", "overhead"],
]; // prettier-ignore

function SlotsAndMemory({ base }: { base: string }) {
  const of = usePolled<Details>(base);
  const jobs = usePolled<{ jobs: JobRow[] }>("/jobs/overview");
  const name = (id: string) => jobs.data?.jobs.find((job) => job.jid === id)?.name ?? id;
  return (
    <Answer of={of} what="this TaskManager">
      {(found) => {
        type Slot = Details["allocatedSlots"][number] & { index: number };
        const columns: Column<Slot>[] = [
          { key: "index", title: "Slot", help: "its number, by which its log files are named", value: (slot) => slot["firesteel-slot"] ?? NaN, number: true, wide: 0.6, show: (slot) => slot["firesteel-slot"] ?? "–" },
          { key: "job", title: "Job", value: (slot) => name(slot.jobId), wide: 3, show: (slot) => <a href={href(["jobs", slot.jobId])}>{name(slot.jobId)}</a> },
          { key: "tasks", title: "Tasks", value: (slot) => slot.assignedTasks ?? NaN, number: true, show: (slot) => count(slot.assignedTasks) },
          { key: "memory", title: "Memory", help: "of its process and their children (PSS)", value: (slot) => slot["firesteel-memory"] ?? NaN, number: true, wide: 1.2, show: (slot) => bytes(slot["firesteel-memory"]) },
          { key: "cpu", title: "Processor", help: "cores that these use", value: (slot) => slot["firesteel-cpu"] ?? NaN, number: true, wide: 1.2, show: (slot) => cores(slot["firesteel-cpu"]) },
        ];
        const used = (name: "firesteel-memory" | "firesteel-cpu") => found.allocatedSlots.reduce((sum, slot) => sum + (slot[name] ?? 0), 0);
        const share = used("firesteel-cpu");
        const memory = MEMORY.map(([key, title]) => [title, found.memoryConfiguration[key]] as const).filter((one): one is readonly [string, number] => isNumber(one[1]) && one[1] > 0);
        const total = memory.reduce((sum, [, size]) => sum + size, 0);
        return (
          <>
            <div class="figures">
              <Figure name="slots" title="Slots in use" value={`${found.slotsNumber - found.freeSlots} of ${found.slotsNumber}`} note={<span class="track"><span class="fill busy" style={{ width: `${found.slotsNumber ? (100 * (found.slotsNumber - found.freeSlots)) / found.slotsNumber : 0}%` }} /></span>} />
              <Figure name="cpu" title="Processor, used by slots" value={cores(share)} note={`of ${found.hardware.cpuCores} cores`} />
              <Figure name="memory" title="Memory, used by slots" value={bytes(used("firesteel-memory"))} note={found.metrics["heapUsed"]! > 0 ? `and ${bytes(found.metrics["heapUsed"])} by the TaskManager itself` : undefined} />
              <Figure title="Memory of the machine" value={bytes(found.hardware.physicalMemory)} note={found.hardware.freeMemory > 0 ? `${bytes(found.hardware.freeMemory)} free` : undefined} />
              <Figure title="Last heartbeat" value={heard(found)} />
            </div>
            <div class="columns">
              <Card title="Slots" name="slots"><Table name="slots" columns={columns} rows={found.allocatedSlots.map((slot, index) => ({ ...slot, index }))} id={(slot) => String(slot.index)} empty="All slots are free." /></Card>
              <Card title="Memory, as configured" name="memory">
                {total === 0 && <p class="empty">This TaskManager tells no memory model: its slots are processes that take what they need.</p>}
                {total > 0 && (
                  <>
                    <span class="track tall memory">{memory.map(([title, size], index) => <span key={title} class={`fill memory-${index % 8}`} style={{ width: `${(100 * size) / total}%` }} title={`${title}: ${bytes(size)}`} />)}</span>
                    <Facts of={[...memory.map(([title, size]) => [title, bytes(size)] as [string, string]), ["all together", bytes(total)]]} />
                  </>
                )}
              </Card>
            </div>
          </>
        );
      }}
    </Answer>
  );
}

export function Metrics({ base }: { base: string }) {
  const ids = usePolled<{ id: string }[]>(`${base}/metrics`, null);
  return <Card title="Metrics"><Answer of={ids} what="metrics of this process">{(found) => <Values path={`${base}/metrics`} ids={found.map(({ id }) => id)} />}</Answer></Card>;
}

const AT_ONCE = 120;

function Values({ path, ids }: { path: string; ids: string[] }) {
  const of = usePolled<{ id: string; value?: string }[]>(ids.length ? `${path}?get=${encodeURIComponent(ids.slice(0, AT_ONCE).join(","))}` : null);
  const columns: Column<{ id: string; value?: string }>[] = [
    { key: "id", title: "Metric", value: (row) => row.id, wide: 3, show: (row) => <code>{row.id}</code> },
    { key: "value", title: "Value", value: (row) => (row.value !== undefined && row.value !== "" && isNumber(Number(row.value)) ? Number(row.value) : (row.value ?? "")), wide: 2, number: true, show: (row) => <span title={row.value}>{row.value}</span> },
  ];
  if (!ids.length) return <p class="empty">There are none.</p>;
  return <Answer of={of} what="metrics">{(found) => <Table name="values" columns={columns} rows={found} id={(row) => row.id} sort="id" filter height={640} />}</Answer>;
}
