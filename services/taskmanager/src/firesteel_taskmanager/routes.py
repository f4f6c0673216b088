"""The calls that a TaskManager answers, and who may make them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from aiohttp import web

from firesteel.core.errors import FencedError
from firesteel.protocol import messages as m
from firesteel.protocol.gateways import InspectionGateway, TaskManagerGateway
from firesteel.protocol.message import RpcCode, RpcFault
from firesteel.protocol.method import Caller, Method
from firesteel.protocol.split_messages import OperatorEvents
from firesteel.rpc import RpcRequest, answers, by_token, handlers_of, rpc_routes
from firesteel.service.process_logs import UnknownLogError
from firesteel_taskmanager.core import SlotTakenError
from firesteel_taskmanager.inspection import Inspection
from firesteel_taskmanager.instructions import Instruction
from firesteel_taskmanager.shell import TaskManagerService
from firesteel_taskmanager.slots import UnknownAllocationError, UnknownExecutionError


class _Calls:
    """``TaskManagerGateway``, answered by the service to the caller with this token."""

    def __init__(self, service: TaskManagerService, token: str) -> None:
        self._service, self._core, self._token = service, service.core, token

    @answers(TaskManagerGateway.heartbeat)
    def heartbeat(self, _: m.Empty) -> m.SlotReport:
        return self._service.resourcemanager_heartbeat()

    @answers(TaskManagerGateway.heartbeat_jobmaster)
    def heartbeat_jobmaster(self, message: m.HeartbeatFromJobMaster) -> m.ExecutionReport:
        return self._service.jobmaster_heartbeat(message, self._token)

    @answers(TaskManagerGateway.request_slot)
    def request_slot(self, message: m.RequestSlot) -> m.SlotGranted:
        executor = self._core.request_slot(message, self._service.now)
        self._service.perform(())
        return m.SlotGranted(executor, str(self._service.channels.path))

    @answers(TaskManagerGateway.start_executor)
    def start_executor(self, message: m.ExecutorSpec) -> None:
        self._service.start_executor(message)

    @answers(TaskManagerGateway.set_slots)
    def set_slots(self, message: m.SlotCount) -> None:
        if message.slots < 1:
            raise RpcFault(RpcCode.BAD_REQUEST, f"a TaskManager has at least one slot, not {message.slots}")
        self._core.set_slots(message.slots)

    @answers(TaskManagerGateway.share_placement)
    def share_placement(self, message: m.SharePlacement) -> None:
        self._service.deployments.share_placement(message)

    @answers(TaskManagerGateway.submit_tasks)
    async def submit_tasks(self, message: m.SubmitTasks) -> None:
        await self._service.deployments.submit(message)

    @answers(TaskManagerGateway.cancel_tasks)
    def cancel_tasks(self, message: m.CancelTasks) -> None:
        now, now_ms = self._service.now, self._service.now_ms
        tasks = self._core.tasks
        self._service.perform(tasks.cancel(message.job_id, message.execution_ids, now, now_ms, self._token))

    @answers(TaskManagerGateway.assign_splits)
    def assign_splits(self, message: m.AssignSplits) -> None:
        self._service.perform(self._core.tasks.splits_assigned(message))

    @answers(TaskManagerGateway.send_operator_events)
    def send_operator_events(self, message: OperatorEvents) -> None:
        self._service.perform(self._core.tasks.operator_events_sent(message))

    @answers(TaskManagerGateway.trigger_checkpoint)
    def trigger_checkpoint(self, message: m.TriggerCheckpoint) -> m.UnknownSlots:
        return self._told(*self._core.checkpoints.trigger(message, self._token))

    @answers(TaskManagerGateway.notify_checkpoint_complete)
    def notify_checkpoint_complete(self, message: m.NotifyCheckpoint) -> m.UnknownSlots:
        return self._told(*self._core.checkpoints.completed(message, self._token))

    @answers(TaskManagerGateway.notify_checkpoint_aborted)
    def notify_checkpoint_aborted(self, message: m.NotifyCheckpoint) -> m.UnknownSlots:
        return self._told(*self._core.checkpoints.aborted(message, self._token))

    def _told(self, unknown: tuple[str, ...], out: Iterable[Instruction]) -> m.UnknownSlots:
        self._service.perform(out)
        return m.UnknownSlots(unknown)

    @answers(TaskManagerGateway.free_slot)
    def free_slot(self, message: m.FreeSlot) -> None:
        freed = self._core.free_slot(message.allocation_id, message.cause, self._service.now, message.last_checkpoint)
        self._service.perform(freed)

    @answers(TaskManagerGateway.collect)
    async def collect(self, message: m.Collect) -> m.Collected:
        return await self._service.collect(message)


def routes(service: TaskManagerService, secret: str) -> list[web.RouteDef]:
    """All routes of the service. Callers say who they are by their own tokens: it has to be the JobMaster that leads
    the job or the slot, or the ResourceManager with which the TaskManager is registered.
    """

    async def check(method: Method[Any, Any], call: RpcRequest) -> None:
        if not call.token:
            raise FencedError(f"{call.method}: the caller does not say by its token who it is")
        if service.is_led_by(call.token):
            return
        job, allocation = str(call.payload.get("job_id") or ""), str(call.payload.get("allocation_id") or "")
        if method is TaskManagerGateway.heartbeat:
            is_allowed = not service.is_registered
        elif method.by == {Caller.RESOURCEMANAGER}:
            is_allowed = await service.is_soon_led_by(call.token)
        elif not service.core.leads(job, allocation, call.token):
            raise FencedError(f"{call.method}: another JobMaster leads job {job}")
        else:
            is_allowed = True
        if not is_allowed:
            raise FencedError(f"{call.method}: {service.taskmanager_id} is registered with another ResourceManager")

    refusals: dict[type[Exception], RpcCode] = {
        SlotTakenError: RpcCode.NO_RESOURCES,
        UnknownAllocationError: RpcCode.NOT_FOUND,
        UnknownExecutionError: RpcCode.NOT_FOUND,
    }
    handlers = handlers_of(TaskManagerGateway, _Calls, lambda call: _Calls(service, call.token), check, refusals)
    looking = handlers_of(
        InspectionGateway, Inspection, lambda _: service.inspection, by_token(lambda _: ""),
        {UnknownLogError: RpcCode.NOT_FOUND},
    )  # fmt: skip
    return rpc_routes({**handlers, **looking}, secret, clock=service.clock)
