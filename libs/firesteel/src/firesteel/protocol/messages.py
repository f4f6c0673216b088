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
"""The only resource profile: a slot's share of its TaskManager."""


# ResourceManager


@dataclass(frozen=True)
class RegisterTaskManager(Message):
    """A TaskManager registers; again after each loss of the registration.

    Attributes:
        hardware: cpuCores, physicalMemory, freeMemory, managedMemory (bytes).
        slot_report: present state of its slots, from which a ResourceManager that was started anew learns which jobs
            have them.
        versions: of ``firesteel``, ``python`` and ``pyspark``, which have to be the same on all nodes.
        executor_id: Spark's id of its newest executor, if that runs; empty: there is none. A ResourceManager that was
            started anew goes on with this executor.
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
    """The registration is accepted; ``token`` is the ResourceManager's, and each later call to it carries it."""

    token: str
    heartbeat_interval_ms: int


@dataclass(frozen=True)
class ExecutorLost(Message):
    """A Spark executor of a TaskManager ended or could not be started; the TaskManager waits for another one."""

    taskmanager_id: str
    executor_id: str
    cause: str


@dataclass(frozen=True)
class SlotAvailable(Message):
    """A slot of a TaskManager is free again."""

    taskmanager_id: str
    slot_index: int
    allocation_id: str


@dataclass(frozen=True)
class SlotEnd(Message):
    """The fleet's knowledge about the end of a slot that a TaskManager gives up; empty: it knows nothing."""

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
    """Change the number of slots of a TaskManager; an embedded cluster grows so."""

    taskmanager_id: str
    slots: int


# TaskManager


@dataclass(frozen=True)
class SlotStatus(Message):
    """State of a slot: FREE, ALLOCATED, ACTIVE or RELEASING; ``jobmaster_epoch`` is that of the slot's JobMaster."""

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
    """A sign of life of a JobMaster, with the slots that it believes to have.

    The TaskManager frees active slots of the job that are not among ``allocations``. Only the TaskManager with this
    ``taskmanager_id`` may do so: another one that has its address now does not know the allocations.
    """

    job_id: str
    allocations: tuple[str, ...]
    taskmanager_id: str


@dataclass(frozen=True)
class ExecutionReport(Message):
    """The tasks of a job at a TaskManager: states by execution id, and final totals of those that have ended.

    Totals of running tasks come by ``report_metrics`` alone.
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
        cores: tasks that it may run at the same time: its slots and the spare ones.
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
        python: Python environment of the slot; see ``RegisterJobMaster``.
        jobmaster_epoch: orders the JobMasters of the job; reports of the slot carry it.
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
    """The executor on which the slot's process starts, and the socket at which it finds the TaskManager."""

    executor_id: str
    control_socket: str


@dataclass(frozen=True)
class SlotCount(Message):
    """The number of slots that a TaskManager has from now on."""

    slots: int


@dataclass(frozen=True)
class SubmitTasks(Message):
    """Run these tasks in a slot.

    Attributes:
        deployment: plain ``firesteel.protocol.deployment.Deployment`` with empty ``blobs``, and with the id of its
            placement in place of the placement.
        blob_address: base URL; blobs are at ``<blob_address>/blobs/<sha>``.
    """

    job_id: str
    allocation_id: str
    jobmaster_token: str
    deployment: Mapping[str, Any]
    blob_address: str


@dataclass(frozen=True)
class SharePlacement(Message):
    """Where subtasks of a job run. It travels to each TaskManager once, and later submits to its slots name it.

    Attributes:
        placement_id: id of the placement.
        placement: packed ``firesteel.protocol.deployment.Placement``, which only slots read.
    """

    job_id: str
    placement_id: str
    placement: str


@dataclass(frozen=True)
class CancelTasks(Message):
    """End tasks of a job; ``execution_ids`` None = all."""

    job_id: str
    execution_ids: tuple[str, ...] | None = None


@dataclass(frozen=True)
class FreeSlot(Message):
    """Release a slot. Files that only checkpoints after ``last_checkpoint`` need are removed; None: no file is."""

    allocation_id: str
    cause: str
    last_checkpoint: int | None = None


@dataclass(frozen=True)
class Collect(Message):
    """Ask for results of a collect operator from record ``offset`` on; wait at most ``wait_ms`` for the first one."""

    execution_id: str
    offset: int
    max_bytes: int
    wait_ms: int
    job_id: str = ""
    allocation_id: str = ""


@dataclass(frozen=True)
class Collected(Message):
    """Results of a collect operator: ``data`` is base64 of a pickled list of ``count`` records, the first at
    ``offset``."""

    offset: int
    count: int
    end: bool
    data: str


