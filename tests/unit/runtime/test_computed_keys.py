"""Keys that are computed from columns: fed as rows and as columns, beside key selectors in Python and plain Python."""

from __future__ import annotations

import pickle
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firesteel.common import Row, Time, Types, WatermarkStrategy
from firesteel.core.errors import ProgramError
from firesteel.datastream import DataStream, KeyedStream, StreamExecutionEnvironment
from firesteel.datastream.functions import (
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    MapFunction,
    ProcessJoinFunction,
)
from firesteel.datastream.state import MapStateDescriptor, ValueStateDescriptor
from firesteel.datastream.window import TumblingEventTimeWindows
from firesteel.expressions import coalesce, col, count, lit, sum_, when
from firesteel.expressions.keys import ColumnKey, ComputedKey
from firesteel.graph.key_groups import KeyGroupAssigner
from firesteel.runtime.records.batch import Batch
from firesteel.runtime.records.columns import StreamColumns
from tests.examples import examples
from tests.unit.runtime.programs import Feed, results
from tests.unit.runtime.test_push_down import Kept
from tests.unit.runtime.whole_graphs import WholeGraph

ROW = Types.ROW_NAMED(["id", "n", "s", "x"], [Types.LONG(), Types.INT(), Types.STRING(), Types.DOUBLE()])
NUMBER = ValueStateDescriptor("number", Types.LONG())


def upper(text: str | None) -> str | None:
    return None if text is None else text.upper()


def rest(n: int | None, by: int) -> int | None:
    return None if n is None else n % by


