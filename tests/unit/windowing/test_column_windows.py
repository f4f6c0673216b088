"""Windows over columns against plain Python: random streams out of order, with nulls, late rows, all batch sizes."""

from __future__ import annotations

from collections import Counter
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from firesteel.common.typeinfo import Types
from firesteel.core.errors import ProgramError, StateMigrationError
from firesteel.datastream.window import (
    EventTimeSessionWindows,
    ProcessingTimeSessionWindows,
    SlidingEventTimeWindows,
    SlidingProcessingTimeWindows,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)
from firesteel.expressions import avg, col, count, first, last, max_, min_, sum_
from firesteel.runtime.columnar_windows import sessions
from firesteel.state.columnar.aggregate_kernels import Accumulators
from firesteel.testing.snapshots import RunningSnapshot
from firesteel.windowing.columnar_sessions import merged
from tests.unit.windowing.column_rig import (
    AGGREGATES,
    WORDS,
    ColumnRig,
    Subtasks,
    cut,
    expected_row,
)
from tests.unit.windowing.oracle import NEVER, Oracle

KEYS = st.sampled_from(["a", "a", "b", None, ""])
RECORDS = st.tuples(
    st.just("record"),
    st.tuples(
        KEYS,
        st.none() | st.integers(-5, 5),
        st.none() | st.integers(-8, 8).map(lambda number: number / 4),
        st.none() | st.sampled_from(WORDS),
    ),
    st.integers(-12, 40),
)
WATERMARKS = st.tuples(st.just("watermark"), st.integers(-15, 50))
STREAMS = st.lists(st.one_of(RECORDS, RECORDS, RECORDS, RECORDS, WATERMARKS), min_size=5, max_size=70)
LATENESS = st.sampled_from([0, 0, 2, 9, 30])
SIZES = st.lists(st.sampled_from([1, 2, 3, 7, 100_000]), min_size=1, max_size=3)


def check(stream: list[Any], oracle: Oracle, rig: ColumnRig, sizes: list[int]) -> None:
    """Give both the same stream: results, and late rows, have to be the same after each batch and watermark."""
    batch: list[Any] = []
    late = 0
    now = NEVER

    def flush() -> None:
        nonlocal late
        for part in cut(batch, sizes):
            expected = []
            for record, time in part:
                before = len(oracle.late)
                expected += oracle.record(record, time)
                if len(oracle.late) > before:
                    oracle.late[-1] = (record, time)
            got = rig.records([record for record, _ in part], [time for _, time in part])
            assert got == [expected_row(result) for result in expected]
            assert rig.late[late:] == oracle.late[late:]
            late = len(oracle.late)
        batch.clear()

    for number, item in enumerate([*stream, ("watermark", 10_000)]):
        if item[0] == "record":
            batch.append(((*item[1], number), item[2]))
            continue
        flush()
        if item[1] <= now:
            continue
        now = item[1]
        got = rig.watermark(now)
        due = [expected_row(result) for _, result in oracle.watermark(now)]
        assert sorted(got, key=repr) == sorted(due, key=repr)
        assert [row[2] for row in got] == sorted(row[2] for row in got)


@given(STREAMS, st.integers(1, 25), st.data(), LATENESS, SIZES)
def test_tumbling(stream: list[Any], size: int, data: Any, lateness: int, sizes: list[int]) -> None:
    offset = data.draw(st.integers(1 - size, size - 1))
    oracle = Oracle(size=size, slide=size, offset=offset, lateness=lateness)
    check(stream, oracle, ColumnRig(TumblingEventTimeWindows(size, offset), lateness), sizes)


@given(STREAMS, st.integers(1, 25), st.integers(1, 25), st.data(), LATENESS, SIZES)
def test_sliding(stream: list[Any], size: int, slide: int, data: Any, lateness: int, sizes: list[int]) -> None:
    offset = data.draw(st.integers(1 - slide, slide - 1))
    oracle = Oracle(size=size, slide=slide, offset=offset, lateness=lateness)
    check(stream, oracle, ColumnRig(SlidingEventTimeWindows(size, slide, offset), lateness), sizes)


