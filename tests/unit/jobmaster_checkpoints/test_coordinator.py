"""What single events do to a checkpoint, and what people are told."""

from __future__ import annotations

from typing import Any

import pytest

from firesteel.checkpoint.closing import CheckpointRetention
from firesteel.core.errors import StateRestoreError
from firesteel.graph.execution_states import ExecutionState
from firesteel.graph.job_archive import at_once
from firesteel_jobmaster import instructions as do
from firesteel_jobmaster.checkpoint_work import (
    Close,
    Complete,
    Discard,
    Dispose,
    Recover,
    RemoveOrphans,
    Undo,
    WorkResult,
)
from firesteel_jobmaster.checkpoints import coordinator as coordinator_module
from firesteel_jobmaster.checkpoints.coordinator import LATE_SECONDS, UNDO_SECONDS
from firesteel_jobmaster.checkpoints.plan import CheckpointPlan, plan_checkpoint
from tests.unit.jobmaster import jobs
from tests.unit.jobmaster_checkpoints.harness import FakeJob, union_state


def last_failure(job: FakeJob) -> str:
    return str(at_once(job.coordinator.statistics.in_slices())["latest"]["FAILED"]["message"])


def test_a_checkpoint_that_takes_too_long_names_tasks_that_have_not_acknowledged() -> None:
    job = FakeJob(timeout=30.0, tolerable_failures=1).run()
    checkpoint_id = job.begin()
    job.acknowledge(job.execution(1, 0), checkpoint_id)
    job.advance(31)
    assert last_failure(job) == (
        "Checkpoint expired before completing. It was under way for 30 s (execution.checkpointing.timeout). "
        "3 tasks have not acknowledged it, such as V1 (2/2)#0."
    )
    assert {i.checkpoint_id for i in job.instructions_of(do.NotifyCheckpointAborted)} == {checkpoint_id}
    assert job.failed == []
    job.do_all()
    assert not job.storage.files
    assert job.coordinator.pending  # the next one has begun


def test_a_late_acknowledgement_leaves_no_files() -> None:
    job = FakeJob(tolerable_failures=9).run()
    checkpoint_id = job.begin()
    job.coordinator.decline(job.execution(2, 0), checkpoint_id, "CHECKPOINT_ASYNC_EXCEPTION", {"message": "full"})
    job.do_all()
    late = [job.execution(1, 0), job.execution(1, 1), job.execution(2, 1)]
    for execution in late:
        job.acknowledge(execution, checkpoint_id)
    assert not [work for work in job.work if isinstance(work, Discard)], "one of many would go in front of others"
    job.advance(LATE_SECONDS)
    (discard,) = [work for work in job.work if isinstance(work, Discard)]
    assert discard.files == {f"chk-{checkpoint_id}/{execution.id}" for execution in late}
    job.do_all()
    assert not job.storage.files
    assert "V2 (1/2)#0: None: full." in last_failure(job)


def test_an_order_that_a_taskmanager_does_not_take_counts_as_no_failure() -> None:
    """The slot may be gone a moment before anybody has said so."""
    job = FakeJob(tolerable_failures=0).run()
    first = job.begin()
    job.coordinator.not_triggered((job.execution(1, 0).id,), first)
    assert last_failure(job).startswith("Checkpoint was declined (tasks not ready). V1 (1/2)#0")
    assert job.failed == []
    assert {i.checkpoint_id for i in job.instructions_of(do.NotifyCheckpointAborted)} == {first}
    job.do_all()
    second = job.begin()
    job.acknowledge_all(second)
    job.do_all()
    assert job.storage.store == [second]


def test_a_slow_checkpoint_is_told_before_it_expires(caplog: pytest.LogCaptureFixture) -> None:
    job = FakeJob(timeout=600.0, interval=10.0).run()
    first = job.begin()
    job.acknowledge_all(first)
    job.do_all()
    assert not job.coordinator.statistics.warning
    job.begin()
    job.advance(299)
    assert not job.coordinator.statistics.warning
    job.advance(3)
    assert "a checkpoint has been under way for 301 s" in job.coordinator.statistics.warning
    assert [r.levelname for r in caplog.records if "under way for 301 s" in r.message] == ["WARNING"]
    assert not job.failed


