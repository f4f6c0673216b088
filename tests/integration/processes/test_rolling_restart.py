"""Dispatcher, ResourceManager and JobMaster host are restarted one after the other, and a running job does not notice.

Each is told to stop (SIGTERM) and hands over: to the process that is started in its place, or to one that stood by.
"""

from __future__ import annotations

import signal
from collections import Counter
from functools import partial
from pathlib import Path

import pytest

from firesteel.core.process import ProcessId, ask_to_end, is_running
from firesteel.service.remains import end_remains
from tests.integration.processes.cluster import (
    COORDINATORS,
    Cluster,
    ServiceProcess,
    rest_call,
    running_cluster,
    wait_until,
)
from tests.integration.processes.numbers_job import NumbersJob
from tests.integration.processes.test_recovery import jobmaster_of
from tests.integration.processes.test_standby import PORTS
from tests.integration.processes.test_takeover import attempts, completed, restored
from tests.ports import free_ports

KEYS = 10
PROGRAM = """
from firesteel.common import Encoder, Types
from firesteel.datastream import KeyedProcessFunction
from firesteel.datastream.connectors.file_system import FileSink
from firesteel.datastream.state import ValueStateDescriptor

KEYS = int(sys.argv[3])


class Count(KeyedProcessFunction):
    '''Results with a number for each of a key; notes the longest times between two of them, over all attempts.'''

    def open(self, runtime_context):
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))
        index = runtime_context.get_index_of_this_subtask()
        self.gaps, self.note = open(FOLDER / f"gaps-{index}", "a"), FOLDER / f"last-{index}"
        self.last = self.noted = float(self.note.read_text() or 0) if self.note.exists() else 0.0
        self.longest = 0.0

    def process_element(self, value, ctx):
        now, count = time.monotonic(), (self.count.value() or 0) + 1
        if self.last and (gap := now - self.last) > self.longest:
            self.longest = gap
            print(f"{gap:.4f}", file=self.gaps, flush=True)
        if now - self.noted > 0.02:
            self.note.write_text(repr(now))
            self.noted = now
        self.last = now
        self.count.update(count)
        yield f"{value[0]}{value[1] % KEYS},{count}"


env.enable_checkpointing(1000)
counts = numbers.key_by(lambda pair: f"{pair[0]}{pair[1] % KEYS}").process(Count(), Types.STRING())
counts.sink_to(FileSink.for_row_format(str(FOLDER / "out"), Encoder.simple_string_encoder()).build())
env.execute("rolling")
"""


def expected(read: dict[str, int]) -> Counter[str]:
    """The results of what was read: each key is numbered from 1 on."""
    return Counter(f"{split}{n % KEYS},{n // KEYS + 1}" for split, count in read.items() for n in range(count))


def visible_counts(folder: Path) -> Counter[str]:
    """The results that readers of the output see."""
    return Counter(
        line for path in folder.rglob("part-*") if path.name[0] != "." for line in path.read_text().splitlines()
    )


def longest_gap(folder: Path) -> float:
    """Seconds between two results of a subtask, at most."""
    return max((float(line) for file in folder.glob("gaps-*") for line in file.read_text().split()), default=0.0)


