"""The payloads of all calls between services and of their answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from typing_extensions import override

from firesteel.core.errors import ProtocolError
from firesteel.protocol.checkpoint_messages import AcknowledgeCheckpoint as AcknowledgeCheckpoint
from firesteel.protocol.checkpoint_messages import AcknowledgeCheckpoints as AcknowledgeCheckpoints
from firesteel.protocol.checkpoint_messages import DeclineCheckpoint as DeclineCheckpoint
from firesteel.protocol.checkpoint_messages import NotifyCheckpoint as NotifyCheckpoint
from firesteel.protocol.checkpoint_messages import TriggerCheckpoint as TriggerCheckpoint
from firesteel.protocol.checkpoint_messages import TriggerJobCheckpoint as TriggerJobCheckpoint
from firesteel.protocol.checkpoint_messages import TriggerJobSavepoint as TriggerJobSavepoint
from firesteel.protocol.checkpoint_messages import UnknownSlots as UnknownSlots
from firesteel.protocol.message import Empty as Empty
from firesteel.protocol.message import Message
from firesteel.protocol.registration_messages import DeclareRequirements as DeclareRequirements
from firesteel.protocol.registration_messages import DisconnectJobMaster as DisconnectJobMaster
from firesteel.protocol.registration_messages import JobMasterHeartbeat as JobMasterHeartbeat
from firesteel.protocol.registration_messages import JobMasterRegistered as JobMasterRegistered
from firesteel.protocol.registration_messages import RegisterJobMaster as RegisterJobMaster
from firesteel.protocol.registration_messages import Requirement as Requirement
from firesteel.protocol.split_messages import AssignSplits as AssignSplits
from firesteel.protocol.split_messages import RequestSplits as RequestSplits
from firesteel.protocol.split_messages import Splits as Splits
from firesteel.protocol.stage_messages import RunStages as RunStages
from firesteel.protocol.stage_messages import StageRunLook as StageRunLook
from firesteel.protocol.stage_messages import StageRunRef as StageRunRef
from firesteel.protocol.stage_messages import StageRunResults as StageRunResults

DEFAULT_PROFILE = "default"
"""The only resource profile so far: the share of a slot in its TaskManager."""


# ResourceManager


@dataclass(frozen=True)
class RegisterTaskManager(Message):
    """A TaskManager presents itself; again after every lost connection.

    Attributes:
        hardware: cpuCores, physicalMemory, freeMemory, managedMemory (bytes).
        slot_report: its slots as they are now; a ResourceManager that was started anew learns from it who runs what.
        versions: of ``firesteel``, ``python`` and ``pyspark``, which have to be the same on all nodes.
        executor_id: Spark's name of its newest executor, if that runs; empty if it has none. A ResourceManager that was
            started anew goes on with it.
    """

    taskmanager_id: str
    address: str
    slots: int
    hardware: Mapping[str, Any] = field(default_factory=dict)
    memory_configuration: Mapping[str, Any] = field(default_factory=dict)
    slot_report: tuple[SlotStatus, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    executor_id: str = ""


@dataclass(frozen=True)
class TaskManagerRegistered(Message):
    """``token`` is the ResourceManager's; it stands in every later call to it."""

    token: str
    heartbeat_interval_ms: int


@dataclass(frozen=True)
class ExecutorLost(Message):
    """A TaskManager says that a Spark executor of its own ended or could not be started; it waits for another one."""

    taskmanager_id: str
    executor_id: str
    cause: str


@dataclass(frozen=True)
class SlotAvailable(Message):
    """A TaskManager's slot is free again."""

    taskmanager_id: str
    slot_index: int
    allocation_id: str


@dataclass(frozen=True)
class SlotEnd(Message):
    """What the fleet knows about the end of a slot that a TaskManager gives up; empty: nothing."""

    cause: str = ""


@dataclass(frozen=True)
class DisconnectTaskManager(Message):
    """The TaskManager stops; all its slots have ended."""

    taskmanager_id: str
    cause: str


@dataclass(frozen=True)
class ClusterOverview(Message):
    """``taskmanagers`` in the shape of the REST answer of /taskmanagers."""

    taskmanagers: tuple[Mapping[str, Any], ...]
    slots_total: int
    slots_available: int


@dataclass(frozen=True)
class SetSlots(Message):
    """Change how many slots a TaskManager has (embedded mode grows)."""

    taskmanager_id: str
    slots: int


