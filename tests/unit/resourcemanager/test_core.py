"""The ResourceManager's core: who gets which slots, and what happens when something does not come."""

from __future__ import annotations

import pytest

from firesteel.protocol.fleet import SlotOutcome
from firesteel.protocol.messages import RegisterTaskManager, SlotStatus
from firesteel_resourcemanager import instructions as i
from firesteel_resourcemanager.registry import FIRST_SETBACK, FormerJobMasterError, UnregisteredJobError
from firesteel_resourcemanager.slot_life import ENDED_GRACE, GOODBYE_GRACE, LEFTOVER_GRACE
from firesteel_resourcemanager.slot_table import SlotState
from tests.unit.resourcemanager.cores import add_job, add_taskmanager, deeds, free, grant, make, report, requests


def test_slots_come_all_at_once_and_are_launched_when_granted() -> None:
    core = make()
    add_taskmanager(core, 2)
    out = requests(add_job(core, "j", 2))
    assert [(r.slot_index, r.job_id, r.jobmaster_address, r.jobmaster_token) for r in out] == [
        (0, "j", "http://j", "token-j"),
        (1, "j", "http://j", "token-j"),
    ]
    assert grant(core, list(out)) == ["a0", "a1"]


def test_a_job_that_does_not_fit_now_gets_nothing_until_it_fits() -> None:
    core = make()
    add_taskmanager(core, 3)
    first = grant(core, add_job(core, "one", 2))
    assert add_job(core, "two", 2) == []
    core.jobmaster_gone("one", "done", 0.0)
    assert requests(free(core, first[0])) != []  # one was free all the time


def test_the_first_that_waits_holds_back_smaller_ones_but_not_for_ever() -> None:
    core = make()
    add_taskmanager(core, 2)
    grant(core, add_job(core, "runs for ever", 1))
    assert add_job(core, "big", 2, now=1.0) == []
    assert add_job(core, "small", 1, now=2.0) == []
    assert deeds(core.tick(150.9)) == []
    (request,) = requests(core.tick(151.0))  # half of slot.request.timeout: "small" has as much time left itself
    assert request.job_id == "small"


def test_a_job_that_is_too_big_for_the_cluster_is_told_once_and_holds_back_nobody() -> None:
    core = make()
    add_taskmanager(core, 2)
    (notice,) = add_job(core, "huge", 3)
    assert isinstance(notice, i.SendNoResources)
    assert (notice.needed, notice.total, notice.jobmaster_token) == (3, 2, "token-huge")
    for text in ("taskmanager.numberOfTaskSlots to 3", "parallelism"):
        assert text in notice.message
    assert core.tick(1.0) == []
    assert len(requests(add_job(core, "small", 2))) == 2


def test_a_job_that_waits_for_slots_that_were_there_is_not_too_big_when_taskmanagers_are_lost() -> None:
    core = make()
    add_taskmanager(core, 1, "x")
    add_taskmanager(core, 1, "y")
    assert len(requests(add_job(core, "running", 1))) == 1
    assert requests(add_job(core, "waiting", 2, now=1.0)) == []
    instructions = [*core.taskmanager_gone("x", "killed", 2.0), *core.tick(3.0), *core.tick(1000.0)]
    assert not [notice for notice in instructions if isinstance(notice, i.SendNoResources)]
    assert (
        "2 slots are needed, and the cluster has 1."
        in [n.reason for n in instructions if isinstance(n, i.SendWaiting)][-1]
    )


def test_a_job_that_was_too_big_is_served_when_the_taskmanager_grows() -> None:
    core = make()
    add_taskmanager(core, 1)
    add_job(core, "j", 2)
    assert len(requests(core.set_slots("tm", 2, 0.0))) == 2


def test_without_taskmanagers_a_job_waits_and_is_told_in_the_end() -> None:
    core = make()
    assert add_job(core, "j", 1) == []
    assert deeds(core.tick(299.0)) == []
    (notice,) = core.tick(300.0)
    assert isinstance(notice, i.SendNoResources)
    assert "No TaskManager" in notice.message
    assert len(requests(add_taskmanager(core, 1))) == 1


def test_time_as_a_standby_does_not_count() -> None:
    core = make(ready=False, now=0.0)
    core.start(1000.0)
    core.fleet_started(None, 1000.0)
    assert add_job(core, "j", 1, now=1000.0) == [], "TaskManagers are about to register"
    assert deeds(core.tick(1299.0)) == []
    (notice,) = core.tick(1300.0)
    assert isinstance(notice, i.SendNoResources)


