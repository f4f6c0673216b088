"""What queries mean: plans, computed row by row, give what DuckDB says of the same tables.

The tables are small and random, with NULLs and rows that are there twice; plans are computed as they were bound, and
as they are optimised.
"""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import duckdb
import pytest

from firesteel_sql.plan.optimizer import optimised
from tests.unit.sql.interpreter import Row, rows_of
from tests.unit.sql.nested_queries import NestedQueries
from tests.unit.sql.planning import bound, declared

pytestmark = pytest.mark.usefixtures("no_pandas")

TABLES = {
    "a": "id INT NOT NULL, k INT, v INT, s STRING",
    "b": "id INT NOT NULL, k INT, w INT, s STRING",
    "c": "k INT NOT NULL, x INT NOT NULL",
}
CATALOGS = declared(
    ";".join(f"CREATE TABLE {name} ({columns}) WITH ('connector' = 'x')" for name, columns in TABLES.items())
)

QUERIES = [
    line for line in (Path(__file__).parent / "queries.sql").read_text().splitlines() if not line.startswith("--")
]


def random_rows(seed: int) -> dict[str, list[Row]]:
    chance = random.Random(seed)

    def value(*, takes_null: bool = True) -> int | None:
        return None if takes_null and chance.random() < 0.2 else chance.randrange(5)

    def text() -> str | None:
        return chance.choice(["x", "y", "zz", None])

    sizes = [chance.choice([0, 3, 9, 14]) for _ in TABLES]
    return {
        "a": [(place, value(), value(), text()) for place in range(sizes[0])],
        "b": [(place, value(), value(), text()) for place in range(sizes[1])],
        "c": [(value(takes_null=False), value(takes_null=False)) for _ in range(sizes[2])],
    }


Worlds = list[tuple[dict[str, list[Row]], duckdb.DuckDBPyConnection]]


@pytest.fixture(scope="module")
def worlds() -> Worlds:
    """Tables, as rows and in DuckDB."""
    found = []
    for seed in range(6):
        tables = random_rows(seed)
        database = duckdb.connect()
        for name, rows in tables.items():
            database.execute(f"CREATE TABLE {name} ({TABLES[name]})")
            if rows:
                database.executemany(f"INSERT INTO {name} VALUES ({', '.join('?' * len(rows[0]))})", rows)
        found.append((tables, database))
    return found


def check(sql: str, worlds: Worlds) -> None:
    """Compute a query's plan over all tables, as it was bound and as it is optimised."""
    relation = bound(sql, CATALOGS)
    (better,) = optimised([relation])
    assert [(column.name, column.type) for column in better.columns] == [
        (column.name, column.type) for column in relation.columns
    ]
    for tables, database in worlds:
        expected = Counter(database.execute(sql).fetchall())
        assert Counter(rows_of(relation, tables)) == expected, sql
        assert Counter(rows_of(better, tables)) == expected, sql


@pytest.mark.parametrize("sql", QUERIES)
def test_a_plan_means_what_the_query_means(sql: str, worlds: Worlds) -> None:
    check(sql, worlds)


NUMBERS = {"a": ("id", "k", "v"), "b": ("id", "k", "w"), "c": ("k", "x")}


@pytest.mark.parametrize("first", range(0, 40, 10))
def test_plans_of_random_queries_within_queries(first: int, worlds: Worlds) -> None:
    for seed in range(first, first + 10):
        check(NestedQueries(random.Random(seed), NUMBERS).query(), worlds[:3])


@pytest.mark.long
@pytest.mark.parametrize("first", range(1000, 3000, 100))
def test_plans_of_many_random_queries_within_queries(first: int, worlds: Worlds) -> None:
    for seed in range(first, first + 100):
        check(NestedQueries(random.Random(seed), NUMBERS).query(), worlds[:3])
