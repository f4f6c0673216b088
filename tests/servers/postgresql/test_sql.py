"""Tables of SQL in a real PostgreSQL: all types go there and come back, and a changing query keeps its rows by key."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pytest

from firesteel.common.time import Instant
from firesteel_sql import TableEnvironment
from tests.integration.embedded.programs import new_environment, submitted_to
from tests.integration.recovery.places import Embedded
from tests.servers.postgresql.server import PostgresServer

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.may_skip(reason="a machine where no PostgreSQL is, and none can be installed"),
]
TYPES = {
    "id": ("BIGINT", "BIGINT PRIMARY KEY"),
    "price": ("DECIMAL(12, 2)", "NUMERIC(12, 2)"),
    "ok": ("BOOLEAN", "BOOLEAN"),
    "name": ("STRING", "TEXT"),
    "day": ("DATE", "DATE"),
    "at": ("TIMESTAMP(6)", "TIMESTAMP"),
    "z": ("TIMESTAMP_LTZ(6)", "TIMESTAMPTZ"),
    "raw": ("BYTES", "BYTEA"),
    "x": ("DOUBLE", "DOUBLE PRECISION"),
    "order": ("INT", "INTEGER"),
}


def new_tables(place: Embedded) -> TableEnvironment:
    with submitted_to(place.settings()):
        tables = TableEnvironment(new_environment(1))
    return tables


def declare(tables: TableEnvironment, postgres: PostgresServer, name: str, columns: str, driver: str | None) -> None:
    options = postgres.options(driver)
    given = {"connector": "jdbc", "url": options.get_db_url(), "table-name": name}
    chosen = {"driver": driver, "username": options.get_user_name(), "password": options.get_password()}
    given |= {key: value for key, value in chosen.items() if value is not None}
    written = ", ".join(f"'{key}' = '{value}'" for key, value in given.items())
    tables.execute_sql(f"CREATE TABLE {name} ({columns}) WITH ({written})")


@pytest.mark.parametrize("driver", [pytest.param(None, id="adbc"), "psycopg"])
def test_values_of_all_types_and_changes_by_key(here: Embedded, postgres: PostgresServer, driver: str | None) -> None:
    for table in ("sql_kinds", "sql_totals"):
        postgres.run(f"DROP TABLE IF EXISTS {table}")
    postgres.run("CREATE TABLE sql_kinds (" + ", ".join(f'"{name}" {kind}' for name, (_, kind) in TYPES.items()) + ")")
    postgres.run("CREATE TABLE sql_totals (shop TEXT PRIMARY KEY, n BIGINT)")
    tables = new_tables(here)
    columns = ", ".join(f"`{name}` {kind}" for name, (kind, _) in TYPES.items())
    declare(tables, postgres, "sql_kinds", f"{columns}, PRIMARY KEY (id) NOT ENFORCED", driver)
    nulls = ", ".join(f"CAST(NULL AS {kind})" for kind, _ in list(TYPES.values())[1:])
    tables.execute_sql(
        "INSERT INTO sql_kinds SELECT 1, 12.345, TRUE, 'é ?', DATE '2026-01-02', "
        "TIMESTAMP '2026-02-03 04:05:06.789012', "
        f"TO_TIMESTAMP_LTZ(1700000000123, 3), x'00ff', 0.5e0, 7 UNION ALL SELECT 2, {nulls}"
    ).wait()
    found = sorted(
        [tuple(row) for row in tables.execute_sql("SELECT * FROM sql_kinds").collect()], key=lambda row: row[0]
    )
    assert found == [
        (1, Decimal("12.35"), True, "é ?", date(2026, 1, 2), datetime(2026, 2, 3, 4, 5, 6, 789012),
         Instant(1_700_000_000, 123_000_000), b"\0\xff", 0.5, 7),
        (2, *[None] * (len(TYPES) - 1)),
    ]  # fmt: skip
    declare(tables, postgres, "sql_totals", "shop STRING, n BIGINT, PRIMARY KEY (shop) NOT ENFORCED", driver)
    postgres.run("INSERT INTO sql_totals VALUES ('a', 99), ('z', 1)")
    tables.execute_sql(
        "INSERT INTO sql_totals SELECT shop, COUNT(*) FROM (VALUES ('a'), ('b'), ('a')) AS v(shop) GROUP BY shop"
    ).wait()
    rows: list[Any] = postgres.run("SELECT shop, n FROM sql_totals ORDER BY shop")
    assert rows == [("a", 2), ("b", 1), ("z", 1)]
