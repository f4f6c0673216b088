"""Operators with broadcast state, and functions with operator state."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from firesteel.common.typeinfo import Types
from firesteel.core.errors import ProgramError
from firesteel.functions.broadcast import BroadcastProcessFunction, KeyedBroadcastProcessFunction
from firesteel.functions.checkpointed import (
    CheckpointedFunction,
    FunctionInitializationContext,
    FunctionSnapshotContext,
)
from firesteel.functions.functions import MapFunction, RuntimeContext
from firesteel.functions.state import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from firesteel.functions.timerservice import TimeDomain
from firesteel.graph.specs import OperatorKind, OutputSpec, PartitionerKind
from firesteel.runtime.chain.chain import ChainPlan
from firesteel.runtime.chain.partitioners import SingleOutput
from firesteel.runtime.records.batch import MIN_WATERMARK, Batch, Watermark
from tests.unit.runtime.support import FakeOutput, ManualClock, executor_of, line, opened, run, spec

RULES = MapStateDescriptor("rules", Types.STRING(), Types.INT())
COUNT = ValueStateDescriptor("count", Types.LONG())
FORWARD = OutputSpec(0, 0, PartitionerKind.FORWARD)
first = lambda value: value[0]  # noqa: E731


def plan_of(kind: OperatorKind, function: Any, **more: Any) -> tuple[ChainPlan, FakeOutput]:
    extra = {"broadcast_states": (RULES,)}
    plan = opened(line(spec(kind, function, extra=extra, **more), outputs=[FORWARD]))
    out = FakeOutput()
    plan.root.outlet.outputs.append(SingleOutput("op", [out]))
    return plan, out


class Price(BroadcastProcessFunction[str, tuple[str, int], tuple[str, Any]]):
    def process_element(self, value: str, ctx: Any) -> Iterator[tuple[str, Any]]:
        assert ctx.current_processing_time() == ManualClock().epoch_ms()
        yield value, ctx.get_broadcast_state(RULES).get(value)

    def process_broadcast_element(self, value: tuple[str, int], ctx: Any) -> Any:
        state = ctx.get_broadcast_state(RULES)
        if value[1] < 0:
            state.remove(value[0])
        else:
            state.put(*value)


def test_the_broadcast_side_writes_and_the_other_reads() -> None:
    plan, out = plan_of(OperatorKind.BROADCAST_PROCESS, Price())
    run(plan, ["a"])
    run(plan, [("a", 1), ("b", 2)], input_index=1)
    run(plan, ["a", "b", "c"])
    run(plan, [("a", -1)], input_index=1)
    run(plan, ["a"])
    assert out.values == [("a", None), ("a", 1), ("b", 2), ("c", None), ("a", None)]


class Wrong(Price):
    def __init__(self, descriptor: Any, write: bool = False) -> None:
        self.descriptor, self.write = descriptor, write

    def process_element(self, value: str, ctx: Any) -> Any:
        state = ctx.get_broadcast_state(self.descriptor)
        if self.write:
            state.put("x", 1)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (
            Wrong(MapStateDescriptor("rulez", Types.STRING(), Types.INT())),
            r"'rulez', but broadcast\(\) was called with",
        ),
        (Wrong(MapStateDescriptor("rules", Types.STRING(), Types.STRING())), "called with MapStateDescriptor"),
        (Wrong(COUNT), "takes a MapStateDescriptor"),
        (Wrong(RULES, write=True), "can be changed in process_broadcast_element"),
    ],
)
def test_wrong_uses_of_broadcast_state_are_named(function: Any, message: str) -> None:
    plan, _ = plan_of(OperatorKind.BROADCAST_PROCESS, function)
    with pytest.raises(ProgramError, match=message):
        run(plan, ["a"])


class Counting(KeyedBroadcastProcessFunction[str, tuple[str, int], str, Any]):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(COUNT)

    def process_element(self, value: tuple[str, int], ctx: Any) -> Iterator[Any]:
        seen = (self.count.value() or 0) + 1
        self.count.update(seen)
        yield ctx.get_current_key(), seen, ctx.get_broadcast_state(RULES).get(value[0])

    def process_broadcast_element(self, value: str, ctx: Any) -> Any:
        if value == "state":
            self.count.value()
        elif value == "all":
            counts: list[Any] = []
            ctx.apply_to_keyed_state(COUNT, lambda key, state: counts.append((key, state.value())))
            ctx.apply_to_keyed_state(COUNT, lambda key, state: state.clear() if key == "a" else state.update(100))
            with pytest.raises(ProgramError, match="where there is no key"):
                self.count.value()
            return counts
        else:
            ctx.get_broadcast_state(RULES).put(value, 1)
        return None


def test_keyed_state_is_reached_from_both_sides() -> None:
    plan, out = plan_of(OperatorKind.KEYED_BROADCAST_PROCESS, Counting(), key_selectors=(first,))
    run(plan, [("a", 1), ("b", 1), ("a", 1)])
    run(plan, ["b", "all"], input_index=1)
    run(plan, [("a", 1), ("b", 1)])
    assert out.values == [
        ("a", 1, None),
        ("b", 1, None),
        ("a", 2, None),
        ("a", 2),
        ("b", 1),
        ("a", 1, None),
        ("b", 101, 1),
    ]


def test_the_broadcast_side_has_no_key() -> None:
    plan, _ = plan_of(OperatorKind.KEYED_BROADCAST_PROCESS, Counting(), key_selectors=(first,))
    run(plan, [("a", 1)])
    with pytest.raises(ProgramError, match="apply_to_keyed_state"):
        run(plan, ["state"], input_index=1)


class Alarm(KeyedBroadcastProcessFunction[str, tuple[str, int], str, Any]):
    """Sets a timer with each record; a timer reads keyed state and broadcast state."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(COUNT)

    def process_element(self, value: tuple[str, int], ctx: Any) -> Any:
        self.count.update(value[1])
        ctx.timer_service().register_event_time_timer(value[1])

    def process_broadcast_element(self, value: str, ctx: Any) -> Any:
        assert not hasattr(ctx, "timer_service")
        ctx.get_broadcast_state(RULES).put(value, 7)
        yield "watermark", ctx.current_watermark()

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        with pytest.raises(ProgramError, match="process_broadcast_element"):
            ctx.get_broadcast_state(RULES).clear()
        assert ctx.timestamp() == timestamp
        assert ctx.time_domain() is TimeDomain.EVENT_TIME
        key = ctx.get_current_key()
        yield key, timestamp, self.count.value(), ctx.get_broadcast_state(RULES).get(key)


