"""Aggregates, windows and functions of keyed batches over whole programs, with batches of 1 to 100,000 rows whose texts
may be dictionaries, beside the same by rows and plain Python.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from firesteel.common import Row, Time, Types, WatermarkStrategy
from firesteel.datastream import DataStream, StreamExecutionEnvironment
from firesteel.datastream.connectors.data_generator import DataGeneratorSource
from firesteel.datastream.functions import KeyedBatchFunction, KeyedProcessFunction
from firesteel.datastream.state import ValueStateDescriptor
from firesteel.datastream.window import TumblingEventTimeWindows
from firesteel.expressions import col, count, max_, min_, sum_
from firesteel.runtime.records.batch import Batch
from firesteel.runtime.records.columns import StreamColumns
from tests.unit.runtime.programs import results
from tests.unit.runtime.test_push_down import Kept
from tests.unit.runtime.whole_graphs import WholeGraph

ROW = Types.ROW_NAMED(["id", "word", "n"], [Types.LONG(), Types.STRING(), Types.LONG()])
WORDS = [None, "", "a", "A", "ü", "\U0001d518", "a longer text that is no short one", *(f"w{i}" for i in range(40))]
WINDOW = 250
CASES = [(1, 1, 200), (2, 97, 3000), (3, 100_000, 70_000), (4, 1000, 5000), (5, 7, 1500)]
"""Parallelism, rows of a batch, rows."""


def codes_of(ids: Any) -> Any:
    return (ids * 7919 + ids // 13) % len(WORDS)


def numbers_of(ids: Any) -> Any:
    return ids * 31 % 1009 - 500


def source_of(form: str, total: int) -> DataGeneratorSource[Any]:
    """Batches whose words are plain, a dictionary of each batch, or one in which texts stand twice."""
    plain = pa.array(WORDS)

    def make(start: int, rows: int) -> pa.RecordBatch:
        ids = np.arange(start, start + rows)
        words = plain.take(pa.array(codes_of(ids)))
        if form == "dictionary":
            words = words.dictionary_encode()
        elif form == "twice":
            codes = pa.array(codes_of(ids) + len(WORDS) * (ids % 2))
            words = pa.DictionaryArray.from_arrays(codes, pa.concat_arrays([plain, plain]))
        return pa.RecordBatch.from_pydict({"id": ids, "word": words, "n": numbers_of(ids)})

    return DataGeneratorSource.of_batches(make, ROW, total)


def ran(
    steps: Callable[[DataStream], DataStream], parallelism: int, batch: int, total: int, form: str
) -> list[tuple[Any, ...]]:
    env = StreamExecutionEnvironment()
    env.set_parallelism(parallelism)
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(col("id"))
    stream = env.from_source(source_of(form, total), strategy, "Words").set_parallelism(1)
    records: list[Any] = []
    steps(stream).sink_to(Kept(records))
    WholeGraph(env._stream_graph(None), batch).run()
    return [tuple(record) for record, _ in records]


def records(total: int) -> Iterator[tuple[int, str | None, int]]:
    ids = np.arange(total)
    words = [WORDS[code] for code in codes_of(ids).tolist()]
    return zip(ids.tolist(), words, numbers_of(ids).tolist(), strict=True)


def running(total: int) -> list[tuple[Any, ...]]:
    counts: dict[Any, int] = defaultdict(int)
    sums: dict[Any, int] = defaultdict(int)
    lowest: dict[Any, int] = {}
    totals = []
    for number, word, n in records(total):
        counts[word] += 1
        sums[word] += n
        lowest[word] = min(n, lowest.get(word, n))
        totals.append((word, counts[word], sums[word], lowest[word], number))
    return totals


@pytest.mark.parametrize("form", ["plain", "dictionary", "twice"])
@pytest.mark.parametrize(("parallelism", "batch", "total"), CASES)
def test_aggregates(parallelism: int, batch: int, total: int, form: str) -> None:
    totals = ran(
        lambda s: s.key_by("word").aggregate(count(), sum_("n"), min_("n"), max_("id")), parallelism, batch, total, form
    )
    assert sorted(totals, key=lambda row: row[-1]) == running(total)


@pytest.mark.parametrize("parallelism", [1, 3, 5])
def test_aggregates_of_one_batch_of_100_000_rows(parallelism: int) -> None:
    total = 100_000
    env = StreamExecutionEnvironment()
    env.set_parallelism(parallelism)
    stream = env.from_collection([], ROW).key_by("word").aggregate(count(), sum_("n"), min_("n"), max_("id"))
    whole = StreamColumns(ROW).from_records(list(records(total)))
    totals = results(stream, lambda name: [Batch(whole)])
    assert sorted(map(tuple, totals), key=lambda row: row[-1]) == running(total)


@pytest.mark.parametrize(("parallelism", "batch", "total"), CASES)
def test_windows(parallelism: int, batch: int, total: int) -> None:
    sums: dict[Any, int] = defaultdict(int)
    for number, word, n in records(total):
        sums[word, number // WINDOW * WINDOW] += n
    windows = TumblingEventTimeWindows.of(Time.milliseconds(WINDOW))
    for form in ("plain", "dictionary"):
        windows_of_words = ran(
            lambda s: s.key_by("word").window(windows).aggregate(sum_("n")), parallelism, batch, total, form
        )
        assert len(windows_of_words) == len(sums)
        assert {(word, start): n for word, start, _, n in windows_of_words} == sums


class Previous(KeyedBatchFunction):
    """The number of the record before, of the same key."""

    def open(self, runtime_context: Any) -> None:
        self.last = runtime_context.get_state(ValueStateDescriptor("last", Types.LONG()))

    def process_batch(self, batch: pa.RecordBatch, ctx: KeyedBatchFunction.Context) -> pa.RecordBatch:
        known = dict(zip(ctx.keys.to_pylist(), self.last.get(ctx.keys).to_pylist(), strict=True))
        previous = []
        for number, word in zip(batch["id"].to_pylist(), batch["word"].to_pylist(), strict=True):
            previous.append(known[word])
            known[word] = number
        self.last.put(list(known), list(known.values()))
        return batch.set_column(2, "n", pa.array(previous, pa.int64()))


class PreviousByRow(KeyedProcessFunction[Any, Any, Any]):
    def open(self, runtime_context: Any) -> None:
        self.last = runtime_context.get_state(ValueStateDescriptor("last", Types.LONG()))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        before = self.last.value()
        self.last.update(value.id)
        yield Row(id=value.id, word=value.word, n=before)


@pytest.mark.parametrize(("parallelism", "batch", "total"), CASES)
def test_functions_of_batches_and_of_records(parallelism: int, batch: int, total: int) -> None:
    last: dict[Any, int | None] = defaultdict(lambda: None)
    expected = []
    for number, word, _ in records(total):
        expected.append((number, word, last[word]))
        last[word] = number
    for form in ("plain", "dictionary"):
        totals = ran(lambda s: s.key_by("word").process_batches(Previous(), ROW), parallelism, batch, total, form)
        assert sorted(totals, key=lambda row: row[0]) == expected
        if total <= 5000:
            by_row = ran(
                lambda s: s.key_by(lambda row: row.word).process(PreviousByRow(), ROW),
                parallelism, batch, total, form,
            )  # fmt: skip
            assert sorted(by_row, key=lambda row: row[0]) == expected
