"""Coordinators are killed in random order and at random moments, and the job's result is complete and right.

The seed is printed; ``FIRESTEEL_TEST_SEED`` repeats one.
"""

from __future__ import annotations

import json
import os
import random
import secrets
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from firesteel.core.process import ProcessId, children_of_all, identify
from tests.integration.processes.cluster import Cluster, command, running_cluster, wait_until
from tests.integration.processes.test_coordinators import Running
from tests.integration.processes.test_open_doors import running_tasks

PROGRAM = """
import json
import os
import sys
from collections import Counter
from pathlib import Path

from firesteel.common import WatermarkStrategy
from firesteel.datastream import StreamExecutionEnvironment
from firesteel.datastream.connectors.base import (
    END, NEED_SPLITS, Boundedness, EnumeratorSpec, Sink, SinkWriter, Source, SourceBatch, SourceReader, Split,
)

FOLDER = Path(sys.argv[1])


class Numbers(Source):
    '''Counts in each split at full speed until there is a file "stop"; then writes how far it came.'''

    boundedness = Boundedness.BOUNDED

    def enumerator(self):
        return EnumeratorSpec("static", {"splits": [Split(name, {}).to_plain() for name in "ab"]})

    def create_reader(self, context):
        return Reader()


class Reader(SourceReader):
    def __init__(self):
        self.splits, self.no_more = [], False

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
        end = begin + (1 if stop else max_records)
        if stop:
            (FOLDER / f"read-{split.id}").write_text(str(end))
            del self.splits[0]
        else:
            self.splits[0] = split.at(end)
        return SourceBatch([(split.id, n) for n in range(begin, end)], split.id, end, split_finished=stop)


class Ledger(Sink):
    def create_writer(self, context):
        return Writer(context.subtask_index)


class Writer(SinkWriter):
    def __init__(self, index):
        self.index, self.found = index, Counter()

    def write(self, values, timestamps):
        for split, n in values:
            self.found[f"{split} count"] += 1
            self.found[f"{split} sum"] += n
            self.found[f"{split} squares"] += n * n

    def finish(self):
        return [dict(self.found)]

    def commit(self, committables):
        (FOLDER / f"found-{self.index}").write_text(json.dumps(committables[0]))


env = StreamExecutionEnvironment.get_execution_environment()
numbers = env.from_source(Numbers(), WatermarkStrategy.no_watermarks(), "numbers")
numbers.key_by(lambda pair: pair[1] % 100).sink_to(Ledger())
env.execute("count")
"""


def expected(folder: Path) -> Counter[str]:
    """What has to be found of what was read."""
    sums = Counter[str]()
    for file in folder.glob("read-*"):
        split, count = file.name.removeprefix("read-"), int(file.read_text())
        sums[f"{split} count"] = count
        sums[f"{split} sum"] = count * (count - 1) // 2
        sums[f"{split} squares"] = (count - 1) * count * (2 * count - 1) // 6
    return sums


def found(folder: Path) -> Counter[str]:
    """What the writers committed."""
    return sum((Counter(json.loads(file.read_text())) for file in folder.glob("found-*")), Counter[str]())


class Deaths:
    """Ways to die, each with what brings the dead back."""

    def __init__(self, running: Running, chance: random.Random) -> None:
        self._cluster, self._running, self._chance = running.cluster, running, chance
        self.ways: dict[str, Callable[[], None]] = {
            "resourcemanager": lambda: self._service("resourcemanager"),
            "dispatcher": lambda: self._service("dispatcher"),
            "JobMaster host": lambda: self._service("jobmaster"),
            "template": lambda: self._kill(self.template),
            "driver": lambda: self._kill(self.driver),
        }

    def pause(self) -> None:
        """Some moments."""
        time.sleep(self._chance.uniform(0.0, 1.5))

    def driver(self) -> ProcessId | None:
        """Spark's driver, once it is ready."""
        pid = self._running.driver()
        return identify(pid) if pid else None

    def template(self) -> ProcessId | None:
        """From which JobMasters are forked: a child of their host, and not of the template itself."""
        for pid in children_of_all().get(self._cluster.the("jobmaster").pid, ()):
            if "firesteel_jobmaster.template" in command(pid):
                return identify(pid)
        return None

    def _service(self, name: str) -> None:
        self._cluster.the(name).kill()
        self.pause()
        self._cluster.start(name)

    @staticmethod
    def _kill(who: Callable[[], ProcessId | None]) -> None:
        """What comes back by itself."""
        process = wait_until(who, "it is there")
        os.kill(process.pid, signal.SIGKILL)
        wait_until(lambda: who() not in (None, process), "there is another one")


def die(cluster: Cluster, seed: int, rounds: int) -> None:
    """Kill everybody so many times, and look whether the job minds."""
    print(f"FIRESTEEL_TEST_SEED={seed}")
    chance = random.Random(seed)
    folder = cluster.folder / "numbers"
    folder.mkdir()
    program = cluster.folder / "count.py"
    program.write_text(PROGRAM)
    done = cluster.firesteel("run", "-d", "-p", "2", str(program), str(folder))
    assert done.returncode == 0, done.stdout + done.stderr
    wait_until(lambda: running_tasks(cluster) == 4, "all tasks run")
    (job,) = cluster.rest("GET", "/jobs/overview")[1]["jobs"]
    running = Running(cluster, job["jid"])
    assert len(running.slots) == 2
    deaths = Deaths(running, chance)
    for number in range(rounds):
        order = list(deaths.ways)
        chance.shuffle(order)
        print(f"round {number}: {', '.join(order)}")
        for victim in order:
            deaths.pause()
            deaths.ways[victim]()
    running.goes_on()
    (folder / "stop").touch()
    wait_until(lambda: running.job_now().get("state") in ("FINISHED", "FAILED"), "the job ends")
    assert running.job_now()["state"] == "FINISHED", cluster.rest("GET", f"/jobs/{running.job}/exceptions")
    assert found(folder) == expected(folder)
    assert len(expected(folder)) == 6
    assert expected(folder)["a count"] > 1000
    wait_until(lambda: not running.slots_now(), "its slots end")
    wait_until(lambda: cluster.rest("GET", "/overview")[1]["slots-available"] == 2, "its slots are free")


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_coordinators_die_again_and_again_and_nothing_is_lost() -> None:
    with running_cluster() as cluster:
        die(cluster, int(os.environ.get("FIRESTEEL_TEST_SEED") or secrets.randbelow(1 << 32)), 10)
