"""Random programs over random schemas, fed as rows and as columns, against what they mean in plain Python."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firesteel.common import Row, Types
from firesteel.common.typeinfo import RowTypeInfo, TypeInformation
from firesteel.datastream import DataStream, StreamExecutionEnvironment
from firesteel.expressions import col, when
from firesteel.runtime.records.batch import Batch
from firesteel.runtime.records.columns import StreamColumns
from tests.examples import examples
from tests.unit.expressions.strategies import same, typed
from tests.unit.runtime.programs import Feed, results

Rows = list[dict[str, Any]]
State = tuple[DataStream, Rows, dict[str, TypeInformation]]
NAMES = st.sampled_from([None, "", "a", "b", "ü", "\U0001d518nicode", "a longer text that is no short one"])


def row_type(schema: dict[str, TypeInformation]) -> RowTypeInfo:
    return Types.ROW_NAMED(list(schema), list(schema.values()))


def as_rows(rows: Rows) -> list[Row]:
    return [Row(**row) for row in rows]


def keep_some(state: State, by_column: bool) -> State:
    stream, rows, schema = state
    if by_column:
        stream = stream.filter((col("n") % 3 != 1) | col("k").is_null())
    else:
        stream = stream.filter(lambda row: (row.n is not None and row.n % 3 != 1) or row.k is None)
    return stream, [r for r in rows if (r["n"] is not None and r["n"] % 3 != 1) or r["k"] is None], schema


def add_column(state: State, by_column: bool) -> State:
    stream, rows, schema = state
    widened_schema = dict(schema, twice=Types.LONG(), size=Types.STRING())
    if by_column:
        size = when(col("n") > 5).then("large").otherwise(col("k"))
        stream = stream.with_columns((col("id") * 2).alias("twice"), size.alias("size"))
    else:
        stream = stream.map(widened, output_type=row_type(widened_schema))
    return stream, [dict(r, twice=r["id"] * 2, size=size_of(r["n"], r["k"])) for r in rows], widened_schema


def size_of(n: int | None, k: str | None) -> str | None:
    return "large" if n is not None and n > 5 else k


def widened(row: Row) -> Row:
    return Row(**{**row.as_dict(), "twice": row.id * 2, "size": size_of(row.n, row.k)})


def leave_out(state: State, by_column: bool) -> State:
    stream, rows, schema = state
    others = [name for name in schema if name not in ("id", "k", "n")]
    if not others:
        return state
    gone = others[len(rows) % len(others)]
    left = {name: field_type for name, field_type in schema.items() if name != gone}
    stream = stream.drop(gone) if by_column else stream.select(*left)
    return stream, [{name: row[name] for name in left} for row in rows], left


def turn(state: State, by_column: bool) -> State:
    """The columns in another order."""
    stream, rows, schema = state
    turned = dict(reversed(schema.items()))
    if by_column:
        stream = stream.select(*turned)
    else:
        names = tuple(turned)
        stream = stream.map(lambda row: Row(**{name: row[name] for name in names}), output_type=row_type(turned))
    return stream, [{name: row[name] for name in turned} for row in rows], turned


def repeat(state: State, by_column: bool) -> State:
    stream, rows, schema = state

    def thrice(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        for _ in range(3):
            yield batch.filter(pc.fill_null(pc.greater(batch.column("n"), 0), True))

    def copies(row: Row) -> Iterator[Row]:
        yield from [row] * (3 if row.n is None or row.n > 0 else 0)

    declared = row_type(schema)
    stream = stream.map_batches(thrice, declared) if by_column else stream.flat_map(copies, output_type=declared)
    return stream, [row for row in rows if row["n"] is None or row["n"] > 0 for _ in range(3)], schema


def encode(state: State, by_column: bool) -> State:
    """Dictionaries in place of texts, as a user's function may give them."""
    stream, rows, schema = state
    declared = row_type(schema)

    def encoded(batch: pa.RecordBatch) -> pa.RecordBatch:
        arrays = [pc.dictionary_encode(c) if pa.types.is_string(c.type) else c for c in batch.columns]
        return pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)

    return stream.map_batches(encoded, declared) if by_column else stream, rows, schema


def forget_types(state: State, by_column: bool) -> State:
    """Through a stream of Python objects and back."""
    stream, rows, schema = state
    objects = stream.map(lambda row: row.as_dict())
    return objects.map(lambda fields: Row(**fields), output_type=row_type(schema)), rows, schema


def deal_out(state: State, by_column: bool) -> State:
    return state[0].rebalance(), state[1], state[2]