def test_slots_are_spread_over_taskmanagers() -> None:
    core = make()
    add_taskmanager(core, 2, "x")
    add_taskmanager(core, 2, "y")
    assert {r.taskmanager_id for r in requests(add_job(core, "j", 2))} == {"x", "y"}


def test_nothing_is_asked_for_before_the_fleet_is_up() -> None:
    core = make(ready=False)
    add_taskmanager(core, 1)
    assert add_job(core, "j", 1) == []
    assert len(requests(core.fleet_started(None, 1.0))) == 1


def test_a_fleet_that_does_not_start_fails_waiting_jobs_and_is_tried_again_for_the_next() -> None:
    core = make(ready=False)
    add_taskmanager(core, 1)
    add_job(core, "j", 1)
    (notice,) = core.fleet_failed("no Java")
    assert isinstance(notice, i.SendFailSlot)
    assert (notice.taskmanager_id, notice.cause) == ("tm", "slots can't be started: no Java")
    core.jobmaster_gone("j", "failed", 0.0)
    assert add_job(core, "k", 1) == [i.StartFleet()]
    assert add_job(core, "l", 1) == []  # it is being started
    assert [r.job_id for r in requests(core.fleet_started(None, 0.0))] == ["k"]


def test_a_lost_fleet_fails_its_slots_and_is_started_anew_while_slots_not_launched_yet_wait() -> None:
    core = make()
    add_taskmanager(core, 2)
    (running,) = grant(core, add_job(core, "j", 1))
    pending = requests(add_job(core, "k", 1))[0].allocation_id
    out = core.fleet_lost("the Spark driver JVM ended", 0.0)
    assert [type(x) for x in out] == [i.SendFailSlot, i.SendFreeSlot, i.StartFleet]
    assert isinstance(out[0], i.SendFailSlot)
    assert (out[0].allocation_id, out[0].cause) == (running, "the Spark driver JVM ended")
    assert core.fleet_lost("again", 0.0) == []
    assert core.slot_granted(pending, 0.0) == []
    assert i.LaunchSlot("tm", pending) in core.fleet_started(None, 0.0)


def test_a_fleet_that_was_lost_and_does_not_come_back_fails_the_slots_that_wait_for_it() -> None:
    core = make()
    add_taskmanager(core, 1)
    (slot,) = grant(core, add_job(core, "j", 1))
    core.launch_postponed(slot)
    assert core.fleet_lost("gone", 0.0) == [i.StartFleet()]
    out = core.fleet_failed("no Java")
    assert [type(x) for x in out] == [i.SendFailSlot, i.SendFreeSlot]


def test_a_slot_given_back_while_it_is_being_requested_is_freed_after_the_answer() -> None:
    core = make()
    add_taskmanager(core, 1)
    add_job(core, "j", 1)
    assert core.declare_requirements("j", 0, 0.0) == []
    (out,) = core.slot_granted("a0", 0.0)
    assert isinstance(out, i.SendFreeSlot)
    assert free(core, "a0") == []
    assert core.table.total() == len(core.table.free(0.0)) == 1


def test_a_refused_slot_is_released_and_asked_for_again_only_after_a_pause() -> None:
    core = make()
    add_taskmanager(core, 1)
    add_job(core, "j", 1)
    (out,) = core.slot_refused("a0", "busy", 0.0)
    assert isinstance(out, i.SendFreeSlot)
    assert report(core, SlotStatus(0, "FREE"), now=0.0) == []
    assert len(requests(core.tick(1.0))) == 1


def test_a_taskmanager_that_always_refuses_does_not_keep_a_job_waiting_for_ever() -> None:
    core = make()
    add_taskmanager(core, 1)
    out = add_job(core, "j", 1)
    instructions: list[i.Instruction] = []
    for second in range(1, 10):
        for request in requests(out):
            instructions += core.slot_refused(request.allocation_id, "busy", second - 0.5)
            report(core, SlotStatus(0, "FREE"), now=second)
        out = core.tick(second + 0.6)
    assert [x.cause for x in instructions if isinstance(x, i.SendFailSlot)] == [
        "TaskManager tm refuses its slots: busy"
    ]