@given(STREAMS, st.integers(1, 9), LATENESS, SIZES, st.sampled_from([(64, 65_536), (1, 3), (0, 1000)]))
def test_sessions(stream: list[Any], gap: int, lateness: int, sizes: list[int], waiting: tuple[int, int]) -> None:
    """Also where sessions that wait are brought together at other times."""
    with mock.patch.multiple(sessions, _PARTS=waiting[0], _WAITING=waiting[1]):
        check(stream, Oracle(gap=gap, lateness=lateness), ColumnRig(EventTimeSessionWindows(gap), lateness), sizes)


class Sizes:
    """Notes how much arrays that a function gets hold."""

    def __init__(self, function: Any) -> None:
        self._function, self.seen = function, list[int]()

    def __call__(self, *arguments: Any) -> Any:
        self.seen += [len(argument) for argument in arguments if isinstance(argument, np.ndarray)]
        return self._function(*arguments)


@pytest.mark.parametrize("lateness", [0, 1_000_000])
@pytest.mark.parametrize("settled", [True, False])
def test_a_late_row_costs_a_look_at_the_sessions_of_its_key(lateness: int, settled: bool) -> None:
    """Not one at all that are open, or wait."""
    windows = ColumnRig(EventTimeSessionWindows(1000), lateness, aggregates=(count(),))
    everybody = [(f"key {number}", 1, None, None, number) for number in range(20_000)]
    windows.records(everybody, [10_000] * len(everybody))
    windows.watermark(10_500)
    if settled:
        assert len(windows.operator.state.opened.slots) == len(everybody)
    batch = [("key 7", 1, None, None, 20_000), ("key 8", 1, None, None, 20_001), ("new", 1, None, None, 20_002)]
    with mock.patch.object(sessions, "merged", Sizes(merged)) as looked:
        windows.records(batch, [9_200, 9_100, 5])
    assert looked.seen
    assert max(looked.seen) <= 10
    assert windows.late == ([] if lateness else [((*batch[2],), 5)])
    assert sorted(row for row in windows.watermark(20_000) if row[3] > 1) == [
        ("key 7", 9_200, 11_000, 2), ("key 8", 9_100, 11_000, 2),
    ]  # fmt: skip
    windows.records([("key 7", 1, None, None, 20_003)], [30_000])
    assert windows.watermark(40_000) == [("key 7", 30_000, 31_000, 1)]