def by_key(state: State, by_column: bool) -> State:
    stream, rows, schema = state
    keyed = stream.key_by(["k", "n"]) if by_column else stream.key_by(lambda row: (row.k, row.n))
    return keyed.map(lambda row: row, output_type=row_type(schema)), rows, schema


def both_ways(state: State, by_column: bool) -> State:
    """Two branches of one stream, one by columns and one by rows, together again."""
    stream, rows, schema = state
    nulls = stream.filter(col("n").is_null())
    rest = stream.filter(lambda row: row.n is not None)
    return nulls.union(rest), rows, schema


STEPS: list[Callable[[State, bool], State]] = [
    keep_some, add_column, leave_out, turn, repeat, encode, forget_types, deal_out, by_key, both_ways,
]  # fmt: skip


def fed(rows: list[Row], size: int, columns: StreamColumns | None) -> Feed:
    """Batches of this size, as rows or as columns."""
    parts = [rows[start : start + size] for start in range(0, len(rows), size)]
    return lambda name: [Batch(part if columns is None else columns.from_records(part)) for part in parts]


def counted(rows: list[Any]) -> Counter[str]:
    return Counter(repr(row) for row in rows)


@settings(max_examples=examples(25))
@given(data=st.data())
def test_random_programs_mean_what_python_means(data: st.DataObject) -> None:
    extra = data.draw(st.lists(typed(), max_size=3))
    schema: dict[str, TypeInformation] = {"id": Types.LONG(), "k": Types.STRING(), "n": Types.INT()}
    schema |= {f"x{i}": field_type for i, (field_type, _) in enumerate(extra)}
    values = st.fixed_dictionaries(
        {"k": NAMES, "n": st.none() | st.integers(-9, 9), **{f"x{i}": value for i, (_, value) in enumerate(extra)}}
    )
    drawn = data.draw(st.lists(values, max_size=25))
    rows: Rows = [{name: i if name == "id" else row[name] for name in schema} for i, row in enumerate(drawn)]
    steps = data.draw(st.lists(st.tuples(st.sampled_from(STEPS), st.booleans()), max_size=6))
    parallelism, seed = data.draw(st.integers(1, 5)), data.draw(st.integers(0, 99))
    size = data.draw(st.integers(1, 30))
    declared, given_rows = row_type(schema), as_rows(rows)
    results_of_both: list[list[Any]] = []
    for columns in (None, StreamColumns(declared)):
        env = StreamExecutionEnvironment()
        env.set_parallelism(parallelism)
        state: State = (env.from_collection([], declared), rows, schema)
        for step, by_column in steps:
            state = step(state, by_column)
        results_of_both.append(results(state[0], fed(given_rows, size, columns), seed))
    expected = as_rows(state[1])
    assert counted(results_of_both[0]) == counted(results_of_both[1]) == counted(expected)
    moves = {deal_out, by_key, both_ways, repeat}  # a function that repeats batches repeats them as a whole
    if parallelism == 1 and not moves & {step for step, _ in steps}:
        assert all(same(records, expected) for records in results_of_both)


@pytest.mark.parametrize(("size", "count"), [(1, 300), (1000, 10_000), (100_000, 100_000)])
def test_batches_of_all_sizes(size: int, count: int) -> None:
    schema: dict[str, TypeInformation] = {"id": Types.LONG(), "k": Types.STRING(), "n": Types.INT()}
    words = [None, "a", "b", "ü"]
    rows: Rows = [{"id": i, "k": words[i % 4], "n": i % 11 - 5} for i in range(count)]
    steps = (keep_some, add_column, deal_out, turn) if size > 1000 else (keep_some, by_key, add_column, deal_out, turn)
    for columns in (None, StreamColumns(row_type(schema))):
        env = StreamExecutionEnvironment()
        env.set_parallelism(3)
        state: State = (env.from_collection([], row_type(schema)), rows, schema)
        for step in steps:
            state = step(state, True)
        records = results(state[0], fed(as_rows(rows), size, columns))
        assert sorted(records, key=lambda row: row.id) == as_rows(state[1])


def test_all_steps_one_after_the_other() -> None:
    schema: dict[str, TypeInformation] = {"id": Types.LONG(), "k": Types.STRING(), "n": Types.INT()}
    rows: Rows = [{"id": i, "k": "ab"[i % 2], "n": i} for i in range(40)]
    for by_column, columns in itertools.product((True, False), (None, StreamColumns(row_type(schema)))):
        env = StreamExecutionEnvironment()
        env.set_parallelism(4)
        state: State = (env.from_collection([], row_type(schema)), rows, schema)
        for step in STEPS:
            state = step(state, by_column)
        records = results(state[0], fed(as_rows(rows), 7, columns))
        assert counted(records) == counted(as_rows(state[1]))
        assert records != []
