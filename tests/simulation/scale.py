"""What a large job, and a session of many, cost their services: ``python -m tests.simulation.scale [SUBTASKS ...]`` and
``python -m tests.simulation.scale jobs [JOBS ...]``.

All services are the real ones, each in a process of its own, and all their messages travel as bytes; only network,
fleet and slots are models. Of each phase of a job's life it counts calls and bytes, and measures processor time and
the longest time for which an event loop was blocked by one piece of work. Signing and sockets are not in it.
"""

from __future__ import annotations

import asyncio
import gc
import heapq
import logging
import math
import re
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

from firesteel.checkpoint.handles import FileState
from firesteel.checkpoint.subtask_state import KeyedState, OperatorSubtaskState, TaskState
from firesteel.graph.job_graph import JobEdge, JobGraph, JobVertex, OperatorInfo, SourceInfo
from firesteel.graph.key_groups import key_group_range
from firesteel.ha.services import RESOURCEMANAGER
from firesteel.protocol import messages as m
from tests.simulation import cluster as cluster_module
from tests.simulation.checkpointed import METRICS
from tests.simulation.cluster import _CHAIN, _CHAIN_BYTES, Cluster
from tests.simulation.loop import ProcessLoop
from tests.simulation.obedience import Obedience
from tests.simulation.replaced import simulated
from tests.simulation.slots import SlotProcess
from tests.simulation.world import Process, World

SLOTS = 16
"""Of each TaskManager."""
PATIENCE = 3000.0
LONGEST = 0.05
"""Seconds for which no loop should be blocked."""
_SOURCE, _SINK = f"{1:032x}", f"{2:032x}"
_MAX_PARALLELISM = 32768
_METHOD = re.compile(r"/rpc/(\w+)$")


@dataclass
class Cost:
    """Of one phase.

    Attributes:
        calls, sent: calls and their bytes, answers included, by method.
        seconds: processor time, by kind of process.
        longest: of one piece of work, and what it was, by kind of process.
        took: simulated seconds.
    """

    calls: Counter[str] = field(default_factory=Counter)
    sent: Counter[str] = field(default_factory=Counter)
    seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    longest: dict[str, tuple[float, str]] = field(default_factory=dict)
    took: float = 0.0

    def worked(self, kind: str, seconds: float, handle: Any) -> None:
        """A process has done a piece of work."""
        self.seconds[kind] += seconds
        if seconds > self.longest.get(kind, (0.0, ""))[0]:
            self.longest[kind] = seconds, _name_of(handle)

    @property
    def blocked(self) -> tuple[float, str]:
        """The longest piece of work of any process."""
        return max(self.longest.values(), default=(0.0, ""))


def _name_of(handle: Any) -> str:
    """What a loop did: the coroutine of a task, or the function that was called."""
    callback = getattr(handle, "_callback", handle)
    task = getattr(callback, "__self__", None)
    coroutine = task.get_coro() if isinstance(task, asyncio.Task) else None
    return getattr(coroutine, "__qualname__", "") or repr(callback)[:300]


class NoObedience(Obedience):
    """Looks at nothing: what it does would be measured."""

    def before(self, callee: Any) -> Any:
        return None

    def after(self, *_: Any) -> None:
        pass