@pytest.mark.parametrize(
    "assigner",
    [TumblingEventTimeWindows(100), SlidingEventTimeWindows(100, 50), EventTimeSessionWindows(100)],
)
def test_many_rows_of_a_window_that_has_ended_are_brought_together_at_once(assigner: Any) -> None:
    windows = ColumnRig(assigner, 10_000, aggregates=(count(), sum_("number"), last("word")))
    windows.records([("a", 1000, None, "first", 0)], [160])
    assert ("a", 1, 1000, "first") in [(row[0], *row[3:]) for row in windows.watermark(1000)]
    rows = [("a", number, None, str(number), number) for number in range(1, 1001)]
    merge = Accumulators.merge
    merges = 0

    def counted(*arguments: Any) -> None:
        nonlocal merges
        merges += 1
        merge(*arguments)

    with mock.patch.object(Accumulators, "merge", counted):
        results = windows.records(rows, [170] * 1000)
    of_one_window = [row[3:] for row in results if row[1] == results[0][1]]
    assert of_one_window == [(n + 1, 1000 + n * (n + 1) // 2, str(n)) for n in range(1, 1001)]
    assert merges < 40


SHAPES = st.one_of(
    st.builds(lambda size: ("tumbling", size, size), st.integers(1, 25)),
    st.builds(lambda size, slide: ("sliding", size, slide), st.integers(1, 25), st.integers(1, 25)),
    st.builds(lambda gap: ("sessions", gap, 0), st.integers(1, 9)),
)


def assigner_of(shape: tuple[str, int, int]) -> Any:
    kind, size, slide = shape
    if kind == "sessions":
        return EventTimeSessionWindows(size)
    return TumblingEventTimeWindows(size) if kind == "tumbling" else SlidingEventTimeWindows(size, slide)


def oracle_of(shape: tuple[str, int, int], lateness: int) -> Oracle:
    kind, size, slide = shape
    return (
        Oracle(gap=size, lateness=lateness) if kind == "sessions" else Oracle(size=size, slide=slide, lateness=lateness)
    )


@given(
    st.lists(
        st.one_of(RECORDS, RECORDS, RECORDS, WATERMARKS, st.tuples(st.just("restart"), st.integers(1, 5))),
        min_size=5,
        max_size=60,
    ),
    SHAPES,
    LATENESS,
    st.integers(1, 5),
)
def test_written_and_restored_between_batches(
    stream: list[Any], shape: tuple[str, int, int], lateness: int, parallelism: int
) -> None:
    """With another parallelism, in the middle of windows: nothing is lost, nothing comes twice."""
    oracle = oracle_of(shape, lateness)
    job = Subtasks(parallelism, lambda **more: ColumnRig(assigner_of(shape), lateness, **more))
    batch: list[Any] = []
    late, now = 0, NEVER
    for number, item in enumerate([*stream, ("watermark", 10_000)]):
        if item[0] == "record":
            batch.append(((*item[1], number), item[2]))
            continue
        expected = []
        for record, time in batch:
            before = len(oracle.late)
            expected += oracle.record(record, time)
            late += len(oracle.late) - before
        got = job.records([record for record, _ in batch], [time for _, time in batch]) if batch else []
        assert sorted(got, key=repr) == sorted(map(expected_row, expected), key=repr)
        batch.clear()
        if item[0] == "restart":
            job.restart(item[1])
            assert job.watermark(now) == []  # sources say it again
        elif item[1] > now:
            now = item[1]
            due = [expected_row(result) for _, result in oracle.watermark(now)]
            assert sorted(job.watermark(now), key=repr) == sorted(due, key=repr)
    assert len(job.all_late) == late


@given(STREAMS, STREAMS, SHAPES, LATENESS)
def test_a_snapshot_holds_the_state_of_its_moment(
    before: list[Any], behind: list[Any], shape: tuple[str, int, int], lateness: int
) -> None:
    """What comes while it is written is not in it."""

    def go(rig: ColumnRig, stream: list[Any], first: int) -> list[Any]:
        rows: list[Any] = []
        for number, item in enumerate(stream, first):
            if item[0] == "record":
                rows += rig.records([(*item[1], number)], [item[2]])
            elif item[1] > rig.operator.heap_timers.watermark:
                rows += rig.watermark(item[1])
        return rows

    rig = ColumnRig(assigner_of(shape), lateness)
    go(rig, before, 0)
    taking = RunningSnapshot(rig.operator.backend.snapshot(0.0), rig.operator.key_groups)
    contents = taking.step()
    went_on = go(rig, behind, 1000)
    restored = ColumnRig(assigner_of(shape), lateness, written=[contents or taking.rest()])
    restored.watermark(rig_watermark(before))
    assert sorted(go(restored, behind, 1000), key=repr) == sorted(went_on, key=repr)


def rig_watermark(stream: list[Any]) -> int:
    """The last watermark of a stream."""
    return max((item[1] for item in stream if item[0] == "watermark"), default=NEVER)


def test_snapshots_of_other_windows_are_refused() -> None:
    rig = ColumnRig(TumblingEventTimeWindows(10))
    rig.records([("a", 1, None, None, 0)], [3])
    taking = RunningSnapshot(rig.operator.backend.snapshot(), rig.operator.key_groups)
    with pytest.raises(RuntimeError, match="a snapshot is running"):
        rig.operator.backend.snapshot()
    written = [taking.rest()]
    with pytest.raises(StateMigrationError, match=r"windows were Tumbling.*\(10, 0\) and are Tumbling.*\(20, 0\)"):
        ColumnRig(TumblingEventTimeWindows(20), written=written)
    other = count().alias("latest")  # the last number was called so
    with pytest.raises(StateMigrationError, match=r"and is count\(\).alias\(.latest.\) now; give it another name"):
        ColumnRig(TumblingEventTimeWindows(10), aggregates=(other,), written=written)


def test_by_the_clock() -> None:
    rig = ColumnRig(TumblingProcessingTimeWindows(10), aggregates=(count(), sum_("number")))
    rig.time(3)
    rig.records([("a", 2, None, None, 0), ("b", 3, None, None, 0)], None)
    rig.time(8)
    rig.records([("a", 5, None, None, 0)], [77])
    assert rig.woken == [10]
    assert rig.time(9) == []  # the last millisecond is not over
    assert rig.time(10) == [("a", 0, 10, 2, 7), ("b", 0, 10, 1, 3)]
    sliding = ColumnRig(SlidingProcessingTimeWindows(10, 5, 0), aggregates=(count(),))
    sliding.time(7)
    sliding.records([("a", 2, None, None, 0)], None)
    assert sliding.time(50) == [("a", 0, 10, 1), ("a", 5, 15, 1)]
    sessions = ColumnRig(ProcessingTimeSessionWindows(1), aggregates=(count(),))
    sessions.time(4)
    sessions.records([("a", 2, None, None, 0)], None)
    sessions.records([("a", 2, None, None, 0)], None)
    assert sessions.time(5) == [("a", 4, 5, 2)]
    sessions.records([("a", 2, None, None, 0)], None)
    assert sessions.time(60) == [("a", 5, 6, 1)]


def test_without_columns_of_keys_there_is_one_key() -> None:
    for assigner in (TumblingEventTimeWindows(10), SlidingEventTimeWindows(10, 5), EventTimeSessionWindows(30)):
        rig = ColumnRig(assigner, keys=(), aggregates=(count(), max_("number")))
        rig.records([("a", 2, None, None, 0), ("b", 3, None, None, 0)], [1, 4])
        assert (2, 3) in [row[2:] for row in rig.watermark(100)]


def test_late_rows_without_a_tag_are_counted() -> None:
    rig = ColumnRig(TumblingEventTimeWindows(10), late_tag=None)
    rig.watermark(30)
    assert rig.records([("a", 2, None, None, 0), ("a", 2, None, None, 0), ("a", 2, None, None, 0)], [1, 35, 2]) == []
    assert rig.operator.late_records.count == 2


def test_sums_are_exact_or_fail() -> None:
    def rows(*numbers: int) -> list[Any]:
        return [("a", number, None, None, 0) for number in numbers]

    for assigner in (TumblingEventTimeWindows(10), SlidingEventTimeWindows(10, 5), EventTimeSessionWindows(30)):
        rig = ColumnRig(assigner, aggregates=(sum_("number"), avg("number")))
        rig.records(rows(2**63 - 1, 5), [1, 1])
        rig.records(rows(-5, -(2**62)), [1, 1])  # on its way it did not fit
        total = 2**63 - 1 - 2**62
        assert {row[3:] for row in rig.watermark(100)} == {(total, total / 4)}
        rig.records(rows(2**63 - 1), [201])
        rig.records(rows(1), [201])
        with pytest.raises(
            ProgramError, match=r"^for the key key = .a.: sum_\(.*\): the sum 9223372036854775808 does not fit"
        ):
            rig.watermark(300)


def test_nan_is_above_all_numbers() -> None:
    nan = float("nan")
    rig = ColumnRig(TumblingEventTimeWindows(10), aggregates=(min_("price"), max_("price"), first("price")))
    rig.records([("a", 1, nan, None, 0), ("a", 1, 2.0, None, 0), ("b", 1, nan, None, 0)], [1, 1, 1])
    (_, _, _, low, high, head), (_, _, _, *others) = rig.watermark(100)
    assert (low, high != high, head != head) == (2.0, True, True)
    assert all(value != value for value in others)


@pytest.mark.parametrize("prices", [(0.0, -0.0), (-0.0, 0.0), (-0.0, -0.0)])
def test_the_least_zero_has_no_sign(prices: tuple[float, float]) -> None:
    """Whatever the order, and as running aggregates give it."""
    rig = ColumnRig(TumblingEventTimeWindows(10), aggregates=(min_("price"), max_("price")))
    rig.records([("a", 1, price, None, 0) for price in prices], [1, 1])
    assert [str(row[3:]) for row in rig.watermark(100)] == ["(0.0, 0.0)"]


def test_aggregates_of_expressions_and_of_all_types() -> None:
    names = ["key", "flag", "small", "real", "day", "raw"]
    kinds = [
        Types.LONG(),
        Types.BOOLEAN(),
        Types.BYTE(),
        Types.FLOAT(),
        Types.SQL_DATE(),
        Types.PRIMITIVE_ARRAY(Types.BYTE()),
    ]
    import datetime

    days = [datetime.date(2024, 2, 28), datetime.date(1969, 12, 31)]
    aggregates = (
        min_("flag"), max_("flag"), max_("small"), sum_("small"), min_("real"), sum_("real"), max_("day"), min_("day"),
        last("day"), max_("raw"), sum_(col("small") * 2).alias("twice"),
    )  # fmt: skip
    rig = ColumnRig(EventTimeSessionWindows(5), aggregates=aggregates, input_type=Types.ROW_NAMED(names, kinds))
    rig.records([(7, True, -40, 0.5, days[0], b"b")], [1])
    rig.records([(7, False, -40, 1.5, days[1], b"a")], [3])
    (row,) = rig.watermark(100)
    assert row == (7, 1, 8, False, True, -40, -80, 0.5, 2.0, days[0], days[1], days[1], b"b", -160)


def test_many_keys_and_pieces() -> None:
    """Results come in pieces of a bounded number of rows."""
    total = 40_000
    for assigner in (TumblingEventTimeWindows(10), SlidingEventTimeWindows(10, 5), EventTimeSessionWindows(5)):
        rig = ColumnRig(assigner, keys=("place",), aggregates=(count(),))
        rig.records([("a", 1, None, None, number) for number in range(total)], [7] * total)
        sizes = [len(part) for part in rig.operator.advance_watermark(100)]
        assert max(sizes) < 20_000
        assert sum(sizes) == total * (2 if isinstance(assigner, SlidingEventTimeWindows) else 1)
        state = rig.operator.state
        assert not (state.panes if hasattr(state, "panes") else state.opened.slots.size)


def test_a_key_is_forgotten_with_its_last_session() -> None:
    rig = ColumnRig(EventTimeSessionWindows(5), keys=("place",), aggregates=AGGREGATES[:1])
    for turn in range(50):
        rig.records([("a", 1, None, None, turn * 100 + number) for number in range(100)], [turn * 10] * 100)
        rig.watermark(turn * 10 + 5)
    assert rig.operator.state.index.size == 0
    assert rig.operator.state.index.capacity == 100


CLOCKED = st.one_of(
    st.builds(lambda size: (TumblingProcessingTimeWindows(size), 1), st.integers(1, 25)),
    st.builds(
        lambda slide, n: (SlidingProcessingTimeWindows(n * slide, slide), n), st.integers(1, 9), st.integers(2, 4)
    ),
    st.builds(lambda gap: (ProcessingTimeSessionWindows(gap), 1), st.integers(1, 9)),
)
"""With the number of windows of a row."""
KEY = st.tuples(st.just("record"), st.sampled_from("abcdefg"), st.just(0))
CLOCK = st.tuples(st.just("clock"), st.integers(0, 4), st.integers(-12, 20))


@given(
    st.lists(
        st.one_of(KEY, KEY, KEY, CLOCK, CLOCK, st.tuples(st.just("restart"), st.integers(1, 5), st.just(0))),
        min_size=5,
        max_size=60,
    ),
    CLOCKED,
    st.integers(1, 5),
    st.booleans(),
)
def test_by_clocks_that_differ_each_row_is_in_all_its_windows(
    stream: list[Any], windows: tuple[Any, int], parallelism: int, steps_back: bool
) -> None:
    """Subtasks fire at moments of their own, and what each had fired counts behind a restart; clocks are set back."""
    assigner, each = windows
    job = Subtasks(parallelism, lambda **more: ColumnRig(assigner, aggregates=(count(),), **more))
    now = 100
    given_rows: Counter[str] = Counter()
    results: list[Any] = []
    for kind, what, step in stream:
        if kind == "record":
            rig = job.rigs[job.subtask_of(what)]
            rig.clock.now = now
            assert rig.records([(what, 1, None, None, 0)], None) == []
            given_rows[what] += 1
        elif kind == "clock":
            now += step if steps_back else abs(step)
            results += job.rigs[what % len(job.rigs)].time(now)
        else:
            job.restart(what)
    for rig in job.rigs:
        results += rig.time(100_000)
        assert rig.operator.state.next_time is None, "nothing is left"
        assert list(rig.operator.backend.snapshot()) == []
    rows: Counter[str] = Counter()
    for key, _, _, number in results:
        rows[key] += number
    assert rows == Counter({key: each * number for key, number in given_rows.items()})
    assert job.all_late == []
    if not steps_back:
        assert len({row[:3] for row in results}) == len(results), "no window comes twice"


@pytest.mark.parametrize(
    "assigner",
    [TumblingProcessingTimeWindows(10), SlidingProcessingTimeWindows(10, 5), ProcessingTimeSessionWindows(5)],
)
def test_a_clock_that_is_set_back_makes_no_row_late(assigner: Any) -> None:
    rig = ColumnRig(assigner, 7, aggregates=(count(),))
    rig.time(18)
    rig.records([("a", 1, None, None, 0)], None)
    assert {row[3] for row in rig.time(40)} == {1}
    rig.clock.now = 12
    assert rig.records([("a", 1, None, None, 0), ("a", 1, None, None, 0)], None) == []
    assert rig.operator.late_records.count == 0
    assert rig.late == []
    assert {row[3] for row in rig.time(90)} == {2}


@pytest.mark.parametrize("before", [0, 30])
def test_where_barriers_are_not_aligned_nobody_loses_what_only_others_had_evaluated(before: int) -> None:
    """At least once: watermarks differ."""
    job = Subtasks(2, lambda **more: ColumnRig(TumblingEventTimeWindows(10), before, aggregates=(count(),), **more))
    job.records([(key, 1, None, None, 0) for key in "abcdefg" for _ in range(2)], [3, 13] * 7)
    first_ = job.rigs[0].watermark(9)
    assert first_
    job.restart(1)
    again = {row for row in job.watermark(9)}
    assert {row[0] for row in (*first_, *again)} == set("abcdefg")
    assert {row[3] for row in again} == {1}
    assert {row[0] for row in job.watermark(19)} == set("abcdefg")


def test_panes_that_are_over_are_forgotten_where_they_are_kept_no_longer() -> None:
    lateness = 30
    job = Subtasks(1, lambda **more: ColumnRig(TumblingEventTimeWindows(10), lateness, aggregates=(count(),), **more))
    job.records([("a", 1, None, None, 0), ("a", 1, None, None, 0)], [3, 23])
    job.watermark(15)
    assert set(job.rigs[0].operator.state.panes) == {0, 20}
    lateness = 0
    job.restart(1)
    assert set(job.rigs[0].operator.state.panes) == {20}
    assert job.watermark(40) == [("a", 20, 30, 1)]
    assert not job.rigs[0].operator.state.panes