# JobMaster


@dataclass(frozen=True)
class StartJob(Message):
    """The Dispatcher has a JobMaster host run a job; ``dispatcher_term`` as in ``AdoptJob``.

    Attributes:
        takeover: number of JobMasters of this job that were lost before, as far as this Dispatcher knows.
        takeover_cause: cause of the last loss.
        given_up: fencing tokens of the last lost JobMasters; a host that still runs one of them kills it first.
        trace: ``traceparent`` of the submission's span; empty = there is no trace.
        submitted_ms: epoch ms of the submission; 0 = not known.
        events: of the job's life so far (``firesteel.graph.job_events``).
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
    events: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class JobStarted(Message):
    """A JobMaster runs the job; calls go to ``<address>/rpc/<method>``."""

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
    """The jobs of a JobMaster host, which a Dispatcher that was started anew adopts."""

    jobs: tuple[RunningJob, ...]


@dataclass(frozen=True)
class CancelJob(Message):
    """A job is to be cancelled; ``by``: who asked for it, and from which address, for people."""

    by: str = ""


@dataclass(frozen=True)
class AdoptJob(Message):
    """Another Dispatcher leads (``adopt``): from now on the JobMaster reports to it.

    Attributes:
        dispatcher_address, dispatcher_token: of the Dispatcher that leads.
        dispatcher_term: grows from one Dispatcher to the next, so that a late message of a former one has no effect.
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
    """Ids of the accepted allocations; the TaskManager frees the other slots that it offered."""

    accepted: tuple[str, ...]


@dataclass(frozen=True)
class TaskStateUpdate(Message):
    """A task changed its state.

    Attributes:
        timestamp_ms: epoch ms of the change.
        error: plain ``firesteel.protocol.deployment.TaskFailure``, if the state is FAILED.
        metrics: final totals, if the state is a final one.
    """

    execution_id: str
    state: str
    timestamp_ms: int
    error: Mapping[str, Any] | None = None
    metrics: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class UpdateTaskStates(Message):
    """Changes of states of tasks, in the order in which they happened."""

    taskmanager_id: str
    updates: tuple[TaskStateUpdate, ...]


@dataclass(frozen=True)
class ExecutionRef(Message):
    """Names one attempt of one subtask."""

    execution_id: str


@dataclass(frozen=True)
class ReportMetrics(Message):
    """Present totals by execution id (``firesteel.protocol.deployment.METRIC_NAMES``)."""

    tasks: Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class FailSlot(Message):
    """A slot's process is gone, or never came.

    Attributes:
        in_vain: whether another try would fail as well, since the job itself asks for something that can't be had.
    """

    taskmanager_id: str
    allocation_id: str
    cause: str
    in_vain: bool = False


@dataclass(frozen=True)
class TaskManagerEnded(Message):
    """A TaskManager that the ResourceManager had started has ended; ``cause`` comes from the cluster manager."""

    taskmanager_id: str
    cause: str


@dataclass(frozen=True)
class NotifyNoResources(Message):
    """The cluster has fewer slots than the job needs: ``needed`` > ``total``."""

    needed: int
    total: int
    message: str


@dataclass(frozen=True)
class NotifyWaiting(Message):
    """Why the TaskManagers that a job waits for do not come; empty: nothing is known to be wrong."""

    reason: str


@dataclass(frozen=True)
class CollectFromJob(Message):
    """Ask for results of a collect operator of a job; as ``Collect``."""

    operator_id: str
    offset: int
    max_bytes: int
    wait_ms: int


@dataclass(frozen=True)
class CollectedFromJob(Message):
    """Like ``Collected``, with the state of the job."""

    offset: int
    count: int
    end: bool
    data: str
    state: str


@dataclass(frozen=True)
class SetLogLevel(Message):
    """Set the level of a logger (``firesteel.core.log_levels``)."""

    logger: str
    level: str


@dataclass(frozen=True)
class LogLevels(Message):
    """Levels by logger, of the loggers that have a level of their own."""

    levels: Mapping[str, str]


@dataclass(frozen=True)
class LookAtJob(Message):
    """Ask for the details of a job, with the subtasks of these vertices."""

    vertices: tuple[str, ...] = ()


@dataclass(frozen=True)
class JobDetails(Message):
    """The archive of a job (``firesteel.graph.job_archive``), which travels as it is."""

    archive: Mapping[str, Any]

    def to_plain(self) -> dict[str, Any]:
        return dict(self.archive)

    @classmethod
    @override
    def from_plain(cls, plain: Any) -> Self:
        if not isinstance(plain, Mapping):
            raise ProtocolError(cls.__name__, f"a JSON object is expected, not {type(plain).__name__}")
        return cls(plain)


