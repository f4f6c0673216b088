"""What must hold after every event is checked, and the last events tell how a job came to break it."""

from __future__ import annotations

import pytest

from firesteel.protocol import messages as m
from firesteel_jobmaster.stimuli import MOST_EVENTS, Stimuli
from tests.unit.jobmaster.jobs import Driver, two_by_two


def test_the_last_events_are_told_with_what_they_are_about() -> None:
    d = Driver(two_by_two())
    d.running()
    d.clock.advance(5.0)
    d.did(d.core.fail_slot(m.FailSlot("tm", "tm-1", "killed")))
    *_, before, last = d.core.stimuli.lines()
    assert "update_task_states(UpdateTaskStates taskmanager_id=tm " in before
    assert f"{d.clock.monotonic():.3f}  fail_slot(FailSlot taskmanager_id=tm allocation_id=tm-1)" in last


def test_only_so_many_events_are_kept_and_of_each_only_little() -> None:
    stimuli = Stimuli()
    for number in range(MOST_EVENTS + 5):
        stimuli.record(
            float(number), "acknowledge_checkpoint", ("x" * 100_000, ["one", "two", "three"], [bytes(100_000)])
        )
    lines = stimuli.lines()
    assert len(lines) == MOST_EVENTS
    assert lines[0].split()[0] == "5.000"
    assert lines[0].endswith("x, 3 items 0=one 1=two, 1 items)")
    assert max(map(len, lines)) < 200


def test_an_event_after_which_something_does_not_hold_is_found_at_once() -> None:
    d = Driver(two_by_two())
    d.running()
    d.core.graph.unplace(d.core.pool.slots()[0].allocation_id)
    d.core.pool.remove(d.core.pool.slots()[0].allocation_id)
    d.did(d.core.report_metrics(m.ReportMetrics({})))  # the pool and the graph agree again
    d.core.pool.remove(d.core.pool.slots()[0].allocation_id)
    with pytest.raises(AssertionError, match="slots that the job does not hold") as broken:
        d.core.report_metrics(m.ReportMetrics({}))
    assert "after these events:" in str(broken.value)
    assert "update_task_states" in str(broken.value)
    d.core.validates = False
    d.core.report_metrics(m.ReportMetrics({}))
