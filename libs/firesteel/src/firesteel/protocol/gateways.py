"""The contract between the services: every call there is, what it takes and answers, whom it fences off, who makes it.

A call is added by its row here and by its handler at the callee (``firesteel.rpc.answers``). All calls are idempotent:
one whose answer was lost is made again.
"""

from __future__ import annotations

from firesteel.protocol import messages as m
from firesteel.protocol.alignment import GroupWatermark, ReportWatermark
from firesteel.protocol.method import Caller, Fence, Gateway, Method
from firesteel.protocol.split_messages import OperatorEvents

_CLIENT, _DISPATCHER, _HOST = (Caller.CLIENT,), (Caller.DISPATCHER,), (Caller.JOBMASTER_HOST,)
_JOBMASTER, _TASKMANAGER, _RESOURCEMANAGER = (Caller.JOBMASTER,), (Caller.TASKMANAGER,), (Caller.RESOURCEMANAGER,)


class ResourceManagerGateway(Gateway):
    """Calls to the ResourceManager."""

    register_taskmanager = Method(
        m.RegisterTaskManager, m.TaskManagerRegistered, by=_TASKMANAGER, fence=Fence.CALLEE_IF_KNOWN
    )
    """Present a TaskManager."""

    register_jobmaster = Method(m.RegisterJobMaster, m.JobMasterRegistered, by=_JOBMASTER, fence=Fence.CALLEE_IF_KNOWN)
    """Present a JobMaster."""

    declare_requirements = Method(m.DeclareRequirements, by=_JOBMASTER)
    """Say how many slots a job wants."""

    executor_lost = Method(m.ExecutorLost, by=_TASKMANAGER)
    """The newest executor of a TaskManager ended or could not be started: it wants another one."""

    slot_available = Method(m.SlotAvailable, by=_TASKMANAGER)
    """A slot became free."""

    cancel_slot = Method(m.SlotAvailable, m.SlotEnd, by=_TASKMANAGER)
    """Have the fleet give up the process of a slot, and say what it knows about its end."""

    disconnect_taskmanager = Method(m.DisconnectTaskManager, by=_TASKMANAGER)
    """The TaskManager stops."""

    disconnect_jobmaster = Method(m.DisconnectJobMaster, by=_JOBMASTER)
    """The job ended."""

    forget_jobmaster = Method(m.JobMasterLost, by=_HOST, fence=Fence.NONE)
    """The process of a JobMaster ended before its job did; counts only if that JobMaster is registered."""

    jobmaster_heartbeat = Method(m.JobMasterHeartbeat, by=_JOBMASTER)
    """The JobMaster is alive."""

    run_stages = Method(m.RunStages, by=_JOBMASTER, at_least=90.0)
    """Run bounded stages in Spark; their blobs are fetched before it is answered."""

    look_at_stages = Method(m.StageRunRef, m.StageRunLook, by=_JOBMASTER, at_least=30.0)
    """How a run goes."""

    stage_results = Method(m.StageRunRef, m.StageRunResults, by=_JOBMASTER, at_least=90.0)
    """What the tasks of a run that is done have told."""

    drop_stages = Method(m.StageRunRef, by=_JOBMASTER, at_least=30.0)
    """End a run, if it goes on, and remove what it has left."""

    overview = Method(m.Empty, m.ClusterOverview, by=_DISPATCHER, fence=Fence.NONE)
    """TaskManagers and slots."""

    set_slots = Method(m.SetSlots, by=_CLIENT, fence=Fence.NONE)
    """Change the number of slots of a TaskManager."""

    shut_down = Method(m.Empty, by=_DISPATCHER, fence=Fence.NONE)
    """The cluster is shut down: end this process in order, after the answer."""


