"""Windows over points in time follow the clocks of the session's time zone."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from firesteel_sql import TableEnvironment
from tests.unit.sql.query_rig import QueryRig, use_changes_connector


def _utc(day: int, hour: int, minute: int = 0) -> datetime:
    return datetime(2026, 10, day, hour, minute, tzinfo=UTC)


def test_days_are_those_of_the_session_when_clocks_are_set_back(monkeypatch: pytest.MonkeyPatch) -> None:
    use_changes_connector(monkeypatch)
    tables = TableEnvironment.create()
    tables.execute_sql("SET 'table.local-time-zone' = 'Europe/Berlin'")
    tables.execute_sql(
        "CREATE TABLE clicks (at TIMESTAMP_LTZ(3), WATERMARK FOR at AS at) "
        "WITH ('connector' = 'changes', 'changes' = 'inserts')"
    )
    rig = QueryRig(
        tables,
        "SELECT window_start, window_end, COUNT(*) AS n FROM "
        "TABLE(TUMBLE(TABLE clicks, DESCRIPTOR(at), INTERVAL '1' DAY)) GROUP BY window_start, window_end",
        2,
    )
    rig.change(
        "clicks", [(1, (_utc(24, 22),)), (1, (_utc(25, 0, 30),)), (1, (_utc(25, 22, 59),)), (1, (_utc(25, 23),))]
    )
    last = int(_utc(25, 23).timestamp() * 1000) - 1
    assert not rig.watermark(last - 1)
    assert rig.watermark(last) == {(datetime(2026, 10, 25), datetime(2026, 10, 26), 3): 1}
    rig.restart(3)
    result = rig.watermark((1 << 63) - 1)
    assert result[datetime(2026, 10, 26), datetime(2026, 10, 27), 1] == 1
