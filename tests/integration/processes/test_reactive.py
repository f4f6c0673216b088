"""Reactive mode: a job uses the TaskManagers that there are, while they come and go."""

from __future__ import annotations

import json
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.integration.processes.cluster import Cluster, ServiceProcess, wait_until
from tests.integration.processes.numbers_job import SOURCE

pytestmark = pytest.mark.timeout(600)
KEYS, SPLITS = 50, 4
PROGRAM = (
    f"""
from firesteel.common import Encoder, Types
from firesteel.datastream.connectors.file_system import FileSink
from firesteel.datastream.functions import KeyedProcessFunction, RuntimeContext
from firesteel.datastream.state import ValueStateDescriptor

KEYS = {KEYS}
"""
    + """

class Count(KeyedProcessFunction):
    '''Results with a number for each of a key.'''

    def open(self, runtime_context):
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value, ctx):
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        yield f"{value[0]}{value[1] % KEYS},{count}"


env.enable_checkpointing(300)
counts = numbers.key_by(lambda pair: f"{pair[0]}{pair[1] % KEYS}").process(Count(), Types.STRING())
counts.sink_to(FileSink.for_row_format(str(FOLDER / "out"), Encoder.simple_string_encoder()).build())
env.execute("reactive")
"""
)
OPTIONS = {
    "scheduler-mode": "reactive",
    "parallelism.default": SPLITS,
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": 10,
    "restart-strategy.fixed-delay.delay": "100 ms",
    "jobmanager.adaptive-scheduler.executing.cooldown-after-rescaling": "1 s",
    "jobmanager.adaptive-scheduler.executing.resource-stabilization-timeout": "1 s",
}


class Reactive:
    """A cluster in application mode without TaskManagers; its program counts in four splits."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.folder = cluster.folder / "numbers"
        self.folder.mkdir()
        program = cluster.folder / "numbers.py"
        program.write_text(SOURCE + PROGRAM)
        words = json.dumps([str(self.folder), "200"])
        arguments = ["--python", str(program), "-D", f"firesteel.application.arguments={words}"]
        arguments += ["-D", f"execution.checkpointing.dir={cluster.folder / 'checkpoints'}"]
        folder = cluster.folder / "standalone-job"
        self.master = ServiceProcess("standalone-job", arguments, folder, cluster.environment())
        cluster.services.append(self.master)

    def job(self) -> dict[str, Any]:
        """The job, as REST shows it; nothing while there is none."""
        try:
            jobs = self.cluster.rest("GET", "/jobs/overview")[1]["jobs"]
            return dict(self.cluster.rest("GET", f"/jobs/{jobs[0]['jid']}")[1]) if jobs else {}
        except OSError:
            return {}

    def runs_with(self, parallelism: int) -> None:
        """Wait until all tasks run, and so many of each vertex."""

        def runs() -> bool:
            job = self.job()
            counts = [vertex["tasks"]["RUNNING"] for vertex in job.get("vertices", [])]
            assert job.get("state") not in ("FAILED", "FINISHED"), job
            return job.get("state") == "RUNNING" and counts == [parallelism] * 2

        wait_until(runs, f"{parallelism} subtasks of each vertex run", 240.0)

    def completed(self) -> int:
        """Checkpoints that are complete."""
        return int(self.cluster.rest("GET", f"/jobs/{self.job()['jid']}/checkpoints")[1]["counts"]["completed"])

    def more_checkpoints(self) -> None:
        """Wait for two more of them."""
        before = self.completed()
        wait_until(lambda: self.completed() >= before + 2, "checkpoints go on")

    def read(self) -> dict[str, int]:
        """How many numbers were read of each split."""
        return {file.name.removeprefix("read-"): int(file.read_text()) for file in self.folder.glob("read-*")}


def expected(read: dict[str, int]) -> Counter[str]:
    return Counter(f"{split}{n % KEYS},{n // KEYS + 1}" for split, count in read.items() for n in range(count))


def committed_counts(folder: Path) -> Counter[str]:
    return Counter(
        line for path in folder.rglob("part-*") if path.name[0] != "." for line in path.read_text().splitlines()
    )


@pytest.mark.exact
@pytest.mark.long
def test_taskmanagers_come_and_go_under_an_exactly_once_job() -> None:
    cluster = Cluster(slots=1, options=OPTIONS)
    try:
        reactive = Reactive(cluster)
        first, second = cluster.launch("taskmanager"), cluster.launch("taskmanager")
        reactive.runs_with(2)
        reactive.more_checkpoints()
        job_id = reactive.job()["jid"]
        bounds = cluster.rest("GET", f"/jobs/{job_id}/resource-requirements")[1]
        assert [bound["parallelism"] for bound in bounds.values()] == [{"lowerBound": 1, "upperBound": 128}] * 2

        third = cluster.launch("taskmanager")
        reactive.runs_with(3)
        reactive.more_checkpoints()
        overview = cluster.rest("GET", f"/jobs/{job_id}/rescales/overview")[1]
        assert overview["rescalesCounts"]["completed"] >= 2
        newest = cluster.rest("GET", f"/jobs/{job_id}/rescales/history")[1][0]
        assert {vertex["postRescaleParallelism"] for vertex in newest["vertices"].values()} == {3}
        details = cluster.rest("GET", f"/jobs/{job_id}/rescales/details/{newest['rescaleUuid']}")[1]
        assert details["schedulerStates"]
        config = cluster.rest("GET", f"/jobs/{job_id}/rescales/config")[1]
        assert (config["schedulerExecutionMode"], config["executingCooldownTimeoutInMillis"]) == ("REACTIVE", 1000)

        second.signal(signal.SIGTERM)
        third.signal(signal.SIGKILL)
        reactive.runs_with(1)
        reactive.more_checkpoints()
        assert first.is_running()

        (reactive.folder / "stop").touch()
        assert reactive.master.wait() == 0, reactive.master.log()
        read = reactive.read()
        assert len(read) == SPLITS
        assert sum(read.values()) > 1000, "a reader reads one split after the other"
        assert committed_counts(reactive.folder / "out") == expected(read), "a result is lost, or was given twice"
    except BaseException:
        print(cluster.logs())
        raise
    finally:
        reactive.master.signal(signal.SIGTERM)
        reactive.master.wait()
        cluster.close()


def test_reactive_mode_is_refused_where_it_can_not_be() -> None:
    cluster = Cluster(slots=1, options={**OPTIONS, "firesteel.resourcemanager.driver": "local-process"})
    try:
        reactive = Reactive(cluster)
        assert reactive.master.wait() == 2
        assert "firesteel.resourcemanager.driver is local-process" in reactive.master.log()
    finally:
        cluster.close()