# TaskManager


@dataclass(frozen=True)
class SlotStatus(Message):
    """``state`` is FREE, ALLOCATED, ACTIVE or RELEASING; ``jobmaster_epoch`` that of the JobMaster that has it."""

    slot_index: int
    state: str
    allocation_id: str | None = None
    job_id: str | None = None
    pid: int | None = None
    jobmaster_epoch: int = 0


@dataclass(frozen=True)
class SlotReport(Message):
    """A TaskManager's answer to the ResourceManager's heartbeat."""

    slot_report: tuple[SlotStatus, ...]


@dataclass(frozen=True)
class HeartbeatFromJobMaster(Message):
    """``allocations`` is the JobMaster's view; the TaskManager frees other active slots of the job.

    It is for ``taskmanager_id``: another one that has its address now knows nothing of these allocations.
    """

    job_id: str
    allocations: tuple[str, ...]
    taskmanager_id: str


@dataclass(frozen=True)
class ExecutionReport(Message):
    """What a TaskManager runs of a job: execution id -> state, execution id -> final totals of those that have ended.

    Running totals come by ``report_metrics`` alone.
    """

    executions: Mapping[str, str]
    metrics: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True)
class ExecutorSpec(Message):
    """The Spark executor that a TaskManager has to start (``start_executor``), beside older ones that still run slots.

    Attributes:
        executor_id: a decimal integer, as Spark wants it; never used twice with one driver.
        driver_url: ``spark://CoarseGrainedScheduler@host:port``.
        app_id: of the Spark application.
        spark_salt: of the secret that authenticates the executor at the driver (`firesteel.core.secret.spark_secret`);
            the secret itself is never on the network.
        cores: tasks that it may run at once: its slots and the spare ones.
    """

    executor_id: str
    driver_url: str
    app_id: str
    spark_salt: str
    cores: int


@dataclass(frozen=True)
class RequestSlot(Message):
    """The ResourceManager gives a slot to a job.

    Attributes:
        python: what the slot needs of Python; see ``RegisterJobMaster``.
        jobmaster_epoch: orders the JobMaster among those of the job; stands in reports of the slot.
    """

    slot_index: int
    allocation_id: str
    job_id: str
    jobmaster_address: str
    jobmaster_token: str
    python: Mapping[str, Any] = field(default_factory=dict)
    jobmaster_epoch: int = 0


@dataclass(frozen=True)
class SlotGranted(Message):
    """Where the process of the slot is to be started, and where it finds the TaskManager."""

    executor_id: str
    control_socket: str


@dataclass(frozen=True)
class SlotCount(Message):
    """How many slots a TaskManager has from now on."""

    slots: int


@dataclass(frozen=True)
class SubmitTasks(Message):
    """Run these tasks in a slot.

    Attributes:
        deployment: plain ``firesteel.protocol.deployment.Deployment``, its ``blobs`` empty, and with the id of its
            placement in the place of that.
        blob_address: base URL; blobs are at ``<blob_address>/blobs/<sha>``.
    """

    job_id: str
    allocation_id: str
    jobmaster_token: str
    deployment: Mapping[str, Any]
    blob_address: str


@dataclass(frozen=True)
class SharePlacement(Message):
    """Where subtasks of a job run, for submits to slots of the TaskManager that follow: it travels there only once.

    Attributes:
        placement_id: of it.
        placement: packed ``firesteel.protocol.deployment.Placement``, which only slots read.
    """

    job_id: str
    placement_id: str
    placement: str


@dataclass(frozen=True)
class CancelTasks(Message):
    """``execution_ids`` None = all tasks of the job."""

    job_id: str
    execution_ids: tuple[str, ...] | None = None


@dataclass(frozen=True)
class FreeSlot(Message):
    """Release a slot. Of files that were kept for checkpoints those go that only ones after this need; None: none."""

    allocation_id: str
    cause: str
    last_checkpoint: int | None = None


@dataclass(frozen=True)
class Collect(Message):
    """Results of a collect operator from ``offset`` (records) on; waits at most ``wait_ms`` for the first one."""

    execution_id: str
    offset: int
    max_bytes: int
    wait_ms: int
    job_id: str = ""
    allocation_id: str = ""