class TaskManagerGateway(Gateway, fence=Fence.CALLER):
    """Calls to a TaskManager.

    The ResourceManager with which it is registered, and the JobMaster that leads the job or the slot, may call it.
    Calls that name an execution also carry ``job_id`` or ``allocation_id``: two jobs that run the same program have
    tasks of the same ids.
    """

    heartbeat = Method(m.Empty, m.SlotReport, by=_RESOURCEMANAGER)
    """The ResourceManager is alive; it may come before the answer to the registration."""

    heartbeat_jobmaster = Method(m.HeartbeatFromJobMaster, m.ExecutionReport, by=_JOBMASTER)
    """A JobMaster is alive; both sides reconcile."""

    start_executor = Method(m.ExecutorSpec, by=_RESOURCEMANAGER)
    """Start a Spark executor, beside older ones that still run slots; answered before it is up."""

    request_slot = Method(m.RequestSlot, m.SlotGranted, by=_RESOURCEMANAGER)
    """Allocate a slot to a job."""

    set_slots = Method(m.SlotCount, by=_RESOURCEMANAGER)
    """Have another number of slots."""

    share_placement = Method(m.SharePlacement, by=_JOBMASTER)
    """Keep where subtasks run, for submits that name it."""

    submit_tasks = Method(m.SubmitTasks, by=_JOBMASTER, at_least=60.0)
    """Run tasks in a slot; their blobs are fetched before it is answered."""

    cancel_tasks = Method(m.CancelTasks, by=_JOBMASTER)
    """End tasks; their final states are reported later."""

    assign_splits = Method(m.AssignSplits, by=_JOBMASTER)
    """Give splits to a source subtask."""

    send_operator_events = Method(OperatorEvents, by=_JOBMASTER)
    """Tell a task that runs a user's enumerator something."""

    trigger_checkpoint = Method(m.TriggerCheckpoint, m.UnknownSlots, by=_JOBMASTER)
    """Have tasks inject barriers; those that can't are declined later, also those that do not run in their slot."""

    notify_checkpoint_complete = Method(m.NotifyCheckpoint, m.UnknownSlots, by=_JOBMASTER)
    """A checkpoint is complete: what was prepared up to it is to be committed; tasks that have ended are left out.

    Earlier notifications may have been lost: this one stands for them, too.
    """

    notify_checkpoint_aborted = Method(m.NotifyCheckpoint, m.UnknownSlots, by=_JOBMASTER)
    """A checkpoint will not complete."""

    free_slot = Method(m.FreeSlot, by=_JOBMASTER + _RESOURCEMANAGER)
    """Release a slot."""

    collect = Method(m.Collect, m.Collected, by=_JOBMASTER, waits=lambda message: message.wait_ms / 1000)
    """Results of a collect operator."""


class InspectionGateway(Gateway, fence=Fence.NONE):
    """What can be seen of a TaskManager and of the processes in its slots; nothing changes by it."""

    process_metrics = Method(m.Empty, m.ProcessMetrics, by=_DISPATCHER)
    """What it measures of itself."""

    thread_dump = Method(m.Empty, m.ThreadDump, by=_DISPATCHER, at_least=15.0)
    """What all threads do, here and in slots."""

    list_logs = Method(m.Empty, m.LogList, by=_DISPATCHER)
    """Its logs, and those of its slots."""

    read_log = Method(m.ReadLog, m.LogPart, by=_DISPATCHER)
    """A piece of one of them."""

    sample_stacks = Method(
        m.SampleStacks,
        m.StackSamples,
        by=_DISPATCHER,
        waits=lambda message: message.samples * message.interval_ms / 1000,
    )
    """Look again and again at what tasks do."""


class JobMasterHostGateway(Gateway, fence=Fence.NONE):
    """Calls to a host of JobMasters."""

    start_job = Method(m.StartJob, m.JobStarted, by=_DISPATCHER)
    """Run a job."""

    list_jobs = Method(m.Empty, m.RunningJobs, by=_DISPATCHER)
    """The jobs whose JobMasters live, and those that ended and whose end the Dispatcher has not acknowledged."""

    shut_down = Method(m.Empty, by=_DISPATCHER)
    """The cluster is shut down: end this process in order, after the answer."""