def test_timers_have_the_key_and_read_broadcast_state() -> None:
    plan, out = plan_of(OperatorKind.KEYED_BROADCAST_PROCESS, Alarm(), key_selectors=(first,))
    executor = executor_of(plan)
    for values, side in (([("a", 5), ("b", 4), ("c", 50)], 0), (["a"], 1)):
        executor.feed(Batch(values), side)
        while executor.pending:
            executor.step()
    executor.advance(Watermark(10))
    while executor.pending:
        executor.step()
    executor.feed(Batch(["b"]), 1)
    while executor.pending:
        executor.step()
    assert out.values == [("watermark", MIN_WATERMARK), ("b", 4, 4, None), ("a", 5, 5, 7), ("watermark", 10)]


class Numbered(MapFunction[str, Any], CheckpointedFunction):
    """Remembers what it has seen in operator state."""

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        assert not context.is_restored()
        self.seen = context.get_operator_state_store().get_list_state(ListStateDescriptor("seen", Types.STRING()))
        with pytest.raises(ProgramError, match="not on a keyed stream"):
            context.get_keyed_state_store()

    def open(self, runtime_context: RuntimeContext) -> None:
        assert list(self.seen.get()) == [], "state is there before open()"

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        raise AssertionError("there are no checkpoints")

    def map(self, value: str) -> Any:
        self.seen.add(value)
        return list(self.seen.get())


def test_functions_with_operator_state_get_it_before_they_are_opened() -> None:
    plan, out = plan_of(OperatorKind.MAP, Numbered())
    run(plan, ["x", "y"])
    assert out.values == [["x"], ["x", "y"]]
