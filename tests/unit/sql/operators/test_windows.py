"""Window table functions and the aggregates over their windows."""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from firesteel.common.typeinfo import Types
from firesteel.core.errors import ProgramError
from firesteel.table.types import DataTypes
from firesteel_sql.operators.plans import AggregatePlan, SessionPlan, WindowPlan
from firesteel_sql.operators.windows import Windows, last_moments
from firesteel_sql.plan.stateful_relations import AggregateCall, WindowKind
from tests.unit.sql.operators.changelog_rig import ChangelogRig

START = datetime(2026, 11, 28)
END_OF_INPUT = (1 << 63) - 1
TIME = pa.timestamp("us")
ROWS = pa.schema([("time", TIME)])
WINDOWS = pa.schema([("time", TIME), ("window_start", TIME), ("window_end", TIME), ("window_time", TIME)])


def _at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def _epoch(seconds: float) -> int:
    return int((_at(seconds) - datetime(1970, 1, 1)).total_seconds() * 1000)


def _windows(kind: WindowKind, size: int, step: int, *times: float, offset: int = 0) -> list[tuple[int, int, int]]:
    """Positions of the rows, and start and end of their windows in seconds."""
    rows = pa.RecordBatch.from_arrays([pa.array([_at(time) for time in times], TIME)], schema=ROWS)
    plan = WindowPlan(kind, 0, size * 1000, step * 1000, offset * 1000)
    origins, result = Windows(plan, ROWS, WINDOWS).expand(rows)
    assert result.column("time").to_pylist() == [_at(times[origin]) for origin in origins]
    bounds = zip(result.column("window_start").to_pylist(), result.column("window_end").to_pylist(), strict=True)
    seconds = [tuple(int((bound - START).total_seconds()) for bound in pair) for pair in bounds]
    times_of_windows = result.column("window_time").to_pylist()
    assert times_of_windows == [_at(end) - timedelta(milliseconds=1) for _, end in seconds]
    return sorted((int(origin), *pair) for origin, pair in zip(origins, seconds, strict=True))  # type: ignore[misc]


def test_a_row_is_in_one_tumbling_window() -> None:
    assert _windows(WindowKind.TUMBLE, 10, 10, 0, 9.999, 10) == [(0, 0, 10), (1, 0, 10), (2, 10, 20)]
    assert _windows(WindowKind.TUMBLE, 10, 10, 0, 5, offset=3) == [(0, -7, 3), (1, 3, 13)]


def test_a_row_is_in_as_many_hopping_windows_as_overlap() -> None:
    assert _windows(WindowKind.HOP, 10, 5, 12) == [(0, 5, 15), (0, 10, 20)]
    assert _windows(WindowKind.HOP, 10, 5, 5, 4.999) == [(0, 0, 10), (0, 5, 15), (1, -5, 5), (1, 0, 10)]


def test_hopping_windows_with_gaps_leave_rows_out() -> None:
    assert _windows(WindowKind.HOP, 5, 10, 3, 7, 12) == [(0, 0, 5), (2, 10, 15)]


def test_a_row_is_in_all_cumulating_windows_that_end_behind_it() -> None:
    assert _windows(WindowKind.CUMULATE, 30, 10, 12) == [(0, 0, 20), (0, 0, 30)]
    assert _windows(WindowKind.CUMULATE, 30, 10, 10, 29.999, 30) == [
        (0, 0, 20),
        (0, 0, 30),
        (1, 0, 30),
        (2, 30, 40),
        (2, 30, 50),
        (2, 30, 60),
    ]


def test_times_before_1970_are_in_windows_that_begin_before_them() -> None:
    before = (datetime(1969, 12, 31, 23, 59, 58) - START).total_seconds()
    ((_, start, end),) = _windows(WindowKind.TUMBLE, 10, 10, before)
    assert (_at(start), _at(end)) == (datetime(1969, 12, 31, 23, 59, 50), datetime(1970, 1, 1))


def test_a_row_without_a_time_is_an_error() -> None:
    rows = pa.RecordBatch.from_arrays([pa.array([None], TIME)], schema=ROWS)
    with pytest.raises(ProgramError, match="a row has no time"):
        Windows(WindowPlan(WindowKind.TUMBLE, 0, 1000, 1000, 0), ROWS, WINDOWS).expand(rows)


