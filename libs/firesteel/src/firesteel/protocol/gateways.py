"""Through these a service calls another one; nobody ever holds the other service itself.

All methods may raise ``FencedError`` (the token is stale: find the leader again), ``PeerUnreachableError`` (no answer;
the call may or may not have happened) or ``RpcFault`` (the callee refused it or failed). All calls are idempotent.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from firesteel.protocol import messages as m
from firesteel.protocol.alignment import GroupWatermark, ReportWatermark
from firesteel.protocol.split_messages import OperatorEvents


class ResourceManagerGateway(Protocol):
    """Calls to the ResourceManager."""

    async def register_taskmanager(self, message: m.RegisterTaskManager) -> m.TaskManagerRegistered:
        """Present a TaskManager."""

    async def register_jobmaster(self, message: m.RegisterJobMaster) -> m.JobMasterRegistered:
        """Present a JobMaster."""

    async def declare_requirements(self, message: m.DeclareRequirements) -> None:
        """Say how many slots a job wants."""

    async def executor_lost(self, message: m.ExecutorLost) -> None:
        """The newest executor of a TaskManager ended or could not be started: it wants another one."""

    async def slot_available(self, message: m.SlotAvailable) -> None:
        """A slot became free."""

    async def disconnect_taskmanager(self, message: m.DisconnectTaskManager) -> None:
        """The TaskManager stops."""

    async def disconnect_jobmaster(self, message: m.DisconnectJobMaster) -> None:
        """The job ended."""

    async def jobmaster_heartbeat(self, message: m.JobMasterHeartbeat) -> None:
        """The JobMaster is alive."""

    async def overview(self) -> m.ClusterOverview:
        """TaskManagers and slots."""

    async def set_slots(self, message: m.SetSlots) -> None:
        """Change the number of slots of a TaskManager."""

    async def shut_down(self) -> None:
        """The cluster is shut down: end this process in order, after the answer."""


class TaskManagerGateway(Protocol):
    """Calls to a TaskManager."""

    async def heartbeat(self) -> m.SlotReport:
        """From the ResourceManager."""

    async def heartbeat_jobmaster(self, message: m.HeartbeatFromJobMaster) -> m.ExecutionReport:
        """From a JobMaster; both sides reconcile."""

    async def start_executor(self, message: m.ExecutorSpec) -> None:
        """Start a Spark executor, beside older ones that still run slots; answered before it is up."""

    async def request_slot(self, message: m.RequestSlot) -> None:
        """Allocate a slot to a job."""

    async def submit_tasks(self, message: m.SubmitTasks) -> None:
        """Run tasks in a slot."""

    async def cancel_tasks(self, message: m.CancelTasks) -> None:
        """End tasks; their final states are reported later."""

    async def assign_splits(self, message: m.AssignSplits) -> None:
        """Give splits to a source subtask."""

    async def send_operator_events(self, message: OperatorEvents) -> None:
        """Tell a task that runs a user's enumerator something."""

    async def trigger_checkpoint(self, message: m.TriggerCheckpoint) -> None:
        """Have tasks inject barriers; those that can't are declined later, also those that do not run here."""

    async def notify_checkpoint_complete(self, message: m.NotifyCheckpoint) -> None:
        """A checkpoint is complete: what was prepared up to it is to be committed; tasks that have ended are left out.

        Earlier notifications may have been lost: this one stands for them, too.
        """

    async def notify_checkpoint_aborted(self, message: m.NotifyCheckpoint) -> None:
        """A checkpoint will not complete."""

    async def free_slot(self, message: m.FreeSlot) -> None:
        """Release a slot."""

    async def collect(self, message: m.Collect) -> m.Collected:
        """Results of a collect operator."""


class JobMasterHostGateway(Protocol):
    """Calls to a host of JobMasters."""

    async def start_job(self, message: m.StartJob) -> m.JobStarted:
        """Run a job."""

    async def list_jobs(self) -> m.RunningJobs:
        """The jobs whose JobMasters live, and those that ended and whose end the Dispatcher has not acknowledged."""

    async def shut_down(self) -> None:
        """The cluster is shut down: end this process in order, after the answer."""


class JobMasterGateway(Protocol):
    """Calls to the JobMaster of one job."""

    async def offer_slots(self, message: m.OfferSlots) -> m.AcceptedSlots:
        """Offer slots that were allocated to the job."""

    async def update_task_states(self, message: m.UpdateTaskStates) -> None:
        """Report changed states."""

    async def request_splits(self, message: m.RequestSplits) -> m.Splits:
        """A source subtask asks for work.

        A request that may have got lost is repeated with its number. A caller that gives up must fail the task, because
        splits may be lost with the answer.
        """

    async def send_operator_events(self, message: OperatorEvents) -> None:
        """A task that runs a user's enumerator says what it has decided."""

    async def report_watermark(self, message: ReportWatermark) -> GroupWatermark:
        """A source subtask says how far it has come, and hears how far its group has."""

    async def end_of_data(self, message: m.ExecutionRef) -> None:
        """A task has all its results durable and waits for the checkpoint whose completion commits them."""

    async def acknowledge_checkpoint(self, message: m.AcknowledgeCheckpoint) -> None:
        """A task has written its state. Answered also if nobody wants it any more."""

    async def decline_checkpoint(self, message: m.DeclineCheckpoint) -> None:
        """A task can't take part in a checkpoint, or could not write its state."""

    async def trigger_checkpoint(self, message: m.TriggerJobCheckpoint) -> None:
        """A user wants a checkpoint now. Answered before it is taken."""

    async def report_metrics(self, message: m.ReportMetrics) -> None:
        """Running totals."""

    async def fail_slot(self, message: m.FailSlot) -> None:
        """A slot was lost."""

    async def notify_no_resources(self, message: m.NotifyNoResources) -> None:
        """The cluster is too small for the job."""

    async def cancel(self) -> None:
        """Cancel the job; nothing happens if it has ended."""

    async def adopt(self, message: m.AdoptJob) -> None:
        """Another Dispatcher leads: tell it the state of the job, and from now on all that follows."""

    async def details(self) -> Mapping[str, Any]:
        """Everything about the job, as plain data: the same that ``job_finished`` archives at its end."""

    async def collect(self, message: m.CollectFromJob) -> m.CollectedFromJob:
        """Results of a collect operator."""


class DispatcherGateway(Protocol):
    """Calls to the Dispatcher."""

    async def job_state_changed(self, message: m.JobStateChanged) -> None:
        """A job entered another state."""

    async def job_finished(self, message: m.JobFinished) -> None:
        """A job reached a final state."""

    async def jobmaster_lost(self, message: m.JobMasterLost) -> None:
        """The process of a JobMaster ended before its job did; from its host, and not fenced."""
