"""The TaskManager's core: slots, their processes and tasks."""

from __future__ import annotations

from typing import Any

import pytest

from firesteel.core.process import ProcessId
from firesteel.protocol.messages import RequestSlot
from firesteel.protocol.slot_channel import PROTOCOL_VERSION
from firesteel_taskmanager import instructions as i
from firesteel_taskmanager.core import INVESTIGATION_PATIENCE, SETTLE_SECONDS, SlotTakenError, TaskManagerCore
from firesteel_taskmanager.ending import KILL_PATIENCE, LINGER_GRACE
from firesteel_taskmanager.executors import FixedExecutor
from firesteel_taskmanager.settings import Cancellation, TaskManagerSettings
from firesteel_taskmanager.slots import SlotState, UnknownAllocationError, UnknownExecutionError

SETTINGS = TaskManagerSettings()
CANCELLATION = Cancellation(interval=1.0, timeout=5.0)
REF = i.JobMasterRef("job", "http://jm", "token")


def request(index: int = 0, allocation: str = "a", job: str = "job") -> RequestSlot:
    return RequestSlot(index, allocation, job, "http://jm", "token")


def registration(allocation: str = "a", pid: int = 100, **changes: Any) -> dict[str, Any]:
    return {
        "type": "register", "version": PROTOCOL_VERSION, "allocation_id": allocation, "pid": pid, "spark_attempt": 0,
        "executor_id": "driver", "data_address": {"unix": f"/{pid}"}, **changes,
    }  # fmt: skip


def make(slots: int = 2) -> TaskManagerCore:
    return TaskManagerCore("tm", slots, FixedExecutor("driver"), SETTINGS)


def register(core: TaskManagerCore, channel: int = 1, allocation: str = "a", pid: int = 100) -> list[i.Instruction]:
    out = core.register(channel, registration(allocation, pid), ProcessId(pid, 5), 0.0)
    core.slots.validate()
    return out


def running(*executions: str, slots: int = 2) -> TaskManagerCore:
    """A core with one active slot (allocation a, channel 1) that runs these."""
    core = make(slots)
    core.request_slot(request(), 0.0)
    register(core)
    core.offer_answered(["a"], ["a"], 0.0)
    deploy(core, *executions)
    core.slots.validate()
    return core


def deployment(*executions: str) -> dict[str, Any]:
    return {"tasks": [{"execution_id": e} for e in executions], "blobs": {}}


def deploy(core: TaskManagerCore, *executions: str, job: str = "job", allocation: str = "a") -> list[i.Instruction]:
    core.tasks.begin_deploy(job, allocation, executions, CANCELLATION, 0.0)
    return core.tasks.deploy(job, allocation, deployment(*executions))


def sent(out: list[i.Instruction]) -> list[str]:
    return [x.message["type"] for x in out if isinstance(x, i.Send)]


def states(out: list[i.Instruction]) -> dict[str, str]:
    return {x.update.execution_id: x.update.state for x in out if isinstance(x, i.ReportState)}


def only(out: list[i.Instruction], kind: type[Any]) -> Any:
    (found,) = [x for x in out if isinstance(x, kind)]
    return found


# -- allocation and registration


def test_a_slot_is_allocated_registered_offered_and_accepted() -> None:
    core = make()
    core.request_slot(request(), 0.0)
    accepted, offer = register(core)
    assert accepted == i.Send(1, {"type": "accepted", "slot_index": 0, "taskmanager_id": "tm"})
    assert isinstance(offer, i.Offer)
    assert (offer.jobmaster, offer.slots[0].allocation_id, offer.slots[0].pid) == (REF, "a", 100)
    assert core.offer_answered(["a"], ["a"], 0.0) == []
    assert [(s.state, s.pid) for s in core.report()] == [("ACTIVE", 100), ("FREE", None)]
    assert core.next_deadline() is None


