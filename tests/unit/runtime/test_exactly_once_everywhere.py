"""As ``test_exactly_once``: columns, joins, two inputs, broadcast state, asynchronous calls, batches in pieces."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from firesteel.common import Time, Types, WatermarkStrategy
from firesteel.common.watermark_strategy import WatermarkGenerator, WatermarkOutput
from firesteel.expressions import count, last, max_, sum_
from firesteel.expressions.keys import ColumnKey
from firesteel.functions.async_functions import AsyncFunction
from firesteel.functions.broadcast import KeyedBroadcastProcessFunction
from firesteel.functions.functions import KeyedCoProcessFunction
from firesteel.functions.join_functions import ProcessJoinFunction
from firesteel.functions.state import ListStateDescriptor, MapStateDescriptor
from firesteel.graph.specs import OperatorKind as K
from firesteel.graph.specs import OperatorSpec
from firesteel.graph.specs import PartitionerKind as P
from firesteel.runtime.operators import async_wait
from firesteel.runtime.task import task as task_module
from firesteel.windowing.assigners import SlidingEventTimeWindows, TumblingEventTimeWindows
from firesteel.windowing.columnar import ColumnWindowSpec
from firesteel.windowing.session_assigners import EventTimeSessionWindows
from tests.examples import examples
from tests.unit.runtime.mini_job import ListSource, Vertex
from tests.unit.runtime.test_column_aggregates import described
from tests.unit.runtime.test_exactly_once import (
    Record,
    Second,
    key_of,
    operator,
    random_splits,
    run_with_crashes,
    session_counts,
    sink,
    source,
)

PAIR = Types.ROW_NAMED(["key", "time"], [Types.LONG(), Types.LONG()])
LONGS = [Types.LONG()] * 4
WINDOW = Types.ROW_NAMED(["key", "window_start", "window_end", "count"], LONGS)
KEY = ColumnKey(["key"], [0])
RULES = MapStateDescriptor("rules", Types.LONG(), Types.LONG())
WAITING = ListStateDescriptor("waiting", Types.PICKLED_BYTE_ARRAY())
Split = list[Record]


def between(head: OperatorSpec, p: Sequence[int]) -> list[Vertex]:
    """A source, an operator with keys, and a sink of its results as tuples."""
    plain = operator("plain", K.MAP, tuple)
    return [
        Vertex("source", source("source"), p[0]),
        Vertex("middle", lambda: [head, plain], p[1], [("source", P.HASH, key_of)]),
        Vertex("sink", lambda: [sink()], p[2], [("middle", P.REBALANCE, None)]),
    ]


def two(head: OperatorSpec, second: P, p: Sequence[int]) -> list[Vertex]:
    """An operator with two sources."""
    edges = [("source", P.HASH, key_of), ("other", second, key_of if second is P.HASH else None)]
    return [
        Vertex("source", source("source"), p[0]),
        Vertex("other", source("other"), p[1]),
        Vertex("both", lambda: [head, sink()], p[2], edges, two_inputs=True),
    ]


def flat(records: dict[str, list[Split]], name: str = "source") -> list[Record]:
    return [record for split in records[name] for record in split]


# -- columns


def aggregates(p: Sequence[int]) -> list[Vertex]:
    """Running aggregates: keys are those of one split each, so that their order is known."""
    spec = described(PAIR, ["key"], [count().alias("n"), sum_("time"), max_("time"), last("time").alias("l")])
    head = operator("aggregate", spec.kind, spec.function, key_selectors=spec.key_selectors, extra=spec.extra)
    return between(head, p)


def aggregates_expected(records: dict[str, list[Split]]) -> Iterator[Any]:
    for split in records["source"]:
        sums: Counter[int] = Counter()
        seen: Counter[int] = Counter()
        for key, time in split:
            sums[key] += time
            seen[key] += 1
            yield key, seen[key], sums[key], time, time


def column_window(assigner: Any) -> Callable[[Sequence[int]], list[Vertex]]:
    extra = {"input_type": PAIR, "result_type": WINDOW}
    spec = ColumnWindowSpec(assigner, (count(),))
    return lambda p: between(operator("window", K.COLUMNS_WINDOW, spec, key_selectors=(KEY,), extra=extra), p)


def sliding_expected(records: dict[str, list[Split]]) -> Iterator[Any]:
    counts = Counter((key, start) for key, time in flat(records) for start in range(time // 5 * 5, time - 10, -5))
    yield from ((key, start, start + 10, number) for (key, start), number in counts.items())


def tumbling_expected(records: dict[str, list[Split]]) -> Iterator[Any]:
    counts = Counter((key, time // 10 * 10) for key, time in flat(records))
    yield from ((key, start, start + 10, number) for (key, start), number in counts.items())


# -- two inputs


class Pairs(ProcessJoinFunction[Any, Any, Any]):
    def process_element(self, left: Any, right: Any, ctx: Any) -> Iterator[Any]:
        yield *left, right[1]


def interval(p: Sequence[int]) -> list[Vertex]:
    """Pairs whose times are near each other."""
    extra = {"lower": -2, "upper": 3, "late_tags": (None, None)}
    head = operator("join", K.INTERVAL_JOIN, Pairs(), key_selectors=(key_of, key_of), extra=extra)
    return two(head, P.HASH, p)


def interval_expected(records: dict[str, list[Split]]) -> Iterator[Any]:
    for left in flat(records):
        for right in flat(records, "other"):
            if left[0] == right[0] and -2 <= right[1] - left[1] <= 3:
                yield *left, right[1]


class Matched(KeyedCoProcessFunction[Any, Any, Any, Any]):
    """Gives a record of each side as a pair, when the second of them is there."""

    def open(self, runtime_context: Any) -> None:
        self.ahead = runtime_context.get_map_state(MapStateDescriptor("ahead", Types.LONG(), Types.LONG()))

    def process_element1(self, value: Any, ctx: Any) -> Iterator[Any]:
        return self._one(value, 1)

    def process_element2(self, value: Any, ctx: Any) -> Iterator[Any]:
        return self._one(value, -1)

    def _one(self, value: Any, side: int) -> Iterator[Any]:
        ahead = self.ahead.get(value[1]) or 0
        self.ahead.put(value[1], ahead + side)
        if ahead * side < 0:
            yield value


def connected(p: Sequence[int]) -> list[Vertex]:
    """State that two inputs share."""
    return two(operator("match", K.KEYED_CO_PROCESS, Matched(), key_selectors=(key_of, key_of)), P.HASH, p)


def connected_expected(records: dict[str, list[Split]]) -> Iterator[Any]:
    return (Counter(flat(records)) & Counter(flat(records, "other"))).elements()


class Ruled(KeyedBroadcastProcessFunction[Any, Any, Any, Any]):
    """Gives a record when its rule is there."""

    def open(self, runtime_context: Any) -> None:
        self.waiting = runtime_context.get_list_state(WAITING)

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        if ctx.get_broadcast_state(RULES).contains(value[1] // 10):
            yield value
        else:
            self.waiting.add(value)

    def process_broadcast_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        rule = value[1] // 10
        ctx.get_broadcast_state(RULES).put(rule, rule)
        matching: list[Any] = []

        def look(key: Any, state: Any) -> None:
            waiting = list(state.get())
            matching.extend(pair for pair in waiting if pair[1] // 10 == rule)
            state.update([pair for pair in waiting if pair[1] // 10 != rule])

        ctx.apply_to_keyed_state(WAITING, look)
        yield from matching


def broadcast(p: Sequence[int]) -> list[Vertex]:
    """Rules that all subtasks get, and records that wait for them."""
    extra = {"broadcast_states": (RULES,)}
    head = operator("rules", K.KEYED_BROADCAST_PROCESS, Ruled(), key_selectors=(key_of,), extra=extra)
    return two(head, P.BROADCAST, p)


def broadcast_expected(records: dict[str, list[Split]]) -> Iterator[Any]:
    rules = {time // 10 for _, time in flat(records, "other")}
    yield from (record for record in flat(records) if record[1] // 10 in rules)


# -- asynchronous calls


class Twice(AsyncFunction[Any, Any]):
    async def async_invoke(self, value: Any) -> list[Any]:
        raise AssertionError("its answers come from _Calls")


class _Calls:
    """In place of the thread with asyncio: answers come some time later, in whatever order."""

    elsewhere: list[Callable[[], None]] = []  # of the attempt of now
    chance = random.Random(1)

    def __init__(self, name: str, function: Any, timeout: Any, retry: Any, on_done: Callable[[Any, Any], None]) -> None:
        self._on_done = on_done
        self._elsewhere = _Calls.elsewhere
        self._closed = False

    def start(self) -> None: ...

    def do(self, what: Callable[[], Any]) -> None:
        what()

    def call(self, token: Any, value: Any) -> None:
        def answer() -> None:
            if not self._closed:
                self._on_done(token, [value, (*value, "again")])

        self._elsewhere.insert(self.chance.randrange(len(self._elsewhere) + 1), answer)

    def cancel(self) -> None:
        self._closed = True

    def stop(self) -> None: ...


def asynchronous(ordered: bool) -> Callable[[Sequence[int]], list[Vertex]]:
    """Calls whose answers are awaited at a barrier."""

    def build(p: Sequence[int]) -> list[Vertex]:
        extra = {"ordered": ordered, "capacity": 5, "timeout_ms": 0, "retry": None}
        wait = operator("wait", K.ASYNC_WAIT, Twice(), extra=extra)
        return [
            Vertex("source", source("source"), p[0]),
            Vertex("wait", lambda: [wait, operator("same", K.MAP, lambda r: r)], p[1], [("source", P.REBALANCE, None)]),
            Vertex("sink", lambda: [sink()], p[2], [("wait", P.REBALANCE, None)]),
        ]

    return build


def asynchronous_expected(records: dict[str, list[Split]]) -> Iterator[Any]:
    for record in flat(records):
        yield record
        yield *record, "again"


# -- batches in pieces


class AtEachEven(WatermarkGenerator):
    """A watermark behind each record whose time is even: the reader's batch is cut there."""

    def on_event(self, event: Any, event_timestamp: int, output: WatermarkOutput) -> None:
        if event_timestamp % 2 == 0:
            output.emit_watermark(event_timestamp - 1)

    def on_periodic_emit(self, output: WatermarkOutput) -> None: ...


