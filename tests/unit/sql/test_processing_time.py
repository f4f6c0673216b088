"""Windows, joins and sorts by a processing time: the clock is their event time."""

from __future__ import annotations

from collections import Counter

import pytest

from firesteel.common.watermark_strategy import WatermarkGeneratorKind, WatermarkStrategy
from firesteel.core.errors import ProgramError, UnsupportedFeatureError
from firesteel.graph.specs import OperatorKind
from firesteel.runtime.operator_base.watermarks import ActiveClock, EventTime
from firesteel_sql import TableEnvironment
from firesteel_sql.execution.streams import StreamBuilder
from firesteel_sql.operators.changes import END_OF_INPUT
from firesteel_sql.parse.errors import SqlError
from tests.unit.sql.query_rig import QueryRig, tables_of, use_changes_connector
from tests.unit.windowing.harness import Clock

AGES = "INTERVAL '36500' DAY(5)"
"""Longer than any test runs."""
WINDOW = f"TUMBLE(TABLE t, DESCRIPTOR(pt), {AGES})"
NOW_MS = 1_800_000_000_000


@pytest.fixture
def tables(monkeypatch: pytest.MonkeyPatch) -> TableEnvironment:
    use_changes_connector(monkeypatch)
    environment = TableEnvironment.create()
    tables_of(environment, {"changing": "id INT, k INT, pt AS PROCTIME()"})
    for name in ("t", "u"):
        environment.execute_sql(
            f"CREATE TABLE {name} (id INT, k INT, ts TIMESTAMP(3), pt AS PROCTIME(), WATERMARK FOR ts AS ts) "
            "WITH ('connector' = 'changes', 'changes' = 'inserts')"
        )
    return environment


@pytest.mark.parametrize(
    ("query", "result"),
    [
        (f"SELECT k, COUNT(*) AS c FROM {WINDOW} GROUP BY k, window_start, window_end", {(1, 2), (2, 1)}),
        (f"SELECT k, SUM(id) AS c FROM t GROUP BY k, TUMBLE(pt, {AGES})", {(1, 3), (2, 3)}),
        (f"SELECT k, COUNT(*) AS c FROM t GROUP BY k, SESSION(pt, {AGES})", {(1, 2), (2, 1)}),
        (f"SELECT id FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY id DESC) AS n "
         f"FROM {WINDOW}) WHERE n <= 2", {(2,), (3,)}),
        (f"SELECT SUM(c) AS s FROM TUMBLE((SELECT k, COUNT(*) AS c, window_time FROM {WINDOW} GROUP BY k, "
         f"window_start, window_end, window_time), DESCRIPTOR(window_time), {AGES}) GROUP BY window_start, window_end",
         {(3,)}),
        ("SELECT id, k FROM t ORDER BY pt", {(1, 1), (2, 1), (3, 2)}),
    ],
)  # fmt: skip
def test_windows_by_the_clock_end_with_it_or_with_the_input(
    query: str, result: set[tuple[int, ...]], tables: TableEnvironment
) -> None:
    rig = QueryRig(tables, query, 2)
    rows = [(1, 1, None), (2, 1, None), (3, 2, None)]
    assert rig.change("t", [(1, row) for row in rows]) == Counter()
    rig.restart(3)
    assert rig.watermark(END_OF_INPUT) == dict.fromkeys(result, 1)
    assert {kind for kind, _ in rig.changes} == {0}


def test_rows_meet_within_a_distance_by_the_clock(tables: TableEnvironment) -> None:
    bounds = f"u.pt BETWEEN t.pt - {AGES} AND t.pt + INTERVAL '1' DAY"
    rig = QueryRig(tables, f"SELECT t.id, u.id AS other FROM t LEFT JOIN u ON t.k = u.k AND {bounds}", 2)
    rig.change("t", [(1, (1, 1, None)), (1, (2, 2, None))])
    assert rig.change("u", [(1, (7, 1, None))]) == {(1, 7): 1}
    assert rig.watermark(END_OF_INPUT) == {(1, 7): 1, (2, None): 1}


@pytest.mark.parametrize(
    ("query", "operator"),
    [
        (f"SELECT COUNT(*) FROM changing GROUP BY TUMBLE(pt, {AGES})", "WindowTableFunction"),
        ("SELECT a.id FROM changing a JOIN t b ON b.pt BETWEEN a.pt AND a.pt + INTERVAL '1' HOUR", "IntervalJoin"),
    ],
)
def test_rows_that_go_have_no_processing_time(query: str, operator: str, tables: TableEnvironment) -> None:
    with pytest.raises(UnsupportedFeatureError, match=f"{operator}: pt is a processing time, and the rows of its"):
        QueryRig(tables, query)


def test_the_clock_needs_periodic_watermarks(tables: TableEnvironment) -> None:
    tables.execute_sql("SET 'pipeline.auto-watermark-interval' = '0 ms'")
    with pytest.raises(ProgramError, match="WindowTableFunction: processing time goes on with the watermarks"):
        QueryRig(tables, f"SELECT COUNT(*) FROM {WINDOW} GROUP BY window_start, window_end")


def test_there_is_no_event_time_behind_a_window_by_the_clock(tables: TableEnvironment) -> None:
    with pytest.raises(SqlError, match="to be a time attribute type, but ts is"):
        tables.sql_query(f"SELECT * FROM HOP((SELECT id, ts FROM {WINDOW}), DESCRIPTOR(ts), {AGES}, {AGES})")


def test_the_watermarks_are_made_in_front_of_the_times(tables: TableEnvironment) -> None:
    relation = tables.sql_query(f"SELECT window_start, id FROM {WINDOW}")._relation
    step = StreamBuilder(tables._for_a_job()).build(relation)._inputs[0].source
    kinds = []
    while step.inputs:
        kinds.append(step.kind)
        step = step.inputs[0][0].source
    clock = kinds.index(OperatorKind.COLUMNS_EXPAND)
    assert kinds[clock + 1 : clock + 3] == [OperatorKind.COLUMNS_PROJECT, OperatorKind.WATERMARKS]


def test_watermarks_follow_the_clock_without_any_row() -> None:
    clock = Clock(NOW_MS)
    time = EventTime("clock", WatermarkStrategy(WatermarkGeneratorKind.PROCESSING_TIME), ActiveClock(clock))
    time.periodic()
    assert time.watermark == NOW_MS - 1