def test_an_ended_slot_fails_its_job_unless_the_taskmanager_says_meanwhile_that_it_is_free() -> None:
    core = make()
    add_taskmanager(core, 2)
    orderly, lost = grant(core, add_job(core, "j", 2))
    for allocation in (orderly, lost):
        assert core.slot_ended(allocation, SlotOutcome.LOST, "killed", 0.0) == []
    free(core, orderly)
    assert core.tick(ENDED_GRACE - 0.1) == []
    failed, freed = core.tick(ENDED_GRACE)
    assert isinstance(failed, i.SendFailSlot)
    assert failed.allocation_id == lost
    assert "killed" in failed.cause
    assert isinstance(freed, i.SendFreeSlot)


def test_a_slot_whose_process_could_not_register_fails_at_once_and_says_why() -> None:
    core = make()
    add_taskmanager(core, 2)
    (allocation,) = grant(core, add_job(core, "j", 1))
    failed, freed, *_ = core.slot_ended(allocation, SlotOutcome.UNREGISTERED, "too many open files", 0.0)
    assert isinstance(failed, i.SendFailSlot)
    assert failed.allocation_id == allocation
    assert "could not register" in failed.cause
    assert "too many open files" in failed.cause
    assert isinstance(freed, i.SendFreeSlot)


def test_a_process_that_registered_is_not_failed_by_a_copy_that_could_not() -> None:
    core = make()
    add_taskmanager(core, 2)
    (allocation,) = grant(core, add_job(core, "j", 1))
    report(core, SlotStatus(0, "ACTIVE", allocation, "j", 100))
    assert core.slot_ended(allocation, SlotOutcome.UNREGISTERED, "too many open files", 0.0) == []


def test_a_process_that_outlives_its_slot_is_cancelled() -> None:
    core = make()
    add_taskmanager(core, 2)
    leftover, other = grant(core, add_job(core, "j", 2))
    core.jobmaster_gone("j", "done", 0.0)
    free(core, leftover)
    free(core, other)
    core.slot_ended(other, SlotOutcome.RETURNED, "", 1.0)
    assert core.is_watching
    assert core.tick(LEFTOVER_GRACE - 0.1) == []
    assert core.tick(LEFTOVER_GRACE) == [i.CancelLaunch(leftover)]
    assert not core.is_watching


def test_after_a_goodbye_the_jobmaster_has_a_moment_to_free_its_slots_itself() -> None:
    core = make()
    add_taskmanager(core, 2)
    freed, allocated = grant(core, add_job(core, "j", 2))
    assert core.jobmaster_gone("j", "done", 0.0) == []
    free(core, freed)
    assert core.tick(GOODBYE_GRACE - 0.01) == []
    (out,) = core.tick(GOODBYE_GRACE)
    assert isinstance(out, i.SendFreeSlot)
    assert out.allocation_id == allocated
    assert core.tick(GOODBYE_GRACE + 0.1) == []


def test_a_launch_that_fails_is_the_jobs_failure() -> None:
    core = make()
    add_taskmanager(core, 1)
    (slot,) = grant(core, add_job(core, "j", 1))
    failed, freed = core.launch_failed(slot, "no", 0.0)
    assert isinstance(failed, i.SendFailSlot)
    assert isinstance(freed, i.SendFreeSlot)


def test_a_lost_taskmanager_takes_its_slots_along_and_may_come_back() -> None:
    core = make()
    add_taskmanager(core, 1)
    (slot,) = grant(core, add_job(core, "j", 1))
    assert core.taskmanager_gone("tm", "silent", 0.0)[0] == i.CancelLaunch(slot)
    assert core.table.total() == 0
    assert core.slot_available("tm", 0, slot, 0.0) == []
    assert requests(add_taskmanager(core, 1, "tm", SlotStatus(0, "ACTIVE", slot, "j", 7), now=2.0)) == []
    adopted = core.table.find(slot)
    assert adopted is not None
    assert adopted.state is SlotState.ALLOCATED  # the job wants one, and has this one


def test_a_job_that_lost_a_slot_gets_another_one_only_after_a_pause_or_when_it_asks() -> None:
    core = make()
    add_taskmanager(core, 2)
    (slot,) = grant(core, add_job(core, "j", 1))
    assert free(core, slot, 1.0) == []  # its process died: the job is about to fail
    assert core.tick(1.0 + FIRST_SETBACK - 0.1) == []
    (again,) = grant(core, core.tick(1.0 + FIRST_SETBACK))
    assert free(core, again, 3.0) == []
    assert requests(core.tick(3.0 + FIRST_SETBACK)) == []  # longer each time
    assert len(requests(core.declare_requirements("j", 1, 4.1))) == 1


