"""Joins with rows of another system: keys are looked up together, each different one once, and rows are kept."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from firesteel.common.typeinfo import DecimalTypeInfo, TypeInformation, Types
from firesteel.core.errors import FiresteelError
from firesteel.datastream.connectors.jdbc import JdbcConnectionOptions, JdbcRowLookup
from firesteel.expressions import col
from firesteel_sql import TableEnvironment
from firesteel_sql.connectors.lookup import Key, LookedUpRow, LookupCache, TableLookup
from firesteel_sql.connectors.options import TableOptionError
from firesteel_sql.execution.streams import StreamBuilder
from firesteel_sql.execution.table_modes import table_mode
from firesteel_sql.operators.lookup_joins import CachedRows, LookupRows
from firesteel_sql.operators.plans import LookupPlan
from firesteel_sql.plan.optimizer import optimised

ORDERS = pa.schema([("order", pa.int64()), ("good", pa.int64())])
JOINED = pa.schema([*ORDERS, ("id", pa.int64()), ("name", pa.string())])
TABLE: tuple[tuple[str, TypeInformation], ...] = (("id", Types.LONG()), ("name", Types.STRING()))


class Goods(TableLookup):
    """Goods by id; 7 stands for two of them."""

    def __init__(self) -> None:
        self.requests: list[list[Key]] = []

    def rows(self, keys: Sequence[Key]) -> Sequence[Sequence[LookedUpRow]]:
        self.requests.append(list(keys))
        goods: dict[Key, list[LookedUpRow]] = {(1,): [(1, "tea")], (7,): [(7, "milk"), (7, "cream")]}
        return [goods.get(key, []) for key in keys]


def _joined(
    goods: Goods, *batches: list[tuple[int, int | None]], cache: LookupCache | None = None, **more: Any
) -> list[tuple[int, tuple[Any, ...]]]:
    plan = LookupPlan(goods, cache, (1,), 2, TABLE, **{"is_outer": False} | more)
    join = LookupRows(plan, ORDERS, JOINED)
    results = []
    for batch in batches:
        rows = pa.RecordBatch.from_pylist([{"order": order, "good": good} for order, good in batch], schema=ORDERS)
        origins, result = join.expand(rows)
        results += list(zip(origins.tolist(), map(tuple, (row.values() for row in result.to_pylist())), strict=True))
    return results


def test_rows_are_joined_with_all_rows_of_their_key_and_each_key_is_looked_up_once() -> None:
    goods = Goods()
    results = _joined(goods, [(10, 7), (11, 1), (12, 7), (13, 5), (14, None)])
    assert results == [
        (0, (10, 7, 7, "milk")),
        (0, (10, 7, 7, "cream")),
        (1, (11, 1, 1, "tea")),
        (2, (12, 7, 7, "milk")),
        (2, (12, 7, 7, "cream")),
    ]
    assert goods.requests == [[(7,), (1,), (5,)]]


def test_rows_without_a_partner_stay_in_an_outer_join_at_their_place() -> None:
    results = _joined(Goods(), [(10, 5), (11, 1), (12, None)], is_outer=True)
    assert results == [(0, (10, 5, None, None)), (1, (11, 1, 1, "tea")), (2, (12, None, None, None))]


def test_a_partner_for_which_the_condition_does_not_hold_is_none() -> None:
    types = {"order": Types.LONG(), "good": Types.LONG(), **dict(TABLE)}
    condition = col("name") == "cream"
    batch: list[tuple[int, int | None]] = [(10, 7), (11, 1)]
    more: dict[str, Any] = {"condition": condition, "condition_types": types}
    assert _joined(Goods(), batch, **more) == [(0, (10, 7, 7, "cream"))]
    outer = _joined(Goods(), batch, is_outer=True, **more)
    assert outer == [(0, (10, 7, 7, "cream")), (1, (11, 1, None, None))]


def test_kept_rows_are_not_looked_up_again() -> None:
    goods = Goods()
    _joined(goods, [(10, 1), (11, 5)], [(12, 5), (13, 7), (14, 1)], cache=LookupCache())
    assert goods.requests == [[(1,), (5,)], [(7,)]]


def test_rows_are_kept_as_long_as_the_settings_say() -> None:
    now = [0.0]
    cache = CachedRows(LookupCache(2, timedelta(seconds=10), timedelta(seconds=4), keeps_missing=False), lambda: now[0])
    cache.put((1,), [(1, "tea")])
    cache.put((5,), [])
    assert cache.get((5,)) is None
    for now[0] in (3.0, 6.0, 9.0):
        assert cache.get((1,)) == [(1, "tea")]
    now[0] = 10.0
    assert cache.get((1,)) is None, "it was written ten seconds ago"
    cache.put((1,), [(1, "tea")])
    now[0] = 14.0
    assert cache.get((1,)) is None, "nobody used it for four seconds"
    for key in (1, 2, 3):
        cache.put((key,), [(key, "")])
    assert [cache.get((key,)) is not None for key in (1, 2, 3)] == [False, True, True]


def _shop(folder: Path) -> JdbcConnectionOptions:
    path = folder / "shop é.db"
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE goods (id INTEGER, region TEXT, price TEXT)")
        rows = [(number, region, f"{number}.50") for number in range(500) for region in ("n", "s")]
        database.executemany("INSERT INTO goods VALUES (?, ?, ?)", rows)
    database.close()
    return JdbcConnectionOptions.JdbcConnectionOptionsBuilder().with_url(f"jdbc:sqlite:{path}").build()


def test_a_database_is_asked_for_many_keys_at_once(tmp_path: Path) -> None:
    row_type = Types.ROW_NAMED(["id", "price"], [Types.LONG(), DecimalTypeInfo(10, 2)])
    lookup = JdbcRowLookup("SELECT id, price FROM goods", ["id"], [0], row_type, _shop(tmp_path))
    rows = lookup.rows([(number,) for number in range(0, 1000, 2)])
    assert rows[3] == [[6, Decimal("6.50")]] * 2
    assert [len(part) for part in rows] == [2] * 250 + [0] * 250
    lookup.close()


def test_keys_of_several_columns_are_found_in_a_database(tmp_path: Path) -> None:
    row_type = Types.ROW_NAMED(["id", "region", "price"], [Types.LONG(), Types.STRING(), DecimalTypeInfo(10, 2)])
    key = ['"region"', '"id"']
    lookup = JdbcRowLookup("SELECT id, region, price FROM goods", key, [1, 0], row_type, _shop(tmp_path))
    assert lookup.rows([("s", 3), ("x", 3)]) == [[[3, "s", Decimal("3.50")]], []]
    lookup.close()


def test_a_database_that_can_not_answer_fails_with_its_words(tmp_path: Path) -> None:
    row_type = Types.ROW_NAMED(["id"], [Types.LONG()])
    lookup = JdbcRowLookup("SELECT id FROM absent", ["id"], [0], row_type, _shop(tmp_path), max_retries=0)
    with pytest.raises(FiresteelError, match="no such table: absent"):
        lookup.rows([(1,)])


def _planned(options: str) -> None:
    tables = TableEnvironment.create()
    tables.execute_sql(f"CREATE TABLE goods (id BIGINT, name STRING) WITH ('connector' = 'jdbc', {options})")
    tables.execute_sql("CREATE TABLE orders (good BIGINT, at AS PROCTIME()) WITH ('connector' = 'datagen')")
    query = "SELECT good, name FROM orders JOIN goods FOR SYSTEM_TIME AS OF orders.at ON good = id"
    (relation,) = optimised([tables.sql_query(query)._relation], table_mode)
    StreamBuilder(tables._for_a_job()).build(relation)


def test_a_lookup_join_is_planned_and_caches_that_are_not_there_are_refused() -> None:
    _planned("'url' = 'jdbc:sqlite:/x', 'table-name' = 'goods', 'lookup.cache' = 'PARTIAL'")
    with pytest.raises(TableOptionError, match="tables are not kept whole"):
        _planned("'url' = 'jdbc:sqlite:/x', 'table-name' = 'goods', 'lookup.cache' = 'FULL'")
