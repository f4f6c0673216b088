"""User functions of the programs: with state of every kind, and results that do not depend on who comes first."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from firesteel.common import Types
from firesteel.datastream import (
    AggregateFunction,
    AsyncFunction,
    FlatMapFunction,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    MapFunction,
    ProcessJoinFunction,
    ProcessWindowFunction,
    RuntimeContext,
)
from firesteel.datastream.state import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from firesteel.functions.checkpointed import CheckpointedFunction
from tests.integration.recovery import steps

RULES: Final = MapStateDescriptor("rules", Types.LONG(), Types.LONG())
WAITING: Final = ListStateDescriptor("waiting", Types.PICKLED_BYTE_ARRAY())
RECORDS_OF_A_RULE: Final = 40
AT_THE_END: Final = 1 << 60
"""A time that comes with the end of the input."""


class Watched(MapFunction, CheckpointedFunction):  # type: ignore[type-arg]
    """Gives each record on. Somebody may die between two of them, and in the synchronous part of a checkpoint."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._seen = 0

    def initialize_state(self, context: Any) -> None: ...

    def snapshot_state(self, context: Any) -> None:
        steps.at(self._folder, steps.SYNC)

    def map(self, value: Any) -> Any:
        self._seen += 1
        if self._seen % 64 == 0:
            steps.at(self._folder, steps.RECORD)
        return value


class InPairs(FlatMapFunction, CheckpointedFunction):  # type: ignore[type-arg]
    """Holds a record back until the next one comes, or none will come of its split: operator state."""

    def __init__(self) -> None:
        self._held: list[Any] = []

    def initialize_state(self, context: Any) -> None:
        self._state = context.get_operator_state_store().get_list_state(
            ListStateDescriptor("held", Types.PICKLED_BYTE_ARRAY())
        )
        self._held = list(self._state.get())

    def snapshot_state(self, context: Any) -> None:
        self._state.update(self._held)

    def flat_map(self, value: Any) -> Iterator[Any]:
        self._held.append(value)
        if len(self._held) >= 2 or value[4]:
            batch, self._held = self._held, []
            yield from batch


