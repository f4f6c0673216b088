"""The gateways of ``firesteel.protocol.gateways`` over HTTP."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from firesteel.protocol import messages as m
from firesteel.protocol.alignment import GroupWatermark, ReportWatermark
from firesteel.protocol.message import Message
from firesteel.protocol.split_messages import OperatorEvents
from firesteel.rpc.client import DEFAULT_TIMEOUT, RpcClient

SUBMIT_TIMEOUT = 60.0
"""Seconds: a TaskManager fetches the blobs of the tasks before it answers."""


class _Remote:
    """A service at an address.

    Attributes:
        address: base URL.
        token: fencing token of the callee as known here; set it after registration.
    """

    def __init__(self, client: RpcClient, address: str, token: str = "", timeout: float = DEFAULT_TIMEOUT) -> None:
        self._client, self.address, self.token, self._timeout = client, address.rstrip("/"), token, timeout

    async def _call(self, method: str, message: Message | None = None, timeout: float | None = None) -> dict[str, Any]:
        plain = message.to_plain() if message is not None else {}
        return await self._client.call(self.address, method, plain, self.token, timeout or self._timeout)


class RemoteResourceManager(_Remote):
    """``ResourceManagerGateway`` over HTTP."""

    async def register_taskmanager(self, message: m.RegisterTaskManager) -> m.TaskManagerRegistered:
        return m.TaskManagerRegistered.from_plain(await self._call("register_taskmanager", message))

    async def register_jobmaster(self, message: m.RegisterJobMaster) -> m.JobMasterRegistered:
        return m.JobMasterRegistered.from_plain(await self._call("register_jobmaster", message))

    async def declare_requirements(self, message: m.DeclareRequirements) -> None:
        await self._call("declare_requirements", message)

    async def executor_lost(self, message: m.ExecutorLost) -> None:
        await self._call("executor_lost", message)

    async def slot_available(self, message: m.SlotAvailable) -> None:
        await self._call("slot_available", message)

    async def disconnect_taskmanager(self, message: m.DisconnectTaskManager) -> None:
        await self._call("disconnect_taskmanager", message)

    async def disconnect_jobmaster(self, message: m.DisconnectJobMaster) -> None:
        await self._call("disconnect_jobmaster", message)

    async def jobmaster_heartbeat(self, message: m.JobMasterHeartbeat) -> None:
        await self._call("jobmaster_heartbeat", message)

    async def overview(self) -> m.ClusterOverview:
        return m.ClusterOverview.from_plain(await self._call("overview"))

    async def set_slots(self, message: m.SetSlots) -> None:
        await self._call("set_slots", message)

    async def shut_down(self) -> None:
        await self._call("shut_down")


class RemoteTaskManager(_Remote):
    """``TaskManagerGateway`` over HTTP."""

    async def heartbeat(self) -> m.SlotReport:
        return m.SlotReport.from_plain(await self._call("heartbeat"))

    async def heartbeat_jobmaster(self, message: m.HeartbeatFromJobMaster) -> m.ExecutionReport:
        return m.ExecutionReport.from_plain(await self._call("heartbeat_jobmaster", message))

    async def start_executor(self, message: m.ExecutorSpec) -> None:
        await self._call("start_executor", message)

    async def request_slot(self, message: m.RequestSlot) -> None:
        await self._call("request_slot", message)

    async def submit_tasks(self, message: m.SubmitTasks) -> None:
        await self._call("submit_tasks", message, max(SUBMIT_TIMEOUT, self._timeout))

    async def cancel_tasks(self, message: m.CancelTasks) -> None:
        await self._call("cancel_tasks", message)

    async def assign_splits(self, message: m.AssignSplits) -> None:
        await self._call("assign_splits", message)

    async def send_operator_events(self, message: OperatorEvents) -> None:
        await self._call("send_operator_events", message)

    async def trigger_checkpoint(self, message: m.TriggerCheckpoint) -> None:
        await self._call("trigger_checkpoint", message)

    async def notify_checkpoint_complete(self, message: m.NotifyCheckpoint) -> None:
        await self._call("notify_checkpoint_complete", message)

    async def notify_checkpoint_aborted(self, message: m.NotifyCheckpoint) -> None:
        await self._call("notify_checkpoint_aborted", message)

    async def free_slot(self, message: m.FreeSlot) -> None:
        await self._call("free_slot", message)

    async def collect(self, message: m.Collect) -> m.Collected:
        answer = await self._call("collect", message, self._timeout + message.wait_ms / 1000)
        return m.Collected.from_plain(answer)


class RemoteJobMasterHost(_Remote):
    """``JobMasterHostGateway`` over HTTP."""

    async def start_job(self, message: m.StartJob) -> m.JobStarted:
        return m.JobStarted.from_plain(await self._call("start_job", message))

    async def list_jobs(self) -> m.RunningJobs:
        return m.RunningJobs.from_plain(await self._call("list_jobs"))

    async def shut_down(self) -> None:
        await self._call("shut_down")


class RemoteJobMaster(_Remote):
    """``JobMasterGateway`` over HTTP; the address is that of the job, as ``start_job`` answered it."""

    async def offer_slots(self, message: m.OfferSlots) -> m.AcceptedSlots:
        return m.AcceptedSlots.from_plain(await self._call("offer_slots", message))

    async def update_task_states(self, message: m.UpdateTaskStates) -> None:
        await self._call("update_task_states", message)

    async def request_splits(self, message: m.RequestSplits) -> m.Splits:
        return m.Splits.from_plain(await self._call("request_splits", message))

    async def send_operator_events(self, message: OperatorEvents) -> None:
        await self._call("send_operator_events", message)

    async def report_watermark(self, message: ReportWatermark) -> GroupWatermark:
        return GroupWatermark.from_plain(await self._call("report_watermark", message))

    async def end_of_data(self, message: m.ExecutionRef) -> None:
        await self._call("end_of_data", message)

    async def acknowledge_checkpoint(self, message: m.AcknowledgeCheckpoint) -> None:
        await self._call("acknowledge_checkpoint", message)

    async def decline_checkpoint(self, message: m.DeclineCheckpoint) -> None:
        await self._call("decline_checkpoint", message)

    async def trigger_checkpoint(self, message: m.TriggerJobCheckpoint) -> None:
        await self._call("trigger_checkpoint", message)

    async def report_metrics(self, message: m.ReportMetrics) -> None:
        await self._call("report_metrics", message)

    async def fail_slot(self, message: m.FailSlot) -> None:
        await self._call("fail_slot", message)

    async def notify_no_resources(self, message: m.NotifyNoResources) -> None:
        await self._call("notify_no_resources", message)

    async def cancel(self) -> None:
        await self._call("cancel")

    async def adopt(self, message: m.AdoptJob) -> None:
        await self._call("adopt", message)

    async def details(self) -> Mapping[str, Any]:
        return await self._call("details")

    async def collect(self, message: m.CollectFromJob) -> m.CollectedFromJob:
        answer = await self._call("collect", message, self._timeout + message.wait_ms / 1000)
        return m.CollectedFromJob.from_plain(answer)


class RemoteDispatcher(_Remote):
    """``DispatcherGateway`` over HTTP."""

    async def job_state_changed(self, message: m.JobStateChanged) -> None:
        await self._call("job_state_changed", message)

    async def job_finished(self, message: m.JobFinished) -> None:
        await self._call("job_finished", message)

    async def jobmaster_lost(self, message: m.JobMasterLost) -> None:
        await self._call("jobmaster_lost", message)
