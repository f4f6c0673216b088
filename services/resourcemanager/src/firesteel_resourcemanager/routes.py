"""The ResourceManager's calls."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from aiohttp import web

from firesteel.core.clock import Clock
from firesteel.protocol import messages as m
from firesteel.protocol.message import RpcCode, RpcFault
from firesteel.rpc import Handler, RpcRequest, rpc_routes
from firesteel.service.leaving import Leaving
from firesteel_resourcemanager.core import ResourceManagerCore
from firesteel_resourcemanager.registry import FormerJobMasterError, UnknownJobError, UnknownTaskManagerError
from firesteel_resourcemanager.shell import ResourceManagerService
from firesteel_resourcemanager.slot_table import SlotState, TaskManager

_REGISTRATIONS = frozenset({"register_taskmanager", "register_jobmaster"})
_UNFENCED = _REGISTRATIONS | {"overview", "set_slots", "shut_down"}
_MEGABYTE = 1024 * 1024
_RESOURCES = {
    "taskHeapMemory": "taskHeap",
    "taskOffHeapMemory": "taskOffHeap",
    "managedMemory": "managedMemory",
    "networkMemory": "networkMemory",
}
"""Names in a resource -> names in ``memoryConfiguration``."""
_NO_MEMORY = dict.fromkeys(
    (
        "frameworkHeap", "taskHeap", "frameworkOffHeap", "taskOffHeap", "networkMemory", "managedMemory",
        "jvmMetaspace", "jvmOverhead", "totalFlinkMemory", "totalProcessMemory",
    )
)  # fmt: skip
"""What a TaskManager without a memory model says: null, as in Flink."""


def routes(service: ResourceManagerService, secret: str, clock: Clock) -> list[web.RouteDef]:
    """All routes of the service. Calls of those who registered carry the token that they got then."""

    async def register_taskmanager(call: RpcRequest) -> Mapping[str, Any]:
        return service.register_taskmanager(m.RegisterTaskManager.from_plain(call.payload)).to_plain()

    async def register_jobmaster(call: RpcRequest) -> Mapping[str, Any]:
        return service.register_jobmaster(m.RegisterJobMaster.from_plain(call.payload)).to_plain()

    async def declare_requirements(call: RpcRequest) -> Mapping[str, Any]:
        message = m.DeclareRequirements.from_plain(call.payload)
        count = 0
        for requirement in message.requirements:
            if requirement.profile != m.DEFAULT_PROFILE:
                raise RpcFault(
                    RpcCode.BAD_REQUEST,
                    f"resource profile {requirement.profile!r} is not known; only {m.DEFAULT_PROFILE!r} is",
                )
            if requirement.count < 0:
                raise RpcFault(RpcCode.BAD_REQUEST, f"{requirement.count} slots can't be wanted")
            count += requirement.count
        service.core.check_sender(message.job_id, message.sender)
        service.perform(service.core.declare_requirements(message.job_id, count, service.now, message.returned))
        return {}

    async def executor_lost(call: RpcRequest) -> Mapping[str, Any]:
        lost = m.ExecutorLost.from_plain(call.payload)
        service.perform(service.core.executor_lost(lost.taskmanager_id, lost.executor_id, lost.cause, service.now))
        return {}

    async def slot_available(call: RpcRequest) -> Mapping[str, Any]:
        slot = m.SlotAvailable.from_plain(call.payload)
        service.perform(
            service.core.slot_available(slot.taskmanager_id, slot.slot_index, slot.allocation_id, service.now)
        )
        return {}

    async def disconnect_taskmanager(call: RpcRequest) -> Mapping[str, Any]:
        message = m.DisconnectTaskManager.from_plain(call.payload)
        service.disconnect_taskmanager(message.taskmanager_id, message.cause)
        return {}

    async def disconnect_jobmaster(call: RpcRequest) -> Mapping[str, Any]:
        service.disconnect_jobmaster(m.DisconnectJobMaster.from_plain(call.payload))
        return {}

    async def jobmaster_heartbeat(call: RpcRequest) -> Mapping[str, Any]:
        service.jobmaster_heartbeat(m.JobMasterHeartbeat.from_plain(call.payload))
        return {}

    async def show_overview(call: RpcRequest) -> Mapping[str, Any]:
        return overview(service.core)

    async def set_slots(call: RpcRequest) -> Mapping[str, Any]:
        message = m.SetSlots.from_plain(call.payload)
        if message.slots < 1:
            raise RpcFault(RpcCode.BAD_REQUEST, f"a TaskManager has at least one slot, not {message.slots}")
        await service.set_slots(message.taskmanager_id, message.slots)
        return {}

    async def cancel_slot(call: RpcRequest) -> Mapping[str, Any]:
        return {"cause": await service.cancel_slot(m.SlotAvailable.from_plain(call.payload).allocation_id)}

    async def shut_down(call: RpcRequest) -> Mapping[str, Any]:
        service.request_stop(Leaving.END_CLUSTER)
        return {}

    handlers: dict[str, Handler] = {
        "register_taskmanager": register_taskmanager,
        "register_jobmaster": register_jobmaster,
        "declare_requirements": declare_requirements,
        "executor_lost": executor_lost,
        "slot_available": slot_available,
        "disconnect_taskmanager": disconnect_taskmanager,
        "disconnect_jobmaster": disconnect_jobmaster,
        "jobmaster_heartbeat": jobmaster_heartbeat,
        "overview": show_overview,
        "set_slots": set_slots,
        "cancel_slot": cancel_slot,
        "shut_down": shut_down,
    }
    checked = {name: _with_codes(handler) for name, handler in handlers.items()}
    return rpc_routes(checked, secret, lambda call: None if _is_unfenced(call) else service.token, clock=clock)


def _is_unfenced(call: RpcRequest) -> bool:
    """A host that lost a JobMaster knows the JobMaster's token, not that of the ResourceManager; who registers learns
    the token then, unless it has read who leads."""
    if call.method in _REGISTRATIONS and call.token:
        return False
    lost = call.method == "disconnect_jobmaster" and bool(call.payload.get("jobmaster_token"))
    return lost or call.method in _UNFENCED


def overview(core: ResourceManagerCore) -> dict[str, Any]:
    """TaskManagers and slots, as REST's /taskmanagers shows them."""
    taskmanagers = [_taskmanager(t) for t in core.table.taskmanagers.values()]
    return {
        "taskmanagers": taskmanagers,
        "slots_total": sum(t["slotsNumber"] for t in taskmanagers),
        "slots_available": sum(t["freeSlots"] for t in taskmanagers),
    }


