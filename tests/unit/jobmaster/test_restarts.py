"""Restarts as the JobMaster decides them."""

from __future__ import annotations

import logging

import pytest

from firesteel.graph.execution_graph import PEACE_MS
from firesteel.graph.job_archive import EVENTS
from firesteel.protocol import messages as m
from firesteel_jobmaster import instructions as do
from firesteel_jobmaster.restart_strategies import FixedDelay
from firesteel_jobmaster.settings import JobMasterSettings
from tests.archives import job_archive
from tests.unit.jobmaster.jobs import Driver, failure, job, tasks_of, two_by_two, vertex, vertex_id


def settings(attempts: int = 1, delay: float = 1.0, **others: object) -> JobMasterSettings:
    return JobMasterSettings(new_restart_strategy=lambda: FixedDelay(attempts, delay), **others)  # type: ignore[arg-type]


def id_of(number: int, subtask: int, attempt: int = 0) -> str:
    return f"{vertex_id(number)}_{subtask}_{attempt}"


def submitted(d: Driver) -> dict[str, list[str]]:
    """What was submitted since the last look, by slot."""
    tasks_by_slot = {s.allocation_id: tasks_of(s) for s in d.seen(do.SubmitSlot)}
    d.all.clear()
    for ids in tasks_by_slot.values():
        d.did(d.core.tasks_submitted(ids))
    return tasks_by_slot


def fire(d: Driver, seconds: float = 1.0, name: str = "restart") -> None:
    d.clock.advance(seconds)
    d.did(d.core.timer_fired(name))


def test_a_failed_task_is_restarted_with_its_region_in_the_same_slots() -> None:
    d = Driver(two_by_two(), settings())
    d.running()
    d.all.clear()
    bad, *others = d.ids()
    d.report(bad, "FAILED", failure())
    assert d.core.state.name == "RESTARTING"
    assert {i for c in d.seen(do.CancelSlotTasks) for i in c.execution_ids} == set(others)
    assert d.seen(do.SetTimer)[-1] == do.SetTimer("restart", 1.0)
    d.finish_cancelled()
    assert not d.seen(do.SubmitSlot), "the pause is not over"
    fire(d)
    assert d.core.state.name == "RUNNING"
    assert not d.seen(do.ReleaseSlot)
    assert submitted(d) == {
        "tm-0": [id_of(1, 0, 1), id_of(2, 0, 1)],
        "tm-1": [id_of(1, 1, 1), id_of(2, 1, 1)],
    }
    for id_ in d.ids():
        d.report(id_, "FINISHED")
    assert d.core.state.name == "FINISHED"
    assert job_archive(d.core)["restarts"]["numRestarts"] == 1


def test_nothing_starts_before_every_old_task_has_ended() -> None:
    d = Driver(two_by_two(), settings())
    d.running()
    first, *others = d.ids()
    d.report(first, "FAILED", failure())
    fire(d, 5.0)
    d.all.clear()
    for id_ in others[:-1]:
        d.report(id_, "CANCELED")
        assert not d.seen(do.SubmitSlot)
    d.report(others[-1], "CANCELED")
    assert len(d.seen(do.SubmitSlot)) == 2


def test_the_strategy_ends_the_job_with_the_last_failure() -> None:
    d = Driver(two_by_two(), settings())
    d.running()
    d.report(d.ids()[0], "FAILED", failure(message="first"))
    d.finish_cancelled()
    fire(d)
    submitted(d)
    d.report(d.ids()[0], "FAILED", failure(message="second"))
    assert d.core.state.name == "FAILING"
    d.finish_cancelled()
    archive = job_archive(d.core)
    assert archive["state"] == "FAILED"
    assert archive["failure"]["message"] == "second"
    assert [e["message"] for e in archive["exceptions"]] == ["first", "second"]
    history = archive["vertices"][0]["subtasks"][0]
    assert (history["attempt"], history["status"]) == (1, "FAILED")
    assert [(a["attempt"], a["status"]) for a in history["attempts"]] == [(0, "FAILED")]


def test_a_failure_that_no_attempt_can_mend_ends_the_job_at_once() -> None:
    d = Driver(two_by_two(), settings(attempts=9))
    d.running()
    d.report(d.ids()[0], "FAILED", {**failure(), "recoverable": False})
    assert d.core.state.name == "FAILING"


