"""All kinds of values through one job of each mode: exchanges, state, timers, windows, side outputs, async calls."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from firesteel.common import Configuration, Duration, Time, TimestampAssigner, Types, WatermarkStrategy
from firesteel.common.nan_keys import with_one_nan
from firesteel.datastream import (
    AsyncDataStream,
    AsyncFunction,
    KeyedProcessFunction,
    MapFunction,
    OutputTag,
    ProcessFunction,
    RuntimeContext,
)
from firesteel.datastream.connectors.number_seq import NumberSequenceSource
from firesteel.datastream.functions import ProcessWindowFunction
from firesteel.datastream.state import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from firesteel.datastream.window import SlidingEventTimeWindows
from firesteel.functions.checkpointed import CheckpointListener
from tests.integration.embedded.programs import new_environment
from tests.value_zoo import KEYS, ZOO, same

pytestmark = pytest.mark.usefixtures("cluster")
PICKLED = Types.PICKLED_BYTE_ARRAY()
SIDE, OF_KEYS = OutputTag("side", PICKLED), OutputTag("keys", PICKLED)
EACH = 1000
"""Numbers of each of two subtasks; all values come with the first and the last one of all."""
TIMES = 2


class Times(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value[1])


class FailsOnce(MapFunction, CheckpointListener):  # type: ignore[type-arg]
    """Takes its time until a checkpoint is complete, then fails: a file remembers that it has."""

    def __init__(self, mark: Path) -> None:
        self.mark, self.completed, self.failed = mark, 0, True

    def open(self, runtime_context: RuntimeContext) -> None:
        self.failed = self.mark.exists()

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        self.completed += 1

    def map(self, value: Any) -> Any:
        if not self.failed:
            time.sleep(0.01)
            if self.completed:
                self.mark.touch()
                raise ValueError("once")
        return value


class Makes(ProcessFunction[int, Any]):
    def process_element(self, value: int, ctx: ProcessFunction.Context) -> Iterator[Any]:
        if value in (0, 2 * EACH - 1):
            for name, make in ZOO.items():
                yield name, value, make()
                yield SIDE, (name, value, make())
            for name, make in KEYS.items():
                yield OF_KEYS, (name, value, make())


class Echoes(AsyncFunction[Any, Any]):
    async def async_invoke(self, value: Any) -> list[Any]:
        return [value]


class Holds(KeyedProcessFunction[Any, Any, Any]):
    """Gives at the end what its state has kept."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.values = runtime_context.get_list_state(ListStateDescriptor("values", PICKLED))
        self.by_time = runtime_context.get_map_state(MapStateDescriptor("by time", Types.LONG(), PICKLED))
        self.last = runtime_context.get_state(ValueStateDescriptor("last", PICKLED))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> None:
        self.values.add(value)
        self.by_time.put(value[1], value[2])
        self.last.update(value)
        ctx.timer_service().register_event_time_timer(10**12)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[Any]:
        for name, _, value in self.values.get():
            yield "list", name, value
        for value in self.by_time.values():
            yield "map", ctx.get_current_key(), value
        last: Any = self.last.value()
        yield "value", ctx.get_current_key(), last[2]


class Counts(KeyedProcessFunction[Any, Any, Any]):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> None:
        self.count.update((self.count.value() or 0) + 1)
        ctx.timer_service().register_event_time_timer(10**12)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[Any]:
        yield "key", ctx.get_current_key(), self.count.value()


class Gives(ProcessWindowFunction[Any, Any, Any, Any]):
    def process(self, key: Any, context: Any, elements: Any) -> Iterator[Any]:
        for name, _, value in elements:
            yield "window", name, value


@pytest.mark.parametrize("mode", ["STREAMING", "BATCH"])
def test_all_kinds_of_values(mode: str, tmp_path: Path) -> None:
    env = new_environment(2, execution__runtime_mode=mode)
    mark = tmp_path / "mark"
    if mode == "STREAMING":
        settings = {
            "execution.checkpointing.dir": str(tmp_path / "checkpoints"),
            "execution.checkpointing.interval": "100 ms",
            "restart-strategy.type": "fixed-delay",
            "restart-strategy.fixed-delay.delay": "50 ms",
        }
        env.configure(Configuration.from_dict(settings))
    else:
        mark.touch()
    numbers = env.from_source(NumberSequenceSource(0, 2 * EACH - 1), WatermarkStrategy.no_watermarks(), "numbers")
    zoo = numbers.map(FailsOnce(mark), Types.LONG()).process(Makes())
    bounded = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(2 * EACH))
    timed = bounded.with_timestamp_assigner(Times())
    echoed = AsyncDataStream.unordered_wait(zoo.rebalance(), Echoes(), Time.seconds(60))
    by_name = echoed.assign_timestamps_and_watermarks(timed).key_by(lambda value: value[0])
    from_state = by_name.process(Holds())
    window = SlidingEventTimeWindows.of(Time.milliseconds(2 * EACH), Time.milliseconds(EACH))
    windows = by_name.window(window).process(Gives())
    side = zoo.get_side_output(SIDE).broadcast().map(lambda value: ("side", value[0], value[2]))
    of_keys = zoo.get_side_output(OF_KEYS).assign_timestamps_and_watermarks(timed).key_by(lambda value: value[2])
    in_tuples = env.from_collection([(name, make()) for name, make in ZOO.items()])
    client = in_tuples.rebalance().map(lambda value: ("client", *value))
    bare = env.from_collection([make() for make in ZOO.values()]).rebalance().map(lambda value: ("bare", "", value))
    with from_state.union(windows, side, client, bare, of_keys.process(Counts())).execute_and_collect() as collected:
        results = list(collected)
    assert mark.exists()

    keys = {with_one_nan(key): count for where, key, count in results if where == "key"}
    assert keys == dict.fromkeys(keys, TIMES) | {
        key: TIMES * count for key, count in Counter(with_one_nan(make()) for make in KEYS.values()).items()
    }
    alone = [value for where, _, value in results if where == "bare"]
    assert len(alone) == len(ZOO)
    assert [name for name, make in ZOO.items() if not any(same(make(), value) for value in alone)] == []
    values = [result for result in results if result[0] not in ("key", "bare")]
    each = {"client": 1, "list": TIMES, "map": TIMES, "value": 1, "window": 2 * TIMES, "side": 2 * TIMES}
    assert Counter((where, name) for where, name, _ in values) == {
        (where, name): count for where, count in each.items() for name in ZOO
    }
    assert [(where, name) for where, name, value in values if not same(value, ZOO[name]())] == []
