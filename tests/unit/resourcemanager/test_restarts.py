"""What outlives what: slots a new ResourceManager, a silent JobMaster, a lost driver."""

from __future__ import annotations

import pytest

from firesteel.protocol.fleet import SlotOutcome
from firesteel.protocol.messages import SlotStatus
from firesteel_resourcemanager import instructions as i
from firesteel_resourcemanager.core import ResourceManagerCore
from firesteel_resourcemanager.slot_life import LEARNT_PATIENCE, MOST_LAUNCHES
from firesteel_resourcemanager.slot_table import SlotState
from tests.unit.resourcemanager.cores import add_job, add_taskmanager, deeds, free, grant, make, report, requests


def active(index: int, allocation: str, job: str = "j", pid: int = 7, epoch: int = 0) -> SlotStatus:
    return SlotStatus(index, "ACTIVE", allocation, job, pid, epoch)


def state(core: ResourceManagerCore, allocation: str) -> SlotState | None:
    slot = core.table.find(allocation)
    return None if slot is None else slot.state


# -- the ResourceManager is another one


def test_a_new_resourcemanager_learns_slots_from_registrations_and_their_jobs_go_on_with_them() -> None:
    core = make()
    assert add_taskmanager(core, 2, "tm", active(0, "x"), active(1, "y")) == []
    assert add_job(core, "j", 2, now=1.0) == []
    assert (state(core, "x"), state(core, "y")) == (SlotState.ALLOCATED, SlotState.ALLOCATED)
    assert core.tick(1000.0) == []


def test_slots_of_a_job_that_does_not_register_again_are_kept_for_the_job_timeout() -> None:
    core = make(job_timeout=100.0)
    add_taskmanager(core, 2, "tm", active(0, "x"), now=10.0)
    assert add_job(core, "other", 2, now=11.0) == []
    assert deeds(core.tick(109.9)) == []
    (out,) = core.tick(110.0)
    assert isinstance(out, i.SendFreeSlot)
    assert out.allocation_id == "x"
    assert len(requests(free(core, "x", 111.0))) == 2


def test_a_slot_whose_process_had_not_come_is_freed_if_it_does_not_come_soon() -> None:
    """Nobody knows whether it was launched."""
    core = make()
    status = SlotStatus(0, "ALLOCATED", "x", "j", None)
    assert add_taskmanager(core, 1, "tm", status) == []
    assert core.tick(LEARNT_PATIENCE - 1.0) == []
    assert core.tick(LEARNT_PATIENCE) == [i.AskForReport("tm")]
    (out,) = report(core, status, now=LEARNT_PATIENCE)
    assert isinstance(out, i.SendFreeSlot)


def test_a_slot_whose_process_comes_soon_after_the_restart_is_kept() -> None:
    core = make()
    add_taskmanager(core, 1, "tm", SlotStatus(0, "ALLOCATED", "x", "j", None))
    assert add_job(core, "j", 1) == []
    assert report(core, active(0, "x"), now=5.0) == []
    assert core.tick(LEARNT_PATIENCE) == []
    assert core.tick(1000.0) == []


def test_a_slot_that_is_being_released_is_waited_for() -> None:
    core = make()
    assert add_taskmanager(core, 1, "tm", SlotStatus(0, "RELEASING", "x", "j", 7)) == []
    assert add_job(core, "j", 1) == []
    assert len(requests(free(core, "x"))) == 1


def test_slots_of_a_job_that_ended_meanwhile_are_freed() -> None:
    core = make()
    core.jobmaster_gone("j", "it ended", 0.0)
    (out,) = add_taskmanager(core, 1, "tm", active(0, "x"))
    assert isinstance(out, i.SendFreeSlot)


def test_the_end_of_a_job_that_never_registered_here_frees_what_was_kept_for_it() -> None:
    core = make()
    add_taskmanager(core, 1, "tm", active(0, "x"))
    assert core.jobmaster_gone("j", "its JobMaster died", 0.0) == []
    (out,) = core.tick(1.0)
    assert isinstance(out, i.SendFreeSlot)


def test_slots_in_use_come_before_slots_that_were_given_in_their_stead() -> None:
    """The job registers before the TaskManager on which it runs."""
    core = make()
    add_taskmanager(core, 2, "early")
    instead = requests(add_job(core, "j", 2))
    assert add_taskmanager(core, 2, "late", active(0, "x"), active(1, "y")) == []
    for request in instead:
        (out,) = core.slot_granted(request.allocation_id, 0.0)
        assert isinstance(out, i.SendFreeSlot)
    assert (state(core, "x"), state(core, "y")) == (SlotState.ALLOCATED, SlotState.ALLOCATED)


