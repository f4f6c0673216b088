"""A job goes on from its last checkpoint when its JobMaster dies, and when everything dies; it is not run again."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from firesteel.core.process import is_running
from tests.integration.processes.cluster import Cluster, running_cluster, wait_until
from tests.integration.processes.test_recovery import jobmaster_of

pytestmark = pytest.mark.timeout(500)
KEYS, RECORDS = 5, 10_000

PROGRAM = f"""
import os, time
from pathlib import Path
from firesteel.common import Encoder, Types, WatermarkStrategy
from firesteel.datastream import KeyedProcessFunction, StreamExecutionEnvironment
from firesteel.datastream.connectors.file_system import FileSink
from firesteel.datastream.connectors.number_seq import NumberSequenceSource
from firesteel.datastream.state import ValueStateDescriptor

GATE, READ, OUT = {{gate!r}}, {{read!r}}, {{out!r}}

def slowly(value):
    if not os.path.exists(GATE):
        time.sleep(0.02)
    with open(READ, "a") as file:
        file.write(f"{{{{value}}}} {{{{os.getpid()}}}}\\n")
    return value

class Count(KeyedProcessFunction):
    def open(self, runtime_context):
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value, ctx):
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        yield f"{{{{value % {KEYS}}}}},{{{{count}}}}"

