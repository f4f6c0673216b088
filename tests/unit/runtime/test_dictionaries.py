"""Texts that repeat go to their channels as dictionaries; rows, order and results are those of plain columns."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firesteel.common import Types, WatermarkStrategy
from firesteel.datastream import DataStream, StreamExecutionEnvironment
from firesteel.datastream.connectors.data_generator import DataGeneratorSource
from firesteel.expressions import col, count, max_, min_
from firesteel.expressions.keys import ColumnKey
from firesteel.graph.specs import OutputSpec, PartitionerKind
from firesteel.runtime.chain.partitioners import Output, create_output
from firesteel.runtime.exchange.serialization import MessageReader, MessageWriter
from firesteel.runtime.records import dictionaries
from firesteel.runtime.records.batch import Batch, alike, merge
from firesteel.runtime.records.columns import StreamColumns
from firesteel.runtime.records.dictionaries import RepeatedTexts, plain_columns
from firesteel.state.columnar.key_index import KeyIndex
from tests.examples import examples
from tests.unit.runtime.support import FakeOutput
from tests.unit.runtime.test_push_down import Kept
from tests.unit.runtime.whole_graphs import WholeGraph

ROW = Types.ROW_NAMED(["id", "word"], [Types.LONG(), Types.STRING()])
WORDS = ["", "a", "ü", "word", "x" * 40, *(f"word {number}" for number in range(300))]
SCHEMA = StreamColumns(ROW).schema


@pytest.fixture(autouse=True, scope="module")
def small_batches() -> Iterator[None]:
    """Batches of a thousand rows are large."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dictionaries, "_FEWEST", 1024)
        yield


def batch_of(words: Sequence[str | None], stamps: bool = False, kinds: bool = False) -> Batch:
    size = len(words)
    rows = pa.RecordBatch.from_arrays([pa.array(range(size)), pa.array(words, pa.string())], schema=SCHEMA)
    return Batch(rows, np.arange(size) * 7 if stamps else None, np.arange(size, dtype=np.int8) % 4 if kinds else None)


def output_of(channels: int, *, dictionaries: bool) -> Output:
    spec = OutputSpec(0, 0, PartitionerKind.HASH, key_selector=ColumnKey(["word"], [1]))
    outputs = [FakeOutput(number) for number in range(channels)]
    return create_output(spec, "op", outputs, 128, random.Random(1), dictionaries=dictionaries)


def routed(output: Output, batch: Batch) -> dict[int, Batch]:
    return {output.channels.index(channel): part for channel, part in output.route(batch)}


def is_dictionary(batch: Batch) -> bool:
    assert isinstance(batch.values, pa.RecordBatch)
    return bool(pa.types.is_dictionary(batch.values.column(1).type))


def plain(batch: Batch) -> tuple[Any, ...]:
    assert isinstance(batch.values, pa.RecordBatch)
    values = plain_columns(batch.values)
    assert values.schema.equals(SCHEMA, check_metadata=True)
    stamps, kinds = batch.timestamps, batch.kinds
    return values.to_pydict(), None if stamps is None else list(stamps), None if kinds is None else list(kinds)


@settings(max_examples=examples(40), deadline=None)
@given(
    st.lists(st.sampled_from(WORDS), min_size=1, max_size=80),
    st.integers(1024, 4000),
    st.sampled_from([2, 3, 4, 5, 9, 128]),
    st.booleans(),
    st.booleans(),
    st.integers(0, 5),
)
def test_each_channel_gets_its_rows_in_order(
    some: list[str], size: int, channels: int, stamps: bool, kinds: bool, start: int
) -> None:
    words = [some[number * number % len(some)] for number in range(size + start)]
    batch = batch_of(words, stamps, kinds).slice(start, size + start)
    expected = routed(output_of(channels, dictionaries=False), batch)
    parts = routed(output_of(channels, dictionaries=True), batch)
    assert parts.keys() == expected.keys()
    for channel, part in parts.items():
        assert is_dictionary(part)
        assert not is_dictionary(expected[channel])
        assert plain(part) == plain(expected[channel])
        column = part.values.column(1)  # type: ignore[union-attr]
        assert sorted(column.dictionary.to_pylist()) == sorted(set(column.to_pylist()))  # its own texts, once each
        segments, _ = MessageWriter().dumps(part)
        assert plain(MessageReader("a").loads(bytearray(b"".join(segments)))) == plain(part)


