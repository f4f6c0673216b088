"""The JobMaster's decisions about data: splits, the end of data, commits."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import Any

import pytest

from firesteel.checkpoint.handles import InlineState
from firesteel.checkpoint.subtask_state import Committables, OperatorSubtaskState, TaskState
from firesteel.client.job_client import failure_as_error
from firesteel.config import Settings
from firesteel.core.errors import JobFailedError, ProtocolError
from firesteel.functions.source import BuiltInEnumerator, Plain, Split
from firesteel.protocol import messages as m
from firesteel.protocol.deployment import TaskFailure
from firesteel.protocol.message import RpcCode, RpcFault
from firesteel_jobmaster import instructions as do
from firesteel_jobmaster.checkpoint_work import Complete, Prepare, WorkResult
from firesteel_jobmaster.settings import JobMasterSettings
from tests.archives import job_archive
from tests.unit.jobmaster.jobs import Driver, failure, two_by_two, vertex_id


def test_commit_when_every_task_is_finished_or_at_its_end_of_data() -> None:
    d = Driver(two_by_two(commits=True))
    d.running()
    source_0, source_1, sink_0, sink_1 = d.ids()
    d.report(source_0, "FINISHED")
    d.did(d.core.end_of_data(m.ExecutionRef(sink_0)))
    d.did(d.core.end_of_data(m.ExecutionRef(sink_1)))
    assert not d.seen(do.CheckpointWork)
    d.report(source_1, "FINISHED")
    (prepare,) = [work.work for work in d.seen(do.CheckpointWork)]
    d.did(d.core.checkpoint_work_done(WorkResult(prepare, checkpoint_id=1)))
    assert {id_ for trigger in d.seen(do.SendTriggerCheckpoint) for id_ in trigger.execution_ids} == {sink_0, sink_1}
    prepared = OperatorSubtaskState(committables=(Committables(1, 1, (InlineState(b"a part"),)),))
    for sink in (sink_0, sink_1):
        state = TaskState({vertex_id(2): prepared}, finished=True).to_bytes().decode()
        d.did(d.core.acknowledge_checkpoint(m.AcknowledgeCheckpoint(sink, 1, {}, state)))
    complete = d.seen(do.CheckpointWork)[-1].work
    assert isinstance(complete, Complete)
    assert [o.finished for o in complete.metadata.operators] == [True, True]
    assert not d.seen(do.NotifyCheckpointComplete), "it is not stored yet"
    d.did(d.core.checkpoint_work_done(WorkResult(complete, stored=True, location="memory:1")))
    notices = d.seen(do.NotifyCheckpointComplete)
    assert {id_ for notice in notices for id_ in notice.execution_ids} == {sink_0, sink_1}
    assert job_archive(d.core)["checkpoints"] is None, "the job takes no checkpoints, as people see it"
    d.did(d.core.end_of_data(m.ExecutionRef(sink_1)))
    assert d.seen(do.CheckpointWork)[-1].work is complete, "said again"
    d.report(sink_0, "FINISHED")
    d.report(sink_1, "FINISHED")
    assert d.core.state.name == "FINISHED"


def committing(d: Driver) -> tuple[str, str]:
    """All data have ended, and what is to be committed is on its way into the store; the sinks."""
    d.running()
    source_0, source_1, sink_0, sink_1 = d.ids()
    for source in (source_0, source_1):
        d.report(source, "FINISHED")
    d.did(d.core.end_of_data(m.ExecutionRef(sink_0)))
    d.did(d.core.end_of_data(m.ExecutionRef(sink_1)))
    d.did(d.core.checkpoint_work_done(WorkResult(d.seen(do.CheckpointWork)[-1].work, checkpoint_id=1)))
    prepared = OperatorSubtaskState(committables=(Committables(1, 1, (InlineState(b"a part"),)),))
    for sink in (sink_0, sink_1):
        state = TaskState({vertex_id(2): prepared}, finished=True).to_bytes().decode()
        d.did(d.core.acknowledge_checkpoint(m.AcknowledgeCheckpoint(sink, 1, {}, state)))
    return sink_0, sink_1


def test_a_slot_that_is_lost_between_two_commits_is_no_end_of_the_job() -> None:
    d = Driver(two_by_two(commits=True))
    sink_0, sink_1 = committing(d)
    d.did(d.core.checkpoint_work_done(WorkResult(d.seen(do.CheckpointWork)[-1].work, stored=True, location="memory:1")))
    d.report(sink_0, "FINISHED")
    lost = d.core.graph.execution(sink_1)
    assert lost is not None
    assert lost.slot is not None
    index = lost.slot.slot_index
    d.did(d.core.fail_slot(m.FailSlot("tm", lost.slot.allocation_id, "killed")))
    assert d.core.state.name == "RESTARTING", "though the job has no restart strategy"
    d.clock.advance(1)
    d.did(d.core.timer_fired("restart"))
    d.offer(index + 5)
    again = [task for submit in d.seen(do.SubmitSlot) for task in submit.deployment.tasks if task.restore is not None]
    assert {task.vertex_id for task in again} == {vertex_id(1), vertex_id(2)}
    for task in again:
        assert task.restore is not None
        assert task.restore["finished"]
        assert bool(task.restore["operators"]) is (task.vertex_id == vertex_id(2))


def test_a_slot_that_is_lost_before_that_is_stored_ends_a_job_without_a_strategy() -> None:
    d = Driver(two_by_two(commits=True))
    _, sink_1 = committing(d)
    lost = d.core.graph.execution(sink_1)
    assert lost is not None
    assert lost.slot is not None
    d.did(d.core.fail_slot(m.FailSlot("tm", lost.slot.allocation_id, "killed")))
    d.finish_cancelled()
    assert not d.seen(do.NotifyCheckpointComplete)
    d.did(d.core.checkpoint_work_done(WorkResult(d.seen(do.CheckpointWork)[-1].work, stored=True, location="memory:1")))
    assert not d.seen(do.NotifyCheckpointComplete), "nobody is to commit for a job that fails"
    d.finish_cancelled()
    assert d.core.state.name == "FAILED"


def test_what_is_to_be_committed_is_stored_again_and_again_until_it_can_be() -> None:
    d = Driver(two_by_two(commits=True))
    committing(d)
    for attempt in range(2, 6):
        d.did(d.core.checkpoint_work_done(WorkResult(d.seen(do.CheckpointWork)[-1].work, error="no space left")))
        assert d.core.state.name == "RUNNING"
        assert job_archive(d.core)["checkpoints"]["counts"]["failed"] == attempt - 1
        assert do.SetTimer("checkpoint", 1.0) in d.all
        d.clock.advance(1)
        d.did(d.core.timer_fired("checkpoint"))
        for work in [instruction.work for instruction in d.seen(do.CheckpointWork)]:
            if isinstance(work, Prepare) and work.number == attempt:
                d.did(d.core.checkpoint_work_done(WorkResult(work, checkpoint_id=attempt)))
        for sink in d.ids()[2:]:
            state = TaskState(finished=True).to_bytes().decode()
            d.did(d.core.acknowledge_checkpoint(m.AcknowledgeCheckpoint(sink, attempt, {}, state)))


def test_no_commit_once_the_job_fails() -> None:
    d = Driver(two_by_two(commits=True))
    d.running()
    source_0, source_1, sink_0, sink_1 = d.ids()
    d.report(source_0, "FINISHED")
    d.did(d.core.end_of_data(m.ExecutionRef(sink_0)))
    d.report(source_1, "FAILED", failure())
    d.did(d.core.end_of_data(m.ExecutionRef(sink_1)))
    d.finish_cancelled()
    assert not d.seen(do.CheckpointWork)
    assert d.core.state.name == "FAILED"


def test_end_of_data_of_a_task_that_has_nothing_to_commit_is_refused() -> None:
    d = Driver(two_by_two())
    d.running()
    with pytest.raises(ProtocolError, match="nothing to commit"):
        d.core.end_of_data(m.ExecutionRef(d.ids()[0]))
    for call in (
        lambda: d.core.end_of_data(m.ExecutionRef("nobody")),
        lambda: d.core.request_splits(m.RequestSplits("nobody", 1)),
    ):
        with pytest.raises(RpcFault, match="no task") as unknown:
            call()
        assert unknown.value.code is RpcCode.UNKNOWN_EXECUTION


def test_splits_are_handed_out_once_and_the_last_says_so() -> None:
    d = Driver(two_by_two())
    d.running()
    first, second = d.ids()[:2]
    split_ids: list[Any] = []
    answers = [d.core.request_splits(m.RequestSplits(i, n))[0] for n in (1, 2) for i in (first, second)]
    for answer in answers:
        split_ids += [s["id"] for s in answer.splits]
    assert split_ids == ["a", "b", "c"]
    assert [a.no_more for a in answers] == [False, False, True, True]


def test_requests_of_strangers_are_refused() -> None:
    d = Driver(two_by_two())
    d.running()
    with pytest.raises(ProtocolError, match="not a source"):
        d.core.request_splits(m.RequestSplits(d.ids()[2], 1))


class Trickle(BuiltInEnumerator):
    """Has a split only when the test puts one in."""

    left: list[Split]
    done = False

    def __init__(self) -> None:
        self.left = []

    def next_splits(self, subtask: int, parallelism: int) -> list[Split]:
        if self.left and self.left[0].id == "bug":
            raise RuntimeError("enumerator bug")
        return [self.left.pop()] if self.left else []

    @property
    def exhausted(self) -> bool:
        return self.done and not self.left

    def add_splits_back(self, splits: Sequence[Split]) -> None:
        self.left += splits

    def snapshot(self) -> Plain:
        return None

    def restore(self, state: Plain) -> None: ...


def test_a_subtask_that_waits_gets_splits_that_come_later() -> None:
    source = Trickle()
    d = Driver(two_by_two(), create=lambda *_: source)
    d.running()
    answer, instructions = d.core.request_splits(m.RequestSplits(d.ids()[0], 1))
    assert answer == m.Splits((), False)
    assert instructions == [do.SetTimer("splits", 1.0)]
    assert d.core.timer_fired("splits") == [do.SetTimer("splits", 1.0)]
    source.left.append(Split("late", {}))
    source.done = True
    (push,) = d.core.timer_fired("splits")
    assert isinstance(push, do.PushSplits)
    assert push.execution_id == d.ids()[0]
    assert (push.given.splits[0]["id"], push.given.no_more, push.given.serial) == ("late", True, 1)
    assert d.core.request_splits(m.RequestSplits(d.ids()[0], 1))[0] == push.given  # the empty answer was lost


def test_a_request_that_comes_again_gets_the_same_splits() -> None:
    d = Driver(two_by_two())
    d.running()
    first, second = d.ids()[:2]
    answer, _ = d.core.request_splits(m.RequestSplits(first, 1))
    assert ([s["id"] for s in answer.splits], answer.serial) == (["a"], 1)
    assert d.core.request_splits(m.RequestSplits(first, 1)) == (answer, [])
    assert d.core.request_splits(m.RequestSplits(second, 1))[0].splits[0]["id"] == "b"
    last, _ = d.core.request_splits(m.RequestSplits(first, 2, taken=1))
    assert ([s["id"] for s in last.splits], last.no_more, last.serial) == (["c"], True, 2)
    assert d.core.request_splits(m.RequestSplits(first, 1))[0] == m.Splits((), False)  # it was late
    assert d.core.request_splits(m.RequestSplits(first, 2, taken=1))[0] == last


def test_splits_that_were_lost_are_given_again_behind_later_requests() -> None:
    """A reader that is pushed splits asks again, while the answer to an earlier request is lost."""
    source = Trickle()
    d = Driver(two_by_two(), create=lambda *_: source)
    d.running()
    reader = d.ids()[0]
    d.core.request_splits(m.RequestSplits(reader, 1))
    source.left.append(Split("pushed", {}))
    push = d.core.timer_fired("splits")[0]
    assert isinstance(push, do.PushSplits)
    source.left.append(Split("lost", {}))
    lost, _ = d.core.request_splits(m.RequestSplits(reader, 2))
    source.left.append(Split("next", {}))
    following, _ = d.core.request_splits(m.RequestSplits(reader, 3, taken=1))
    assert [push.given.serial, lost.serial, following.serial] == [1, 2, 3]
    assert d.core.request_splits(m.RequestSplits(reader, 2))[0] == lost


def test_a_bug_in_an_enumerator_fails_the_job_cleanly() -> None:
    source = Trickle()
    d = Driver(two_by_two(), create=lambda *_: source)
    d.running()
    source.left.append(Split("bug", {}))
    answer, instructions = d.core.request_splits(m.RequestSplits(d.ids()[0], 1))
    d.did(instructions)
    assert answer == m.Splits((), False)
    assert d.core.state.name == "FAILING"
    assert "enumerator bug" in job_archive(d.core)["failure"]["message"]
    assert job_archive(d.core)["failure"]["kind"] == "internal"


def test_an_unknown_enumerator_fails_the_job_at_its_start() -> None:
    graph = two_by_two()
    plain = graph.to_plain()
    plain["vertices"][0]["source"]["enumerator"] = "nonsense"
    d = Driver(type(graph).from_plain(plain))
    d.did(d.core.start())
    assert d.core.state.name == "FAILED"
    assert "nonsense" in job_archive(d.core)["failure"]["message"]
    assert d.seen(do.ReportEnd)


def test_files_that_are_not_on_the_jobmasters_host_fail_the_job_with_their_name() -> None:
    graph = two_by_two()
    plain = graph.to_plain()
    plain["vertices"][0]["source"].update(enumerator="files", config={"paths": ["/no/such/folder"]})
    d = Driver(type(graph).from_plain(plain))
    d.did(d.core.start())
    assert d.core.state.name == "FAILED"
    failure = job_archive(d.core)["failure"]
    assert failure["kind"] == "user"
    assert failure["error_class"] == "firesteel.core.errors.ProgramError"
    assert (
        f"source 'V1': file source: '/no/such/folder' does not exist on {socket.gethostname()}." in failure["message"]
    )
    error = failure_as_error(TaskFailure.from_plain(failure), "id", "words")
    assert type(error) is JobFailedError
    assert "'/no/such/folder' does not exist" in str(error)


def test_a_disk_that_fails_while_files_are_listed_is_not_the_users_fault() -> None:
    def broken(*_: Any) -> BuiltInEnumerator:
        raise OSError(5, "Input/output error", "/data")

    d = Driver(two_by_two(), create=broken)
    d.did(d.core.start())
    failure = job_archive(d.core)["failure"]
    assert failure["kind"] == "external"
    assert "Input/output error: '/data', on" in failure["message"]


def test_slots_get_what_the_cluster_says_below_what_the_job_says() -> None:
    cluster = Settings(
        {"firesteel.batch.max-records": "7", "firesteel.exchange.channel-window": "1 mb", "rest.port": "1"}
    )
    graph = two_by_two()
    plain = graph.to_plain() | {"config": {"firesteel.batch.max-records": "9"}}
    d = Driver(type(graph).from_plain(plain), JobMasterSettings.read(cluster, plain["config"]))
    d.deployed()
    for submit in d.seen(do.SubmitSlot):
        assert submit.deployment.config == {
            "firesteel.batch.max-records": "9",
            "firesteel.exchange.channel-window": "1 mb",
        }