class JobMasterGateway(Gateway):
    """Calls to the JobMaster of one job; the address is that of the job, as ``start_job`` answered it."""

    offer_slots = Method(m.OfferSlots, m.AcceptedSlots, by=_TASKMANAGER)
    """Offer slots that were allocated to the job."""

    update_task_states = Method(m.UpdateTaskStates, by=_TASKMANAGER)
    """Report changed states."""

    request_splits = Method(m.RequestSplits, m.Splits, by=_TASKMANAGER)
    """A source subtask asks for work.

    A request that may have got lost is repeated with its number. A caller that gives up must fail the task, because
    splits may be lost with the answer.
    """

    send_operator_events = Method(OperatorEvents, by=_TASKMANAGER)
    """A task that runs a user's enumerator says what it has decided."""

    report_watermark = Method(ReportWatermark, GroupWatermark, by=_TASKMANAGER)
    """A source subtask says how far it has come, and hears how far its group has."""

    end_of_data = Method(m.ExecutionRef, by=_TASKMANAGER)
    """A task has all its results durable and waits for the checkpoint whose completion commits them."""

    acknowledge_checkpoints = Method(m.AcknowledgeCheckpoints, by=_TASKMANAGER)
    """Tasks have written their state. Answered also if nobody wants it any more."""

    decline_checkpoint = Method(m.DeclineCheckpoint, by=_TASKMANAGER)
    """A task can't take part in a checkpoint, or could not write its state."""

    trigger_checkpoint = Method(m.TriggerJobCheckpoint, by=_DISPATCHER)
    """A user wants a checkpoint now. Answered before it is taken."""

    trigger_savepoint = Method(m.TriggerJobSavepoint, by=_DISPATCHER)
    """A user wants a savepoint, or to stop the job with one. Answered before it is taken."""

    report_metrics = Method(m.ReportMetrics, by=_TASKMANAGER)
    """Running totals."""

    fail_slot = Method(m.FailSlot, by=_TASKMANAGER + _RESOURCEMANAGER)
    """A slot was lost."""

    taskmanager_ended = Method(m.TaskManagerEnded, by=_RESOURCEMANAGER)
    """A TaskManager has ended, perhaps long after the JobMaster has missed it: why."""

    notify_no_resources = Method(m.NotifyNoResources, by=_RESOURCEMANAGER)
    """The cluster is too small for the job."""

    notify_waiting = Method(m.NotifyWaiting, by=_RESOURCEMANAGER)
    """What keeps the TaskManagers that are started for the job."""

    cancel = Method(m.Empty, by=_DISPATCHER)
    """Cancel the job; nothing happens if it has ended."""

    adopt = Method(m.AdoptJob, by=_DISPATCHER + _HOST)
    """Another Dispatcher leads: tell it the state of the job, and from now on all that follows."""

    details = Method(m.LookAtJob, m.JobDetails, by=_DISPATCHER)
    """Everything about the job."""

    collect = Method(m.CollectFromJob, m.CollectedFromJob, by=_DISPATCHER, waits=lambda message: message.wait_ms / 1000)
    """Results of a collect operator."""


class DispatcherGateway(Gateway):
    """Calls to the Dispatcher."""

    job_state_changed = Method(m.JobStateChanged, by=_JOBMASTER)
    """A job entered another state."""

    job_finished = Method(m.JobFinished, by=_JOBMASTER)
    """A job reached a final state."""

    jobmaster_lost = Method(m.JobMasterLost, by=_HOST + _JOBMASTER, fence=Fence.NONE)
    """The process of a JobMaster ended before its job did; who says so knows no leader, only a death."""


class ProcessGateway(Gateway, fence=Fence.NONE):
    """Calls to any process of the cluster; they go to ``<address of the process>/process``."""

    log_levels = Method(m.Empty, m.LogLevels, by=_DISPATCHER)
    """Levels of its loggers."""

    set_log_level = Method(m.SetLogLevel, m.LogLevels, by=_DISPATCHER)
    """Change one; holds until the process ends. Slots follow their TaskManager."""

    dump_threads = Method(m.Empty, m.ThreadDump, by=_DISPATCHER)
    """What its threads do."""

    sample_threads = Method(
        m.SampleThreads,
        m.StackSamples,
        by=_DISPATCHER,
        waits=lambda message: message.samples * message.interval_ms / 1000,
    )
    """Look again and again at what the threads of the process do."""
