"""One run of the simulation: faults for a while, then calm, then everything has to have come right."""

from __future__ import annotations

import functools
import logging
import signal
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

from firesteel.core.errors import FencedError
from firesteel.ha.services import DISPATCHER, JOBMASTER_HOST, RESOURCEMANAGER
from firesteel_jobmaster.core import JobMasterCore
from firesteel_jobmaster.shell import JobMaster
from tests.simulation.ambushes import Ambushes
from tests.simulation.checkpointed_jobs import AMPLE
from tests.simulation.cluster import _SERVICES, Cluster
from tests.simulation.replaced import simulated
from tests.simulation.savepoints import Users
from tests.simulation.settled import check_settled
from tests.simulation.storage import Weather
from tests.simulation.world import PlantedError, Process, World

COMPONENTS = (DISPATCHER, RESOURCEMANAGER, JOBMASTER_HOST)
FAULTS_FOR = 240.0
LONG = 330.0
"""Seconds of outages that are longer than all that anybody waits for others."""
CALM_FOR = 420.0
CALM_AT_LEAST = 150.0
"""Whoever was cut off or frozen has been given up by then, and slots that do not come have been waited for."""
MOST_STEPS = 400_000
_WEATHERS: tuple[Callable[[], Weather], ...] = (
    Weather,
    Weather,
    functools.partial(Weather, slow=(0.1, 3.0)),
    functools.partial(Weather, fails=0.05, forgets=0.05, halves=0.2),
    functools.partial(Weather, slow=(0.05, 1.0), fails=0.2, forgets=0.1, halves=0.2),
    functools.partial(Weather, lies=0.15),
    functools.partial(Weather, rots=0.1, fails=0.02),
)


class StoryError(AssertionError):
    """A seed failed; the message tells its story."""


class _Teller(logging.Handler):
    def __init__(self, world: World) -> None:
        super().__init__(logging.WARNING)
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info is not None and record.exc_info[1] is not None:
            error = record.exc_info[1]
            if isinstance(error, FencedError | PlantedError):
                return  # another one leads, or follows: the process ends
            text = "".join(traceback.format_exception(error))
            self._world.broken.append(f"{record.getMessage()}: {type(error).__name__}: {error}\n{text}")
        self._world.tell(f"    {record.name.partition('.')[0].removeprefix('firesteel_')}: {record.getMessage()[:300]}")