# Inspection of processes


@dataclass(frozen=True)
class ProcessMetrics(Message):
    """Metrics of a process by Flink's names; ``slots``: use of the machine by its slots, by allocation, as in REST."""

    values: Mapping[str, Any]
    slots: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ThreadDump(Message):
    """Threads in the shape of the REST answer (``threadName``, ``stringifiedThreadInfo``), and their process."""

    threads: tuple[Mapping[str, Any], ...]
    process: str = ""


@dataclass(frozen=True)
class LogList(Message):
    """Logs in the shape of the REST answer (``name``, ``size`` in bytes, ``mtime`` in epoch ms), and the main one."""

    logs: tuple[Mapping[str, Any], ...]
    main: str = ""
    stdout: str = ""


@dataclass(frozen=True)
class ReadLog(Message):
    """Ask for a piece of a log: at most ``length`` bytes from ``offset`` on, which counts from the end if negative."""

    name: str
    offset: int = 0
    length: int = 1 << 20


@dataclass(frozen=True)
class LogPart(Message):
    """A piece of a log: ``data`` is base64, ``offset`` that of its first byte, ``size`` that of the whole log now."""

    size: int
    offset: int
    data: str


@dataclass(frozen=True)
class ReadJobLog(Message):
    """Ask for records of a job: the first ones from ``since`` on, or the last ones, before ``until`` (epoch ms).

    Attributes:
        since, until: -1 = without such a bound.
        level: least level; empty = all.
        text: what a record contains, in any case of letters.
        limit: most records.
    """

    job_id: str
    since: int = -1
    until: int = -1
    level: str = ""
    text: str = ""
    limit: int = 1000


@dataclass(frozen=True)
class JobLog(Message):
    """Records in order of time (``time`` in epoch ms, ``level``, ``logger``, ``message``, ``task`` where there is one).

    Attributes:
        complete_to: the moment to which they are all there: that of the first one where the last ones were wanted,
            else the one before which all are there; -1 = as far as there are any.
    """

    records: tuple[Mapping[str, Any], ...]
    complete_to: int = -1


@dataclass(frozen=True)
class SampleStacks(Message):
    """Ask for samples of the stacks of a vertex's tasks; ``subtask`` -1: of all."""

    job_id: str
    vertex_id: str
    samples: int
    interval_ms: int
    depth: int = 100
    subtask: int = -1


@dataclass(frozen=True)
class FindHotKeys(Message):
    """Ask for the most frequent keys that the tasks of some vertices send; ``most`` of each output."""

    job_id: str
    vertices: tuple[str, ...]
    most: int


@dataclass(frozen=True)
class HotKeys(Message):
    """The most frequent keys of outputs.

    Each row has ``target`` (the vertex that reads), ``records`` and ``lost`` (about the numbers of all records, and of
    those by which counts may be too small), ``refusal`` (why no keys are counted), and ``keys``: text, records and
    subtask of each. ``failures``: slots that did not answer, in words.
    """

    outputs: tuple[Mapping[str, Any], ...]
    failures: tuple[str, ...] = ()


@dataclass(frozen=True)
class SampleThreads(Message):
    """Ask for samples of the stacks of all threads: number of looks, and ms between two of them."""

    samples: int
    interval_ms: int


@dataclass(frozen=True)
class StackSamples(Message):
    """Samples (``firesteel.core.stacks.Samples``) by subtask or by name of the thread."""

    subtasks: Mapping[str, Any]


# Dispatcher


@dataclass(frozen=True)
class JobStateChanged(Message):
    """A job entered another state. The token is that of the JobMaster that reports it.

    Attributes:
        timestamps: job state -> epoch ms of the last entry into it, 0 = never.
    """

    job_id: str
    state: str
    timestamps: Mapping[str, int]
    jobmaster_token: str = ""


@dataclass(frozen=True)
class JobFinished(Message):
    """A job reached a final state; the report is repeated until it is acknowledged. The token is the JobMaster's."""

    job_id: str
    archive: Mapping[str, Any]
    jobmaster_token: str = ""

    def to_plain(self) -> dict[str, Any]:
        """The message without a copy of the archive, which is plain already."""
        return {"job_id": self.job_id, "archive": self.archive, "jobmaster_token": self.jobmaster_token}


@dataclass(frozen=True)
class JobMasterLost(Message):
    """The process of a JobMaster, known by its token, ended before its job did; its host reports it.

    The ResourceManager then frees the slots of the job, since no other process does.
    """

    job_id: str
    cause: str
    jobmaster_token: str = ""
