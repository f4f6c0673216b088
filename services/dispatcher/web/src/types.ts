// Answers of the REST API, as far as they are used.
export interface Io {
  "read-bytes": number;
  "write-bytes": number;
  "read-records": number;
  "write-records": number;
  "accumulated-backpressured-time"?: number;
  "accumulated-idle-time"?: number;
  "accumulated-busy-time"?: number;
}
export interface One {
  value: number;
  subtask: number;
}
/** Of a vertex whose tasks run: values per second, those of time in ms. */
export interface Worst {
  busy?: One;
  backPressured?: One;
  watermark?: One;
  inPool?: One; // how full channels are, 0 to 1
  outPool?: One;
  skew?: number;
  numRecordsInPerSecond?: number;
  numRecordsOutPerSecond?: number;
  numBytesInPerSecond?: number;
  numBytesOutPerSecond?: number;
  busyTimeMsPerSecond?: number;
  backPressuredTimeMsPerSecond?: number;
}
/** The most frequent keys of what a vertex reads, about. */
export interface HotKeys {
  parallelism: number;
  records: number;
  lost: number; // by so many records a count may be too small
  keys: { key: string; share: number; records: number; subtask: number }[];
  problems: string[];
}
/** An operator of a chain, over all subtasks of its vertex. */
export interface OperatorRow {
  name: string;
  "records-in": number;
  "records-out": number;
  "records-in-per-second": number;
  "records-out-per-second": number;
  "own-time-ms": number;
  "own-time-ms-per-second": number;
  busiest: One;
  "late-records"?: number;
}
export interface VertexOperators {
  "busy-time-ms-per-second": number;
  operators: OperatorRow[];
}
/** Event time at one input of a subtask; input 0: the watermarks that it makes itself. */
export interface InputProgress {
  input: number;
  members: number; // channels or splits
  idle: number;
  ended: number;
  all_idle?: boolean;
  watermark?: number; // of the slowest one
  ahead?: number; // of the fastest one
  still_ms?: number;
  source?: string; // vertex in front, and its subtask
  subtask?: number;
  split?: string;
  silent_ms?: number; // without records; -1: there was none
  idleness?: boolean;
}
export interface EventTime {
  subtask?: number;
  inputs?: InputProgress[];
  idle?: number[];
  "idle-count"?: number;
}
export interface WatermarkHold {
  vertex: string;
  subtask: number;
  cause: string;
  causeSubtask: number;
  text: string;
}
/** How far a stage of a batch job is. */
export interface Stage {
  "tasks-done": number;
  tasks: number; // their number may depend on the input
  percent?: number; // missing where nobody can know
  "left-ms"?: number;
  "spilled-bytes": number;
  "shuffled-bytes": number;
}
export interface Vertex {
  id: string;
  name: string;
  parallelism: number;
  maxParallelism: number;
  status: string;
  "start-time": number;
  "end-time": number;
  duration: number;
  tasks: Record<string, number>;
  metrics: Io;
  "firesteel-worst"?: Worst;
  "firesteel-event-time"?: EventTime;
  "firesteel-tasks"?: number; // batch mode: so many subtasks have something to do
  "firesteel-stage"?: Stage; // batch mode
  "firesteel-spark"?: string; // batch mode: Spark's own page about its stage
}
export interface PlanNode {
  id: string;
  parallelism: number;
  description: string;
  inputs?: { id: string; ship_strategy?: string }[];
}
export interface JobDetails {
  jid: string;
  name: string;
  state: string;
  "job-type"?: string; // BATCH or STREAMING
  schedulerType?: string; // Adaptive: the job takes the slots that there are
  "start-time": number;
  "end-time": number;
  duration: number;
  now: number;
  timestamps: Record<string, number>;
  vertices: Vertex[];
  plan: { nodes: PlanNode[] };
  "firesteel-progress"?: string;
  "firesteel-waiting-for"?: string;
  "firesteel-checkpoint-warning"?: string;
  "firesteel-watermark-holds"?: WatermarkHold[];
  "firesteel-findings"?: Finding[];
  "firesteel-has-latencies"?: boolean;
  "firesteel-program"?: { id: string; name: string; entry: string | null; arguments: string[] };
  "firesteel-restore-choices"?: { kind: string; id: number; path: string }[];
}
/** What is wrong with a job, in the Dispatcher's words. */
export interface Finding {
  kind: "bad" | "warn" | "good";
  text: string;
  vertex?: string;
  subtask?: number;
  page?: string; // of the job, where more of it stands
}
/** Of a job that has ended: its finding and its last failure only. */
export interface Health {
  finding: Finding | null;
  "restarts-in-last-hour"?: number;
  "last-failure"?: string;
  "last-failure-timestamp"?: number;
  "last-checkpoint-timestamp"?: number;
  "pending-records"?: number;
  "records-in-per-second"?: number;
  "records-out-per-second"?: number;
  "records-in-history"?: (number | null)[];
}
export interface JobRow {
  jid: string;
  name: string;
  state: string;
  "start-time": number;
  "end-time": number;
  duration: number;
  tasks: Record<string, number>;
  jobType?: string;
  "firesteel-progress"?: string;
  "firesteel-health"?: Health;
}
export interface Overview {
  taskmanagers: number;
  "slots-total": number;
  "slots-available": number;
  "jobs-running": number;
  "jobs-finished": number;
  "jobs-cancelled": number;
  "jobs-failed": number;
}
export interface Subtask {
  subtask: number;
  status: string;
  attempt: number;
  endpoint: string;
  "taskmanager-id": string;
  "start-time": number;
  "end-time": number;
  duration: number;
  metrics: Io;
  "status-duration"?: Record<string, number>;
  "firesteel-slot"?: number;
  "firesteel-now"?: Record<string, number>;
}
export interface VertexDetails {
  id: string;
  name: string;
  parallelism: number;
  maxParallelism: number;
  now: number;
  subtasks: Subtask[];
}
export interface ExceptionEntry {
  exceptionName: string;
  stacktrace: string;
  timestamp: number;
  failureLabels?: Record<string, string>;
  taskName?: string;
  endpoint?: string;
  taskManagerId?: string;
  concurrentExceptions?: ExceptionEntry[];
  "firesteel-repeats"?: { number: number; count: number; first_ms: number; last_ms: number };
}
export interface Exceptions {
  exceptionHistory: { entries: ExceptionEntry[]; truncated: boolean };
}
export interface Summary {
  min: number;
  max: number;
  avg: number;
  p50?: number | string;
  p95?: number | string;
  p99?: number | string;
}
export interface Checkpoint {
  id: number;
  status: string;
  is_savepoint: boolean;
  trigger_timestamp: number;
  latest_ack_timestamp: number;
  state_size: number;
  checkpointed_size: number;
  end_to_end_duration: number;
  processed_data: number;
  persisted_data: number;
  num_subtasks: number;
  num_acknowledged_subtasks: number;
  checkpoint_type: string;
  external_path?: string;
  discarded?: boolean;
  failure_message?: string;
  failure_timestamp?: number;
  tasks: Record<string, CheckpointTask>;
}
export interface CheckpointTask {
  status: string;
  latest_ack_timestamp: number;
  state_size: number;
  checkpointed_size: number;
  end_to_end_duration: number;
  num_subtasks: number;
  num_acknowledged_subtasks: number;
  processed_data: number;
  persisted_data: number;
}
export interface Checkpoints {
  counts: Record<"restored" | "total" | "in_progress" | "completed" | "failed", number>;
  summary: Record<string, Summary>;
  latest: {
    completed: Checkpoint | null;
    savepoint: Checkpoint | null;
    failed: Checkpoint | null;
    restored: { id: number; restore_timestamp: number; external_path: string; is_savepoint: boolean } | null;
  };
  history: Checkpoint[];
}
export interface CheckpointSubtask {
  index: number;
  status: string;
  ack_timestamp?: number;
  end_to_end_duration?: number;
  state_size?: number;
  checkpointed_size?: number;
  checkpoint?: { sync: number; async: number };
  alignment?: { processed: number; persisted: number; duration: number };
  start_delay?: number;
  unaligned_checkpoint?: boolean;
}
export interface RescaledVertex {
  jobVertexId: string;
  jobVertexName: string;
  slotSharingGroupName: string;
  desiredParallelism: number;
  sufficientParallelism: number;
  preRescaleParallelism: number | null;
  postRescaleParallelism: number | null;
}
export interface SchedulerState {
  state: string;
  enterTimestampInMillis: number;
  leaveTimestampInMillis: number | null;
  durationInMillis: number | null;
  stringifiedException: string | null;
}
export interface Rescale {
  rescaleUuid: string;
  rescaleAttemptId: number;
  vertices: Record<string, RescaledVertex>;
  slots: Record<string, { preRescaleSlots: number | null; postRescaleSlots: number | null }>;
  schedulerStates: SchedulerState[];
  startTimestampInMillis: number;
  endTimestampInMillis: number | null;
  terminalState: string | null; // none: it is under way
  triggerCause: string;
  terminatedReason: string | null;
}
export type RescaleCounts = Record<"ignored" | "inProgress" | "completed" | "failed", number>;
export interface Rescales {
  rescalesCounts: RescaleCounts;
  latest: Record<"completed" | "failed" | "ignored", Rescale | null>;
}
export interface History {
  interval: number;
  size: number;
  truncated: boolean;
  times: number[];
  series: Record<string, (number | null)[]>;
}
export type MetricList = { id: string; value?: string }[];
export interface StateCheckpoint {
  id: number;
  trigger_timestamp: number;
  is_savepoint: boolean;
  external_path: string;
  discarded: boolean;
  size: number;
}
export interface ComparedState {
  name: string;
  kind: string;
  entries: number | null;
  size: number | null;
  "entries-about": boolean;
  "size-about": boolean;
  "base-entries": number | null;
  "base-size": number | null;
  change: "new" | "gone" | "grown" | "shrunk" | "same" | null;
  sizes: (number | null)[];
}
export interface ComparedOperator {
  id: string;
  uid: string | null;
  name: string;
  states: ComparedState[];
}
export interface StateSizes {
  backend: string;
  checkpoint: StateCheckpoint | null;
  base: StateCheckpoint | null;
  checkpoints: StateCheckpoint[];
  operators: ComparedOperator[];
}
export interface KafkaPartition {
  topic: string;
  partition: number;
  subtask: number;
  position: number | null;
  lag: number | null;
  committed: number | null;
  checkpointed: number | null;
}
export interface KafkaSource {
  "vertex-id": string;
  name: string;
  operator: string;
  parallelism: number;
  lag: number | null;
  partitions: KafkaPartition[];
}
export interface KafkaSources {
  now: number;
  checkpoint: number | null;
  sources: KafkaSource[];
}

/** Something that has happened to a job. */
export interface JobEvent {
  type: string;
  level: string;
  text: string;
  by: string;
  detail: string;
  timestamp: number;
  last: number;
  count: number;
}

export interface JobEvents {
  now: number;
  events: JobEvent[];
  dropped: number;
}

/** How long latency markers took from a source to a vertex, in ms. */
export interface LatencyPath {
  "source-id": string;
  source: string;
  "vertex-id": string;
  vertex: string;
  "is-end": boolean;
  markers: number;
  p50: number;
  p95: number;
  p99: number;
  max: number;
  histogram: { "up-to": number; count: number }[];
}

export interface Latencies {
  now: number;
  paths: LatencyPath[];
}
