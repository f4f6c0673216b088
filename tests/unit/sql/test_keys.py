"""Collections and rows as keys: of groups, partitions, joins and sets, with rows that come and go."""

from __future__ import annotations

import math
from typing import Any

import pytest

from firesteel.common import Instant, Row
from firesteel_sql import TableEnvironment
from firesteel_sql.parse.errors import SqlError
from tests.unit.sql.query_rig import QueryRig, tables_of, use_changes_connector

ROWS = (
    "(SELECT id, k, ARRAY[k, 7] AS a, MAP['k', k, 'j', 1] AS m, ROW(k, x) AS r, TO_TIMESTAMP_LTZ(k, 3) AS moment "
    "FROM t) AS s"
)
OTHERS = "(SELECT id, ARRAY[k, 7] AS a, MAP['j', 1, 'k', k] AS m, ROW(k, CAST(0 AS DOUBLE)) AS r FROM u) AS o"


def _plain(value: Any) -> Any:
    """A value as one that can be counted; NaN is equal to itself."""
    match value:
        case Row() | list():
            return tuple(map(_plain, value))
        case dict():
            return tuple(sorted((key, _plain(part)) for key, part in value.items()))
    return "NaN" if isinstance(value, float) and math.isnan(value) else value


def _moment(millis: int) -> Instant:
    return Instant.of_epoch_milli(millis)


class _Rig(QueryRig):
    """Counts rows whose values are lists and maps."""

    def _row(self, record: Any) -> tuple[Any, ...]:
        return tuple(map(_plain, record))


@pytest.mark.parametrize(
    ("query", "before", "after"),
    [
        (
            "SELECT a, COUNT(*) AS c FROM {} GROUP BY a",
            {((1, 7), 2), ((None, 7), 2), ((2, 7), 1)},
            {((1, 7), 1), ((None, 7), 1), ((2, 7), 1)},
        ),
        (
            "SELECT m, MAX(id) AS best, k FROM {} GROUP BY k, m",
            {((("j", 1), ("k", 1)), 2, 1), ((("j", 1), ("k", 2)), 5, 2), ((("j", 1), ("k", None)), 4, None)},
            {((("j", 1), ("k", 1)), 1, 1), ((("j", 1), ("k", 2)), 5, 2), ((("j", 1), ("k", None)), 3, None)},
        ),
        (
            "SELECT r, COUNT(*) AS c FROM {} GROUP BY r",
            {((1, 0.0), 2), ((None, "NaN"), 2), ((2, None), 1)},
            {((1, 0.0), 1), ((None, "NaN"), 1), ((2, None), 1)},
        ),
        ("SELECT DISTINCT a FROM {}", {((1, 7),), ((2, 7),), ((None, 7),)}, {((1, 7),), ((2, 7),), ((None, 7),)}),
        ("SELECT COUNT(DISTINCT r), COUNT(DISTINCT m), ARRAY_AGG(DISTINCT a) FROM {} WHERE k = 1",
         {(1, 1, ((1, 7),))}, {(1, 1, ((1, 7),))}),
        ("SELECT id FROM {} QUALIFY ROW_NUMBER() OVER (PARTITION BY a ORDER BY id DESC) = 1",
         {(2,), (4,), (5,)}, {(1,), (3,), (5,)}),
        ("SELECT id, SUM(id) OVER (PARTITION BY r ORDER BY id) AS s FROM {}",
         {(1, 1), (2, 3), (3, 3), (4, 7), (5, 5)}, {(1, 1), (3, 3), (5, 5)}),
        ("SELECT moment, COUNT(*) FROM {} GROUP BY moment",
         {(_moment(1), 2), (_moment(2), 1), (None, 2)}, {(_moment(1), 1), (_moment(2), 1), (None, 1)}),
        ("SELECT a FROM {} EXCEPT SELECT a FROM {} WHERE id > 3", {((1, 7),)}, {((1, 7),), ((None, 7),)}),
        ("SELECT r FROM {} INTERSECT SELECT r FROM []", {((1, 0.0),)}, {((1, 0.0),)}),
        ("SELECT s.id, o.id AS other FROM {} JOIN [] ON s.a = o.a AND s.m = o.m",
         {(1, 11), (2, 11), (5, 12)}, {(1, 11), (5, 12)}),
        ("SELECT s.id, o.id AS other FROM {} LEFT JOIN [] ON s.r = o.r",
         {(1, 11), (2, 11), (3, None), (4, None), (5, None)}, {(1, 11), (3, None), (5, None)}),
        ("SELECT id FROM {} WHERE a NOT IN (SELECT a FROM [])", {(3,), (4,)}, {(3,)}),
        ("SELECT id FROM {} WHERE NULLIF(a, ARRAY[0, 0]) NOT IN (SELECT NULLIF(a, ARRAY[0, 0]) FROM [])", {(3,), (4,)},
         {(3,)}),
        ("SELECT id FROM {} WHERE r <> ROW(1, CAST(0 AS DOUBLE)) AND m IS DISTINCT FROM MAP['j', 1, 'k', 2]",
         {(3,), (4,)}, {(3,)}),
    ],
)  # fmt: skip
def test_a_collection_or_a_row_is_a_key(
    query: str, before: set[Any], after: set[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    use_changes_connector(monkeypatch)
    tables = TableEnvironment.create()
    tables_of(tables, {"t": "id INT, k INT, x DOUBLE", "u": "id INT, k INT"})
    rig = _Rig(tables, query.replace("{}", ROWS).replace("[]", OTHERS), 2)
    rows = [(1, 1, 0.0), (2, 1, -0.0), (3, None, math.nan), (4, None, -math.nan), (5, 2, None)]
    rig.change("t", [(1, row) for row in rows])
    assert rig.change("u", [(1, (11, 1)), (1, (12, 2))]) == dict.fromkeys(before, 1)
    rig.restart(3)
    assert rig.change("t", [(-1, (2, 1, 0.0)), (-1, (4, None, math.nan))]) == dict.fromkeys(after, 1)


@pytest.mark.parametrize(
    "query",
    ["SELECT id FROM {} ORDER BY a LIMIT 1", "SELECT ROW_NUMBER() OVER (ORDER BY m) FROM {}", "SELECT MIN(r) FROM {}"],
)
def test_collections_and_rows_have_no_order(query: str) -> None:
    tables = TableEnvironment.create()
    rows = "(SELECT id, ARRAY[id] AS a, MAP['k', id] AS m, ROW(id, id) AS r FROM (VALUES (1), (2)) AS v (id)) AS t"
    with pytest.raises(SqlError, match="has no order"):
        tables.sql_query(query.replace("{}", rows))
