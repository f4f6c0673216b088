"""Random expressions over random rows: their values are those of DuckDB."""

from __future__ import annotations

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firesteel.expressions.binding import bind
from firesteel.table.types import DataTypes
from firesteel_sql.bind.expressions import ExpressionBinder
from firesteel_sql.bind.scope import Scope, ScopedColumn
from firesteel_sql.functions.signature import Session
from firesteel_sql.parse import nodes as n
from firesteel_sql.parse.statements import parse_query
from firesteel_sql.plan.relations import Column
from firesteel_sql.plan.row_expressions import to_expression
from firesteel_sql.types.columns import type_info_of
from tests.examples import examples

pytestmark = pytest.mark.usefixtures("no_pandas")

COLUMNS = {
    "a": DataTypes.INT(),
    "b": DataTypes.INT(),
    "x": DataTypes.BOOLEAN(),
    "y": DataTypes.BOOLEAN(),
    "s": DataTypes.STRING(),
}

numbers: st.SearchStrategy[str] = st.deferred(
    lambda: st.one_of(
        st.sampled_from(["a", "b", "0", "1", "7", "CAST(NULL AS INT)"]),
        st.tuples(numbers, st.sampled_from(["+", "-", "*"]), numbers).map(lambda parts: f"({' '.join(parts)})"),
        st.tuples(conditions, numbers, numbers).map("(CASE WHEN {0[0]} THEN {0[1]} ELSE {0[2]} END)".format),
        st.tuples(numbers, numbers).map("COALESCE({0[0]}, {0[1]})".format),
        st.tuples(numbers, numbers).map("NULLIF({0[0]}, {0[1]})".format),
        numbers.map("ABS({})".format),
        texts.map("CHAR_LENGTH({})".format),
        numbers.map("SIGN({})".format),
        st.tuples(numbers, st.sampled_from([3, -4])).map("({0[0]} % {0[1]})".format),
        st.tuples(st.sampled_from(["'a'", "'ab'"]), texts).map("POSITION({0[0]} IN {0[1]})".format),
    )
)
texts: st.SearchStrategy[str] = st.deferred(
    lambda: st.one_of(
        st.sampled_from(["s", "'ab'", "'%'", "''"]),
        st.tuples(texts, texts).map("({0[0]} || {0[1]})".format),
        texts.map("UPPER({})".format),
        texts.map("LOWER({})".format),
        texts.map("REVERSE({})".format),
        texts.map("MD5({})".format),
        st.tuples(texts, st.sampled_from(["a", "ab", "%"]), texts).map("REPLACE({0[0]}, '{0[1]}', {0[2]})".format),
        st.tuples(texts, st.integers(0, 3)).map("LEFT({0[0]}, {0[1]})".format),
        st.tuples(texts, st.integers(0, 3)).map("RIGHT({0[0]}, {0[1]})".format),
        st.tuples(texts, st.integers(0, 5)).map("LPAD({0[0]}, {0[1]}, 'xy')".format),
        st.tuples(texts, st.integers(0, 5)).map("RPAD({0[0]}, {0[1]}, 'xy')".format),
        st.tuples(texts, st.integers(0, 2)).map("REPEAT({0[0]}, {0[1]})".format),
        st.tuples(texts, st.sampled_from(["ab", "aA"]), st.sampled_from(["x", "xy"])).map(
            "TRANSLATE({0[0]}, '{0[1]}', '{0[2]}')".format
        ),
        st.tuples(texts, st.integers(1, 4), st.integers(0, 3)).map("SUBSTRING({0[0]}, {0[1]}, {0[2]})".format),
        st.tuples(conditions, texts, texts).map("(CASE WHEN {0[0]} THEN {0[1]} ELSE {0[2]} END)".format),
    )
)
conditions: st.SearchStrategy[str] = st.deferred(
    lambda: st.one_of(
        st.sampled_from(["x", "y", "TRUE", "FALSE", "CAST(NULL AS BOOLEAN)"]),
        st.tuples(conditions, st.sampled_from(["AND", "OR"]), conditions).map(lambda parts: f"({' '.join(parts)})"),
        conditions.map("(NOT {})".format),
        st.tuples(numbers, st.sampled_from(["=", "<>", "<", "<=", ">", ">="]), numbers).map(
            lambda p: f"({' '.join(p)})"
        ),
        st.tuples(texts, st.sampled_from(["=", "<>", "<", ">="]), texts).map(lambda parts: f"({' '.join(parts)})"),
        st.tuples(numbers, numbers, numbers).map("({0[0]} BETWEEN {0[1]} AND {0[2]})".format),
        st.tuples(numbers, numbers, numbers).map("({0[0]} NOT IN ({0[1]}, {0[2]}))".format),
        st.tuples(numbers, numbers).map("({0[0]} IN ({0[1]}, 3, NULL))".format),
        st.tuples(texts, st.sampled_from(["'a%'", "'_b'", "'%'", "s"])).map("({0[0]} LIKE {0[1]})".format),
        st.tuples(texts, texts).map("STARTSWITH({0[0]}, {0[1]})".format),
        st.tuples(texts, texts).map("ENDSWITH({0[0]}, {0[1]})".format),
        st.tuples(texts, st.sampled_from(["'a.'", "'^[ab]+$'", "'(a|b)A?'", "'[^a%]'"])).map(
            "REGEXP({0[0]}, {0[1]})".format
        ),
        st.tuples(numbers, numbers).map("({0[0]} IS DISTINCT FROM {0[1]})".format),
        st.tuples(st.one_of(numbers, conditions)).map("({0[0]} IS NULL)".format),
        conditions.map("({} IS NOT TRUE)".format),
    )
)
OTHER_NAMES = {
    "CHAR_LENGTH": "LENGTH",
    "STARTSWITH": "STARTS_WITH",
    "ENDSWITH": "ENDS_WITH",
    "REGEXP(": "REGEXP_MATCHES(",
}
"""Functions that DuckDB has under another name."""
small = st.one_of(st.none(), st.integers(-9, 9))
rows = st.lists(
    st.tuples(small, small, st.one_of(st.none(), st.booleans()), st.one_of(st.none(), st.booleans()),
              st.one_of(st.none(), st.text("abA%_", max_size=4))),
    min_size=1, max_size=12,
)  # fmt: skip


