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
from firesteel_taskmanager.executors import FixedExecutor
from firesteel_taskmanager.settings import Cancellation, TaskManagerSettings
from firesteel_taskmanager.slots import SlotState, UnknownAllocationError

SLOTS = st.integers(0, 2)
TASK_STATES = st.sampled_from(["RUNNING", "FINISHED", "CANCELED"])
JOBS = st.sampled_from(["j1", "j2"])


class TaskManagerMachine(RuleBasedStateMachine):
    """Two jobs, three slots, processes that live and die as they like."""

    def __init__(self) -> None:
        super().__init__()
        self.core = TaskManagerCore("tm", 3, FixedExecutor("driver"), TaskManagerSettings())
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
            elif isinstance(x, i.ReportState):
                seen = self.states.setdefault((x.jobmaster.job_id, x.update.execution_id), [])
                assert not set(seen) & {"FINISHED", "CANCELED", "FAILED"}, f"{x} after {seen}"
                seen.append(x.update.state)
            elif isinstance(x, i.CloseChannel):
                self.open.discard(x.channel)
            elif isinstance(x, i.KillProcess) and x.process is not None and x.process.pid in self.open:
                self.open.discard(x.process.pid)  # channel number = pid here
                self.did(self.core.channel_closed(x.process.pid, "killed", self.now))

    @rule(index=SLOTS, job=JOBS)
    def request(self, index: int, job: str) -> None:
        self.serial += 1
        allocation = f"a{self.serial}"
        taken = next(s for s in self.core.slots if s.index == index).state is not SlotState.FREE
        try:
            self.core.request_slot(RequestSlot(index, allocation, job, "http://jm", "t"), self.now)
        except SlotTakenError:
            assert taken
        else:
            assert not taken
            self.allocations.append((allocation, job))

    @precondition(lambda self: self.allocations)
    @rule(data=st.data())
    def register(self, data: st.DataObject) -> None:
        allocation, _ = data.draw(st.sampled_from(self.allocations))
        self.serial += 1
        channel = self.serial
        message = {
            "version": PROTOCOL_VERSION, "allocation_id": allocation, "pid": channel, "executor_id": "driver",
            "data_address": {},
        }  # fmt: skip
        self.open.add(channel)
        self.did(self.core.register(channel, message, ProcessId(channel, 0), self.now))

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
            assert slot is None or slot.process is None or slot.lost or slot.state is SlotState.RELEASING

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
        channel = data.draw(st.sampled_from(sorted(self.open)))
        self.open.discard(channel)
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
            if slot.state in (SlotState.ALLOCATED, SlotState.RELEASING):
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
TestRandomOrders.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
