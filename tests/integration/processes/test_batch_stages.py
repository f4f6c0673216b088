"""Jobs in batch mode on a cluster of processes: their stages run where they have slots, and whoever dies, nothing is
lost, doubled, or visible too early."""

from __future__ import annotations

import json
import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from firesteel.core.process import ProcessId, descendants, identify, wait_gone
from tests.integration.processes.cluster import Cluster, running_cluster, wait_until
from tests.integration.processes.test_open_doors import running_tasks
from tests.integration.processes.test_recovery import jobmaster_of

pytestmark = [pytest.mark.timeout(600), pytest.mark.exact]
WORDS, COUNT = 7, 3500
PROGRAM = """
import json, os, sys, time
from pathlib import Path
from firesteel.common import Encoder, Types, WatermarkStrategy
from firesteel.datastream import RuntimeExecutionMode, StreamExecutionEnvironment
from firesteel.datastream.connectors.file_system import FileSink, FileSource, StreamFormat
from firesteel.functions.two_phase import Committer, TwoPhaseCommitSink

FOLDER = Path(sys.argv[1])
PAIR = Types.TUPLE([Types.STRING(), Types.INT()])

def at(place):
    '''While somebody wants that, whoever comes here stands still, and says who it is.'''
    wanted = FOLDER / f"hold-{place}"
    if wanted.exists():
        (FOLDER / f"at-{place}-{os.getpid()}-{os.environ['SPARK_EXECUTOR_ID']}").touch()
        while wanted.exists():
            time.sleep(0.01)

class Held(TwoPhaseCommitSink):
    def __init__(self, sink):
        self.sink = sink
        self.commits_quickly = sink.commits_quickly

    def create_writer(self, context):
        return self.sink.create_writer(context)

    def create_committer(self, context):
        return HeldCommitter(self.sink.create_committer(context))

    def check(self):
        self.sink.check()

class HeldCommitter(Committer):
    def __init__(self, committer):
        self.committer = committer

    def commit(self, committables):
        return self.held(self.committer.commit, committables)

    def recommit(self, committables):
        return self.held(self.committer.recommit, committables)

    def held(self, commit, committables):
        results = list(commit(committables[:1]))
        at("commit")
        return [*results, *commit(committables[1:])]

def first(word):
    at("map")
    return word, 1

def last(pair):
    at("reduce")
    return f"{pair[0]} {pair[1]}"

env = StreamExecutionEnvironment.get_execution_environment()
env.set_runtime_mode(RuntimeExecutionMode.BATCH)
lines = FileSource.for_record_stream_format(StreamFormat.text_line_format(), str(FOLDER / "in")).build()
words = env.from_source(lines, WatermarkStrategy.no_watermarks(), "lines")
counts = words.map(first, PAIR).key_by(lambda p: p[0]).reduce(lambda a, b: (a[0], a[1] + b[1]))
sink = FileSink.for_row_format(str(FOLDER / "out"), Encoder.simple_string_encoder()).build()
counts.map(last, Types.STRING()).sink_to(Held(sink))
env.execute("count words")
"""
TASKS = """
import os, sys, time
from pathlib import Path
from firesteel.common import Types
from firesteel.datastream import RuntimeExecutionMode, StreamExecutionEnvironment

FOLDER = Path(sys.argv[1])

def notes(value):
    began = time.time()
    here = FOLDER / f"here-{os.getpid()}"
    here.touch()
    while (FOLDER / "hold").exists():
        time.sleep(0.01)
    here.unlink()
    name = f"{os.environ['SPARK_EXECUTOR_ID']} {began} {time.time()}"
    (FOLDER / name).touch()
    return value

env = StreamExecutionEnvironment.get_execution_environment()
env.set_runtime_mode(RuntimeExecutionMode.BATCH)
sources = [env.from_collection([n, n + 1], Types.INT()).rebalance().map(notes, Types.INT()) for n in range(3)]
print(sorted(sources[0].union(*sources[1:]).execute_and_collect()))
"""
ENDLESS = """
from firesteel.common import WatermarkStrategy
from firesteel.datastream import StreamExecutionEnvironment
from firesteel.datastream.connectors.data_generator import DataGeneratorSource, RateLimiterStrategy

env = StreamExecutionEnvironment.get_execution_environment()
source = DataGeneratorSource(lambda i: i, None, RateLimiterStrategy.per_second(1_000))
env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").map(lambda i: i).filter(lambda i: False).print()
env.execute("endless")
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with running_cluster(2, slots=2) as cluster_of_two:
        yield cluster_of_two


class Counting:
    """The job that counts words, with whoever stands at this place held."""

    def __init__(self, cluster: Cluster, place: str) -> None:
        self.cluster, self.place = cluster, place
        number = sum(1 for _ in cluster.folder.glob("count-*"))
        self.folder = cluster.folder / f"count-{number}"
        (self.folder / "in").mkdir(parents=True)
        for part in range(3):
            text = "".join(f"w{i % WORDS}\n" for i in range(COUNT))
            (self.folder / "in" / f"{part}.txt").write_text(text)
        self.hold = self.folder / f"hold-{place}"
        self.hold.touch()
        program = self.folder / "program.py"
        program.write_text(PROGRAM)
        done = cluster.firesteel("run", "-d", "-p", "2", str(program), str(self.folder))
        assert done.returncode == 0, done.stdout + done.stderr
        jobs = cluster.rest("GET", "/jobs/overview")[1]["jobs"]
        self.job = max(jobs, key=lambda row: row["start-time"])["jid"]

    def held(self) -> tuple[ProcessId, str]:
        """The process of a task that stands at the place, as soon as there is one, and its executor."""

        def tasks_at_place() -> list[tuple[ProcessId, str]]:
            names = [path.name.split("-") for path in self.folder.glob(f"at-{self.place}-*")]
            return [(process, name[3]) for name in names if (process := identify(int(name[2]))) is not None]

        at: list[tuple[ProcessId, str]] = wait_until(tasks_at_place, f"a task is at {self.place}")
        return at[0]

    def visible(self) -> list[str]:
        """Lines that readers see."""
        files = [path for path in (self.folder / "out").rglob("*") if path.is_file()]
        shown = [path for path in files if not path.name.startswith((".", "_"))]
        return sorted(line for path in shown for line in path.read_text().splitlines())

    def now(self) -> dict[str, Any]:
        """What the Dispatcher says about the job; nothing while it does not know."""
        with suppress(OSError):
            status, answer = self.cluster.rest("GET", f"/jobs/{self.job}")
            return dict(answer) if status == 200 else {}
        return {}

    def story(self) -> str:
        """Where it stands, and what its JobMaster and the ResourceManager said last."""
        return "\n".join(["the job ends", json.dumps(self.now()), self.cluster.logs()[-20_000:]])

    def finishes(self) -> None:
        """With each word once, and as often as it was there."""
        self.hold.unlink()
        wait_until(lambda: self.now().get("state") in ("FINISHED", "FAILED", "CANCELED"), self.story, 300)
        exceptions = self.cluster.rest("GET", f"/jobs/{self.job}/exceptions")[1]
        assert self.now()["state"] == "FINISHED", json.dumps(exceptions)
        assert self.visible() == sorted(f"w{i} {3 * COUNT // WORDS}" for i in range(WORDS))


def die(process: ProcessId) -> None:
    os.kill(process.pid, signal.SIGKILL)
    wait_gone([process], 10)


def strike(job: Counting, victim: str) -> None:
    """Somebody dies while a task stands at its place; a service is started anew."""
    cluster = job.cluster
    worker, executor_id = job.held()
    executor = executor_of(cluster, executor_id)
    match victim:
        case "worker":
            die(worker)
        case "executor":
            die(executor)
        case "taskmanager":
            taskmanagers = [
                service for service in cluster.services if service.name == "taskmanager" and service.is_running()
            ]
            next(service for service in taskmanagers if executor in descendants(service.pid)).kill()
            cluster.start("taskmanager")
            cluster.wait_slots(4)
        case "driver":
            record = json.loads((cluster.cluster_directory / "driver.json").read_text())
            os.kill(int(record["process"]["pid"]), signal.SIGKILL)
        case "jobmaster":
            before = jobmaster_of(cluster.cluster_directory)
            assert before is not None
            die(before)
        case _:
            cluster.the(victim).kill()
            cluster.start(victim)


def executor_of(cluster: Cluster, executor_id: str) -> ProcessId:
    return next(process for process in cluster.executors() if f"--executor-id {executor_id} " in command_of(process))


def command_of(process: ProcessId) -> str:
    with suppress(OSError):
        return Path(f"/proc/{process.pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    return ""


CASES = [(place, victim) for place in ("map", "reduce", "commit") for victim in
         ("worker", "executor", "taskmanager", "driver", "jobmaster", "resourcemanager", "dispatcher")]  # fmt: skip


@pytest.mark.long
@pytest.mark.leaks_ok(reason="services that are started anew belong to the file's cluster, which is checked at its end")
@pytest.mark.parametrize(("place", "victim"), CASES)
def test_results_are_there_once_whichever_process_dies_at_whichever_step(
    cluster: Cluster, place: str, victim: str
) -> None:
    job = Counting(cluster, place)
    job.held()
    if place != "commit":
        assert job.visible() == [], "nothing is visible before the commit"
    strike(job, victim)
    job.finishes()


@pytest.mark.long
def test_stages_take_the_cores_of_the_jobs_slots_and_streams_keep_theirs(cluster: Cluster) -> None:
    folder = cluster.folder / "tasks"
    folder.mkdir()
    stream, program = cluster.folder / "endless.py", cluster.folder / "tasks.py"
    stream.write_text(ENDLESS)
    program.write_text(TASKS)
    done = cluster.firesteel("run", "-d", "-p", "2", str(stream))
    assert done.returncode == 0, done.stdout + done.stderr
    wait_until(lambda: running_tasks(cluster) == 2, "the stream runs")
    (endless,) = [j["jid"] for j in cluster.rest("GET", "/jobs/overview")[1]["jobs"] if j["state"] == "RUNNING"]
    try:
        (folder / "hold").touch()
        with ThreadPoolExecutor(1) as thread:
            running = thread.submit(cluster.firesteel, "run", "-p", "2", str(program), str(folder))
            try:
                wait_until(lambda: len(list(folder.glob("here-*"))) == 2, "both cores are taken")
                time.sleep(2)  # a third task would have had time to come
                assert len(list(folder.glob("here-*"))) == 2
            finally:
                (folder / "hold").unlink()
            done = running.result()
        assert done.returncode == 0, done.stdout + done.stderr
        assert "[0, 1, 1, 2, 2, 3]" in done.stdout
        tasks = [(executor, float(began), float(ended)) for executor, began, ended in
                 (path.name.split() for path in folder.iterdir())]  # fmt: skip
        assert len(tasks) == 6
        assert most_at_once([(began, ended) for _, began, ended in tasks]) == 2, "the job has two slots"
        used = Counter(executor for executor, _, _ in tasks)
        for executor in used:
            here = [(began, ended) for executor_of_task, began, ended in tasks if executor_of_task == executor]
            assert most_at_once(here) <= 2 // len(used), used
        vertices = cluster.rest("GET", f"/jobs/{endless}")[1]["vertices"]
        assert {vertex["status"] for vertex in vertices} == {"RUNNING"}
        assert cluster.rest("GET", f"/jobs/{endless}/metrics?get=numRestarts")[1][0]["value"] == "0"
    finally:
        cluster.rest("PATCH", f"/jobs/{endless}")
        wait_until(lambda: cluster.rest("GET", "/overview")[1]["slots-available"] == 4, "all slots are free")


def most_at_once(spans: list[tuple[float, float]]) -> int:
    """The largest number of spans that have a moment in common."""
    return max(sum(began <= at < ended for began, ended in spans) for at, _ in spans)
