"""Collections that are taken apart into rows, several at once, and rows that are gathered into collections."""

from __future__ import annotations

from typing import Any

import pytest

from firesteel_sql import TableEnvironment
from firesteel_sql.parse.errors import SqlError
from tests.unit.sql.query_rig import QueryRig, tables_of, use_changes_connector


@pytest.fixture
def tables(monkeypatch: pytest.MonkeyPatch) -> TableEnvironment:
    use_changes_connector(monkeypatch)
    environment = TableEnvironment.create()
    tables_of(
        environment,
        {
            "t": "id INT, a ARRAY<INT>, s ARRAY<STRING>, m MAP<STRING, INT>, r ARRAY<ROW<x INT, y STRING>>",
            "u": "k INT, v INT",
        },
    )
    return environment


FIRST: tuple[Any, ...] = (1, [1, 2, 3], ["p"], {"k": 7}, [(10, "ten"), None])
SECOND: tuple[Any, ...] = (2, [], None, None, [])


@pytest.mark.parametrize(
    ("query", "rows"),
    [
        ("SELECT id, x, y FROM t CROSS JOIN UNNEST(a, s) AS e (x, y)", {(1, 1, "p"), (1, 2, None), (1, 3, None)}),
        ("SELECT id, x, y FROM t LEFT JOIN UNNEST(a, s) AS e (x, y) ON TRUE",
         {(1, 1, "p"), (1, 2, None), (1, 3, None), (2, None, None)}),
        ("SELECT key, val, x, y, n FROM t CROSS JOIN UNNEST(m, r) WITH ORDINALITY AS e (key, val, x, y, n)",
         {("k", 7, 10, "ten", 1), (None, None, None, None, 2)}),
        ("SELECT e.* FROM t, UNNEST(r, s) AS e", {(10, "ten", "p"), (None, None, None)}),
        ("SELECT p, q FROM (SELECT COLLECT(id) AS c FROM t GROUP BY id > 0) AS g "
         "CROSS JOIN UNNEST(c, ARRAY['z']) AS e (p, q)",
         {(1, "z"), (2, None)}),
    ],
)  # fmt: skip
def test_collections_are_taken_apart_side_by_side(
    query: str, rows: set[tuple[Any, ...]], tables: TableEnvironment
) -> None:
    rig = QueryRig(tables, query)
    assert rig.change("t", [(1, FIRST), (1, SECOND)]) == dict.fromkeys(rows, 1)
    rig.change("t", [(-1, FIRST)])
    assert rig.change("t", [(-1, SECOND)]) == {}


def test_rows_of_a_query_are_gathered(tables: TableEnvironment) -> None:
    query = (
        "SELECT t.id, CARDINALITY(ARRAY(SELECT v FROM u WHERE u.k = t.id)) AS n, "
        "ARRAY_JOIN(ARRAY(SELECT CAST(v AS STRING) FROM u WHERE u.k = t.id), '+') AS text, "
        "CARDINALITY(MULTISET(SELECT v FROM u)) AS different FROM t"
    )
    rig = QueryRig(tables, query)
    assert rig.change("t", [(1, FIRST), (1, SECOND)]) == {(1, 0, "", 0): 1, (2, 0, "", 0): 1}
    rig.change("u", [(1, (1, 5)), (1, (1, 5)), (1, (2, 6))])
    assert rig.table == {(1, 2, "5+5", 2): 1, (2, 1, "6", 2): 1}
    rig.change("u", [(-1, (1, 5))])
    assert rig.table == {(1, 1, "5", 2): 1, (2, 1, "6", 2): 1}


def test_the_fields_of_a_row_are_columns(tables: TableEnvironment) -> None:
    tables.execute_sql("CREATE VIEW w AS SELECT k, ROW(v, k + v) AS r FROM u")
    rig = QueryRig(tables, "SELECT r.*, k, w.r.* FROM w")
    assert rig.change("u", [(1, (1, 5))]) == {(5, 6, 1, 5, 6): 1}
    with pytest.raises(SqlError, match=r"w\.k is INT, which has no fields"):
        tables.sql_query("SELECT w.k.* FROM w")
    with pytest.raises(SqlError, match="the query has no table x"):
        tables.sql_query("SELECT x.* FROM w")


@pytest.mark.parametrize(
    ("query", "rows"),
    [
        ("SELECT k, v, GROUP_ID() AS g, GROUPING_ID(k, v) AS h FROM u GROUP BY CUBE (k, v)",
         {(1, 5, 0, 0), (1, None, 1, 1), (None, 5, 2, 2), (None, None, 3, 3)}),
        ("SELECT k, GROUP_ID() AS g FROM u GROUP BY k", {(1, 0)}),
    ],
)  # fmt: skip
def test_the_group_id_has_a_bit_for_each_key(query: str, rows: set[tuple[Any, ...]], tables: TableEnvironment) -> None:
    assert QueryRig(tables, query).change("u", [(1, (1, 5))]) == dict.fromkeys(rows, 1)


def test_a_collection_of_a_query_has_one_column(tables: TableEnvironment) -> None:
    with pytest.raises(SqlError, match=r"ARRAY\(SELECT ...\) has one column, not 2"):
        tables.sql_query("SELECT ARRAY(SELECT k, v FROM u)")