def test_requesting_again_is_harmless_and_a_taken_slot_is_refused() -> None:
    core = make()
    core.request_slot(request(), 0.0)
    core.request_slot(request(), 0.0)
    with pytest.raises(SlotTakenError, match="allocation a of job job"):
        core.request_slot(request(allocation="b"), 0.0)
    with pytest.raises(SlotTakenError, match="no slot 7"):
        core.request_slot(request(7, "c"), 0.0)
    core.set_slots(8)
    core.request_slot(request(7, "c"), 0.0)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"allocation_id": "other"}, "not expected"),
        ({"executor_id": "7"}, "executor '7', and tm has 'driver'"),
        ({"version": 99}, "version 99"),
        ({"pid": "x"}, "malformed"),
        ({"data_address": None}, "malformed"),
    ],
)
def test_a_process_that_must_not_run_is_turned_away(changes: dict[str, Any], reason: str) -> None:
    core = make()
    core.request_slot(request(), 0.0)
    rejected, closed = core.register(1, registration(**changes), None, 0.0)
    assert isinstance(rejected, i.Send)
    assert rejected.message["type"] == "rejected"
    assert reason in rejected.message["reason"]
    assert closed == i.CloseChannel(1)
    assert sent(register(core, channel=2)) == ["accepted"]


def test_a_second_copy_is_turned_away_also_after_the_first_has_died() -> None:
    core = make()
    core.request_slot(request(), 0.0)
    register(core)
    assert sent(register(core, channel=2, pid=101)) == ["rejected"]
    core.channel_closed(1, "it died", 0.0)
    assert sent(register(core, channel=3, pid=102)) == ["rejected"]


def test_a_slot_that_the_job_does_not_accept_is_released() -> None:
    core = make()
    core.request_slot(request(), 0.0)
    register(core)
    assert sent(core.offer_answered(["a"], [], 0.0)) == ["release"]
    out = core.channel_closed(1, "it returned", 0.5)
    assert i.SlotFreed(0, "a") in out
    assert i.ForgetJob("job") in out
    assert core.is_idle


def test_a_slot_whose_process_does_not_come_is_freed_and_the_job_told() -> None:
    core = make()
    core.request_slot(request(), 0.0)
    assert core.next_deadline() == SETTINGS.start_timeout
    assert core.tick(SETTINGS.start_timeout - 1, 0) == []
    out = core.tick(SETTINGS.start_timeout, 0)
    assert "no process came" in only(out, i.ReportSlotFailed).cause
    assert i.CancelLaunch(0, "a") in out
    assert i.SlotFreed(0, "a") in out
    assert core.is_idle


def test_a_slot_that_is_never_accepted_is_freed() -> None:
    core = make()
    core.request_slot(request(), 0.0)
    register(core)
    out = core.tick(SETTINGS.slot_timeout, 0)
    assert "did not accept" in only(out, i.ReportSlotFailed).cause
    assert sent(out) == ["release"]


# -- tasks


def test_tasks_are_deployed_once() -> None:
    core = running()
    out = deploy(core, "e1", "e2")
    assert sent(out) == ["deploy"]
    assert not core.tasks.begin_deploy("job", "a", ["e1", "e2"], CANCELLATION, 0.0)
    assert core.tasks.deploy("job", "a", deployment("e1", "e2")) == []
    with pytest.raises(UnknownAllocationError):
        core.tasks.begin_deploy("other job", "a", ["e1"], CANCELLATION, 0.0)


def test_tasks_may_come_before_the_answer_to_the_offer() -> None:
    core = make()
    core.request_slot(request(), 0.0)
    register(core)
    assert sent(deploy(core, "e")) == ["deploy"]
    assert core.offer_answered(["a"], ["a"], 0.0) == []
    assert core.report()[0].state == "ACTIVE"