def test_a_failure_that_no_attempt_can_mend_ends_a_job_that_is_being_restarted_too() -> None:
    d = Driver(two_by_two(), settings(attempts=9))
    d.running()
    first, second = d.ids()[:2]
    d.report(first, "FAILED", failure())
    d.report(second, "FAILED", {**failure(message="never"), "recoverable": False})
    assert d.core.state.name == "FAILING"
    d.finish_cancelled()
    assert job_archive(d.core)["failure"]["message"] == "never"
    fire(d)
    assert d.core.state.name == "FAILED"


def test_consequences_are_no_failures_of_their_own() -> None:
    d = Driver(two_by_two(), settings(attempts=1))
    d.running()
    ids = d.ids()
    d.report(ids[0], "FAILED", failure("external", "connection lost"))
    d.report(ids[3], "FAILED", failure("user", "the reason"))
    d.finish_cancelled()
    (entry,) = job_archive(d.core)["exceptions"]
    assert entry["message"] == "the reason"
    assert [e["message"] for e in entry["concurrent"]] == ["connection lost"]
    fire(d)
    assert d.core.state.name == "RUNNING"


def two_regions() -> Driver:
    d = Driver(job(vertex(1, 2, splits=["a", "b", "c"]), vertex(2, 2), partitioner="FORWARD"), settings(attempts=9))
    d.running()
    d.all.clear()
    return d


def test_other_regions_run_on() -> None:
    d = two_regions()
    for number in (1, 2):
        for subtask in (0, 1):
            if number == 1:
                d.core.request_splits(m.RequestSplits(id_of(1, subtask), 1))
    d.report(id_of(2, 1), "FAILED", failure())
    assert [c.execution_ids for c in d.seen(do.CancelSlotTasks)] == [(id_of(1, 1),)]
    answer, _ = d.core.request_splits(m.RequestSplits(id_of(1, 0), 2))
    assert [s["id"] for s in answer.splits] == ["c"], "a source of another region is served meanwhile"
    d.finish_cancelled()
    fire(d)
    assert submitted(d) == {"tm-1": [id_of(1, 1, 1), id_of(2, 1, 1)]}
    assert (d.state(id_of(1, 0)), d.state(id_of(2, 0))) == ("RUNNING", "RUNNING")
    again, _ = d.core.request_splits(m.RequestSplits(id_of(1, 1, 1), 1))
    assert [s["id"] for s in again.splits] == ["b"], "the lost reader's splits are given again, and no others"


def test_full_failover_restarts_everything() -> None:
    graph = job(vertex(1, 2, splits=["a"]), vertex(2, 2), partitioner="FORWARD")
    d = Driver(graph, settings(failover_by_region=False))
    d.running()
    d.report(id_of(2, 1), "FAILED", failure())
    d.finish_cancelled()
    d.all.clear()
    fire(d)
    assert set(submitted(d)) == {"tm-0", "tm-1"}


def test_sources_begin_anew() -> None:
    d = Driver(two_by_two(), settings())
    d.running()
    for number in (1, 2, 3):
        d.core.request_splits(m.RequestSplits(id_of(1, 0), number))
    d.report(id_of(2, 0), "FAILED", failure())
    d.finish_cancelled()
    fire(d)
    names = []
    for number in (1, 2, 3):
        answer, _ = d.core.request_splits(m.RequestSplits(id_of(1, 1, 1), number))
        names += [s["id"] for s in answer.splits]
    assert names == ["a", "b", "c"]


def test_a_lost_slot_is_replaced_while_the_others_stay() -> None:
    d = Driver(two_by_two(), settings())
    d.running()
    d.all.clear()
    d.did(d.core.fail_slot(m.FailSlot("tm", "tm-1", "process 101 was killed")))
    assert d.core.state.name == "RESTARTING"
    assert d.seen(do.DeclareSlots)[-1] == do.DeclareSlots(2, ("tm-1",))
    d.finish_cancelled()
    fire(d)
    assert d.core.state.name == "RUNNING"
    assert d.core.waits_for_slots
    assert do.SetTimer("slots", 300.0) in d.seen(do.SetTimer)
    assert not d.seen(do.SubmitSlot)
    assert d.offer(5) == ("tm-5",)
    assert set(submitted(d)) == {"tm-0", "tm-5"}


