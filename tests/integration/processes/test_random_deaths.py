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
from tests.integration.processes.numbers_job import NumbersJob
from tests.integration.processes.test_coordinators import Running

PROGRAM = """
import json
from collections import Counter
from firesteel.datastream.connectors.base import Sink, SinkWriter


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


numbers.key_by(lambda pair: pair[1] % 100).sink_to(Ledger())
env.execute("count")
"""


def expected(read: dict[str, int]) -> Counter[str]:
    """What has to be found of what was read."""
    sums = Counter[str]()
    for split, count in read.items():
        sums[f"{split} count"] = count
        sums[f"{split} sum"] = count * (count - 1) // 2
        sums[f"{split} squares"] = (count - 1) * count * (2 * count - 1) // 6
    return sums


def committed_counts(folder: Path) -> Counter[str]:
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
    running = NumbersJob(cluster, PROGRAM)
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
    running.finish()
    expected_counts = expected(running.read())
    assert committed_counts(running.folder) == expected_counts
    assert len(expected_counts) == 6
    assert expected_counts["a count"] > 1000
    wait_until(lambda: not running.slots_now(), "its slots end")
    wait_until(lambda: cluster.rest("GET", "/overview")[1]["slots-available"] == 2, "its slots are free")


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_coordinators_die_again_and_again_and_nothing_is_lost() -> None:
    with running_cluster() as cluster:
        die(cluster, int(os.environ.get("FIRESTEEL_TEST_SEED") or secrets.randbelow(1 << 32)), 10)