@dataclass(frozen=True)
class Collected(Message):
    """``data`` is a base64 text of a pickled list of ``count`` records, the first at ``offset``."""

    offset: int
    count: int
    end: bool
    data: str


# JobMaster


@dataclass(frozen=True)
class StartJob(Message):
    """The Dispatcher has a JobMaster host run a job; ``dispatcher_term`` as in ``AdoptJob``.

    Attributes:
        takeover: how many JobMasters of this job were lost before, as far as this Dispatcher knows.
        takeover_cause: why the last of them was lost.
        given_up: fencing tokens of those that were lost last; a host that still runs one of them kills it first.
        trace: ``traceparent`` of the submission's span; empty = it was not traced.
        submitted_ms: when the job was submitted, epoch; 0 = the Dispatcher does not say.
    """

    job_graph: Mapping[str, Any]
    dispatcher_address: str
    dispatcher_token: str
    resourcemanager_address: str
    blob_address: str
    dispatcher_term: int = 0
    takeover: int = 0
    takeover_cause: str = ""
    given_up: tuple[str, ...] = field(default=(), repr=False)
    trace: str = ""
    submitted_ms: int = 0


@dataclass(frozen=True)
class JobStarted(Message):
    """``address`` is the base of the job's calls: ``<address>/rpc/<method>``."""

    address: str
    jobmaster_token: str


@dataclass(frozen=True)
class RunningJob(Message):
    """A job whose JobMaster lives on a host."""

    job_id: str
    address: str
    jobmaster_token: str
    job_graph: Mapping[str, Any]


@dataclass(frozen=True)
class RunningJobs(Message):
    """Answer of a JobMaster host to ``list_jobs``: a Dispatcher that was started anew adopts them."""

    jobs: tuple[RunningJob, ...]


@dataclass(frozen=True)
class AdoptJob(Message):
    """Another Dispatcher leads (``adopt``): from now on the JobMaster reports to it.

    Attributes:
        dispatcher_address, dispatcher_token: of it.
        dispatcher_term: grows from one Dispatcher to the next, so that a message of a former one that is late has no
            effect.
    """

    dispatcher_address: str
    dispatcher_token: str
    dispatcher_term: int = 0


@dataclass(frozen=True)
class SlotOffer(Message):
    """A slot whose process has registered; ``data_address`` is where its exchange listens."""

    slot_index: int
    allocation_id: str
    data_address: Mapping[str, Any]
    pid: int


@dataclass(frozen=True)
class OfferSlots(Message):
    """A TaskManager offers slots that were allocated to the job."""

    taskmanager_id: str
    taskmanager_address: str
    slots: tuple[SlotOffer, ...]


@dataclass(frozen=True)
class AcceptedSlots(Message):
    """Allocation ids; the TaskManager frees the others that it offered."""

    accepted: tuple[str, ...]


@dataclass(frozen=True)
class TaskStateUpdate(Message):
    """A task changed its state.

    Attributes:
        timestamp_ms: epoch, when it happened.
        error: plain ``firesteel.protocol.deployment.TaskFailure``, with state FAILED.
        metrics: running totals, with a final state.
    """

    execution_id: str
    state: str
    timestamp_ms: int
    error: Mapping[str, Any] | None = None
    metrics: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class UpdateTaskStates(Message):
    """In the order in which they happened."""

    taskmanager_id: str
    updates: tuple[TaskStateUpdate, ...]


@dataclass(frozen=True)
class ExecutionRef(Message):
    """Names one attempt of one subtask."""

    execution_id: str


@dataclass(frozen=True)
class ReportMetrics(Message):
    """Execution id -> running totals (``firesteel.protocol.deployment.METRIC_NAMES``)."""

    tasks: Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class FailSlot(Message):
    """A slot's process is gone, or never came.

    Attributes:
        in_vain: it would not come another time either, as what the job itself asks for can't be had.
    """

    taskmanager_id: str
    allocation_id: str
    cause: str
    in_vain: bool = False


@dataclass(frozen=True)
class TaskManagerEnded(Message):
    """A TaskManager that the ResourceManager had started has ended; ``cause`` is what the cluster manager says."""

    taskmanager_id: str
    cause: str


@dataclass(frozen=True)
class NotifyNoResources(Message):
    """The cluster cannot give the slots that the job needs: ``needed`` > ``total``."""

    needed: int
    total: int
    message: str