def test_a_checkpoint_that_is_overtaken_does_not_come_behind_a_later_one() -> None:
    job = FakeJob(max_concurrent=2, retained=1).run()
    first, second = job.begin(), job.begin()
    job.acknowledge_all(second)  # it is on its way into the store
    job.acknowledge_all(first)
    assert last_failure(job) == "Checkpoint has been subsumed. Checkpoint 2 is being completed."
    job.do_all()
    assert job.completed.ids() == job.storage.store == [second]
    assert [notice.checkpoint_id for notice in job.instructions_of(do.NotifyCheckpointComplete)] == [second, second]


def test_older_checkpoints_are_dropped_when_a_newer_one_is_complete() -> None:
    job = FakeJob(max_concurrent=2, tolerable_failures=9).run()
    older, newer = job.begin(), job.begin()
    job.acknowledge_all(newer)
    job.do_work()
    assert last_failure(job) == "Checkpoint has been subsumed. Checkpoint 2 is complete."
    job.acknowledge_all(older)
    job.do_all()
    assert job.completed.ids() == job.storage.store == [newer]


def test_an_older_checkpoint_completes_after_a_newer_one_was_taken_back() -> None:
    job = FakeJob(max_concurrent=2, tolerable_failures=9).run()
    older, newer = job.begin(), job.begin()
    job.acknowledge_all(newer)
    job.do_work(error="no answer", stored=True)
    assert job.storage.store == [newer], "it is there, and nobody knows"
    job.do_work()
    job.acknowledge_all(older)
    job.do_all()
    assert job.completed.ids() == job.storage.store == [older]
    assert {notice.checkpoint_id for notice in job.instructions_of(do.NotifyCheckpointAborted)} == {newer}
    assert {notice.checkpoint_id for notice in job.instructions_of(do.NotifyCheckpointComplete)} == {older}
    assert job.take() > newer


def test_an_older_checkpoint_is_dropped_while_a_newer_one_may_be_in_the_store() -> None:
    job = FakeJob(max_concurrent=2, tolerable_failures=9).run()
    older, newer = job.begin(), job.begin()
    job.acknowledge_all(newer)
    job.do_work(error="no answer", stored=True)
    job.do_work(error="no answer")  # nor can it be taken back
    job.acknowledge_all(older)
    assert last_failure(job) == "Checkpoint has been subsumed. Checkpoint 2 is being completed."
    job.advance(UNDO_SECONDS)
    job.do_all()
    assert not job.instructions_of(do.NotifyCheckpointComplete)
    assert job.completed.ids() == job.storage.store == []


@pytest.mark.parametrize("hung", ["Prepare", "Complete", "Undo", "Discard"])
def test_files_of_a_newer_checkpoint_are_removed_although_an_older_one_completes_first(hung: str) -> None:
    job = FakeJob(max_concurrent=2, tolerable_failures=9).run()
    older = job.begin()
    job.advance(job.settings.interval)
    if hung == "Prepare":
        prepare = job.work.pop(0)
        job.storage.last_id = 2
        job.coordinator.work_done(WorkResult(prepare, error=HUNG, hung=True, checkpoint_id=2))
    else:
        job.do_work()
        job.acknowledge_all(2)
        job.do_work(error=HUNG, hung=hung == "Complete", stored=hung == "Undo")
        if hung != "Complete":
            job.do_work(error=HUNG, hung=True, removed=hung == "Undo")
    job.acknowledge_all(older)
    job.do_all()
    assert job.completed.ids() == [older]
    assert job.take() == 3
    job.take()
    assert [work.below for work in job.done if isinstance(work, RemoveOrphans)] == [older, 3], (
        "files of 2 are left for ever"
    )


def test_partly_finished_operators_with_union_state_are_refused_with_the_reason() -> None:
    job = FakeJob(jobs.job(jobs.vertex(1, 2, splits=["a"]), jobs.vertex(2, 1))).run()
    job.move(job.execution(1, 0), ExecutionState.FINISHED)
    checkpoint_id = job.begin()
    job.acknowledge(job.execution(1, 1), checkpoint_id, operator=union_state())
    job.acknowledge(job.execution(2, 0), checkpoint_id)
    assert "operator 'V1' has union list state, and 1 of its 2 subtasks have finished" in last_failure(job)
    assert job.failed == []  # it does not count


