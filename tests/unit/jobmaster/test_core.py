from __future__ import annotations

from typing import Any

import pytest

from firesteel.core.errors import ProtocolError, TaskManagerStoppedError, class_name
from firesteel.protocol import messages as m
from firesteel_jobmaster import instructions as do
from firesteel_jobmaster.failover import STOPPING_SECONDS
from firesteel_jobmaster.losses import MISSED_SLOTS
from firesteel_jobmaster.settings import JobMasterSettings
from tests.archives import job_archive
from tests.unit.jobmaster.jobs import Driver, failure, job, tasks_of, two_by_two, vertex, vertex_id


def test_deploys_only_when_the_slots_of_all_groups_are_there() -> None:
    d = Driver(job(vertex(1, 2, group="a"), vertex(2, 1, group="b")))
    d.start()
    assert d.seen(do.DeclareSlots) == [do.DeclareSlots(3)]
    d.offer(0, 1)
    assert not d.seen(do.SubmitSlot)
    assert {d.state(i) for i in d.ids()} == {"CREATED"}
    d.offer(2)
    assert [s.allocation_id for s in d.seen(do.SubmitSlot)] == ["tm-0", "tm-1", "tm-2"]
    assert [[t.vertex_name for t in s.deployment.tasks] for s in d.seen(do.SubmitSlot)] == [["V1"], ["V1"], ["V2"]]
    assert d.seen(do.ClearTimer) == [do.ClearTimer("slots")]


def test_offers_are_idempotent_and_too_many_are_refused() -> None:
    d = Driver(two_by_two())
    d.start()
    assert d.offer(0) == ("tm-0",)
    assert d.offer(0) == ("tm-0",)
    assert len(d.core.pool) == 1
    assert d.offer(1, 2) == ("tm-1",)
    assert d.offer(1, 2) == ("tm-1",)
    assert d.offer(0, pid=7) == (), "the same allocation of another process"
    assert len(d.seen(do.SubmitSlot)) == 2
    assert len(d.seen(do.WatchTaskManager)) == 1


def test_finishes_and_gives_everything_back() -> None:
    d = Driver(two_by_two())
    d.running()
    for id_ in d.ids():
        assert not d.core.is_terminal
        d.report(id_, "FINISHED", numRecordsIn=5)
    assert d.core.state.name == "FINISHED"
    assert [r.allocation_id for r in d.seen(do.ReleaseSlot)] == ["tm-0", "tm-1"]
    assert len(d.seen(do.ReportEnd)) == len(d.seen(do.DisconnectResourceManager)) == 1
    assert [s.state for s in d.seen(do.ReportJobState)] == ["CREATED", "RUNNING", "FINISHED"]
    assert d.offer(5) == ()
    archive = job_archive(d.core)
    assert archive["vertices"][0]["metrics"]["read-records"] == 10
    assert archive["vertices"][0]["metrics"]["read-records-complete"] is True


def test_finished_may_overtake_running() -> None:
    d = Driver(two_by_two())
    d.deployed()
    first = d.ids()[0]
    d.report(first, "FINISHED")
    d.report(first, "RUNNING")
    d.report(first, "INITIALIZING")
    assert d.state(first) == "FINISHED"
    second = d.ids()[1]
    d.report(second, "RUNNING")
    assert d.state(second) == "RUNNING"


def test_a_failed_task_fails_the_job_after_the_others_were_cancelled() -> None:
    d = Driver(two_by_two())
    d.running()
    bad, *others = d.ids()
    d.report(bad, "FAILED", failure())
    assert d.core.state.name == "FAILING"
    cancelled = {i for c in d.seen(do.CancelSlotTasks) for i in c.execution_ids}
    assert cancelled == set(others)
    d.report(bad, "FAILED", failure())
    d.finish_cancelled()
    assert d.core.state.name == "FAILED"
    archive = job_archive(d.core)
    assert archive["failure"]["message"] == "boom"
    assert archive["failure"]["vertex_name"] == "V1"
    assert archive["failure"]["subtask"] == 0
    assert archive["exceptions"][0]["taskName"] == "V1 (1/2)#0"
    assert archive["exceptions"][0]["taskManagerId"] == "tm"
    assert len(archive["exceptions"]) == 1


