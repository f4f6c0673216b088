"""A cluster with two slots: jobs wait for them, code that does not want to end gives them back, processes die."""

from __future__ import annotations

import logging
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from firesteel.client.embedded import stop_embedded_cluster
from firesteel.core.errors import JobFailedError, NoResourceAvailableError
from firesteel.core.process import identify
from firesteel.datastream import MapFunction, RuntimeContext
from tests.integration.embedded.programs import (
    described,
    ended,
    family,
    new_environment,
    rest_of,
    running,
    state_of,
    until,
)

TWO_SLOTS = {"taskmanager__numberOfTaskSlots": "2"}


class Notes(logging.Handler):
    """Keeps what is logged."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


@pytest.fixture(scope="module", autouse=True)
def start() -> Iterator[tuple[int, str, list[str]]]:
    """Starts the cluster: the port that it was to have, the address that it has, and what was logged meanwhile."""
    stop_embedded_cluster()
    logger, notes = logging.getLogger(), Notes()
    level = logger.level
    logger.addHandler(notes)
    logger.setLevel(logging.INFO)
    try:
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            listener.listen()
            port = listener.getsockname()[1]
            env = new_environment(2, rest__port=str(port), rest__bind_port=f"{port}-{port + 99}", **TWO_SLOTS)
            with env.from_collection([1]).execute_and_collect() as results:
                client: Any = results.get_job_client()
                assert list(results) == [1]
    finally:
        logger.removeHandler(notes)
        logger.setLevel(level)
    yield port, client.get_web_interface_url(), notes.texts
    stop_embedded_cluster()


def test_a_taken_port_is_stepped_over_and_said(start: tuple[int, str, list[str]]) -> None:
    port, url, texts = start
    assert port < int(url.rpartition(":")[2]) < port + 100
    assert any(str(port) in text for text in texts), texts


class Waiting(MapFunction):  # type: ignore[type-arg]
    """Holds its record until a file appears, and keeps a diary of who runs when."""

    def __init__(self, gate: Path, name: str) -> None:
        self.gate, self.name = gate, name

    def open(self, runtime_context: RuntimeContext) -> None:
        (self.gate.parent / f"{self.name}-{runtime_context.get_index_of_this_subtask()}").touch()

    def map(self, value: Any) -> Any:
        while not self.gate.exists():
            time.sleep(0.02)
        return value


def test_jobs_queue_for_slots(tmp_path: Path) -> None:
    envs = [new_environment(2, **TWO_SLOTS) for _ in range(3)]
    jobs = []
    for number, env in enumerate(envs):
        gate = tmp_path / f"gate{number}"
        env.from_sequence(1, 2).map(Waiting(gate, f"open{number}")).print()
        jobs.append(env.execute_async(f"job {number}"))
    running(jobs[0])
    assert [state_of(job) for job in jobs[1:]] == ["RUNNING"] * 2
    assert not list(tmp_path.glob("open[12]-*"))
    states = rest_of(jobs[1])["vertices"][0]["tasks"]
    assert states["RUNNING"] == states["DEPLOYING"] == 0
    jobs[2].cancel().result()  # one that waits can be cancelled
    assert ended(jobs[2]) == "CANCELED"
    (tmp_path / "gate0").touch()
    assert ended(jobs[0]) == "FINISHED"
    running(jobs[1])
    (tmp_path / "gate1").touch()
    assert ended(jobs[1]) == "FINISHED"
    too_wide = new_environment(3, **TWO_SLOTS)
    too_wide.from_sequence(1, 2).print()
    with pytest.raises(
        (JobFailedError, NoResourceAvailableError), match=r"needs 3 slots .* and the cluster has 2 in all"
    ):
        too_wide.execute()


class Stuck(MapFunction):  # type: ignore[type-arg]
    """Says that it is at work, then does not come back."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def open(self, runtime_context: RuntimeContext) -> None:
        self.index = runtime_context.get_index_of_this_subtask()

    def map(self, value: Any) -> Any:
        (self.folder / f"at work {self.index}").touch()
        self.hang()

    def hang(self) -> None:
        raise NotImplementedError

    def close(self) -> None:
        (self.folder / f"closed {self.index}").touch()


class Sleeping(Stuck):
    def hang(self) -> None:
        time.sleep(3600)


class Computing(Stuck):
    def hang(self) -> None:
        pow(3, 10**9)


class OnASocket(Stuck):
    def hang(self) -> None:
        reader, _other = socket.socketpair()
        reader.recv(1)


class Swallowing(Stuck):
    def hang(self) -> None:
        while True:
            try:
                time.sleep(3600)
            except Exception:
                pass


class SwallowingAll(Stuck):
    def hang(self) -> None:
        while True:
            try:
                time.sleep(0.01)
            except:  # noqa: E722
                pass


class BlockingSleep(Sleeping):
    blocking = True


class BlockingSocket(OnASocket):
    blocking = True