def test_slots_may_come_before_the_pause_is_over() -> None:
    d = Driver(two_by_two(), settings())
    d.running()
    d.did(d.core.fail_slot(m.FailSlot("tm", "tm-1", "killed")))
    assert d.offer(5) == ("tm-5",)
    assert d.offer(6) == ()
    d.finish_cancelled()
    d.all.clear()
    fire(d)
    assert set(submitted(d)) == {"tm-0", "tm-5"}


def test_a_lost_taskmanager_is_one_failure() -> None:
    d = Driver(job(vertex(1, 4, splits=["a"]), vertex(2, 4), partitioner="FORWARD"), settings())
    d.start()
    d.offer(0, 1)
    d.offer(0, 1, tm="other")
    submitted(d)
    for id_ in d.ids():
        d.report(id_, "RUNNING", tm="tm" if int(id_.split("_")[1]) > 1 else "other")
    d.did(d.core.taskmanager_lost("tm", "gone"))
    assert d.core.state.name == "RESTARTING"
    assert len(job_archive(d.core)["exceptions"]) == 1
    assert job_archive(d.core)["restarts"]["numRestarts"] == 1


def test_slots_that_do_not_come_back_are_a_failure_of_their_own() -> None:
    d = Driver(two_by_two(), settings())
    d.running()
    d.did(d.core.taskmanager_lost("tm", "gone"))
    fire(d)
    d.did(d.core.notify_no_resources(m.NotifyNoResources(2, 0, "no TaskManager has registered")))
    assert d.core.state.name == "RUNNING", "a job that ran before waits for slot.request.timeout"
    fire(d, 300.0, "slots")
    assert d.core.state.name == "FAILED"
    assert "slot.request.timeout" in job_archive(d.core)["failure"]["message"]


def test_a_slot_whose_tasks_do_not_end_is_given_up() -> None:
    d = Driver(two_by_two(), settings(cancellation_timeout=60))
    d.running()
    first, second, *_ = d.ids()
    d.report(first, "FAILED", failure())
    for id_ in d.ids()[2:]:
        d.report(id_, "CANCELED")
    d.all.clear()
    fire(d, 90.0, "cancel")
    assert d.state(second) == "CANCELED"
    assert [r.allocation_id for r in d.seen(do.ReleaseSlot)] == ["tm-1"]
    assert not d.seen(do.SubmitSlot)
    d.offer(7)
    assert set(submitted(d)) == {"tm-0", "tm-7"}


def test_a_slot_that_was_given_back_is_asked_for_again() -> None:
    d = Driver(job(vertex(1, 2, splits=["a"]), vertex(2, 1, group="other")), settings())
    d.running(3)
    d.report(id_of(1, 1), "FINISHED")
    fire(d, 51.0, "idle")
    assert d.seen(do.DeclareSlots)[-1].count == 2
    d.report(id_of(2, 0), "FAILED", failure())
    assert d.seen(do.DeclareSlots)[-1].count == 3
    d.finish_cancelled()
    fire(d)
    assert d.core.waits_for_slots
    d.offer(8)
    assert not d.core.waits_for_slots


def test_old_attempts_have_no_say() -> None:
    d = Driver(two_by_two(), settings(attempts=9))
    d.running()
    d.report(id_of(1, 0), "FAILED", failure())
    d.finish_cancelled()
    fire(d)
    submitted(d)
    for state in ("RUNNING", "FAILED", "CANCELED", "FINISHED"):
        d.report(id_of(1, 1), state, failure() if state == "FAILED" else None)
    d.did(d.core.submit_failed("tm-1", [id_of(1, 1)], "too late"))
    d.did(d.core.splits_lost(id_of(1, 1)))
    assert d.core.state.name == "RUNNING"
    assert d.state(id_of(1, 1, 1)) == "DEPLOYING"


def test_a_heartbeat_that_is_older_than_the_submit_says_nothing() -> None:
    d = Driver(two_by_two(), settings(attempts=9))
    d.running()
    d.report(id_of(1, 0), "FAILED", failure())
    d.finish_cancelled()
    fire(d)
    for _ in range(5):
        d.did(d.core.taskmanager_heartbeat("tm", m.ExecutionReport({id_of(1, 0): "FAILED"})))
    assert d.core.state.name == "RUNNING"


