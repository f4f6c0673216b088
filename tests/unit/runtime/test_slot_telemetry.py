"""What a slot traces of its tasks: steps of their start, phases of checkpoints; nothing where nothing is traced."""

from __future__ import annotations

from typing import Any

import pytest

from firesteel.graph.execution_states import ExecutionState
from firesteel.protocol.deployment import Deployment, Placement, TaskDescriptor
from firesteel.runtime.slot.telemetry import SlotTelemetry
from firesteel.traces.context import TraceContext
from firesteel.traces.tracing import Span
from tests.unit.runtime.support import ManualClock

JOB = "ab" * 16
TASK = TaskDescriptor("v_1_2", "v", "Map", 1, 2, 128, 2, "", False, False)
ROOT = TraceContext.new()
ATTEMPT = ROOT.below("v_1_2")


class Exports:
    """In the place of what exports."""

    def __init__(self) -> None:
        self.spans: list[Span] = []

    def export(self, spans: list[Span]) -> None:
        self.spans += spans

    def below(self, context: TraceContext, attributes: Any) -> Any:
        return (context, attributes)


def deployment(trace: dict[str, Any]) -> Deployment:
    return Deployment(
        job_id=JOB, job_name="orders", job_attempt=0, salt="", secret="", tasks=(TASK,), edges=(),
        placement=Placement({}, {}), blobs={}, main_blob=None, python_path=(), python_files=(), config={}, trace=trace,
    )  # fmt: skip


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def traced(clock: ManualClock) -> tuple[SlotTelemetry, Exports]:
    telemetry, exports = SlotTelemetry("allocation", clock), Exports()
    telemetry._tracing = exports  # type: ignore[assignment]
    telemetry.prepare(deployment({}))
    return telemetry, exports


def begin(telemetry: SlotTelemetry, clock: ManualClock) -> Any:
    now = clock.epoch_ms()
    clock.now += 0.005
    return telemetry.begin(deployment({"traceparent": ROOT.header}), TASK, now, now + 5)


def times(spans: list[Span], since: int) -> dict[str, tuple[int, int]]:
    return {span.name: (span.begin_ms - since, span.end_ms - since) for span in spans}


def test_the_steps_of_a_start_are_below_what_the_jobmaster_calls_its_start(
    traced: tuple[SlotTelemetry, Exports], clock: ManualClock
) -> None:
    telemetry, exports = traced
    since = clock.epoch_ms()
    context, attributes = begin(telemetry, clock)
    assert context == ATTEMPT
    assert attributes == {
        "job.id": JOB, "job.name": "orders", "vertex.id": "v", "vertex.name": "Map", "subtask": 1, "attempt": 2
    }  # fmt: skip
    for state in (ExecutionState.INITIALIZING, ExecutionState.RUNNING, ExecutionState.FINISHED):
        clock.now += 0.010
        telemetry.moved(TASK.execution_id, state)
    assert times(exports.spans, since) == {"Wait": (0, 5), "Build": (5, 15), "Open": (15, 25)}
    assert {span.parent for span in exports.spans} == {ATTEMPT.below("Initialize")}
    assert {span.error for span in exports.spans} == {""}
    assert telemetry._attempts == {}


def test_a_start_that_fails_says_why(traced: tuple[SlotTelemetry, Exports], clock: ManualClock) -> None:
    telemetry, exports = traced
    begin(telemetry, clock)
    telemetry.moved(TASK.execution_id, ExecutionState.INITIALIZING)
    clock.now += 0.010
    telemetry.moved(TASK.execution_id, ExecutionState.FAILED, "no such file")
    assert {span.name: span.error for span in exports.spans if span.error} == {"Open": "no such file"}


def test_phases_of_a_checkpoint_end_with_the_acknowledgement(
    traced: tuple[SlotTelemetry, Exports], clock: ManualClock
) -> None:
    telemetry, exports = traced
    begin(telemetry, clock)
    now = clock.epoch_ms()
    telemetry.acknowledged(TASK.execution_id, 7, {"alignment_ms": 20, "sync_ms": 5, "async_ms": 40})
    assert times(exports.spans, now) == {"Alignment": (-65, -45), "Sync": (-45, -40), "Async": (-40, 0)}
    above = TraceContext.of_checkpoint(JOB, 7).below(TASK.execution_id)
    assert {span.parent for span in exports.spans} == {above}
    assert exports.spans[0].attributes["checkpoint.id"] == 7


def test_what_is_not_traced_leaves_nothing(traced: tuple[SlotTelemetry, Exports]) -> None:
    telemetry, exports = traced
    assert telemetry.begin(deployment({}), TASK, 0, 0) is None
    telemetry.moved(TASK.execution_id, ExecutionState.INITIALIZING)
    telemetry.acknowledged(TASK.execution_id, 7, {})
    assert (exports.spans, telemetry._attempts) == ([], {})


def test_traces_of_checkpoints_are_told_apart() -> None:
    trace_ids = {TraceContext.of_checkpoint(job, number).trace_id for job in (JOB, "cd" * 16) for number in (1, 2)}
    assert len(trace_ids) == 4