def test_the_users_error_is_the_reason_even_if_its_consequence_was_heard_first() -> None:
    d = Driver(two_by_two())
    d.running()
    neighbour, guilty = d.ids()[0], d.ids()[3]
    d.report(neighbour, "FAILED", failure("external", "connection to tm-1 broke"))
    d.report(guilty, "FAILED", failure("user", "division by zero"))
    d.finish_cancelled()
    assert job_archive(d.core)["failure"]["message"] == "division by zero"
    (entry,) = job_archive(d.core)["exceptions"]
    assert [e["message"] for e in entry["concurrent"]] == [
        "connection to tm-1 broke (tm-1 is slot 1 of TaskManager tm (process 101))"
    ]


def test_a_lost_slot_is_the_reason_rather_than_the_broken_connection() -> None:
    d = Driver(two_by_two())
    d.running()
    d.report(d.ids()[0], "FAILED", failure("external", "connection broke"))
    d.did(d.core.fail_slot(m.FailSlot("tm", "tm-1", "process 101 was killed by signal 9")))
    d.finish_cancelled()
    assert d.core.state.name == "FAILED"
    message = job_archive(d.core)["failure"]["message"]
    assert "Slot 1 of TaskManager tm (process 101)" in message
    assert "killed by signal 9" in message


@pytest.mark.parametrize("order", ["slot first", "tasks first"])
def test_a_lost_slot_is_the_reason_in_whatever_order_its_taskmanager_says_so(order: str) -> None:
    d = Driver(two_by_two())
    d.running()
    in_0, in_1 = [d.ids()[0], d.ids()[2]], [d.ids()[1], d.ids()[3]]
    d.report(in_0[0], "FAILED", failure("external", "connection broke"))
    d.report(in_0[1], "CANCELED")
    if order == "tasks first":
        for id_ in in_1:
            d.report(id_, "CANCELED")
        assert d.core.state.name == "FAILING", "waits a moment for a better reason"
        assert do.SetTimer("reason", 0.2) in d.all
    d.did(d.core.fail_slot(m.FailSlot("tm", "tm-1", "killed by signal 9")))
    assert d.core.state.name == "FAILED"
    assert "killed by signal 9" in job_archive(d.core)["failure"]["message"]


def test_a_broken_connection_is_the_reason_if_nothing_better_comes() -> None:
    d = Driver(two_by_two())
    d.running()
    d.report(d.ids()[0], "FAILED", failure("external", "connection broke"))
    d.finish_cancelled()
    assert d.core.state.name == "FAILING"
    d.did(d.core.timer_fired("reason"))
    assert d.core.state.name == "FAILED"
    assert job_archive(d.core)["failure"]["message"] == "connection broke"


def test_a_loss_that_the_taskmanager_reports_task_by_task_is_a_reason_at_once() -> None:
    d = Driver(two_by_two())
    d.running()
    lost = {**failure("external", "slot process 100 is gone"), "error_class": "firesteel.core.errors.FleetError"}
    d.report(d.ids()[1], "FAILED", failure("external", "connection broke"))
    d.report(d.ids()[0], "FAILED", lost)
    d.finish_cancelled()
    assert d.core.state.name == "FAILED"
    assert job_archive(d.core)["failure"]["message"] == "slot process 100 is gone"


def test_a_slot_killed_because_it_would_not_end_is_not_the_reason() -> None:
    d = Driver(two_by_two(), JobMasterSettings(cancellation_timeout=5))
    d.running()
    d.report(d.ids()[0], "FAILED", failure("external", "connection broke"))
    d.clock.advance(5)
    d.did(d.core.fail_slot(m.FailSlot("tm", "tm-0", "killed")))
    d.did(d.core.fail_slot(m.FailSlot("tm", "tm-1", "killed")))
    d.did(d.core.timer_fired("reason"))
    assert d.core.state.name == "FAILED"
    assert job_archive(d.core)["failure"]["message"] == "connection broke"


