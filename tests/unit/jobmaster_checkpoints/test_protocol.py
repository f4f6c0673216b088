"""The protocol of checkpoints as a state machine: whatever the order of messages, failures and answers."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from firesteel.graph.execution_states import ExecutionState
from firesteel_jobmaster import instructions as do
from firesteel_jobmaster.checkpoint_work import Complete, Discard, Dispose, Undo, Work
from firesteel_jobmaster.checkpoints.coordinator import LATE_SECONDS, LATE_TIMER
from firesteel_jobmaster.checkpoints.pending import CheckpointCause, CheckpointPhase, PendingCheckpoint
from tests.examples import examples
from tests.unit.jobmaster import jobs
from tests.unit.jobmaster_checkpoints.harness import FakeJob


class Checkpoints(RuleBasedStateMachine):
    """Tasks, storage and people do what they like."""

    @initialize(
        concurrent=st.integers(1, 3),
        retained=st.integers(1, 3),
        pause=st.sampled_from([0.0, 4.0, 25.0]),
        tolerable=st.integers(0, 3),
    )
    def begin(self, concurrent: int, retained: int, pause: float, tolerable: int) -> None:
        graph = jobs.job(jobs.vertex(1, 2, splits=["a"]), jobs.vertex(2, 1), jobs.vertex(3, 2))
        self.job = FakeJob(
            graph,
            max_concurrent=concurrent,
            retained=retained,
            min_pause=pause,
            tolerable_failures=tolerable,
            timeout=30.0,
        ).run()
        self.triggered: dict[int, set[str]] = {}
        self.acknowledged: dict[int, set[str]] = {}
        self.needed: dict[int, set[str]] = {}
        self.committed: list[int] = []
        self.aborted: set[int] = set()
        self.seen: set[int] = set()
        self.started_ms = self.job.clock.epoch_ms()
        self.last_end = float("-inf")
        self.last_completed = 0
        self.ended = False
        self.manual = 0
        self.late: list[Work] = []
        """What calls that were given up may still do."""

    def teardown(self) -> None:
        """In the end everything comes to rest."""
        job = self.job
        while self.late:
            self.a_call_that_hung_goes_on()
        job.coordinator.close("FINISHED")
        for _ in range(3):
            job.do_all()
            job.advance(6.0)
        assert not job.coordinator.pending
        assert job.storage.closed or not self.seen
        assert not job.storage.store
        assert not job.storage.files, f"files are left: {job.storage.files}"

    @property
    def running(self) -> list[Any]:
        return [e for e in self.job.executions if e.state is ExecutionState.RUNNING]

    @property
    def waiting(self) -> list[PendingCheckpoint]:
        """Checkpoints that tasks may answer, the oldest first."""
        waiting = [p for p in self.job.coordinator.pending if p.phase is CheckpointPhase.WAITING and p.given_up is None]
        return sorted(waiting, key=lambda pending: pending.checkpoint_id)

    @property
    def over(self) -> list[int]:
        """Checkpoints that were triggered and that nobody goes on from."""
        return sorted(self.triggered.keys() - self._known())

    def _known(self) -> set[int]:
        """Checkpoints under way, and complete ones that are, or may be, in the store: of these there is no
        acknowledgement but those that come again."""
        job = self.job
        complete = {id_ for id_ in self.triggered if job.completed.has(id_)}
        return complete | {*job.storage.store, *(p.checkpoint_id for p in job.coordinator.pending)}

    def _some_wait(self, count: int) -> None:
        """So many are under way, if that may be."""
        for _ in range(count):
            if len(self.waiting) < count:
                self.somebody_wants_a_checkpoint()
            while self.job.work and any(p.phase is CheckpointPhase.PREPARING for p in self.job.coordinator.pending):
                self.job.do_work()
                self.instructions_are_right()  # at once: what is complete now may be subsumed by what comes next

    def _all_there_is(self) -> tuple[Any, ...]:
        job = self.job
        states = {p.checkpoint_id: dict(p.states) for p in job.coordinator.pending}
        return len(job.work), len(job.out), job.snapshots, job.counts(), states, job.completed.ids()

    # -- what happens

    @rule(seconds=st.sampled_from([0.5, 5.0, 10.0, 31.0]))
    def time_passes(self, seconds: float) -> None:
        self.job.advance(seconds)

    @precondition(lambda self: self.job.work)
    @rule(fate=st.sampled_from(["done", "done", "done", "done", "failed", "unknown"]))
    def work_is_done(self, fate: str) -> None:
        if fate == "unknown" and isinstance(self.job.work[0], Complete):
            self.job.do_work(error="no answer", stored=True)
        elif fate != "done" and not self.ended:
            work = self.job.work[0]
            self.job.do_work(error="no space")
            if not isinstance(work, Complete):  # nobody repeats to remove files: that is done here
                self.job.storage.do(work)
        else:
            self.job.do_work()

    @precondition(lambda self: self.job.work and not self.ended)
    @rule(happens=st.booleans(), late=st.booleans())
    def work_hangs(self, happens: bool, late: bool) -> None:
        """It is given up, and has happened or not; what is harmless may still happen later."""
        work = self.job.work[0]
        hung: dict[str, Any] = {"error": "no answer in time", "hung": True}
        match work:
            case Complete():
                self.job.do_work(**hung, stored=happens)
            case Undo():
                self.job.do_work(**hung, removed=happens)
            case Discard() | Dispose():
                self.job.do_work(**hung)
                self.late.append(work)  # nobody repeats to remove files: they go some time
                if not late:
                    self.a_call_that_hung_goes_on()
            case _:
                self.job.do_work(**hung)

    @precondition(lambda self: self.late)
    @rule()
    def a_call_that_hung_goes_on(self) -> None:
        self.job.storage.do(self.late.pop(0))

    @precondition(lambda self: self.triggered and self.running)
    @rule(data=st.data())
    def task_acknowledges(self, data: st.DataObject) -> None:
        checkpoint_id = data.draw(st.sampled_from(sorted(self.triggered)[-3:]))
        self._acknowledge(data.draw(st.sampled_from(self.running)), checkpoint_id)

    @precondition(lambda self: self.triggered and self.running)
    @rule()
    def all_acknowledge_the_last(self) -> None:
        checkpoint_id = max(self.triggered)
        for execution in self.running:
            self._acknowledge(execution, checkpoint_id)

    def _all_acknowledge(self, pending: PendingCheckpoint) -> None:
        for execution in pending.plan.running:
            if pending.waits_for(execution):
                self._acknowledge(execution, pending.checkpoint_id)

    def _acknowledge(self, execution: Any, checkpoint_id: int) -> None:
        waiting = {p.checkpoint_id: p for p in self.job.coordinator.pending if p.phase is CheckpointPhase.WAITING}
        if checkpoint_id in waiting:
            self.acknowledged.setdefault(checkpoint_id, set()).add(execution.id)
            self.needed[checkpoint_id] = {e.id for e in waiting[checkpoint_id].plan.running}
        else:
            if checkpoint_id in self._known() and f"chk-{checkpoint_id}/{execution.id}" not in self.job.storage.files:
                return  # a task that does not take part writes nothing
        self.job.acknowledge(execution, checkpoint_id)

    @precondition(lambda self: self.running and not self.ended)
    @rule(data=st.data(), fate=st.sampled_from(["done", "failed", "unknown"]))
    def an_older_one_is_answered_while_a_newer_one_completes(self, data: st.DataObject, fate: str) -> None:
        """Nobody may go on from it afterwards: it would come behind the newer one."""
        self._some_wait(2)
        if len(self.waiting) < 2:
            return
        *older, newest = self.waiting
        self._all_acknowledge(newest)
        if newest.phase is not CheckpointPhase.COMPLETING:
            return
        late = data.draw(st.sampled_from(older))
        self._all_acknowledge(late)
        assert late.given_up is not None, f"{late.checkpoint_id} is acknowledged behind {newest.checkpoint_id}"
        while newest in self.job.coordinator.pending and newest.phase is CheckpointPhase.COMPLETING:
            if isinstance(self.job.work[0], Complete):
                self.work_is_done(fate)
            else:
                self.job.do_work()
            self.instructions_are_right()
        assert late.checkpoint_id not in self.job.storage.store

    @precondition(lambda self: self.running and not self.ended)
    @rule(data=st.data())
    def an_acknowledgement_comes_twice(self, data: st.DataObject) -> None:
        """Nothing changes: not what is asked of enumerators either, which have moved on since."""
        self._some_wait(1)
        if not self.waiting:
            return
        pending = data.draw(st.sampled_from(self.waiting))
        execution = data.draw(st.sampled_from(pending.plan.running))
        for task in pending.plan.running:  # all of its vertex: then its enumerator is asked
            if task.vertex is execution.vertex and pending.waits_for(task):
                self._acknowledge(task, pending.checkpoint_id)
        if pending not in self.waiting:
            return
        before = self._all_there_is()
        self.job.acknowledge(execution, pending.checkpoint_id)
        assert self._all_there_is() == before, f"{execution.id} has acknowledged {pending.checkpoint_id} twice"

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def an_acknowledgement_is_lost(self, data: st.DataObject) -> None:
        """What the task has written is there, and nobody knows."""
        pending = data.draw(st.sampled_from(self.waiting))
        missing = [e for e in pending.plan.running if pending.waits_for(e)]
        self.job.write(data.draw(st.sampled_from(missing)), pending.checkpoint_id)

    @precondition(lambda self: self.over)
    @rule(data=st.data())
    def an_acknowledgement_is_late(self, data: st.DataObject) -> None:
        """Of a checkpoint that was given up or is subsumed, perhaps by a task that was restarted since: what it names
        is removed, and nothing else happens."""
        attempts = [e for v in self.job.graph.vertices.values() for s in v.subtasks for e in s.attempts]
        execution = data.draw(st.sampled_from(attempts))
        checkpoint_id = data.draw(st.sampled_from(self.over))
        work, *before = self._all_there_is()
        self.job.acknowledge(execution, checkpoint_id)
        path = f"chk-{checkpoint_id}/{execution.id}"
        assert self._all_there_is() == (work, *before), "it goes in front of what counts"
        assert LATE_TIMER in self.job.timers
        self.job.advance(LATE_SECONDS)
        removed = [work for work in self.job.done + self.job.work if isinstance(work, Discard)]
        assert any(work.checkpoint_id == checkpoint_id and path in work.files for work in removed)

    @precondition(lambda self: self.triggered and self.running)
    @rule(data=st.data(), reason=st.sampled_from(["CHECKPOINT_DECLINED_TASK_NOT_READY", "CHECKPOINT_ASYNC_EXCEPTION"]))
    def task_declines(self, data: st.DataObject, reason: str) -> None:
        checkpoint_id = data.draw(st.sampled_from(sorted(self.triggered)[-2:]))
        self.job.coordinator.decline(data.draw(st.sampled_from(self.running)), checkpoint_id, reason)

    @precondition(lambda self: len(self.running) > 1 and not self.ended)
    @rule(data=st.data())
    def task_finishes(self, data: st.DataObject) -> None:
        sources = [e for e in self.running if e.vertex.source is not None]
        self.job.move(data.draw(st.sampled_from(sources or self.running)), ExecutionState.FINISHED)

    @precondition(lambda self: self.running and not self.ended)
    @rule()
    def all_data_end(self) -> None:
        self.job.coordinator.all_data_ended()

    @precondition(lambda self: not self.ended)
    @rule()
    def job_restarts(self) -> None:
        self.job.restart()

    @rule()
    def somebody_wants_a_checkpoint(self) -> None:
        self.manual += 1
        self.job.coordinator.request(f"trigger-{self.manual}")

    @precondition(lambda self: not self.ended)
    @rule(chance=st.integers(0, 9), state=st.sampled_from(["FINISHED", "FAILED", "CANCELED"]))
    def job_ends(self, chance: int, state: str) -> None:
        if chance == 0:
            self.ended = True
            self.job.coordinator.close(state)

    # -- what always holds

    @invariant()
    def instructions_are_right(self) -> None:
        for instruction in self.job.out:
            match instruction:
                case do.SendTriggerCheckpoint(checkpoint_id=id_, execution_ids=ids):
                    # an older one may still be triggered at tasks whose inputs have ended
                    assert id_ in self.triggered or id_ > max(self.triggered, default=0), "ids rise"
                    self.triggered.setdefault(id_, set()).update(ids)
                case do.NotifyCheckpointComplete(checkpoint_id=id_):
                    assert id_ in self.job.storage.store, "commit before the checkpoint is in the store"
                    assert id_ not in self.aborted, "commit of what was given up"
                    assert not self.committed or id_ >= self.committed[-1], "commits go back"
                    self.committed.append(id_)
                case do.NotifyCheckpointAborted(checkpoint_id=id_):
                    assert id_ not in self.committed, "a committed checkpoint is given up"
                    self.aborted.add(id_)
        self.job.out.clear()

    @invariant()
    def complete_is_what_all_have_acknowledged(self) -> None:
        storage, job = self.job.storage, self.job
        for checkpoint_id in storage.store:
            assert storage.metadata[checkpoint_id] <= storage.files
            acknowledged = {path.partition("/")[2] for path in storage.metadata[checkpoint_id]}
            assert acknowledged == self.needed[checkpoint_id] <= self.acknowledged[checkpoint_id]
        retained = job.completed.ids()
        assert len(retained) <= job.settings.retained
        assert retained == sorted(set(retained))
        if not self.ended:
            assert set(retained) <= set(storage.store), "the job would go on from what is not in the store"
            assert not retained or retained[-1] >= self.last_completed, "a completed checkpoint is lost"
            assert retained or not self.last_completed
            self.last_completed = retained[-1] if retained else 0
            if job.coordinator.is_settled and not job.work and not self.late:
                assert sorted(storage.store) == retained, "the next JobMaster would go on from something else"

    @invariant()
    def limits_hold(self) -> None:
        job = self.job
        assert len(job.coordinator.pending) <= job.settings.max_concurrent
        for pending in job.coordinator.pending:
            assert pending.given_up is None or pending.phase in (CheckpointPhase.COMPLETING, CheckpointPhase.UNDOING)
            if pending.number not in self.seen:
                self.seen.add(pending.number)
                if pending.request.cause is CheckpointCause.PERIODIC and job.settings.max_concurrent == 1:
                    began = (pending.trigger_ms - self.started_ms) / 1000
                    pause = began - self.last_end  # one ends before the next begins
                    assert pause >= job.settings.min_pause - 0.02, f"a pause of {pause}"
        self.last_end = job.ended_at
        assert job.coordinator.is_settled == all(
            p.phase in (CheckpointPhase.PREPARING, CheckpointPhase.WAITING) for p in job.coordinator.pending
        )
        counts = job.counts()
        assert counts["total"] == counts["in_progress"] + counts["completed"] + counts["failed"]
        waiting = [
            p for p in job.coordinator.pending if p.phase in (CheckpointPhase.WAITING, CheckpointPhase.COMPLETING)
        ]
        assert counts["in_progress"] == len([p for p in waiting if p.given_up is None])
        results = job.coordinator.requests.to_plain()
        if self.ended and not job.coordinator.pending:
            assert all(r["status"] == "COMPLETED" for r in results.values()), "a request is never answered"

    @invariant()
    def timers_lead_on(self) -> None:
        job = self.job
        for pending in job.coordinator.pending:
            assert f"checkpoint:{pending.number}" in job.timers or pending.given_up is not None
        states = {e.state for e in job.executions}
        runs = ExecutionState.RUNNING in states and states <= {ExecutionState.RUNNING, ExecutionState.FINISHED}
        if runs and not self.ended and not job.failed and len(job.coordinator.pending) < job.settings.max_concurrent:
            assert "checkpoint" in job.timers, "nobody looks again whether a checkpoint is due"


TestCheckpoints = Checkpoints.TestCase
TestCheckpoints.settings = settings(max_examples=examples(50), stateful_step_count=60, deadline=None)


@pytest.mark.long
class TestManyCheckpoints(Checkpoints.TestCase):  # type: ignore[misc, valid-type] # made at run time
    settings = settings(max_examples=2000, stateful_step_count=60, deadline=None, derandomize=False)
