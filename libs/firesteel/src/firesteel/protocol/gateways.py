"""The contract between the services: all calls, with their requests, answers, callers and fences.

A new call needs a row here and a handler at the callee (``firesteel.rpc.answers``). All calls are idempotent: a call
whose answer was lost is made again.
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
    """Register a TaskManager."""

    register_jobmaster = Method(m.RegisterJobMaster, m.JobMasterRegistered, by=_JOBMASTER, fence=Fence.CALLEE_IF_KNOWN)
    """Register a JobMaster."""

    declare_requirements = Method(m.DeclareRequirements, by=_JOBMASTER)
    """Declare the slots that a job needs."""

    executor_lost = Method(m.ExecutorLost, by=_TASKMANAGER)
    """The newest executor of a TaskManager ended or could not be started: the TaskManager needs another one."""

    slot_available = Method(m.SlotAvailable, by=_TASKMANAGER)
    """A slot became free."""

    cancel_slot = Method(m.SlotAvailable, m.SlotEnd, by=_TASKMANAGER)
    """Have the fleet give up the process of a slot; it answers what it knows about the end of the process."""

    disconnect_taskmanager = Method(m.DisconnectTaskManager, by=_TASKMANAGER)
    """The TaskManager stops."""

    disconnect_jobmaster = Method(m.DisconnectJobMaster, by=_JOBMASTER)
    """The job ended."""

    forget_jobmaster = Method(m.JobMasterLost, by=_HOST, fence=Fence.NONE)
    """The process of a JobMaster ended before its job did; ignored unless that JobMaster is registered."""

    jobmaster_heartbeat = Method(m.JobMasterHeartbeat, by=_JOBMASTER)
    """The JobMaster is alive."""

    run_stages = Method(m.RunStages, by=_JOBMASTER, at_least=90.0)
    """Run bounded stages in Spark; answered once their blobs are here."""

    look_at_stages = Method(m.StageRunRef, m.StageRunLook, by=_JOBMASTER, at_least=30.0)
    """Look at the progress of a run."""

    stage_results = Method(m.StageRunRef, m.StageRunResults, by=_JOBMASTER, at_least=90.0)
    """Fetch the results of the tasks of a run that is done."""

    drop_stages = Method(m.StageRunRef, by=_JOBMASTER, at_least=30.0)
    """End a run that may still go on, and remove all that it has left."""

    overview = Method(m.Empty, m.ClusterOverview, by=_DISPATCHER, fence=Fence.NONE)
    """TaskManagers and slots."""

    set_slots = Method(m.SetSlots, by=_CLIENT, fence=Fence.NONE)
    """Change the number of slots of a TaskManager."""

    shut_down = Method(m.Empty, by=_DISPATCHER, fence=Fence.NONE)
    """The cluster is shut down: end this process in order, after the answer."""


class TaskManagerGateway(Gateway, fence=Fence.CALLER):
    """Calls to a TaskManager.

    The ResourceManager where it is registered may call it, and the JobMaster that leads the job or the slot. Calls that
    name an execution also carry ``job_id`` or ``allocation_id``, since two jobs that run the same program have tasks
    with the same ids.
    """

    heartbeat = Method(m.Empty, m.SlotReport, by=_RESOURCEMANAGER)
    """The ResourceManager is alive. This call may come before the answer to the registration."""

    heartbeat_jobmaster = Method(m.HeartbeatFromJobMaster, m.ExecutionReport, by=_JOBMASTER)
    """A JobMaster is alive; both sides compare the slots and tasks that they know."""

    start_executor = Method(m.ExecutorSpec, by=_RESOURCEMANAGER)
    """Start a Spark executor, beside older ones that still run slots; answered before it is up."""

    request_slot = Method(m.RequestSlot, m.SlotGranted, by=_RESOURCEMANAGER)
    """Allocate a slot to a job."""

    set_slots = Method(m.SlotCount, by=_RESOURCEMANAGER)
    """Change the number of slots."""

    share_placement = Method(m.SharePlacement, by=_JOBMASTER)
    """Keep a placement of subtasks for later submits that name it."""

    submit_tasks = Method(m.SubmitTasks, by=_JOBMASTER, at_least=60.0)
    """Run tasks in a slot; answered once their blobs are here."""

    cancel_tasks = Method(m.CancelTasks, by=_JOBMASTER)
    """End tasks; their final states are reported later."""

    assign_splits = Method(m.AssignSplits, by=_JOBMASTER)
    """Give splits to a source subtask."""

    send_operator_events = Method(OperatorEvents, by=_JOBMASTER)
    """Send events to a task that runs a user's enumerator."""

    trigger_checkpoint = Method(m.TriggerCheckpoint, m.UnknownSlots, by=_JOBMASTER)
    """Have tasks inject barriers; those that can't, or do not run in their slot, are declined later."""

    notify_checkpoint_complete = Method(m.NotifyCheckpoint, m.UnknownSlots, by=_JOBMASTER)
    """A checkpoint is complete: tasks commit all that they prepared up to it; tasks that have ended are left out.

    Earlier notifications may have been lost: this one stands for them as well.
    """

    notify_checkpoint_aborted = Method(m.NotifyCheckpoint, m.UnknownSlots, by=_JOBMASTER)
    """A checkpoint will not complete."""

    free_slot = Method(m.FreeSlot, by=_JOBMASTER + _RESOURCEMANAGER)
    """Release a slot."""

    collect = Method(m.Collect, m.Collected, by=_JOBMASTER, waits=lambda message: message.wait_ms / 1000)
    """Results of a collect operator."""