def test_cancelling_ends_the_waiting() -> None:
    d = Driver(two_by_two(), settings(attempts=9))
    d.running()
    d.report(id_of(1, 0), "FAILED", failure())
    d.did(d.core.cancel("by the user"))
    d.finish_cancelled()
    assert d.core.state.name == "CANCELED"
    fire(d)
    assert d.core.state.name == "CANCELED"


def test_a_job_that_restarts_for_a_lost_taskmanager_learns_how_that_has_ended() -> None:
    d = Driver(two_by_two(), settings(attempts=9))
    d.running()
    d.did(d.core.resourcemanager_connected(7.0))
    d.did(d.core.taskmanager_lost("tm", "gone"))
    d.did(d.core.taskmanager_ended(m.TaskManagerEnded("tm", "container c was preempted")))
    assert d.core.state.name == "RESTARTING", "nobody waits for it"
    (entry,) = d.core.graph.failures
    assert entry.root.failure["message"].startswith("container c was preempted (first seen: Slot")
    assert [r for r in entry.concurrent if "preempted" in r.failure["message"]] == []


def test_events_say_what_has_happened_and_who_wanted_it() -> None:
    earlier = {"events": [{"type": "SUBMITTED", "level": "INFO", "text": "submitted", "by": "ann from 10.0.0.1",
        "detail": "", "timestamp": 5, "last": 5, "count": 1}], "dropped": 0}  # fmt: skip
    d = Driver(two_by_two(), settings(attempts=9), takeover=(1, "its process was killed"), events=earlier)
    d.running()
    d.did(d.core.resourcemanager_connected(7.0))
    d.did(d.core.taskmanager_lost("tm", "gone"))
    d.did(d.core.taskmanager_ended(m.TaskManagerEnded("tm", "container c was preempted")))
    d.did(d.core.trigger_checkpoint(m.TriggerJobCheckpoint("t", False, "bob from 10.0.0.2")))
    d.did(d.core.trigger_checkpoint(m.TriggerJobCheckpoint("t", False, "bob from 10.0.0.2")))
    d.did(d.core.cancel("cancelled by its user", "eve from 10.0.0.3"))
    d.finish_cancelled()
    shown = [(event["type"], event["by"]) for event in job_archive(d.core)[EVENTS]["events"]]
    assert shown == [
        ("SUBMITTED", "ann from 10.0.0.1"),
        ("JOBMASTER_LOST", ""),
        ("SCHEDULED", ""),
        ("RUNNING", ""),
        ("RESTARTING", ""),
        ("CHECKPOINT_REQUESTED", "bob from 10.0.0.2"),
        ("CHECKPOINT_FAILED", ""),
        ("CANCELLING", "eve from 10.0.0.3"),
        ("CANCELED", ""),
    ]
    restarting = job_archive(d.core)[EVENTS]["events"][4]
    assert "container c was preempted" in restarting["text"]
    assert restarting["detail"].startswith("restart 2 in ")


def test_cancelling_while_slots_are_missing() -> None:
    d = Driver(two_by_two(), settings(attempts=9))
    d.running()
    d.did(d.core.taskmanager_lost("tm", "gone"))
    fire(d)
    d.did(d.core.cancel("by the user"))
    assert d.core.state.name == "CANCELED"


def test_attempts_are_counted_on_from_those_of_the_jobmaster_before() -> None:
    d = Driver(two_by_two(), settings(), takeover=(1, "it was killed"), first_attempt=3)
    d.running()
    assert {id_.rpartition("_")[2] for id_ in d.ids()} == {"3"}
    assert d.seen(do.NoteAttempts) == [do.NoteAttempts(4, ("tm",))], "where they are was not known before"
    d.report(d.ids()[0], "FAILED", failure())
    d.finish_cancelled()
    d.all.clear()
    fire(d)
    kinds = [type(instruction) for instruction in d.all if isinstance(instruction, do.NoteAttempts | do.SubmitSlot)]
    assert kinds == [do.NoteAttempts, do.SubmitSlot, do.SubmitSlot]
    assert d.seen(do.NoteAttempts) == [do.NoteAttempts(5, ("tm",))]
    assert {id_.rpartition("_")[2] for id_ in d.ids()} == {"4"}