env = StreamExecutionEnvironment.get_execution_environment()
env.enable_checkpointing(300)
numbers = env.from_source(NumberSequenceSource(0, {RECORDS} - 1), WatermarkStrategy.no_watermarks(), "numbers")
counts = numbers.map(slowly).key_by(lambda value: value % {KEYS}).process(Count(), Types.STRING())
counts.sink_to(FileSink.for_row_format(OUT, Encoder.simple_string_encoder()).build())
env.execute("counts")
"""


@pytest.mark.long  # JobMasters die in every run: test_coordinators.py, recovery; all of it: test_scripts.py
def test_a_job_goes_on_from_its_checkpoint_whoever_of_its_coordinators_dies() -> None:
    with running_cluster(options={"restart-strategy.type": "none"}, ha=True) as cluster:
        job, gate, out, read = counting(cluster)
        before = jobmaster_of(cluster.cluster_directory)
        assert before is not None
        first = {pid for _, pid in lines_of(read)}
        began = start_time(cluster, job)
        os.kill(before.pid, signal.SIGKILL)
        wait_until(lambda: restored(cluster, job) >= 2, "another JobMaster has restored a checkpoint")
        wait_until(lambda: completed(cluster, job) >= restored(cluster, job) + 2, "it takes further checkpoints")
        assert attempts(cluster, job) == {1}
        events = cluster.rest("GET", f"/jobs/{job}/events")[1]["events"]
        story = [event["type"] for event in events if not event["type"].startswith("CHECKPOINTS")]
        assert story == ["SUBMITTED", "SCHEDULED", "RUNNING", "JOBMASTER_LOST", "SCHEDULED", "RUNNING"]
        assert " from 127.0.0.1" in events[0]["by"]
        second = {pid for _, pid in lines_of(read)} - first
        assert 0 not in {value for value, pid in lines_of(read) if pid in second}, "it began anew"

        last = completed(cluster, job)
        coordinators = ("dispatcher", "resourcemanager", "jobmaster", "taskmanager")
        jobmaster = jobmaster_of(cluster.cluster_directory)
        assert jobmaster is not None
        for name in coordinators:
            cluster.the(name).signal(signal.SIGKILL)
        os.kill(jobmaster.pid, signal.SIGKILL)
        for name in coordinators:
            cluster.the(name).wait()
        wait_until(lambda: not is_running(jobmaster), "the JobMaster is gone")
        for service in [cluster.launch(name) for name in coordinators]:
            service.wait_listening()
        wait_until(lambda: restored(cluster, job) >= last, "the job goes on from a checkpoint after the restart")
        third = {pid for _, pid in lines_of(read)} - first - second
        gate.touch()
        wait_until(lambda: state(cluster, job) == "FINISHED", "the job ends", 200)
        assert attempts(cluster, job) == {2}
        assert 0 not in {value for value, pid in lines_of(read) if pid in third}, "it began anew"
        assert start_time(cluster, job) == began, "it runs since its submission, whoever has led it"
        lines = Counter(line for path in out.rglob("part-*") for line in path.read_text().splitlines())
        expected = Counter(f"{n % KEYS},{n // KEYS + 1}" for n in range(RECORDS))
        assert lines == expected, f"{len(expected - lines)} results are missing, {len(lines - expected)} too many"

        cluster.the("dispatcher").kill()
        cluster.start("dispatcher")
        assert state(cluster, job) == "FINISHED", "a finished job is shown, and not run again"
        wait_until(lambda: not list(cluster.folder.glob("ha/*/cells/job-*")), "what only a running job needs goes")
        assert [path.name.partition(".")[0] for path in cluster.folder.glob("ha/*/jobs/*/ended/*")] == [job]


def start_time(cluster: Cluster, job: str) -> int:
    """Of the job, epoch ms."""
    return int(cluster.rest("GET", f"/jobs/{job}")[1]["start-time"])


@pytest.mark.long  # seeds of the simulation have such deaths in every run
def test_a_job_need_not_wait_when_its_coordinators_die_together_and_its_taskmanagers_live() -> None:
    """A ResourceManager that was started anew waits for the TaskManagers of the job, and no longer than it has to."""
    slow = {"heartbeat.interval": "60 s", "heartbeat.timeout": "150 s"}
    with running_cluster(options=slow, ha=True) as cluster:
        job, gate, out, _ = counting(cluster)
        jobmaster = jobmaster_of(cluster.cluster_directory)
        assert jobmaster is not None
        coordinators = ("dispatcher", "resourcemanager", "jobmaster")
        for name in coordinators:
            cluster.the(name).signal(signal.SIGKILL)
        os.kill(jobmaster.pid, signal.SIGKILL)
        for name in coordinators:
            cluster.the(name).wait()
        for service in [cluster.launch(name) for name in coordinators]:
            service.wait_listening()
        wait_until(lambda: restored(cluster, job) >= 2, "the job goes on", 60)  # not 152 s
        gate.touch()
        wait_until(lambda: state(cluster, job) == "FINISHED", "the job ends")
        lines = Counter(line for path in out.rglob("part-*") for line in path.read_text().splitlines())
        assert lines == Counter(f"{n % KEYS},{n // KEYS + 1}" for n in range(RECORDS))


def counting(cluster: Cluster) -> tuple[str, Path, Path, Path]:
    """Runs the program until two checkpoints are complete: the job, what ends it soon, its results, what it reads."""
    gate, out, read = (cluster.folder / name for name in ("gate", "out", "read"))
    program = cluster.folder / "counts.py"
    program.write_text(PROGRAM.format(gate=str(gate), out=str(out), read=str(read)))
    chk = f"execution.checkpointing.dir={cluster.folder / 'checkpoints'}"
    done = cluster.firesteel("run", "-d", "-p", "2", "-D", chk, str(program))
    assert done.returncode == 0, done.stdout + done.stderr
    (job,) = [line["jid"] for line in cluster.rest("GET", "/jobs/overview")[1]["jobs"]]
    wait_until(lambda: completed(cluster, job) >= 2, "checkpoints are complete")
    return str(job), gate, out, read


def lines_of(path: Any) -> list[tuple[int, int]]:
    """Numbers that were read, each with the process that read it."""
    if not path.exists():
        return []
    return [(int(value), int(pid)) for value, _, pid in (line.partition(" ") for line in path.read_text().splitlines())]


def checkpoints(cluster: Cluster, job: str) -> dict[str, Any]:
    try:
        status, answer = cluster.rest("GET", f"/jobs/{job}/checkpoints")
    except OSError:
        return {}
    return dict(answer) if status == 200 else {}


def completed(cluster: Cluster, job: str) -> int:
    """Id of the latest completed checkpoint."""
    latest = checkpoints(cluster, job).get("latest", {}).get("completed") or {}
    return int(latest.get("id", 0))


def restored(cluster: Cluster, job: str) -> int:
    """Id of the checkpoint from which the job went on."""
    latest = checkpoints(cluster, job).get("latest", {}).get("restored") or {}
    return int(latest.get("id", 0))


def state(cluster: Cluster, job: str) -> str:
    try:
        status, answer = cluster.rest("GET", f"/jobs/{job}")
    except OSError:
        return ""
    return str(answer.get("state")) if status == 200 else json.dumps(answer)


def attempts(cluster: Cluster, job: str) -> set[int]:
    vertices = cluster.rest("GET", f"/jobs/{job}")[1]["vertices"]
    subtasks = [cluster.rest("GET", f"/jobs/{job}/vertices/{v['id']}")[1]["subtasks"] for v in vertices]
    return {subtask["attempt"] for of_vertex in subtasks for subtask in of_vertex}