class InspectionGateway(Gateway, fence=Fence.NONE):
    """Calls that look at a TaskManager and at the processes in its slots, and change nothing."""

    process_metrics = Method(m.Empty, m.ProcessMetrics, by=_DISPATCHER)
    """Metrics of the TaskManager's process."""

    thread_dump = Method(m.Empty, m.ThreadDump, by=_DISPATCHER, at_least=15.0)
    """Stacks of all threads, of the TaskManager and of its slots."""

    list_logs = Method(m.Empty, m.LogList, by=_DISPATCHER)
    """List the logs of the TaskManager and of its slots."""

    read_log = Method(m.ReadLog, m.LogPart, by=_DISPATCHER)
    """Read a piece of a log."""

    sample_stacks = Method(
        m.SampleStacks,
        m.StackSamples,
        by=_DISPATCHER,
        waits=lambda message: message.samples * message.interval_ms / 1000,
    )
    """Sample the stacks of tasks."""

    find_hot_keys = Method(m.FindHotKeys, m.HotKeys, by=_DISPATCHER, at_least=15.0)
    """Find the most frequent keys that tasks send."""


class JobMasterHostGateway(Gateway, fence=Fence.NONE):
    """Calls to a host of JobMasters."""

    start_job = Method(m.StartJob, m.JobStarted, by=_DISPATCHER)
    """Run a job."""

    list_jobs = Method(m.Empty, m.RunningJobs, by=_DISPATCHER)
    """List jobs whose JobMasters live, and jobs that ended and whose ends the Dispatcher has not acknowledged."""

    shut_down = Method(m.Empty, by=_DISPATCHER)
    """The cluster is shut down: end this process in order, after the answer."""


