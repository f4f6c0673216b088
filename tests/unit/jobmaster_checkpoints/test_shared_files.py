"""Files that several checkpoints use stay as long as one of them is kept, whatever becomes of the others."""

from __future__ import annotations

from typing import Any

import pytest

from firesteel.checkpoint.handles import FileState, checksum
from firesteel.checkpoint.subtask_state import KeyedState, OperatorSubtaskState, TaskState
from firesteel_jobmaster import instructions as do
from firesteel_jobmaster.checkpoint_work import Discard
from firesteel_jobmaster.checkpoints.coordinator import LATE_TIMER
from tests.unit.jobmaster_checkpoints.harness import FakeJob


def acknowledge_all(job: FakeJob, checkpoint_id: int, builds_on: tuple[int, ...]) -> None:
    """Each task has written a file for this checkpoint, and names those that it wrote for others."""
    for execution in job.executions:
        job.coordinator.acknowledge(
            execution, checkpoint_id, {"state_size": 3}, state(job, execution, checkpoint_id, builds_on)
        )


def state(job: FakeJob, execution: Any, checkpoint_id: int, builds_on: tuple[int, ...]) -> str:
    paths = [f"shared/{number}-{execution.id}" for number in (*builds_on, checkpoint_id)]
    job.storage.files.add(paths[-1])
    handles = tuple(FileState(path, 3, checksum(b"abc")) for path in paths)
    keyed = KeyedState(({"name": "s"},), (0, 127), handles)
    return TaskState({execution.vertex.operators[0].id: OperatorSubtaskState({"columns": keyed})}).to_bytes().decode()


def stored_checkpoints(job: FakeJob) -> set[int]:
    """Checkpoints whose files are there."""
    return {int(path.partition("/")[2].partition("-")[0]) for path in job.storage.files}


def base_of(job: FakeJob) -> set[str | None]:
    return {instruction.options.get("base") for instruction in job.instructions_of(do.SendTriggerCheckpoint)}


def take_checkpoint(job: FakeJob, builds_on: tuple[int, ...]) -> int:
    checkpoint_id = job.begin()
    acknowledge_all(job, checkpoint_id, builds_on)
    job.do_all()
    return checkpoint_id


@pytest.mark.parametrize("retained", [1, 2])
def test_shared_files_go_with_the_last_checkpoint_that_names_them(retained: int) -> None:
    job = FakeJob(retained=retained).run()
    first = take_checkpoint(job, ())
    assert base_of(job) == {None}
    second = take_checkpoint(job, (first,))
    assert base_of(job) == {str(first)}
    third = take_checkpoint(job, (first, second))
    assert stored_checkpoints(job) == {first, second, third}
    fourth = take_checkpoint(job, ())
    assert stored_checkpoints(job) == ({fourth} if retained == 1 else {first, second, third, fourth})
    fifth = take_checkpoint(job, (fourth,))
    assert stored_checkpoints(job) == {fourth, fifth}


def test_a_full_checkpoint_builds_on_none() -> None:
    job = FakeJob(tolerable_failures=9).run()
    first = take_checkpoint(job, ())
    for full, bases in ((True, {None}), (False, {str(first)})):
        job.instructions_of(do.SendTriggerCheckpoint)
        job.coordinator.request(f"full: {full}", full)
        job.do_work()
        assert base_of(job) == bases
        job.coordinator.decline(job.executions[0], job.storage.last_id, "CHECKPOINT_DECLINED", {"message": "enough"})
        job.do_all()


def test_a_checkpoint_that_is_given_up_takes_its_own_files_only() -> None:
    job = FakeJob(tolerable_failures=9).run()
    first = take_checkpoint(job, ())
    second = job.begin()
    first_task, *others = job.executions
    job.coordinator.acknowledge(first_task, second, {}, state(job, first_task, second, (first,)))
    job.coordinator.decline(others[0], second, "CHECKPOINT_ASYNC_EXCEPTION", {"message": "full"})
    job.do_all()
    assert stored_checkpoints(job) == {first}
    job.coordinator.acknowledge(others[1], second, {}, state(job, others[1], second, (first,)))  # too late
    job.coordinator.timer_fired(LATE_TIMER)
    job.do_all()
    assert stored_checkpoints(job) == {first}
    assert take_checkpoint(job, (first,)) > second
    assert len(stored_checkpoints(job)) == 2


@pytest.mark.parametrize("stored", [False, True])
def test_a_checkpoint_that_can_not_be_completed_takes_its_own_files_only(stored: bool) -> None:
    job = FakeJob(tolerable_failures=9).run()
    first = take_checkpoint(job, ())
    second = job.begin()
    acknowledge_all(job, second, (first,))
    job.do_work(error="no", stored=stored)
    job.do_all()
    assert stored_checkpoints(job) == {first}


def test_an_acknowledgement_that_comes_twice_removes_nothing_that_is_used() -> None:
    job = FakeJob().run()
    first = job.begin()
    acknowledge_all(job, first, ())
    job.do_all()
    second = take_checkpoint(job, (first,))
    first_task = job.executions[0]
    job.coordinator.acknowledge(first_task, first, {}, state(job, first_task, first, ()))
    job.do_all()
    assert not any(isinstance(work, Discard) for work in job.work)
    assert stored_checkpoints(job) == {first, second}


def test_nothing_is_built_on_when_several_are_under_way_at_once() -> None:
    job = FakeJob(max_concurrent=2).run()
    take_checkpoint(job, ())
    job.instructions_of(do.SendTriggerCheckpoint)
    job.begin()
    assert base_of(job) == {None}
