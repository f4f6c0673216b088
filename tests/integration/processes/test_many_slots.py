"""Sixty-four slots on one machine: they come up, count by key, take checkpoints, and what dies is replaced."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.integration.processes.cluster import Cluster, running_cluster, wait_until
from tests.integration.processes.numbers_job import NumbersJob
from tests.integration.processes.test_open_doors import running_tasks
from tests.integration.processes.test_recovery import restarts
from tests.integration.processes.test_rolling_restart import KEYS, PROGRAM, expected, visible_counts
from tests.integration.processes.test_takeover import attempts, completed, restored

TASKMANAGERS, SLOTS = 4, 16
ALL = TASKMANAGERS * SLOTS
PATIENTLY = 600.0
OPTIONS = {
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": 100,
    "restart-strategy.fixed-delay.delay": "100 ms",
    "heartbeat.interval": "10 s",
    "heartbeat.timeout": "50 s",
}


@pytest.mark.long
@pytest.mark.exact
@pytest.mark.timeout(3600)
def test_sixty_four_slots_count_exactly_whatever_of_them_dies() -> None:
    with running_cluster(TASKMANAGERS, slots=SLOTS, options=OPTIONS) as cluster:
        checkpoints = f"execution.checkpointing.dir={cluster.folder / 'checkpoints'}"
        running = NumbersJob(
            cluster,
            PROGRAM.replace("checkpointing(1000)", "checkpointing(5000)"),
            str(KEYS),
            rate=20,
            options=(checkpoints,),
            parallelism=ALL,
            seconds=PATIENTLY,
        )
        assert len(running.slots) == ALL
        assert cluster.rest("GET", "/overview")[1]["slots-available"] == 0
        _checkpoint(running)

        with _recovers(running):
            os.kill(min(slot.pid for slot in running.slots), signal.SIGKILL)
        assert restarts(running) == 1, "one slot, one failure"

        with _recovers(running):
            cluster.the("taskmanager", 0).kill()
            cluster.start("taskmanager")
        assert restarts(running) == 2, "one TaskManager, one failure"

        running.finish(PATIENTLY)
        wanted_counts, got = expected(running.read()), visible_counts(running.folder / "out")
        lost, doubled = wanted_counts - got, got - wanted_counts
        print(f"{wanted_counts.total()} records, {lost.total()} lost, {doubled.total()} doubled")
        assert len(running.read()) == ALL
        assert not lost
        assert not doubled
        wait_until(lambda: not running.slots_now(), "its slots end", PATIENTLY)


def _checkpoint(running: NumbersJob) -> None:
    """One more is complete."""
    before = completed(running.cluster, running.job)
    wait_until(lambda: completed(running.cluster, running.job) > before, "a checkpoint is complete", PATIENTLY)


@contextmanager
def _recovers(running: NumbersJob) -> Iterator[None]:
    """All tasks are restarted from a checkpoint when something dies, and the next one is complete."""
    cluster, job = running.cluster, running.job
    before, attempt = restored(cluster, job), max(attempts(cluster, job))
    yield
    wait_until(
        lambda: attempts(cluster, job) == {attempt + 1} and _all_run(cluster), "new attempts of all run", PATIENTLY
    )
    assert restored(cluster, job) > before
    _checkpoint(running)


def _all_run(cluster: Cluster) -> bool:
    return running_tasks(cluster) == 2 * ALL
