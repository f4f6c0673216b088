"""The last stage of a bounded job: it commits what the sinks have prepared. It may be run again, by any process."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from firesteel.core.clock import Clock
from firesteel.functions.two_phase import Committable
from firesteel.runtime.bounded.blobs import plain_report
from firesteel.runtime.loop.interrupts import InterruptGuard
from firesteel.runtime.loop.loop import TaskLoop
from firesteel.runtime.operator_base.context import OperatorContext, TaskInfo
from firesteel.runtime.operator_base.restored import OperatorRestored
from firesteel.runtime.operators import SinkOperator, create_operator
from firesteel.runtime.slot.user_code import load_chain

CHECKPOINT = 1
"""The id of the only checkpoint, at the end, for which sinks prepare."""


def plain_committable(committable: Committable) -> list[Any]:
    return [committable.version, base64.b64encode(committable.data).decode()]


def committable_of(plain: Sequence[Any]) -> Committable:
    """Decode what ``plain_committable`` has made, as the committer gets it."""
    return Committable(base64.b64decode(plain[1]), plain[0], CHECKPOINT)


def commit(
    info: TaskInfo, clock: Clock, blobs: Mapping[str, bytes], elements: Sequence[bytes], partition: int
) -> Iterator[bytes]:
    """Commit what each subtask of each sink has prepared.

    Args:
        info: description of this task.
        clock: clock of this task.
        blobs: blobs of the job.
        elements: JSON lists of the chain's blob, the operator, subtask, parallelism, and its committables.
        partition: partition of the report for the driver.
    """
    count = 0
    for element in elements:
        for work in json.loads(bytes(element)):
            committables = [committable_of(plain) for plain in work["committables"]]
            _commit_one(info, clock, blobs[work["chain"]], work, committables)
            count += len(committables)
    report = {"vertex": info.execution_id, "subtask": 0, "attempt": info.attempt, "committed": count}
    yield partition.to_bytes(8, "big")
    yield plain_report(report)


def _commit_one(
    info: TaskInfo, clock: Clock, chain: bytes, work: Mapping[str, Any], committables: list[Committable]
) -> None:
    spec = next(operator for operator in load_chain(chain).operators if operator.id == work["operator"])
    sink = create_operator(spec)
    assert isinstance(sink, SinkOperator)
    loop, guard = TaskLoop(clock), InterruptGuard()
    errors: list[BaseException] = []
    loop.on_error = errors.append
    subtask = TaskInfo(
        info.job_id, info.job_name, info.execution_id, spec.name, work["subtask"], work["parallelism"],
        info.max_parallelism, info.attempt, info.job_parameters,
    )  # fmt: skip
    context = OperatorContext(subtask, clock, call_later=lambda seconds, call: _later(loop, seconds, call))
    sink.restored = OperatorRestored(CHECKPOINT, subtask.subtask, subtask.parallelism, committables=committables)
    try:
        guard.active = None
        sink.open_to_commit(context)
        while not sink.drained and not errors:
            loop.run_once()
        if errors:
            raise errors[0]
    finally:
        sink.close()
        loop.close()


def _later(loop: TaskLoop, seconds: float, call: Any) -> None:
    loop.call_later(seconds, call)
