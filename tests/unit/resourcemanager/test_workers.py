"""TaskManagers that an active driver starts and stops."""

from __future__ import annotations

from typing import Any

import pytest

from firesteel.protocol.messages import RegisterTaskManager, SlotStatus
from firesteel_resourcemanager import instructions as i
from firesteel_resourcemanager.core import ResourceManagerCore
from firesteel_resourcemanager.registry import TaskManagerRefusedError
from firesteel_resourcemanager.settings import WorkerSettings
from firesteel_resourcemanager.workers import STOP_AGAIN
from tests.unit.resourcemanager.cores import add_job, add_taskmanager, deeds, free, grant, make, requests

TWO_SLOTS = WorkerSettings(slots=2, idle_timeout=30.0, registration_timeout=300.0)


def active(workers: WorkerSettings = TWO_SLOTS, **settings: Any) -> ResourceManagerCore:
    core = make(active=True, workers=workers, **settings)
    assert core.workers_recovered([], 0.0) == starts_of(workers)
    return core


def starts_of(workers: WorkerSettings) -> list[i.Instruction]:
    count = -(-workers.min_slots // workers.slots)
    return [i.StartWorker(f"w{n}", workers.slots) for n in range(count)]


def started(out: list[i.Instruction]) -> list[str]:
    return [x.worker_id for x in out if isinstance(x, i.StartWorker)]


def stopped(out: list[i.Instruction]) -> list[str]:
    return [x.worker_id for x in out if isinstance(x, i.StopWorker)]


def test_as_many_workers_are_started_as_jobs_need() -> None:
    core = active()
    assert started(add_job(core, "j", 3)) == ["w0", "w1"]
    assert started(add_job(core, "k", 2)) == ["w2"]  # one slot is to spare
    assert core.tick(10.0) == []
    core.validate()
    assert [r.job_id for r in requests(add_taskmanager(core, 2, "w0"))] == ["k", "k"]  # it need not wait for the others
    assert add_taskmanager(core, 2, "w1") == []
    assert [r.job_id for r in requests(add_taskmanager(core, 2, "w2"))] == ["j", "j", "j"]


def test_nothing_is_started_before_workers_of_a_former_resourcemanager_are_known() -> None:
    core = make(active=True, workers=TWO_SLOTS)
    assert add_job(core, "j", 4) == []
    assert started(core.workers_recovered(["old"], 1.0)) == ["w0"]


def test_a_recovered_worker_that_had_registered_before_is_one_all_the_same() -> None:
    core = make(active=True, workers=TWO_SLOTS)
    add_taskmanager(core, 2, "old")
    assert core.workers_recovered(["old"], 0.0) == []
    core.validate()
    core.tick(1.0)
    assert stopped(core.tick(31.0)) == ["old"]


def test_a_passive_driver_starts_nothing() -> None:
    core = make(start_up_time=0.0, empty_start_up_time=0.0)
    (out,) = add_job(core, "j", 1)
    assert isinstance(out, i.SendNoResources)


def test_a_job_that_needs_more_than_the_most_slots_is_told_at_once_and_starts_nothing() -> None:
    core = active(max_slots=5)
    (out,) = add_job(core, "j", 5)
    assert isinstance(out, i.SendNoResources)
    assert (out.needed, out.total) == (5, 4)
    assert "slotmanager.number-of-slots.max is 5" in out.message
    assert started(add_job(core, "k", 4)) == ["w0", "w1"]
    assert started(add_job(core, "l", 4)) == []


def test_a_least_number_of_slots_is_there_without_jobs() -> None:
    core = active(WorkerSettings(slots=2, min_slots=3, idle_timeout=5.0))
    for name in ("w0", "w1"):
        add_taskmanager(core, 2, name)
    assert core.tick(1.0) == []
    assert core.tick(1000.0) == []


def test_an_idle_worker_is_stopped_after_a_while_and_one_in_use_is_not() -> None:
    core = active()
    add_job(core, "j", 4)
    add_taskmanager(core, 2, "w0")
    slots = grant(core, add_taskmanager(core, 2, "w1"))
    assert len(slots) == 4
    assert core.tick(1000.0) == []
    core.jobmaster_gone("j", "ended", 1000.0)
    for slot in slots[:3]:
        free(core, slot, 1000.0)
    busy = core.table.find(slots[3])
    assert busy is not None
    assert stopped(core.tick(1001.0)) == []
    assert stopped(core.tick(1030.9)) == []
    (idle,) = stopped(core.tick(1031.0))
    assert idle != busy.taskmanager_id
    assert list(core.table.taskmanagers) == [busy.taskmanager_id]
    core.validate()


def test_a_worker_that_is_stopped_can_not_come_back_and_is_stopped_again_until_it_ends() -> None:
    core = active()
    add_job(core, "j", 1)
    add_taskmanager(core, 2, "w0")
    assert stopped(core.taskmanager_gone("w0", "silent", 1.0)) == ["w0"]
    with pytest.raises(TaskManagerRefusedError, match="being stopped"):
        add_taskmanager(core, 2, "w0")
    assert stopped(core.tick(1.0 + STOP_AGAIN)) == ["w0"]
    core.worker_ended("w0", "killed", 20.0)
    assert "w0" not in core.workers
    core.validate()


def test_the_end_of_a_workers_process_is_the_end_of_its_taskmanager() -> None:
    core = active()
    add_job(core, "j", 2)
    grant(core, add_taskmanager(core, 2, "w0"))
    out = core.worker_ended("w0", "killed by signal 9", 1.0)
    assert core.table.total() == 0
    assert started(out) == ["w1"]
    core.validate()


def ends_told(out: list[i.Instruction]) -> list[tuple[str, str, str]]:
    return [(x.jobmaster_token, x.taskmanager_id, x.cause) for x in out if isinstance(x, i.TellTaskManagerEnded)]


def test_jobs_hear_how_a_worker_has_ended_at_which_they_have_slots() -> None:
    core = active()
    add_job(core, "j", 1)
    grant(core, add_taskmanager(core, 2, "w0"))
    add_job(core, "elsewhere", 0)
    assert ends_told(core.worker_ended("w0", "over its memory", 1.0)) == [("token-j", "w0", "over its memory")]
    assert ends_told(core.worker_ended("w0", "over its memory", 1.0)) == []


@pytest.mark.parametrize("orderly", [False, True])
def test_jobs_hear_it_also_when_the_taskmanager_was_missed_long_before_or_was_told_to_stop(orderly: bool) -> None:
    core = active()
    add_job(core, "j", 1)
    grant(core, add_taskmanager(core, 2, "w0"))
    assert ends_told(core.taskmanager_gone("w0", "it does not answer heartbeats", 1.0, orderly)) == []
    assert ends_told(core.worker_ended("w0", "over its memory", 6.0)) == [("token-j", "w0", "over its memory")]


def test_jobs_hear_it_also_when_the_taskmanager_has_freed_their_slots_before_it_left() -> None:
    core = active()
    add_job(core, "j", 1)
    (allocation,) = grant(core, add_taskmanager(core, 2, "w0"))
    free(core, allocation)
    core.taskmanager_gone("w0", "it stopped", 1.0, orderly=True)
    assert ends_told(core.worker_ended("w0", "over its memory", 6.0)) == [("token-j", "w0", "over its memory")]


def test_nobody_hears_of_a_worker_that_was_not_used_or_of_a_job_that_has_gone() -> None:
    core = active()
    add_job(core, "j", 1)
    add_taskmanager(core, 2, "w0")
    core.jobmaster_gone("j", "it has ended", 0.5)
    core.tick(1000.0)
    assert ends_told(core.worker_ended("w0", "exit code 0", 1001.0)) == []


def test_a_worker_that_does_not_register_in_time_is_replaced() -> None:
    core = active()
    add_job(core, "j", 1)
    assert core.tick(299.0) == []
    out = core.tick(300.0)
    assert (stopped(out), started(out)) == (["w0"], ["w1"])


def test_starts_that_fail_too_often_are_throttled() -> None:
    core = active(WorkerSettings(slots=2, max_failures=3.0, retry_interval=3.0))
    (name,) = started(add_job(core, "j", 1))
    for second in (1.0, 2.0):
        (name,) = started(core.worker_failed(name, "no memory", second))
    assert started(core.worker_ended(name, "exit code 2: no such option", 3.0)) == []
    assert core.tick(5.9) == []
    (name,) = started(core.tick(6.0))
    assert started(core.worker_failed(name, "no memory", 7.0)) == []  # still more than three within a minute
    (name,) = started(core.tick(10.0))
    assert len(started(core.worker_failed(name, "no memory", 100.0))) == 1


def test_workers_that_nobody_needs_any_more_are_not_waited_for() -> None:
    core = active()
    add_job(core, "j", 2)
    assert core.jobmaster_gone("j", "cancelled", 1.0) == []
    assert core.tick(2.0) == []
    assert stopped(core.tick(32.0)) == ["w0"]
    core.validate()


def test_slots_kept_for_a_job_count_as_used() -> None:
    core = make(active=True, workers=TWO_SLOTS)
    add_taskmanager(core, 2, "old", SlotStatus(0, "ACTIVE", "x", "j", 7), SlotStatus(1, "ACTIVE", "y", "j", 8))
    core.workers_recovered(["old"], 0.0)
    assert started(add_job(core, "other", 1)) == ["w0"]
    assert core.tick(100.0) == []


def test_taskmanagers_beyond_the_most_slots_are_refused() -> None:
    core = make(max_slots=3)
    add_taskmanager(core, 2, "x")
    with pytest.raises(TaskManagerRefusedError, match=r"slotmanager\.number-of-slots\.max is 3"):
        core.register_taskmanager(RegisterTaskManager("y", "http://y", 2), 0.0, 0)
    add_taskmanager(core, 2, "x")  # again: it is counted once
    add_taskmanager(core, 1, "z")


def test_a_job_waits_for_taskmanagers_during_the_start_up_time_only() -> None:
    core = make(start_up_time=20.0, empty_start_up_time=20.0)
    add_taskmanager(core, 1)
    assert add_job(core, "j", 2) == []
    assert deeds(core.tick(19.0)) == []
    (out,) = core.tick(20.0)
    assert isinstance(out, i.SendNoResources)
    (out,) = add_job(core, "k", 3, now=30.0)
    assert isinstance(out, i.SendNoResources)


def reasons(out: list[i.Instruction]) -> list[tuple[str, str]]:
    return [(x.jobmaster_address, x.reason) for x in out if isinstance(x, i.SendWaiting)]


def test_jobs_that_wait_hear_why_workers_do_not_run() -> None:
    core = active()
    add_taskmanager(core, 2, "other")
    add_job(core, "served", 2)
    (waiting,) = started(add_job(core, "j", 2))
    address = core.job("j").address
    assert reasons(core.workers_wait({waiting: "Unschedulable: no room"}, 1.0)) == [(address, "Unschedulable: no room")]
    assert reasons(core.tick(2.0)) == []
    assert reasons(core.workers_wait({waiting: "ImagePullBackOff"}, 3.0)) == [(address, "ImagePullBackOff")]
    assert reasons(core.workers_wait({}, 4.0)) == [(address, "")]
    core.workers_wait({waiting: "Unschedulable"}, 5.0)
    out = add_taskmanager(core, 2, waiting)
    assert reasons(out) == [(address, "")], "its slots are on their way"
    core.validate()


def test_a_job_hears_in_a_moment_that_the_cluster_has_too_few_slots() -> None:
    core = make(start_up_time=300.0, empty_start_up_time=300.0)
    add_taskmanager(core, 1)
    add_job(core, "j", 2)
    address = core.job("j").address
    assert reasons(core.tick(4.9)) == []
    (reason,) = reasons(core.tick(5.0))
    assert reason[0] == address
    assert reason[1].startswith("2 slots are needed, and the cluster has 1. Start more TaskManagers, ")
    assert reasons(core.tick(6.0)) == [], "once"
    assert reasons(add_taskmanager(core, 1, "second", now=7.0)) == [(address, "")]


def test_a_job_hears_that_others_hold_the_slots() -> None:
    core = make()
    add_taskmanager(core, 3)
    add_job(core, "first", 2)
    add_job(core, "j", 2)
    assert reasons(core.tick(5.0)) == [(core.job("j").address, "Slots that are missing: 2; 1 of 3 are free.")]
    assert reasons(core.jobmaster_gone("first", "it ended", 6.0)) == []
    core.validate()


def test_a_worker_that_is_refused_is_told_until_the_failure_is_forgotten() -> None:
    core = active()
    (first,) = started(add_job(core, "j", 1))
    out = core.worker_failed(first, "exceeded quota", 1.0)
    assert reasons(out) == [(core.job("j").address, f"worker {first} was not started: exceeded quota")]
    assert reasons(core.tick(30.0)) == []
    assert reasons(core.tick(62.0)) == [(core.job("j").address, "")]
