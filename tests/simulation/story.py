"""One run of the simulation: faults for a while, then calm, then everything has to have come right."""

from __future__ import annotations

import functools
import logging
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

from tests.simulation.cluster import _SERVICES, Cluster, simulated
from tests.simulation.world import World

FAULTS_FOR = 240.0
CALM_FOR = 420.0
MOST_STEPS = 400_000


class StoryError(AssertionError):
    """A seed failed; the message tells its story."""


class _Teller(logging.Handler):
    def __init__(self, world: World) -> None:
        super().__init__(logging.WARNING)
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info is not None and record.exc_info[1] is not None:
            error = record.exc_info[1]
            text = "".join(traceback.format_exception(error))
            self._world.broken.append(f"{record.getMessage()}: {type(error).__name__}: {error}\n{text}")
        self._world.tell(f"    {record.name.partition('.')[0].removeprefix('firesteel_')}: {record.getMessage()[:300]}")


class Story:
    """What happens in one seed.

    Args:
        seed: of all chance in it.
        kind: ``faults``; ``calm``: nothing fails, and every job comes to its end; ``lossy``: messages are lost,
            doubled and late, and that is all.
    """

    def __init__(self, seed: int, kind: str = "faults") -> None:
        self.seed, self.calm, self.lossy, self.world = seed, kind == "calm", kind == "lossy", World(seed)
        self.cluster: Cluster
        self._restarts: list[Callable[[], None]] = []

    def run(self) -> None:
        world = self.world
        loggers = [logging.getLogger(name) for name in (*_SERVICES, "firesteel")]
        teller = _Teller(world)
        kept = [(logger.propagate, logger.level) for logger in loggers]
        for logger in loggers:
            logger.addHandler(teller)
            logger.propagate = False
            logger.setLevel(logging.WARNING)
        try:
            with simulated(world), tempfile.TemporaryDirectory() as directory:
                self.cluster = Cluster(world, Path(directory), world.rng.randint(2, 4), world.rng.randint(1, 3))
                cluster = self.cluster
                identify = mock.patch("firesteel_taskmanager.shell.identify", cluster.identify)
                running = mock.patch(
                    "firesteel_taskmanager.shell.is_running", lambda process: process.pid in cluster.slot_processes
                )
                kill = mock.patch("firesteel_taskmanager.shell.kill", lambda process: cluster.kill_slot(process.pid))
                with identify, running, kill:
                    self._tell()
        except Exception as error:
            story = "\n".join(world.story[-150:])
            raise StoryError(f"seed {self.seed}: {type(error).__name__}: {error}\n{story}") from error
        finally:
            for logger, (propagate, level) in zip(loggers, kept, strict=True):
                logger.removeHandler(teller)
                logger.propagate, logger.level = propagate, level

    def _tell(self) -> None:
        world, cluster = self.world, self.cluster
        rng = world.rng
        if self.calm:
            cluster.faults_go_on = False
        elif self.lossy:
            cluster.faults_go_on = False
            world.loss, world.duplication = 0.1, 0.1
        else:
            world.loss, world.duplication = rng.choice([0.0, 0.01, 0.1]), rng.choice([0.0, 0.02])
        most = len(cluster.taskmanagers) * cluster.slots if self.calm or self.lossy else 5
        for _ in range(rng.randint(2, 6)):
            endless = not self.calm and not self.lossy and rng.random() < 0.3
            job = functools.partial(cluster.submit, rng.randint(1, most), rng.randint(1, 3), endless)
            world.after(rng.uniform(20, FAULTS_FOR * 0.8), job)
        for _ in range(0 if self.calm or self.lossy else rng.randint(0, 8)):
            world.after(rng.uniform(1, FAULTS_FOR), self._fault)
        self._until(FAULTS_FOR)
        self._heal()
        self._until(FAULTS_FOR + CALM_FOR)
        cluster.check_tables()
        cluster.check_settled()
        if self.calm:
            states = [cluster.job_state(job_id) for job_id in cluster.submitted]
            assert set(states) == {"FINISHED"}, states
        if self.lossy:
            reasons = [cluster.failure_of(job_id) for job_id in cluster.submitted]
            assert not [reason for reason in reasons if "splits" in reason.lower()], reasons

    def _until(self, end: float) -> None:
        world = self.world
        stop: list[Any] = []
        world.after(end - world.now, lambda: stop.append(True))
        while not stop:
            if world.steps > MOST_STEPS:
                raise AssertionError(f"no end after {world.steps} events")
            world.step()
            self.cluster.check()
            assert not world.broken, world.broken[0]
            if world.steps % 50 == 0:
                self.cluster.check_tables()

    # -- faults

    def _fault(self) -> None:
        cluster, rng = self.cluster, self.world.rng
        kinds = [self._kill_taskmanager, self._kill_slot, self._cut, self._cut, self._freeze, self._cancel]
        kinds += [self._kill_coordinator, self._kill_coordinator, cluster.kill_driver, cluster.kill_executor]
        rng.choice(kinds)()

    def _kill_coordinator(self) -> None:
        cluster, rng = self.cluster, self.world.rng
        kill, start, process = rng.choice(
            [
                (cluster.kill_resourcemanager, cluster.start_resourcemanager, cluster.resourcemanager),
                (cluster.kill_dispatcher, cluster.start_dispatcher, cluster.dispatcher),
                (cluster.kill_jobmaster, cluster.start_jobmaster, cluster.jobmaster),
            ]
        )
        assert process is not None
        if process.alive:
            kill()
            self._restarts.append(start)
            self.world.after(rng.uniform(0.2, 60), lambda: self._restart(start))

    def _restart(self, start: Callable[[], None]) -> None:
        if start in self._restarts:
            self._restarts.remove(start)
            start()

    def _kill_taskmanager(self) -> None:
        name = self.world.rng.choice(list(self.cluster.taskmanagers))
        if self.cluster.taskmanagers[name].alive:
            self.cluster.kill_taskmanager(name)
            self.world.after(self.world.rng.uniform(0.5, 20), lambda: self.cluster.start_taskmanager(name))

    def _kill_slot(self) -> None:
        pids = sorted(self.cluster.slot_processes)
        if pids:
            pid = self.world.rng.choice(pids)
            self.world.tell(f"slot {pid} is killed")
            self.cluster.kill_slot(pid)

    def _cut(self) -> None:
        rng, world = self.world.rng, self.world
        hosts = sorted({p.host for p in world.processes.values()})
        one, other = rng.sample(hosts, 2)
        pairs = {(one, other)} if rng.random() < 0.4 else {(one, other), (other, one)}
        seconds = rng.choice([1.0, 15.0, 40.0, 100.0])
        world.tell(f"cut for {seconds:g} s: {sorted(pairs)}")
        world.blocked |= pairs

        def heal() -> None:
            world.blocked -= pairs
            world.tell(f"healed: {sorted(pairs)}")

        world.after(seconds, heal)

    def _freeze(self) -> None:
        rng, world = self.world.rng, self.world
        process = rng.choice([p for p in world.processes.values() if p.alive])
        seconds = rng.choice([0.5, 3.0, 40.0, 100.0])
        world.tell(f"{process} is frozen for {seconds:g} s")
        process.frozen = True

        def thaw() -> None:
            process.frozen = False
            world.tell(f"{process} goes on")

        world.after(seconds, thaw)

    def _cancel(self) -> None:
        if self.cluster.submitted:
            self.cluster.cancel(self.world.rng.choice(self.cluster.submitted))

    def _heal(self) -> None:
        world = self.world
        world.blocked.clear()
        world.loss = world.duplication = 0.0
        for process in world.processes.values():
            process.frozen = False
        for name, process in self.cluster.taskmanagers.items():
            if not process.alive:
                self.cluster.start_taskmanager(name)
        for start in list(self._restarts):
            self._restart(start)
        self.cluster.faults_go_on = False
        world.tell("all faults are over")