def test_states_are_reported_and_a_final_one_is_the_last() -> None:
    core = running("e")
    for state in ("INITIALIZING", "RUNNING", "FINISHED"):
        out = core.tasks.state(1, {"execution_id": "e", "state": state, "metrics": {"numRecordsIn": 3}}, 77)
        assert states(out) == {"e": state}
        assert only(out, i.ReportState).update.timestamp_ms == 77
    assert core.tasks.state(1, {"execution_id": "e", "state": "FAILED"}, 0) == []
    assert core.tasks.state(1, {"execution_id": "unknown", "state": "FAILED"}, 0) == []
    assert core.tasks.of_job("job") == ({"e": "FINISHED"}, {"e": {"numRecordsIn": 3}})


def test_requests_of_tasks_go_to_the_jobmaster_and_answers_come_back() -> None:
    core = running("e")
    assert core.tasks.splits_wanted(1, {"execution_id": "e"}) == [i.AskForSplits(REF, "a", "e")]
    (split,) = core.tasks.splits_assigned("e", [{"id": 1}], False)
    assert isinstance(split, i.Send)
    assert split.message == {"type": "assign_splits", "execution_id": "e", "splits": [{"id": 1}], "no_more": False}
    assert core.tasks.end_of_data(1, {"execution_id": "e"}) == [i.ReportEndOfData(REF, "e")]
    assert sent(core.tasks.commit("e")) == ["commit"]
    assert core.tasks.metrics(1, {"tasks": {"e": {"n": 1}, "x": {"n": 2}}}) == [i.PublishMetrics(REF, {"e": {"n": 1}})]
    with pytest.raises(UnknownExecutionError, match="does not run on tm"):
        core.tasks.commit("nobody")


def test_two_jobs_of_the_same_program_are_told_apart() -> None:
    core = running("e")
    core.request_slot(request(1, "b", "job 2"), 0.0)
    register(core, 2, "b", 101)
    deploy(core, "e", job="job 2", allocation="b")
    with pytest.raises(UnknownExecutionError, match="several jobs"):
        core.tasks.commit("e")
    (to_second,) = core.tasks.commit("e", job="job 2")
    assert isinstance(to_second, i.Send)
    assert to_second.channel == 2


# -- cancelling


def test_cancelling_is_passed_on_with_the_jobs_own_interval() -> None:
    core = running("e1", "e2")
    (out,) = core.tasks.cancel("job", ["e2"], 0.0, 0)
    assert isinstance(out, i.Send)
    assert out.message == {"type": "cancel", "execution_ids": ["e2"], "interval_ms": 1000}
    core.tasks.state(1, {"execution_id": "e2", "state": "CANCELED"}, 0)
    assert core.next_deadline() is None
    assert core.tasks.cancel("other job", None, 0.0, 0) == []


def test_tasks_that_were_not_sent_yet_are_cancelled_at_once_and_never_sent() -> None:
    core = running()
    core.tasks.begin_deploy("job", "a", ["e1", "e2"], CANCELLATION, 0.0)
    assert states(core.tasks.cancel("job", ["e1"], 0.0, 0)) == {"e1": "CANCELED"}
    (out,) = core.tasks.deploy("job", "a", deployment("e1", "e2"))
    assert isinstance(out, i.Send)
    assert [t["execution_id"] for t in out.message["deployment"]["tasks"]] == ["e2"]


def test_tasks_that_do_not_end_are_killed_after_the_timeout_and_reported_as_cancelled() -> None:
    core = running("stuck", "done", "not cancelled")
    core.tasks.state(1, {"execution_id": "done", "state": "FINISHED"}, 0)
    core.tasks.cancel("job", ["stuck", "done"], 1.0, 0)
    assert core.tick(5.9, 0) == []
    out = core.tick(6.0, 0)
    core.slots.validate()
    assert out[0] == i.KillProcess(0, "a", ProcessId(100, 5))
    assert states(out) == {"stuck": "CANCELED", "not cancelled": "FAILED"}
    assert "task.cancellation.timeout" in only(out, i.ReportSlotFailed).cause
    assert i.SlotFreed(0, "a") in core.channel_closed(1, "killed", 6.1)
    assert core.is_idle


