"""The core against a world that loses, doubles and delays messages."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from firesteel.checkpoint.subtask_state import TaskState
from firesteel.core.errors import ProtocolError
from firesteel.graph.execution_states import EXECUTION_MOVES, JOB_MOVES
from firesteel.protocol import messages as m
from firesteel_jobmaster import instructions as do
from firesteel_jobmaster.checkpoint_work import Prepare, WorkResult
from firesteel_jobmaster.settings import JobMasterSettings
from tests.archives import job_archive
from tests.examples import examples
from tests.unit.jobmaster.jobs import Driver, failure, job, tasks_of, vertex

TMS = ("left", "right")
SLOTS = 3
RARELY = st.integers(0, 9).map(lambda n: n == 0)
STATES = ("INITIALIZING", "RUNNING", "FINISHED", "CANCELED", "FAILED")


class World(RuleBasedStateMachine):
    """Slots and tasks as the TaskManagers know them, and messages under way."""

    def __init__(self) -> None:
        super().__init__()
        self.d = Driver(
            job(vertex(1, 2, splits=["a", "b"]), vertex(2, 2, commits=True), vertex(3, 1, group="other")),
            JobMasterSettings(cancellation_timeout=60),
        )
        self.d.did(self.d.core.start())
        self.accepted: dict[str, str] = {}
        self.given: dict[tuple[str, int], m.Splits] = {}
        self.old: list[tuple[str, str, str]] = []
        self.adoptions_after_the_end = 0
        self.answered = 0
        self.acknowledged: set[tuple[str, int]] = set()

    @property
    def running(self) -> list[str]:
        return [e.id for e in self.d.core.graph.executions() if not e.state.is_terminal and e.slot is not None]

    def owner(self, id_: str) -> str:
        execution = self.d.core.graph.execution(id_)
        assert execution is not None
        assert execution.slot is not None
        return execution.slot.taskmanager_id

    # messages

    @rule()
    def resourcemanager_connects(self) -> None:
        self.d.did(self.d.core.resourcemanager_connected())

    @rule()
    def resourcemanager_is_lost(self) -> None:
        self.d.did(self.d.core.resourcemanager_lost("test"))

    @rule(tm=st.sampled_from(TMS), index=st.integers(0, 3))
    def offer(self, tm: str, index: int) -> None:
        for allocation in self.d.offer(index, tm=tm):
            self.accepted[allocation] = tm

    @rule()
    def all_slots_come(self) -> None:
        for index in range(SLOTS):
            self.offer(TMS[index % 2], index)

    @rule(data=st.data(), refused=RARELY)
    def submit_answered(self, data: st.DataObject, refused: bool) -> None:
        submits = self.d.seen(do.SubmitSlot)
        if not submits:
            return
        submit = data.draw(st.sampled_from(submits))
        core, ids = self.d.core, tasks_of(submit)
        self.d.did(core.submit_failed(submit.allocation_id, ids, "refused") if refused else core.tasks_submitted(ids))

    @precondition(lambda self: self.running)
    @rule(data=st.data(), state=st.sampled_from(STATES), at_all=RARELY)
    def task_state(self, data: st.DataObject, state: str, at_all: bool) -> None:
        if state in ("CANCELED", "FAILED") and not at_all:
            return
        id_ = data.draw(st.sampled_from(self.running))
        tm = self.owner(id_)
        self.old.append((id_, state, tm))
        self.report(id_, state, tm)

    @precondition(lambda self: self.old)
    @rule(data=st.data())
    def doubled_task_state(self, data: st.DataObject) -> None:
        self.report(*data.draw(st.sampled_from(self.old)))

    def report(self, id_: str, state: str, tm: str) -> None:
        kind = "user" if id_.endswith("_0_0") else "external"
        error = failure(kind) if state == "FAILED" else None
        self.d.report(id_, state, error, tm, numRecordsIn=1)

    @rule(data=st.data())
    def progress(self, data: st.DataObject) -> None:
        """What happens most of the time: everybody runs, sources finish, sinks come to their end of data."""
        for id_ in self.running:
            execution = self.d.core.graph.execution(id_)
            assert execution is not None
            if execution.vertex.needs_commit:
                self.d.did(self.d.core.end_of_data(m.ExecutionRef(id_)))
            else:
                self.report(id_, data.draw(st.sampled_from(("RUNNING", "FINISHED"))), self.owner(id_))

    @rule(data=st.data())
    def end_of_data(self, data: st.DataObject) -> None:
        id_ = data.draw(st.sampled_from(self.d.ids()))
        try:
            self.d.did(self.d.core.end_of_data(m.ExecutionRef(id_)))
        except ProtocolError:
            pass

    @rule(data=st.data())
    def request_splits(self, data: st.DataObject) -> None:
        id_ = data.draw(st.sampled_from(self.d.ids()))
        try:
            request = m.RequestSplits(id_, data.draw(st.integers(1, 3)))
            answer, instructions = self.d.core.request_splits(request)
            self.d.did(instructions)
            if answer.serial:
                assert self.given.setdefault((id_, answer.serial), answer) == answer
            names = [s["id"] for answer in self.given.values() for s in answer.splits]
            assert len(names) == len(set(names)), "a split was given twice"
        except ProtocolError:
            pass

    @rule(tm=st.sampled_from(TMS), index=st.integers(0, 3), at_all=RARELY)
    def slot_fails(self, tm: str, index: int, at_all: bool) -> None:
        if at_all:
            self.d.did(self.d.core.fail_slot(m.FailSlot(tm, f"{tm}-{index}", "killed")))

    @rule(tm=st.sampled_from(TMS), at_all=RARELY)
    def taskmanager_is_lost(self, tm: str, at_all: bool) -> None:
        if at_all:
            self.d.did(self.d.core.taskmanager_lost(tm, "silent"))

    @rule(tm=st.sampled_from(TMS), data=st.data())
    def heartbeat(self, tm: str, data: st.DataObject) -> None:
        ids = data.draw(st.lists(st.sampled_from(self.d.ids()), unique=True))
        report = {i: data.draw(st.sampled_from(STATES[:3])) for i in ids}
        self.d.did(self.d.core.taskmanager_heartbeat(tm, m.ExecutionReport(report)))

    @rule(name=st.sampled_from(("slots", "splits", "cancel", "reason", "idle", "nonsense")), at_all=RARELY)
    def timer(self, name: str, at_all: bool) -> None:
        if at_all:
            self.due(name)

    def due(self, name: str) -> None:
        set_ = [t for t in self.d.all if isinstance(t, do.SetTimer | do.ClearTimer) and t.name == name]
        if set_ and isinstance(set_[-1], do.SetTimer):
            self.d.clock.advance(set_[-1].seconds)
            self.d.did(self.d.core.timer_fired(name))

    @rule()
    def storage_answers(self) -> None:
        waiting = self.d.seen(do.CheckpointWork)[self.answered :]
        if waiting:
            self.answered += 1
            work = waiting[0].work
            number = self.answered if isinstance(work, Prepare) else 0
            self.d.did(self.d.core.checkpoint_work_done(WorkResult(work, stored=True, checkpoint_id=number)))

    @property
    def waiting_for_state(self) -> list[tuple[str, int]]:
        triggered = [(id_, t.checkpoint_id) for t in self.d.seen(do.SendTriggerCheckpoint) for id_ in t.execution_ids]
        return [pair for pair in triggered if pair not in self.acknowledged]

    @rule()
    def tasks_acknowledge(self) -> None:
        for id_, number in self.waiting_for_state:
            self.acknowledged.add((id_, number))
            state = TaskState(finished=True).to_bytes().decode()
            self.d.did(self.d.core.acknowledge_checkpoint(m.AcknowledgeCheckpoint(id_, number, {}, state)))

    @rule(at_all=RARELY)
    def no_resources(self, at_all: bool) -> None:
        if at_all:
            self.d.did(self.d.core.notify_no_resources(m.NotifyNoResources(3, 2, "")))

    @rule(at_all=RARELY)
    def user_cancels(self, at_all: bool) -> None:
        if at_all:
            self.d.did(self.d.core.cancel("user"))

    @rule(at_all=RARELY)
    def another_dispatcher_leads(self, at_all: bool) -> None:
        if at_all:
            self.adoptions_after_the_end += self.d.core.is_terminal
            self.d.did(self.d.core.adopted())

    @rule(seconds=st.integers(0, 100))
    def time_passes(self, seconds: int) -> None:
        self.d.clock.advance(seconds)

    # what always holds

    @invariant()
    def only_legal_moves(self) -> None:
        graph = self.d.core.graph
        for t in graph.job.history:
            assert t.after in JOB_MOVES[t.before]
        for execution in graph.executions():
            for move in execution.machine.history:
                assert move.after in EXECUTION_MOVES[move.before]

    @invariant()
    def deployed_all_or_nothing(self) -> None:
        submits = self.d.seen(do.SubmitSlot)
        assert len({s.allocation_id for s in submits}) == len(submits)
        assert len(submits) in (0, SLOTS)

    @invariant()
    def every_accepted_slot_is_held_or_given_back(self) -> None:
        released = {r.allocation_id for r in self.d.seen(do.ReleaseSlot)}
        slots = {s.allocation_id for s in self.d.core.pool.slots()}
        assert set(self.accepted) <= released | slots
        if self.d.core.is_terminal:
            assert not slots

    @invariant()
    def committed_only_when_all_were_through(self) -> None:
        if self.d.seen(do.NotifyCheckpointComplete):
            for execution in self.d.core.graph.executions():
                assert execution.end_of_data or execution.machine.history[-1].after.name in (
                    "FINISHED",
                    "FAILED",
                    "CANCELED",
                    "CANCELING",
                )
                reached = {t.after.name for t in execution.machine.history}
                assert execution.end_of_data or "FINISHED" in reached

    @invariant()
    def the_end_is_told_once_and_is_consistent(self) -> None:
        core = self.d.core
        assert len(self.d.seen(do.ReportEnd)) == int(core.is_terminal) + self.adoptions_after_the_end
        if core.is_terminal:
            states = {e.state.name for e in core.graph.executions()}
            assert states <= {"FINISHED", "CANCELED", "FAILED"}
            assert (core.state.name == "FINISHED") == (states == {"FINISHED"}) or core.state.name == "CANCELED"
            assert (job_archive(core)["failure"] is not None) == (core.state.name == "FAILED") or (
                core.state.name == "CANCELED"
            )

    @invariant()
    def reports_follow_the_state(self) -> None:
        reported: list[Any] = self.d.seen(do.ReportJobState)
        assert reported[-1].state == self.d.core.state.name

    def teardown(self) -> None:
        """Whatever happened: when slots come and every task answers, the job ends."""
        core = self.d.core
        for index in range(10, 10 + SLOTS):
            for allocation in self.d.offer(index, tm="left"):
                self.accepted[allocation] = "left"
        if core.state.name in ("FAILING", "CANCELLING"):
            for id_ in self.running:
                self.report(id_, "CANCELED", self.owner(id_))
        for id_ in self.running:
            execution = core.graph.execution(id_)
            assert execution is not None
            if execution.vertex.needs_commit:
                self.d.did(core.end_of_data(m.ExecutionRef(id_)))
            else:
                self.report(id_, "FINISHED", self.owner(id_))
        for _ in range(2):  # the first one may have been declined by a task that has finished; another one is due then
            while self.answered < len(self.d.seen(do.CheckpointWork)) or self.waiting_for_state:
                self.storage_answers()
                self.tasks_acknowledge()
            self.due("checkpoint")
        for notice in self.d.seen(do.NotifyCheckpointComplete):
            for id_ in set(notice.execution_ids) & set(self.running):
                self.report(id_, "FINISHED", self.owner(id_))
        if do.SetTimer("reason", 0.2) in self.d.all:
            self.d.did(core.timer_fired("reason"))
        assert core.is_terminal, (core.state, [(e.id, e.state) for e in core.graph.executions()])
        self.every_accepted_slot_is_held_or_given_back()
        self.the_end_is_told_once_and_is_consistent()


World.TestCase.settings = settings(max_examples=examples(60), stateful_step_count=30, deadline=None)
TestWorld = World.TestCase


@pytest.mark.long
class TestManyWorlds(World.TestCase):  # type: ignore[misc, valid-type] # made at run time
    settings = settings(max_examples=5000, stateful_step_count=30, deadline=None, derandomize=False)