class ScaleWorld(World):
    """Turns only the processes that have something to do, and measures what that costs."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.cost = Cost()
        self.obedience = NoObedience()
        self._due: list[tuple[float, int, Process]] = []
        self._looked: dict[int, float] = {}
        self._fresh: set[Process] = set()

    def awake(self, process: Process) -> None:
        """Something was scheduled in it."""
        self._fresh.add(process)

    def tell(self, text: str) -> None:
        pass

    def step(self) -> bool:
        self.steps += 1
        for process in self._fresh:
            due = process.due_at() if process.alive else math.inf
            self._looked[process.incarnation] = due
            if due < math.inf:
                heapq.heappush(self._due, (due, process.incarnation, process))
        self._fresh.clear()
        while self._due and (not self._due[0][2].alive or self._looked[self._due[0][1]] != self._due[0][0]):
            heapq.heappop(self._due)
        soonest = self._due[0][0] if self._due else math.inf
        queued = self._queue[0][0] if self._queue else math.inf
        if soonest <= self.now or soonest <= queued:
            if soonest == math.inf:
                return False
            self.now = max(self.now, soonest)
            process = heapq.heappop(self._due)[2]
            process.loop.step()
            self._fresh.add(process)
            return True
        self.now = max(self.now, queued)
        heapq.heappop(self._queue)[2]()
        return True

    async def _perform(self, callee: Process, path: str, body: bytes, caller: Process) -> tuple[int, bytes]:
        status, answer = await super()._perform(callee, path, body, caller)
        match = _METHOD.search(path)
        method = match[1] if match else path
        self.cost.calls[method] += 1
        self.cost.sent[method] += len(body) + len(answer)
        return status, answer


class ScaleSlot(SlotProcess):
    """A slot process whose tasks run for ever, and write their state when the barriers of all sources are there."""

    def _received(self, message: dict[str, Any]) -> None:
        if not self.alive:
            return
        if message["type"] == "deploy":
            self.job_id = message["deployment"]["job_id"]
        of_job: ScaleJob | None = self.cluster.scale.get(self.job_id)  # type: ignore[attr-defined]
        if of_job is None:
            super()._received(message)
            return
        match message["type"]:
            case "deploy":
                for plain in message["deployment"]["tasks"]:
                    id_ = plain["execution_id"]
                    of_job.running[id_] = self
                    self.say({"type": "task_state", "execution_id": id_, "state": "INITIALIZING", "error": None})
                    self.say({"type": "task_state", "execution_id": id_, "state": "RUNNING", "error": None})
            case "trigger_checkpoint":
                of_job.triggered(message["checkpoint_id"], message["execution_ids"])
            case "checkpoint_complete":
                of_job.completed += len(message["execution_ids"])
            case "cancel":
                for id_ in message["execution_ids"] or [e for e, slot in of_job.running.items() if slot is self]:
                    if of_job.running.pop(id_, None) is not None:
                        self.ends(id_, "CANCELED")
            case _:
                super()._received(message)

    def ends(self, execution_id: str, state: str, error: Mapping[str, Any] | None = None) -> None:
        """A task has ended."""
        self.say({"type": "task_state", "execution_id": execution_id, "state": state, "error": error, "metrics": {}})


class ScaleJob:
    """What the slots of the job know of one another."""

    def __init__(self, sources: int, hash_edge: bool) -> None:
        self._sources, self._hash_edge = sources, hash_edge
        self.running: dict[str, ScaleSlot] = {}
        self.completed = 0
        self._at: Counter[int] = Counter()

    def triggered(self, checkpoint_id: int, execution_ids: Sequence[str]) -> None:
        """Sources have sent their barriers."""
        self._at[checkpoint_id] += len(execution_ids)
        for id_ in execution_ids:
            self._acknowledge(checkpoint_id, id_)
        if self._at[checkpoint_id] == self._sources:
            for id_ in list(self.running):
                if id_.startswith(_SINK):
                    self._acknowledge(checkpoint_id, id_)

    def _acknowledge(self, checkpoint_id: int, execution_id: str) -> None:
        vertex, subtask, _ = execution_id.split("_")
        file = FileState(f"/disk/chk-{checkpoint_id}/{execution_id}", 100, "12345678")
        groups = key_group_range(int(subtask), self._sources, _MAX_PARALLELISM)
        keyed = KeyedState(({"name": "counts", "kind": "value"},), groups, (file,))
        state = TaskState({vertex: OperatorSubtaskState({"state": keyed})})
        said = {"type": "acknowledge_checkpoint", "execution_id": execution_id, "checkpoint_id": checkpoint_id}
        metrics = dict.fromkeys(METRICS, 1)
        self.running[execution_id].say({**said, "metrics": metrics}, state.to_bytes())


class _Run:
    """What two kinds of runs share: a cluster, and how its phases are measured.

    Args:
        slots: of the cluster.
    """

    def __init__(self, slots: int) -> None:
        self.phases: dict[str, Cost] = {}
        self.world = ScaleWorld(1)
        self.cluster: Any = None
        self._slots = slots

    def run(self) -> dict[str, Cost]:
        world = self.world
        gc.collect()
        gc.disable()  # a collection would look through all processes of the world
        logging.disable(logging.CRITICAL)
        try:
            with tempfile.TemporaryDirectory() as directory, simulated(world, lambda: self.cluster), _measured(world):
                taskmanagers = -(-self._slots // SLOTS)
                self.cluster = cluster = Cluster.__new__(Cluster)
                self.cluster.scale = {}
                cluster.__init__(world, Path(directory), taskmanagers, SLOTS)  # type: ignore[misc]
                cluster.faults_go_on = False
                cluster.disk.weather.lies = 0.0
                self._until("", lambda: self._attached() == taskmanagers)
                self._live()
        finally:
            logging.disable(logging.NOTSET)
            gc.enable()
        return self.phases

    def _live(self) -> None:
        raise NotImplementedError

    def _attached(self) -> int:
        drivers = self.cluster.drivers.values()
        return sum(len(driver.attached) for driver in drivers)

    def _all_run(self, job_id: str, total: int) -> bool:
        if len(self.cluster.scale[job_id].running) < total:
            return False
        [jobmaster] = self.cluster.jobmasters(job_id)
        return all(execution.state.value == "RUNNING" for execution in jobmaster.core.graph.executions())

    def _submit(self, parallelism: int, partitioner: str) -> str:
        cluster = self.cluster
        job_id = f"{self.world.rng.getrandbits(128):032x}"
        source = SourceInfo(_SOURCE, "trickle", {"splits": []}, bounded=False)
        vertices = tuple(
            JobVertex(
                id_, name, parallelism, _MAX_PARALLELISM, "default", _CHAIN, (OperatorInfo(id_, name, None, "map"),),
                source if id_ == _SOURCE else None, False, None,
            )
            for id_, name in ((_SOURCE, "Source"), (_SINK, "Sink"))
        )  # fmt: skip
        config = {
            "execution.checkpointing.interval": "10 h",
            "execution.checkpointing.timeout": "1 h",
            "restart-strategy.type": "fixed-delay",
            "restart-strategy.fixed-delay.delay": "0 s",
        }
        edges = (JobEdge(0, _SOURCE, _SINK, _SINK, 0, partitioner),)
        cluster.scale[job_id] = ScaleJob(parallelism, partitioner == "HASH")
        cluster.submitted.append(job_id)
        cluster.send(JobGraph(job_id, "scale", vertices, edges, config, {_CHAIN: _CHAIN_BYTES}))
        return job_id

    def _ask(self, question: Callable[[], Any]) -> None:
        """Something is asked of the Dispatcher: the phase "look"."""
        seen: list[Any] = []

        async def look() -> None:
            seen.append(await question())

        self.cluster.dispatcher.run(look)
        self._until("look", lambda: bool(seen))
        self.seen = seen[0]

    def _until(self, phase: str, reached: Callable[[], bool]) -> None:
        self.world.cost = cost = Cost()
        began = self.world.now
        while not self._look(reached):
            for _ in range(1 + 20 * self._slots // SLOTS):
                self.world.step()
            assert not self.world.broken, self.world.broken[:3]
            assert self.world.now < began + PATIENCE, f"{phase} does not come to its end"
        cost.took = self.world.now - began
        if phase:
            self.phases[phase] = cost

    @staticmethod
    def _look(reached: Callable[[], bool]) -> bool:
        return reached()

    def _wait(self, phase: str, seconds: float) -> None:
        end = self.world.now + seconds
        self._until(phase, lambda: self.world.now >= end)


class Scale(_Run):
    """One job of so many subtasks, from its submission to its end.

    Args:
        subtasks: half of them sources.
        partitioner: between them; ``HASH``: all are one pipelined region; ``FORWARD``: each pair is one.
    """

    def __init__(self, subtasks: int, partitioner: str = "HASH") -> None:
        super().__init__(subtasks // 2)
        self.parallelism, self._partitioner = subtasks // 2, partitioner

    def _live(self) -> None:
        cluster, total = self.cluster, 2 * self.parallelism
        job_id = self._submit(self.parallelism, self._partitioner)
        job = cluster.scale[job_id]
        self._until("deploy", lambda: self._all_run(job_id, total))
        self._wait("heartbeat", 10.0)
        self._for_job(job_id, lambda jobmaster: jobmaster.trigger_checkpoint(m.TriggerJobCheckpoint("one")))
        self._until("checkpoint", lambda: job.completed == total)
        self._ask(lambda: cluster.dispatcher.service.jobs.details.of(job_id, _SINK))
        assert [len(vertex["subtasks"]) for vertex in self.seen["vertices"]] == [0, self.parallelism]
        failed = next(iter(job.running))
        error = {"kind": "user", "error_class": "ValueError", "message": "no", "traceback": "", "recoverable": True}
        job.running.pop(failed).ends(failed, "FAILED", error)
        again = f"{failed.rpartition('_')[0]}_1"
        self._until("failure", lambda: again in job.running and self._all_run(job_id, total))
        cluster.cancel(job_id)
        self._until("cancel", lambda: cluster.job_state(job_id) == "CANCELED" and not cluster.slot_processes)

    def _for_job(self, job_id: str, do: Callable[[Any], object]) -> None:
        [process] = self.cluster.job_processes.of_job(job_id)
        [jobmaster] = self.cluster.jobmasters(job_id)

        async def call() -> None:
            do(jobmaster)

        process.run(call)


class Session(_Run):
    """So many jobs of one slot each, beside each other, and one that comes and goes."""

    def __init__(self, jobs: int) -> None:
        super().__init__(jobs + 1)
        self._jobs = jobs

    def _live(self) -> None:
        cluster = self.cluster
        jobs = [self._submit(1, "HASH") for _ in range(self._jobs)]
        self._until("start", lambda: all(self._all_run(job_id, 2) for job_id in jobs))
        self._wait("heartbeat", 10.0)
        self._ask(cluster.dispatcher.service.jobs.details.overviews)
        another = self._submit(1, "HASH")
        self._until("one more", lambda: self._all_run(another, 2))
        cluster.cancel(another)
        gone = self._jobs  # slots go when the end is in the job's record, behind its news
        self._until(
            "one less", lambda: cluster.job_state(another) == "CANCELED" and len(cluster.slot_processes) == gone
        )


@contextmanager
def _measured(world: ScaleWorld) -> Iterator[None]:
    run, call_soon, call_at = asyncio.Handle._run, ProcessLoop.call_soon, ProcessLoop.call_at
    run_in_executor = ProcessLoop.run_in_executor

    elsewhere = 0.0

    def timed(handle: Any) -> Any:
        began, before = time.thread_time(), elsewhere
        try:
            return run(handle)
        finally:
            world.cost.worked(handle._loop.process.name, time.thread_time() - began - (elsewhere - before), handle)

    def in_a_thread(loop: ProcessLoop, *arguments: Any) -> Any:
        nonlocal elsewhere
        began = time.thread_time()
        try:
            return run_in_executor(loop, *arguments)
        finally:
            elsewhere += time.thread_time() - began

    def soon(loop: ProcessLoop, *arguments: Any, **named: Any) -> Any:
        world.awake(loop.process)
        return call_soon(loop, *arguments, **named)

    def at(loop: ProcessLoop, *arguments: Any, **named: Any) -> Any:
        world.awake(loop.process)
        return call_at(loop, *arguments, **named)

    with (
        mock.patch.object(asyncio.Handle, "_run", timed),
        mock.patch.object(ProcessLoop, "call_soon", soon),
        mock.patch.object(ProcessLoop, "call_at", at),
        mock.patch.object(ProcessLoop, "run_in_executor", in_a_thread),
        mock.patch.object(cluster_module, "SlotProcess", ScaleSlot),
        mock.patch("tests.simulation.storage.SimulatedStorage.verify"),
        mock.patch("firesteel_taskmanager.process_registrations.identify", return_value=None),
        mock.patch("firesteel_taskmanager.process_ends.is_running", return_value=False),
    ):
        yield


def main(sizes: Sequence[int]) -> None:
    """Print a table of large jobs."""
    print("| subtasks | edge " + _COLUMNS)
    print("|---:|---" + _LINES)
    for subtasks in sizes:
        for edge in ("HASH", "FORWARD"):
            _print(f"{subtasks} | {edge}", Scale(subtasks, edge).run())


def main_of_sessions(sizes: Sequence[int]) -> None:
    """Print a table of sessions of many jobs."""
    print("| jobs " + _COLUMNS)
    print("|---:" + _LINES)
    for jobs in sizes:
        _print(str(jobs), Session(jobs).run())


_SERVICES = ("job", RESOURCEMANAGER, "dispatcher")
_COLUMNS = (
    "| phase | calls | KB | s of JobMasters | ResourceManager | Dispatcher | TaskManagers | others "
    "| ms blocked: JobMaster | ResourceManager | Dispatcher | others |"
)
_LINES = "|---|" + "---:|" * 11


def _print(of: str, phases: Mapping[str, Cost]) -> None:
    for phase, cost in phases.items():
        spent = dict(cost.seconds)
        services = [spent.pop(kind, 0.0) for kind in _SERVICES]
        taskmanagers = sum(spent.pop(name) for name in list(spent) if name.startswith("tm"))
        seconds = " | ".join(f"{value:.3f}" for value in (*services, taskmanagers, sum(spent.values())))
        longest = dict(cost.longest)
        of_services = [longest.pop(kind, (0.0, ""))[0] for kind in _SERVICES]
        others = max((value for value, _ in longest.values()), default=0.0)
        blocked = " | ".join(f"{1000 * value:.0f}" for value in (*of_services, others))
        calls, kilobytes = cost.calls.total(), cost.sent.total() / 1000
        print(f"| {of} | {phase} | {calls} | {kilobytes:.0f} | {seconds} | {blocked} |", flush=True)
        for kind, (value, what) in cost.longest.items():
            if value > LONGEST:
                print(f"  {of} {phase}: {kind} {1000 * value:.0f} ms in {what}", file=sys.stderr)


if __name__ == "__main__":
    if sys.argv[1:2] == ["jobs"]:
        main_of_sessions([int(argument) for argument in sys.argv[2:]] or [10, 100, 400])
    else:
        main([int(argument) for argument in sys.argv[1:]] or [100, 1000, 10_000])
