"""What is off costs nothing: calls are counted, of a whole job with checkpoints and of a slot."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from firesteel.graph.execution_states import ExecutionState
from firesteel.otel.settings import OtlpReporter
from firesteel.runtime.slot.slot import Slot
from firesteel.runtime.slot.telemetry import SlotTelemetry
from firesteel.traces.context import TraceContext
from firesteel.traces.tracing import Tracing
from tests.unit.runtime.mini_job import SHELVES, MiniJob, Shelf
from tests.unit.runtime.support import ManualClock
from tests.unit.runtime.test_exactly_once import keyed
from tests.unit.runtime.test_slot_telemetry import TASK, deployment

WATCHED = ("/firesteel/traces/", "/firesteel/otel/", "/slot/telemetry.py", "/opentelemetry/", "/service/otlp_")
RECORDS = [[("a", 1), ("b", 2), ("a", 3)] * 50]


def counted(work: Callable[[], None]) -> int:
    """Calls of what exports, and of OpenTelemetry, while something is done."""
    calls = 0

    def profile(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal calls
        if event == "call" and any(part in frame.f_code.co_filename for part in WATCHED):
            calls += 1

    sys.setprofile(profile)
    try:
        work()
    finally:
        sys.setprofile(None)
    return calls


def run(tracing: Tracing | None) -> None:
    """A job to its end, with checkpoints."""
    SHELVES["shelf"] = Shelf()
    job = MiniJob(keyed([1, 1, 1]), {"source": RECORDS}, 1)
    try:
        if tracing is not None:
            for task in job.tasks.values():
                task.within = tracing.below(TraceContext.new())
        job.steps(50)
        job.trigger()
        job.steps(2000)
    finally:
        job.crash()
        del SHELVES["shelf"]


def traced() -> Tracing:
    return Tracing([OtlpReporter("o", "http://127.0.0.1:9/v1/traces", timeout=0.1)], "slot")


def test_a_job_that_is_not_traced_calls_nothing_of_it() -> None:
    assert counted(lambda: run(None)) == 0
    tracing = traced()
    try:
        assert counted(lambda: run(tracing)) > 50, "this would not see it"
    finally:
        tracing.close()


class Guards:
    """In the place of what a slot asks for the task that a thread runs."""

    main = None

    def guards(self) -> tuple[()]:
        return ()


def test_a_slot_whose_tasks_are_not_traced_calls_nothing_of_it() -> None:
    clock = ManualClock()
    slot = object.__new__(Slot)
    slot._telemetry, slot._channel, slot._guards = None, None, []
    slot._restores = Guards()  # type: ignore[assignment]
    slot._job_fields, slot._task_fields = {}, {}

    class State:
        def to_bytes(self) -> bytes:
            return b""

    def work() -> None:
        for number in range(10):
            slot.state(TASK.execution_id, ExecutionState.RUNNING, None, {})
            slot.acknowledge_checkpoint(TASK.execution_id, number, {"async_ms": 1}, State())  # type: ignore[arg-type]
            slot.log_fields()

    assert counted(work) == 0
    slot._telemetry = SlotTelemetry("allocation", clock)
    slot._telemetry.begin(deployment({}), TASK, 0, 0)
    assert counted(work) >= 30, "this would not see it"
