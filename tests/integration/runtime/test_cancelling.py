"""Cancelling whatever user code is doing."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from firesteel.functions.functions import MapFunction
from firesteel.graph.specs import OperatorKind
from tests.integration.runtime.chains import line, numbers, spec, split
from tests.integration.runtime.slot_process import SlotProcess


def run_until_busy(slot: SlotProcess, function: Any) -> str:
    """Deploy a map whose function prints ``busy`` before it gets stuck."""
    (task,) = slot.deploy([line(numbers(0, 0), spec(OperatorKind.MAP, function), spec(OperatorKind.COLLECT))])
    slot.give_splits([split(0, 1000)])
    deadline = time.monotonic() + 50
    while "busy" not in slot.printed():
        assert time.monotonic() < deadline
        slot.pump(1)
    return task


def cancel(slot: SlotProcess, interval_ms: int = 300) -> None:
    """As a TaskManager does."""
    slot.send({"type": "cancel", "execution_ids": None, "interval_ms": interval_ms})


def sleeping(value: int) -> int:
    print("busy")
    time.sleep(1000)
    return value


def reading_a_socket(value: int) -> int:
    ours, theirs = socket.socketpair()
    print("busy")
    with ours, theirs:
        return ours.recv(1)[0]


def swallowing(value: int) -> int:
    while True:
        try:
            print("busy")
            time.sleep(1000)
        except Exception:
            print("swallowed")


def swallowing_everything_once(value: int) -> int:
    try:
        print("busy")
        time.sleep(1000)
    except BaseException:
        print("swallowed")
    time.sleep(1000)
    return value


def computing(value: int) -> int:
    print("busy")
    while True:
        value += 1


@pytest.mark.parametrize("function", [sleeping, reading_a_socket, swallowing, swallowing_everything_once, computing])
def test_stuck_python_code_is_interrupted(slot: SlotProcess, function: Callable[[int], int]) -> None:
    task = run_until_busy(slot, function)
    cancel(slot)
    done = slot.wait_for_state("CANCELED", task)
    assert done["error"] is None
    assert slot.release() == "OUTCOME RETURNED"


def test_release_interrupts_too(slot: SlotProcess) -> None:
    run_until_busy(slot, sleeping)
    assert slot.release() == "OUTCOME RETURNED"


def test_a_loop_in_c_ends_only_with_its_process(slot: SlotProcess, tmp_path: Path) -> None:
    heard, begun = tmp_path / "heard", tmp_path / "begun"

    def looping(value: int) -> int:
        print("busy", flush=True)
        while not heard.exists():  # the control thread forwards the text: sum() below holds the interpreter lock
            time.sleep(0.01)
        begun.touch()
        return sum(range(10**13))

    run_until_busy(slot, looping)
    heard.touch()
    while not begun.exists():
        time.sleep(0.01)
    time.sleep(0.1)  # from touch() into sum()
    cancel(slot)
    with pytest.raises(AssertionError, match="no task_state in time"):
        slot.wait_for_state("CANCELED", seconds=1)
    slot.process.kill()
    assert slot.process.wait(100) == -9


def test_cancel_while_a_function_is_opened(slot: SlotProcess) -> None:
    class Slow(MapFunction[int, int]):
        def open(self, runtime_context: Any) -> None:
            time.sleep(1000)

        def map(self, value: int) -> int:
            return value

    (task,) = slot.deploy([line(numbers(0, 0), spec(OperatorKind.MAP, Slow()), spec(OperatorKind.COLLECT))])
    slot.wait_for_state("INITIALIZING")
    cancel(slot)
    slot.wait_for_state("CANCELED", task)
    assert slot.release() == "OUTCOME RETURNED"


def test_cancel_of_one_task_leaves_the_other_running(slot: SlotProcess) -> None:
    chain = line(numbers(0, 0), spec(OperatorKind.MAP, lambda n: n), spec(OperatorKind.COLLECT))
    first, second = slot.deploy([chain, chain])
    slot.wait_for_state("RUNNING", first)
    slot.send({"type": "cancel", "execution_ids": [first], "interval_ms": 1000})
    slot.wait_for_state("CANCELED", first)
    slot.give_splits([split(0, 3)], second)
    assert slot.collect_all(second) == [0, 1, 2]
    slot.wait_for_state("FINISHED", second)
    assert slot.release() == "OUTCOME RETURNED"


class Waiting(MapFunction[int, int]):
    """Blocks, and says so."""

    blocking = True

    def map(self, value: int) -> int:
        """Sleeps in pieces, since a thread can be interrupted between two of them only."""
        print("busy")
        for _ in range(100_000):
            time.sleep(0.01)
        return value


def test_a_blocking_function_has_its_own_thread_and_is_interrupted(slot: SlotProcess) -> None:
    quick = line(numbers(0, 0), spec(OperatorKind.MAP, lambda n: n + 1), spec(OperatorKind.COLLECT))
    slow = line(numbers(0, 0), spec(OperatorKind.MAP, Waiting()), spec(OperatorKind.COLLECT))
    blocked, other = slot.deploy([slow, quick])
    slot.give_splits([split(0, 10)], blocked)
    while "busy" not in slot.printed():
        slot.pump(1)
    slot.give_splits([split(0, 3)], other)
    assert slot.collect_all(other) == [1, 2, 3]
    slot.wait_for_state("FINISHED", other)
    cancel(slot)
    slot.wait_for_state("CANCELED", blocked)
    assert slot.release() == "OUTCOME RETURNED"
