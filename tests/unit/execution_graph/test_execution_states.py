from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firesteel.common.job_status import JobStatus
from firesteel.core.errors import IllegalTransitionError
from firesteel.graph.execution_graph import Execution
from firesteel.graph.execution_states import (
    EXECUTION_MOVES,
    JOB_MOVES,
    ExecutionState,
    aggregate_state,
    progress_between,
)
from firesteel.testing.clock import ManualClock
from tests.unit.jobmaster.jobs import vertex

E = ExecutionState


def test_final_states_have_no_moves() -> None:
    assert {s for s in JobStatus if s not in JOB_MOVES} == {
        JobStatus.FAILED,
        JobStatus.CANCELED,
        JobStatus.FINISHED,
        JobStatus.SUSPENDED,
        JobStatus.RECONCILING,
    }
    assert {s for s in E if s not in EXECUTION_MOVES} == {E.FINISHED, E.CANCELED, E.FAILED, E.RECONCILING}
    assert {s for s in E if s.is_terminal} == {E.FINISHED, E.CANCELED, E.FAILED}


def test_names_are_flinks() -> None:
    names = "CREATED SCHEDULED DEPLOYING INITIALIZING RUNNING FINISHED CANCELING CANCELED FAILED RECONCILING"
    assert [s.value for s in E] == names.split()
    assert JobStatus.CANCELLING in JOB_MOVES


@pytest.mark.parametrize(
    ("counts", "parallelism", "expected"),
    [
        ({E.RUNNING: 1, E.FAILED: 1}, 2, E.FAILED),
        ({E.CANCELED: 1, E.CANCELING: 1}, 2, E.CANCELING),
        ({E.CANCELED: 1, E.RUNNING: 1}, 2, E.CANCELED),
        ({E.INITIALIZING: 1, E.RUNNING: 1}, 2, E.INITIALIZING),
        ({E.RUNNING: 1, E.FINISHED: 1}, 2, E.RUNNING),
        ({E.FINISHED: 2}, 2, E.FINISHED),
        ({E.FINISHED: 1, E.DEPLOYING: 1}, 2, E.RUNNING),
        ({E.DEPLOYING: 1, E.SCHEDULED: 1}, 2, E.CREATED),
        ({E.CREATED: 2}, 2, E.CREATED),
    ],
)
def test_state_of_a_vertex(counts: dict[E, int], parallelism: int, expected: E) -> None:
    assert aggregate_state(Counter(counts), parallelism) is expected


def test_progress_walks_through_what_was_overtaken() -> None:
    assert progress_between(E.DEPLOYING, E.RUNNING) == [E.INITIALIZING, E.RUNNING]
    assert progress_between(E.RUNNING, E.INITIALIZING) == []
    assert progress_between(E.CANCELING, E.RUNNING) == []


@given(st.lists(st.sampled_from(list(E))))
def test_no_report_is_ever_an_illegal_move(reports: list[E]) -> None:
    execution = Execution(vertex(1, 1), 0, 0, ManualClock())
    execution.machine.move(E.SCHEDULED, "test")
    execution.machine.move(E.DEPLOYING, "test")
    for state in reports:
        before = execution.state
        changed = execution.report(state, "test")
        assert changed == (execution.state is not before)
        if before.is_terminal:
            assert not changed


def test_an_end_while_canceling_is_canceled() -> None:
    execution = Execution(vertex(1, 1), 0, 0, ManualClock())
    for state in (E.SCHEDULED, E.DEPLOYING, E.CANCELING):
        execution.machine.move(state, "test")
    assert execution.report(E.FINISHED, "test")
    assert execution.state is E.CANCELED
    with pytest.raises(IllegalTransitionError, match="CANCELED -> RUNNING"):
        execution.machine.move(E.RUNNING, "test")


def test_metrics_do_not_change_after_the_final_ones() -> None:
    execution = Execution(vertex(1, 1), 0, 0, ManualClock())
    execution.update_metrics({"numRecordsIn": 1, "text": "x", "flag": True})
    assert execution.metrics == {"numRecordsIn": 1}
    execution.update_metrics({"numRecordsIn": 9}, final=True)
    execution.update_metrics({"numRecordsIn": 3})
    assert execution.metrics == {"numRecordsIn": 9}