class Story:
    """What happens in one seed.

    Args:
        seed: of all chance in it.
        kind: ``faults``; ``calm``: nothing fails, and every job comes to its end; ``lossy``: messages are lost,
            doubled and late, and that is all; ``checkpoints``: jobs take checkpoints, and there are faults at all steps
            of them; ``savepoints``: the same, and users take savepoints, stop jobs with them, go on from them and
            remove them; ``hangs``: the same as ``checkpoints`` with calls of the storage that never return;
            ``outages``: what jobs stand on is away for minutes, can't be written, or has a clock that is wrong, and no
            job ends by that; ``rolling``: coordinators are asked to end and come back, or their stand-bys lead, as in a
            roll-out, and no job notices; ``ends``: no Dispatcher is up when a job ends, and its JobMaster is killed
            before there is one: the job does not run again.
    """

    def __init__(self, seed: int, kind: str = "faults") -> None:
        self.seed, self.kind, self.world = seed, kind, World(seed)
        self.calm, self.lossy = kind == "calm", kind == "lossy"
        self.cluster: Cluster
        self._faults_for = FAULTS_FOR
        self._ended_alone: set[str] = set()

    @property
    def told(self) -> list[str]:
        return self.world.story

    def run(self) -> None:
        world = self.world
        loggers = [logging.getLogger(name) for name in (*_SERVICES, "firesteel")]
        teller = _Teller(world)
        levels = [(logger.propagate, logger.level) for logger in loggers]
        for logger in loggers:
            logger.addHandler(teller)
            logger.propagate = False
            logger.setLevel(logging.WARNING)
        try:
            with simulated(world, lambda: self.cluster), tempfile.TemporaryDirectory() as directory:
                cluster = self.cluster = Cluster.__new__(Cluster)
                standbys = world.rng.random() < 0.4 and not self.calm and not self.lossy
                cluster.__init__(  # type: ignore[misc] # what it starts asks for it
                    world, Path(directory), world.rng.randint(2, 4), world.rng.randint(1, 3), standbys
                )
                ends = "firesteel_taskmanager.process_ends"
                identify = mock.patch("firesteel_taskmanager.process_registrations.identify", cluster.identify)
                running = mock.patch(f"{ends}.is_running", lambda process: process.pid in cluster.slot_processes)
                kill = mock.patch(f"{ends}.kill", lambda process: cluster.kill_slot(process.pid))
                with identify, running, kill, mock.patch.object(JobMasterCore, "validates", True):
                    self._tell()
        except Exception as error:
            story = "\n".join(world.story[-150:]) + self._stimuli()
            again = f"python -m tests.simulation {self.kind} {self.seed}"
            text = f"{self.kind} seed {self.seed}: {type(error).__name__}: {error}\nagain: {again}\n{story}"
            raise StoryError(text) from error
        finally:
            for logger, (propagate, level) in zip(loggers, levels, strict=True):
                logger.removeHandler(teller)
                logger.propagate, logger.level = propagate, level

    def _stimuli(self) -> str:
        """The last events of each job's last JobMaster."""
        led: dict[str, list[JobMaster]] = getattr(getattr(self, "cluster", None), "led", {})  # it may not be there yet
        jobs = {self.cluster.short(id_): jobmasters[-1].core.stimuli.lines()[-20:] for id_, jobmasters in led.items()}
        return "".join(f"\nwhat the last JobMaster of {name} heard:\n" + "\n".join(jobs[name]) for name in jobs)

    def _tell(self) -> None:
        world, cluster = self.world, self.cluster
        rng = world.rng
        if self.calm or self.kind in ("rolling", "ends"):
            cluster.faults_go_on = False
        elif self.lossy:
            cluster.faults_go_on = False
            world.loss, world.duplication = 0.1, 0.1
        elif self.kind not in ("rolling", "ends"):
            world.loss, world.duplication = rng.choice([0.0, 0.01, 0.1]), rng.choice([0.0, 0.02])
        if self.kind in ("checkpoints", "savepoints", "hangs"):
            self._checkpoints()
        elif self.kind == "outages":
            self._outages()
        elif self.kind == "rolling":
            self._rolling()
        elif self.kind == "ends":
            self._ends()
        else:
            self._jobs()
        self._until(self._faults_for)
        self._heal()
        self._until_settled()
        if self.calm:
            states = [cluster.job_state(job_id) for job_id in cluster.submitted]
            assert set(states) == {"FINISHED"}, states
        if self.kind == "rolling":
            for job_id, (first, *others) in cluster.led.items():
                name, restarts = cluster.short(job_id), first.core.graph.restarts
                assert not others, (
                    f"coordinators were restarted in order, and {name} has had {1 + len(others)} JobMasters"
                )
                assert not restarts, f"coordinators were restarted in order, and {name} was restarted {restarts} times"
        if self.kind == "ends":
            assert self._ended_alone, "no job has ended while no Dispatcher was up"
            for job_id in self._ended_alone:
                name, state = cluster.short(job_id), cluster.job_state(job_id)
                assert len(cluster.led[job_id]) == 1, f"{name} has ended and has run again"
                assert state == cluster.led[job_id][0].core.state.name, f"{name} is {state}"
        if self.lossy:
            reasons = list(cluster.failures.values())
            assert not [reason for reason in reasons if "splits" in reason.lower()], reasons

    def _checkpoints(self) -> None:
        world, cluster, rng = self.world, self.cluster, self.world.rng
        weather = cluster.disk.weather = Weather(hangs=0.03) if self.kind == "hangs" else rng.choice(_WEATHERS)()
        cluster.disk.is_fair = not (weather.fails or weather.forgets or weather.halves)
        most = len(cluster.taskmanagers) * cluster.slots
        for _ in range(rng.randint(1, 3)):
            job = functools.partial(cluster.submit_checkpointed, rng.randint(1, min(3, most)))
            world.after(rng.uniform(20, FAULTS_FOR * 0.6), job)
        for _ in range(rng.randint(0, 3)):
            world.after(rng.uniform(1, FAULTS_FOR), self._fault)
        if rng.random() < 0.3:
            world.after(rng.uniform(40, FAULTS_FOR * 0.6), self.depose_jobmaster)
        Ambushes(self, rng.randint(0, 8))
        if self.kind == "savepoints":
            Users(self, rng.randint(5, 15), FAULTS_FOR, FAULTS_FOR + CALM_AT_LEAST / 2)

    def _outages(self) -> None:
        world, cluster, rng = self.world, self.cluster, self.world.rng
        most = len(cluster.taskmanagers) * cluster.slots
        for host in ("jm", "jm2", "disp", "disp2", "rm", "rm2"):
            cluster.skews[host] = rng.choice([0.0, 0.0, -1000.0, 1000.0])
        for _ in range(rng.randint(1, 2)):
            if rng.random() < 0.6:
                job = functools.partial(cluster.submit_checkpointed, rng.randint(1, min(3, most)), AMPLE)
            else:
                job = functools.partial(cluster.submit, rng.randint(1, most), rng.randint(1, 3), True, AMPLE)
            world.after(rng.uniform(20, 60), job)
        kinds = [self._storage_away, self._storage_away, self._no_forks, self._no_forks, self._long_outage]
        kinds += [self._long_outage, self._long_cut, self.depose, self.depose, self.stop_coordinator]
        kinds += [self._plant, self._plant]
        for _ in range(rng.randint(1, 4)):
            world.after(rng.uniform(30, FAULTS_FOR), rng.choice(kinds))
        for _ in range(rng.randint(0, 3)):
            world.after(rng.uniform(40, FAULTS_FOR), rng.choice([self.kill_jobmaster, self.kill_jobmaster_machine]))
        if rng.random() < 0.5:
            self._faults_for = FAULTS_FOR + LONG

    def _rolling(self) -> None:
        """One coordinator after the other, in any order, again and again."""
        world, cluster, rng = self.world, self.cluster, self.world.rng
        most = len(cluster.taskmanagers) * cluster.slots
        parallelism = rng.randint(1, min(3, max(1, most - 1)))
        world.after(20.0, functools.partial(cluster.submit_checkpointed, parallelism, AMPLE))
        if parallelism < most:
            world.after(rng.uniform(30, 60), functools.partial(cluster.submit, 1, 1, True, AMPLE))
        at = 70.0
        while at < FAULTS_FOR:
            world.after(at, self.stop_coordinator)
            at += rng.uniform(5.0, 30.0)

    def _ends(self) -> None:
        """Jobs with and without checkpoints end, in order and by a failure."""
        world, cluster, rng = self.world, self.cluster, self.world.rng
        most = len(cluster.taskmanagers) * cluster.slots
        world.after(20.0, functools.partial(cluster.submit, rng.randint(1, most), rng.randint(1, 3), False, 0))
        world.after(rng.uniform(20, 60), functools.partial(cluster.submit_checkpointed, 1, AMPLE))
        if rng.random() < 0.5:
            world.after(rng.uniform(20, 60), self.kill_slot)

        def ends(job_id: str) -> None:
            if job_id in self._ended_alone or not cluster.dispatcher.alive:
                return
            self._ended_alone.add(job_id)
            away = rng.uniform(30.0, 120.0)
            world.tell(f"{cluster.short(job_id)} ends, and no Dispatcher is up for {away:.0f} s")
            for process in cluster.coordinators[DISPATCHER].alive():
                world.after(0.0, functools.partial(cluster.kill, process, away))
            world.after(rng.uniform(5.0, 25.0), self.kill_jobmaster_machine)

        cluster.on_end = ends

    def _storage_away(self) -> None:
        """High-availability services can't be reached for a while: by one host or, now and then, by any."""
        world, ha = self.world, self.cluster.ha
        seconds = world.rng.choice([5.0, 30.0, 100.0])
        if world.rng.random() < 0.5:
            host = world.rng.choice(
                sorted({p.host for these in self.cluster.coordinators.values() for p in these.processes.values()})
            )
            world.tell(f"{host} can't reach the high-availability services for {seconds:g} s")
            ha.away.add(host)
            world.after(seconds, lambda: ha.away.discard(host))
            return
        ha.fails = world.rng.choice([0.1, 0.5, 1.0])
        world.tell(f"of the calls to high-availability services {ha.fails:.0%} fail for {seconds:g} s")

        def heal() -> None:
            ha.fails = 0.0

        world.after(seconds, heal)

    def _plant(self) -> None:
        """A JobMaster has a bug, which a message brings out."""
        world = self.world
        jobs = [job for id_ in self.cluster.submitted for job in self.cluster.jobmasters(id_) if not job.is_over]
        if not jobs:
            return
        core = world.rng.choice(jobs).core
        method = world.rng.choice(["taskmanager_heartbeat", "timer_fired", "update_task_states", "offer_slots"])

        def raises(*_: Any) -> Any:
            del core.__dict__[method]
            world.tell(f"{method} of a JobMaster raises")
            raise PlantedError(f"a bug in {method}")

        core.__dict__[method] = raises

    def _no_forks(self) -> None:
        """There is no memory for more processes, just when some are lost."""
        world, processes = self.world, self.cluster.job_processes
        seconds = world.rng.choice([5.0, 30.0, 100.0])
        processes.forks_fail = world.rng.choice([0.5, 1.0])
        world.tell(f"of forks {processes.forks_fail:.0%} fail for {seconds:g} s")
        world.after(1.0, self.kill_jobmaster)

        def heal() -> None:
            processes.forks_fail = 0.0

        world.after(seconds, heal)

    def _long_outage(self) -> None:
        """A coordinator is away for longer than any timeout, perhaps with its machine."""
        cluster, rng = self.cluster, self.world.rng
        process = cluster.leading(rng.choice(COMPONENTS))
        if process.alive:
            self.world.tell(f"{process.host} is away for {LONG:g} s")
            if rng.random() < 0.5:
                cluster.kill_machine(process.host, LONG)
            else:
                cluster.kill(process, LONG)

    def _long_cut(self) -> None:
        """A Dispatcher that is started again can't reach healthy JobMasters for longer than any timeout."""
        cluster = self.cluster
        self._part(cluster.jobmaster_host.host, cluster.dispatcher.host, LONG)
        if self.world.rng.random() < 0.7:
            cluster.kill(cluster.dispatcher, 1.0)

    def _jobs(self) -> None:
        world, cluster, rng = self.world, self.cluster, self.world.rng
        most = len(cluster.taskmanagers) * cluster.slots if self.calm or self.lossy else 5
        for _ in range(rng.randint(2, 6)):
            endless = not self.calm and not self.lossy and rng.random() < 0.3
            restarts = rng.choice([0, 0, 1, 3, 100])
            job = functools.partial(cluster.submit, rng.randint(1, most), rng.randint(1, 3), endless, restarts)
            world.after(rng.uniform(20, FAULTS_FOR * 0.8), job)
        for _ in range(0 if self.calm or self.lossy else rng.randint(0, 8)):
            world.after(rng.uniform(1, FAULTS_FOR), self._fault)

    def _until_settled(self) -> None:
        """What the last faults have caused has come out; everything has come right then, or does so in time."""
        end = self._faults_for + CALM_FOR
        self._until(self._faults_for + CALM_AT_LEAST)
        while self.world.now < end:
            try:
                check_settled(self.cluster)
                return
            except AssertionError:
                self._until(min(end, self.world.now + 20.0))
            assert not self.world.broken, self.world.broken[0]
        check_settled(self.cluster)

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
        self.cluster.check_tables()

    # -- faults

    def _fault(self) -> None:
        cluster, rng = self.cluster, self.world.rng
        kinds = [self.kill_taskmanager, self.kill_slot, self._cut, self._cut, self._freeze, self._cancel]
        kinds += [self._kill_coordinator, self._kill_coordinator, cluster.kill_driver, cluster.kill_executor]
        kinds += [self.depose_jobmaster, self.stop_coordinator, self.stop_coordinator, self.depose]
        kinds += [self.kill_jobmaster, self.kill_jobmaster, self.kill_jobmaster_machine]
        rng.choice(kinds)()

    def _kill_coordinator(self) -> None:
        self.kill_coordinator(self.world.rng.choice(COMPONENTS))

    def _away(self) -> float:
        return self.world.rng.uniform(0.2, 60)

    def kill_coordinator(self, component: str) -> None:
        """The process that leads; it is started again after a while. JobMasters go on without their host."""
        self.cluster.kill(self.cluster.leading(component), self._away())

    def kill_jobmaster(self) -> None:
        """The process of one."""
        processes = list(self.cluster.job_processes.alive.values())
        if processes:
            process = self.world.rng.choice(processes)
            process.doomed = True
            process.kill()

    def kill_jobmaster_machine(self) -> None:
        """The JobMaster host with all its JobMasters."""
        self.cluster.kill_machine(self.cluster.jobmaster_host.host, self._away())

    def stop_coordinator(self) -> None:
        """One of all that live is asked to end, as in a rolling restart; another one follows."""
        cluster, rng = self.cluster, self.world.rng
        alive = [process for these in cluster.coordinators.values() for process in these.alive()]
        if alive:
            process = rng.choice(alive)
            self.world.tell(f"{process} is asked to end")
            process.away_for = rng.choice([0.5, 5.0, 30.0]) if cluster.faults_go_on else rng.choice([0.5, 2.0, 5.0])
            process.signal(signal.SIGTERM)

    def depose(self) -> None:
        """The time of a leader is over, which it may not know."""
        cluster, rng = self.cluster, self.world.rng
        component = rng.choice([DISPATCHER, RESOURCEMANAGER] if cluster.ha.has_standbys else [JOBMASTER_HOST])
        process = cluster.leading(component)
        if not process.alive or not process.service._started:
            return
        if rng.random() < 0.5:
            self._stop(process, rng.choice([3.0, 40.0, 100.0]))
        cluster.depose(component)

    def kill_taskmanager(self) -> None:
        """One of them; it is started again after a while."""
        name = self.world.rng.choice(list(self.cluster.taskmanagers))
        if self.cluster.taskmanagers[name].alive:
            self.cluster.kill_taskmanager(name)
            after = self.world.rng.uniform(0.5, 20)
            if after < 5:  # before anybody has missed it
                after /= 10
            self.world.after(after, lambda: self.cluster.start_taskmanager(name))

    def kill_slot(self) -> None:
        pids = sorted(self.cluster.slot_processes)
        if pids:
            pid = self.world.rng.choice(pids)
            self.world.tell(f"slot {pid} is killed")
            self.cluster.kill_slot(pid)

    def _cut(self) -> None:
        rng, world = self.world.rng, self.world
        hosts = sorted({p.host for p in world.processes.values()})
        host, other = rng.sample(hosts, 2)
        self._part(host, other)

    def cut_jobmaster(self) -> None:
        """Its host can't reach one of the others."""
        own = self.cluster.jobmaster_host.host
        hosts = sorted({p.host for p in self.world.processes.values()} - {own})
        self._part(own, self.world.rng.choice(hosts))

    def _part(self, host: str, other: str, seconds: float = 0.0) -> None:
        rng, world = self.world.rng, self.world
        pairs = {(host, other)} if rng.random() < 0.4 else {(host, other), (other, host)}
        seconds = seconds or rng.choice([1.0, 15.0, 40.0, 100.0])
        world.tell(f"cut for {seconds:g} s: {sorted(pairs)}")
        world.blocked |= pairs

        def heal() -> None:
            world.blocked -= pairs
            world.tell(f"healed: {sorted(pairs)}")

        world.after(seconds, heal)

    def _freeze(self) -> None:
        world = self.world
        self._stop(world.rng.choice([p for p in world.processes.values() if p.alive]))

    def freeze_jobmaster(self, job_id: str) -> None:
        """All threads of its process stop for a while."""
        for process in self.cluster.job_processes.of_job(job_id):
            self._stop(process)

    def _stop(self, process: Process, seconds: float = 0.0) -> None:
        rng, world = self.world.rng, self.world
        seconds = seconds or rng.choice([0.5, 3.0, 40.0, 100.0])
        world.tell(f"{process} is frozen for {seconds:g} s")
        process.frozen = process.was_frozen = True

        def thaw() -> None:
            process.frozen = False
            world.tell(f"{process} goes on")

        world.after(seconds, thaw)

    def depose_jobmaster(self) -> None:
        """Another JobMaster host leads, and the Dispatcher hears nothing from the JobMasters of the one before, which
        go on: they are given up, and live beside those that follow them."""
        cluster, rng, world = self.cluster, self.world.rng, self.world
        former = cluster.jobmaster_host
        if not former.alive or not former.service._started:
            return
        seconds = rng.choice([60.0, 60.0, 90.0])
        how = rng.choice(["cut", "cut", "frozen", "dispatcher"])
        if how == "cut":
            self._part(former.host, cluster.dispatcher.host, seconds)
        elif how == "frozen":
            for process in (former, *cluster.job_processes.on_host(former.host)):
                self._stop(process, seconds)
        else:
            self.kill_coordinator(DISPATCHER)
        cluster.depose(JOBMASTER_HOST)
        if rng.random() < 0.5:
            world.after(rng.uniform(seconds, 2 * seconds), lambda: cluster.kill_machine(former.host))

    def fail_task(self) -> None:
        tasks = [task for slot in self.cluster.slot_processes.values() for task in slot.checkpointed.values()]
        running = [task for task in tasks if task.state == "RUNNING"]
        if running:
            self.world.rng.choice(running).fail()

    def _cancel(self) -> None:
        if self.cluster.submitted:
            self.cluster.cancel(self.world.rng.choice(self.cluster.submitted))

    def _heal(self) -> None:
        world = self.world
        world.blocked.clear()
        world.loss = world.duplication = 0.0
        for process in world.processes.values():
            process.frozen = False
        self.cluster.ha.fails = self.cluster.job_processes.forks_fail = 0.0
        self.cluster.ha.away.clear()
        self.cluster.start_all()
        self.cluster.faults_go_on = False
        self.cluster.disk.weather = Weather()
        world.tell("all faults are over")
