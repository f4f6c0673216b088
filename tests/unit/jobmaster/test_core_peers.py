"""What a JobMaster makes of peers that come, go, and know something else than it does."""

from __future__ import annotations

from firesteel.protocol import messages as m
from firesteel_jobmaster import instructions as do
from firesteel_jobmaster.settings import JobMasterSettings
from tests.archives import job_archive
from tests.unit.jobmaster.jobs import Driver, failure, job, tasks_of, two_by_two, vertex

FIFTY = JobMasterSettings(slot_idle_timeout=50)


def one_after_the_other() -> Driver:
    """Two slots at one TaskManager for the sources, one at another for the sink."""
    d = Driver(job(vertex(1, 2, splits=["a"]), vertex(2, 1, group="sinks")), FIFTY)
    d.start()
    d.offer(0, 1, tm="left")
    d.offer(0, tm="right")
    for submit in d.seen(do.SubmitSlot):
        d.did(d.core.tasks_submitted(tasks_of(submit)))
    for id_ in d.ids():
        d.report(id_, "RUNNING", tm="left")
        d.report(id_, "RUNNING", tm="right")
    d.all.clear()
    return d


def test_slots_whose_tasks_have_finished_go_back_after_a_time() -> None:
    d = one_after_the_other()
    d.report(d.ids()[0], "FINISHED", tm="left")
    assert d.all == [do.SetTimer("idle", 50)]
    d.clock.advance(30)
    d.report(d.ids()[1], "FINISHED", tm="left")
    d.clock.advance(20)
    d.did(d.core.timer_fired("idle"))
    assert d.seen(do.DeclareSlots) == [do.DeclareSlots(2, ("left-0",))]
    assert [r.allocation_id for r in d.seen(do.ReleaseSlot)] == ["left-0"]
    assert "slot.idle.timeout" in d.seen(do.ReleaseSlot)[0].cause
    assert d.seen(do.SetTimer)[-1] == do.SetTimer("idle", 30)
    assert d.core.allocations_at("left") == ("left-1",)
    assert not d.seen(do.ForgetTaskManager)
    d.clock.advance(30)
    d.did(d.core.timer_fired("idle"))
    assert d.seen(do.DeclareSlots)[-1] == do.DeclareSlots(1, ("left-0", "left-1"))
    assert d.seen(do.ForgetTaskManager) == [do.ForgetTaskManager("left")]
    assert d.core.allocations_at("left") == ()
    d.report(d.ids()[2], "FINISHED", tm="right")
    assert d.core.state.name == "FINISHED"
    assert [r.allocation_id for r in d.seen(do.ReleaseSlot)] == ["left-0", "left-1", "right-0"]
    assert do.ClearTimer("idle") in d.all


def test_a_slot_is_not_idle_while_a_task_in_it_runs_or_waits_for_its_commit() -> None:
    d = Driver(job(vertex(1, 2, splits=["a"]), vertex(2, 2, commits=True)), FIFTY)
    d.running()
    d.all.clear()
    d.report(d.ids()[0], "FINISHED")
    d.did(d.core.end_of_data(m.ExecutionRef(d.ids()[2])))
    assert not d.seen(do.DeclareSlots)
    assert not d.seen(do.SetTimer)


def test_a_resourcemanager_that_comes_back_is_told_what_is_used_now() -> None:
    d = one_after_the_other()
    d.did(d.core.resourcemanager_lost("silent"))
    d.report(d.ids()[0], "FINISHED", tm="left")
    d.clock.advance(50)
    d.did(d.core.timer_fired("idle"))
    assert not d.seen(do.DeclareSlots), "nobody is there to be told"
    d.did(d.core.resourcemanager_connected())
    assert d.seen(do.DeclareSlots) == [do.DeclareSlots(2, ("left-0",))]


def test_loss_of_an_idle_slot_or_its_taskmanager_is_harmless() -> None:
    d = one_after_the_other()
    for id_ in d.ids()[:2]:
        d.report(id_, "FINISHED", tm="left")
    d.did(d.core.fail_slot(m.FailSlot("left", "left-0", "gone")))
    d.did(d.core.taskmanager_lost("left", "silent"))
    assert d.seen(do.DeclareSlots)[-1].count == 1, "no other slot is wanted in their stead"
    d.clock.advance(60)
    d.did(d.core.timer_fired("idle"))
    assert d.core.state.name == "RUNNING"
    d.report(d.ids()[2], "FINISHED", tm="right")
    assert d.core.state.name == "FINISHED"