def test_a_killed_process_that_stays_does_not_keep_the_slot() -> None:
    core = running("e")
    core.free_slot("a", "done", 0.0)
    assert isinstance(core.tick(SETTINGS.release_grace, 0)[0], i.KillProcess)
    assert core.tick(SETTINGS.release_grace + KILL_PATIENCE - 0.1, 0) == []
    assert i.SlotFreed(0, "a") in core.tick(SETTINGS.release_grace + KILL_PATIENCE, 0)


# -- the end of processes and slots


def test_a_lost_process_is_looked_into_before_its_tasks_fail() -> None:
    core = running("e1", "e2")
    core.tasks.state(1, {"execution_id": "e1", "state": "FINISHED"}, 0)
    core.tasks.temporary_files(1, {"add": ["/x", "/y"], "remove": []})
    core.tasks.temporary_files(1, {"add": [], "remove": ["/x"]})
    assert core.channel_closed(1, "process 100 was killed", 0.0) == [i.Investigate(0, "a", "process 100 was killed")]
    out = core.process_lost("a", "the JVM ended", 0.1, 9)
    core.slots.validate()
    assert states(out) == {"e2": "FAILED"}
    error = only(out, i.ReportState).update.error
    assert (error["kind"], error["message"]) == ("external", "the JVM ended")
    kinds = [type(x) for x in out]
    assert kinds.index(i.ReportState) < kinds.index(i.ReportSlotFailed) < kinds.index(i.SlotFreed)
    assert only(out, i.DeleteFiles).paths == ("/y",)
    assert core.process_lost("a", "again", 0.2, 9) == []


def test_an_investigation_without_an_answer_ends() -> None:
    core = running("e")
    core.channel_closed(1, "process 100 was killed", 0.0)
    out = core.tick(INVESTIGATION_PATIENCE, 0)
    assert states(out) == {"e": "FAILED"}
    assert only(out, i.ReportSlotFailed).cause == "process 100 was killed"


def test_a_slot_that_is_freed_while_its_process_is_being_looked_into_fails_nothing() -> None:
    core = running("e")
    core.channel_closed(1, "gone", 0.0)
    out = core.free_slot("a", "job ended", 0.0)
    assert states(out) == {}
    assert i.SlotFreed(0, "a") in out
    assert core.process_lost("a", "gone", 0.1, 0) == []


def test_a_released_slot_is_free_when_its_process_has_ended_and_a_rest_of_it_is_killed() -> None:
    core = running("e")
    assert sent(core.free_slot("a", "done", 0.0)) == ["release"]
    assert core.free_slot("a", "done", 0.0) == []
    assert core.free_slot("unknown", "done", 0.0) == []
    with pytest.raises(UnknownAllocationError):
        core.tasks.begin_deploy("job", "a", ["e9"], CANCELLATION, 0.0)
    out = core.channel_closed(1, "returned", 0.1)
    assert i.SlotFreed(0, "a") in out
    assert core.is_idle
    assert core.tick(0.1 + LINGER_GRACE, 0) == [i.KillProcess(0, "a", ProcessId(100, 5))]
    with pytest.raises(SlotTakenError, match="allocation a has ended"):
        core.request_slot(request(), 1.0)
    assert sent(register(core, channel=9, pid=109)) == ["rejected"]


def test_the_jobs_files_stay_until_its_last_slot_is_free() -> None:
    core = running("e")
    core.request_slot(request(1, "b"), 0.0)
    assert not [x for x in core.free_slot("b", "x", 0.0) if isinstance(x, i.ForgetJob)]
    core.free_slot("a", "x", 0.0)
    assert i.ForgetJob("job") in core.channel_closed(1, "x", 0.0)