def ours(expression: str, batch: pa.RecordBatch) -> list[object]:
    scope = Scope([ScopedColumn(Column(name, kind), place, ()) for place, (name, kind) in enumerate(COLUMNS.items())])
    sql = f"SELECT {expression}"
    body = parse_query(sql).query.body
    assert isinstance(body, n.Select)
    bound = ExpressionBinder(scope, Session(), sql).bind(body.items[0].expression)
    types = {name: type_info_of(kind) for name, kind in COLUMNS.items()}
    computed = bind(to_expression(bound, list(COLUMNS)), types)
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    values: list[object] = computed.evaluate(columns, batch.num_rows).to_pylist()
    return values


@given(expression=st.one_of(numbers, texts, conditions), data=rows)
@settings(max_examples=examples(150), deadline=None)
def test_an_expression_has_the_values_of_duckdb(expression: str, data: list[tuple[object, ...]]) -> None:
    types = [pa.int32(), pa.int32(), pa.bool_(), pa.bool_(), pa.string()]
    arrays = [pa.array([row[place] for row in data], kind) for place, kind in enumerate(types)]
    batch = pa.RecordBatch.from_arrays(arrays, names=list(COLUMNS))
    with duckdb.connect() as other:
        other.register("t", pa.Table.from_batches([batch]))
        theirs = expression
        for name, other_name in OTHER_NAMES.items():
            theirs = theirs.replace(name, other_name)
        expected = [row[0] for row in other.execute(f"SELECT {theirs} FROM t").fetchall()]
    assert ours(expression, batch) == expected
