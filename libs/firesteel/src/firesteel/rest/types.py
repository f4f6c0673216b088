"""Bodies of requests and answers of the REST API, with Flink's names. Views return them; the reference is made of them.

Times are milliseconds since 1970; -1 = not yet. Durations are in ms, sizes in bytes unless it says otherwise.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, NotRequired, TypedDict

from msgspec import Meta

from firesteel.rest.load_types import EventTime, WatermarkHold, WorstSubtasks
from firesteel.rest.load_types import Id as Id
from firesteel.rest.load_types import Number as Number
from firesteel.rest.program_types import JobProgram, RestoreChoice

JobState = Literal[
    "INITIALIZING", "CREATED", "RUNNING", "FAILING", "FAILED", "CANCELLING", "CANCELED", "FINISHED", "RESTARTING",
    "SUSPENDED", "RECONCILING",
]  # fmt: skip
TaskState = Literal[
    "CREATED", "SCHEDULED", "DEPLOYING", "INITIALIZING", "RUNNING", "FINISHED", "CANCELING", "CANCELED", "FAILED",
    "RECONCILING",
]  # fmt: skip
ApplicationState = Literal["CREATED", "RUNNING", "FAILING", "FAILED", "CANCELING", "CANCELED", "FINISHED"]
TaskCounts = dict[TaskState, int]
SchedulerType = Literal["Default", "Adaptive", "AdaptiveBatch"]
EndStatus = Literal["SUCCEEDED", "FAILED", "CANCELED", "UNKNOWN"]
ProfileStatus = Literal["RUNNING", "FINISHED", "FAILED"]
AggregateName = Literal["min", "max", "avg", "sum", "skew"]
Text: Final = "text/plain"

# -- everywhere


class EmptyResponse(TypedDict):
    pass


class Errors(TypedDict):
    errors: list[str]


TriggerResponse = TypedDict("TriggerResponse", {"request-id": Id})


class QueueStatus(TypedDict):
    id: Literal["IN_PROGRESS", "COMPLETED"]


FailureCause = TypedDict("FailureCause", {"class": str, "stack-trace": str, "serialized-throwable": NotRequired[str]})
DisposalResult = TypedDict("DisposalResult", {"failure-cause": NotRequired[FailureCause]})


class Disposal(TypedDict):
    status: QueueStatus
    operation: DisposalResult | None


class MetricValue(TypedDict):
    id: str
    value: NotRequired[str]


class MetricHistoryInfo(TypedDict):
    interval: int
    size: int
    truncated: bool
    times: list[int]
    series: dict[str, list[float | None]]


class AggregatedMetric(TypedDict):
    id: str
    min: NotRequired[Number]
    max: NotRequired[Number]
    avg: NotRequired[Number]
    sum: NotRequired[Number]
    skew: NotRequired[Number]


class Setting(TypedDict):
    key: str
    value: str


class LogFile(TypedDict):
    name: str
    size: int
    mtime: int


class LogListInfo(TypedDict):
    logs: list[LogFile]


class JobLogRecord(TypedDict):
    time: int
    level: str
    logger: str
    message: str
    source: str
    task: NotRequired[str]


class LogSourceInfo(TypedDict):
    source: str
    error: NotRequired[str]


JobLogInfo = TypedDict(
    "JobLogInfo", {"records": list[JobLogRecord], "complete-to": int, "now": int, "sources": list[LogSourceInfo]}
)


class LogUrl(TypedDict):
    url: str


class ThreadInfo(TypedDict):
    threadName: str
    stringifiedThreadInfo: str


class ThreadDumpInfo(TypedDict):
    threadInfos: list[ThreadInfo]


class Jvm(TypedDict):
    version: str
    arch: str
    options: list[str]


class Environment(TypedDict):
    jvm: Jvm
    classpath: list[str]


class Profile(TypedDict):
    status: ProfileStatus
    mode: str
    profilingMode: str
    triggerTime: int
    finishedTime: int | None
    duration: int
    message: str | None
    outputFile: str | None


class ProfileList(TypedDict):
    profilingList: list[Profile]


class ProfileRequest(TypedDict):
    mode: str
    duration: int


# -- cluster

Features = TypedDict("Features", {"web-submit": bool, "web-cancel": bool, "web-rescale": bool, "web-history": bool})


class GrantedAccess(TypedDict):
    change: bool
    cancel: bool


DashboardConfiguration = TypedDict(
    "DashboardConfiguration",
    {
        "refresh-interval": int,
        "timezone-name": str,
        "timezone-offset": int,
        "flink-version": str,
        "flink-revision": str,
        "features": Features,
        "firesteel-version": str,
        "firesteel-access": NotRequired[GrantedAccess],
    },
)
JobCounts = TypedDict(
    "JobCounts", {"jobs-running": int, "jobs-finished": int, "jobs-cancelled": int, "jobs-failed": int}
)
ClusterOverview = TypedDict(
    "ClusterOverview",
    {
        "taskmanagers": int,
        "slots-total": int,
        "slots-available": int,
        "jobs-running": int,
        "jobs-finished": int,
        "jobs-cancelled": int,
        "jobs-failed": int,
        "flink-version": str,
        "flink-commit": str,
        "firesteel-version": str,
    },
)


class DataSet(TypedDict):
    id: Id
    isComplete: bool


class DataSetList(TypedDict):
    dataSets: list[DataSet]


# -- jobs


class JobTasks(TypedDict):
    total: int
    created: int
    scheduled: int
    deploying: int
    initializing: int
    running: int
    finished: int
    canceling: int
    canceled: int
    failed: int
    reconciling: int


class JobFinding(TypedDict):
    kind: Literal["bad", "warn", "good"]
    text: str
    vertex: NotRequired[Id]
    subtask: NotRequired[int]
    page: NotRequired[Literal["checkpoints", "exceptions"]]


JobHealth = TypedDict(
    "JobHealth",
    {
        "finding": JobFinding | None,
        "restarts-in-last-hour": NotRequired[int],
        "last-failure": NotRequired[str],
        "last-failure-timestamp": NotRequired[int],
        "last-checkpoint-timestamp": NotRequired[int],
        "pending-records": NotRequired[int],
        "records-in-per-second": NotRequired[float],
        "records-out-per-second": NotRequired[float],
        "records-in-history": NotRequired[list[float | None]],
    },
)
JobRow = TypedDict(
    "JobRow",
    {
        "jid": Id,
        "name": str,
        "jobType": Literal["BATCH", "STREAMING"],
        "schedulerType": SchedulerType,
        "start-time": int,
        "end-time": int,
        "duration": int,
        "state": JobState,
        "last-modification": int,
        "tasks": JobTasks,
        "pending-operators": int,
        "firesteel-progress": NotRequired[str],
        "firesteel-health": NotRequired[JobHealth],
    },
)


class JobsOverview(TypedDict):
    jobs: list[JobRow]


class JobIdStatus(TypedDict):
    id: Id
    status: JobState


class Jobs(TypedDict):
    jobs: list[JobIdStatus]


class Submitted(TypedDict):
    jobUrl: str


class JobStatusInfo(TypedDict):
    status: JobState


IoMetrics = TypedDict(
    "IoMetrics",
    {
        "read-bytes": int,
        "read-bytes-complete": bool,
        "write-bytes": int,
        "write-bytes-complete": bool,
        "read-records": int,
        "read-records-complete": bool,
        "write-records": int,
        "write-records-complete": bool,
        "accumulated-backpressured-time": int,
        "accumulated-idle-time": int,
        "accumulated-busy-time": Number,
    },
)


StageInfo = TypedDict(
    "StageInfo",
    {
        "tasks-done": int,
        "tasks": int,
        "percent": NotRequired[float],
        "left-ms": NotRequired[int],
        "spilled-bytes": int,
        "shuffled-bytes": int,
    },
)
Vertex = TypedDict(
    "Vertex",
    {
        "id": Id,
        "slotSharingGroupId": Id,
        "name": str,
        "maxParallelism": int,
        "parallelism": int,
        "status": TaskState,
        "start-time": int,
        "end-time": int,
        "duration": int,
        "tasks": TaskCounts,
        "metrics": IoMetrics,
        "firesteel-worst": NotRequired[WorstSubtasks],
        "firesteel-event-time": NotRequired[EventTime],
        "firesteel-tasks": NotRequired[int],
        "firesteel-spark": NotRequired[str],
        "firesteel-stage": NotRequired[StageInfo],
        "firesteel-slot-sharing-group": NotRequired[str],
    },
)


class PlanInput(TypedDict):
    num: int
    id: Id
    ship_strategy: str
    exchange: str
    columns: NotRequired[list[str]]
    local_strategy: NotRequired[str]
    caching: NotRequired[str]


class ParallelismSizing(TypedDict):
    least: int
    most: int
    volume: int


PlanNode = TypedDict(
    "PlanNode",
    {
        "id": Id,
        "parallelism": int,
        "operator": str,
        "operator_strategy": str,
        "description": str,
        "inputs": NotRequired[list[PlanInput]],
        "optimizer_properties": dict[str, Any],
        "guarantee": NotRequired[str],
        "firesteel-parallelism": NotRequired[ParallelismSizing],
    },
)


class Plan(TypedDict):
    jid: Id
    name: str
    type: str
    nodes: list[PlanNode]


class JobPlan(TypedDict):
    plan: Plan


JobDetails = TypedDict(
    "JobDetails",
    {
        "jid": Id,
        "application-id": Id,
        "name": str,
        "isStoppable": bool,
        "state": JobState,
        "job-type": Literal["BATCH", "STREAMING"],
        "schedulerType": SchedulerType,
        "start-time": int,
        "end-time": int,
        "duration": int,
        "maxParallelism": int,
        "now": int,
        "timestamps": dict[JobState, int],
        "vertices": list[Vertex],
        "status-counts": TaskCounts,
        "plan": Plan,
        "pending-operators": int,
        "firesteel-progress": NotRequired[str],
        "firesteel-waiting-for": NotRequired[str],
        "firesteel-checkpoint-warning": NotRequired[str],
        "firesteel-watermark-holds": NotRequired[list[WatermarkHold]],
        "firesteel-restarts": NotRequired[int],
        "firesteel-last-failure": NotRequired[str],
        "firesteel-has-latencies": NotRequired[bool],
        "firesteel-program": NotRequired[JobProgram],
        "firesteel-restore-choices": NotRequired[list[RestoreChoice]],
        "firesteel-findings": list[JobFinding],
    },
)
ExecutionConfig = TypedDict(
    "ExecutionConfig",
    {"restart-strategy": str, "job-parallelism": int, "object-reuse-mode": bool, "user-config": dict[str, str]},
)


class EffectiveSetting(TypedDict):
    key: str
    value: str
    origin: str


class VertexConfig(TypedDict):
    id: Id
    name: str
    parallelism: int
    maxParallelism: int
    slotSharingGroupId: str


JobConfig = TypedDict(
    "JobConfig",
    {
        "jid": Id,
        "name": str,
        "execution-config": ExecutionConfig,
        "firesteel-config": list[EffectiveSetting],
        "firesteel-vertices": list[VertexConfig],
    },
)


class ExceptionInfo(TypedDict):
    exceptionName: str
    stacktrace: str
    timestamp: int
    failureLabels: dict[str, str]
    taskName: NotRequired[str | None]
    endpoint: NotRequired[str | None]
    taskManagerId: NotRequired[str | None]
    concurrentExceptions: NotRequired[list[ExceptionInfo]]


class FailureRepeatsInfo(TypedDict):
    number: int
    count: int
    first_ms: int
    last_ms: int


RootExceptionInfo = TypedDict(
    "RootExceptionInfo",
    {
        "exceptionName": str,
        "stacktrace": str,
        "timestamp": int,
        "failureLabels": dict[str, str],
        "taskName": NotRequired[str | None],
        "endpoint": NotRequired[str | None],
        "taskManagerId": NotRequired[str | None],
        "concurrentExceptions": list[ExceptionInfo],
        "firesteel-answer": str,
        "firesteel-repeats": NotRequired[FailureRepeatsInfo],
    },
)


class ExceptionHistory(TypedDict):
    entries: list[RootExceptionInfo]
    truncated: bool


class TaskException(TypedDict):
    exception: str
    task: str | None
    location: str | None
    timestamp: int


JobExceptions = TypedDict(
    "JobExceptions",
    {
        "exceptionHistory": ExceptionHistory,
        "all-exceptions": list[TaskException],
        "truncated": bool,
        "root-exception": NotRequired[str],
        "timestamp": NotRequired[int],
    },
)


JobResult = TypedDict(
    "JobResult",
    {
        "id": Id,
        "name": str,
        "application-status": EndStatus,
        "accumulator-results": dict[str, str],
        "net-runtime": int,
        "application-id": Id,
        "start-time": int,
        "end-time": int,
        "failure-cause": NotRequired[FailureCause],
        "firesteel-failure": NotRequired[dict[str, Any]],
    },
)
ExecutionResult = TypedDict("ExecutionResult", {"status": QueueStatus, "job-execution-result": NotRequired[JobResult]})


class ClientHeartbeat(TypedDict):
    expiredTimestamp: float | int


class Accumulator(TypedDict):
    name: str
    type: str
    value: str


JobAccumulators = TypedDict(
    "JobAccumulators",
    {
        "job-accumulators": list[Any],
        "user-task-accumulators": list[Accumulator],
        "serialized-user-task-accumulators": dict[str, str],
    },
)


class CoordinationRequest(TypedDict):
    serializedCoordinationRequest: str


class CoordinationResult(TypedDict):
    serializedCoordinationResult: str


# -- applications

ApplicationRow = TypedDict(
    "ApplicationRow",
    {
        "id": Id,
        "name": str,
        "start-time": int,
        "end-time": int,
        "duration": int,
        "status": ApplicationState,
        "jobs": dict[JobState, int],
    },
)


class ApplicationsOverview(TypedDict):
    applications: list[ApplicationRow]


ApplicationDetails = TypedDict(
    "ApplicationDetails",
    {
        "id": Id,
        "name": str,
        "status": ApplicationState,
        "start-time": int,
        "end-time": int,
        "duration": int,
        "timestamps": dict[ApplicationState, int],
        "jobs": list[JobRow],
    },
)


class ApplicationExceptionInfo(TypedDict):
    exceptionName: str
    stacktrace: str
    timestamp: int
    jobId: NotRequired[Id | None]


class ApplicationHistory(TypedDict):
    entries: list[ApplicationExceptionInfo]


class ApplicationExceptions(TypedDict):
    exceptionHistory: ApplicationHistory


# -- rescaling


class Summary(TypedDict):
    min: int
    max: int
    avg: int
    p50: Number
    p90: Number
    p95: Number
    p99: Number
    p999: Number


class ParallelismBounds(TypedDict):
    lowerBound: Annotated[int, Meta(ge=1)]
    upperBound: Annotated[int, Meta(ge=1)]


class VertexRequirements(TypedDict):
    parallelism: ParallelismBounds


Requirements = dict[Id, VertexRequirements]


class RescaleCounts(TypedDict):
    ignored: int
    inProgress: int
    completed: int
    failed: int


class RescaledVertex(TypedDict):
    jobVertexId: Id
    jobVertexName: str
    slotSharingGroupId: str
    slotSharingGroupName: str
    desiredParallelism: int
    sufficientParallelism: int
    preRescaleParallelism: int | None
    postRescaleParallelism: int | None


class RescaledSlots(TypedDict):
    slotSharingGroupId: str
    slotSharingGroupName: str
    requestResourceProfile: EmptyResponse
    desiredSlots: int
    minimalRequiredSlots: int
    preRescaleSlots: int | None
    postRescaleSlots: int | None
    acquiredResourceProfile: EmptyResponse


class SchedulerState(TypedDict):
    state: str
    enterTimestampInMillis: int
    leaveTimestampInMillis: int | None
    durationInMillis: int | None
    stringifiedException: str | None


class Rescale(TypedDict):
    rescaleUuid: Id
    resourceRequirementsUuid: Id
    rescaleAttemptId: int
    vertices: dict[Id, RescaledVertex]
    slots: dict[str, RescaledSlots]
    schedulerStates: list[SchedulerState]
    startTimestampInMillis: int
    endTimestampInMillis: int | None
    terminalState: str | None
    triggerCause: str
    terminatedReason: str | None


class LatestRescales(TypedDict):
    completed: Rescale | None
    failed: Rescale | None
    ignored: Rescale | None


class RescalesOverview(TypedDict):
    rescalesCounts: RescaleCounts
    latest: LatestRescales


class RescalesSummary(TypedDict):
    rescalesCounts: RescaleCounts
    rescalesDurationStatsInMillis: Summary
    completedRescalesDurationStatsInMillis: Summary
    ignoredRescalesDurationStatsInMillis: Summary
    failedRescalesDurationStatsInMillis: Summary


class RescalesConfig(TypedDict):
    rescaleHistoryMax: int
    schedulerExecutionMode: str | None
    submissionResourceWaitTimeoutInMillis: int
    submissionResourceStabilizationTimeoutInMillis: int
    slotIdleTimeoutInMillis: int
    executingCooldownTimeoutInMillis: int
    executingResourceStabilizationTimeoutInMillis: int
    maximumDelayForTriggeringRescaleInMillis: int
    rescaleOnFailedCheckpointCount: int


# -- vertices and subtasks


class Statistics(TypedDict):
    min: Number
    max: Number
    avg: Number
    sum: Number
    median: Number
    p25: Number
    p75: Number
    p95: Number


class StatusDuration(TypedDict):
    CREATED: int
    SCHEDULED: int
    DEPLOYING: int
    INITIALIZING: int
    RUNNING: int


Aggregated = TypedDict("Aggregated", {"metrics": dict[str, Statistics], "status-duration": dict[str, Statistics]})
Subtask = TypedDict(
    "Subtask",
    {
        "subtask": int,
        "status": TaskState,
        "attempt": int,
        "endpoint": str,
        "start-time": int,
        "start_time": int,
        "end-time": int,
        "duration": int,
        "metrics": IoMetrics,
        "taskmanager-id": str,
        "status-duration": StatusDuration,
        "firesteel-slot": NotRequired[int],
        "firesteel-now": NotRequired[dict[str, float]],
        "other-concurrent-attempts": NotRequired[list[Any] | None],
    },
)


class VertexDetails(TypedDict):
    id: Id
    name: str
    parallelism: int
    maxParallelism: int
    now: int
    subtasks: list[Subtask]
    aggregated: Aggregated


class SubtaskTime(TypedDict):
    subtask: int
    endpoint: str
    duration: int
    timestamps: dict[TaskState, int]


class SubtaskTimes(TypedDict):
    id: Id
    name: str
    now: int
    subtasks: list[SubtaskTime]


VertexTaskManager = TypedDict(
    "VertexTaskManager",
    {
        "endpoint": str,
        "taskmanager-id": str,
        "status": TaskState,
        "start-time": int,
        "end-time": int,
        "duration": int,
        "metrics": IoMetrics,
        "status-counts": TaskCounts,
        "aggregated": Aggregated,
    },
)


class VertexTaskManagers(TypedDict):
    id: Id
    name: str
    now: int
    taskmanagers: list[VertexTaskManager]


VertexAccumulators = TypedDict("VertexAccumulators", {"id": Id, "user-accumulators": list[Accumulator]})
SubtaskAccumulators = TypedDict(
    "SubtaskAccumulators",
    {"subtask": int, "attempt": int, "endpoint": str, "user-accumulators": list[Accumulator]},
)


class SubtasksAccumulators(TypedDict):
    id: Id
    parallelism: int
    subtasks: list[SubtaskAccumulators]


AttemptAccumulators = TypedDict(
    "AttemptAccumulators", {"subtask": int, "attempt": int, "id": str, "user-accumulators": list[Accumulator]}
)


class FlameGraph(TypedDict):
    endTimestamp: int
    data: dict[str, Any] | None


# -- TaskManagers


class Resource(TypedDict):
    cpuCores: float | int
    taskHeapMemory: int
    taskOffHeapMemory: int
    managedMemory: int
    networkMemory: int
    extendedResources: dict[str, Any]


class Hardware(TypedDict):
    cpuCores: int
    physicalMemory: int
    freeMemory: int
    managedMemory: int


class MemoryConfiguration(TypedDict):
    frameworkHeap: int | None
    taskHeap: int | None
    frameworkOffHeap: int | None
    taskOffHeap: int | None
    networkMemory: int | None
    managedMemory: int | None
    jvmMetaspace: int | None
    jvmOverhead: int | None
    totalFlinkMemory: int | None
    totalProcessMemory: int | None


class TaskManager(TypedDict):
    id: str
    path: str
    dataPort: int
    jmxPort: int
    timeSinceLastHeartbeat: int
    slotsNumber: int
    freeSlots: int
    assignedTasks: int
    totalResource: Resource
    freeResource: Resource
    hardware: Hardware
    memoryConfiguration: MemoryConfiguration


class TaskManagers(TypedDict):
    taskmanagers: list[TaskManager]


AllocatedSlot = TypedDict(
    "AllocatedSlot",
    {
        "jobId": Id,
        "allocationId": NotRequired[str],
        "resource": Resource,
        "assignedTasks": int,
        "firesteel-slot": NotRequired[int],
        "firesteel-memory": NotRequired[int],
        "firesteel-cpu": NotRequired[float],
    },
)


class GarbageCollector(TypedDict):
    name: str
    count: int
    time: int


class TaskManagerMetrics(TypedDict):
    heapUsed: int
    heapCommitted: int
    heapMax: int
    nonHeapUsed: int
    nonHeapCommitted: int
    nonHeapMax: int
    directCount: int
    directUsed: int
    directMax: int
    mappedCount: int
    mappedUsed: int
    mappedMax: int
    nettyShuffleMemorySegmentsAvailable: int
    nettyShuffleMemorySegmentsUsed: int
    nettyShuffleMemorySegmentsTotal: int
    nettyShuffleMemoryAvailable: int
    nettyShuffleMemoryUsed: int
    nettyShuffleMemoryTotal: int
    garbageCollectors: list[GarbageCollector]


class TaskManagerDetails(TaskManager):
    """A TaskManager, with its slots and its metrics."""

    allocatedSlots: list[AllocatedSlot]
    metrics: TaskManagerMetrics


# -- programs


class ProgramEntry(TypedDict):
    name: str
    description: str | None


class Program(TypedDict):
    id: str
    name: str
    uploaded: int
    entry: list[ProgramEntry]


class Programs(TypedDict):
    address: str
    files: list[Program]


class Uploaded(TypedDict):
    filename: str
    status: Literal["success"]


class PlanRequest(TypedDict):
    entryClass: NotRequired[str | None]
    programArgs: NotRequired[str | None]
    programArgsList: NotRequired[list[str] | None]
    parallelism: NotRequired[Annotated[int, Meta(ge=1)] | None]
    jobId: NotRequired[str | None]
    flinkConfiguration: NotRequired[dict[str, str] | None]


class RunRequest(PlanRequest):
    """A request to run a program, with what its jobs go on from."""

    allowNonRestoredState: NotRequired[bool | None]
    savepointPath: NotRequired[str | None]
    restoreMode: NotRequired[Literal["CLAIM", "NO_CLAIM", "LEGACY"] | None]
    claimMode: NotRequired[Literal["CLAIM", "NO_CLAIM", "LEGACY"] | None]
    applicationId: NotRequired[str | None]


class RunAnswer(TypedDict):
    jobid: Id
    applicationId: Id


class RunApplicationAnswer(TypedDict):
    applicationid: Id


# -- levels of logs


class LogLevel(TypedDict):
    logger: Annotated[str, Meta(max_length=500)]
    level: str


class ProcessLogLevels(TypedDict):
    process: str
    levels: NotRequired[dict[str, str]]
    error: NotRequired[str]


class LogLevelsInfo(TypedDict):
    processes: list[ProcessLogLevels]
