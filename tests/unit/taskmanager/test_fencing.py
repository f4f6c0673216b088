"""The TaskManager's core: executors, what is over and must not come back, lost splits, memory."""

from __future__ import annotations

import pytest

from firesteel.core.process import ProcessId
from firesteel.protocol.messages import AssignSplits, Splits
from firesteel_taskmanager import instructions as i
from firesteel_taskmanager.core import SlotTakenError, TaskManagerCore
from firesteel_taskmanager.ending import KILL_PATIENCE
from firesteel_taskmanager.slots import UnknownExecutionError
from tests.unit.taskmanager.cores import (
    SETTINGS,
    make,
    only,
    register,
    registration,
    request,
    running,
    sent,
    states,
)

# -- executors


class Executors:
    """As the supervisor shows them."""

    def __init__(self, newest: str | None, *older: str) -> None:
        self.newest, self._ids = newest, {newest, *older}

    def knows(self, executor_id: str) -> bool:
        return executor_id in self._ids


def test_a_slot_starts_on_the_newest_executor_and_may_come_from_an_older_one() -> None:
    core = TaskManagerCore("tm", 3, Executors("8", "7"), SETTINGS)
    assert core.request_slot(request(), 0.0) == "8"
    assert core.executors_in_use() == (frozenset(), True)
    assert sent(core.register(1, registration(executor_id="6"), None, 0.0)) == ["rejected"]
    assert sent(core.register(2, registration(executor_id="7"), ProcessId(100, 5), 0.0)) == ["accepted"]
    assert core.executors_in_use() == (frozenset({"7"}), False)
    assert core.request_slot(request(), 0.0) == "8", "a repeat names the newest"


def test_without_an_executor_no_slot_is_given() -> None:
    core = TaskManagerCore("tm", 1, Executors(None), SETTINGS)
    with pytest.raises(SlotTakenError, match="no Spark executor"):
        core.request_slot(request(), 0.0)
    assert core.is_idle


# -- fencing


def test_a_request_that_comes_late_does_not_bring_an_allocation_back() -> None:
    core = make()
    core.request_slot(request(), 0.0)
    core.free_slot("a", "no longer wanted", 0.0)
    with pytest.raises(SlotTakenError, match="has ended"):
        core.request_slot(request(), 0.1)
    with pytest.raises(SlotTakenError, match="has ended"):
        core.request_slot(request(1), 0.1)
    assert sent(register(core)) == ["rejected"]


def test_an_allocation_has_one_slot() -> None:
    core = make()
    core.request_slot(request(0), 0.0)
    with pytest.raises(SlotTakenError, match="allocation a has slot 0"):
        core.request_slot(request(1), 0.0)


def test_a_deposed_jobmaster_is_known_by_its_token() -> None:
    core = running("e")
    assert core.leads("job", "a", "token")
    assert core.leads("job", "", "token")
    assert not core.leads("job", "a", "old token")
    assert not core.leads("job", "", "old token")
    assert core.leads("unknown", "unknown", "any token"), "what is not here is refused by other names"
    assert core.jobmaster_lost("job", "an old one left", 0.0, "old token") == []
    assert sent(core.jobmaster_lost("job", "silent", 0.0, "token")) == ["release"]


def test_a_process_that_was_frozen_while_its_slot_was_given_to_others_comes_back_to_nothing() -> None:
    core = running("e")
    core.free_slot("a", "the job went elsewhere", 0.0)
    core.tick(SETTINGS.release_grace, 0)  # killed, but it does not die
    assert i.SlotFreed(0, "a") in core.tick(SETTINGS.release_grace + KILL_PATIENCE, 0)
    core.request_slot(request(0, "b", "job 2"), 10.0)
    register(core, 2, "b", 200)
    late = core.tasks.state(1, {"execution_id": "e", "state": "FINISHED"}, 0)
    assert (
        late == core.tasks.end_of_data(1, {"execution_id": "e"}) == core.tasks.splits_wanted(1, {"execution_id": "e"})
    )
    assert late == core.channel_closed(1, "it died at last", 11.0) == []
    with pytest.raises(UnknownExecutionError):
        core.slots.channel_of("e", "job", "a")
    assert [s.pid for s in core.report()] == [200, None]


# -- splits


