"""Joins with the version of a view of last rows at a time."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from firesteel_sql import TableEnvironment
from tests.unit.sql.query_rig import QueryRig, use_changes_connector

START = datetime(2026, 11, 28)
VIEWS = {
    "qualify": "SELECT cur, rate, ts FROM r QUALIFY ROW_NUMBER() OVER (PARTITION BY cur ORDER BY ts DESC) = 1",
    "where": "SELECT ts, cur, rate FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY cur ORDER BY ts DESC) AS n FROM r) "
    "WHERE n = 1",
}


def at(second: int) -> datetime:
    return START + timedelta(seconds=second)


@pytest.mark.parametrize("view", VIEWS)
def test_a_version_counts_that_comes_behind_a_later_one(view: str, monkeypatch: pytest.MonkeyPatch) -> None:
    use_changes_connector(monkeypatch)
    environment = TableEnvironment.create()
    for name, column in (("o", "id INT"), ("r", "rate INT")):
        columns = f"{column}, cur STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '9' SECOND"
        environment.execute_sql(
            f"CREATE TABLE {name} ({columns}) WITH ('connector' = 'changes', 'changes' = 'inserts')"
        )
    environment.execute_sql(f"CREATE VIEW versions AS {VIEWS[view]}")
    join = "SELECT o.id, v.rate FROM o LEFT JOIN versions FOR SYSTEM_TIME AS OF o.ts AS v ON o.cur = v.cur"
    rig = QueryRig(environment, join, 2)
    rig.change("r", [(1, (30, "EUR", at(3)))])
    rig.change("r", [(1, (10, "EUR", at(1))), (1, (7, "USD", at(2)))])  # the first of EUR comes last
    rig.change("o", [(1, (1, "EUR", at(2))), (1, (2, "EUR", at(4))), (1, (3, "USD", at(1))), (1, (4, "EUR", at(0)))])
    rig.restart(3)
    assert rig.watermark((1 << 63) - 1) == {(1, 10): 1, (2, 30): 1, (3, None): 1, (4, None): 1}


def test_a_view_that_hides_some_last_rows_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the last row does not fulfil the condition there is none, and not the one before."""
    use_changes_connector(monkeypatch)
    environment = TableEnvironment.create()
    for name, column in (("o", "id INT"), ("r", "rate INT")):
        columns = f"{column}, cur STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts"
        environment.execute_sql(
            f"CREATE TABLE {name} ({columns}) WITH ('connector' = 'changes', 'changes' = 'inserts')"
        )
    join = "SELECT o.id, v.rate FROM o LEFT JOIN versions FOR SYSTEM_TIME AS OF o.ts AS v ON o.cur = v.cur"
    for view, is_ranked in ((f"SELECT * FROM ({VIEWS['where']}) WHERE rate > 0", True), (VIEWS["where"], False)):
        environment.execute_sql(f"CREATE OR REPLACE VIEW versions AS {view}")
        assert ("Rank(" in environment.explain_sql(join).partition("== Optimized Physical")[2]) is is_ranked