def test_idle_slots_of_a_job_that_fails_go_back_with_the_others() -> None:
    d = one_after_the_other()
    d.report(d.ids()[0], "FINISHED", tm="left")
    d.report(d.ids()[1], "FAILED", failure(), tm="left")
    d.clock.advance(60)
    d.did(d.core.timer_fired("idle"))
    d.report(d.ids()[2], "CANCELED", tm="right")
    assert d.core.state.name == "FAILED"
    assert sorted(r.allocation_id for r in d.seen(do.ReleaseSlot)) == ["left-0", "left-1", "right-0"]


def test_a_broken_connection_makes_it_ask_after_all_taskmanagers_and_names_the_one() -> None:
    d = one_after_the_other()
    d.report(d.ids()[0], "FAILED", failure("external", "slot right-0 (10.0.0.2:7): connection closed"), tm="left")
    assert d.core.state.name == "FAILING"
    assert do.CheckTaskManagers() in d.all
    reason = job_archive(d.core)["failure"]["message"]
    assert reason.startswith("slot right-0 (10.0.0.2:7): connection closed")
    assert "right-0 is slot 0 of TaskManager right (process 100)" in reason
    d.did(d.core.taskmanager_lost("right", "TaskManager right could not be reached"))
    assert "TaskManager right could not be reached" in job_archive(d.core)["failure"]["message"]


def test_a_users_error_is_no_hint_at_a_lost_taskmanager() -> None:
    d = one_after_the_other()
    d.report(d.ids()[0], "FAILED", failure("user", "about right-0"), tm="left")
    assert not d.seen(do.CheckTaskManagers)
    assert job_archive(d.core)["failure"]["message"] == "about right-0"


def test_a_slot_whose_tasks_may_run_though_nobody_said_so_is_given_up() -> None:
    d = Driver(two_by_two())
    d.start()
    d.offer(0, 1)
    d.did(d.core.submit_failed("tm-0", tasks_of(d.seen(do.SubmitSlot)[0]), "no answer within 60 s"))
    assert [r.allocation_id for r in d.seen(do.ReleaseSlot)] == ["tm-0"]
    assert d.core.allocations_at("tm") == ("tm-1",)


def test_a_finished_task_is_not_cancelled_by_an_old_heartbeat() -> None:
    d = Driver(two_by_two())
    d.running()
    d.report(d.ids()[0], "FINISHED")
    d.all.clear()
    d.did(d.core.taskmanager_heartbeat("tm", m.ExecutionReport(dict.fromkeys(d.ids(), "RUNNING"))))
    assert d.all == []


def test_another_dispatcher_hears_the_state_or_the_end() -> None:
    d = Driver(two_by_two())
    d.running()
    d.all.clear()
    (report,) = d.did(d.core.adopted())
    assert isinstance(report, do.ReportJobState)
    assert report.state == "RUNNING"
    assert report.timestamps["RUNNING"] > 0
    for id_ in d.ids():
        d.report(id_, "FINISHED")
    assert d.core.adopted() == [do.ReportEnd()]


def test_a_suspended_job_has_no_end_to_tell() -> None:
    d = Driver(two_by_two())
    d.running()
    d.did(d.core.suspend("the JobMaster stops"))
    (report,) = d.core.adopted()
    assert isinstance(report, do.ReportJobState)
    assert report.state == "SUSPENDED"


def test_a_jobmaster_that_is_followed_by_another_one_stops() -> None:
    d = one_after_the_other()
    d.did(d.core.followed("epoch 1 is over"))
    assert d.core.state.name == "SUSPENDED"
    assert [r.allocation_id for r in d.seen(do.ReleaseSlot)] == ["left-0", "left-1", "right-0"]
    assert do.DisconnectResourceManager() in d.all
    assert not d.seen(do.ReportEnd), "the job goes on elsewhere"
    assert d.core.followed("epoch 1 is over") == []
