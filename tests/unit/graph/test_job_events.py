"""The events of a job: which are kept, and what is counted instead of being listed again."""

from __future__ import annotations

from typing import Any

from firesteel.common.job_status import JobStatus
from firesteel.graph.job_events import MOST, EventType, JobEvents


class _Clock:
    def __init__(self) -> None:
        self.now = 1000

    def __call__(self) -> int:
        self.now += 1
        return self.now


def _kinds(events: JobEvents) -> list[tuple[str, int]]:
    return [(event["type"], event["count"]) for event in events.plain()["events"]]


def _restart(events: JobEvents, cause: str = "ValueError: boom") -> None:
    events.restarting(cause, "restart 1 in 1 s")
    events.job_moved(JobStatus.RESTARTING, cause)
    events.job_moved(JobStatus.RUNNING, "restarted 4 tasks")
    events.all_run(4, None)


def test_restarts_for_the_same_cause_are_counted_in_one_event() -> None:
    events = JobEvents(_Clock())
    events.job_moved(JobStatus.RUNNING, "scheduling started")
    events.all_run(4, None)
    for _ in range(3):
        _restart(events)
    _restart(events, "KeyError: 'a'")
    kinds = [("SCHEDULED", 1), ("RUNNING", 1), ("RESTARTING", 3), ("RUNNING", 1), ("RESTARTING", 1), ("RUNNING", 1)]
    assert _kinds(events) == kinds
    first = events.plain()["events"][2]
    assert first["last"] > first["timestamp"]
    assert (first["text"], first["detail"]) == ("ValueError: boom", "restart 1 in 1 s")


def test_a_restart_gets_the_cause_that_is_known_in_the_end() -> None:
    events = JobEvents(_Clock())
    events.restarting("a connection broke", "restart 1 in 1 s")
    events.restart_explained("the process was killed by signal 9")
    assert events.plain()["events"][0]["text"] == "the process was killed by signal 9"
    events.all_run(2, None)
    events.restart_explained("too late")
    assert events.plain()["events"][0]["text"] == "the process was killed by signal 9"


def test_tasks_that_run_say_from_which_checkpoint_if_it_is_of_this_start() -> None:
    clock = _Clock()
    events = JobEvents(clock)
    events.all_run(1, None)
    events.restarting("boom", "")
    restored = clock()
    events.all_run(4, (7, restored))
    events.rescaling("from 2 to 4 slots")
    events.all_run(4, (7, restored))
    texts = [event["text"] for event in events.plain()["events"] if event["type"] == "RUNNING"]
    assert texts == ["the task runs", "all 4 tasks run, from checkpoint 7", "all 4 tasks run"]


def test_checkpoints_that_fail_in_a_row_are_one_event_and_the_next_success_says_so() -> None:
    events = JobEvents(_Clock())
    events.checkpoint_ended(1, "")
    for number in range(2, 5):
        events.checkpoint_ended(number, f"checkpoint {number} expired")
    events.checkpoint_ended(5, "")
    events.checkpoint_ended(6, "")
    assert _kinds(events) == [("CHECKPOINTS_FAILING", 3), ("CHECKPOINTS_RECOVERED", 1)]
    texts = [event["text"] for event in events.plain()["events"]]
    assert texts == ["checkpoint 4 expired", "checkpoint 5 is complete, after 3 failures in a row"]


def test_what_a_user_has_asked_for_says_who_and_what_became_of_it() -> None:
    events = JobEvents(_Clock())
    events.requested(EventType.SAVEPOINT_REQUESTED, "t1", "a savepoint in /s", "ann from 10.0.0.1")
    events.requested(EventType.CHECKPOINT_REQUESTED, "t2", "a checkpoint", "bob from 10.0.0.2")
    events.request_ended("t2", False, "not all tasks run")
    events.request_ended("t1", True, "savepoint 3 is complete", "/s/savepoint-1")
    events.request_ended("t1", True, "it is said twice")
    events.request_ended("unknown", True, "nobody knows of it")
    shown = [(event["type"], event["by"], event["detail"]) for event in events.plain()["events"]]
    assert shown == [
        ("SAVEPOINT_REQUESTED", "ann from 10.0.0.1", ""),
        ("CHECKPOINT_REQUESTED", "bob from 10.0.0.2", ""),
        ("CHECKPOINT_FAILED", "", ""),
        ("SAVEPOINT_COMPLETED", "", "/s/savepoint-1"),
    ]


def test_of_too_many_events_those_that_people_have_asked_for_stay() -> None:
    events = JobEvents(_Clock())
    events.add(EventType.SUBMITTED, "submitted", "ann")
    events.requested(EventType.SAVEPOINT_REQUESTED, "t", "a savepoint", "ann")
    for number in range(MOST):
        _restart(events, f"failure {number}")
    plain = events.plain()
    assert len(plain["events"]) == MOST
    assert plain["dropped"] == 3 + 2 * MOST - MOST
    assert [event["by"] for event in plain["events"][:3]] == ["ann", "ann", ""]
    assert plain["events"][-2]["text"] == f"failure {MOST - 1}"


def test_the_next_jobmaster_goes_on_with_the_list_and_counts_on() -> None:
    before = JobEvents(_Clock())
    before.job_moved(JobStatus.RUNNING, "")
    _restart(before)
    after = JobEvents(_Clock(), before.plain())
    after.add(EventType.JOBMASTER_LOST, "its process was killed")
    after.job_moved(JobStatus.RUNNING, "")
    assert [kind for kind, _ in _kinds(after)] == ["SCHEDULED", "RESTARTING", "RUNNING", "JOBMASTER_LOST", "SCHEDULED"]


def test_events_that_can_not_be_read_cost_only_the_list() -> None:
    malformed: list[dict[str, Any]] = [{"events": [{"type": 3}]}, {"events": 7}, {"dropped": "many"}]
    assert [JobEvents(_Clock(), earlier).plain()["events"] for earlier in malformed] == [[], [], []]


def test_long_causes_are_cut_and_the_end_of_a_job_has_its_level() -> None:
    events = JobEvents(_Clock())
    events.job_moved(JobStatus.FAILING, "x" * 1000)
    events.job_moved(JobStatus.FAILED, "all tasks have ended")
    events.job_moved(JobStatus.CREATED, "submitted")
    first, last = events.plain()["events"]
    assert len(first["text"]) == 400
    assert (first["level"], last["level"], last["type"]) == ("ERROR", "ERROR", "FAILED")
