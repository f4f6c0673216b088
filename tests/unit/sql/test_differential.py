"""Random queries over random changes: after each batch the changes of the result add up to DuckDB's answer.

Rows come and go in random batches, operators have one to four subtasks, and are written out and restored with another
parallelism in the middle.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pytest

from firesteel.state.backend import KeyedStateBackend, KeyedStateParameters, StateBackend
from firesteel_rocksdb import rows as rows_on_disk
from firesteel_rocksdb.backend import RocksDBStateBackend
from firesteel_sql import TableEnvironment
from tests.unit.sql.nested_queries import NestedQueries
from tests.unit.sql.query_rig import Change, QueryRig, Table, tables_of, use_changes_connector
from tests.unit.sql.random_queries import TABLES, RandomQueries

pytestmark = pytest.mark.usefixtures("no_pandas")

BATCHES = 12
NESTED = {"a": ("id", "k", "v"), "b": ("id", "k", "w"), "c": ("id", "k")}
"""Columns of whole numbers for queries within queries."""


class RandomTables:
    """Tables that change, here and in DuckDB."""

    def __init__(self, random_numbers: random.Random) -> None:
        self._random = random_numbers
        self._rows: dict[str, list[tuple[Any, ...]]] = {name: [] for name in TABLES}
        self._next = 0
        self.duckdb = duckdb.connect()
        for name, columns in TABLES.items():
            self.duckdb.execute(f"CREATE TABLE {name} ({columns})")

    def _row(self, table: str) -> tuple[Any, ...]:
        pick = self._random.choice
        self._next += 1
        text = pick((None, "", "tea", "toast", "wine"))
        values: dict[str, tuple[Any, ...]] = {
            "a": (pick((None, 0, 1, 2, 3, -4, 5)), text),
            "b": (pick((None, 0, 1, 2, 10_000_000_000)), text),
            "c": (pick((None, 0.0, 0.5, -2.0, 4.0)),),
        }
        return self._next, pick((None, 0, 1, 2)), *values[table]

    def change(self, table: str, size: int) -> list[Change]:
        """Change a table."""
        changes: list[Change] = []
        rows = self._rows[table]
        marks = ", ".join("?" * len(TABLES[table].split(",")))
        for _ in range(size):
            if rows and self._random.random() < 0.4:
                row = rows.pop(self._random.randrange(len(rows)))
                self.duckdb.execute(f"DELETE FROM {table} WHERE id = ?", [row[0]])
                changes.append((-1, row))
            if self._random.random() < 0.8:
                row = self._row(table)
                rows.append(row)
                self.duckdb.execute(f"INSERT INTO {table} VALUES ({marks})", list(row))
                changes.append((1, row))
        return changes

    def answer(self, query: str) -> Table:
        """DuckDB's result."""
        return Counter(tuple(row) for row in self.duckdb.execute(query).fetchall())


class LittleMemory(StateBackend):
    """State on disk, with as few keys in memory as there may be."""

    def create_keyed_state(self, parameters: KeyedStateParameters) -> KeyedStateBackend:
        return RocksDBStateBackend().create_keyed_state(replace(parameters, memory=1))


def _check(
    seed: int, monkeypatch: pytest.MonkeyPatch, directory: Path | None = None, *, is_nested: bool = False
) -> None:
    random_numbers = random.Random(seed)
    use_changes_connector(monkeypatch)
    environment = TableEnvironment.create()
    tables_of(environment, TABLES)
    if seed % 2:  # nothing expires by then
        environment.get_config().set("table.exec.state.ttl", "1 d")
    tables = RandomTables(random_numbers)
    queries = NestedQueries(random_numbers, NESTED) if is_nested else RandomQueries(random_numbers)
    query = queries.query()
    backend = None if directory is None else LittleMemory()
    rig = QueryRig(environment, query, random_numbers.randint(1, 3), backend, directory)
    for step in range(BATCHES):
        table = random_numbers.choice(list(TABLES))
        result = rig.change(table, tables.change(table, random_numbers.choice((1, 2, 15))))
        answer = tables.answer(query)
        assert result == answer or _is_row_of_nothing(result, answer), f"{query}\nbatch {step}: {rig.changes}"
        if step % 5 == 3:
            rig.restart(random_numbers.randint(1, 4))
    assert rig.watermark((1 << 63) - 1) == tables.answer(query), query


def _is_row_of_nothing(result: Table, answer: Table) -> bool:
    """Whether the only difference is the row of an aggregate without groups whose input had no row yet."""
    return not result and sum(answer.values()) == 1


@pytest.mark.parametrize("seed", range(30))
def test_the_changes_of_a_query_add_up_to_its_answer(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    _check(seed, monkeypatch)


@pytest.mark.parametrize("seed", range(500, 512))
def test_state_on_disk_gives_the_same_changes(seed: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(rows_on_disk, "_PIECE", 2)  # tables leave memory from their second row on
    monkeypatch.setattr(rows_on_disk, "_PAGE", 2)
    _check(seed, monkeypatch, tmp_path)


@pytest.mark.parametrize("seed", range(8))
def test_the_changes_of_queries_within_queries_add_up(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    _check(seed, monkeypatch, is_nested=True)


@pytest.mark.long
@pytest.mark.parametrize("first", range(8, 308, 50))
def test_the_changes_of_many_queries_within_queries_add_up(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(first, first + 50):
        _check(seed, monkeypatch, is_nested=True)


@pytest.mark.long
@pytest.mark.parametrize("first", range(1000, 6000, 250))
def test_the_changes_of_many_queries_add_up_to_their_answers(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(first, first + 250):
        _check(seed, monkeypatch)