def test_a_task_fails_when_splits_may_be_lost() -> None:
    core = running("e", "other")
    out = core.tasks.splits_lost("a", "e", "no answer", 7.0)
    assert states(out) == {}, "it has not ended yet, and its slot can't be used again"
    assert only(out, i.Send).message["execution_ids"] == ["e"]
    assert core.next_deadline() is not None
    assert core.tasks.splits_lost("a", "e", "again", 8.0) == []
    out = core.tasks.state(1, {"execution_id": "e", "state": "CANCELED", "error": None}, 9)
    assert states(out) == {"e": "FAILED"}
    error = only(out, i.ReportTaskState).update.error
    assert (error["kind"], error["message"]) == ("external", "no answer")
    assert not core.tasks.is_live("a", "e")
    assert core.tasks.is_live("a", "other")
    assert core.tasks.splits_lost("b", "e", "another slot", 8.0) == []


def test_splits_are_taken_once_and_in_order_however_they_come() -> None:
    core = running("e")
    (ask,) = core.tasks.splits_wanted(1, {"execution_id": "e"})
    assert isinstance(ask, i.AskForSplits)

    def new_splits(serial: int, as_answer: bool) -> list[int]:
        splits, no_more = ({"id": serial},), serial == 5
        if as_answer:
            out = core.tasks.splits_answered(ask, Splits(splits, no_more, serial))
        else:
            out = core.tasks.splits_assigned(AssignSplits("e", splits, no_more, serial, "job", "a"))
        return [send.message["splits"][0]["id"] for send in out if isinstance(send, i.Send)]

    order = [(2, False), (2, True), (1, True), (1, False), (5, True), (4, True), (3, True), (3, False), (2, True)]
    assert [new_splits(*arguments) for arguments in order] == [[], [], [1, 2], [], [], [], [3, 4, 5], [], []]


def test_an_answer_without_splits_counts_only_while_nothing_newer_was_asked() -> None:
    core = running("e")
    (first,) = core.tasks.splits_wanted(1, {"execution_id": "e"})
    (second,) = core.tasks.splits_wanted(1, {"execution_id": "e"})
    assert isinstance(first, i.AskForSplits)
    assert isinstance(second, i.AskForSplits)
    assert (first.number, second.number) == (1, 2)
    nothing = Splits((), False)
    assert core.tasks.splits_answered(first, nothing) == []
    (send,) = core.tasks.splits_answered(second, nothing)
    assert isinstance(send, i.Send)
    assert send.message["splits"] == []
    core.tasks.state(1, {"execution_id": "e", "state": "FINISHED"}, 0)
    assert core.tasks.splits_answered(second, Splits(({"id": "late"},), False, 1)) == []


# -- memory


def test_a_slot_that_uses_more_than_its_share_is_killed_and_its_tasks_fail_by_name() -> None:
    core = running("e1", "e2")
    core.memory_limit = 512 << 20
    core.tasks.state(1, {"execution_id": "e1", "state": "FINISHED"}, 0)
    assert core.memory_measured("a", 512 << 20, 1.0, 0) == []
    out = core.memory_measured("a", 700 << 20, 2.0, 0)
    core.slots.validate()
    assert out[0] == i.KillProcess(0, "a", ProcessId(100, 5))
    assert states(out) == {"e2": "FAILED"}
    error = only(out, i.ReportTaskState).update.error
    assert error["error_class"] == "firesteel.core.errors.TaskMemoryExceededError"
    for part in ("slot 0 on tm", "700 MiB", "512 MiB", "process 100", "taskmanager.memory.process.size"):
        assert part in error["message"]
    assert only(out, i.ReportSlotFailed).cause == error["message"]
    assert core.memory_measured("a", 900 << 20, 2.5, 0) == [], "once is enough"
    assert i.SlotFreed(0, "a") in core.channel_closed(1, "killed", 2.6)
    assert core.memory_measured("a", 900 << 20, 2.7, 0) == []


def test_the_processor_time_of_a_slot_becomes_the_cores_that_it_uses() -> None:
    core = running("e")
    slot = core.slots.find("a")
    assert slot is not None
    assert slot.process is not None
    core.cpu_measured("a", 5.0, 10.0)
    assert slot.process.cpu_load == 0, "one measurement alone says nothing"
    core.cpu_measured("a", 8.0, 12.0)
    assert slot.process.cpu_load == 1.5
    core.cpu_measured("a", 7.0, 14.0)
    assert slot.process.cpu_load == 0, "a child has ended whose time nobody has"
    core.cpu_measured("unknown", 1.0, 15.0)


def test_without_a_limit_memory_is_only_measured() -> None:
    core = running("e")
    assert core.memory_measured("a", 1 << 40, 0.0, 0) == []
    slot = core.slots.find("a")
    assert slot is not None
    assert slot.process is not None
    assert slot.process.memory == 1 << 40