BERLIN = "Europe/Berlin"
HOUR = 3_600_000


def _utc(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=UTC)  # type: ignore[arg-type, misc]


def test_windows_of_points_in_time_begin_by_the_clocks_of_the_session_and_days_may_have_25_hours() -> None:
    instants = pa.schema([("time", pa.timestamp("us", "UTC"))])
    bounds = [("window_start", TIME), ("window_end", TIME), ("window_time", pa.timestamp("us", "UTC"))]
    output = pa.schema([*instants, *bounds])
    times = [_utc(2026, 10, 24, 21, 59), _utc(2026, 10, 24, 22), _utc(2026, 10, 25, 22, 59), _utc(2026, 10, 25, 23)]
    rows = pa.RecordBatch.from_arrays([pa.array(times, instants.field(0).type)], schema=instants)
    plan = WindowPlan(WindowKind.TUMBLE, 0, 24 * HOUR, 24 * HOUR, 0, BERLIN)
    _, result = Windows(plan, instants, output).expand(rows)
    days = [start.day for start in result.column("window_start").to_pylist()]
    assert days == [24, 25, 25, 26]
    lasts = result.column("window_time").to_pylist()
    assert lasts[1] == _utc(2026, 10, 25, 23) - timedelta(milliseconds=1)
    ends = result.column("window_end")
    assert last_moments(ends, BERLIN).tolist() == [round(last.timestamp() * 1000) for last in lasts]


def test_a_window_of_a_zone_ends_when_the_watermark_has_passed_midnight_there() -> None:
    plan = AggregatePlan((AggregateCall("COUNT", (), DataTypes.BIGINT()),), True, window_end=1, window_zone=BERLIN)
    counts = Types.ROW_NAMED(["shop", "end", "rows"], [Types.STRING(), Types.SQL_TIMESTAMP(), Types.LONG()])
    rig = ChangelogRig("firesteel_sql.operators.aggregates:GroupAggregate", plan, [SALES], [(0, 1)], counts)
    midnight = datetime(2026, 10, 26)
    rig.change([(1, ("a", midnight, 5))])
    end = int(_utc(2026, 10, 25, 23).timestamp() * 1000)
    rig.watermark(end - 2)
    assert rig.changes == []
    rig.watermark(end - 1)
    assert rig.changes == [(0, ("a", midnight, 1))]


SALES = Types.ROW_NAMED(["shop", "end", "amount"], [Types.STRING(), Types.SQL_TIMESTAMP(), Types.LONG()])
SUMS = Types.ROW_NAMED(
    ["shop", "end", "rows", "amount", "different"],
    [Types.STRING(), Types.SQL_TIMESTAMP(), Types.LONG(), Types.LONG(), Types.LONG()],
)


def _window_sums(parallelism: int = 1) -> ChangelogRig:
    calls = (
        AggregateCall("COUNT", (), DataTypes.BIGINT()),
        AggregateCall("MAX", (2,), DataTypes.BIGINT()),
        AggregateCall("COUNT", (2,), DataTypes.BIGINT(), distinct=True),
    )
    plan = AggregatePlan(calls, insert_only=False, window_end=1)
    return ChangelogRig("firesteel_sql.operators.aggregates:GroupAggregate", plan, [SALES], [(0, 1)], SUMS, parallelism)


def test_results_of_a_window_leave_once_when_the_watermark_has_passed_it() -> None:
    rig = _window_sums()
    rig.change([(1, ("a", _at(10), 5)), (1, ("a", _at(20), 7)), (1, ("b", _at(10), 1))])
    assert rig.changes == []
    rig.watermark(_epoch(10) - 2)
    assert rig.changes == []
    rig.change([(-1, ("b", _at(10), 1)), (1, ("a", _at(10), 5))])
    rig.watermark(_epoch(10) - 1)
    assert rig.changes == [(0, ("a", _at(10), 2, 5, 1))]
    rig.change([(1, ("a", _at(10), 100))])
    rig.watermark(END_OF_INPUT)
    assert rig.changes == [(0, ("a", _at(20), 1, 7, 1))]
    assert rig.operators[0].computation._late.get_count() == 1  # type: ignore[attr-defined]


