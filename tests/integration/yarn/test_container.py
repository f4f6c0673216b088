"""The first process of a container: nothing of it stays, whatever has lost its parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from firesteel.core.process import ProcessId, identify, is_running, kill
from tests.waiting import wait_until

GUARD = "import sys; from firesteel_yarn.container import main; sys.exit(main(sys.argv[1:]))"
CHILD = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:  # as a JobMaster: nobody above it, in a session of its own
        with open(sys.argv[1] + ".new", "w") as file:
            file.write(str(os.getpid()))
        os.rename(sys.argv[1] + ".new", sys.argv[1])
        time.sleep(600)
    os._exit(0)
with open(sys.argv[1] + "-child.new", "w") as file:
    file.write(str(os.getpid()))
os.rename(sys.argv[1] + "-child.new", sys.argv[1] + "-child")
time.sleep(float(sys.argv[2]))
sys.exit(7)
"""


@contextmanager
def container(folder: Path, seconds: float) -> Iterator[tuple[subprocess.Popen[bytes], ProcessId, int]]:
    """The first process, one that has lost its parent, and the pid of the child."""
    note = folder / "pid"
    words = [sys.executable, "-c", GUARD, sys.executable, "-c", CHILD, str(note), str(seconds)]
    first = subprocess.Popen(words, start_new_session=True)
    lost: ProcessId | None = None
    try:
        wait_until(lambda: note.exists() and Path(f"{note}-child").exists(), "processes have started")
        lost = identify(int(note.read_text()))
        assert lost is not None
        yield first, lost, int(Path(f"{note}-child").read_text())
    finally:
        first.kill()
        first.wait()
        if lost is not None:
            kill(lost)


def test_nothing_outlives_the_applicationmaster(tmp_path: Path) -> None:
    with container(tmp_path, 600) as (first, lost, child):
        os.kill(child, signal.SIGKILL)
        assert first.wait(30) == 128 + signal.SIGKILL
        assert not is_running(lost)


@pytest.mark.smoke
def test_its_exit_code_is_that_of_the_container(tmp_path: Path) -> None:
    with container(tmp_path, 0.5) as (first, lost, _):
        assert first.wait(30) == 7
        assert not is_running(lost)


def test_yarn_ends_a_container_by_a_signal(tmp_path: Path) -> None:
    with container(tmp_path, 600) as (first, lost, _):
        first.terminate()
        assert first.wait(30) == 128 + signal.SIGTERM
        assert not is_running(lost)
