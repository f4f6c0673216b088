"""Programs run under load while somebody is killed, again and again; then each record is looked for."""

from __future__ import annotations

import random
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from firesteel.common import Configuration, Types
from firesteel.core.errors import CheckpointError
from firesteel.datastream import StreamExecutionEnvironment
from tests.integration.embedded.programs import ended, new_environment, rest_of, submitted_to
from tests.integration.processes.cluster import PATIENCE
from tests.integration.recovery import steps
from tests.integration.recovery.functions import Watched
from tests.integration.recovery.places import PARALLELISM, Place
from tests.integration.recovery.programs import PROGRAMS, Out, World, expected
from tests.integration.recovery.records import STOP
from tests.integration.recovery.stepped_sink import SteppedSink, written
from tests.integration.recovery.stepped_storage import FOLDER, NAME
from tests.waiting import wait_until

ANY_MOMENT = "at a random moment"
SAVEPOINT, ALIGNED, UNALIGNED = "a savepoint", "an aligned checkpoint", "an unaligned checkpoint"
WAYS = (SAVEPOINT, ALIGNED, UNALIGNED)
"""From what a job goes on with another parallelism."""
INTERVAL_MS = 100
MOST_READERS = 20
"""Each of them may come to its end while a savepoint is asked for."""
BACKENDS = ("hashmap", "filesystem", "rocksdb")


@dataclass(frozen=True)
class Death:
    """Somebody dies.

    Attributes:
        step: one of ``steps.STEPS``, ``steps.CLOSING``, or ``ANY_MOMENT``.
        victim: one of the place's, or ``steps.MYSELF``: whoever comes to the step.
    """

    step: str
    victim: str = steps.MYSELF