class CountBySplit(KeyedProcessFunction):  # type: ignore[type-arg]
    """Each record with its number among those of its key and split; and how many there are of the key."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.total = runtime_context.get_state(ValueStateDescriptor("total", Types.LONG()))
        self.of_split = runtime_context.get_map_state(
            MapStateDescriptor("of split", Types.STRING(), Types.PICKLED_BYTE_ARRAY())
        )

    def process_element(self, value: Any, ctx: Any) -> Iterator[str]:
        total = (self.total.value() or 0) + 1
        self.total.update(total)
        count, before = self.of_split.get(value[2]) or (0, -1)
        self.of_split.put(value[2], (count + 1, value[3]))
        yield f"{value[0]},{value[2]},{value[3]},{count + 1},{before}"
        yield f"{value[0]},{total}"


class Timers(KeyedProcessFunction):  # type: ignore[type-arg]
    """Each record once by a timer in event time, and once by one in processing time."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.event = runtime_context.get_map_state(
            MapStateDescriptor("event", Types.LONG(), Types.PICKLED_BYTE_ARRAY())
        )
        self.processing = runtime_context.get_list_state(ListStateDescriptor("processing", Types.PICKLED_BYTE_ARRAY()))

    def process_element(self, value: Any, ctx: Any) -> None:
        timers, due = ctx.timer_service(), value[1] + 40
        self.event.put(due, [*(self.event.get(due) or []), (value[2], value[3])])
        timers.register_event_time_timer(due)
        self.processing.add((value[2], value[3]))
        timers.register_processing_time_timer(timers.current_processing_time() // 20 * 20 + 40)
        timers.register_event_time_timer(AT_THE_END)

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[str]:
        at_once = self.event.get(timestamp)
        if at_once is not None:
            self.event.remove(timestamp)
            yield from (f"event,{timestamp},{split},{number}" for split, number in at_once)
        if timestamp > 1 << 40 or at_once is None:
            waiting = list(self.processing.get())
            self.processing.clear()
            yield from (f"processing,{split},{number}" for split, number in waiting)


class Sum(AggregateFunction):  # type: ignore[type-arg]
    """Count and sum of numbers."""

    def create_accumulator(self) -> tuple[int, int]:
        return 0, 0

    def add(self, value: Any, accumulator: tuple[int, int]) -> tuple[int, int]:
        return accumulator[0] + 1, accumulator[1] + int(value[3])

    def get_result(self, accumulator: tuple[int, int]) -> tuple[int, int]:
        return accumulator

    def merge(self, acc_a: tuple[int, int], acc_b: tuple[int, int]) -> tuple[int, int]:
        return acc_a[0] + acc_b[0], acc_a[1] + acc_b[1]


class Windowed(ProcessWindowFunction):  # type: ignore[type-arg]
    """A window's aggregate as text, with the number of windows of the key before it in state.

    Args:
        name: of the kind of window.
        ordered: windows of a key end one after the other, so that they can be counted.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._fired = ValueStateDescriptor("fired", Types.LONG())

    def process(self, key: Any, context: Any, elements: Iterable[Any]) -> Iterator[str]:
        window, ((count, total),) = context.window(), list(elements)
        fired = context.global_state().get_state(self._fired)
        fired.update((fired.value() or 0) + 1)
        yield f"{self._name},{key},{window.start},{window.end},{count},{total},{fired.value()}"


class Listed(ProcessWindowFunction):  # type: ignore[type-arg]
    """All records of a window."""

    def process(self, key: Any, context: Any, elements: Iterable[Any]) -> Iterator[str]:
        window = context.window()
        texts = " ".join(sorted(f"{element[2]}{element[3]}" for element in elements))
        yield f"listed,{key},{window.start},{window.end},{texts}"


class Pairs(ProcessJoinFunction):  # type: ignore[type-arg]
    """Both records of a pair."""

    def process_element(self, left: Any, right: Any, ctx: Any) -> Iterator[str]:
        yield f"interval,{left[2]}{left[3]},{right[2]}{right[3]}"


class Matched(KeyedCoProcessFunction):  # type: ignore[type-arg]
    """Records of both sides with one number, when the second of them is there."""

    def open(self, runtime_context: RuntimeContext) -> None:
        names = ("left", "right")
        kinds = (Types.STRING(), Types.PICKLED_BYTE_ARRAY())
        self.sides = [runtime_context.get_map_state(MapStateDescriptor(name, *kinds)) for name in names]

    def process_element1(self, value: Any, ctx: Any) -> Iterator[str]:
        return self._one(0, value)

    def process_element2(self, value: Any, ctx: Any) -> Iterator[str]:
        return self._one(1, value)

    def _one(self, side: int, value: Any) -> Iterator[str]:
        name = f"{value[2]}{value[3]}"
        if self.sides[1 - side].contains(name):
            self.sides[1 - side].remove(name)
            yield f"matched,{name}"
        else:
            self.sides[side].put(name, value)


class Ruled(KeyedBroadcastProcessFunction):  # type: ignore[type-arg]
    """Each record with its rule, as soon as both are there."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.waiting = runtime_context.get_list_state(WAITING)

    def process_element(self, value: Any, ctx: Any) -> Iterator[str]:
        rule = rule_of(value)
        if ctx.get_broadcast_state(RULES).contains(rule):
            yield self._text(value, ctx.get_broadcast_state(RULES).get(rule))
        else:
            self.waiting.add(value)

    def process_broadcast_element(self, value: Any, ctx: Any) -> Iterator[str]:
        rule, price = value[3], value[1]
        ctx.get_broadcast_state(RULES).put(rule, price)
        matching: list[Any] = []

        def look(key: Any, state: Any) -> None:
            waiting = list(state.get())
            matching.extend(element for element in waiting if rule_of(element) == rule)
            left = [element for element in waiting if rule_of(element) != rule]
            if len(left) != len(waiting):
                state.update(left)

        ctx.apply_to_keyed_state(WAITING, look)
        yield from (self._text(element, price) for element in matching)

    def _text(self, value: Any, price: int) -> str:
        return f"ruled,{value[2]}{value[3]},{price}"


def rule_of(value: Any) -> int:
    """The number of the rule that a record waits for."""
    return int(value[3]) // RECORDS_OF_A_RULE


class Looked(AsyncFunction):  # type: ignore[type-arg]
    """Answers after some moments, not in order."""

    def __init__(self, name: str) -> None:
        self._name = name

    async def async_invoke(self, value: Any) -> list[str]:
        await asyncio.sleep((value[3] * 7 % 5) / 1000)
        return [f"{self._name},{value[2]}{value[3]},{value[0]}"]
