"""A job whose source has an enumerator that a user wrote, as the JobMaster sees it: events in, instructions out."""

from __future__ import annotations

from typing import Any

import pytest

from firesteel.checkpoint.subtask_state import TaskState
from firesteel.core.errors import ProtocolError
from firesteel.functions.source import Split
from firesteel.graph.execution_states import ExecutionState
from firesteel.graph.job_graph import JobEdge, JobGraph
from firesteel.protocol import messages as m
from firesteel.protocol import operator_events as events
from firesteel.protocol.split_messages import OperatorEvents
from firesteel_jobmaster import instructions as do
from firesteel_jobmaster.checkpoint_work import Complete, WorkResult
from firesteel_jobmaster.restart_strategies import FixedDelay
from firesteel_jobmaster.settings import JobMasterSettings
from tests.unit.jobmaster import jobs
from tests.unit.jobmaster.jobs import Driver, failure, vertex_id
from tests.unit.jobmaster_checkpoints.harness import FakeJob

ENUMERATOR, READERS, MAPS = f"{vertex_id(9)}_0_0", [f"{vertex_id(1)}_{i}_0" for i in (0, 1)], f"{vertex_id(2)}_0_0"
A, B = (Split(name, {}).to_plain() for name in "ab")


def graph(**sink: Any) -> JobGraph:
    return jobs.with_user_enumerator(jobs.two_by_two(**sink))


def events_of(d: Driver) -> list[tuple[int, list[str]]]:
    """What the enumerator heard since the last look: numbers, and kinds with subtasks."""
    events = [
        (i.number, [f"{e['type']} {e.get('subtask', '')}".strip() for e in i.events])
        for i in d.seen(do.SendOperatorEvents)
    ]
    d.all = [i for i in d.all if not isinstance(i, do.SendOperatorEvents)]
    return events


def send_events(d: Driver, number: int, *said: events.Event, by: str = ENUMERATOR) -> list[do.Instruction]:
    return d.did(d.core.operator_events(OperatorEvents(by, number, said)))


def ask(d: Driver, reader: str, number: int) -> m.Splits:
    answer, instructions = d.core.request_splits(m.RequestSplits(reader, number))
    d.did(instructions)
    return answer


def test_requests_and_splits_go_through_the_jobmaster() -> None:
    d = Driver(graph())
    d.running()
    assert events_of(d) == [(1, ["add_reader 0"]), (2, ["add_reader 1"])]
    assert ask(d, READERS[1], 1) == m.Splits((), False)
    assert ask(d, READERS[1], 1) == m.Splits((), False)
    assert ask(d, READERS[1], 2) == m.Splits((), False)
    assert events_of(d) == [(3, ["request_split 1"])], "asked again before it got something: heard once"
    assert not d.seen(do.SetTimer) or d.seen(do.SetTimer)[-1].name != "splits"
    send_events(d, 1, events.assign_splits(1, [A]), events.assign_splits(0, [B]), events.no_more_splits(1))
    send_events(d, 1, events.assign_splits(1, [A]))
    pushed = [(i.execution_id, [s["id"] for s in i.given.splits], i.given.no_more, i.given.serial)
              for i in d.seen(do.PushSplits)]  # fmt: skip
    assert pushed == [(READERS[1], ["a"], False, 1), (READERS[0], ["b"], False, 1), (READERS[1], [], True, 2)]
    ask(d, READERS[1], 3)
    assert events_of(d) == [(4, ["request_split 1"])]


def test_what_is_for_the_enumerator_waits_until_its_task_runs() -> None:
    d = Driver(graph())
    d.deployed()
    for reader in READERS:
        d.report(reader, "RUNNING")
    ask(d, READERS[0], 1)
    assert events_of(d) == []
    d.report(ENUMERATOR, "RUNNING")
    assert events_of(d) == [(1, ["add_reader 0", "add_reader 1", "request_split 0"])]


def test_a_reader_may_ask_before_its_state_is_reported() -> None:
    d = Driver(graph())
    d.deployed()
    d.report(ENUMERATOR, "RUNNING")
    ask(d, READERS[0], 1)
    d.report(READERS[0], "RUNNING")
    assert events_of(d) == [(1, ["add_reader 0", "request_split 0"])]


def test_an_enumerator_shares_a_slot_and_a_region_with_its_readers() -> None:
    by_one = JobGraph(
        **{**jobs.two_by_two().__dict__, "edges": (JobEdge(0, vertex_id(1), vertex_id(2), vertex_id(1), 0,
           "FORWARD"),)}
    )  # fmt: skip
    assert len(Driver(by_one).core.graph.regions) == 2
    d = Driver(jobs.with_user_enumerator(by_one))
    assert len(d.core.graph.regions) == 1
    assert d.core.graph.slots_needed == 2


def test_readers_and_enumerator_begin_together_again() -> None:
    d = Driver(graph(), JobMasterSettings(new_restart_strategy=lambda: FixedDelay(1, 0.0)))
    d.running()
    ask(d, READERS[0], 1)
    send_events(d, 1, events.assign_splits(0, [A]))
    events_of(d)
    d.report(READERS[1], "FAILED", failure())
    d.finish_cancelled()
    d.did(d.core.timer_fired("restart"))
    again = [id_.removesuffix("_0") + "_1" for id_ in (ENUMERATOR, *READERS)]
    assert set(again) <= set(d.ids())
    d.all.clear()
    assert send_events(d, 2, events.assign_splits(0, [B])) == [], "an attempt that has ended"
    for id_ in again:
        d.report(id_, "RUNNING")
    assert events_of(d) == [(1, ["add_reader 0"]), (2, ["add_reader 1"])]
    ask(d, again[1], 1)
    send_events(d, 1, events.assign_splits(0, [A]), by=again[0])
    assert [i.given.serial for i in d.seen(do.PushSplits)] == [1]


