"""What others may see of a TaskManager: threads, logs, metrics, and what the tasks in its slots spend their time on."""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict
from typing import Any, Final

from firesteel.core.stacks import dump_threads
from firesteel.protocol import messages as m
from firesteel.protocol.gateways import InspectionGateway
from firesteel.protocol.message import RpcFault
from firesteel.rpc import answers
from firesteel.rpc.process_calls import LOGS, seconds_of
from firesteel.service.measured import TASKMANAGER, Measured
from firesteel.service.process_logs import ProcessLogs
from firesteel.service.process_metrics import process_values
from firesteel_taskmanager.core import TaskManagerCore
from firesteel_taskmanager.slot_messages import SlotMessages

logger = logging.getLogger(__name__)
_SLOT_SECONDS: Final = 5.0


class Inspection:
    """Answers ``InspectionGateway`` for a TaskManager.

    Args:
        core: knows slots and tasks.
        slots: asks slots.
        logs: of this process and its slots.
        measured: gives the figures of this process.
    """

    def __init__(
        self,
        core: TaskManagerCore,
        slots: SlotMessages,
        logs: ProcessLogs,
        measured: Callable[[], Awaitable[Sequence[Measured]]],
    ) -> None:
        self._core, self._slots, self._logs, self._measured = core, slots, logs, measured

    @answers(InspectionGateway.process_metrics)
    async def process_metrics(self, _: m.Empty) -> m.ProcessMetrics:
        slots = {
            slot.allocation_id: {
                "firesteel-slot": slot.index,
                "firesteel-memory": slot.process.memory,
                "firesteel-cpu": round(slot.process.cpu_load, 3),
            }
            for slot in self._core.slots
            if slot.process is not None and slot.process.memory
        }
        return m.ProcessMetrics(process_values(await self._measured(), TASKMANAGER), slots)

    @answers(InspectionGateway.thread_dump)
    async def thread_dump(self, _: m.Empty) -> m.ThreadDump:
        slots = [(slot.index, slot.process.channel) for slot in self._core.slots if slot.process is not None]
        of_slots = await asyncio.gather(*(self._threads_of(index, channel) for index, channel in slots))
        return m.ThreadDump((*dump_threads(), *(thread for threads in of_slots for thread in threads)))

    async def _threads_of(self, index: int, channel: int) -> list[dict[str, str]]:
        try:
            threads = await self._slots.inspect(channel, _SLOT_SECONDS, {"executions": []})
        except RpcFault as error:
            return [{"threadName": f"slot {index}", "stringifiedThreadInfo": str(error)}]
        return [
            {
                "threadName": f"slot {index}: {thread['threadName']}",
                "stringifiedThreadInfo": f"slot {index}: {thread['stringifiedThreadInfo']}",
            }
            for thread in threads
        ]

    @answers(InspectionGateway.list_logs)
    def list_logs(self, _: m.Empty) -> m.LogList:
        return m.LogList(tuple(asdict(log) for log in self._logs.listed()), self._logs.main, self._logs.stdout)

    @answers(InspectionGateway.read_log)
    async def read_log(self, message: m.ReadLog) -> m.LogPart:
        part = await LOGS.call(self._logs.read, message.name, message.offset, message.length)
        return m.LogPart(part.size, part.offset, base64.b64encode(part.data).decode("ascii"))

    @answers(InspectionGateway.sample_stacks)
    async def sample_stacks(self, message: m.SampleStacks) -> m.StackSamples:
        seconds = seconds_of(message)
        requests: list[Any] = []
        subtasks: dict[str, str] = {}
        for slot in self._core.slots.of_job(message.job_id):
            of_slot = {
                task.execution_id: str(task.descriptor.get("subtask", -1))
                for task in slot.tasks.values()
                if not task.is_final
                and task.descriptor.get("vertex_id") == message.vertex_id
                and message.subtask in (-1, task.descriptor.get("subtask"))
            }
            if of_slot and slot.process is not None:
                subtasks |= of_slot
                fields = {
                    "executions": list(of_slot),
                    "samples": message.samples,
                    "interval_ms": message.interval_ms,
                    "depth": message.depth,
                }
                requests.append(self._slots.inspect(slot.process.channel, seconds * 2 + _SLOT_SECONDS, fields))
        samples_by_subtask: dict[str, Any] = {}
        for answer in await asyncio.gather(*requests, return_exceptions=True):
            if isinstance(answer, RpcFault):
                logger.info("stacks of vertex %s: %s", message.vertex_id, answer)
            elif isinstance(answer, BaseException):
                raise answer
            else:
                samples_by_subtask |= {subtasks[execution_id]: samples for execution_id, samples in answer.items()}
        return m.StackSamples(samples_by_subtask)

    @answers(InspectionGateway.find_hot_keys)
    async def find_hot_keys(self, message: m.FindHotKeys) -> m.HotKeys:
        requests: list[Any] = []
        for slot in self._core.slots.of_job(message.job_id):
            executions = [
                task.execution_id
                for task in slot.tasks.values()
                if not task.is_final and task.descriptor.get("vertex_id") in message.vertices
            ]
            if executions and slot.process is not None:
                fields = {"executions": executions, "hot_keys": message.most}
                requests.append(self._slots.inspect(slot.process.channel, _SLOT_SECONDS, fields))
        outputs: list[Any] = []
        failures: list[str] = []
        for answer in await asyncio.gather(*requests, return_exceptions=True):
            if isinstance(answer, RpcFault):
                failures.append(str(answer))
            elif isinstance(answer, BaseException):
                raise answer
            else:
                outputs += answer
        return m.HotKeys(tuple(outputs), tuple(failures))
