"""The one thread through which the JVM is called."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from firesteel.spark.own_thread import OwnThread


@pytest.fixture
def own() -> Iterator[OwnThread]:
    own_thread = OwnThread("test-own")
    yield own_thread
    own_thread.stop(5.0)


def test_all_calls_run_on_one_thread_that_is_not_ours(own: OwnThread) -> None:
    threads = {own.call(threading.current_thread) for _ in range(3)}
    assert len(threads) == 1
    assert threading.current_thread() not in threads


def test_a_call_from_within_runs_at_once(own: OwnThread) -> None:
    assert own.call(lambda: own.call(lambda: 7)) == 7


def test_what_it_raises_is_raised_here(own: OwnThread) -> None:
    with pytest.raises(KeyError):
        own.call(lambda: dict[str, int]()["missing"])
    assert own.call(lambda: 1) == 1


def test_a_call_that_hangs_can_be_given_up_and_the_next_still_runs(own: OwnThread) -> None:
    gate = threading.Event()
    with pytest.raises(TimeoutError):
        own.call(gate.wait, timeout=0.01)
    gate.set()
    assert own.call(lambda: "next") == "next"


def test_after_its_end_calls_are_refused_rather_than_left_waiting(own: OwnThread) -> None:
    own.stop(5.0)
    with pytest.raises(RuntimeError, match="stopped"):
        own.call(lambda: None)