Key = tuple[Any, Callable[[Row], Any], list[str]]
KEYS: list[Key] = [
    (col("n") % 3, lambda row: rest(row.n, 3), ["n % 3"]),
    (col("s").str.upper().alias("k"), lambda row: upper(row.s), ["k"]),
    ([col("n") % 4, "s"], lambda row: (rest(row.n, 4), row.s), ["n % 4", "s"]),
    (["s", (col("x") > 0.0).alias("above")], lambda row: (row.s, row.x > 0.0), ["s", "above"]),
    ([col("s").alias("text"), col("n").alias("of")], lambda row: (row.s, row.n), ["text", "of"]),
    ([coalesce(col("s"), "none")], lambda row: "none" if row.s is None else row.s, ["coalesce(s, 'none')"]),
    (
        when(col("n").is_null()).then(-1).otherwise(col("id") // 8).alias("k"),
        lambda row: -1 if row.n is None else row.id // 8,
        ["k"],
    ),
    (col("x") / 2, lambda row: row.x / 2, ["x / 2"]),
    (lit("all").alias("k"), lambda row: "all", ["k"]),
]
ROWS = st.lists(
    st.tuples(
        st.none() | st.integers(-9, 9), st.sampled_from([None, "", "a", "A", "é", "\U0001d518"]), st.floats(-9, 9)
    ),
    max_size=60,
)


def rows_of(drawn: list[tuple[Any, ...]]) -> list[Row]:
    return [Row(id=number, n=n, s=s, x=x + 0.0) for number, (n, s, x) in enumerate(drawn)]


def fed(rows: list[Row], size: int, *, columnar: bool) -> Feed:
    columns = StreamColumns(ROW)
    parts = [rows[start : start + size] for start in range(0, len(rows), size)]
    return lambda name: [Batch(columns.from_records(part) if columnar else part) for part in parts]


def stream_of(parallelism: int) -> DataStream:
    env = StreamExecutionEnvironment()
    env.set_parallelism(parallelism)
    return env.from_collection([], ROW)


def counted(values: Any) -> Counter[str]:
    return Counter(map(repr, values))


class Numbered(KeyedProcessFunction[Any, Any, Any]):
    """Subtask, key, record, and the how manyeth of its key it is."""

    def open(self, runtime_context: Any) -> None:
        self.subtask = runtime_context.get_index_of_this_subtask()
        self.number = runtime_context.get_state(NUMBER)

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        number = (self.number.value() or 0) + 1
        self.number.update(number)
        yield self.subtask, ctx.get_current_key(), value.id, number
        if number % 3 == 0:
            yield "third", ctx.get_current_key()


class Numbers(MapFunction[Any, Any]):
    def open(self, runtime_context: Any) -> None:
        self.number = runtime_context.get_state(NUMBER)

    def map(self, value: Any) -> Any:
        self.number.update((self.number.value() or 0) + 1)
        return value.id, self.number.value()


class Both(KeyedCoProcessFunction[Any, Any, Any, Any]):
    """Numbers the records of both sides together."""

    def open(self, runtime_context: Any) -> None:
        self.number = runtime_context.get_state(NUMBER)

    def process_element1(self, value: Any, ctx: KeyedCoProcessFunction.Context) -> Iterator[Any]:
        self.number.update((self.number.value() or 0) + 1)
        yield ctx.get_current_key(), self.number.value()

    process_element2 = process_element1


@settings(max_examples=8)
@given(ROWS, st.sampled_from(range(len(KEYS))), st.integers(1, 5), st.sampled_from([1, 3, 100]), st.integers(0, 99))
def test_functions_of_keyed_streams(
    drawn: list[tuple[Any, ...]], which: int, parallelism: int, size: int, seed: int
) -> None:
    computed, plain, _ = KEYS[which]
    rows = rows_of(drawn)
    channel_of = KeyGroupAssigner(parallelism, 128)
    numbers: dict[Any, int] = defaultdict(int)
    processed: list[Any] = []
    for row in rows:
        key = plain(row)
        numbers[key] += 1
        processed.append((channel_of(key), key, row.id, numbers[key]))
        if numbers[key] % 3 == 0:
            processed.append(("third", key))
    plain_numbers = [(result[2], result[3]) for result in processed if len(result) > 2]
    for key_selector in (computed, plain):
        for columnar in (False, True):
            feed = fed(rows, size, columnar=columnar)

            def keyed() -> KeyedStream:
                return stream_of(parallelism).key_by(key_selector)  # noqa: B023 - called in this round

            assert counted(results(keyed().process(Numbered()), feed, seed)) == counted(processed)
            assert counted(results(keyed().map(Numbers()), feed, seed)) == counted(plain_numbers)
            assert counted(results(keyed().map(lambda row: row.id), feed, seed)) == counted(row.id for row in rows)
            latest = keyed().reduce(lambda row, other: Row(id=row.id + other.id, n=1, s="", x=0.0))
            sums = running_sums(rows, plain)
            assert counted(row.id for row in results(latest, feed, seed)) == counted(sums)
            stream = stream_of(parallelism)
            other = stream.filter(col("id") % 2 == 0)
            joined = stream.connect(other).key_by(key_selector, key_selector).process(Both())
            assert counted(results(joined, feed, seed)) == counted(both_sides(rows, plain))


def running_sums(rows: list[Row], key_of: Callable[[Row], Any]) -> list[int]:
    totals: dict[Any, int] = defaultdict(int)
    sums = []
    for row in rows:
        totals[key_of(row)] += row.id
        sums.append(totals[key_of(row)])
    return sums


def both_sides(rows: list[Row], key_of: Callable[[Row], Any]) -> list[Any]:
    numbers = Counter(key_of(row) for row in [*rows, *rows[::2]])
    return [(key, number + 1) for key, total in numbers.items() for number in range(total)]


@settings(max_examples=examples(20))
@given(ROWS, st.sampled_from(range(len(KEYS))), st.integers(1, 5), st.sampled_from([1, 7, 100]))
def test_aggregates(drawn: list[tuple[Any, ...]], which: int, parallelism: int, size: int) -> None:
    computed, plain, names = KEYS[which]
    rows = rows_of(drawn)
    totals: dict[Any, tuple[int, int]] = {}
    expected = []
    for row in rows:
        key = plain(row)
        number, total = totals.get(key, (0, 0))
        totals[key] = number + 1, total + row.id
        parts = key if isinstance(key, tuple) else (key,)
        expected.append((*parts, *totals[key]))
    for columnar in (False, True):
        stream = stream_of(parallelism).key_by(computed).aggregate(count().alias("count"), sum_("id"))
        assert list(stream.get_type().field_names) == [*names, "count", "sum_id"]  # type: ignore[attr-defined]
        records = results(stream, fed(rows, size, columnar=columnar))
        assert counted(map(tuple, records)) == counted(expected)


def whole(steps: Callable[[DataStream], DataStream], *, columnar: bool, parallelism: int = 3) -> tuple[list[Any], Any]:
    """What a program over timed rows gives, and the columns that cross its edges."""
    env = StreamExecutionEnvironment()
    env.set_parallelism(parallelism)
    rows = rows_of([(number % 7, "aBc"[number % 3], 1.0) for number in range(90)])
    stream = env.from_collection(rows, ROW)
    if columnar:
        stream = stream.select("id", "n", "s", "x")
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(col("id"))
    records: list[Any] = []
    steps(stream.assign_timestamps_and_watermarks(strategy)).sink_to(Kept(records))
    graph = WholeGraph(env._stream_graph(None), batch=11)
    graph.run()
    return [record for record, _ in records], [edge.columns for edge in graph.job_graph.edges]


@pytest.mark.parametrize("columnar", [False, True])
def test_windows_joins_and_broadcast(columnar: bool) -> None:
    thirties = TumblingEventTimeWindows.of(Time.milliseconds(30))
    key = (col("n") * 10 + 1).alias("k")
    windows, edges = whole(lambda s: s.key_by(key).window(thirties).aggregate(count().alias("c")), columnar=columnar)
    expected = Counter((number % 7 * 10 + 1, number // 30 * 30) for number in range(90))
    assert Counter({(row.k, row.window_start): row.c for row in windows}) == expected
    assert not columnar or ("n",) in edges, "what the key is computed from crosses, and nothing else"

    def joined(stream: DataStream) -> DataStream:
        letters = stream.filter(col("id") < 30)
        pairs = stream.join(letters).where(col("s").str.lower()).equal_to(lambda row: row.s.lower())
        return pairs.window(thirties).apply(lambda row, other: (row.id, other.id))

    low = ["abc"[number % 3] for number in range(30)]
    pairs = [(a, b) for a in range(30) for b in range(30) if low[a] == low[b]]
    assert sorted(whole(joined, columnar=columnar)[0]) == pairs

    class Near(ProcessJoinFunction[Any, Any, Any]):
        def process_element(self, left: Any, right: Any, ctx: Any) -> Iterator[Any]:
            yield left.id, right.id

    def near(stream: DataStream) -> DataStream:
        other = stream.key_by([col("n") % 2, "s"])
        side = stream.key_by(["n", "s"]).interval_join(other)
        return side.between(Time.milliseconds(0), Time.milliseconds(6)).process(Near())

    joined_ids, _ = whole(near, columnar=columnar)
    names = ["aBc"[number % 3] for number in range(90)]
    assert sorted(joined_ids) == [
        (a, b) for a in range(90) for b in range(a, min(90, a + 7)) if (a % 7, names[a]) == (b % 7 % 2, names[b])
    ]

    rules = MapStateDescriptor("rules", Types.STRING(), Types.LONG())

    class Keys(KeyedBroadcastProcessFunction[Any, Any, Any, Any]):
        def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
            yield ctx.get_current_key(), value.id

        def process_broadcast_element(self, value: Any, ctx: Any) -> None: ...

    def broadcast(stream: DataStream) -> DataStream:
        return stream.key_by(col("s").str.lower()).connect(stream.broadcast(rules)).process(Keys())

    assert sorted(whole(broadcast, columnar=columnar)[0], key=lambda pair: pair[1]) == [
        ("abc"[number % 3], number) for number in range(90)
    ]


def test_only_what_a_key_is_computed_from_crosses() -> None:
    counts, edges = whole(lambda s: s.key_by([col("n") % 2, "s"]).aggregate(count()), columnar=True)
    assert ("n", "s") in edges
    assert len(counts) == 90


def test_a_key_that_cannot_be_computed_shows_the_record() -> None:
    rows = rows_of([(3, "a", 0.0), (0, "b", 0.0)])
    for columnar in (False, True):
        for parallelism in (1, 2):
            stream = stream_of(parallelism).key_by(lit(6) // col("n"))
            feed = fed(rows, 10, columnar=columnar)
            with pytest.raises(ProgramError, match=r"\(lit\(6\) // col\('n'\)\) can't be computed for n = 0: divi"):
                results(stream.process(Numbered()), feed)
    overflow = StreamExecutionEnvironment()
    overflow.set_parallelism(2)
    keyed = overflow.from_collection([], ROW).key_by(col("n") + 2147483647)
    with pytest.raises(ProgramError, match="can't be computed for n = 3: overflow"):
        results(keyed.map(lambda row: row.id), fed(rows, 10, columnar=True))


def test_wrapping_numbers_wrap_in_keys_too() -> None:
    from firesteel.common import Configuration

    configuration = Configuration()
    configuration.set_boolean("firesteel.expressions.wrap-integers", True)
    for columnar in (False, True):
        env = StreamExecutionEnvironment.get_execution_environment(configuration)
        env.set_parallelism(2)
        keyed = env.from_collection([], ROW).key_by(col("n") + 2147483647)
        records = results(keyed.process(Numbered()), fed(rows_of([(3, "a", 0.0)]), 1, columnar=columnar))
        assert [key for _, key, _, _ in records] == [-2147483646]


def test_a_key_survives_pickling_and_narrowing() -> None:
    columns = {"n": Types.INT(), "s": Types.STRING()}
    key = ComputedKey(["k", "s"], [col("n") * 2, col("s")], columns, [1, 2], wrap=True)
    batch = StreamColumns(ROW).from_records(rows_of([(4, "a", 1.0), (None, "b", 1.0)]))
    narrow = batch.select(["s", "n"])
    over = key.over(["s", "n"])
    for computed, given_batch in ((key, batch), (pickle.loads(pickle.dumps(key)), batch), (over, narrow)):
        assert isinstance(computed, ComputedKey)
        assert [array.to_pylist() for array in computed.arrays(given_batch)] == [[8, None], ["a", "b"]]
        assert computed.keys_of(given_batch_rows(given_batch)) == [(8, "a"), (None, "b")]
        assert computed(given_batch_rows(given_batch)[0]) == (8, "a")
        assert [field.type for field in computed.fields(given_batch.schema)] == [pa.int32(), pa.string()]
    plain = pickle.loads(pickle.dumps(ColumnKey(["k"], [1], ["n"])))
    assert (plain.names, plain.reads, plain.over(["s", "n"]).indexes) == (("k",), ("n",), (1,))


def given_batch_rows(batch: pa.RecordBatch) -> list[Any]:
    return [tuple(row.values()) for row in batch.to_pylist()]