def pieces(p: Sequence[int]) -> list[Vertex]:
    """Barriers must not go in between the pieces of a batch: the reader's position is behind all of them."""
    strategy = WatermarkStrategy.for_generator(AtEachEven).with_timestamp_assigner(Second())
    head = operator("source", K.SOURCE, ListSource(9), extra={"watermark_strategy": strategy})
    return [
        Vertex("source", lambda: [head, operator("map", K.MAP, lambda r: r)], p[0]),
        Vertex("sink", lambda: [sink()], p[2], [("source", P.REBALANCE, None)]),
    ]


TOPOLOGIES: dict[str, tuple[Any, Any]] = {
    "aggregates": (aggregates, aggregates_expected),
    "column tumbling": (column_window(TumblingEventTimeWindows(10)), tumbling_expected),
    "column sliding": (column_window(SlidingEventTimeWindows(10, 5)), sliding_expected),
    "column sessions": (
        column_window(EventTimeSessionWindows.with_gap(Time.milliseconds(4))),
        lambda records: session_counts(flat(records)).elements(),
    ),
    "interval": (interval, interval_expected),
    "connected": (connected, connected_expected),
    "broadcast": (broadcast, broadcast_expected),
    "async ordered": (asynchronous(True), asynchronous_expected),
    "async unordered": (asynchronous(False), asynchronous_expected),
    "pieces": (pieces, flat),
}


