"""Kernels over whole columns give what they give for single values."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pytest

from firesteel.expressions.binding import bind
from firesteel.table.types import DataType, DataTypes
from firesteel_sql.bind.expressions import ExpressionBinder
from firesteel_sql.bind.scope import Scope, ScopedColumn
from firesteel_sql.functions.signature import Session
from firesteel_sql.parse import nodes as n
from firesteel_sql.parse.statements import parse_query
from firesteel_sql.plan.relations import Column
from firesteel_sql.plan.row_expressions import to_expression
from firesteel_sql.types.columns import type_info_of

COLUMNS: dict[str, tuple[DataType, pa.DataType, list[object]]] = {
    "s": (DataTypes.STRING(), pa.string(), ["", " ", "abc", "  aXb  ", "x\ny", None, "ü€😀", "a1-ab", "straße", "aaa"]),
    "t": (DataTypes.STRING(), pa.string(), ["plain", "ASCII only", "", None, "a b", "zz", "0", "q", "r", "Z"]),
    "x": (
        DataTypes.DOUBLE(), pa.float64(),
        [0.0, -0.5, 1.005, 2.5, float("nan"), float("inf"), None, -2.5, 1e300, 123456.789],
    ),
    "d": (DataTypes.DECIMAL(38, 3), pa.decimal128(38, 3), [None, *[pa.scalar(number).as_py() for number in range(9)]]),
    "day": (
        DataTypes.DATE(), pa.date32(),
        [date(1, 1, 1), date(9999, 12, 31), date(1969, 12, 28), date(2020, 2, 29), None, date(2021, 1, 3),
         date(2000, 12, 31), date(1970, 1, 1), date(2024, 12, 30), date(2020, 4, 1)],
    ),
    "ts": (
        DataTypes.TIMESTAMP(6), pa.timestamp("us"),
        [datetime(1, 1, 8), datetime(9998, 12, 31, 23, 59, 59, 999999), datetime(1969, 12, 31, 23, 59, 59, 1), None,
         datetime(2020, 2, 29, 12), datetime(2020, 2, 1), datetime(2021, 1, 3, 1, 2, 3, 4), datetime(1970, 1, 1),
         datetime(2020, 4, 1), datetime(2020, 3, 29, 1, 30)],
    ),
    "at": (
        DataTypes.TIMESTAMP_LTZ(6), pa.timestamp("us", "UTC"),
        [datetime(1969, 12, 31, 23, 59, 59, 1, UTC), None, datetime(2020, 2, 29, 12, tzinfo=UTC),
         datetime(2020, 3, 29, 0, 59, 59, tzinfo=UTC), datetime(2020, 3, 29, 1, tzinfo=UTC),
         datetime(2020, 10, 25, 0, 30, tzinfo=UTC), datetime(2020, 10, 25, 1, 30, tzinfo=UTC),
         datetime(2020, 12, 31, 23, 30, tzinfo=UTC), datetime(1970, 1, 1, tzinfo=UTC),
         datetime(2020, 7, 1, 22, 15, tzinfo=UTC)],
    ),
}  # fmt: skip
EXPRESSIONS = """
UPPER(s)
UPPER(t)
LOWER(s)
LOWER(t)
SUBSTRING(s, 2)
SUBSTRING(s, 0, 2)
SUBSTRING(s, 2, 0)
SUBSTRING(s, 3, 9)
LEFT(s, 2)
LEFT(s, -1)
TRIM(s)
TRIM(LEADING 'a ' FROM s)
TRIM(TRAILING 'ab' FROM s)
LTRIM(s)
RTRIM(s, 'b ')
BTRIM(s)
REPLACE(s, 'a', 'é')
REPLACE(s, '', '-')
REPLACE(s, 'ab', '')
STARTSWITH(s, 'a')
STARTSWITH(s, '')
ENDSWITH(s, 'b')
REGEXP(s, 'a[a-z]')
REGEXP(s, 'x.y')
REGEXP(s, '(ab|ü).')
REGEXP(s, '\\w+')
REGEXP_COUNT(s, 'a')
REGEXP_COUNT(s, 'a*')
REGEXP_REPLACE(s, 'a+', '$1\\2')
REGEXP_REPLACE(s, 'a*', '-')
REGEXP_REPLACE(s, '[^a]', '.')
s LIKE '%a%'
s LIKE 'x_y'
CHAR_LENGTH(s)
ROUND(x)
ROUND(x, 2)
TRUNCATE(x, 1)
ROUND(d, 1)
ROUND(d, -1)
TRUNCATE(d)
EXTRACT(YEAR FROM day)
EXTRACT(QUARTER FROM day)
EXTRACT(WEEK FROM day)
EXTRACT(DOY FROM day)
EXTRACT(YEAR FROM ts)
EXTRACT(WEEK FROM ts)
EXTRACT(HOUR FROM ts)
EXTRACT(DAY FROM at)
EXTRACT(HOUR FROM at)
EXTRACT(DOY FROM at)
FLOOR(ts TO SECOND)
FLOOR(ts TO HOUR)
FLOOR(ts TO DAY)
FLOOR(ts TO WEEK)
FLOOR(ts TO MONTH)
CEIL(ts TO MILLISECOND)
CEIL(ts TO HOUR)
CEIL(ts TO MONTH)
FLOOR(at TO HOUR)
FLOOR(at TO DAY)
CEIL(at TO DAY)
FLOOR(at TO YEAR)
TIMESTAMPDIFF(SECOND, ts, TIMESTAMP '2020-01-01 00:00:00')
TIMESTAMPDIFF(MONTH, ts, TIMESTAMP '2020-01-31 00:00:00')
TIMESTAMPDIFF(DAY, at, ts)
TIMESTAMPDIFF(DAY, day, ts)
DATE_FORMAT(ts, 'yyyy-MM-dd HH')
DATE_FORMAT(ts, 'D S')
DATE_FORMAT(at, 'HH:mm')
""".strip().splitlines()


def computed(expression: str, columns: Mapping[str, Any], count: int) -> list[str]:
    scoped = [Column(name, kind) for name, (kind, _, _) in COLUMNS.items()]
    scope = Scope([ScopedColumn(column, place, ()) for place, column in enumerate(scoped)])
    sql = f"SELECT {expression}"
    body = parse_query(sql).query.body
    assert isinstance(body, n.Select)
    bound = ExpressionBinder(scope, Session("Europe/Berlin"), sql).bind(body.items[0].expression)
    types = {name: type_info_of(kind) for name, (kind, _, _) in COLUMNS.items()}
    return list(map(str, bind(to_expression(bound, list(COLUMNS)), types).evaluate(columns, count).to_pylist()))


ARRAYS = {name: pa.array(values, kind) for name, (_, kind, values) in COLUMNS.items()}
COUNT = 10


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_a_column_has_the_values_of_its_rows(expression: str) -> None:
    rows = [
        computed(expression, {name: column[place] for name, column in ARRAYS.items()}, 1)[0] for place in range(COUNT)
    ]
    assert computed(expression, ARRAYS, COUNT) == rows
    assert computed(expression, {name: column[:0] for name, column in ARRAYS.items()}, 0) == []


def test_rows_have_random_values_of_their_own() -> None:
    assert len(set(computed("UUID()", ARRAYS, COUNT))) == COUNT
    assert len(set(computed("RAND()", ARRAYS, COUNT))) == COUNT
    assert len(set(computed("UUID() || UUID()", ARRAYS, COUNT))) == COUNT
    assert computed("UUID() = UUID()", ARRAYS, COUNT) == ["False"] * COUNT