def test_slots_that_the_job_may_know_are_left_to_the_job() -> None:
    core = make()
    add_taskmanager(core, 1, "early")
    grant(core, add_job(core, "j", 1))
    assert add_taskmanager(core, 1, "late", active(0, "x")) == []


def test_slots_in_use_are_never_freed_because_the_job_has_enough_others() -> None:
    core = make()
    add_taskmanager(core, 1, "tm", active(0, "x"))
    add_job(core, "j", 1)
    assert add_taskmanager(core, 1, "other", active(0, "y", pid=8)) == []
    assert (state(core, "x"), state(core, "y")) == (SlotState.ALLOCATED, SlotState.ALLOCATED)


def test_a_job_that_has_registered_but_not_declared_keeps_what_it_has() -> None:
    core = make()
    core.register_jobmaster("j", "j", "http://j", "t", 0.0)
    assert add_taskmanager(core, 1, "tm", SlotStatus(0, "ALLOCATED", "x", "j", 7)) == []
    assert core.declare_requirements("j", 1, 0.0) == []


def test_the_report_in_a_repeated_registration_is_older_than_what_is_known() -> None:
    core = make()
    add_taskmanager(core, 1)
    (slot,) = grant(core, add_job(core, "j", 1))
    assert add_taskmanager(core, 1, "tm", SlotStatus(0, "FREE")) == []
    assert state(core, slot) is SlotState.ALLOCATED


# -- the ResourceManager is another one, and so is the JobMaster


def test_a_successor_gets_slots_when_those_of_its_predecessor_are_free_whoever_registers_first() -> None:
    """Its predecessor's tasks may still run on a TaskManager that the new ResourceManager does not know yet."""
    core = make()
    add_taskmanager(core, 2, "early")
    assert add_job(core, "j", 2, now=1.0, epoch=2) == []
    (out,) = add_taskmanager(core, 2, "late", active(0, "x", epoch=1), now=20.0)
    assert (isinstance(out, i.SendFreeSlot) and out.allocation_id, state(core, "x")) == ("x", SlotState.RELEASING)
    assert core.tick(core.registry.complete_at + 100.0) == [], "it has not been freed"
    slot_requests = requests(free(core, "x", 200.0))
    assert [request.jobmaster_epoch for request in slot_requests] == [2, 2]


def test_a_successor_that_registers_last_frees_what_its_predecessor_had() -> None:
    core = make()
    add_taskmanager(core, 3, "tm", active(0, "x", epoch=1), SlotStatus(1, "RELEASING", "y", "j", 8, 1))
    (out,) = add_job(core, "j", 2, now=1.0, epoch=2)
    assert isinstance(out, i.SendFreeSlot)
    assert out.allocation_id == "x"
    assert free(core, "x", core.registry.complete_at) == [], "the other one is not free yet"
    assert len(requests(free(core, "y", core.registry.complete_at))) == 2


def test_a_predecessor_s_slot_that_is_being_released_when_it_becomes_known_is_waited_for() -> None:
    core = make()
    add_taskmanager(core, 2, "early")
    add_job(core, "j", 2, now=1.0, epoch=2)
    assert add_taskmanager(core, 1, "late", SlotStatus(0, "RELEASING", "x", "j", 7, 1), now=2.0) == []
    assert core.tick(core.registry.complete_at) == []
    assert len(requests(free(core, "x", core.registry.complete_at))) == 2


def test_a_successor_waits_until_all_taskmanagers_have_had_time_to_register() -> None:
    core = make(now=100.0)
    add_taskmanager(core, 2, now=100.0)
    assert len(requests(add_job(core, "first", 1, now=101.0, epoch=1))) == 1, "it has no predecessor"
    assert add_job(core, "j", 1, now=101.0, epoch=2) == []
    assert core.tick(126.0) == []
    assert len(requests(core.tick(127.0))) == 1


def test_a_successor_waits_no_longer_than_for_the_taskmanagers_of_its_predecessor() -> None:
    core = make()
    add_taskmanager(core, 4, "other")
    assert add_job(core, "j", 1, now=1.0, epoch=2, former=["late", "free"]) == []
    assert add_taskmanager(core, 1, "free", now=2.0) == []
    (out,) = add_taskmanager(core, 1, "late", active(0, "x", epoch=1), now=3.0)
    assert isinstance(out, i.SendFreeSlot), "it is there, and its slot is not free"
    assert len(requests(free(core, "x", 3.1))) == 1


def test_a_successor_of_which_no_task_ran_waits_for_nobody() -> None:
    core = make()
    add_taskmanager(core, 1)
    assert len(requests(add_job(core, "j", 1, now=1.0, epoch=2, former=[]))) == 1


