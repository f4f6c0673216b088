"""Timers that fire on one watermark give way to a cancel."""

from __future__ import annotations

from typing import Any

import pytest

from firesteel.functions.functions import KeyedProcessFunction
from firesteel.graph.execution_states import ExecutionState
from firesteel.graph.specs import OperatorKind as K
from firesteel.graph.specs import PartitionerKind as P
from firesteel.runtime.task import task as task_module
from tests.unit.runtime.mini_job import MiniJob, Vertex
from tests.unit.runtime.test_exactly_once import key_of, operator, source

KEYS = 30_000
FIRED: list[Any] = []


class AllAtOnce(KeyedProcessFunction[Any, Any, Any]):
    def process_element(self, value: Any, ctx: Any) -> None:
        ctx.timer_service().register_event_time_timer(1 << 40)

    def on_timer(self, timestamp: int, ctx: Any) -> None:
        FIRED.append(ctx.get_current_key())


def test_a_task_is_cancelled_while_all_its_timers_fire(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_module, "STEP_SECONDS", -1.0)  # a step is one slice
    FIRED.clear()
    timers = operator("timers", K.KEYED_PROCESS, AllAtOnce(), key_selectors=(key_of,))
    vertices = [
        Vertex("source", source("source"), 1),
        Vertex("timers", lambda: [timers], 1, [("source", P.HASH, key_of)]),
    ]
    job = MiniJob(vertices, {"source": [[(key, 0) for key in range(KEYS)]]}, 1)
    try:
        while not FIRED:  # the end of the input is the watermark at which all are due
            job.steps(1)
        assert job.states["timers", 0] is ExecutionState.RUNNING
        job.tasks["timers", 0].cancel()
        job.steps(100)
        assert job.tasks["timers", 0].ended
        assert 0 < len(FIRED) < KEYS / 2
    finally:
        job.crash()