def test_cancel() -> None:
    d = Driver(two_by_two())
    d.running()
    d.did(d.core.cancel("user"))
    d.did(d.core.cancel("user"))
    assert d.core.state.name == "CANCELLING"
    assert len(d.seen(do.CancelSlotTasks)) == 2
    d.report(d.ids()[0], "FINISHED")
    d.report(d.ids()[1], "FAILED", failure())
    assert d.state(d.ids()[0]) == d.state(d.ids()[1]) == "CANCELED"
    d.finish_cancelled()
    assert d.core.state.name == "CANCELED"
    assert job_archive(d.core)["failure"] is None
    assert len(d.seen(do.ReleaseSlot)) == 2
    assert d.core.cancel("late") == []


def test_cancel_while_failing_ends_as_canceled_when_all_tasks_have_ended() -> None:
    d = Driver(two_by_two())
    d.running()
    d.report(d.ids()[0], "FAILED", failure())
    d.did(d.core.cancel("user"))
    assert d.core.state.name == "CANCELLING"
    assert {d.state(i) for i in d.ids()[1:]} == {"CANCELING"}, "they have not ended yet"
    d.finish_cancelled()
    assert d.core.state.name == "CANCELED"


def test_cancel_while_waiting_for_slots_gives_the_partial_allocation_back() -> None:
    d = Driver(two_by_two())
    d.start()
    d.offer(0)
    d.did(d.core.cancel("user"))
    assert d.core.state.name == "CANCELED"
    assert [r.allocation_id for r in d.seen(do.ReleaseSlot)] == ["tm-0"]
    assert d.offer(1) == ()


def test_slot_request_timeout_names_what_is_needed_and_what_came() -> None:
    d = Driver(two_by_two(), JobMasterSettings(slot_request_timeout=7))
    d.start()
    assert do.SetTimer("slots", 7) in d.all
    d.offer(0)
    d.did(d.core.timer_fired("slots"))
    assert d.core.state.name == "FAILED"
    reason = job_archive(d.core)["failure"]
    assert reason["error_class"] == "firesteel.core.errors.NoResourceAvailableError"
    assert "needs 2 slots (2 for group 'default')" in reason["message"]
    assert "1 of them came within 7 s" in reason["message"]
    assert "taskmanager.numberOfTaskSlots" in reason["message"]
    assert [r.allocation_id for r in d.seen(do.ReleaseSlot)] == ["tm-0"]


def test_why_slots_do_not_come_is_shown_and_said_at_the_end() -> None:
    d = Driver(two_by_two(), JobMasterSettings(slot_request_timeout=7))
    d.start()
    d.did(d.core.notify_waiting(m.NotifyWaiting("ErrImagePull: no such image")))
    assert job_archive(d.core)["firesteel-waiting-for"] == "ErrImagePull: no such image"
    d.did(d.core.notify_waiting(m.NotifyWaiting("")))
    assert "firesteel-waiting-for" not in job_archive(d.core)
    d.did(d.core.notify_waiting(m.NotifyWaiting("pod x: Unschedulable: no room")))
    d.did(d.core.resourcemanager_connected())
    d.did(d.core.timer_fired("slots"))
    assert d.core.state.name == "FAILED"
    assert job_archive(d.core)["failure"]["message"].endswith("pod x: Unschedulable: no room")
    assert "firesteel-waiting-for" not in job_archive(d.core)


def test_a_late_slots_timer_does_nothing() -> None:
    d = Driver(two_by_two())
    d.deployed()
    assert d.core.timer_fired("slots") == []
    assert d.core.state.name == "RUNNING"


def test_no_resources() -> None:
    d = Driver(two_by_two())
    d.start()
    d.did(d.core.notify_no_resources(m.NotifyNoResources(2, 1, "No more can be started.")))
    assert d.core.state.name == "FAILED"
    assert "the cluster has 1 in all" in job_archive(d.core)["failure"]["message"]


def test_no_resources_is_ignored_by_a_job_that_runs() -> None:
    d = Driver(two_by_two())
    d.running()
    d.did(d.core.notify_no_resources(m.NotifyNoResources(2, 1, "")))
    assert d.core.state.name == "RUNNING"