def test_fully_finished_operators_with_union_state_are_completed() -> None:
    job = FakeJob(jobs.job(jobs.vertex(1, 2, splits=["a"]), jobs.vertex(2, 1))).run()
    checkpoint_id = job.begin()
    for subtask in (0, 1):
        job.acknowledge(job.execution(1, subtask), checkpoint_id, operator=union_state(), finished=True)
    job.acknowledge(job.execution(2, 0), checkpoint_id)
    (complete,) = (work for work in job.work if isinstance(work, Complete))
    assert [operator.finished for operator in complete.metadata.operators] == [True, False]


def test_checkpoints_go_on_after_tasks_have_finished_and_begin_behind_them() -> None:
    job = FakeJob().run()
    job.take()
    job.out.clear()
    for subtask in (0, 1):
        job.move(job.execution(1, subtask), ExecutionState.FINISHED)
    checkpoint_id = job.begin()
    triggered = [id_ for i in job.instructions_of(do.SendTriggerCheckpoint) for id_ in i.execution_ids]
    assert triggered == [job.execution(2, 0).id, job.execution(2, 1).id]
    job.acknowledge_all(checkpoint_id)
    job.do_all()
    assert job.storage.store == [checkpoint_id]


def test_no_checkpoint_begins_after_tasks_have_finished_if_that_is_switched_off() -> None:
    job = FakeJob(after_tasks_finish=False).run()
    job.move(job.execution(1, 0), ExecutionState.FINISHED)
    job.advance(35)
    assert not job.work
    job.coordinator.request("t")
    result = job.coordinator.requests.to_plain()["t"]
    assert "checkpoints-after-tasks-finish is false" in result["failure"]


def test_tasks_behind_one_that_ends_its_outputs_are_triggered_once() -> None:
    job = FakeJob(jobs.job(jobs.vertex(1, 1, splits=["a"]), jobs.vertex(2, 1), jobs.vertex(3, 1))).run()
    job.begin()
    assert [i.execution_ids for i in job.instructions_of(do.SendTriggerCheckpoint)] == [(job.execution(1, 0).id,)]
    job.execution(1, 0).end_of_data = True
    for _ in range(2):
        job.coordinator.outputs_ended()
    assert [i.execution_ids for i in job.instructions_of(do.SendTriggerCheckpoint)] == [(job.execution(2, 0).id,)]


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ("no JSON", "malformed state: task state: no JSON"),
        ('{"operators": {"x": {}}, "finished": false, "splits_serial": 0}', "'x' is no operator of this task"),
    ],
)
def test_malformed_state_fails_the_checkpoint_and_nothing_else(state: str, message: str) -> None:
    job = FakeJob(tolerable_failures=1).run()
    checkpoint_id = job.begin()
    job.coordinator.acknowledge(job.execution(1, 0), checkpoint_id, {}, state)
    assert message in last_failure(job)


def test_an_enumerator_without_a_snapshot_fails_the_checkpoint() -> None:
    job = FakeJob(tolerable_failures=1).run()
    job.enumerators[jobs.vertex_id(1)] = OSError("gone")
    checkpoint_id = job.begin()
    job.acknowledge_all(checkpoint_id)
    assert "The enumerator of 'V1' gave no snapshot: OSError: gone." in last_failure(job)
    assert not any(isinstance(work, Complete) for work in job.work)


def test_another_leader_stops_this_one() -> None:
    job = FakeJob().run()
    job.advance(10)
    job.do_work(error="epoch 4 leads", fenced=True)
    assert job.fenced == ["epoch 4 leads"]
    job.advance(100)
    assert not any(isinstance(work, Close) for work in job.work)


def test_storage_that_can_not_be_read_at_the_start_is_tried_again_until_it_can() -> None:
    job = FakeJob()
    job.coordinator.recover(follows=False)
    for _ in range(5000):
        assert not job.coordinator.is_settled
        assert job.coordinator.is_unread
        recover = job.work.pop(0)
        assert isinstance(recover, Recover)
        job.coordinator.work_done(WorkResult(recover, error="no answer"))
        (pause,) = [at - job.clock.monotonic() for at in job.timers.values()]
        assert pause <= 10
        job.advance(pause)
    job.coordinator.work_done(WorkResult(job.work.pop(0)))
    assert job.coordinator.is_settled
    assert not job.coordinator.is_unread
    assert job.settled == 1


def test_a_checkpoint_that_a_user_has_named_is_tried_for_a_short_time_only() -> None:
    job = FakeJob()
    job.coordinator.recover(follows=False)
    job.coordinator.work_done(WorkResult(job.work.pop(0), error="no answer", of_user=True))
    job.advance(1)
    assert not job.unrestorable
    job.advance(9)
    job.coordinator.work_done(WorkResult(job.work.pop(0), error="no answer", of_user=True))
    (error,) = job.unrestorable
    assert isinstance(error, StateRestoreError)
    assert "no answer" in str(error)


