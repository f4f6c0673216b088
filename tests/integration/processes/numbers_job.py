"""A job that counts until it is told to stop; then it is known what it has read."""

from __future__ import annotations

import json
from typing import Final

from tests.integration.processes.cluster import PATIENCE, Cluster, wait_until
from tests.integration.processes.test_coordinators import Running
from tests.integration.processes.test_open_doors import running_tasks

SOURCE: Final = """
import sys, time
from pathlib import Path
from firesteel.common import WatermarkStrategy
from firesteel.datastream import StreamExecutionEnvironment
from firesteel.datastream.connectors.base import (
    END, NEED_SPLITS, Boundedness, EnumeratorSpec, Source, SourceBatch, SourceReader, Split,
)

FOLDER, RATE = Path(sys.argv[1]), int(sys.argv[2])


class Numbers(Source):
    '''Counts in each split, so many records a second or at full speed, until there is a file "stop"; then writes how
    far it came.'''

    boundedness = Boundedness.BOUNDED

    def enumerator(self):
        names = [f"{chr(97 + i % 26)}{i // 26 or ''}" for i in range(env.get_parallelism())]
        return EnumeratorSpec("static", {"splits": [Split(name, {}).to_plain() for name in names]})

    def create_reader(self, context):
        return Reader()


class Reader(SourceReader):
    blocking = RATE > 0

    def __init__(self):
        self.splits, self.no_more, self.began = [], False, 0.0

    def add_splits(self, splits):
        self.splits += splits

    def no_more_splits(self):
        self.no_more = True

    def pause_splits(self, split_ids):
        pass

    def resume_splits(self, split_ids):
        pass

    def snapshot(self):
        return list(self.splits)

    def poll(self, max_records):
        if not self.splits:
            return END if self.no_more else NEED_SPLITS
        split = self.splits[0]
        begin = split.position or 0
        stop = (FOLDER / "stop").exists()
        end = begin + 1 if stop else self.wait(begin, max_records) if RATE else begin + max_records
        if stop:
            (FOLDER / f"read-{split.id}").write_text(str(end))
            del self.splits[0]
        else:
            self.splits[0] = split.at(end)
        return SourceBatch([(split.id, n) for n in range(begin, end)], split.id, end, split_finished=stop)

    def wait(self, begin, max_records):
        now = time.monotonic()
        self.began = self.began or now - begin / RATE
        end = min(begin + max_records, int((now - self.began) * RATE))
        while end <= begin:
            time.sleep(max(0.5 / RATE, 0.01))
            end = int((time.monotonic() - self.began) * RATE)
        return end


env = StreamExecutionEnvironment.get_execution_environment()
numbers = env.from_source(Numbers(), WatermarkStrategy.no_watermarks(), "numbers")
"""


class NumbersJob(Running):
    """The job, all of whose tasks run.

    Args:
        cluster: in which it is to run, and that has no other.
        rest: what its program makes of the stream ``numbers`` of splits and numbers; it ends with ``env.execute()``.
        arguments: of the program, from ``sys.argv[3]`` on.
        rate: records in a second for each split; 0 = at full speed.
        options: of the job, as ``key=value``.
        parallelism: of all of it; there are as many splits, named a, b, ...
        seconds: to wait for all tasks to run.
    """

    def __init__(
        self,
        cluster: Cluster,
        rest: str,
        *arguments: str,
        rate: int = 0,
        options: tuple[str, ...] = (),
        parallelism: int = 2,
        seconds: float = PATIENCE,
    ) -> None:
        self.parallelism = parallelism
        self.folder = cluster.folder / "numbers"
        self.folder.mkdir()
        program = cluster.folder / "numbers.py"
        program.write_text(SOURCE + rest)
        definitions = [word for option in options for word in ("-D", option)]
        words = (str(program), str(self.folder), str(rate), *arguments)
        done = cluster.firesteel("run", "-d", "-p", str(parallelism), *definitions, *words)
        assert done.returncode == 0, done.stdout + done.stderr
        wait_until(lambda: running_tasks(cluster) == 2 * parallelism, "all tasks run", seconds)
        (job,) = cluster.rest("GET", "/jobs/overview")[1]["jobs"]
        super().__init__(cluster, job["jid"])

    def read(self) -> dict[str, int]:
        """How many numbers were read of each split, from 0 on; once the job has ended."""
        return {file.name.removeprefix("read-"): int(file.read_text()) for file in self.folder.glob("read-*")}

    def finish(self, seconds: float = 100.0) -> None:
        """Have it end; nothing has gone wrong."""
        (self.folder / "stop").touch()
        wait_until(lambda: self.job_now().get("state") in ("FINISHED", "FAILED"), "the job ends", seconds)
        exceptions = self.cluster.rest("GET", f"/jobs/{self.job}/exceptions")
        assert self.job_now()["state"] == "FINISHED", json.dumps(exceptions)
        assert len(self.read()) == self.parallelism