def test_a_refused_submit_fails_the_job_with_the_reason() -> None:
    d = Driver(two_by_two())
    d.start()
    d.offer(0, 1)
    d.did(d.core.submit_failed("tm-0", tasks_of(d.seen(do.SubmitSlot)[0]), "blob cccc is not there"))
    assert d.core.state.name == "FAILING"
    assert {i for c in d.seen(do.CancelSlotTasks) for i in c.execution_ids} == {d.ids()[1], d.ids()[3]}
    d.finish_cancelled()
    assert d.core.state.name == "FAILED"
    assert "blob cccc is not there" in job_archive(d.core)["failure"]["message"]
    assert {r.allocation_id for r in d.seen(do.ReleaseSlot)} == {"tm-0", "tm-1"}


def test_lost_taskmanager() -> None:
    d = Driver(two_by_two())
    d.start()
    d.offer(0, tm="left")
    d.offer(0, tm="right")
    for id_ in d.ids():
        d.report(id_, "RUNNING", tm="left")
        d.report(id_, "RUNNING", tm="right")
    d.did(d.core.taskmanager_lost("right", "gave no sign of life"))
    assert {d.state(i) for i in d.ids()} == {"CANCELING", "FAILED"}
    for id_ in d.ids():
        d.report(id_, "CANCELED", tm="left")
    assert d.core.state.name == "FAILED"
    assert "gave no sign of life" in job_archive(d.core)["failure"]["message"]
    d.did(d.core.taskmanager_lost("right", "again"))


def lost_right(d: Driver, ends_within: float, gone_for: float = 0.0) -> None:
    """A job at two TaskManagers loses one of them, and all of its tasks have ended."""
    d.start()
    d.did(d.core.resourcemanager_connected(ends_within))
    for tm in ("left", "right"):
        d.offer(0, tm=tm)
    for id_ in d.ids():
        d.report(id_, "RUNNING", tm="left")
        d.report(id_, "RUNNING", tm="right")
    d.did(d.core.taskmanager_lost("right", "gave no sign of life", gone_for))
    for id_ in d.ids():
        d.report(id_, "CANCELED", tm="left")


def test_a_job_that_fails_by_a_lost_taskmanager_says_how_that_has_ended() -> None:
    d = Driver(two_by_two())
    lost_right(d, 7.0)
    assert d.core.state.name == "FAILING", "the ResourceManager will hear of it"
    assert do.SetTimer("reason", 7.0) in d.all
    d.did(d.core.taskmanager_ended(m.TaskManagerEnded("left", "another one")))
    assert d.core.state.name == "FAILING"


def test_a_job_that_fails_tells_the_cause_that_the_resourcemanager_gives() -> None:
    d = Driver(two_by_two())
    lost_right(d, 7.0)
    d.did(d.core.taskmanager_ended(m.TaskManagerEnded("right", "container c has used more memory than it has")))
    assert d.core.state.name == "FAILED"
    failure = job_archive(d.core)["failure"]
    assert failure["message"].startswith("container c has used more memory than it has (first seen: Slot 0 of")
    assert "gave no sign of life" in failure["message"]
    assert failure["message"] in failure["stacktrace"]
    assert d.core.taskmanager_ended(m.TaskManagerEnded("right", "late")) == []


def test_a_job_that_fails_does_not_wait_for_ever_nor_where_nobody_learns_how_taskmanagers_end() -> None:
    d = Driver(two_by_two())
    lost_right(d, 7.0)
    d.did(d.core.timer_fired("reason"))
    assert d.core.state.name == "FAILED"
    assert "gave no sign of life" in job_archive(d.core)["failure"]["message"]
    d = Driver(two_by_two())
    lost_right(d, 0.0)
    assert d.core.state.name == "FAILED"


def test_a_job_waits_for_the_reason_no_longer_than_it_takes_to_be_known() -> None:
    d = Driver(two_by_two())
    lost_right(d, 7.0, gone_for=5.0)
    assert do.SetTimer("reason", 2.0) in d.all
    assert d.core.state.name == "FAILING"
    d = Driver(two_by_two())
    lost_right(d, 7.0, gone_for=29.0)
    assert d.core.state.name == "FAILED", "it would have been said meanwhile"