def test_a_lost_jobmaster_frees_its_slots_only() -> None:
    core = running("e")
    core.request_slot(request(1, "b", "other"), 0.0)
    assert sent(core.jobmaster_lost("job", "silent", 0.0)) == ["release"]
    assert [s.state for s in core.report()] == ["RELEASING", "ALLOCATED"]


def test_a_heartbeat_frees_what_the_jobmaster_does_not_know_and_accepts_what_it_does() -> None:
    core = running("e")
    core.request_slot(request(1, "b"), 0.0)
    register(core, 2, "b", 101)
    assert core.jobmaster_heartbeat("job", ["b"], SETTLE_SECONDS - 0.1) == []
    assert [s.state for s in core.report()] == ["ACTIVE", "ACTIVE"]
    assert sent(core.jobmaster_heartbeat("job", ["b"], SETTLE_SECONDS)) == ["release"]
    assert [s.state for s in core.report()] == ["RELEASING", "ACTIVE"]


def test_stopping_releases_everything() -> None:
    core = running("e")
    core.request_slot(request(1, "b"), 0.0)
    out = core.stop(0.0)
    assert sent(out) == ["release"]
    assert i.SlotFreed(1, "b") in out
    assert core.kill_all() == [i.KillProcess(0, "a", ProcessId(100, 5))]


def test_silence_of_a_process_is_logged_once_and_kills_nothing(caplog: pytest.LogCaptureFixture) -> None:
    core = running("e")
    for second in range(0, 200, 10):
        assert sent(core.ping(float(second))) == ["ping"]
    assert caplog.text.count("has not answered") == 1
    core.pong(1)
    core.ping(200.0)
    assert caplog.text.count("has not answered") == 1
    assert core.slots.find("a") is not None


def test_messages_of_unknown_channels_are_ignored() -> None:
    core = running("e")
    assert core.channel_closed(99, "x", 0.0) == []
    assert core.tasks.metrics(99, {"tasks": {"e": {}}}) == []
    assert core.tasks.temporary_files(99, {"add": ["/x"]}) == []
    assert core.pong(99) == []
    slot = core.slots.find("a")
    assert slot is not None
    assert slot.state is SlotState.ACTIVE


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
        core.tasks.commit("e", "job", "a")
    assert [s.pid for s in core.report()] == [200, None]


# -- splits


def test_a_task_fails_when_splits_may_be_lost() -> None:
    core = running("e", "other")
    out = core.tasks.splits_lost("a", "e", "no answer", 7)
    assert states(out) == {"e": "FAILED"}
    error = only(out, i.ReportState).update.error
    assert (error["kind"], error["message"]) == ("external", "no answer")
    assert only(out, i.Send).message["execution_ids"] == ["e"]
    assert core.tasks.splits_lost("a", "e", "again", 8) == []
    assert not core.tasks.is_live("a", "e")
    assert core.tasks.is_live("a", "other")
    assert core.tasks.splits_lost("b", "e", "another slot", 8) == []


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
    error = only(out, i.ReportState).update.error
    assert error["error_class"] == "firesteel.core.errors.TaskMemoryExceededError"
    for part in ("slot 0 on tm", "700 MiB", "512 MiB", "process 100", "taskmanager.memory.process.size"):
        assert part in error["message"]
    assert only(out, i.ReportSlotFailed).cause == error["message"]
    assert core.memory_measured("a", 900 << 20, 2.5, 0) == [], "once is enough"
    assert i.SlotFreed(0, "a") in core.channel_closed(1, "killed", 2.6)
    assert core.memory_measured("a", 900 << 20, 2.7, 0) == []


def test_without_a_limit_memory_is_only_measured() -> None:
    core = running("e")
    assert core.memory_measured("a", 1 << 40, 0.0, 0) == []
    slot = core.slots.find("a")
    assert slot is not None
    assert slot.process is not None
    assert slot.process.memory == 1 << 40