class JobMasterGateway(Gateway):
    """Calls to the JobMaster of one job; they go to the address that ``start_job`` has answered."""

    offer_slots = Method(m.OfferSlots, m.AcceptedSlots, by=_TASKMANAGER)
    """Offer slots that were allocated to the job."""

    update_task_states = Method(m.UpdateTaskStates, by=_TASKMANAGER)
    """Report changed states."""

    request_splits = Method(m.RequestSplits, m.Splits, by=_TASKMANAGER)
    """A source subtask asks for splits.

    A request that may have been lost is repeated with its number. A caller that gives up must fail the task, since
    splits may be lost with the answer.
    """

    send_operator_events = Method(OperatorEvents, by=_TASKMANAGER)
    """Events of a task that runs a user's enumerator: its decisions."""

    report_watermark = Method(ReportWatermark, GroupWatermark, by=_TASKMANAGER)
    """A source subtask reports its watermark; the answer is that of its alignment group."""

    end_of_data = Method(m.ExecutionRef, by=_TASKMANAGER)
    """All results of a task are durable; it waits for the checkpoint whose completion commits them."""

    acknowledge_checkpoints = Method(m.AcknowledgeCheckpoints, by=_TASKMANAGER)
    """Tasks have written their state; acknowledged even if the checkpoint does not count any more."""

    decline_checkpoint = Method(m.DeclineCheckpoint, by=_TASKMANAGER)
    """A task can't take part in a checkpoint, or could not write its state."""

    trigger_checkpoint = Method(m.TriggerJobCheckpoint, by=_DISPATCHER)
    """Take a checkpoint that a user wants; answered before it is taken."""

    trigger_savepoint = Method(m.TriggerJobSavepoint, by=_DISPATCHER)
    """Take a savepoint that a user wants, and stop the job with it if the user wants that; answered before."""

    report_metrics = Method(m.ReportMetrics, by=_TASKMANAGER)
    """Report the present totals of tasks."""

    fail_slot = Method(m.FailSlot, by=_TASKMANAGER + _RESOURCEMANAGER)
    """A slot was lost."""

    taskmanager_ended = Method(m.TaskManagerEnded, by=_RESOURCEMANAGER)
    """A TaskManager has ended, with the cause; the JobMaster may have missed it long before."""

    notify_no_resources = Method(m.NotifyNoResources, by=_RESOURCEMANAGER)
    """The cluster is too small for the job."""

    notify_waiting = Method(m.NotifyWaiting, by=_RESOURCEMANAGER)
    """The TaskManagers that are started for the job do not come, with the reason."""

    cancel = Method(m.CancelJob, by=_DISPATCHER)
    """Cancel the job; nothing happens if it has ended."""

    adopt = Method(m.AdoptJob, by=_DISPATCHER + _HOST)
    """Another Dispatcher leads: report the state of the job to it, and all later changes."""

    details = Method(m.LookAtJob, m.JobDetails, by=_DISPATCHER)
    """Fetch the archive of the job as it is now."""

    collect = Method(m.CollectFromJob, m.CollectedFromJob, by=_DISPATCHER, waits=lambda message: message.wait_ms / 1000)
    """Results of a collect operator."""


class DispatcherGateway(Gateway):
    """Calls to the Dispatcher."""

    job_state_changed = Method(m.JobStateChanged, by=_JOBMASTER)
    """A job entered another state."""

    job_finished = Method(m.JobFinished, by=_JOBMASTER)
    """A job reached a final state."""

    jobmaster_lost = Method(m.JobMasterLost, by=_HOST + _JOBMASTER, fence=Fence.NONE)
    """The process of a JobMaster ended before its job did. The caller need not know who leads, so there is no fence."""


class ProcessGateway(Gateway, fence=Fence.NONE):
    """Calls to any process of the cluster; they go to ``<address of the process>/process``."""

    log_levels = Method(m.Empty, m.LogLevels, by=_DISPATCHER)
    """List the levels of loggers."""

    set_log_level = Method(m.SetLogLevel, m.LogLevels, by=_DISPATCHER)
    """Set the level of a logger until the process ends. Slots follow their TaskManager."""

    dump_threads = Method(m.Empty, m.ThreadDump, by=_DISPATCHER)
    """Stacks of all threads of the process."""

    job_log = Method(m.ReadJobLog, m.JobLog, by=_DISPATCHER, at_least=20.0)
    """Read records of a job in the logs of a TaskManager or JobMaster; other processes have none."""

    sample_threads = Method(
        m.SampleThreads,
        m.StackSamples,
        by=_DISPATCHER,
        waits=lambda message: message.samples * message.interval_ms / 1000,
    )
    """Sample the stacks of the process's threads."""