class StuckInOpen(Stuck):
    def open(self, runtime_context: RuntimeContext) -> None:
        super().open(runtime_context)
        (self.folder / f"at work {self.index}").touch()
        time.sleep(3600)


def closed_after_cancel(function: type[Stuck], killed_after: str, folder: Path) -> list[str]:
    """Cancels a job when its functions are at work; which of them were closed, when another job has had its slots."""
    options = {"task__cancellation__interval": "200 ms", "task__cancellation__timeout": killed_after}
    env = new_environment(2, **TWO_SLOTS, **options)
    env.from_sequence(1, 4).map(function(folder)).print()
    job = env.execute_async(function.__name__)
    until(lambda: len(list(folder.glob("at work *"))) == 2, "both functions being at work")
    job.cancel().result()
    assert ended(job) == "CANCELED"
    assert sorted(env.from_sequence(1, 4).map(str).execute_and_collect()) == list("1234")
    return sorted(path.name for path in folder.glob("closed *"))


@pytest.mark.parametrize("function", [Sleeping, OnASocket, Swallowing, StuckInOpen])
def test_what_can_be_interrupted_ends_by_itself(function: type[Stuck], tmp_path: Path) -> None:
    assert closed_after_cancel(function, "1 h", tmp_path) == ["closed 0", "closed 1"]


@pytest.mark.parametrize(
    "function",
    [
        Computing,
        BlockingSleep,
        *(pytest.param(function, marks=pytest.mark.long) for function in (SwallowingAll, BlockingSocket)),
    ],
)
def test_what_cannot_be_interrupted_ends_with_its_process(function: type[Stuck], tmp_path: Path) -> None:
    assert closed_after_cancel(function, "1500 ms", tmp_path) == []


def kill_and_look(kinds: Sequence[str], message: str, tmp_path: Path) -> None:
    env = new_environment(2, **TWO_SLOTS)
    gate = tmp_path / "gate"

    def wait(value: int) -> int:
        while not gate.exists():
            time.sleep(0.02)
        return value

    env.from_sequence(1, 4).map(wait).rebalance().map(str).print()
    job = env.execute_async()
    running(job)
    processes = family(os.getpid())
    for kind in kinds:
        assert processes[kind], (kind, processes)
        os.kill(processes[kind][0].pid, signal.SIGKILL)
    with pytest.raises(JobFailedError, match=message) as caught:
        job.get_job_execution_result().result(50)
    assert "py4j" not in str(caught.value)
    assert sorted(new_environment(2, **TWO_SLOTS).from_sequence(1, 4).map(str).execute_and_collect()) == list("1234")


def test_a_slot_process_is_killed(tmp_path: Path) -> None:
    kill_and_look(["slot"], r"(?is)slot.*(kill|signal 9|lost|ended)", tmp_path)


def leave(value: int) -> int:
    os._exit(3)


def crash(value: int) -> int:
    import ctypes

    return int(ctypes.string_at(0)[0])


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (leave, r"slot process \d+ on \S+ ended with exit code 3: .*os\._exit"),
        (crash, r"(?s)slot process \d+ on \S+ was killed by SIGSEGV \(signal 11\): native code crashed.* in crash"),
    ],
)
def test_the_failure_says_how_a_slot_process_has_died(function: Callable[[int], int], message: str) -> None:
    env = new_environment(2, **TWO_SLOTS)
    env.from_sequence(1, 4).map(function).print()
    with pytest.raises(JobFailedError, match=message):
        env.execute()


def test_children_print_beside_their_slot_and_end_with_it(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    def start(value: int) -> int:
        if value == 1:
            subprocess.run(["echo", "printed by a program"], stdout=sys.stdout, check=True)
            child = os.fork()
            if child == 0:
                print("printed by a fork", flush=True)
                sys.exit()
            os.waitpid(child, 0)
            left = subprocess.Popen(["sleep", "1000"])
            (tmp_path / "pid").write_text(str(left.pid))
        return value

    env = new_environment(2, **TWO_SLOTS)
    env.from_sequence(1, 4).map(start).print()
    env.execute()
    printed = capfd.readouterr().out
    assert "printed by a program\n" in printed
    assert "printed by a fork\n" in printed
    pid = int((tmp_path / "pid").read_text())
    until(lambda: identify(pid) is None, lambda: f"process {pid} has outlived its slot")


def test_the_daemon_is_killed(tmp_path: Path) -> None:
    kill_and_look(["daemon"], r"(?is)(slot|daemon|worker).*(kill|signal|lost|ended)", tmp_path)


def test_the_jvm_is_killed(tmp_path: Path) -> None:
    kill_and_look(["jvm"], r"(?is)(jvm|spark|slot).*(kill|signal 9|lost|ended)", tmp_path)
    stop_embedded_cluster()
    until(lambda: not family(os.getpid())["jvm"], lambda: f"no JVM\n{described(family(os.getpid())['jvm'])}")