@pytest.fixture(autouse=True)
def _no_threads_and_one_batch_for_each_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_module, "STEP_SECONDS", -1.0)
    monkeypatch.setattr(async_wait, "AsyncCalls", _Calls)


def _elsewhere() -> list[Callable[[], None]]:
    _Calls.elsewhere = []
    return _Calls.elsewhere


@pytest.mark.parametrize("topology", TOPOLOGIES)
@settings(max_examples=examples(20), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 1 << 30))
def test_nothing_is_lost_and_nothing_is_doubled(topology: str, seed: int) -> None:
    chance = random.Random(seed)
    _Calls.chance = random.Random(seed)
    records = {"source": random_splits(chance), "other": random_splits(chance)}
    if topology == "aggregates":
        records = {name: [_own_keys(split, n) for n, split in enumerate(splits)] for name, splits in records.items()}
    degrees = [[chance.randrange(1, 4) for _ in range(3)] for _ in range(chance.randrange(1, 5))]
    build, expected = TOPOLOGIES[topology]
    visible = run_with_crashes(build, records, degrees, chance.randrange(1 << 30), elsewhere=_elsewhere)
    if topology == "column sessions":
        visible = Counter((key, number) for key, _, _, number in visible.elements())
    assert visible == Counter(expected(records))


def _own_keys(split: Split, number: int) -> Split:
    return [(key + 10 * number, time) for key, time in split]
