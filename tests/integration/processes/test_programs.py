"""Programs on a cluster of processes: two TaskManagers, each with an executor of its own."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.processes.cluster import BIN, Cluster, running_cluster, wait_until

pytestmark = pytest.mark.timeout(400)
EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
HEAD = """
import sys

from firesteel.common import WatermarkStrategy
from firesteel.datastream import StreamExecutionEnvironment
from firesteel.datastream.connectors.number_seq import NumberSequenceSource

env = StreamExecutionEnvironment.get_execution_environment()
"""
EXCHANGE = """
numbers = env.from_source(NumberSequenceSource(1, 20000), WatermarkStrategy.no_watermarks(), "numbers")
sums = (
    numbers.key_by(lambda i: i % 7)
    .map(lambda i: (i % 7, i))
    .key_by(lambda item: item[0])
    .reduce(lambda one, other: (one[0], one[1] + other[1]))
)
last = {}
with sums.execute_and_collect("sums") as results:
    for key, total in results:
        last[key] = max(last.get(key, 0), total)
print(sorted(last.items()))
"""
FAILS = """
def divide(i):
    return 1 // (i - 500)

numbers = env.from_source(NumberSequenceSource(1, 1000), WatermarkStrategy.no_watermarks(), "numbers")
numbers.map(divide).name("Divide").print()
env.execute("fails")
"""
PRINTS = """
env.from_collection(["one", "two"]).print()
env.execute("prints")
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Two TaskManagers of two slots."""
    with running_cluster(taskmanagers=2) as cluster_of_two:
        yield cluster_of_two


def run(cluster: Cluster, name: str, program: str, *options: str) -> tuple[int, str, str]:
    """Exit code, output and errors of ``firesteel run``."""
    file = cluster.folder / f"{name}.py"
    file.write_text(HEAD + program)
    done = cluster.firesteel("run", *options, str(file))
    return done.returncode, done.stdout, done.stderr


def test_records_cross_between_taskmanagers(cluster: Cluster) -> None:
    code, out, errors = run(cluster, "sums", EXCHANGE, "-p", "4")
    assert code == 0, out + errors + cluster.logs()
    sums = Counter[int]()
    for number in range(1, 20001):
        sums[number % 7] += number
    assert str(sorted(sums.items())) in out
    taskmanagers = cluster.rest("GET", "/taskmanagers")[1]["taskmanagers"]
    assert [taskmanager["slotsNumber"] for taskmanager in taskmanagers] == [2, 2]
    jobs = cluster.rest("GET", "/jobs/overview")[1]["jobs"]
    job = next(row["jid"] for row in jobs if row["name"] == "sums")
    vertices = [vertex["id"] for vertex in cluster.rest("GET", f"/jobs/{job}")[1]["vertices"]]
    places = [
        {subtask["taskmanager-id"] for subtask in cluster.rest("GET", f"/jobs/{job}/vertices/{vertex}")[1]["subtasks"]}
        for vertex in vertices
    ]
    assert sum(len(hosts) == 2 for hosts in places) >= 2, "the ends of a keyed exchange ran on both TaskManagers"


def test_a_failure_names_operator_and_record(cluster: Cluster) -> None:
    code, out, errors = run(cluster, "fails", FAILS)
    assert code == 1, out + errors
    assert "ZeroDivisionError" in out + errors
    assert "Divide" in out + errors
    assert "500" in out + errors


def test_what_slots_print_is_in_the_output_of_their_taskmanager(cluster: Cluster) -> None:
    code, out, errors = run(cluster, "prints", PRINTS)
    assert code == 0, out + errors

    def printed() -> bool:
        outputs = [service.log() for service in cluster.services if service.name == "taskmanager"]
        return any("one\ntwo\n" in text for text in outputs)

    wait_until(printed, "the records are in the output of a TaskManager")


def test_the_word_count_counts_words(cluster: Cluster) -> None:
    text = cluster.folder / "text"
    text.write_text("to be or not to be\n" * 50)
    done = cluster.firesteel("run", str(EXAMPLES / "word_count.py"), str(text))
    assert done.returncode == 0, done.stdout + done.stderr + cluster.logs()
    assert "300 words" in done.stdout


def test_the_logs_of_jobmasters_and_executors_stay_beside_those_of_their_services(cluster: Cluster) -> None:
    text = cluster.folder / "few"
    text.write_text("to be\n")
    done = cluster.firesteel("run", str(EXAMPLES / "word_count.py"), str(text))
    assert done.returncode == 0, done.stdout + done.stderr + cluster.logs()
    job = next(line.rpartition(" ")[2] for line in done.stdout.splitlines() if "submitted with JobID" in line)
    folders = [service.log_file.parent for service in cluster.services]
    wait_until(lambda: cluster.rest("GET", "/overview")[1]["slots-available"] == 4, "its slots are free")
    (log,) = [log for folder in folders for log in folder.glob(f"jobmasters/{job}.log")]
    assert job in log.read_text()
    executors = [log for folder in folders for log in folder.glob(f"executor-{socket.gethostname()}-*.log")]
    assert len(executors) == len([service for service in cluster.services if service.name == "taskmanager"])
    assert not list(cluster.run_root.glob("*/jobmasters/*.log"))


LOGS = """
import logging