@dataclass(frozen=True)
class NotifyWaiting(Message):
    """Why TaskManagers do not come that a job waits for; empty: nothing is known to be wrong."""

    reason: str


@dataclass(frozen=True)
class CollectFromJob(Message):
    """Results of the collect operator ``operator_id`` from ``offset`` on."""

    operator_id: str
    offset: int
    max_bytes: int
    wait_ms: int


@dataclass(frozen=True)
class CollectedFromJob(Message):
    """As ``Collected``, with the state of the job."""

    offset: int
    count: int
    end: bool
    data: str
    state: str


@dataclass(frozen=True)
class SetLogLevel(Message):
    """Level of a logger from now on (``firesteel.core.log_levels``)."""

    logger: str
    level: str


@dataclass(frozen=True)
class LogLevels(Message):
    """Loggers that have a level of their own, and it."""

    levels: Mapping[str, str]


@dataclass(frozen=True)
class LookAtJob(Message):
    """What somebody wants to see: the job, and the subtasks of these vertices."""

    vertices: tuple[str, ...] = ()


@dataclass(frozen=True)
class JobDetails(Message):
    """The job as ``firesteel.graph.job_archive`` has it; it travels as it is."""

    archive: Mapping[str, Any]

    def to_plain(self) -> dict[str, Any]:
        return dict(self.archive)

    @classmethod
    @override
    def from_plain(cls, plain: Any) -> Self:
        if not isinstance(plain, Mapping):
            raise ProtocolError(cls.__name__, f"a JSON object is expected, not {type(plain).__name__}")
        return cls(plain)


# What can be seen of a process


@dataclass(frozen=True)
class ProcessMetrics(Message):
    """Flink's names of the metrics of a process, and their values; by allocation what its slots use (as in REST)."""

    values: Mapping[str, Any]
    slots: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ThreadDump(Message):
    """In the shape of the REST answer: ``threadName`` and ``stringifiedThreadInfo``; and which process it is."""

    threads: tuple[Mapping[str, Any], ...]
    process: str = ""


@dataclass(frozen=True)
class LogList(Message):
    """In the shape of the REST answer: ``name``, ``size`` in bytes, ``mtime`` in epoch ms; the main log is ``main``."""

    logs: tuple[Mapping[str, Any], ...]
    main: str = ""
    stdout: str = ""


@dataclass(frozen=True)
class ReadLog(Message):
    """A piece of a log: from the byte ``offset``, at most ``length`` bytes; a negative offset counts from the end."""

    name: str
    offset: int = 0
    length: int = 1 << 20


@dataclass(frozen=True)
class LogPart(Message):
    """``data`` is base64; ``size`` that of the whole log now, ``offset`` of the first byte that is here."""

    size: int
    offset: int
    data: str


@dataclass(frozen=True)
class SampleStacks(Message):
    """Which tasks are looked at: of a vertex, one subtask of it (-1: all)."""

    job_id: str
    vertex_id: str
    samples: int
    interval_ms: int
    depth: int = 100
    subtask: int = -1


@dataclass(frozen=True)
class SampleThreads(Message):
    """So many looks, with so many ms between them."""

    samples: int
    interval_ms: int


@dataclass(frozen=True)
class StackSamples(Message):
    """Subtask, or name of a thread -> samples (``firesteel.core.stacks.Samples``)."""

    subtasks: Mapping[str, Any]


# Dispatcher


@dataclass(frozen=True)
class JobStateChanged(Message):
    """``timestamps``: job state -> epoch ms of the last entry, 0 = never. The token says which JobMaster tells it."""

    job_id: str
    state: str
    timestamps: Mapping[str, int]
    jobmaster_token: str = ""


@dataclass(frozen=True)
class JobFinished(Message):
    """The job reached a final state; repeated until it is acknowledged. The token says which JobMaster tells it."""

    job_id: str
    archive: Mapping[str, Any]
    jobmaster_token: str = ""

    def to_plain(self) -> dict[str, Any]:
        """The archive is plain."""
        return {"job_id": self.job_id, "archive": self.archive, "jobmaster_token": self.jobmaster_token}


@dataclass(frozen=True)
class JobMasterLost(Message):
    """A JobMaster host says that the process of a JobMaster, known by its token, ended before its job did.

    The ResourceManager frees the slots of the job then, for nobody else does.
    """

    job_id: str
    cause: str
    jobmaster_token: str = ""
