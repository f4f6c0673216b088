"""Children of user code: forked off a slot, or started by it, and ends of slots that native code has caused."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from firesteel.core.process import group_members, identify, is_running, kill, wait_gone
from firesteel.graph.specs import OperatorKind
from firesteel.protocol.slot_ends import crash_path
from tests.integration.runtime.chains import line, numbers, spec, split
from tests.integration.runtime.slot_process import SlotProcess

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc")


def run_map(slot: SlotProcess, function: Callable[[int], Any], count: int = 1) -> str:
    """Deploy a function over numbers from 0 on; the execution id."""
    (task,) = slot.deploy([line(numbers(0, 9), spec(OperatorKind.MAP, function), spec(OperatorKind.COLLECT))])
    slot.give_splits([split(0, count)])
    return task


def text_of_pipes(slot: SlotProcess) -> dict[str, str]:
    """What is in the pipes of the slot, by stream, as the TaskManager would read it; they stay open."""
    texts = {}
    for stream in ("stdout", "stderr"):
        message, _ = slot.wait_for("output_pipe", lambda m, stream=stream: m["stream"] == stream)  # type: ignore[misc]
        descriptor = os.open(message["path"], os.O_RDONLY | os.O_NONBLOCK)
        try:
            texts[stream] = os.read(descriptor, 1 << 16).decode()
        except BlockingIOError:
            texts[stream] = ""
        finally:
            os.close(descriptor)
    return texts


def test_forked_children_end_like_those_of_any_program(slot: SlotProcess) -> None:
    def fork(value: int) -> Any:
        import logging
        import multiprocessing

        print("unfinished line,", end=" ")
        codes = []
        for end in ("exit", "raise", "return"):
            pid = os.fork()
            if pid == 0:
                print(f"child that ends by {end}")
                logging.getLogger("child").warning("logged by a child")
                if end == "exit":
                    sys.exit(7)
                if end == "raise":
                    raise ValueError("a child's own")
                return None
            codes.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        process = multiprocessing.get_context("fork").Process(target=print, args=("x" * 70_000,))
        process.start()
        process.join(20)
        return codes, process.exitcode

    task = run_map(slot, fork)
    messages = [slot.wait_for("output_pipe", lambda m, s=s: m["stream"] == s)[0] for s in ("stdout", "stderr")]  # type: ignore[misc]
    descriptors = [os.open(message["path"], os.O_RDONLY | os.O_NONBLOCK) for message in messages]
    texts = ["", ""]
    deadline = time.monotonic() + 60
    while "x" * 70_000 not in texts[0] and time.monotonic() < deadline:
        for number, descriptor in enumerate(descriptors):
            try:
                texts[number] += os.read(descriptor, 1 << 16).decode()
            except BlockingIOError:
                time.sleep(0.01)
    assert slot.collect_all(task) == [([7, 1, 0], 0)]
    assert slot.wait_for_state("FINISHED")["error"] is None
    assert texts[0].splitlines() == [
        *(f"child that ends by {end}" for end in ("exit", "raise", "return")), "x" * 70_000,
    ]  # fmt: skip
    assert texts[1].count("ValueError: a child's own") == 1
    assert texts[1].count("logged by a child") == 3
    assert slot.printed() == "unfinished line, "  # once
    assert slot.release() == "OUTCOME RETURNED"


def test_a_forked_child_holds_no_connection_of_the_slot(slot: SlotProcess, tmp_path: Path) -> None:
    def fork(value: int) -> int:
        pid = os.fork()
        if pid == 0:
            time.sleep(100)
            os._exit(0)
        (tmp_path / "pid").write_text(str(pid))
        (tmp_path / "done").touch()
        return value

    run_map(slot, fork)
    while not (tmp_path / "done").exists():
        assert slot.pump(0.1)
    child = identify(int((tmp_path / "pid").read_text()))
    leader = identify(slot.process.pid)
    assert child is not None
    assert leader is not None
    slot.process.kill()
    slot.process.wait()
    started = time.monotonic()
    try:
        while slot.pump(5):
            assert time.monotonic() - started < 5, "the child holds the control channel open"
        assert group_members(leader) == [child]  # by which the TaskManager finds and ends it
    finally:
        os.kill(child.pid, signal.SIGKILL)


def test_children_end_with_their_slot(slot: SlotProcess, tmp_path: Path) -> None:
    def start(value: int) -> int:
        import subprocess

        nowhere: Any = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)  # or the test waits for them
        ours = subprocess.Popen(["sleep", "100"], **nowhere)
        apart = subprocess.Popen(["sleep", "100"], start_new_session=True, **nowhere)
        (tmp_path / "pids").write_text(f"{ours.pid} {apart.pid}")
        return value

    assert slot.collect_all(run_map(slot, start)) == [0]
    slot.wait_for_state("FINISHED")
    children = [identify(int(pid)) for pid in (tmp_path / "pids").read_text().split()]
    assert None not in children
    assert slot.release() == "OUTCOME RETURNED"
    assert [is_running(child) for child in children if child is not None] == [False, False]


def test_standard_output_has_a_descriptor(slot: SlotProcess) -> None:
    def run(value: int) -> int:
        import faulthandler
        import subprocess

        subprocess.run(["echo", "from a child"], stdout=sys.stdout, stderr=sys.stderr, check=True)
        faulthandler.enable()
        return value

    assert slot.collect_all(run_map(slot, run)) == [0]
    assert text_of_pipes(slot)["stdout"] == "from a child\n"
    assert slot.release() == "OUTCOME RETURNED"


def test_a_crash_of_native_code_leaves_its_stack(slot: SlotProcess) -> None:
    def crash(value: int) -> int:
        import ctypes

        return int(ctypes.string_at(0)[0])

    run_map(slot, crash)
    while slot.pump(20):
        pass
    assert slot.process.wait(20) == -signal.SIGSEGV
    stack = crash_path(slot.directory / "control", slot.process.pid).read_text()
    assert "Fatal Python error: Segmentation fault" in stack
    assert "in crash" in stack


DAEMON = """
import os, pyspark.daemon, signal, subprocess, sys, time
from firesteel.core.process import lead_own_group
from firesteel.runtime.slot import daemon
from firesteel.runtime.slot.deaths import announce_death_to