def test_requests_by_hand_mind_no_pause_and_are_answered_once() -> None:
    job = FakeJob(min_pause=100.0).run()
    job.take()
    for _ in range(3):
        job.coordinator.request("t")
    job.do_work()
    job.acknowledge_all(2)
    job.do_all()
    assert job.coordinator.requests.to_plain() == {"t": {"status": "COMPLETED", "checkpointId": 2}}
    job.advance(50)
    assert not job.work


def test_statistics_count_what_was_acknowledged() -> None:
    job = FakeJob(history=1).run()
    job.take()
    job.take()
    plain: dict[str, Any] = at_once(job.coordinator.statistics.in_slices())
    (record,) = plain["history"]
    assert record["id"] == 2
    assert record["tasks"][jobs.vertex_id(1)]["subtasks"] == 2
    assert job.coordinator.statistics.metrics()["lastCheckpointFullSize"] == 12


@pytest.mark.parametrize("milliseconds", [1, 5, 10])
def test_intervals_as_short_as_the_slack_of_timers_do_not_keep_the_coordinator_busy(
    milliseconds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[bool] = []

    def plan(graph: Any, after_tasks_finish: bool) -> CheckpointPlan:
        tries.append(after_tasks_finish)
        assert len(tries) < 50, "it tries again and again"
        return plan_checkpoint(graph, after_tasks_finish)

    monkeypatch.setattr(coordinator_module, "plan_checkpoint", plan)
    job = FakeJob(interval=milliseconds / 1000).run()
    job.begin()
    for execution in job.executions:
        execution.end_of_data = True
        job.move(execution, ExecutionState.FINISHED)
        job.do_all()
    before = len(tries)
    job.advance(milliseconds / 1000)
    assert before < len(tries) <= before + 2


def test_a_last_checkpoint_that_completes_after_a_failure_does_not_stand_for_that_of_the_next_attempts() -> None:
    job = FakeJob(interval=3600.0).run()
    for execution in job.executions:
        execution.end_of_data = True
    job.coordinator.all_data_ended()
    job.do_work()
    job.acknowledge_all(1, finished=True)
    job.fail()  # it is being completed
    job.do_all()
    assert job.storage.store == [1]
    job.again()
    for execution in job.executions:
        execution.end_of_data = True
    job.coordinator.all_data_ended()
    job.do_all()
    assert {trigger.checkpoint_id for trigger in job.instructions_of(do.SendTriggerCheckpoint)} == {1, 2}


@pytest.mark.parametrize("stored", [True, False])
def test_tasks_hear_of_a_checkpoint_that_fails_while_it_is_completed(stored: bool) -> None:
    job = FakeJob(tolerable_failures=9).run()
    checkpoint_id = job.begin()
    job.acknowledge_all(checkpoint_id)
    job.do_work(error="no answer", stored=stored)
    notices = job.instructions_of(do.NotifyCheckpointAborted)
    assert {notice.checkpoint_id for notice in notices} == {checkpoint_id}
    assert {id_ for notice in notices for id_ in notice.execution_ids} == {e.id for e in job.executions}


def test_tasks_hear_once_of_a_checkpoint_that_takes_too_long_to_complete() -> None:
    job = FakeJob(timeout=5.0, tolerable_failures=9).run()
    checkpoint_id = job.begin()
    job.acknowledge_all(checkpoint_id)
    job.advance(6)
    job.do_all()
    notices = job.instructions_of(do.NotifyCheckpointAborted)
    assert sorted(id_ for notice in notices for id_ in notice.execution_ids) == sorted(e.id for e in job.executions)
    assert job.storage.store == []


HUNG = "the storage has not answered within 60 s"


@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize("what", ["restarts", "ends"])
def test_a_call_that_hangs_while_a_checkpoint_is_completed_parks_no_job(stored: bool, what: str) -> None:
    job = FakeJob().run()
    first = job.take()
    second = job.begin()
    job.acknowledge_all(second)
    settled = job.settled
    if what == "restarts":
        job.fail()
    else:
        job.coordinator.close("CANCELED")
    assert not job.coordinator.is_settled, "whether it is in the store is not known"
    job.do_work(error=HUNG, hung=True, stored=stored)
    if stored:  # it may be in the store: it is taken out again, which may hang as well
        (undo,) = job.work
        assert isinstance(undo, Undo)
        job.do_work(error=HUNG, hung=True)
        assert not job.coordinator.is_settled
        job.advance(UNDO_SECONDS)
        job.do_work()
    assert job.coordinator.is_settled
    if what == "restarts":
        assert job.settled > settled, "the job waits for ever"
        assert job.completed.ids() == job.storage.store == [first]
    job.do_all()
    assert job.storage.closed == (what == "ends")
    assert (HUNG if what == "restarts" else "The job is CANCELED.") in last_failure(job)
    assert job.counts()["failed"] == 1


def test_files_that_can_not_be_removed_hold_nobody_up_when_the_store_is_sure() -> None:
    job = FakeJob(tolerable_failures=9).run()
    checkpoint_id = job.begin()
    job.acknowledge_all(checkpoint_id)
    job.do_work(error="no answer", stored=True)
    job.do_work(error=HUNG, hung=True, removed=True)
    assert job.coordinator.is_settled
    assert job.take() > checkpoint_id
    assert not job.work
    assert RemoveOrphans in {type(work) for work in job.done}, (
        "what is left is looked for when the next one is complete"
    )


def test_a_place_that_is_not_made_in_time_costs_one_checkpoint() -> None:
    job = FakeJob(tolerable_failures=9).run()
    job.advance(job.settings.interval)
    job.do_work(error=HUNG, hung=True)
    assert job.counts()["failed"] == 1
    assert job.take() > 0
    assert RemoveOrphans in {type(work) for work in job.done}


def test_a_failed_request_by_hand_does_not_count_against_the_job() -> None:
    job = FakeJob(interval=0.0, tolerable_failures=0).run()
    job.coordinator.request("t")
    job.do_work()
    job.coordinator.decline(job.execution(2, 0), 1, "TASK_CHECKPOINT_FAILURE", {"message": "no"})
    assert "no" in job.coordinator.requests.to_plain()["t"]["failure"]
    assert job.failed == []


def test_what_could_not_be_removed_from_the_store_is_removed_with_the_next_checkpoint() -> None:
    job = FakeJob().run()
    job.take()
    second = job.begin()
    job.acknowledge_all(second)
    job.do_work()
    job.do_work(error="no answer")  # the removal of the first one
    assert job.storage.store == [1, 2]
    third = job.take()
    assert job.storage.store == [third]
    assert {name.split("/")[0] for name in job.storage.files} == {f"chk-{third}"}


def test_what_could_not_be_removed_from_the_store_is_removed_at_the_end() -> None:
    job = FakeJob(retention=CheckpointRetention.RETAIN_ON_CANCELLATION).run()
    job.take()
    second = job.begin()
    job.acknowledge_all(second)
    job.do_work()
    job.do_work(error="no answer")
    job.do_all()
    job.coordinator.close("CANCELED")
    job.do_all()
    assert job.storage.store == [second]


def test_a_place_that_was_made_in_part_for_a_checkpoint_that_was_given_up_meanwhile_is_removed() -> None:
    job = FakeJob().run()
    job.advance(10)
    prepare = job.work.pop()
    job.fail()
    job.coordinator.work_done(WorkResult(prepare, error="no answer", checkpoint_id=1))
    assert job.work == [Discard(1, frozenset())]


def test_an_acknowledgement_that_comes_again_does_not_discard_what_the_store_may_still_name() -> None:
    """The removal of a subsumed checkpoint hangs: the store names it, so its files stay until that is done."""
    job = FakeJob(retained=1).run()
    first = job.take()
    second = job.begin()
    job.acknowledge_all(second)
    job.do_work()
    (dispose,) = job.work
    assert isinstance(dispose, Dispose)
    job.do_work(error=HUNG, hung=True)
    assert job.storage.store == [first, second]
    job.acknowledge(job.executions[0], first)
    job.advance(LATE_SECONDS)
    assert not [work for work in job.work if isinstance(work, Discard)]
    third = job.take()
    assert job.storage.store == [third]
    assert all(file.startswith(f"chk-{third}/") for file in job.storage.files)
    job.acknowledge(job.executions[0], first)  # nobody names it any more
    job.advance(LATE_SECONDS)
    assert [work.checkpoint_id for work in job.work if isinstance(work, Discard)] == [first]
