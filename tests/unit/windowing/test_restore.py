"""Windows of records, written out and restored between batches, with another parallelism each time."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firesteel.datastream.window import (
    ContinuousEventTimeTrigger,
    CountTrigger,
    EventTimeSessionWindows,
    PurgingTrigger,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
)
from firesteel.graph.key_groups import operator_index
from firesteel.graph.key_hash import key_group
from firesteel.graph.specs import OperatorKind
from firesteel.runtime.operator_base.context import TaskInfo
from firesteel.runtime.operator_base.keyed_base import state_parameters
from firesteel.state.heap import HeapStateBackend
from firesteel.testing.snapshots import SnapshotContents, take_snapshot
from tests.unit.windowing.harness import LATE, Clock, Out, Rig, spec_of
from tests.unit.windowing.oracle import Oracle
from tests.unit.windowing.test_against_oracle import LATENESS, RECORDS, WATERMARKS, in_order, numbered, results_of, tidy

MAX_PARALLELISM = 8
RESTARTS = st.tuples(st.just("restart"), st.integers(1, 5))
STREAMS = st.lists(st.one_of(RECORDS, RECORDS, RECORDS, WATERMARKS, RESTARTS), min_size=8, max_size=50)
ALIGNED, SESSION, GENERAL = OperatorKind.ALIGNED_WINDOW, OperatorKind.SESSION_WINDOW, OperatorKind.WINDOW
KINDS = st.sampled_from(
    [
        ("tumbling", ALIGNED, ("event",)),
        ("sliding", ALIGNED, ("event",)),
        ("sessions", SESSION, ("event",)),
        ("tumbling", GENERAL, ("event",)),
        ("sliding", GENERAL, ("continuous", 4)),
        ("sessions", GENERAL, ("event",)),
        ("sessions", GENERAL, ("count", 3)),
        ("sessions", GENERAL, ("continuous", 3)),
    ]
)


def subtask_of(key: Any, parallelism: int) -> int:
    return operator_index(key_group(key, MAX_PARALLELISM), parallelism, MAX_PARALLELISM)


class Job:
    """An operator of records, with a parallelism that changes."""

    def __init__(self, make: Any, parallelism: int) -> None:
        self._make = make
        self.rigs: list[Rig] = []
        self._start(parallelism, [])

    def _start(self, parallelism: int, written: list[SnapshotContents]) -> None:
        self.rigs = []
        for subtask in range(parallelism):
            info = TaskInfo("1" * 32, "job", "v_0_0", "WINDOW", subtask, parallelism, MAX_PARALLELISM, 0)

            def before_open(operator: Any, info: TaskInfo = info) -> None:
                operator.use_backend(HeapStateBackend(), state_parameters(operator.spec, info, Clock()))
                operator.keyed.restore([state.of(operator.key_groups) for state in written])

            rig = self._make(info=info, before_open=before_open)
            self.rigs.append(rig)

    def restart(self, parallelism: int) -> None:
        """Write everything out, forget it, and read it again."""
        written = []
        for rig in self.rigs:
            written.append(take_snapshot(rig.operator.keyed.snapshot(), rig.operator.key_groups))
            rig.operator.close()
        self._start(parallelism, written)

    def records(self, records: list[Any]) -> list[Out]:
        """Each record to the subtask of its key."""
        count = len(self.rigs)
        outs = []
        for record, time in records:
            outs += self.rigs[subtask_of(record[0], count)].records([(record, time)])
        return outs

    def watermark(self, time: int) -> list[Out]:
        """Event time has come so far everywhere."""
        return [out for rig in self.rigs for out in rig.watermark(time)]

    @property
    def entries(self) -> int:
        return sum(rig.entries for rig in self.rigs)


def assigner_of(name: str, size: int) -> tuple[Any, dict[str, int]]:
    if name == "sessions":
        return EventTimeSessionWindows(size), {"gap": size}
    if name == "tumbling":
        return TumblingEventTimeWindows(size), {"size": size, "slide": size}
    return SlidingEventTimeWindows(size, 5), {"size": size, "slide": 5}


def trigger_of(trigger: tuple[Any, ...], purging: bool) -> Any:
    if trigger[0] == "event":
        return None
    built: Any = CountTrigger(trigger[1]) if trigger[0] == "count" else ContinuousEventTimeTrigger(trigger[1])
    return PurgingTrigger(built) if purging else built


@given(STREAMS, KINDS, st.integers(1, 12), LATENESS, st.booleans(), st.sampled_from(["all", "reduce", "aggregate"]))
def test_nothing_is_lost_and_nothing_comes_twice(
    stream: list[Any], kind: tuple[Any, ...], size: int, lateness: int, purging: bool, gathering: str
) -> None:
    name, operator, trigger = kind
    assigner, shape = assigner_of(name, size)
    purging = purging and trigger[0] != "event"
    spec = spec_of(assigner, trigger_of(trigger, purging), gathering, allowed_lateness=lateness, late_tag=LATE)
    oracle = Oracle(**shape, lateness=lateness, trigger=trigger, purging=purging)
    job = Job(lambda **more: Rig(spec, operator, **more), 2)
    now = None
    for item in [*numbered(stream), ("watermark", 10_000)]:
        if item[0] == "record":
            outs = job.records([(item[1], item[2])])
            results = [out for out in outs if not out.late]
            before = len(oracle.late)
            assert results_of(results, gathering) == tidy(oracle.record(item[1], item[2]), gathering)
            assert len(outs) - len(results) == len(oracle.late) - before
        elif item[0] == "restart":
            job.restart(item[1])
            if now is not None:  # sources say it again; only timers fire by it that were set in the past
                again = [result for _, result in oracle.watermark(now)]
                assert in_order(results_of(job.watermark(now), gathering)) == in_order(tidy(again, gathering))
                assert trigger[0] == "continuous" or not again
        else:
            now = item[1]
            due = oracle.watermark(now)
            assert in_order(results_of(job.watermark(now), gathering)) == in_order(
                tidy([result for _, result in due], gathering)
            )
    assert job.entries == 0


def sums_of(lateness: int) -> Any:
    return spec_of(TumblingEventTimeWindows(10), None, "reduce", allowed_lateness=lateness, late_tag=LATE)


def test_where_barriers_are_not_aligned_a_window_is_evaluated_again() -> None:
    """At least once: one subtask has evaluated a window that the other one has not."""
    job = Job(lambda **more: Rig(sums_of(20), ALIGNED, **more), 2)
    keys = "abcdefg"
    job.records([((key, 1), 3) for key in keys])
    before = {out.value[0] for out in job.rigs[0].watermark(9)}
    assert set() < before < set(keys)
    job.restart(1)
    assert sorted(out.value for out in job.watermark(9)) == [(key, (0, 10), [(key, 1)]) for key in keys]
    assert [out.value for out in job.records([(("a", 5), 4)])] == [("a", (0, 10), [("a", 6)])]
    assert job.watermark(29) == []
    assert job.entries == 0


@pytest.mark.parametrize(
    ("kind", "assigner"), [(ALIGNED, TumblingEventTimeWindows(10)), (SESSION, EventTimeSessionWindows(7))]
)
def test_windows_that_were_given_do_not_come_again_where_they_are_kept_no_longer(
    kind: OperatorKind, assigner: Any
) -> None:
    lateness = 20

    def make(**more: Any) -> Rig:
        return Rig(spec_of(assigner, None, "reduce", allowed_lateness=lateness, late_tag=LATE), kind, **more)

    job = Job(make, 2)
    job.records([(("a", 1), 3), (("a", 1), 23)])
    assert len(job.watermark(9)) == 1
    lateness = 0
    job.restart(1)
    assert job.watermark(9) == []
    assert job.watermark(22) == []
    assert [out.value[2] for out in job.watermark(29)] == [[("a", 1)]]
    assert job.watermark(100) == []
    assert job.entries == 0