def _with_codes(handler: Handler) -> Callable[[RpcRequest], Awaitable[Mapping[str, Any]]]:
    async def checked(call: RpcRequest) -> Mapping[str, Any]:
        try:
            return await handler(call)
        except (UnknownJobError, UnknownTaskManagerError) as error:
            raise RpcFault(RpcCode.NOT_FOUND, str(error.args[0])) from error
        except FormerJobMasterError as error:
            raise RpcFault(RpcCode.GONE, str(error)) from error

    return checked


def _taskmanager(taskmanager: TaskManager) -> dict[str, Any]:
    slots = list(taskmanager.slots.values())
    taken = [s for s in slots if s.state is not SlotState.FREE]
    hardware = {"cpuCores": 0, "physicalMemory": 0, "freeMemory": 0, "managedMemory": 0, **taskmanager.hardware}
    memory = {**_NO_MEMORY, **taskmanager.memory_configuration}

    def resource(count: int) -> dict[str, Any]:
        """So many slots' share of it; memory in whole MB."""
        share = count / max(1, len(slots))
        return {
            "cpuCores": float(hardware["cpuCores"]) * share,
            **{name: int((memory[key] or 0) * share) // _MEGABYTE for name, key in _RESOURCES.items()},
            "extendedResources": {},
        }

    return {
        "id": taskmanager.id,
        "path": taskmanager.address,
        "dataPort": -1,  # each slot has one of its own
        "jmxPort": -1,
        "timeSinceLastHeartbeat": taskmanager.last_heartbeat_ms,
        "slotsNumber": len(slots),
        "freeSlots": len(slots) - len(taken),
        "totalResource": resource(len(slots)),
        "freeResource": resource(len(slots) - len(taken)),
        "hardware": hardware,
        "memoryConfiguration": memory,
        "allocatedSlots": [
            {"jobId": s.job_id, "allocationId": s.allocation_id, "resource": resource(1)} for s in taken
        ],
    }