def test_a_taskmanager_that_is_told_to_stop_is_waited_for_as_well() -> None:
    d = Driver(two_by_two())
    d.running()
    d.did(d.core.resourcemanager_connected(7.0))
    first, *others = d.ids()
    stopped = {"error_class": class_name(TaskManagerStoppedError)}
    d.report(first, "FAILED", {**failure("external", "TaskManager tm was stopped"), **stopped})
    for id_ in others:
        d.report(id_, "CANCELED")
    assert d.core.state.name == "FAILING"
    assert do.SetTimer("reason", 7.0 + STOPPING_SECONDS) in d.all
    d.did(d.core.taskmanager_ended(m.TaskManagerEnded("tm", "container c is over its memory")))
    assert d.core.state.name == "FAILED"
    message = job_archive(d.core)["failure"]["message"]
    assert message == "container c is over its memory (first seen: TaskManager tm was stopped)"


def test_the_end_of_a_taskmanager_that_was_not_missed_yet_is_its_loss() -> None:
    d = Driver(two_by_two())
    d.running()
    d.did(d.core.resourcemanager_connected(7.0))
    d.did(d.core.taskmanager_ended(m.TaskManagerEnded("tm", "it was preempted")))
    assert d.core.state.name == "FAILED", "there is nothing more to wait for"
    assert "was lost: it was preempted" in job_archive(d.core)["failure"]["message"]


def test_a_slot_that_cannot_come_because_of_the_job_itself_fails_it_at_once() -> None:
    d = Driver(two_by_two())
    d.start()
    d.did(d.core.fail_slot(m.FailSlot("tm", "unknown", "pip: no such package", in_vain=True)))
    assert d.core.state.name == "FAILED"
    assert "pip: no such package" in job_archive(d.core)["failure"]["message"]


def test_a_slot_that_never_came_is_asked_for_again_and_fails_a_waiting_job_at_last() -> None:
    d = Driver(two_by_two())
    d.start()
    for number in range(MISSED_SLOTS):
        instructions = d.core.fail_slot(m.FailSlot("tm", f"unknown-{number}", "no process came within 60 s"))
        assert any(isinstance(instruction, do.DeclareSlots) for instruction in instructions)
        assert d.core.state.name != "FAILED"
    d.did(d.core.fail_slot(m.FailSlot("tm", "unknown", "its worker did not start: no python3")))
    assert d.core.state.name == "FAILED"
    assert "no python3" in job_archive(d.core)["failure"]["message"]
    other = Driver(two_by_two())
    other.running()
    assert other.core.fail_slot(m.FailSlot("tm", "unknown", "old news")) == []
    assert other.core.state.name == "RUNNING"


def test_loss_of_a_slot_whose_tasks_are_finished_is_harmless() -> None:
    d = Driver(two_by_two())
    d.running()
    for index in (0, 2):
        d.report(d.ids()[index], "FINISHED")
    d.did(d.core.fail_slot(m.FailSlot("tm", "tm-0", "gone")))
    assert d.core.state.name == "RUNNING"
    for index in (1, 3):
        d.report(d.ids()[index], "FINISHED")
    assert d.core.state.name == "FINISHED"


def test_reports_from_others_than_the_owner_change_nothing() -> None:
    d = Driver(two_by_two())
    d.deployed()
    d.report(d.ids()[0], "FAILED", failure(), tm="stranger")
    d.report("nobody", "RUNNING")
    d.report(d.ids()[0], "NONSENSE")
    assert d.core.state.name == "RUNNING"
    assert d.state(d.ids()[0]) == "DEPLOYING"


def test_a_task_that_is_cancelled_by_nobody_fails_the_job() -> None:
    d = Driver(two_by_two())
    d.running()
    d.report(d.ids()[0], "CANCELED")
    d.finish_cancelled()
    assert d.core.state.name == "FAILED"
    assert "nobody cancelled it" in job_archive(d.core)["failure"]["message"]


@pytest.mark.parametrize("error", [None, {"strange": 1}])
def test_a_failure_without_or_with_a_malformed_reason(error: dict[str, Any] | None) -> None:
    d = Driver(two_by_two())
    d.running()
    d.report(d.ids()[0], "FAILED", error)
    d.finish_cancelled()
    d.did(d.core.timer_fired("reason"))
    assert d.core.state.name == "FAILED"
    assert job_archive(d.core)["failure"]["kind"] == "external"