@pytest.mark.parametrize(
    "event", [events.assign_splits(7, [A]), {"type": "dance", "subtask": 0}, {"type": "assign_splits"}]
)
def test_what_can_not_be_understood_fails_the_job(event: Any) -> None:
    d = Driver(graph())
    d.running()
    send_events(d, 1, event)
    assert d.core.state.name == "FAILING"


def test_what_is_lost_fails_the_job() -> None:
    d = Driver(graph())
    d.running()
    send_events(d, 2, events.assign_splits(0, [A]))
    assert d.core.state.name == "FAILING"
    assert "number 2 came behind 0" in str(d.core.graph.root_failure)
    other = Driver(graph())
    other.running()
    other.did(other.core.operator_events_lost(ENUMERATOR))
    assert "did not hear of its readers" in str(other.core.graph.root_failure)


def test_nobody_else_may_hand_out_splits() -> None:
    d = Driver(graph())
    d.running()
    with pytest.raises(ProtocolError, match="runs no enumerator"):
        send_events(d, 1, events.assign_splits(0, [A]), by=MAPS)


def test_an_enumerator_ends_when_its_readers_have() -> None:
    d = Driver(graph())
    d.running()
    events_of(d)
    d.report(READERS[0], "FINISHED")
    assert events_of(d) == []
    d.report(READERS[1], "FINISHED")
    assert events_of(d) == [(3, ["finish"])]
    for id_ in (ENUMERATOR, MAPS):
        d.report(id_, "FINISHED")
    assert d.core.state.name == "RUNNING"
    d.report(f"{vertex_id(2)}_1_0", "FINISHED")
    assert d.core.state.name == "FINISHED"


def test_the_last_commit_does_not_wait_for_it() -> None:
    d = Driver(graph(commits=True))
    d.running()
    for reader in READERS:
        d.report(reader, "FINISHED")
    for subtask in (0, 1):
        d.did(d.core.end_of_data(m.ExecutionRef(f"{vertex_id(2)}_{subtask}_0")))
    (prepare,) = [work.work for work in d.seen(do.CheckpointWork)]
    d.did(d.core.checkpoint_work_done(WorkResult(prepare, checkpoint_id=1)))
    triggered = {id_ for trigger in d.seen(do.SendTriggerCheckpoint) for id_ in trigger.execution_ids}
    assert triggered == {f"{vertex_id(2)}_{subtask}_0" for subtask in (0, 1)}
    for id_ in triggered:
        state = TaskState(finished=True).to_bytes().decode()
        d.did(d.core.acknowledge_checkpoint(m.AcknowledgeCheckpoint(id_, 1, {}, state)))
    complete = d.seen(do.CheckpointWork)[-1].work
    assert isinstance(complete, Complete), "nobody has asked the enumerator for its state"


# Checkpoints


def triggered(job: FakeJob) -> set[str]:
    return {id_ for i in job.instructions_of(do.SendTriggerCheckpoint) for id_ in i.execution_ids}


def test_its_state_is_taken_when_all_readers_have_acknowledged() -> None:
    job = FakeJob(graph()).run()
    checkpoint_id = job.begin()
    assert triggered(job) == set(READERS)
    job.acknowledge(job.execution(1, 0), checkpoint_id, splits_serial=4)
    assert triggered(job) == set()
    job.acknowledge(job.execution(1, 1), checkpoint_id, splits_serial=2)
    assert triggered(job) == {ENUMERATOR}
    for subtask in (0, 1):
        job.acknowledge(job.execution(2, subtask), checkpoint_id)
    assert not job.work
    job.acknowledge(job.execution(9, 0), checkpoint_id, splits_serial=17)
    (complete,) = (work for work in job.work if isinstance(work, Complete))
    states = {o.operator_id: o.enumerator for o in complete.metadata.operators if o.enumerator is not None}
    assert {id_: state.state for id_, state in states.items()} == {
        vertex_id(1): {"serials": {"0": 4, "1": 2}, "number": 17}
    }
    job.do_all()
    assert job.safe == [(vertex_id(1), {0: 4, 1: 2})]


def test_without_readers_it_is_asked_at_once() -> None:
    job = FakeJob(graph()).run()
    for subtask in (0, 1):
        job.move(job.execution(1, subtask), ExecutionState.FINISHED)
    job.begin()
    assert triggered(job) == {ENUMERATOR, MAPS, f"{vertex_id(2)}_1_0"}


def test_the_last_checkpoint_is_known_though_the_enumerator_has_not_ended() -> None:
    job = FakeJob(graph()).run()
    checkpoint_id = job.begin()
    for execution in job.executions:
        if execution.vertex.enumerates is None:
            job.acknowledge(execution, checkpoint_id, finished=True)
    job.acknowledge(job.execution(9, 0), checkpoint_id)
    job.do_all()
    job.coordinator.all_data_ended()
    assert not job.work, "no other one is wanted"


def test_what_is_on_its_way_is_kept_with_the_reader_that_it_was_for() -> None:
    d = Driver(graph())
    d.running()
    send_events(d, 1, events.assign_splits(0, [A]), events.assign_splits(1, [B]))
    splits = d.core._job.sources.assigner
    assert splits is not None
    state = splits.snapshot(vertex_id(1), {0: 1, 1: 0}, 1)
    assert state.to_plain() == {"name": "user", "state": None, "returned": [{**B, "subtask": 1}]}
    with pytest.raises(ProtocolError, match="has said 2 things before its snapshot, and 1 have come"):
        splits.snapshot(vertex_id(1), {0: 1, 1: 0}, 2)