def test_no_slot_is_launched_for_a_job_that_was_told_that_one_is_lost() -> None:
    core = make()
    add_taskmanager(core, 2)
    (slot,) = grant(core, add_job(core, "j", 1))
    out = core.launch_failed(slot, "no", 0.0)
    assert [type(x) for x in out] == [i.SendFailSlot, i.SendFreeSlot]
    assert core.tick(0.5) == []
    assert core.jobmaster_gone("j", "failed", 0.6) == []


def test_a_job_that_wants_fewer_slots_frees_some_itself_and_that_is_no_setback() -> None:
    core = make()
    add_taskmanager(core, 2)
    slots = grant(core, add_job(core, "j", 2))
    assert core.declare_requirements("j", 1, 0.0) == []
    assert free(core, slots[1]) == []
    assert len(requests(core.declare_requirements("j", 2, 0.0))) == 1


def test_slots_that_a_job_says_it_is_done_with_are_freed() -> None:
    core = make()
    add_taskmanager(core, 2)
    slots = grant(core, add_job(core, "j", 2))
    (out,) = core.declare_requirements("j", 1, 0.0, [slots[0], "long ago"])
    assert isinstance(out, i.SendFreeSlot)
    assert out.allocation_id == slots[0]
    assert free(core, slots[0]) == []


def test_a_job_that_wants_no_slots_gives_back_all() -> None:
    core = make()
    add_taskmanager(core, 2)
    slots = grant(core, add_job(core, "j", 2))
    out = core.declare_requirements("j", 0, 0.0)
    assert [x.allocation_id for x in out if isinstance(x, i.SendFreeSlot)] == slots


def test_slots_that_a_job_can_not_know_yet_are_given_back_for_it() -> None:
    core = make()
    add_taskmanager(core, 3)
    first, *others = requests(add_job(core, "j", 3))
    assert len(grant(core, [first])) == 1
    assert core.declare_requirements("j", 1, 0.0) == []
    for request in others:
        (out,) = core.slot_granted(request.allocation_id, 0.0)
        assert isinstance(out, i.SendFreeSlot)
    core.validate()


def test_a_taskmanager_started_anew_under_the_same_name_replaces_the_old_one() -> None:
    core = make()
    add_taskmanager(core, 1)
    (slot,) = grant(core, add_job(core, "j", 1))
    out = core.register_taskmanager(RegisterTaskManager("tm", "http://elsewhere", 1), 0.0, 0)
    assert out == [i.CancelLaunch(slot)]
    (request,) = requests(core.tick(FIRST_SETBACK))
    assert request.taskmanager_address == "http://elsewhere"


def test_a_taskmanager_started_anew_at_the_same_address_replaces_the_old_one() -> None:
    core = make(max_slots=1)
    add_taskmanager(core, 1)
    (slot,) = grant(core, add_job(core, "j", 1))
    out = core.register_taskmanager(RegisterTaskManager("tm after a crash", "http://tm", 1), 0.0, 0)
    assert out == [i.CancelLaunch(slot)]
    assert list(core.table.taskmanagers) == ["tm after a crash"]
    core.validate()


def test_reports_say_nothing_about_slots_that_changed_after_they_were_asked_for() -> None:
    core = make()
    add_taskmanager(core, 1)
    before = core.table.revision
    (slot,) = grant(core, add_job(core, "j", 1))
    assert core.slot_report("tm", [SlotStatus(0, "FREE")], before, 0.0, 0) == []
    assert core.table.find(slot) is not None
    report(core, SlotStatus(0, "FREE"), now=0.0)
    assert core.table.find(slot) is None


def test_a_lost_release_is_repeated_after_the_next_report() -> None:
    core = make()
    add_taskmanager(core, 1)
    (slot,) = grant(core, add_job(core, "j", 1))
    core.jobmaster_gone("j", "done", 0.0)
    (again,) = report(core, SlotStatus(0, "ACTIVE", slot, "j", 7), now=0.0)
    assert isinstance(again, i.SendFreeSlot)


def test_a_new_jobmaster_of_a_job_does_not_inherit_slots() -> None:
    core = make()
    add_taskmanager(core, 1)
    grant(core, add_job(core, "j", 1))
    (out,) = core.register_jobmaster("j", "j", "http://new", "new token", 0.0)
    assert isinstance(out, i.SendFreeSlot)
    assert core.register_jobmaster("j", "j", "http://new", "new token", 0.0) == []