def test_a_later_jobmaster_goes_on_with_slots_of_its_own() -> None:
    core = make()
    add_job(core, "j", 2, now=1.0, epoch=2)
    assert add_taskmanager(core, 2, "tm", active(0, "x", epoch=2), active(1, "y", epoch=2), now=2.0) == []
    assert core.tick(1000.0) == []
    assert state(core, "x") is SlotState.ALLOCATED


# -- the JobMaster is silent


def test_a_silent_jobmaster_keeps_its_slots_and_gets_no_more_until_it_comes_back() -> None:
    core = make(job_timeout=100.0)
    add_taskmanager(core, 3)
    slots = grant(core, add_job(core, "j", 2))
    assert core.jobmaster_lost("j", "silent", 10.0) == []
    core.validate()
    assert core.tick(109.0) == []
    assert add_job(core, "j", 2, now=109.5) == []
    assert [state(core, s) for s in slots] == [SlotState.ALLOCATED] * 2
    assert core.tick(1000.0) == []


def test_slots_of_a_jobmaster_that_stays_silent_go_back() -> None:
    core = make(job_timeout=100.0)
    add_taskmanager(core, 1)
    grant(core, add_job(core, "j", 1))
    core.jobmaster_lost("j", "silent", 10.0)
    (out,) = core.tick(110.0)
    assert isinstance(out, i.SendFreeSlot)
    assert "resourcemanager.job.timeout" in out.cause


def test_slots_requested_for_a_jobmaster_that_falls_silent_are_given_back() -> None:
    core = make()
    add_taskmanager(core, 1)
    (request,) = requests(add_job(core, "j", 1))
    core.jobmaster_lost("j", "silent", 0.0)
    (out,) = core.slot_granted(request.allocation_id, 0.0)
    assert isinstance(out, i.SendFreeSlot)


def test_another_jobmaster_of_a_silent_job_does_not_inherit_its_slots() -> None:
    core = make()
    add_taskmanager(core, 1)
    grant(core, add_job(core, "j", 1))
    core.jobmaster_lost("j", "silent", 0.0)
    (out,) = core.register_jobmaster("j", "j", "http://new", "new token", 1.0)
    assert isinstance(out, i.SendFreeSlot)
    core.validate()


@pytest.mark.parametrize("how", ["silent", "gone"])
def test_another_jobmaster_gets_slots_when_those_of_the_one_before_are_free(how: str) -> None:
    """Tasks may still write there, and what they write is taken over by the new ones."""
    core = make()
    add_taskmanager(core, 2, "one")
    add_taskmanager(core, 2, "two")
    first, second = grant(core, add_job(core, "j", 2))
    (core.jobmaster_lost if how == "silent" else core.jobmaster_gone)("j", "killed", 0.0)
    core.register_jobmaster("j", "j", "http://new", "new token", 1.0)
    assert requests(core.declare_requirements("j", 2, 1.0)) == [], "two slots are free, but it has to wait"
    assert len(requests(add_job(core, "other", 1, now=1.0))) == 1, "others do not"
    assert requests(free(core, first, 2.0)) == []
    assert {request.job_id for request in requests(free(core, second, 3.0))} == {"j"}


@pytest.mark.parametrize("declares_at", [2.0, 3.5, 4.5])
def test_slots_that_are_freed_for_a_successor_are_not_for_jobs_that_wait(declares_at: float) -> None:
    core = make()
    add_taskmanager(core, 4)
    first, second = grant(core, add_job(core, "j", 2))
    assert requests(add_job(core, "waits", 3, now=1.0)) == []
    core.register_jobmaster("j", "j", "http://new", "new token", 2.0)
    steps = {
        3.0: lambda: free(core, first, 3.0),
        4.0: lambda: free(core, second, 4.0),
        declares_at: lambda: core.declare_requirements("j", 2, declares_at),
    }
    slot_requests = [requests(steps[now]()) for now in sorted(steps)]
    assert [[request.job_id for request in some] for some in slot_requests] == [[], [], ["j", "j"]]
    assert requests(core.tick(5.0)) == []


def test_slots_of_a_taskmanager_that_is_lost_are_not_waited_for() -> None:
    core = make()
    add_taskmanager(core, 1, "one")
    grant(core, add_job(core, "j", 1))
    add_taskmanager(core, 1, "two")
    core.register_jobmaster("j", "j", "http://new", "new token", 1.0)
    assert requests(core.declare_requirements("j", 1, 1.0)) == []
    assert len(requests(core.taskmanager_gone("one", "killed", 2.0))) == 1


# -- the driver is lost


def outliving() -> tuple[ResourceManagerCore, list[str]]:
    """Two running slots on a fleet with executors."""
    core = make(executors=frozenset({"5"}), outlive=True)
    add_taskmanager(core, 2, executor="5")
    return core, grant(core, add_job(core, "j", 2))