class Rolling:
    """A cluster whose coordinators are restarted while a job runs.

    Args:
        cluster: in which the job runs; with stand-bys, it elects leaders.
        stand_bys: have another process of each wait for its turn.
        rate: records in a second for each of two splits.
    """

    def __init__(self, cluster: Cluster, *, stand_bys: bool, rate: int = 250) -> None:
        self.cluster = cluster
        self._waiting: dict[str, ServiceProcess] = {}
        if stand_bys:
            for name in COORDINATORS:
                self._stand_by(name)
        chk = f"execution.checkpointing.dir={cluster.folder / 'checkpoints'}"
        self.running = NumbersJob(cluster, PROGRAM, str(KEYS), rate=rate, options=(chk,))
        self.folder = self.running.folder
        self.driver = wait_until(self.running.driver, "Spark's driver is ready")
        self.jobmaster: ProcessId = wait_until(lambda: jobmaster_of(cluster.cluster_directory), "it has a JobMaster")
        wait_until(lambda: completed(cluster, self.running.job) >= 1, "checkpoints are complete")

    def _stand_by(self, name: str) -> None:
        (port,) = free_ports(1)
        self._waiting[name] = self.cluster.launch(name, f"{PORTS[name]}={port}")
        wait_until(partial(_waits, self._waiting[name]), f"another {name} waits")

    def restart(self, name: str) -> None:
        """Stop a coordinator in order; another one follows."""
        waiting = self._waiting.get(name)
        (leader,) = [
            service
            for service in self.cluster.services
            if service.name == name and service.is_running() and service != waiting
        ]
        leader.signal(signal.SIGTERM)
        assert leader.wait() == 0, leader.log()
        if waiting is None:
            self.cluster.start(name)
        else:
            waiting.wait_listening()
            self._stand_by(name)

    def nobody_noticed(self) -> None:
        """The same processes go on, and the coordinators know them."""
        cluster, job = self.cluster, self.running.job
        before = completed(cluster, job)
        wait_until(lambda: self.running.job_now().get("state") == "RUNNING", "the Dispatcher knows the job")
        cluster.wait_slots(2)
        wait_until(lambda: cluster.rest("GET", "/overview")[1]["slots-available"] == 0, "it knows who has the slots")
        wait_until(lambda: completed(cluster, job) > before, "checkpoints go on")
        self.running.goes_on()
        assert self.running.slots_now() == self.running.slots, "slots were replaced"
        assert is_running(self.jobmaster), "its JobMaster ended"
        assert self.running.driver() == self.driver, "Spark's driver ended"
        assert attempts(cluster, job) == {0}
        assert restored(cluster, job) == 0
        assert cluster.rest("GET", f"/jobs/{job}/exceptions")[1]["exceptionHistory"]["entries"] == []

    def finish(self) -> None:
        """Let the job end; its output is complete and right."""
        self.running.finish(300)
        expected_counts, got = expected(self.running.read()), visible_counts(self.folder / "out")
        assert len(expected_counts) > 2 * KEYS
        lost, doubled = expected_counts - got, got - expected_counts
        print(f"{expected_counts.total()} records, {lost.total()} lost, {doubled.total()} doubled")
        print(f"{longest_gap(self.folder):.3f} s at most between two records at the sink")
        assert not lost
        assert not doubled
        wait_until(lambda: not self.running.slots_now(), "its slots end")

    def roll(self, rounds: int) -> None:
        """Restart all coordinators so many times."""
        for number in range(rounds):
            for name in COORDINATORS:
                self.restart(name)
                self.nobody_noticed()
            print(
                f"round {number + 1}: so far {longest_gap(self.folder):.3f} s at most between two records at the sink"
            )
        self.finish()


def _waits(service: ServiceProcess) -> bool:
    return "waits for its turn" in service.log()


OPTIONS = {"restart-strategy.type": "none"}


@pytest.mark.exact
@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    "stand_bys", [pytest.param(False, id="alone", marks=pytest.mark.long), pytest.param(True, id="stand-bys")]
)
def test_coordinators_are_restarted_one_after_the_other_and_the_job_does_not_notice(stand_bys: bool) -> None:
    with running_cluster(options=OPTIONS, ha=stand_bys) as cluster:
        Rolling(cluster, stand_bys=stand_bys).roll(1)


@pytest.mark.exact
@pytest.mark.timeout(400)
def test_a_job_moves_to_another_host_at_once_when_its_jobmaster_is_stopped() -> None:
    """As before the maintenance of a machine: who leads there hands over, and what is left there is ended."""
    with running_cluster(options={**OPTIONS, "heartbeat.timeout": "600 s"}, ha=True) as cluster:
        rolling = Rolling(cluster, stand_bys=False)
        elsewhere, (port,) = cluster.folder / "elsewhere", free_ports(1)
        directory = f"firesteel.cluster.directory={elsewhere}"
        other = cluster.launch("jobmaster", f"{PORTS['jobmaster']}={port}", directory)
        wait_until(partial(_waits, other), "another JobMaster host waits")
        first = cluster.the("jobmaster", 0)
        first.signal(signal.SIGTERM)
        assert first.wait() == 0
        other.wait_listening()
        wait_until(lambda: rest_call(other.address, "GET", "/ready")[0] == 200, "JobMasters can be forked there")
        rolling.nobody_noticed()
        before = completed(cluster, rolling.running.job)
        assert ask_to_end(rolling.jobmaster)
        wait_until(lambda: jobmaster_of(elsewhere), "a JobMaster on the other host")
        wait_until(lambda: restored(cluster, rolling.running.job) >= before, "the job goes on from its checkpoint")
        assert attempts(cluster, rolling.running.job) == {1}
        (entry,) = cluster.rest("GET", f"/jobs/{rolling.running.job}/exceptions")[1]["exceptionHistory"]["entries"]
        assert "its JobMaster was stopped" in entry["stacktrace"]
        rolling.running.slots = wait_until(rolling.running.slots_now, "it has other slots")
        rolling.finish()
        end_remains(elsewhere)


@pytest.mark.long
@pytest.mark.exact
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("stand_bys", [False, True], ids=["alone", "stand-bys"])
def test_coordinators_are_restarted_again_and_again_and_the_job_does_not_notice(stand_bys: bool) -> None:
    with running_cluster(options=OPTIONS, ha=stand_bys) as cluster:
        Rolling(cluster, stand_bys=stand_bys).roll(20)
