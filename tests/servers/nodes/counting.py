"""An exactly-once job on a cluster in Kubernetes: numbers without end, counted by keys, written to an object store."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from tests.servers.nodes.deployed import Deployed, until
from tests.servers.nodes.store import BUCKET, Store

KEYS = 16
COUNTS = """
import sys

from firesteel.common import Encoder, Types, WatermarkStrategy
from firesteel.datastream import KeyedProcessFunction, StreamExecutionEnvironment
from firesteel.datastream.connectors.data_generator import DataGeneratorSource, RateLimiterStrategy
from firesteel.datastream.connectors.file_system import FileSink, RollingPolicy
from firesteel.datastream.state import ValueStateDescriptor


class Count(KeyedProcessFunction):
    def open(self, context):
        self.count = context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, number, context):
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        yield f"{number} {count}"


"""
"""The beginning of programs that count."""
JOB = f"""
env = StreamExecutionEnvironment.get_execution_environment()
source = DataGeneratorSource(lambda i: i, 10**12, RateLimiterStrategy.per_second(500), Types.LONG())
numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").set_parallelism(1)
counted = numbers.key_by(lambda i: i % {KEYS}, Types.LONG()).process(Count(), Types.STRING())
files = FileSink.for_row_format(sys.argv[1], Encoder.simple_string_encoder())
counted.sink_to(files.with_rolling_policy(RollingPolicy.on_checkpoint_rolling_policy()).build())
env.execute("counting")
"""
"""What comes behind it."""
PROGRAM = COUNTS + JOB
BOUNDED = (
    COUNTS
    + f"""
out, records, rate, wrong = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:] == ["--wrong"]
if wrong:
    raise ValueError("no such table: orders")
