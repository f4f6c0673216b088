"""The TaskManager's calls."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from aiohttp import web

from firesteel.core.errors import FencedError
from firesteel.protocol import messages as m
from firesteel.protocol.message import RpcCode, RpcFault
from firesteel.protocol.split_messages import OperatorEvents
from firesteel.rpc import Handler, RpcRequest, rpc_routes
from firesteel_taskmanager.core import SlotTakenError
from firesteel_taskmanager.shell import TaskManagerService
from firesteel_taskmanager.slots import UnknownAllocationError, UnknownExecutionError

_FROM_RESOURCEMANAGER = frozenset({"request_slot", "start_executor", "set_slots"})


def routes(service: TaskManagerService, secret: str) -> list[web.RouteDef]:
    """All routes of the service. Callers say who they are by their own tokens: it has to be the JobMaster that leads
    the job or the slot, or the ResourceManager with which the TaskManager is registered.

    Calls that name an execution also carry ``job_id`` or ``allocation_id``: two jobs that run the same program have
    tasks of the same ids.
    """
    core = service.core

    async def heartbeat(_: RpcRequest) -> Mapping[str, Any]:
        return service.resourcemanager_heartbeat().to_plain()

    async def heartbeat_jobmaster(call: RpcRequest) -> Mapping[str, Any]:
        return service.jobmaster_heartbeat(m.HeartbeatFromJobMaster.from_plain(call.payload), call.token).to_plain()

    async def request_slot(call: RpcRequest) -> Mapping[str, Any]:
        executor = core.request_slot(m.RequestSlot.from_plain(call.payload), service.now)
        service.perform(())
        return {"executor_id": executor, "control_socket": str(service.channels.path)}

    async def start_executor(call: RpcRequest) -> Mapping[str, Any]:
        service.start_executor(m.ExecutorSpec.from_plain(call.payload))
        return {}

    async def set_slots(call: RpcRequest) -> Mapping[str, Any]:
        slots = call.payload.get("slots")
        if not isinstance(slots, int) or slots < 1:
            raise RpcFault(RpcCode.BAD_REQUEST, f"a TaskManager has at least one slot, not {slots!r}")
        core.set_slots(slots)
        return {}

    async def submit_tasks(call: RpcRequest) -> Mapping[str, Any]:
        await service.submit_tasks(m.SubmitTasks.from_plain(call.payload))
        return {}

    async def cancel_tasks(call: RpcRequest) -> Mapping[str, Any]:
        message = m.CancelTasks.from_plain(call.payload)
        now, now_ms = service.now, service.now_ms
        service.perform(core.tasks.cancel(message.job_id, message.execution_ids, now, now_ms, call.token))
        return {}

    async def assign_splits(call: RpcRequest) -> Mapping[str, Any]:
        service.perform(core.tasks.splits_assigned(m.AssignSplits.from_plain(call.payload)))
        return {}

    async def send_operator_events(call: RpcRequest) -> Mapping[str, Any]:
        service.perform(core.tasks.operator_events_sent(OperatorEvents.from_plain(call.payload)))
        return {}

    async def trigger_checkpoint(call: RpcRequest) -> Mapping[str, Any]:
        service.perform(core.checkpoints.trigger(m.TriggerCheckpoint.from_plain(call.payload)))
        return {}

    async def notify_checkpoint_complete(call: RpcRequest) -> Mapping[str, Any]:
        service.perform(core.checkpoints.completed(m.NotifyCheckpoint.from_plain(call.payload)))
        return {}

    async def notify_checkpoint_aborted(call: RpcRequest) -> Mapping[str, Any]:
        service.perform(core.checkpoints.aborted(m.NotifyCheckpoint.from_plain(call.payload)))
        return {}

    async def free_slot(call: RpcRequest) -> Mapping[str, Any]:
        message = m.FreeSlot.from_plain(call.payload)
        service.perform(core.free_slot(message.allocation_id, message.cause, service.now, message.last_checkpoint))
        return {}

    async def collect(call: RpcRequest) -> Mapping[str, Any]:
        return (await service.collect(m.Collect.from_plain(call.payload))).to_plain()

    handlers: dict[str, Handler] = {
        "heartbeat": heartbeat,
        "heartbeat_jobmaster": heartbeat_jobmaster,
        "request_slot": request_slot,
        "start_executor": start_executor,
        "set_slots": set_slots,
        "submit_tasks": submit_tasks,
        "cancel_tasks": cancel_tasks,
        "assign_splits": assign_splits,
        "send_operator_events": send_operator_events,
        "trigger_checkpoint": trigger_checkpoint,
        "notify_checkpoint_complete": notify_checkpoint_complete,
        "notify_checkpoint_aborted": notify_checkpoint_aborted,
        "free_slot": free_slot,
        "collect": collect,
    }
    checked = {name: _with_codes(handler) for name, handler in handlers.items()}

    def from_resourcemanager(handler: Handler) -> Handler:
        async def fenced(call: RpcRequest) -> Mapping[str, Any]:
            if not await service.is_soon_led_by(call.token):
                raise registered_elsewhere(call)
            return await handler(call)

        return fenced

    def registered_elsewhere(call: RpcRequest) -> FencedError:
        return FencedError(f"{call.method}: {service.taskmanager_id} is registered with another ResourceManager")

    checked |= {name: from_resourcemanager(checked[name]) for name in _FROM_RESOURCEMANAGER}

    def token_of(call: RpcRequest) -> str | None:
        job, allocation = str(call.payload.get("job_id") or ""), str(call.payload.get("allocation_id") or "")
        if not call.token:
            raise FencedError(f"{call.method}: the caller does not say by its token who it is")
        if call.method in _FROM_RESOURCEMANAGER or service.is_led_by(call.token):
            return None
        if call.method == "heartbeat" and service.is_registered:
            raise registered_elsewhere(call)
        if not core.leads(job, allocation, call.token):
            raise FencedError(f"{call.method}: another JobMaster leads job {job}")
        return None

    return rpc_routes(checked, secret, token_of, clock=service.clock)


def _with_codes(handler: Handler) -> Callable[[RpcRequest], Awaitable[Mapping[str, Any]]]:
    async def checked(call: RpcRequest) -> Mapping[str, Any]:
        try:
            return await handler(call)
        except SlotTakenError as error:
            raise RpcFault(RpcCode.NO_RESOURCES, str(error)) from error
        except (UnknownAllocationError, UnknownExecutionError) as error:
            raise RpcFault(RpcCode.NOT_FOUND, str(error)) from error

    return checked