def manager():
    pid = os.fork()
    if pid == 0:  # a slot
        lead_own_group()
        announce_death_to(sys.argv[1] + "/control")
        ours = subprocess.Popen(["sleep", "100"])
        apart = subprocess.Popen(["sleep", "100"], start_new_session=True)
        print(ours.pid, apart.pid, flush=True)
        signal.pause()
    if sys.stdin.readline() == "kill the slot\\n":
        os.kill(pid, signal.SIGKILL)
        sys.stdin.readline()
    sys.exit(0)

pyspark.daemon.manager = manager
daemon.serve()
"""


@pytest.mark.parametrize("killed", [True, False], ids=["the slot is killed", "the executor is gone"])
def test_sparks_daemon_ends_what_slots_have_started(killed: bool, tmp_path: Path) -> None:
    """There may be no TaskManager any more that could: it may have been killed."""
    command = [sys.executable, "-c", DAEMON, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as daemon:
        assert daemon.stdin is not None
        assert daemon.stdout is not None
        ours, apart = (identify(int(pid)) for pid in daemon.stdout.readline().split())
        assert ours is not None
        assert apart is not None
        try:
            if killed:
                daemon.stdin.write("kill the slot\n")
                daemon.stdin.flush()
                assert wait_gone([ours], 30) == [], "in the process group of the slot"
                assert is_running(apart), "nobody knows any more whose it was"
            daemon.stdin.close()
            assert daemon.wait(30) == 0
            assert wait_gone([ours, *([] if killed else [apart])], 30) == []
        finally:
            kill(apart)
