"""A query that is changed while it runs: the job of the changed one goes on with the state of the first."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from firesteel_sql import StreamTableEnvironment
from tests.integration.embedded.programs import new_environment

pytestmark = pytest.mark.usefixtures("cluster")

ROWS = 1500
TABLES = (
    "CREATE TABLE numbers (id BIGINT) WITH ('connector' = 'datagen', 'fields.id.kind' = 'sequence', "
    f"'fields.id.start' = '1', 'fields.id.end' = '{ROWS}', 'rows-per-second' = '500')",
    "CREATE TABLE totals (k BIGINT, total BIGINT, texts BIGINT) WITH ('connector' = 'blackhole')",
)
CHANGED = (
    "SELECT COUNT(*) AS n, SUM(id) * 2 AS twice, id % 3 AS k, MIN(id) AS least FROM numbers WHERE id > 0 AND id <> 7 "
    "GROUP BY id % 3 HAVING SUM(id) > 0"
)


def new_tables(parallelism: int) -> StreamTableEnvironment:
    tables = StreamTableEnvironment.create(new_environment(parallelism))
    for table in TABLES:
        tables.execute_sql(table)
    return tables


def rows_read(job: Any) -> int:
    details = job.get_job_details().result()
    return max((vertex["metrics"]["read-records"] for vertex in details["vertices"]), default=0)


def test_a_changed_query_goes_on_from_a_savepoint(tmp_path: Path) -> None:
    """Another projection and sink, a HAVING, an aggregate less and one more, another parallelism; also as a plan."""
    tables = new_tables(2)
    tables.execute_sql(
        f"COMPILE PLAN '{tmp_path / 'plan.json'}' FOR INSERT INTO totals SELECT id % 3, SUM(id), COUNT(DISTINCT id) "
        "FROM numbers WHERE id <> 7 AND id > 0 GROUP BY id % 3"
    )
    tables.execute_sql(f"SET 'execution.checkpointing.savepoint-dir' = '{tmp_path}'")
    job = tables.execute_sql(f"EXECUTE PLAN '{tmp_path / 'plan.json'}'").get_job_client()
    while rows_read(job) < 300:
        time.sleep(0.05)
    savepoint = job.stop_with_savepoint(False, str(tmp_path)).result()

    tables = new_tables(1)
    (upgrade,) = tables.execute_sql(f"EXPLAIN UPGRADE FROM '{savepoint}' {CHANGED}").collect()
    lines = upgrade[0].splitlines()
    assert lines[2].endswith("kept, parallelism 2 -> 1")
    assert lines[3:6] == [
        "   MIN(id): added, begins empty", "   COUNT(DISTINCT id): removed", "   DISTINCT id: removed"
    ]  # fmt: skip
    tables.execute_sql(f"SET 'execution.state-recovery.path' = '{savepoint}'")
    last = {row[2]: row for row in tables.execute_sql(CHANGED).collect()}
    for k in range(3):
        numbers = [number for number in range(1, ROWS + 1) if number % 3 == k and number != 7]
        count, twice, _, least = last[k]
        assert (count, twice) == (len(numbers), 2 * sum(numbers))
        assert least > min(numbers)
        assert least in numbers
