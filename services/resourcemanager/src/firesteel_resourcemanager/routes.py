"""The calls that a ResourceManager answers, and the cluster as REST shows it."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from firesteel.core.clock import Clock
from firesteel.protocol import messages as m
from firesteel.protocol.gateways import ResourceManagerGateway
from firesteel.protocol.message import RpcCode, RpcFault
from firesteel.rpc import answers, by_token, handlers_of, rpc_routes
from firesteel.service.leaving import Leaving
from firesteel_resourcemanager.core import ResourceManagerCore
from firesteel_resourcemanager.registry import FormerJobMasterError, UnregisteredJobError, UnregisteredTaskManagerError
from firesteel_resourcemanager.shell import ResourceManagerService
from firesteel_resourcemanager.slot_table import RegisteredTaskManager, SlotState

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
"""Memory of a TaskManager without a memory model: null, as in Flink."""


class _Calls:
    """``ResourceManagerGateway``, answered by the service."""

    def __init__(self, service: ResourceManagerService) -> None:
        self._service, self._core = service, service.core

    @answers(ResourceManagerGateway.register_taskmanager)
    def register_taskmanager(self, message: m.RegisterTaskManager) -> m.TaskManagerRegistered:
        return self._service.register_taskmanager(message)

    @answers(ResourceManagerGateway.register_jobmaster)
    def register_jobmaster(self, message: m.RegisterJobMaster) -> m.JobMasterRegistered:
        return self._service.register_jobmaster(message)

    @answers(ResourceManagerGateway.declare_requirements)
    def declare_requirements(self, message: m.DeclareRequirements) -> None:
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
        if message.most < 0:
            raise RpcFault(RpcCode.BAD_REQUEST, f"{message.most} slots can't be wanted")
        self._core.check_sender(message.job_id, message.sender)
        now = self._service.now
        self._service.perform(
            self._core.declare_requirements(message.job_id, count, now, message.returned, message.most)
        )

    @answers(ResourceManagerGateway.executor_lost)
    def executor_lost(self, lost: m.ExecutorLost) -> None:
        now = self._service.now
        self._service.perform(self._core.executor_lost(lost.taskmanager_id, lost.executor_id, lost.cause, now))

    @answers(ResourceManagerGateway.slot_available)
    def slot_available(self, slot: m.SlotAvailable) -> None:
        now = self._service.now
        self._service.perform(self._core.slot_available(slot.taskmanager_id, slot.slot_index, slot.allocation_id, now))

    @answers(ResourceManagerGateway.cancel_slot)
    async def cancel_slot(self, slot: m.SlotAvailable) -> m.SlotEnd:
        return m.SlotEnd(await self._service.cancel_slot(slot.allocation_id))

    @answers(ResourceManagerGateway.disconnect_taskmanager)
    def disconnect_taskmanager(self, message: m.DisconnectTaskManager) -> None:
        self._service.disconnect_taskmanager(message.taskmanager_id, message.cause)

    @answers(ResourceManagerGateway.disconnect_jobmaster)
    def disconnect_jobmaster(self, message: m.DisconnectJobMaster) -> None:
        self._service.disconnect_jobmaster(message.job_id, message.sender, "the job ended")

    @answers(ResourceManagerGateway.forget_jobmaster)
    def forget_jobmaster(self, message: m.JobMasterLost) -> None:
        if not message.jobmaster_token:
            raise RpcFault(RpcCode.BAD_REQUEST, f"which JobMaster of job {message.job_id} was lost is not said")
        self._service.disconnect_jobmaster(message.job_id, message.jobmaster_token, message.cause)

    @answers(ResourceManagerGateway.jobmaster_heartbeat)
    def jobmaster_heartbeat(self, message: m.JobMasterHeartbeat) -> None:
        self._service.jobmaster_heartbeat(message)

    @answers(ResourceManagerGateway.run_stages)
    async def run_stages(self, message: m.RunStages) -> None:
        self._core.check_sender(message.job_id, message.sender)
        await self._service.stages.run(message)

    @answers(ResourceManagerGateway.look_at_stages)
    async def look_at_stages(self, message: m.StageRunRef) -> m.StageRunLook:
        return await self._service.stages.look(message)

    @answers(ResourceManagerGateway.stage_results)
    async def stage_results(self, message: m.StageRunRef) -> m.StageRunResults:
        return await self._service.stages.results(message.run_id, message.offset)

    @answers(ResourceManagerGateway.drop_stages)
    async def drop_stages(self, message: m.StageRunRef) -> None:
        await self._service.stages.drop(message.run_id)

    @answers(ResourceManagerGateway.overview)
    def overview(self, _: m.Empty) -> m.ClusterOverview:
        return overview(self._core)

    @answers(ResourceManagerGateway.set_slots)
    async def set_slots(self, message: m.SetSlots) -> None:
        if message.slots < 1:
            raise RpcFault(RpcCode.BAD_REQUEST, f"a TaskManager has at least one slot, not {message.slots}")
        await self._service.set_slots(message.taskmanager_id, message.slots)

    @answers(ResourceManagerGateway.shut_down)
    def shut_down(self, _: m.Empty) -> None:
        self._service.request_stop(Leaving.END_ALL)


def routes(service: ResourceManagerService, secret: str, clock: Clock) -> list[web.RouteDef]:
    """All routes of the service. Calls of registered peers carry the token that they got with their registration."""
    calls = _Calls(service)
    refusals: dict[type[Exception], RpcCode] = {
        UnregisteredJobError: RpcCode.NOT_FOUND,
        UnregisteredTaskManagerError: RpcCode.NOT_FOUND,
        FormerJobMasterError: RpcCode.GONE,
    }
    check = by_token(lambda _: service.token)
    return rpc_routes(
        handlers_of(ResourceManagerGateway, _Calls, lambda _: calls, check, refusals), secret, clock=clock
    )


def overview(core: ResourceManagerCore) -> m.ClusterOverview:
    """TaskManagers and slots, as REST's /taskmanagers shows them."""
    taskmanagers = tuple(_taskmanager(t) for t in core.table.taskmanagers.values())
    total = sum(t["slotsNumber"] for t in taskmanagers)
    return m.ClusterOverview(taskmanagers, total, sum(t["freeSlots"] for t in taskmanagers))


def _taskmanager(taskmanager: RegisteredTaskManager) -> dict[str, Any]:
    slots = list(taskmanager.slots.values())
    taken_slots = [s for s in slots if s.state is not SlotState.FREE]
    hardware = {"cpuCores": 0, "physicalMemory": 0, "freeMemory": 0, "managedMemory": 0, **taskmanager.hardware}
    memory = {**_NO_MEMORY, **taskmanager.memory_configuration}

    def resource(count: int) -> dict[str, Any]:
        """The share of ``count`` slots in the TaskManager's resources; memory in whole MB."""
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
        "freeSlots": len(slots) - len(taken_slots),
        "totalResource": resource(len(slots)),
        "freeResource": resource(len(slots) - len(taken_slots)),
        "hardware": hardware,
        "memoryConfiguration": memory,
        "allocatedSlots": [
            {"jobId": s.job_id, "allocationId": s.allocation_id, "resource": resource(1)} for s in taken_slots
        ],
    }
