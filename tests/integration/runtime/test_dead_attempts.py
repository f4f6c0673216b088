"""What an attempt leaves behind in a slot when the next one comes: nothing of the user's."""

from __future__ import annotations

import time
import weakref
from collections.abc import Sequence
from typing import Any

import pytest

from firesteel.common.typeinfo import Types
from firesteel.functions.async_functions import AsyncFunction
from firesteel.functions.functions import KeyedProcessFunction, KeySelector, MapFunction
from firesteel.functions.sink import Sink, SinkWriter
from firesteel.functions.state import ValueStateDescriptor
from firesteel.graph.specs import OperatorKind, OutputSpec, PartitionerKind
from tests.integration.runtime.chains import line, numbers, spec, split
from tests.integration.runtime.slot_process import SlotProcess

ALIVE: weakref.WeakSet[Any] = weakref.WeakSet()
"""In the slot's process: what user code has made there."""


class Noted:
    """Knows how many of attempts before are there when it is opened."""

    def open(self, runtime_context: Any) -> None:
        self.attempt = runtime_context.get_attempt_number()
        ALIVE.add(self)


class Map(Noted, MapFunction[Any, Any]):
    def map(self, value: Any) -> Any:
        if value == 7:
            raise ValueError("seven")
        return value


class SlowMap(Map):
    blocking = True


class Key(Noted, KeySelector[Any, Any]):
    def get_key(self, value: Any) -> Any:
        return value % 3


class Count(Noted, KeyedProcessFunction[Any, Any, Any]):
    def open(self, runtime_context: Any) -> None:
        super().open(runtime_context)
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: Any, ctx: Any) -> Any:
        self.count.update((self.count.value() or 0) + 1)
        ctx.timer_service().register_processing_time_timer(int(time.time() * 1000) + 3_600_000)
        yield value


class Call(Noted, AsyncFunction[Any, Any]):
    async def async_invoke(self, value: Any) -> list[Any]:
        return [value]


class Writes(Sink[Any]):
    def create_writer(self, context: Any) -> SinkWriter[Any]:
        return Writer(context)


class Writer(SinkWriter[Any]):
    def __init__(self, context: Any) -> None:
        self.attempt, self.context = context.attempt, context
        ALIVE.add(self)

    def open(self) -> None:
        self.context.register_timer(int(time.time() * 1000) + 3_600_000, self.write)
        print("left:", sorted({type(living).__name__ for living in ALIVE if living.attempt < self.attempt}))

    def write(self, values: Sequence[Any], timestamps: Any) -> None:
        print(f"wrote {list(values)}")


EXTRA = {"ordered": True, "capacity": 2, "timeout_ms": 0, "retry": None}


def deploy(slot: SlotProcess, attempt: int) -> list[str]:
    """Source, map and call -> process by key in a thread of its own, and sink."""
    key = Key()
    tasks = slot.deploy(
        [
            line(
                numbers(0, 0),
                spec(OperatorKind.MAP, Map()),
                spec(OperatorKind.ASYNC_WAIT, Call(), extra=EXTRA),
                output=OutputSpec(2, 0, PartitionerKind.HASH, key_selector=key),  # type: ignore[arg-type]
            ),
            line(
                spec(OperatorKind.KEYED_PROCESS, Count(), key_selectors=(key,)),
                output=OutputSpec(0, 1, PartitionerKind.FORWARD),
            ),
            line(spec(OperatorKind.MAP, SlowMap()), output=OutputSpec(0, 2, PartitionerKind.FORWARD)),
            line(spec(OperatorKind.SINK, Writes())),
        ],
        [(0, 1, "HASH"), (1, 2, "FORWARD"), (2, 3, "FORWARD")],
        attempt=attempt,
    )
    for task in tasks:
        slot.wait_for_state("RUNNING", task)
    return tasks


@pytest.mark.parametrize("end", ["cancel", "failure"])
def test_nothing_of_a_dead_attempt_stays_in_memory(slot: SlotProcess, end: str) -> None:
    for attempt in range(3):
        tasks = deploy(slot, attempt)
        slot.wait_for("request_splits", lambda m, source=tasks[0]: m["execution_id"] == source)  # type: ignore[misc]
        numbers_given = split(0, 3) if end == "cancel" else split(0, 8)
        slot.send({"type": "assign_splits", "execution_id": tasks[0], "splits": [numbers_given], "no_more": False})
        while slot.printed().count("wrote") <= attempt:
            assert slot.pump(100)
        if end == "failure":
            slot.wait_for_state("FAILED", tasks[0])
        slot.send({"type": "cancel", "execution_ids": tasks, "interval_ms": 60_000})
        for task in tasks[end == "failure" :]:
            slot.wait_for_state("CANCELED", task)
    left = [text for text in slot.printed().splitlines() if text.startswith("left")]
    assert left == ["left: []"] * 3
    assert slot.release() == "OUTCOME RETURNED"
