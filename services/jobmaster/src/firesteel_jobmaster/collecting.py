"""Results of a collect operator on their way from a slot to the client."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from firesteel.core.errors import RpcError
from firesteel.graph.execution_graph import Execution
from firesteel.graph.execution_states import ExecutionState
from firesteel.protocol import messages as m
from firesteel.protocol.gateways import TaskManagerGateway
from firesteel.protocol.message import RpcCode, RpcFault
from firesteel_jobmaster.core import JobMasterCore

LONGEST_WAIT_MS = 60_000
ASK_AGAIN = 0.05
"""Seconds after which a slot is asked again that answered too early, or does not know the task yet."""
_RESTARTED = (
    "Job {name!r} was restarted from its beginning after it had given {offset} results: those that come now may repeat "
    "them, or differ. Take checkpoints (execution.checkpointing.interval), or let it fail "
    "(restart-strategy.type: none)."
)
_READABLE = (ExecutionState.INITIALIZING, ExecutionState.RUNNING, ExecutionState.FINISHED)


async def collect(
    core: JobMasterCore,
    message: m.CollectFromJob,
    gateway_of: Callable[[str], TaskManagerGateway | None],
    changed: Callable[[], asyncio.Event],
) -> m.CollectedFromJob:
    """Ask the slot that holds the results for some; wait for the slot and its results, as long as the client asks.

    Args:
        core: of the job.
        message: what the client wants.
        gateway_of: gateway of a TaskManager.
        changed: an event that is set at the next change in the job.

    Returns:
        Results, or none after the wait; ``end`` when none will come, for instance because the job has ended.

    Raises:
        ProtocolError: the job has no such operator.
        RpcFault: the client has results of an attempt that was given up.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + min(max(message.wait_ms, 0), LONGEST_WAIT_MS) / 1000
    has_asked = False
    core.collector(message.operator_id)
    while not core.is_terminal:
        remaining = deadline - loop.time()
        if remaining <= 0 and has_asked:
            break
        has_asked = True
        execution = core.collector(message.operator_id)
        # Where checkpoints are taken, the slot gives only results that are in a completed one: these never repeat.
        had_ended = core.checkpoints.has_finished(execution)
        repeats = not (execution.results_given or had_ended or core.checkpoints.coordinator.is_periodic)
        if message.offset and execution.state in _READABLE and repeats:
            raise RpcFault(RpcCode.GONE, _RESTARTED.format(name=core.graph.job_graph.name, offset=message.offset))
        if _has_given_all(core, execution):
            break
        if execution.state is ExecutionState.FINISHED and not core.holds_slot_of(execution):
            break  # all results were taken before it finished, and its slot has been given back
        event = changed()
        gateway = gateway_of(execution.slot.taskmanager_id) if execution.slot is not None else None
        if gateway is not None and execution.state in _READABLE:
            wait_ms = max(0, int(remaining * 1000))
            allocation = execution.slot.allocation_id if execution.slot is not None else ""
            job_id = core.graph.job_graph.job_id
            request = m.Collect(execution.id, message.offset, message.max_bytes, wait_ms, job_id, allocation)
            answer = await _until_the_end(gateway.collect(request), core, changed)
            if answer is not None and (answer.count or answer.end):
                execution.results_given = True
                return m.CollectedFromJob(answer.offset, answer.count, answer.end, answer.data, core.state.name)
            remaining = min(deadline - loop.time(), ASK_AGAIN)
        if remaining > 0:
            try:
                await asyncio.wait_for(event.wait(), remaining)
            except TimeoutError:
                pass
    execution = core.collector(message.operator_id)
    end = core.is_terminal or execution.state is ExecutionState.FINISHED or _has_given_all(core, execution)
    return m.CollectedFromJob(message.offset, 0, end, "", core.state.name)


def _has_given_all(core: JobMasterCore, execution: Execution) -> bool:
    """Whether the client took all results before the job began to commit: the task had finished by then."""
    waits = execution.vertex.needs_commit or core.checkpoints.coordinator.commits_at_end
    return not waits and core.checkpoints.has_finished(execution)


async def _until_the_end(
    call: Coroutine[Any, Any, m.Collected], core: JobMasterCore, changed: Callable[[], asyncio.Event]
) -> m.Collected | None:
    """The answer of a call; None if it fails, or the job ends before it comes."""
    loop = asyncio.get_running_loop()
    asking = loop.create_task(call)
    try:
        while not asking.done() and not core.is_terminal:
            waiting = loop.create_task(changed().wait())
            await asyncio.wait((asking, waiting), return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()
        return asking.result() if asking.done() else None
    except RpcError:
        return None
    finally:
        asking.cancel()