def test_taskmanagers_that_the_job_has_left_long_ago_are_not_noted_any_more() -> None:
    """Who follows would wait for each of them."""
    d = Driver(two_by_two(), settings(attempts=99))
    d.start()
    noted: list[tuple[str, ...] | None] = []
    for number in range(5):
        d.all.clear()
        d.offer(0, 1, tm=f"tm-{number}")
        noted.append(d.seen(do.NoteAttempts)[-1].taskmanagers)
        for submit in d.seen(do.SubmitSlot):
            d.did(d.core.tasks_submitted(tasks_of(submit)))
        d.clock.advance(JobMasterSettings.heartbeat_timeout)
        d.did(d.core.taskmanager_lost(f"tm-{number}", "gone"))
        fire(d)
    assert noted[0] == ("tm-0",)
    assert noted[2] == ("tm-0", "tm-1", "tm-2"), "tasks may still run where they ran just now"
    assert noted[4] == ("tm-2", "tm-3", "tm-4")


def test_a_takeover_without_a_note_counts_the_jobmasters() -> None:
    d = Driver(two_by_two(), settings(), takeover=(2, "it was killed"))
    assert {id_.rpartition("_")[2] for id_ in d.ids()} == {"2"}


def test_tasks_wait_for_their_taskmanager_until_they_are_cancelled_or_taken() -> None:
    d = Driver(two_by_two(), settings())
    d.start()
    d.offer(0, 1)
    first, second = (tasks_of(submit) for submit in d.seen(do.SubmitSlot))
    assert d.core.awaits_submit(first)
    d.report(first[0], "RUNNING")
    d.report(first[1], "RUNNING")
    assert not d.core.awaits_submit(first)
    assert d.core.awaits_submit(second)
    d.did(d.core.cancel("no longer wanted"))
    assert not d.core.awaits_submit(second)
    assert not d.core.awaits_submit(["unknown"])


def fail_and_restart(d: Driver, message: str, kind: str = "user", seconds: float = 1.0) -> None:
    """The first task fails, and the job runs again."""
    d.report(d.ids()[0], "FAILED", {**failure(kind, message), "operator": "Map", "record": "7"})
    d.finish_cancelled()
    fire(d, seconds)
    submitted(d)


def test_each_failure_that_is_answered_by_a_restart_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "firesteel_jobmaster")
    d = Driver(two_by_two(), settings(attempts=2, delay=2.5))
    d.running()
    for message in ("boom", "boom"):
        fail_and_restart(d, message, seconds=2.5)
    first, second = [record for record in caplog.records if record.levelno == logging.WARNING]
    where = f"job {d.core.graph.job_graph.name!r} ({d.core.graph.job_graph.job_id}) failed: operator 'Map' (subtask "
    assert first.getMessage().startswith(where)
    assert "raised builtins.ValueError: boom at the record 7; restart 1 in 2.5 s" in first.getMessage()
    assert second.getMessage().endswith("boom at the record 7; restart 2 in 2.5 s"), "the traceback is told once"
    answers = [entry["answer"] for entry in job_archive(d.core)["exceptions"]]
    assert answers == ["restart 1 in 2.5 s", "restart 2 in 2.5 s"]


def test_the_reason_that_comes_after_its_consequence_is_told_too(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "firesteel_jobmaster")
    d = Driver(two_by_two(), settings())
    d.running()
    first, second, *_ = d.ids()
    d.report(first, "FAILED", failure("external", "the peer is gone"))
    d.report(second, "FAILED", failure("user", "boom"))
    consequence, reason = [record.getMessage() for record in caplog.records if "restart 1" in record.getMessage()]
    assert "the peer is gone" in consequence
    assert "boom" in reason


def test_the_first_failure_of_a_chain_stays_when_its_consequences_are_many() -> None:
    d = Driver(two_by_two(), settings(attempts=100, kept_failures=3))
    d.running()
    fail_and_restart(d, "long ago")
    d.clock.advance(PEACE_MS / 1000)
    for message in ("the reason", *(f"consequence {number}" for number in range(6))):
        fail_and_restart(d, message)
    messages = [entry["message"] for entry in job_archive(d.core)["exceptions"]]
    assert messages == ["the reason", "consequence 4", "consequence 5"]
    assert job_archive(d.core)["exceptions-dropped"]