def test_a_window_that_ended_leaves_no_state() -> None:
    rig = _window_sums()
    rig.change([(1, ("a", _at(10), amount)) for amount in range(50)])
    rig.watermark(_epoch(10))
    computation: Any = rig.operators[0].computation
    assert computation._state.size == 0
    assert [distinct.state.size for distinct in computation._distinct.values()] == [0]
    assert [table.rows.table.size for table in computation._tables] == [0]


def test_windows_go_on_after_a_restart_with_another_parallelism() -> None:
    rig = _window_sums(2)
    rig.change([(1, (shop, _at(10 * number), number)) for shop in "abc" for number in range(1, 4)])
    rig.restart(3)
    rig.change([(1, (shop, _at(20), 50)) for shop in "abc"])
    rig.watermark(_epoch(20))
    expected = Counter({(shop, _at(10), 1, 1, 1): 1 for shop in "abc"})
    expected.update({(shop, _at(20), 2, 50, 2): 1 for shop in "abc"})
    assert rig.table == expected
    rig.restart(1)
    rig.watermark(END_OF_INPUT)
    expected.update({(shop, _at(30), 1, 3, 1): 1 for shop in "abc"})
    assert rig.table == expected


CLICKS = Types.ROW_NAMED(["user", "time"], [Types.STRING(), Types.SQL_TIMESTAMP()])
SESSIONS = Types.ROW_NAMED(
    ["user", "time", "window_start", "window_end", "window_time"],
    [Types.STRING(), *[Types.SQL_TIMESTAMP()] * 4],
)
GAP = 10


def _sessions(parallelism: int = 1) -> ChangelogRig:
    plan = SessionPlan(1, GAP * 1000)
    return ChangelogRig("firesteel_sql.operators.sessions:SessionRows", plan, [CLICKS], [(0,)], SESSIONS, parallelism)


def _session_rows(clicks: Counter[tuple[str, float]]) -> Counter[tuple[Any, ...]]:
    """What sessions give at the end of the input."""
    expected: Counter[tuple[Any, ...]] = Counter()
    for user in {user for user, _ in clicks}:
        times = sorted(time for (other, time), count in clicks.items() for _ in range(count) if other == user)
        session: list[float] = []
        for time in [*times, None]:
            if session and (time is None or time - session[-1] > GAP):
                end = session[-1] + GAP
                bounds = _at(session[0]), _at(end), _at(end) - timedelta(milliseconds=1)
                expected.update((user, _at(member), *bounds) for member in session)
                session = []
            if time is not None:
                session.append(time)
    return expected


@pytest.mark.parametrize("seed", range(5))
def test_rows_leave_with_the_bounds_of_their_session(seed: int) -> None:
    random_numbers = random.Random(seed)
    rig = _sessions(1 + seed % 2)
    clicks: Counter[tuple[str, float]] = Counter()
    now = 0.0
    for step in range(20):
        batch = []
        for _ in range(random_numbers.choice((1, 4))):
            click = random_numbers.choice("ab"), now + random_numbers.choice((0.0, 3.0, 9.0, 30.0))
            clicks[click] += 1
            batch.append((1, (click[0], _at(click[1]))))
        rig.change(batch)
        now += random_numbers.choice((1.0, 4.0))
        rig.watermark(_epoch(now) - 1)
        if step % 7 == 3:
            rig.restart(random_numbers.choice((1, 2)))
    assert rig.watermark(END_OF_INPUT) == _session_rows(clicks)


def test_a_late_row_joins_an_open_session_and_is_dropped_without_one() -> None:
    rig = _sessions()
    rig.change([(1, ("a", _at(20))), (1, ("b", _at(20)))])
    rig.watermark(_epoch(25))
    rig.change([(1, ("a", _at(12))), (1, ("b", _at(2)))])
    rig.watermark(END_OF_INPUT)
    bounds = {row[0]: (row[2], row[3]) for row in rig.table}
    assert bounds == {"a": (_at(12), _at(30)), "b": (_at(20), _at(30))}
    assert sum(rig.table.values()) == 3


def test_a_click_that_is_taken_back_splits_its_session() -> None:
    rig = _sessions()
    rig.change([(1, ("a", _at(time))) for time in (0, 8, 16)])
    rig.change([(-1, ("a", _at(8)))])
    rig.watermark(END_OF_INPUT)
    assert {(row[2], row[3]) for row in rig.table} == {(_at(0), _at(10)), (_at(16), _at(26))}
