"""Slot processes and the fleet that starts them: models, since what they run is not under test here."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from firesteel.checkpoint.assign import TaskRestore
from firesteel.checkpoint.handles import InlineState
from firesteel.checkpoint.subtask_state import Committables, OperatorSubtaskState, TaskState
from firesteel.core.errors import FleetError
from firesteel.protocol.fleet import SlotLaunch, SlotOutcome, WithoutStages
from firesteel.protocol.messages import ExecutorSpec
from firesteel.protocol.slot_channel import PROTOCOL_VERSION
from tests.simulation.checkpointed import METRICS, CheckpointedTask

if TYPE_CHECKING:
    from tests.simulation.cluster import Cluster

_LOCAL = (0.0001, 0.001)


class SimulatedChannels:
    """In place of ``ChannelServer``: the control channels of one TaskManager, reliable and in order."""

    def __init__(self, cluster: Cluster, events: Any) -> None:
        self.cluster, self.events = cluster, events
        self.path = Path("/sim/control.s")
        self._numbers = itertools.count(1)
        self._slots: dict[int, SlotProcess] = {}
        self._registered: set[int] = set()
        self.process: Any = None

    async def start(self) -> None:
        pass

    async def close(self) -> None:
        for number in list(self._slots):
            self._drop(number)

    def connect(self, slot: SlotProcess) -> int:
        number = next(self._numbers)
        self._slots[number] = slot
        return number

    def send(self, channel: int, message: Mapping[str, Any]) -> None:
        slot = self._slots.get(channel)
        if slot is not None:
            slot.deliver(dict(message))

    def close_channel(self, channel: int) -> None:
        self._drop(channel)

    def _drop(self, channel: int) -> None:
        slot = self._slots.pop(channel, None)
        if slot is not None:
            slot.disconnected()
            self.process.loop.call_soon(self.events.channel_closed, channel, "")

    def broken(self, channel: int) -> None:
        """The process at the other end has gone."""
        if self._slots.pop(channel, None) is not None and self.process.alive:
            self.process.loop.call_soon(self.events.channel_closed, channel, "")

    def receive(self, channel: int, message: dict[str, Any], payload: bytes) -> None:
        if self.process.alive and channel in self._slots:
            self.process.loop.call_soon(self._received, channel, message, payload)

    def _received(self, channel: int, message: dict[str, Any], payload: bytes) -> None:
        if channel in self._slots:
            self.events.channel_message(channel, message, payload)

    def peer_pid(self, channel: int) -> int | None:
        slot = self._slots.get(channel)
        return slot.pid if slot is not None else None

    def is_registered(self, channel: int) -> bool:
        return channel in self._registered

    def mark_registered(self, channel: int) -> None:
        self._registered.add(channel)


@dataclass
class RunningTask:
    """One execution in a simulated slot, of a job without checkpoints.

    Attributes:
        had_ended: it stood at its end when the job was restored: all that is left is to show what it had.
        prepared: names of results that it has and nobody sees yet.
        recorded: the checkpoint that has taken them; its completion shows them.
    """

    execution_id: str
    is_source: bool
    needs_commit: bool
    upstream: tuple[str, ...]
    state: str = "INITIALIZING"
    splits_left: int = 0
    no_more: bool = False
    asked: bool = False
    waits_for_commit: bool = False
    had_ended: bool = False
    prepared: list[str] = field(default_factory=list)
    recorded: int = 0
    completed: bool = False


@dataclass
class SlotProcess:
    """One worker process. ``acting`` says that it was accepted and may deliver records."""

    cluster: Cluster
    launch: SlotLaunch
    pid: int
    executor: SimulatedExecutor
    channels: SimulatedChannels
    channel: int = 0
    job_id: str = ""
    run: str = ""
    """The secret of the job's run: a job that has to be started anew has another one."""
    alive: bool = True
    accepted: bool = False
    tasks: dict[str, RunningTask] = field(default_factory=dict)
    checkpointed: dict[str, CheckpointedTask] = field(default_factory=dict)
    _due: float = 0.0

    def start(self) -> None:
        self.channel = self.channels.connect(self)
        self.say(
            {
                "type": "register",
                "version": PROTOCOL_VERSION,
                "allocation_id": self.launch.allocation_id,
                "pid": self.pid,
                "spark_attempt": 0,
                "executor_id": self.executor.spec.executor_id,
                "data_address": {"unix": f"/sim/{self.pid}"},
            }
        )

    @property
    def acting(self) -> list[str]:
        """Executions that deliver records now."""
        if not (self.alive and self.accepted):
            return []
        tasks: list[RunningTask | CheckpointedTask] = [*self.tasks.values(), *self.checkpointed.values()]
        return [t.execution_id for t in tasks if t.state in ("INITIALIZING", "RUNNING")]

    def say(self, message: dict[str, Any], payload: bytes = b"") -> None:
        """To the TaskManager; in order."""
        world = self.cluster.world
        self._due = max(self._due, world.now) + world.rng.uniform(*_LOCAL)
        channel, channels = self.channel, self.channels
        world.after(self._due - world.now, lambda: channels.receive(channel, message, payload))

    def deliver(self, message: dict[str, Any]) -> None:
        world = self.cluster.world
        world.after(world.rng.uniform(*_LOCAL), lambda: self._received(message))

    def disconnected(self) -> None:
        """The TaskManager closed the channel: a slot without one returns."""
        world = self.cluster.world
        world.after(world.rng.uniform(0.001, 0.05), lambda: self.end(SlotOutcome.RETURNED, "its channel was closed"))

    def end(self, outcome: SlotOutcome, why: str) -> None:
        if not self.alive:
            return
        self.alive = False
        self.cluster.slot_ended(self, outcome, why)
        self.channels.broken(self.channel)

    def _received(self, message: dict[str, Any]) -> None:
        if not self.alive:
            return
        match message["type"]:
            case "accepted":
                self.accepted = self.cluster.changed = True
            case "rejected":
                self.end(SlotOutcome.MISPLACED, str(message["reason"]))
            case "deploy":
                self._deploy(message["deployment"])
            case "assign_splits" if message["execution_id"] in self.checkpointed:
                self.checkpointed[message["execution_id"]].received(message)
            case "trigger_checkpoint" | "checkpoint_complete" | "checkpoint_aborted":
                for execution_id in message["execution_ids"]:
                    if execution_id in self.checkpointed:
                        self.checkpointed[execution_id].received(message)
                    elif execution_id in self.tasks:
                        self._checkpoint(self.tasks[execution_id], message["type"], message["checkpoint_id"])
            case "assign_splits":
                task = self.tasks.get(message["execution_id"])
                if task is not None:
                    task.splits_left += len(message["splits"])
                    task.no_more, task.asked = task.no_more or message["no_more"], False
                    self._later(task)
            case "cancel":
                for task in self.tasks.values():
                    named = message["execution_ids"] is None or task.execution_id in message["execution_ids"]
                    if named and task.state in ("INITIALIZING", "RUNNING"):
                        self._state(task, "CANCELED")
                for checkpointed in self.checkpointed.values():
                    if message["execution_ids"] is None or checkpointed.execution_id in message["execution_ids"]:
                        checkpointed.cancel()
            case "release":
                self.end(SlotOutcome.RETURNED, "released")
            case "ping":
                self.say({"type": "pong", "nonce": message["nonce"]})

    def _deploy(self, deployment: Mapping[str, Any]) -> None:
        attempts = {plain["attempt"] for plain in deployment["tasks"]}
        self.job_id, self.secret = deployment["job_id"], deployment["secret"]
        self.run = f"{self.secret} {max(attempts)}"
        for plain in deployment["tasks"]:
            self.cluster.attempts.deployed(self.job_id, self.secret, plain["execution_id"])
        if self.job_id in self.cluster.checkpointed:
            for plain in deployment["tasks"]:
                checkpointed_task = self.checkpointed[plain["execution_id"]] = CheckpointedTask(self, plain, deployment)
                self.cluster.tell(
                    f"slot {self.pid} runs {self.cluster.short(self.job_id, checkpointed_task.execution_id)}"
                )
                checkpointed_task.start()
            return
        by_target: dict[str, list[str]] = {}
        for edge in deployment["edges"]:
            sources = [f"{edge['source']}_{i}" for i in range(edge["up_parallelism"])]
            by_target.setdefault(edge["target"], []).extend(sources)
        for plain in deployment["tasks"]:
            upstream = tuple(f"{s}_{plain['attempt']}" for s in by_target.get(plain["vertex_id"], ()))
            task = RunningTask(plain["execution_id"], plain["is_source"], plain["needs_commit"], upstream)
            self.tasks[task.execution_id] = task
            if plain["restore"] is not None:
                self._restore(task, plain["vertex_id"], TaskRestore.from_plain(plain["restore"]))
            elif task.is_source:
                self.cluster.processed[self._key(task)] = 0
            self.cluster.tell(f"slot {self.pid} runs {self.cluster.short(self.job_id, task.execution_id)}")
            self._state(task, "INITIALIZING", known=True)
            self._state(task, "RUNNING")
            self._later(task)

    def _restore(self, task: RunningTask, vertex_id: str, restore: TaskRestore) -> None:
        task.had_ended = restore.finished
        mine = restore.operators.get(vertex_id)
        for committables in mine.committables if mine is not None else ():
            for item in committables.items:
                assert isinstance(item, InlineState)
                task.prepared.append(item.data.decode())

    def _checkpoint(self, task: RunningTask, what: str, number: int) -> None:
        """Of what is to be committed in the end; there are no others."""
        if task.state != "RUNNING":
            return
        if what == "checkpoint_complete":
            task.completed = task.completed or number == task.recorded
            self._show(task)
        elif what == "trigger_checkpoint":
            task.recorded = number
            vertex_id = task.execution_id.partition("_")[0]
            items = tuple(InlineState(name.encode()) for name in task.prepared)
            state = OperatorSubtaskState({}, None, (), (Committables(number, 1, items),)) if items else None
            said = {"type": "acknowledge_checkpoint", "execution_id": task.execution_id, "checkpoint_id": number}
            written = TaskState({} if state is None else {vertex_id: state}, True, 0)
            self.say({**said, "metrics": dict.fromkeys(METRICS, 0)}, written.to_bytes())

    def _show(self, task: RunningTask) -> None:
        """Commit; what can't be now, or of which nobody knows whether it was, is committed again."""
        world, left = self.cluster.world, []
        if not self.alive or task.state != "RUNNING":
            return
        for name in task.prepared:
            fate = world.rng.random() if self.cluster.faults_go_on else 1.0
            if fate >= 0.1:
                self.cluster.committed(self, task.execution_id, name)
            if fate < 0.2:
                left.append(name)
        task.prepared = left
        if left:
            world.after(world.rng.uniform(0.1, 2.0), lambda: self._show(task))
        elif task.completed:
            self._state(task, "FINISHED")

    def _key(self, task: RunningTask) -> tuple[str, str, str, int]:
        subtask, _, attempt = task.execution_id.rpartition("_")
        return self.job_id, self.secret, subtask, int(attempt)

    def _state(self, task: RunningTask, state: str, known: bool = False) -> None:
        task.state = state
        self.cluster.changed = True
        if state == "FINISHED":
            self.cluster.finished.add((self.run, task.execution_id))
        self.say(
            {"type": "task_state", "execution_id": task.execution_id, "state": state, "error": None, "metrics": {}}
        )

    def _later(self, task: RunningTask) -> None:
        world = self.cluster.world
        world.after(world.rng.uniform(0.05, 0.5), lambda: self._work(task))

    def _work(self, task: RunningTask) -> None:
        if not self.alive or task.state != "RUNNING" or task.waits_for_commit:
            return
        if task.had_ended and task.needs_commit:
            self._show(task)
        elif not task.had_ended and (self.cluster.is_endless(self.job_id) or not self._has_ended(task)):
            if not task.is_source:
                self._later(task)
            return
        if task.needs_commit:
            task.waits_for_commit = True
            if not task.had_ended:
                task.prepared = [f"{task.execution_id} {self.run}"]
            self.say({"type": "end_of_data", "execution_id": task.execution_id})
        else:
            self._state(task, "FINISHED")

    def _has_ended(self, task: RunningTask) -> bool:
        if not task.is_source:
            return all((self.run, up) in self.cluster.finished for up in task.upstream)
        if task.splits_left:
            self.cluster.processed[self._key(task)] += task.splits_left
            task.splits_left = 0
        if not task.no_more and not task.asked:
            task.asked = True
            self.say({"type": "request_splits", "execution_id": task.execution_id})
        return task.no_more