def test_slots_outlive_their_driver() -> None:
    core, slots = outliving()
    report(core, *(active(index, s) for index, s in enumerate(slots)))
    assert core.fleet_lost("killed", 0.0) == [i.StartFleet()]
    core.validate()
    (order,) = core.fleet_started(frozenset(), 1.0)
    assert isinstance(order, i.StartExecutor)
    assert core.tick(1000.0) == []
    assert [state(core, s) for s in slots] == [SlotState.ALLOCATED] * 2


def test_a_slot_whose_process_had_not_come_is_launched_again_on_the_next_driver_unless_it_did_come() -> None:
    core, slots = outliving()
    core.fleet_lost("killed", 0.0)
    core.fleet_started(frozenset(), 1.0)
    assert core.executor_named("tm", 1, "6")
    core.executor_started("tm", 1, 1.0)
    assert core.tick(1.5) == []
    assert core.executors_attached(frozenset({"6"}), 2.0) == []
    assert core.tick(2.0) == [i.AskForReport("tm"), i.AskForReport("tm")]
    came, missing = SlotStatus(0, "ALLOCATED", slots[0], "j", 7), SlotStatus(1, "ALLOCATED", slots[1], "j", None)
    assert report(core, came, missing, now=2.1) == [i.LaunchSlot("tm", slots[1], "6")]
    assert core.tick(3.0) == []


def test_a_report_from_before_the_loss_launches_nothing() -> None:
    core, slots = outliving()
    before = core.table.revision
    core.fleet_lost("killed", 0.0)
    statuses = [SlotStatus(index, "ALLOCATED", s, "j", None) for index, s in enumerate(slots)]
    assert core.slot_report("tm", statuses, before, 0.5, 0) == []
    assert report(core, *statuses, now=0.6) == []  # and nothing can be launched yet


def test_a_launch_that_met_a_dead_driver_is_repeated_on_the_next_one() -> None:
    core, slots = outliving()
    core.launch_postponed(slots[0])
    core.fleet_lost("killed", 0.0)
    (order,) = core.fleet_started(frozenset({"5"}), 1.0)  # what another driver calls so is none of ours
    assert isinstance(order, i.StartExecutor)
    assert core.executor_named("tm", order.attempt, "6")
    assert core.executors_attached(frozenset({"6"}), 2.0) == [i.LaunchSlot("tm", slots[0], "6")]


# -- a slot comes to the wrong place


def test_a_misplaced_slot_is_launched_again_a_few_times() -> None:
    core = make(executors=frozenset({"5"}), outlive=True)
    add_taskmanager(core, 1, executor="5")
    (slot,) = grant(core, add_job(core, "j", 1))
    now = 0.0
    for _ in range(MOST_LAUNCHES - 1):
        assert core.slot_ended(slot, SlotOutcome.MISPLACED, "on 4", now) == []
        now += 10.0
        assert core.tick(now) == [i.AskForReport("tm")]
        assert report(core, SlotStatus(0, "ALLOCATED", slot, "j", None), now=now) == [i.LaunchSlot("tm", slot, "5")]
    core.slot_ended(slot, SlotOutcome.MISPLACED, "on 4", now)
    core.tick(now + 10.0)
    failed, freed = deeds(report(core, SlotStatus(0, "ALLOCATED", slot, "j", None), now=now + 10.0))
    assert isinstance(failed, i.SendFailSlot)
    assert f"{MOST_LAUNCHES} launches" in failed.cause
    assert isinstance(freed, i.SendFreeSlot)


def test_a_second_launch_that_is_refused_is_no_failure_before_the_taskmanager_was_asked() -> None:
    core = make()
    add_taskmanager(core, 1)
    (slot,) = grant(core, add_job(core, "j", 1))
    core.slot_ended(slot, SlotOutcome.MISPLACED, "on 4", 0.0)
    core.tick(1.0)
    assert report(core, SlotStatus(0, "ALLOCATED", slot, "j", None), now=1.0) == [i.LaunchSlot("tm", slot, "")]
    assert core.launch_failed(slot, "it was started before", 1.0) == []
    core.tick(10.0)
    assert report(core, SlotStatus(0, "ALLOCATED", slot, "j", 7), now=10.0) == []


@pytest.mark.parametrize("name", ["ALLOCATED", "ACTIVE"])
def test_a_misplaced_copy_of_a_process_that_lives_changes_nothing(name: str) -> None:
    core = make()
    add_taskmanager(core, 1)
    (slot,) = grant(core, add_job(core, "j", 1))
    core.slot_ended(slot, SlotOutcome.MISPLACED, "registered before", 0.0)
    core.tick(10.0)
    assert report(core, SlotStatus(0, name, slot, "j", 7), now=10.0) == []
    assert core.tick(100.0) == []
    assert state(core, slot) is SlotState.ALLOCATED
    assert not core.is_watching