def test_a_jobmaster_that_another_one_follows_has_no_say() -> None:
    core = make()
    add_taskmanager(core, 1)
    core.register_jobmaster("j", "j", "http://old", "old", 0.0, epoch=1)
    core.check_sender("j", "old")
    core.register_jobmaster("j", "j", "http://new", "new", 1.0, epoch=2)
    with pytest.raises(FormerJobMasterError, match="epoch 1"):
        core.register_jobmaster("j", "j", "http://old", "old", 2.0, epoch=1)
    with pytest.raises(FormerJobMasterError, match="another JobMaster leads"):
        core.check_sender("j", "old")
    for token in ("new", ""):
        core.check_sender("j", token)
    assert core.job("j").address == "http://new"
    assert [core.is_followed("j", token) for token in ("old", "new", "")] == [True, False, False]
    with pytest.raises(UnregisteredJobError):
        core.check_sender("nobody", "old")


@pytest.mark.parametrize("how", ["silent", "gone"])
def test_a_former_jobmaster_that_comes_back_when_its_follower_has_left_is_refused_all_the_same(how: str) -> None:
    core = make(now=-100.0)
    add_taskmanager(core, 1)
    core.register_jobmaster("j", "j", "http://new", "new", 0.0, epoch=2)
    grant(core, core.declare_requirements("j", 1, 0.0))
    (core.jobmaster_lost if how == "silent" else core.jobmaster_gone)("j", how, 1.0)
    with pytest.raises(FormerJobMasterError):
        core.register_jobmaster("j", "j", "http://old", "old", 2.0, epoch=1)
    assert core.is_followed("j", "old") is (how == "silent"), "its goodbye frees no slots that are kept for the other"
    assert core.register_jobmaster("j", "j", "http://new", "new", 3.0, epoch=2) == []


def test_requirements_of_an_unknown_job_are_refused() -> None:
    with pytest.raises(UnregisteredJobError):
        make().declare_requirements("nobody", 1, 0.0)


# -- jobs that take whatever there is


def test_a_reactive_job_gets_slots_as_they_come_up_to_its_most() -> None:
    core = make()
    out = core.register_jobmaster("j", "j", "http://j", "t", 0.0) + core.declare_requirements("j", 1, 0.0, most=4)
    assert requests(out) == []
    assert len(grant(core, add_taskmanager(core, 2))) == 2
    assert len(grant(core, add_taskmanager(core, 3, "b"))) == 2, "it has no use for a fifth"
    core.validate()
    assert requests(core.taskmanager_gone("tm", "gone", 1.0)) == [], "the job will say what it wants now"
    assert [request.taskmanager_id for request in requests(core.declare_requirements("j", 1, 1.1, most=4))] == ["b"]


def test_slots_that_other_jobs_wait_for_are_not_for_a_reactive_job() -> None:
    core = make()
    core.register_jobmaster("j", "j", "http://j", "t", 0.0)
    core.declare_requirements("j", 1, 0.0, most=9)
    grant(core, add_taskmanager(core, 1))
    assert requests(add_job(core, "k", 2)) == [], "there is none"
    assert requests(add_taskmanager(core, 1, "b")) == [], "k may still get two, and waits"
    assert [request.job_id for request in requests(core.tick(200.0))] == ["j"], "it has waited for long enough"
    core = make()
    core.register_jobmaster("j", "j", "http://j", "t", 0.0)
    core.declare_requirements("j", 1, 0.0, most=9)
    grant(core, add_taskmanager(core, 3))
    assert requests(add_job(core, "k", 2)) == [], "j has all"
    out = add_taskmanager(core, 2, "b")
    assert [request.job_id for request in requests(out)] == ["k", "k"]


def test_slots_of_a_reactive_job_beyond_what_it_needs_stay_its_own() -> None:
    core = make()
    add_taskmanager(core, 3)
    core.register_jobmaster("j", "j", "http://j", "t", 0.0)
    allocated = grant(core, core.declare_requirements("j", 1, 0.0, most=9))
    assert len(allocated) == 3
    assert core.declare_requirements("j", 1, 1.0, most=9) == []
    out = add_taskmanager(core, 1, "b", now=1.0)
    assert core.declare_requirements("j", 1, 1.0, most=9) == []
    assert len(grant(core, out, 1.0)) == 1, "one that it does not know of yet, too"
    (freed,) = core.declare_requirements("j", 1, 2.0, [allocated[0]], 9)
    assert isinstance(freed, i.SendFreeSlot)
    assert freed.allocation_id == allocated[0]
