"""Whatever comes, in whatever order: no slot is given twice, every wait ends, and all slots come back."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from firesteel.core.process import ProcessId
from firesteel.protocol.messages import RequestSlot
from firesteel.protocol.slot_channel import PROTOCOL_VERSION
from firesteel_taskmanager import instructions as i
from firesteel_taskmanager.core import SlotTakenError, TaskManagerCore
from firesteel_taskmanager.settings import Cancellation, TaskManagerSettings
from firesteel_taskmanager.slots import TaskSlotState, UnknownAllocationError
from tests.examples import examples

SLOTS = st.integers(0, 2)
TASK_STATES = st.sampled_from(["RUNNING", "FINISHED", "CANCELED"])
JOBS = st.sampled_from(["j1", "j2"])


class Executors:
    """They come and go; ids are never used again."""

    def __init__(self) -> None:
        self.running = ["1"]
        self.last = 1
        self.newest: str | None = "1"

    def knows(self, executor_id: str) -> bool:
        return executor_id in self.running


class TaskManagerMachine(RuleBasedStateMachine):
    """Two jobs, three slots, processes and executors that live and die as they like, requests that come twice."""

    def __init__(self) -> None:
        super().__init__()
        self.executors = Executors()
        self.core = TaskManagerCore("tm", 3, self.executors, TaskManagerSettings(), memory_limit=100)
        self.accepted: dict[str, int] = {}  # allocation -> the process that was let in
        self.frozen: set[int] = set()
        self.now = 0.0
        self.serial = 0
        self.allocations: list[tuple[str, str]] = []  # (allocation, job)
        self.freed: list[str] = []
        self.states: dict[tuple[str, str], list[str]] = {}
        self.open: set[int] = set()

    def did(self, out: list[i.Instruction]) -> None:
        for x in out:
            if isinstance(x, i.SlotFreed):
                assert x.allocation_id not in self.freed, "freed twice"
                self.freed.append(x.allocation_id)
            elif isinstance(x, i.ReportTaskState):
                seen = self.states.setdefault((x.jobmaster.job_id, x.update.execution_id), [])
                assert not set(seen) & {"FINISHED", "CANCELED", "FAILED"}, f"{x} after {seen}"
                seen.append(x.update.state)
            elif isinstance(x, i.CloseChannel):
                self.open.discard(x.channel)
            elif isinstance(x, i.Send) and x.message["type"] == "deploy":
                slot = self.core.slots.at(x.channel)
                assert slot is not None
                assert self.accepted[slot.allocation_id] == x.channel, "deployed to a process that was not let in"
            elif isinstance(x, i.KillProcess) and x.process is not None and x.process.pid in self.open - self.frozen:
                self.open.discard(x.process.pid)  # channel number = pid here
                self.did(self.core.channel_closed(x.process.pid, "killed", self.now))

    @rule(index=SLOTS, job=JOBS)
    def request(self, index: int, job: str) -> None:
        self.serial += 1
        allocation = f"a{self.serial}"
        in_use = next(s for s in self.core.slots if s.index == index).state is not TaskSlotState.FREE
        try:
            self.core.request_slot(RequestSlot(index, allocation, job, "http://jm", "t"), self.now)
        except SlotTakenError:
            assert in_use or self.executors.newest is None
        else:
            assert not in_use
            assert self.executors.newest is not None
            self.allocations.append((allocation, job))

    @precondition(lambda self: self.allocations)
    @rule(data=st.data())
    def register(self, data: st.DataObject) -> None:
        allocation, _ = data.draw(st.sampled_from(self.allocations[-2:]))
        self.serial += 1
        channel = self.serial
        message = {
            "version": PROTOCOL_VERSION, "allocation_id": allocation, "pid": channel,
            "executor_id": str(data.draw(st.integers(max(1, self.executors.last - 1), self.executors.last))),
            "data_address": {},
        }  # fmt: skip
        self.open.add(channel)
        out = self.core.register(channel, message, ProcessId(channel, 0), self.now)
        first = out[0]
        assert isinstance(first, i.Send)
        if first.message["type"] == "accepted":
            assert allocation not in self.accepted, "a second copy was let in"
            assert allocation not in self.freed, "a copy was let in after the end of its allocation"
            assert self.executors.knows(str(message["executor_id"]))
            self.accepted[allocation] = channel
        self.did(out)

    @precondition(lambda self: self.allocations)
    @rule(data=st.data(), index=SLOTS)
    def request_comes_again(self, data: st.DataObject, index: int) -> None:
        allocation, job = data.draw(st.sampled_from(self.allocations))
        before = {s.index: s.allocation_id for s in self.core.slots}
        try:
            self.core.request_slot(RequestSlot(index, allocation, job, "http://jm", "t"), self.now)
        except SlotTakenError:
            pass
        assert before == {s.index: s.allocation_id for s in self.core.slots}, "an old request changed something"

    @rule()
    def another_executor_starts(self) -> None:
        self.executors.last += 1
        self.executors.newest = str(self.executors.last)
        self.executors.running.append(self.executors.newest)

    @precondition(lambda self: self.executors.running)
    @rule(data=st.data())
    def executor_ends(self, data: st.DataObject) -> None:
        ended = data.draw(st.sampled_from(self.executors.running))
        self.executors.running.remove(ended)
        if ended == self.executors.newest:
            self.executors.newest = None
        gone = [s.process.channel for s in self.core.slots if s.process and s.process.executor_id == ended]
        for channel in gone:
            self.process_ended(channel)

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def process_freezes(self, data: st.DataObject) -> None:
        self.frozen.add(data.draw(st.sampled_from(sorted(self.open))))

    @precondition(lambda self: self.allocations)
    @rule(data=st.data(), size=st.integers(50, 150))
    def memory(self, data: st.DataObject, size: int) -> None:
        allocation, _ = data.draw(st.sampled_from(self.allocations))
        self.did(self.core.memory_measured(allocation, size, self.now, 0))

    @precondition(lambda self: self.allocations)
    @rule(data=st.data(), which=st.sampled_from(["e1", "e2"]))
    def splits_lost(self, data: st.DataObject, which: str) -> None:
        allocation, _ = data.draw(st.sampled_from(self.allocations))
        self.did(self.core.tasks.splits_lost(allocation, f"{allocation}-{which}", "lost", 0))

    @rule(job=JOBS)
    def a_deposed_jobmaster_is_lost(self, job: str) -> None:
        assert self.core.jobmaster_lost(job, "lost", self.now, "another token") == []

    @precondition(lambda self: self.allocations)
    @rule(data=st.data(), accepted=st.booleans())
    def answer_offer(self, data: st.DataObject, accepted: bool) -> None:
        allocation, _ = data.draw(st.sampled_from(self.allocations))
        self.did(self.core.offer_answered([allocation], [allocation] if accepted else [], self.now))

    @precondition(lambda self: self.allocations)
    @rule(data=st.data(), sent=st.booleans())
    def deploy(self, data: st.DataObject, sent: bool) -> None:
        allocation, job = data.draw(st.sampled_from(self.allocations))
        executions = [f"{allocation}-e1", f"{allocation}-e2"]
        try:
            self.core.tasks.begin_deploy(job, allocation, executions, Cancellation(1.0, 5.0), self.now)
            if sent:
                self.did(self.core.tasks.deploy(job, allocation, {"tasks": [{"execution_id": e} for e in executions]}))
        except UnknownAllocationError:
            slot = self.core.slots.find(allocation)
            assert slot is None or slot.process is None or slot.lost or slot.state is TaskSlotState.RELEASING

    @precondition(lambda self: self.open)
    @rule(data=st.data(), which=st.sampled_from(["e1", "e2"]), state=TASK_STATES)
    def task_state(self, data: st.DataObject, which: str, state: str) -> None:
        channel = data.draw(st.sampled_from(sorted(self.open)))
        slot = self.core.slots.at(channel)
        if slot is not None:
            message = {"execution_id": f"{slot.allocation_id}-{which}", "state": state}
            self.did(self.core.tasks.state(channel, message, 0))

    @rule(job=JOBS)
    def cancel(self, job: str) -> None:
        self.did(self.core.tasks.cancel(job, None, self.now, 0))

    @precondition(lambda self: self.allocations)
    @rule(data=st.data())
    def free(self, data: st.DataObject) -> None:
        allocation, _ = data.draw(st.sampled_from(self.allocations))
        self.did(self.core.free_slot(allocation, "freed", self.now))

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def process_ends(self, data: st.DataObject) -> None:
        self.process_ended(data.draw(st.sampled_from(sorted(self.open))))

    def process_ended(self, channel: int) -> None:
        self.open.discard(channel)
        self.frozen.discard(channel)
        self.did(self.core.channel_closed(channel, "ended", self.now))

    @precondition(lambda self: self.allocations)
    @rule(data=st.data())
    def cause_is_known(self, data: st.DataObject) -> None:
        allocation, _ = data.draw(st.sampled_from(self.allocations))
        self.did(self.core.process_lost(allocation, "known", self.now, 0))

    @rule(job=JOBS)
    def jobmaster_lost(self, job: str) -> None:
        self.did(self.core.jobmaster_lost(job, "lost", self.now))

    @rule(job=JOBS)
    def heartbeat(self, job: str) -> None:
        known = [a for a, owner in self.allocations if owner == job][-1:]
        self.did(self.core.jobmaster_heartbeat(job, known, self.now))

    @rule(seconds=st.sampled_from([0.1, 3.0, 61.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.did(self.core.tick(self.now, 0))

    @invariant()
    def holds(self) -> None:
        self.core.slots.validate()
        deadline = self.core.next_deadline()
        for slot in self.core.slots:
            if slot.state in (TaskSlotState.ALLOCATED, TaskSlotState.RELEASING):
                assert deadline is not None

    def teardown(self) -> None:
        """Jobs end; whatever the processes do, time alone frees every slot."""
        for job in ("j1", "j2"):
            self.did(self.core.jobmaster_lost(job, "over", self.now))
        for _ in range(10):
            self.now += 61.0
            self.did(self.core.tick(self.now, 0))
        assert self.core.is_idle
        assert sorted(self.freed) == sorted(a for a, _ in self.allocations)


TestRandomOrders = TaskManagerMachine.TestCase
TestRandomOrders.settings = settings(max_examples=examples(60), stateful_step_count=40, deadline=None)