from firesteel.datastream.connectors.data_generator import DataGeneratorSource, RateLimiterStrategy


def note(i):
    logging.getLogger("of.the.job").warning("seen %d", i)
    return i


source = DataGeneratorSource(lambda i: i, None, RateLimiterStrategy.per_second(2))
env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").map(note).filter(lambda i: i < 0).print()
env.execute("notes")
"""


def test_logs_are_followed_until_nobody_wants_more(cluster: Cluster) -> None:
    code, out, errors = run(cluster, "notes", LOGS, "-d")
    assert code == 0, out + errors
    job = out.split("JobID ")[1].split()[0]
    wait_until(lambda: "taskmanager-" in cluster.firesteel("logs", "--list", job).stdout, "the log is listed")
    following = subprocess.Popen(
        [*cluster.client_prefix, str(BIN / "firesteel"), "logs", "-f", "-n", "0", job],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=cluster.environment(), stdin=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        assert following.stdout is not None
        numbers: list[int] = []
        for line in following.stdout:
            if "of.the.job" in line and "were suppressed" not in line:  # too many in a second, after a delay
                numbers.append(int(line.rpartition("seen ")[2]))
            if len(numbers) == 4:
                break
        assert numbers == list(range(numbers[0], numbers[0] + 4)), "each line comes, and once"
        following.send_signal(signal.SIGINT)
        assert following.wait(30) == 130
    finally:
        following.kill()
        following.communicate()
        assert cluster.firesteel("cancel", job).returncode == 0


@pytest.mark.long
def test_jobs_use_one_cluster_side_by_side(cluster: Cluster) -> None:
    endless = HEAD + (
        "from firesteel.datastream.connectors.data_generator import DataGeneratorSource, RateLimiterStrategy\n"
        "source = DataGeneratorSource(lambda i: i, None, RateLimiterStrategy.per_second(1_000))\n"
        'numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")\n'
        "numbers.filter(lambda i: i < 0).print()\n"
        'env.execute(f"endless {sys.argv[1]}")\n'
    )
    file = cluster.folder / "endless.py"
    file.write_text(endless)
    for number in "12":
        done = cluster.firesteel("run", "-d", "-p", "2", str(file), number)
        assert done.returncode == 0, done.stdout + done.stderr

    def running() -> list[str]:
        jobs = cluster.rest("GET", "/jobs/overview")[1]["jobs"]
        return [row["jid"] for row in jobs if row["state"] == "RUNNING" and row["tasks"]["running"]]

    jobs = wait_until(lambda: len(running()) == 2 and running(), "both run")
    listed = cluster.firesteel("list", "-r").stdout
    assert all(job in listed for job in jobs)
    for job in jobs:
        done = cluster.firesteel("cancel", job)
        assert done.returncode == 0, done.stdout + done.stderr
    wait_until(lambda: not running(), "both are cancelled")
    wait_until(lambda: cluster.rest("GET", "/overview")[1]["slots-available"] == 4, "their slots are free")
    states = {row["jid"]: row["state"] for row in cluster.rest("GET", "/jobs/overview")[1]["jobs"]}
    assert [states[job] for job in jobs] == ["CANCELED", "CANCELED"], json.dumps(states)