@dataclass
class SparkDriver:
    """The driver JVM, which outlives ResourceManagers."""

    alive: bool = True
    attached: set[str] = field(default_factory=set)


class SimulatedExecutor:
    """A Spark executor below a TaskManager; attaches after a while, ends with its driver once no slot needs it."""

    def __init__(self, cluster: Cluster, taskmanager: Any, spec: ExecutorSpec) -> None:
        self.cluster, self.taskmanager, self.spec = cluster, taskmanager, spec
        self.running, self.why = True, ""
        self.pid = cluster.new_pid()
        self.driver = cluster.drivers[spec.driver_url]
        world = cluster.world
        cluster.executors[spec.executor_id] = self
        world.after(world.rng.uniform(0.5, 3.0), self._attach)

    def _attach(self) -> None:
        if self.running and self.driver.alive:
            self.driver.attached.add(self.spec.executor_id)
        else:
            self.driver_lost()

    def driver_lost(self) -> None:
        if self.running and not self.cluster.slots_of(self):
            self.end("the driver is gone")

    def end(self, why: str) -> None:
        if self.running:
            self.running, self.why = False, why
            self.driver.attached.discard(self.spec.executor_id)
            for slot in self.cluster.slots_of(self):
                slot.end(SlotOutcome.LOST, f"its executor ended: {why}")

    # what a TaskManager asks of it

    def is_running(self) -> bool:
        return self.running

    def exit_reason(self) -> str:
        return self.why

    def log_tail(self) -> str:
        return ""

    def stop(self, grace: float) -> None:
        self.end("it was stopped")


