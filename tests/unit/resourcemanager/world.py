"""A small cluster around the ResourceManager's core: what is on its way lies in ``mail`` and arrives in any order."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from firesteel.protocol.fleet import SlotOutcome
from firesteel.protocol.messages import RegisterTaskManager, SlotStatus
from firesteel_resourcemanager import instructions as i
from firesteel_resourcemanager.core import ResourceManagerCore
from firesteel_resourcemanager.registry import (
    TaskManagerRefusedError,
    UnregisteredJobError,
    UnregisteredTaskManagerError,
)
from firesteel_resourcemanager.settings import ResourceManagerSettings, WorkerSettings

SETTINGS = ResourceManagerSettings(
    slot_request_timeout=600.0, job_timeout=40.0, max_slots=12, workers=WorkerSettings(slots=2, idle_timeout=10.0)
)


@dataclass
class TrueSlot:
    """A slot as its TaskManager knows it."""

    state: str = "FREE"
    allocation: str = ""
    job: str = ""
    process: int = 0
    had_process: bool = False


@dataclass
class TrueTaskManager:
    """A TaskManager process."""

    name: str
    address: str
    slots: list[TrueSlot]
    executor: str = ""
    seen: set[str] = field(default_factory=set)
    """Allocations that were asked for."""

    def report(self) -> tuple[SlotStatus, ...]:
        return tuple(
            SlotStatus(n, s.state, s.allocation or None, s.job or None, s.process or None)
            for n, s in enumerate(self.slots)
        )

    def find(self, allocation: str) -> TrueSlot | None:
        """The slot of an allocation."""
        return next((s for s in self.slots if s.allocation == allocation), None)


@dataclass
class TrueJob:
    """A job and its JobMaster; when it fails, it begins anew."""

    name: str
    needed: int
    pool: dict[str, str] = field(default_factory=dict)
    """Allocation -> TaskManager."""
    attempt: int = 0
    known_to: int = -1
    """The term of the ResourceManager at which it is registered."""


class World:
    """The cluster.

    Args:
        pick: draws a number below its argument.
        luck: how many more things may go wrong; with a bound, since nothing resolves where nothing ever works.
        executors: whether the fleet needs executors, and slots outlive it.
        active: whether TaskManagers are started by the ResourceManager.
    """

    def __init__(self, pick: Callable[[int], int], luck: int, *, executors: bool, active: bool) -> None:
        self.pick, self.luck, self.executors, self.active = pick, luck, executors, active
        self.now, self.term = 0.0, -1
        self.mail: list[tuple[Callable[[], None], bool]] = []
        self.taskmanagers: dict[str, TrueTaskManager] = {}
        self.jobs: dict[str, TrueJob] = {}
        self.done: set[str] = set()
        self.fleet_alive = False
        self.attached: set[str] = set()
        self.launching: set[str] = set()
        self.workers: set[str] = set()
        self._ids = itertools.count(1)
        self.start_resourcemanager()

    # -- the ResourceManager

    def start_resourcemanager(self) -> None:
        """A new one; answers to the old one are lost, peers notice and register again."""
        self.term += 1
        self.core = ResourceManagerCore(
            SETTINGS,
            self.now,
            lambda: f"a{next(self._ids)}",
            worker_ids=lambda: f"w{next(self._ids)}",
            active=self.active,
            slots_outlive_driver=self.executors,
        )
        self.perform(self.core.start(self.now))
        if self.active:
            self.perform(self.core.workers_recovered(sorted(self.workers), self.now))
        for name in self.taskmanagers:
            self.post(partial(self.register, name))
        for job in self.jobs:
            self.post(partial(self.register_job, job))

    def perform(self, out: list[i.Instruction]) -> None:
        """What the core wants is on its way."""
        self.core.validate()
        for instruction in out:
            own = isinstance(instruction, i.StartFleet | i.LaunchSlot | i.StartExecutor | i.StartWorker | i.StopWorker)
            self.post(partial(self.do, instruction), repeats=not own)

    def answer(self, event: Callable[[], list[i.Instruction]]) -> None:
        """Something is on its way to the ResourceManager of now; a later one does not get it."""
        term = self.term

        def arrive() -> None:
            if term == self.term:
                try:
                    self.perform(event())
                except (TaskManagerRefusedError, UnregisteredTaskManagerError, UnregisteredJobError):
                    pass

        self.post(arrive)

    # -- mail and luck

    def post(self, message: Callable[[], None], repeats: bool = True) -> None:
        """A message is on its way; ``repeats``: it may arrive twice."""
        self.mail.append((message, repeats))

    def goes_wrong(self, one_in: int = 6) -> bool:
        """Whether bad luck strikes."""
        if self.luck and self.pick(one_in) == 0:
            self.luck -= 1
            return True
        return False

    def step(self) -> None:
        """One message arrives, or something breaks."""
        self.now += (0.0, 0.01, 0.5)[self.pick(3)]
        if self.goes_wrong(12):
            faults = (self.start_resourcemanager, self.kill_driver, self.kill_taskmanager, self.kill_slot, self.silence)
            faults[self.pick(len(faults))]()
        elif self.mail:
            message, repeats = self.mail.pop(self.pick(len(self.mail)))
            if repeats and self.goes_wrong(20):
                self.mail.append((message, True))
            message()
        else:
            self.pass_time()

    def pass_time(self) -> None:
        """Two quiet seconds: heartbeats, a look at the fleet, deadlines."""
        self.now += 2.0
        for name, known in list(self.core.table.taskmanagers.items()):
            alive = self.taskmanagers.get(name)
            if alive is None or alive.address != known.address:
                self.perform(self.core.taskmanager_gone(name, "no answer", self.now))
        for name, taskmanager in list(self.taskmanagers.items()):
            if name not in self.core.table.taskmanagers:
                self.register(name)
            else:
                report = taskmanager.report()
                self.perform(self.core.slot_report(name, report, self.core.table.revision, self.now, 0))
        for job in self.jobs.values():
            if job.known_to != self.term or job.name not in self.core.jobs:
                self.register_job(job.name)
            for allocation, name in list(job.pool.items()):  # heartbeats between JobMaster and TaskManager
                if self.slot(name, allocation) is None:
                    self.fail(job.name, job.attempt)
                    break
            for taskmanager in self.taskmanagers.values():
                for slot in taskmanager.slots:
                    if slot.state == "ACTIVE" and slot.job == job.name and slot.allocation not in job.pool:
                        self.free(taskmanager.name, slot.allocation)
        for taskmanager in self.taskmanagers.values():  # taskmanager.slot.timeout
            for slot in taskmanager.slots:
                if slot.allocation and (slot.job in self.done or (slot.state == "ALLOCATED" and self.pick(8) == 0)):
                    self.free(taskmanager.name, slot.allocation)
        self.look()
        self.perform(self.core.tick(self.now))

    def look(self) -> None:
        """The shell asks the fleet."""
        if self.core.fleet_is_ready and not self.fleet_alive:
            self.perform(self.core.fleet_lost("killed", self.now))
        elif self.core.fleet_is_ready and self.executors:
            self.perform(self.core.executors_attached(frozenset(self.attached), self.now))

    # -- faults

    def kill_driver(self) -> None:
        """The driver dies; executors stay with their slots and take no new ones."""
        self.fleet_alive = False
        self.attached.clear()
        if not self.executors:
            self.launching.clear()
            for taskmanager in self.taskmanagers.values():
                for slot in taskmanager.slots:
                    if slot.process:
                        self.lose_process(taskmanager.name, slot)

    def kill_taskmanager(self) -> None:
        """A TaskManager dies with its slots; a worker's end is seen by the driver, others are started anew."""
        if not self.taskmanagers:
            return
        name = sorted(self.taskmanagers)[self.pick(len(self.taskmanagers))]
        dead = self.taskmanagers.pop(name)
        self.attached.discard(dead.executor)
        if name in self.workers:
            self.workers.discard(name)
            self.answer(lambda: self.core.worker_ended(name, "killed", self.now))
        else:
            self.start_taskmanager(name, len(dead.slots))

    def kill_slot(self) -> None:
        """The process of a slot dies."""
        for taskmanager in self.taskmanagers.values():
            for slot in taskmanager.slots:
                if slot.process:
                    self.lose_process(taskmanager.name, slot)
                    return

    def silence(self) -> None:
        """The ResourceManager does not hear a JobMaster for too long, or a TaskManager."""
        if self.core.jobs and self.pick(2):
            name = sorted(self.core.jobs)[self.pick(len(self.core.jobs))]
            self.perform(self.core.jobmaster_lost(name, "silent", self.now))
        elif self.core.table.taskmanagers:
            name = sorted(self.core.table.taskmanagers)[self.pick(len(self.core.table.taskmanagers))]
            self.perform(self.core.taskmanager_gone(name, "silent", self.now))

    def lose_process(self, name: str, slot: TrueSlot) -> None:
        """A TaskManager sees that a process has gone."""
        job, allocation = slot.job, slot.allocation
        if job in self.jobs and allocation in self.jobs[job].pool:
            attempt = self.jobs[job].attempt
            self.post(lambda: self.fail(job, attempt))
        self.free(name, allocation)

    # -- TaskManagers

    def start_taskmanager(self, name: str, slots: int) -> None:
        """A TaskManager process begins."""
        address = f"http://{name}/{next(self._ids)}"
        self.taskmanagers[name] = TrueTaskManager(name, address, [TrueSlot() for _ in range(slots)])
        self.post(lambda: self.register(name))

    def register(self, name: str) -> None:
        tm = self.taskmanagers.get(name)
        if tm is not None:
            message = RegisterTaskManager(
                name, tm.address, len(tm.slots), slot_report=tm.report(), executor_id=tm.executor
            )
            self.answer(lambda: self.core.register_taskmanager(message, self.now, 0))

    def slot(self, name: str, allocation: str) -> TrueSlot | None:
        """The slot of an allocation at a TaskManager, if both are there."""
        taskmanager = self.taskmanagers.get(name)
        return None if taskmanager is None else taskmanager.find(allocation)

    def free(self, name: str, allocation: str) -> None:
        """A TaskManager frees a slot and says so."""
        tm = self.taskmanagers.get(name)
        slot = None if tm is None else tm.find(allocation)
        if tm is None or slot is None:
            return
        index = tm.slots.index(slot)
        tm.slots[index] = TrueSlot()
        self.launching.discard(allocation)
        if not self.goes_wrong():
            self.answer(lambda: self.core.slot_available(name, index, allocation, self.now))

    def request(self, x: i.SendRequestSlot) -> None:
        """The ResourceManager gives a slot away; the answer may be lost."""
        tm = self.taskmanagers.get(x.taskmanager_id)
        if tm is None or tm.address != x.taskmanager_address:
            self.answer(lambda: self.core.slot_refused(x.allocation_id, "no answer", self.now))
            return
        slot = tm.slots[x.slot_index]
        if x.allocation_id not in tm.seen:  # a repeated call gets its old answer
            if slot.state != "FREE":
                self.answer(lambda: self.core.slot_refused(x.allocation_id, "taken", self.now))
                return
            tm.slots[x.slot_index] = TrueSlot("ALLOCATED", x.allocation_id, x.job_id)
            tm.seen.add(x.allocation_id)
        if self.goes_wrong():
            self.answer(lambda: self.core.slot_refused(x.allocation_id, "timeout", self.now))
        else:
            self.answer(lambda: self.core.slot_granted(x.allocation_id, self.now))

    def process_comes(self, name: str, allocation: str) -> None:
        """A slot's process registers, and is offered to its job, or turned away."""
        if allocation not in self.launching:
            return
        self.launching.discard(allocation)
        slot = self.slot(name, allocation)
        if slot is None or slot.state != "ALLOCATED" or slot.had_process:
            self.answer(lambda: self.core.slot_ended(allocation, SlotOutcome.MISPLACED, "a copy", self.now))
            return
        slot.process, slot.had_process = next(self._ids), True
        self.post(lambda: self.offer(name, allocation))

    def offer(self, name: str, allocation: str) -> None:
        """A JobMaster is offered a slot."""
        slot = self.slot(name, allocation)
        if slot is None or slot.state != "ALLOCATED":
            return
        job = self.jobs.get(slot.job)
        if job is None or len(job.pool) >= job.needed:
            self.free(name, allocation)
            return
        job.pool[allocation] = name
        slot.state = "ACTIVE"
        if len(job.pool) == job.needed:
            attempt = job.attempt
            self.post(lambda: self.finish(job.name, attempt))

    # -- JobMasters

    def submit(self, name: str, needed: int) -> None:
        self.jobs[name] = TrueJob(name, needed)
        self.post(lambda: self.register_job(name))

    def register_job(self, name: str) -> None:
        """A JobMaster registers and declares."""
        job = self.jobs.get(name)
        if job is not None:
            job.known_to = self.term
            self.perform(self.core.register_jobmaster(name, name, f"http://{name}", "t", self.now))
            self.perform(self.core.declare_requirements(name, job.needed, self.now))

    def fail(self, name: str, attempt: int) -> None:
        """A job fails: it gives its slots back, and begins anew."""
        job = self.jobs.get(name)
        if job is None or job.attempt != attempt:
            return
        job.attempt += 1
        for allocation, taskmanager in job.pool.items():
            self.post(partial(self.free, taskmanager, allocation))
        job.pool.clear()
        if name in self.core.jobs and job.known_to == self.term:
            self.answer(lambda: self.core.declare_requirements(name, job.needed, self.now))

    def finish(self, name: str, attempt: int) -> None:
        """A job has done its work, if none of its slots was lost."""
        job = self.jobs.get(name)
        if job is None or job.attempt != attempt:
            return
        if any(self.slot(t, a) is None for a, t in job.pool.items()):
            self.fail(name, attempt)
            return
        del self.jobs[name]
        self.done.add(name)
        for allocation, taskmanager in job.pool.items():
            self.post(partial(self.free, taskmanager, allocation))
        self.answer(lambda: self.core.jobmaster_gone(name, "it ended", self.now))

    # -- instructions

    def do(self, x: i.Instruction) -> None:
        """An instruction arrives where it is carried out."""
        match x:
            case i.SendRequestSlot():
                self.request(x)
            case i.LaunchSlot():
                self.launch(x)
            case i.CancelLaunch():
                self.launching.discard(x.allocation_id)
            case i.SendFreeSlot():
                self.check_free(x)
                self.free(x.taskmanager_id, x.allocation_id)
            case i.AskForReport():
                tm = self.taskmanagers.get(x.taskmanager_id)
                if tm is not None and not self.goes_wrong():
                    report, as_of = tm.report(), self.core.table.revision
                    self.answer(lambda: self.core.slot_report(tm.name, report, as_of, self.now, 0))
            case i.SendFailSlot():
                job = self.jobs.get(x.jobmaster_address.removeprefix("http://"))
                if job is not None and (x.allocation_id in job.pool or len(job.pool) < job.needed):
                    self.fail(job.name, job.attempt)
            case i.SendNoResources() | i.SendWaiting() | i.TellTaskManagerEnded():
                pass
            case i.StartFleet():
                self.fleet_alive = True
                attached = frozenset(self.attached) if self.executors else None
                self.answer(lambda: [] if self.core.fleet_is_ready else self.core.fleet_started(attached, self.now))
            case i.StartExecutor():
                self.start_executor(x)
            case i.StartWorker():
                if x.worker_id in self.workers or self.term_of_worker(x.worker_id) != self.term:
                    return
                if self.goes_wrong():
                    self.answer(lambda: self.core.worker_failed(x.worker_id, "no memory", self.now))
                else:
                    self.workers.add(x.worker_id)
                    self.start_taskmanager(x.worker_id, x.slots)
            case i.StopWorker():
                self.workers.discard(x.worker_id)
                dead = self.taskmanagers.pop(x.worker_id, None)
                self.attached.discard(dead.executor if dead is not None else "")
                self.answer(lambda: self.core.worker_ended(x.worker_id, "stopped", self.now))

    def term_of_worker(self, name: str) -> int:
        """Orders of a dead ResourceManager are not carried out."""
        return self.term if name in self.core.workers else -1

    def launch(self, x: i.LaunchSlot) -> None:
        """The fleet starts a process, or says that the executor is not there."""
        tm = self.taskmanagers.get(x.taskmanager_id)
        if not self.fleet_alive:
            self.answer(lambda: self.core.launch_postponed(x.allocation_id))
            self.look()
        elif self.executors and x.executor_id not in self.attached:
            self.answer(lambda: self.core.slot_ended(x.allocation_id, SlotOutcome.MISPLACED, "gone", self.now))
        elif self.goes_wrong():
            self.answer(lambda: self.core.launch_failed(x.allocation_id, "no", self.now))
        elif tm is not None:
            self.launching.add(x.allocation_id)
            self.post(lambda: self.process_comes(tm.name, x.allocation_id))

    def start_executor(self, x: i.StartExecutor) -> None:
        """A TaskManager starts an executor, which then reaches the driver."""
        tm = self.taskmanagers.get(x.taskmanager_id)
        if tm is None or tm.address != x.taskmanager_address or not self.fleet_alive:
            self.answer(lambda: self.core.executor_failed(x.taskmanager_id, x.attempt, "no answer", self.now))
            return
        name = str(next(self._ids))
        if not self.core.executor_named(tm.name, x.attempt, name):
            return
        tm.executor = name
        if self.goes_wrong():
            self.answer(lambda: self.core.executor_lost(tm.name, name, "no memory", self.now))
        else:
            self.post(lambda: self.attach(tm, name))
        self.answer(lambda: self.core.executor_started(tm.name, x.attempt, self.now))

    def attach(self, tm: TrueTaskManager, name: str) -> None:
        """An executor reaches the driver that has asked for it."""
        if self.fleet_alive and self.taskmanagers.get(tm.name) is tm and tm.executor == name:
            self.attached.add(name)

    # -- what must always hold

    def check_free(self, x: i.SendFreeSlot) -> None:
        """The ResourceManager never frees a slot that a job uses.

        But for the embedded fleet, whose slots die with it, and for a process that came so late that it was given up.
        """
        slot = self.slot(x.taskmanager_id, x.allocation_id)
        job = self.jobs.get(slot.job) if slot is not None else None
        if slot is None or job is None or slot.state != "ACTIVE" or x.allocation_id not in job.pool:
            return
        late = x.cause == "whoever was to start its process is gone" or "launches" in x.cause
        excused = late or (x.cause == "killed" and not self.executors)
        assert excused, f"{x} frees a slot in use"

    @property
    def is_settled(self) -> bool:
        """Whether all jobs are done, and everything is free."""
        slots = [s for t in self.taskmanagers.values() for s in t.slots]
        return (
            not self.jobs
            and all(s.state == "FREE" for s in slots)
            and all(s.state.name == "FREE" for s in self.core.table)
        )