env = StreamExecutionEnvironment.get_execution_environment()
source = DataGeneratorSource(lambda i: i, records, RateLimiterStrategy.per_second(rate), Types.LONG())
numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").set_parallelism(1)
counted = numbers.key_by(lambda i: i % {KEYS}, Types.LONG()).process(Count(), Types.STRING())
files = FileSink.for_row_format(out, Encoder.simple_string_encoder())
counted.sink_to(files.with_rolling_policy(RollingPolicy.on_checkpoint_rolling_policy()).build())
env.execute("bounded")
"""
)
"""The same with an end, and an error where it is told to."""


@contextmanager
def counting(release: Deployed, store: Store) -> Iterator[Counting]:
    """The job, whose results are right at the end of the block."""
    jobs: list[Counting] = []
    try:
        jobs.append(Counting(release, store))
        yield jobs[0]
        jobs[0].goes_on()
        print(f"{jobs[0].stop()} records, each once")
    except BaseException:
        print(release.state())
        for job in jobs:
            job.cancel()
        raise


def exactly_once(store: Store, out: str) -> int:
    """Check what such a job has written below a folder of the bucket before a savepoint stopped it: each number
    is there once, and was counted once by its state; returns how many there are."""
    lines = store.lines(out)
    numbers = sorted(int(line.split()[0]) for line in lines.elements())
    doubled = [line for line, times in lines.items() if times > 1]
    assert not doubled, f"{len(doubled)} records came twice: {doubled[:5]}"
    lost = sorted(set(range(len(numbers))) - set(numbers))
    assert not lost, f"{len(lost)} records are lost: {lost[:5]}"
    wrong = [line for line in lines if int(line.split()[1]) != int(line.split()[0]) // KEYS + 1]
    assert not wrong, f"state was lost or counted twice: {wrong[:5]}"
    assert len(numbers) > 1000, f"only {len(numbers)} records are there"
    return len(numbers)


class Counting:
    """The job, which was submitted with a parallelism.

    Attributes:
        job: its id.
    """

    def __init__(self, release: Deployed, store: Store, parallelism: int = 2) -> None:
        self.release, self._store = release, store
        self._out = f"counting-{secrets.token_hex(4)}"
        file = release.folder / "counting.py"
        file.write_text(PROGRAM)
        done = release.firesteel("run", "-d", "-p", str(parallelism), str(file), f"s3://{BUCKET}/{self._out}")
        match = re.search(r"\b[0-9a-f]{32}\b", done.stdout + done.stderr)
        assert match is not None, done.stdout + done.stderr
        self.job = match[0]
        self.goes_on()

    def now(self) -> dict[str, Any]:
        """What the Dispatcher says about the job; nothing while it does not answer."""
        return self.release.ask(f"/jobs/{self.job}")

    def _completed(self) -> int:
        newest = (self.release.ask(f"/jobs/{self.job}/checkpoints").get("latest") or {}).get("completed") or {}
        return int(newest.get("id", -1))

    def goes_on(self, checkpoints: int = 2) -> float:
        """Until it is RUNNING and some more checkpoints have completed; returns the seconds it took."""
        began = time.monotonic()

        def runs() -> bool:
            now = self.now()
            assert now.get("state") not in ("FAILED", "FINISHED", "CANCELED"), self.why()
            tasks = [vertex["tasks"] for vertex in now.get("vertices", ())]
            return bool(tasks) and all(
                sum(tasks_of_vertex.values()) == _up(tasks_of_vertex) for tasks_of_vertex in tasks
            )

        until(runs, f"all tasks run: {self.now().get('state')}")
        first = until(lambda: self._completed() + 1, "a checkpoint has completed") - 1
        until(lambda: self._completed() >= first + checkpoints, "checkpoints complete")
        return time.monotonic() - began

    def flows_after(self, fault_began: float) -> float:
        """Seconds from a moment until more records have been read than were then."""
        seen: list[int] = []

        def more() -> bool:
            now = self.now()
            if now.get("state") != "RUNNING":
                return False
            tasks = [vertex["tasks"] for vertex in now["vertices"]]
            if not all(sum(tasks_of_vertex.values()) == _up(tasks_of_vertex) for tasks_of_vertex in tasks):
                return False
            seen.append(int(now["vertices"][0]["metrics"]["write-records"]))
            return seen[-1] > seen[0]

        until(more, "records flow")
        return time.monotonic() - fault_began

    def why(self) -> str:
        return str(self.release.ask(f"/jobs/{self.job}/exceptions"))[:4000]

    def cancel(self) -> None:
        """Of one that has failed its test: others need its slots."""
        with suppress(OSError, AssertionError):
            self.release.rest("PATCH", f"/jobs/{self.job}")

    def stop(self) -> int:
        """Stop it with a savepoint, and check that each number is there once and was counted once by its state; returns
        how many there are."""
        self.release.firesteel("stop", "-p", f"s3://{BUCKET}/savepoints", self.job)
        until(lambda: self.now().get("state") == "FINISHED", "the job is FINISHED")
        return exactly_once(self._store, self._out)


def _up(tasks: dict[str, int]) -> int:
    """Tasks that run, or have ended as they have nothing to read."""
    return tasks["RUNNING"] + tasks["FINISHED"]


class Standing(Counting):
    """The job of an application in reactive mode, which writes to a folder of the bucket: it is there when the cluster
    is."""

    def __init__(self, release: Deployed, store: Store, out: str) -> None:
        self.release, self._store, self._out = release, store, out
        self.job = str(until(self._first, "the application has a job")["jid"])
        self.goes_on()

    def _first(self) -> dict[str, Any]:
        return dict(next(iter(self.release.ask("/jobs/overview").get("jobs", ())), {}))

    @property
    def parallelism(self) -> int:
        """Of its widest vertex; 0 while not all tasks run."""
        now = self.now()
        tasks = [vertex["tasks"] for vertex in now.get("vertices", ())]
        if now.get("state") != "RUNNING" or not all(
            sum(tasks_of_vertex.values()) == _up(tasks_of_vertex) for tasks_of_vertex in tasks
        ):
            return 0
        return max((vertex["parallelism"] for vertex in now["vertices"]), default=0)

    def runs_with(self, parallelism: int) -> None:
        """Until each vertex has so many tasks, which run; a reader to which no split falls has ended."""

        def runs() -> bool:
            now = self.now()
            assert now.get("state") not in ("FAILED", "FINISHED", "CANCELED"), self.why()
            vertices = [(vertex["parallelism"], _up(vertex["tasks"])) for vertex in now.get("vertices", ())]
            return bool(vertices) and all(vertex_tasks == (parallelism, parallelism) for vertex_tasks in vertices)

        until(runs, lambda: f"{parallelism} subtasks of each vertex run: {self.now()}")

    def stop(self) -> int:
        """As of others; its cluster ends with it, so it is Kubernetes that says how."""
        self.release.firesteel("stop", "-p", f"s3://{BUCKET}/savepoints", self.job)
        words = ("jobs", "-o", "jsonpath={.items[*].status.succeeded}")
        until(lambda: self.release.kubectl("get", *words).stdout == "1", "the program's Job has succeeded")
        return exactly_once(self._store, self._out)
