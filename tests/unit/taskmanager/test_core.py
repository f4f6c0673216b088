"""The TaskManager's core: slots, their processes and tasks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from firesteel.core.errors import ProtocolError
from firesteel.core.process import ProcessId
from firesteel.protocol.checkpoint_messages import DeclineReason
from firesteel.protocol.messages import (
    AcknowledgeCheckpoint,
    AssignSplits,
    DeclineCheckpoint,
    NotifyCheckpoint,
    TriggerCheckpoint,
)
from firesteel_taskmanager import instructions as i
from firesteel_taskmanager.core import INVESTIGATION_PATIENCE, SETTLE_SECONDS, SlotTakenError
from firesteel_taskmanager.ending import KILL_PATIENCE, LINGER_GRACE
from firesteel_taskmanager.slots import TaskSlotState, UnknownAllocationError, UnknownExecutionError
from tests.unit.taskmanager.cores import (
    CANCELLATION,
    REF,
    SETTINGS,
    deploy,
    deployment,
    make,
    only,
    register,
    registration,
    request,
    running,
    sent,
    states,
)

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


def test_a_second_copy_is_turned_away_also_after_the_first_has_died(caplog: pytest.LogCaptureFixture) -> None:
    core = make()
    core.request_slot(request(), 0.0)
    register(core)
    assert sent(register(core, channel=2, pid=101)) == ["rejected"]
    core.channel_closed(1, "it died", 0.0)
    assert sent(register(core, channel=3, pid=102)) == ["rejected"]
    assert not caplog.records, "Spark starts the task of a process that was killed again: that is no news"
    assert sent(register(core, channel=4, allocation="nobody's", pid=103)) == ["rejected"]
    assert "allocation nobody's is not expected" in caplog.text


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
    assert i.RequestLaunchCancel(0, "a") in out
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
        assert only(out, i.ReportTaskState).update.timestamp_ms == 77
        totals = {"e": {"numRecordsIn": 3}} if state == "FINISHED" else {}
        assert core.tasks.of_job("job") == ({"e": state}, totals), "running totals are reported by themselves"
    assert core.tasks.state(1, {"execution_id": "e", "state": "FAILED"}, 0) == []
    assert core.tasks.state(1, {"execution_id": "unknown", "state": "FAILED"}, 0) == []


def test_requests_of_tasks_go_to_the_jobmaster_and_answers_come_back() -> None:
    core = running("e")
    assert core.tasks.splits_wanted(1, {"execution_id": "e"}) == [i.AskForSplits(REF, "a", "e", 1, taken=0)]
    (split,) = core.tasks.splits_assigned(AssignSplits("e", ({"id": 1},), False, 1))
    assert isinstance(split, i.Send)
    assert split.message == {
        "type": "assign_splits",
        "execution_id": "e",
        "splits": [{"id": 1}],
        "no_more": False,
        "serial": 1,
    }
    assert core.tasks.splits_wanted(1, {"execution_id": "e"}) == [i.AskForSplits(REF, "a", "e", 2, taken=1)]
    assert core.tasks.end_of_data(1, {"execution_id": "e"}) == [i.ReportEndOfData(REF, "e")]
    assert core.tasks.metrics(1, {"tasks": {"e": {"n": 1}, "x": {"n": 2}}}) == [i.PublishMetrics(REF, {"e": {"n": 1}})]
    with pytest.raises(UnknownExecutionError, match="does not run on tm"):
        core.slots.channel_of("nobody")


def test_two_jobs_of_the_same_program_are_told_apart() -> None:
    core = running("e")
    core.request_slot(request(1, "b", "job 2"), 0.0)
    register(core, 2, "b", 101)
    deploy(core, "e", job="job 2", allocation="b")
    with pytest.raises(UnknownExecutionError, match="several jobs"):
        core.slots.channel_of("e")
    assert core.slots.channel_of("e", "job 2") == 2


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
    assert core.channel_closed(1, "process 100 was killed", 0.0) == [
        i.Investigate(0, "a", 100, "process 100 was killed")
    ]
    out = core.process_lost("a", "the JVM ended", 0.1, 9)
    core.slots.validate()
    assert states(out) == {"e2": "FAILED"}
    error = only(out, i.ReportTaskState).update.error
    assert (error["kind"], error["message"]) == ("external", "the JVM ended")
    kinds = [type(x) for x in out]
    assert kinds.index(i.ReportTaskState) < kinds.index(i.ReportSlotFailed) < kinds.index(i.SlotFreed)
    assert only(out, i.DeleteFiles).paths == ("/y",)
    assert core.process_lost("a", "again", 0.2, 9) == []


@pytest.mark.parametrize(("last", "gone"), [(None, ("/t",)), (0, ("/t", "/a", "/b")), (3, ("/t", "/b")), (4, ("/t",))])
def test_files_that_only_later_checkpoints_need_go_with_the_job(last: int | None, gone: tuple[str, ...]) -> None:
    core = running("e")
    core.tasks.temporary_files(1, {"add": ["/t", "/a", "/b", "/shown"], "remove": []})
    for path, first in (("/a", 3), ("/b", 4), ("/shown", 4)):
        core.tasks.temporary_files(1, {"add": [], "remove": [path], "keep": {path: first}})
    core.tasks.temporary_files(1, {"add": [], "remove": ["/shown"]})
    core.free_slot("a", "job CANCELED", 0.0, last)
    assert only(core.channel_closed(1, "closed", 0.1), i.DeleteFiles).paths == gone


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
    out = core.jobmaster_lost("job", "silent", 0.0)
    assert sent(out) == ["release"]
    assert [s.state for s in core.report()] == ["RELEASING", "ALLOCATED"]
    assert out[0] == i.ReportSlotFailed(REF, "a", "silent"), "it may hear, and not be heard"
    assert core.jobmaster_lost("job", "silent", 1.0) == []


def test_a_jobmaster_that_has_gone_is_told_nothing() -> None:
    core = running("e")
    assert core.jobmaster_lost("job", "replaced", 0.0, "another") == []
    out = core.jobmaster_lost("job", "replaced", 0.0, REF.token)
    assert sent(out) == ["release"]
    assert not [instruction for instruction in out if isinstance(instruction, i.ReportSlotFailed)]


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
    out = core.stop(0.0, 0)
    assert sent(out) == ["release"]
    assert states(out) == {"e": "FAILED"}
    failure = only(out, i.ReportTaskState).update.error
    assert "was stopped" in failure["message"]
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
    assert slot.state is TaskSlotState.ACTIVE


def test_checkpoints_go_to_the_slots_and_back() -> None:
    core = running("e", "f")
    core.tasks.state(1, {"execution_id": "f", "state": "FINISHED", "error": None, "metrics": {}}, 0)
    refused, (sent, closing, unknown) = core.checkpoints.trigger(
        TriggerCheckpoint("job", {"a": ("e", "f", "nobody")}, 7, 5, {"mode": "EXACTLY_ONCE"})
    )
    assert refused == ()
    assert isinstance(sent, i.Send)
    assert sent.message == {
        "type": "trigger_checkpoint",
        "execution_ids": ["e"],
        "checkpoint_id": 7,
        "timestamp_ms": 5,
        "options": {"mode": "EXACTLY_ONCE"},
    }
    declines = [(r.message.execution_id, r.message.reason) for r in (closing, unknown)]  # type: ignore[union-attr]
    assert declines == [("f", DeclineReason.TASK_CLOSING), ("nobody", DeclineReason.TASK_NOT_READY)]
    deliveries = [
        core.checkpoints.completed(NotifyCheckpoint("job", {"a": ("e", "f")}, 7))[1],
        core.checkpoints.aborted(NotifyCheckpoint("job", {"a": ("f",)}, 8))[1],
    ]
    kinds = [[sent.message["type"] for sent in some] for some in deliveries]  # type: ignore[index, union-attr]
    assert kinds == [["checkpoint_complete"], []]
    message = {"execution_id": "e", "checkpoint_id": 7, "metrics": {"sync_ms": 1}}
    assert core.checkpoints.acknowledged(1, message, b"{}") == [
        i.ReportCheckpoint(REF, AcknowledgeCheckpoint("e", 7, {"sync_ms": 1}, "{}"))
    ]
    assert core.checkpoints.acknowledged(1, {**message, "execution_id": "nobody"}, b"{}") == []
    with pytest.raises(ProtocolError):
        core.checkpoints.acknowledged(1, message, b"\xff")
    message = {"execution_id": "e", "checkpoint_id": 7, "reason": "X", "failure": None}
    assert core.checkpoints.declined(1, message) == [i.ReportCheckpoint(REF, DeclineCheckpoint("e", 7, "X", None))]


def test_of_several_slots_that_hear_of_a_checkpoint_those_are_named_that_the_caller_does_not_have() -> None:
    core = running("e")
    tasks = {"elsewhere": ("x",), "a": ("e",)}
    for answer in (
        core.checkpoints.trigger(TriggerCheckpoint("job", tasks, 7, 5), REF.token),
        core.checkpoints.completed(NotifyCheckpoint("job", tasks, 7), REF.token),
        core.checkpoints.aborted(NotifyCheckpoint("job", tasks, 7), REF.token),
    ):
        unknown, out = answer
        assert unknown == ("elsewhere",)
        assert [x.message["execution_ids"] for x in out if isinstance(x, i.Send)] == [["e"]]
    assert core.checkpoints.completed(NotifyCheckpoint("job", tasks, 7), "of another") == (("elsewhere", "a"), [])


def test_a_report_says_for_which_of_the_job_s_jobmasters_a_slot_is() -> None:
    core = make()
    core.request_slot(replace(request(), jobmaster_epoch=3), 0.0)
    assert [s.jobmaster_epoch for s in core.report()] == [3, 0]