def test_dictionaries_of_several_batches_are_merged_and_mixed_with_plain_ones_on_a_channel() -> None:
    output, writer, reader = output_of(2, dictionaries=True), MessageWriter(), MessageReader("a")
    parts = [routed(output, batch_of(list(words) * 400))[1] for words in (["a", "b", "c", "d", "e"], ["e", "f", "a"])]
    assert alike(*parts)
    merged = merge(parts)
    both = [value for part in parts for value in plain(part)[0]["word"]]
    assert plain(merged)[0]["word"] == both
    few = routed(output, batch_of(["a", "b", "c", "d", "e"]))[1]
    assert not is_dictionary(few)
    for part in (few, merged, few, few, parts[0], few):
        segments, _ = writer.dumps(part)
        assert plain(reader.loads(bytearray(b"".join(segments)))) == plain(part)


@pytest.mark.parametrize("dictionaries_too", [False, True])
def test_dictionaries_in_flight_are_routed_again_where_parallelism_changes(dictionaries_too: bool) -> None:
    batch = batch_of([WORDS[number * number % len(WORDS)] for number in range(6000)], stamps=True)
    for part in routed(output_of(2, dictionaries=True), batch).values():
        assert is_dictionary(part)
        assert isinstance(part.values, pa.RecordBatch)
        again = routed(output_of(3, dictionaries=dictionaries_too), part)
        expected = routed(output_of(3, dictionaries=False), part.with_values(plain_columns(part.values)))
        assert {channel: plain(routed_part) for channel, routed_part in again.items()} == {
            c: plain(p) for c, p in expected.items()
        }
        for channel, routed_part in again.items():
            assert isinstance(routed_part.values, pa.RecordBatch)
            index = KeyIndex([pa.string()])
            index.slots([routed_part.values.column(1)])
            words = plain_columns(expected[channel].values).column(1)
            assert index.keys(np.arange(index.size))[0].to_pylist() == words.unique().to_pylist()


@pytest.mark.parametrize(
    "words",
    [
        ["a", "b"] * 500,  # too few rows
        [f"{number}" for number in range(3000)],  # all different
        [f"{number % 1100}" for number in range(2000)],  # more than half of them
        [None, *["a", "b"] * 1000],
    ],
    ids=["few", "different", "half", "null"],
)
def test_other_columns_stay_plain(words: list[str | None]) -> None:
    batch = batch_of(words)
    expected = routed(output_of(2, dictionaries=False), batch)
    parts = routed(output_of(2, dictionaries=True), batch)
    assert {channel: plain(part) for channel, part in parts.items()} == {c: plain(p) for c, p in expected.items()}
    assert not any(map(is_dictionary, parts.values()))


def test_texts_that_do_not_repeat_are_looked_at_less_and_less() -> None:
    repeated = RepeatedTexts()
    different, same = pa.array([f"{number}" for number in range(2000)]), pa.array(["a", "b"] * 1000)
    tried = []
    for number in range(20):
        left = repeated._batches_to_skip
        assert repeated.encoded(different) is None
        if not left:
            tried.append(number)
    assert tried == [0, 2, 6, 14]
    encoded = [repeated.encoded(same) is not None for _ in range(20)]
    assert encoded == [False] * 10 + [True] * 10
    assert repeated.encoded(different) is None
    assert repeated.encoded(same) is None
    assert repeated.encoded(same) is not None


def ran(steps: Callable[[DataStream], DataStream], parallelism: int) -> list[tuple[Any, ...]]:
    plain_words = pa.array(WORDS)

    def make(start: int, rows: int) -> pa.RecordBatch:
        ids = np.arange(start, start + rows)
        return pa.RecordBatch.from_pydict({"id": ids, "word": plain_words.take(pa.array(ids * ids % len(WORDS)))})

    env = StreamExecutionEnvironment()
    env.set_parallelism(parallelism)
    source = DataGeneratorSource.of_batches(make, ROW, 20_000)
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(col("id"))
    records: list[Any] = []
    steps(env.from_source(source, strategy, "Words").set_parallelism(1)).sink_to(Kept(records))
    WholeGraph(env._stream_graph(None), 6000).run()
    return sorted(tuple(record) for record, _ in records)


def test_aggregates_take_dictionaries() -> None:
    counts: dict[str, int] = {}
    expected = []
    for number in range(20_000):
        word = WORDS[number * number % len(WORDS)]
        counts[word] = counts.get(word, 0) + 1
        expected.append((word, counts[word], word, number))
    totals = ran(lambda s: s.key_by("word").aggregate(count(), min_("word"), max_("id")), 3)
    assert totals == sorted(expected)


def test_functions_get_plain_columns_behind_a_key() -> None:
    def checked(batch: pa.RecordBatch) -> pa.RecordBatch:
        assert batch.schema.field("word").type == pa.string()
        return batch

    expected = sorted((number, WORDS[number * number % len(WORDS)]) for number in range(20_000))
    assert ran(lambda s: s.key_by("word").map_batches(checked, ROW), 3) == expected
    assert ran(lambda s: s.key_by("word").map(lambda row: row, ROW), 3) == expected