class SimulatedFleet(WithoutStages):
    """In place of Spark: starts slot processes on executors after a while, or elsewhere, or twice, or not at all.

    One of it belongs to each ResourceManager; the driver to which it attaches may have been there before.
    """

    slots_outlive_driver = True

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.driver: SparkDriver | None = None

    def start(self) -> None:
        self.driver = self.cluster.driver()

    def stop(self) -> None:
        """The driver ends, and with it all slots."""
        if self.driver is not None and self.driver is self.cluster.drivers.get(self.cluster.driver_url()):
            self.cluster.kill_driver()
        self.driver = None

    def detach(self) -> None:
        self.driver = None

    def is_alive(self) -> bool:
        return self.driver is not None and self.driver.alive

    def executor_for(self, taskmanager_id: str, cores: int) -> ExecutorSpec | None:
        if not self.is_alive():
            raise FleetError("the driver is gone")
        return ExecutorSpec(self.cluster.new_executor_id(), self.cluster.driver_url(), "app", "secret", cores)

    def attached_executors(self) -> frozenset[str] | None:
        return frozenset(self.driver.attached) if self.driver is not None and self.driver.alive else frozenset()

    def start_slot(self, launch: SlotLaunch) -> None:
        world = self.cluster.world
        if not self.is_alive():
            raise FleetError("the driver is gone")
        if launch.allocation_id in self.cluster.wanted:
            raise FleetError("this allocation was launched before")
        if world.rng.random() < 0.02 and self.cluster.faults_go_on:
            raise FleetError("the driver refused the slot")
        self.cluster.wanted[launch.allocation_id] = launch
        world.after(world.rng.uniform(0.05, 0.6), lambda: self.cluster.launch(launch))
        if world.rng.random() < 0.03:  # Spark starts a second copy
            world.after(world.rng.uniform(0.05, 1.2), lambda: self.cluster.launch(launch))

    def cancel_slot(self, allocation_id: str) -> None:
        self.cluster.wanted.pop(allocation_id, None)

    def ended_slots(self) -> list[tuple[str, SlotOutcome, str]]:
        ended, self.cluster.ended = self.cluster.ended, []
        return ended