def test_heartbeats_make_up_for_lost_reports() -> None:
    d = Driver(two_by_two())
    d.deployed()
    beat = m.ExecutionReport(dict.fromkeys(d.ids(), "RUNNING"), {d.ids()[0]: {"numRecordsOut": 3}})
    d.did(d.core.taskmanager_heartbeat("tm", beat))
    assert {d.state(i) for i in d.ids()} == {"RUNNING"}
    assert d.core.graph.executions()[0].metrics == {"numRecordsOut": 3}


def test_a_task_that_its_taskmanager_forgot_is_lost_after_two_heartbeats() -> None:
    d = Driver(two_by_two())
    d.running()
    beat = m.ExecutionReport(dict.fromkeys(d.ids()[1:], "RUNNING"))
    d.did(d.core.taskmanager_heartbeat("tm", beat))
    assert d.core.state.name == "RUNNING", "its final report may be on the way"
    d.clock.advance(1)
    d.did(d.core.taskmanager_heartbeat("tm", beat))
    assert d.core.state.name == "RUNNING", "nor does it help to ask again at once"
    d.clock.advance(JobMasterSettings().heartbeat_interval - 1)
    d.did(d.core.taskmanager_heartbeat("tm", beat))
    assert d.core.state.name == "FAILING"
    d.finish_cancelled()
    assert "does not run V1 (1/2)#0 any more" in job_archive(d.core)["failure"]["message"]


def test_tasks_are_not_missed_before_their_submit_was_answered() -> None:
    d = Driver(two_by_two())
    d.start()
    d.offer(0, 1)
    for _ in range(3):
        d.did(d.core.taskmanager_heartbeat("tm", m.ExecutionReport({})))
    assert d.core.state.name == "RUNNING"


def test_tasks_that_never_end_are_given_up() -> None:
    d = Driver(two_by_two(), JobMasterSettings(cancellation_timeout=10))
    d.running()
    d.did(d.core.cancel("user"))
    assert do.SetTimer("cancel", 40.0) in d.all
    d.did(d.core.timer_fired("cancel"))
    assert d.core.state.name == "CANCELED"
    assert len(d.seen(do.ReleaseSlot)) == 2


def test_suspend_releases_at_once() -> None:
    d = Driver(two_by_two())
    d.running()
    d.did(d.core.suspend("stop"))
    assert d.core.state.name == "SUSPENDED"
    assert len(d.seen(do.ReleaseSlot)) == 2
    assert not d.seen(do.ReportEnd)
    assert d.core.suspend("again") == []


def test_lost_resourcemanager_is_connected_again_and_told_what_is_wanted() -> None:
    d = Driver(two_by_two())
    d.start()
    assert d.core.resourcemanager_lost("fenced") == [do.ConnectResourceManager()]
    assert d.core.resourcemanager_connected() == [do.DeclareSlots(2)]
    d.did(d.core.cancel("user"))
    assert d.core.resourcemanager_lost("fenced") == []


def test_collector() -> None:
    d = Driver(job(vertex(1, 2, splits=["a"]), vertex(2, 1, collects="f" * 32)))
    assert d.core.collector("f" * 32).vertex.id == vertex_id(2)
    with pytest.raises(ProtocolError, match="no collect operator"):
        d.core.collector("0" * 32)


def test_a_jobmaster_that_waits_for_slots_and_reaches_nobody_is_an_orphan() -> None:
    d = Driver(two_by_two(), JobMasterSettings(orphan_timeout=60.0))
    d.start()
    heard = d.clock.monotonic()
    d.clock.advance(59.0)
    assert not d.core.is_orphan(heard)
    d.clock.advance(1.0)
    assert d.core.is_orphan(heard)
    assert not d.core.is_orphan(heard + 1.0), "somebody was there"
    d.offer(0, 1)
    for submit in d.seen(do.SubmitSlot):
        d.did(d.core.tasks_submitted(tasks_of(submit)))
    assert not d.core.is_orphan(heard), "a job that runs needs nobody"
    for id_ in d.ids():
        d.report(id_, "FINISHED")
    assert not d.core.pool.slots()
    assert not d.core.is_orphan(heard), "its end is not known to anybody else"