@dataclass
class Trial:
    """A job and those who die meanwhile.

    Args:
        place: where it runs.
        folder: for everything; empty.
        programs: names; all of them in one job.
        backend: of state.
        seed: of random moments and victims.
        rate: records a second of each reader.
        settings: more of them, of the job.

    Attributes:
        kills: so many so far.
        job: that runs.
    """

    place: Place
    folder: Path
    programs: Sequence[str]
    backend: str = "hashmap"
    seed: int = 1
    rate: int = 2000
    settings: Mapping[str, str] = field(default_factory=dict)
    kills: int = 0
    job: Any = None
    out: Out = None
    """Where the sinks write, as of ``World``."""
    _log: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._chance = random.Random(self.seed)
        self._seen = 0
        print(f"{self.place.name}, {self.backend}: {', '.join(self.programs)}; FIRESTEEL_TEST_SEED={self.seed}")

    def environment(
        self, checkpoints: bool = True, parallelism: int = PARALLELISM, more: Mapping[str, str] | None = None
    ) -> StreamExecutionEnvironment:
        """Of the programs; without checkpoints there are no restarts either."""
        environment = new_environment(parallelism)
        settings = Configuration()
        for key, value in {
            "execution.checkpointing.storage": NAME,
            "execution.checkpointing.dir": str(self.folder / FOLDER),
            "state.backend.type": self.backend,
            "restart-strategy.type": "fixed-delay" if checkpoints else "none",
            "restart-strategy.fixed-delay.attempts": "100000",
            "restart-strategy.fixed-delay.delay": "20 ms",
            **self.settings,
            **(more or {}),
        }.items():
            settings.set_string(key, value)
        environment.configure(settings)
        if checkpoints:
            environment.enable_checkpointing(INTERVAL_MS)
        return environment

    def run(
        self,
        deaths: Sequence[Death],
        at_the_end: Death | None = None,
        then: Callable[[], None] = lambda: None,
    ) -> None:
        """Run the programs to files, with these deaths, and look at the files.

        Args:
            deaths: one after the other, each when checkpoints have gone on since the one before.
            at_the_end: who dies in the last checkpoint.
            then: called behind them, when checkpoints have gone on.

        Raises:
            AssertionError: something was lost or doubled, or was not at an end in time.
        """
        with submitted_to(self.place.settings()):
            environment = self.environment()
            world = World(environment, self.folder, self.rate, self.out)
            for name in self.programs:
                world.sink(PROGRAMS[name].build(world), name)
            job = self.job = environment.execute_async(" and ".join(self.programs))
            try:
                self.die(deaths)
                then()
                self.stop(at_the_end, world.splits)
                state = ended(job, PATIENCE)
            except BaseException:
                self._tell(job)
                job.cancel().result()
                raise
            if state != "FINISHED":
                self._tell(job)
            assert state == "FINISHED"
        for name in self.programs:
            self._compare(name, self.written(name))

    def rescale(self, parallelisms: Sequence[int], ways: Sequence[str]) -> None:
        """Run the programs to files with one parallelism after the other, and look at the files.

        Args:
            parallelisms: of the jobs.
            ways: how each of them but the last one ends, and the next one begins: one of ``WAYS``.

        Raises:
            AssertionError: something was lost or doubled, or was not at an end in time.
        """
        path = ""
        with submitted_to(self.place.settings()):
            for parallelism, way in zip(parallelisms, [*ways, ""], strict=True):
                more = {
                    "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
                    "execution.checkpointing.unaligned.enabled": str(way == UNALIGNED).lower(),
                    "execution.state-recovery.path": path,
                }
                environment = self.environment(parallelism=parallelism, more={k: v for k, v in more.items() if v})
                world = World(environment, self.folder, self.rate, self.out)
                for name in self.programs:
                    world.sink(PROGRAMS[name].build(world), name)
                job = environment.execute_async(f"{' and '.join(self.programs)} x {parallelism}")
                self._log.append(f"x {parallelism} from {path or 'the beginning'}, then {way or 'to the end'}")
                try:
                    self._progress()
                    if not way:
                        self.stop(None, world.splits)
                    elif way == SAVEPOINT:
                        path = self._stopped_with_savepoint(job)
                    else:
                        job.cancel().result()
                    state = ended(job, PATIENCE)
                except BaseException:
                    self._tell(job)
                    job.cancel().result()
                    raise
                end_state = {SAVEPOINT: "FINISHED", "": "FINISHED"}.get(way, "CANCELED")
                if state != end_state:
                    self._tell(job)
                assert state == end_state
                if way in (ALIGNED, UNALIGNED):
                    checkpoints = self.folder.glob(f"{FOLDER}/*/chk-*")
                    path = str(
                        max(checkpoints, key=lambda path_of_checkpoint: int(re.sub(r"\D", "", path_of_checkpoint.name)))
                    )
        for name in self.programs:
            self._compare(name, self.written(name))

    def _stopped_with_savepoint(self, job: Any) -> str:
        """The savepoint; asked for again, as people do, where a reader had ended in front of its barrier."""
        for left in reversed(range(MOST_READERS)):
            try:
                return str(job.stop_with_savepoint(False, str(self.folder / "savepoints")).result())
            except CheckpointError as error:
                if not left or "input stream is finished" not in str(error):
                    raise
                self._log.append(f"once more: {error}")
        raise AssertionError("unreachable")

    def written(self, name: str) -> Counter[str]:
        """The lines of a program that are visible; nothing else is left."""
        return written(self.folder, name)

    def commit(self, deaths: Sequence[Death], sink: Callable[[Path, str], Any] = SteppedSink) -> None:
        """A program without checkpoints, and without restarts, whose results are committed at its end.

        Args:
            deaths: one after the other, each at a step of that.
            sink: of the results; made with the folder and a name.

        Raises:
            AssertionError: something was lost or doubled, or the job was not at its end in time.
        """
        expected_numbers = Counter(str(number) for number in range(2000))
        with submitted_to(self.place.settings()):
            environment = self.environment(checkpoints=False)
            numbers = environment.from_sequence(0, 1999).map(Watched(self.folder)).rebalance()
            numbers.map(str, Types.STRING()).sink_to(sink(self.folder, "numbers"))
            self._order(deaths[0])
            job = environment.execute_async("commits")
            for number, death in enumerate(deaths):
                if number:
                    self._order(death)
                self._arrived(death)
            state = ended(job, PATIENCE)
            if state != "FINISHED":
                self._tell(job)
            assert state == "FINISHED"
        visible = written(self.folder, "numbers")
        assert visible == expected_numbers, (
            f"{(expected_numbers - visible).total()} lost, {(visible - expected_numbers).total()} too many"
        )

    def collect(self, program: str, deaths: Sequence[Death]) -> None:
        """The same of one program whose results come to the client."""
        with submitted_to(self.place.settings()):
            environment = self.environment()
            stream = PROGRAMS[program].build(World(environment, self.folder, self.rate, self.out))
            results = stream.execute_and_collect(program)
            lines: Counter[str] = Counter()
            failed: list[BaseException] = []

            def read() -> None:
                try:
                    lines.update(results)
                except BaseException as error:
                    failed.append(error)

            reader = threading.Thread(target=read, name="reader")
            reader.start()
            try:
                self.die(deaths, lambda: not failed)
                (self.folder / STOP).touch()
                reader.join(PATIENCE)
                assert not reader.is_alive(), "the results do not end"
            finally:
                (self.folder / STOP).touch()
                results.close()
                reader.join()
            if failed:
                raise failed[0]
        self._compare(program, lines)

    def die(self, deaths: Sequence[Death], well: Callable[[], bool] = lambda: True) -> None:
        """Have somebody die, again and again."""
        for death in deaths:
            self._progress(well)
            if death.step == ANY_MOMENT:
                time.sleep(self._chance.uniform(0.0, 4 * INTERVAL_MS / 1000))
                self._killed(death, self.place.kill(death.victim, self.folder, self._chance).pid)
            else:
                self._order(death)
                self._arrived(death)
        self._progress(well)

    def stop(self, at_the_end: Death | None, splits: int) -> None:
        """The input comes to its end; somebody dies when all splits have."""
        if at_the_end is not None:
            self._order(at_the_end, splits)
        (self.folder / STOP).touch()
        if at_the_end is not None:
            self._arrived(at_the_end)

    def _order(self, death: Death, ended_splits: int = 0) -> None:
        text = f"{self.kills + 1}\n{death.step}\n{death.victim}\n{ended_splits}"
        steps.write(self.folder / steps.ORDER, text)

    def _arrived(self, death: Death) -> None:
        number = self.kills + 1
        arrived = self.folder / f"arrived-{number}"
        self._until(arrived.exists, f"somebody is {death.step}")
        (self.folder / steps.ORDER).unlink()
        pid = int(arrived.read_text())
        if death.victim != steps.MYSELF:
            pid = self.place.kill(death.victim, self.folder, self._chance).pid
            (self.folder / f"done-{number}").touch()
        self._killed(death, pid)

    def _killed(self, death: Death, pid: int) -> None:
        self.kills += 1
        self._log.append(f"kill {self.kills}: {death.victim} {death.step} ({pid}), checkpoint {self._newest()}")
        self.place.bring_back(death.victim)

    def _newest(self) -> int:
        """The number of the last completed checkpoint."""
        checkpoint_ids = [
            int(re.sub(r"\D", "", path.parent.name)) for path in self.folder.glob(f"{FOLDER}/*/chk-*/_metadata")
        ]
        self._seen = max(self._seen, *checkpoint_ids, 0)
        return self._seen

    def _progress(self, well: Callable[[], bool] = lambda: True) -> None:
        """Until another two checkpoints are complete."""
        before = self._newest()
        self._until(lambda: self._newest() >= before + 2 or not well(), "checkpoints go on")
        assert well(), "the job has failed"

    def _until(self, condition: Callable[[], bool], what: str) -> None:
        wait_until(condition, lambda: "\n".join([what, *self._log]))

    def _compare(self, name: str, lines: Counter[str]) -> None:
        expected_lines = expected(PROGRAMS[name], self.folder)
        lost, more = expected_lines - lines, lines - expected_lines
        print(
            f"{name}: {expected_lines.total()} records, {self.kills} kills, {lost.total()} lost, "
            f"{more.total()} too many"
        )
        assert expected_lines.total() > 100, f"{name} had next to nothing to do"
        if lost or more:
            print(self.place.log())
            shown = {"lost": sorted(lost.elements())[:20], "too many": sorted(more.elements())[:20]}
            raise AssertionError("\n".join([f"{name}: {shown}", f"FIRESTEEL_TEST_SEED={self.seed}", *self._log]))

    def _tell(self, job: Any) -> None:
        print("\n".join(self._log), self.place.log(), sep="\n")
        try:
            print(rest_of(job, "/exceptions"))
            newest = next(iter(rest_of(job, "/checkpoints")["history"]), None)
            for vertex in rest_of(job)["vertices"]:  # who is behind, of the newest checkpoint
                subtasks = rest_of(job, f"/vertices/{vertex['id']}")["subtasks"]
                print(vertex["name"], [(subtask["status"], subtask["metrics"]) for subtask in subtasks])
                if newest:
                    print(rest_of(job, f"/checkpoints/details/{newest['id']}/subtasks/{vertex['id']}"))
        except OSError as error:
            print(error)


__all__ = ["ALIGNED", "ANY_MOMENT", "BACKENDS", "SAVEPOINT", "UNALIGNED", "WAYS", "Death", "Trial"]
