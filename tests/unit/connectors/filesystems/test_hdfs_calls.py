"""Threads on which HDFS is called: their number is bounded, and they are used again."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from firesteel_hdfs import client
from firesteel_hdfs.client import _CallThreads


def idle(threads: _CallThreads) -> None:
    """Wait until the only thread can take another call, which is shortly after the one before has its result."""
    while not threads._idle:
        pass


def test_calls_run_one_after_another_on_one_thread_and_raise_where_they_are_waited_for() -> None:
    threads = _CallThreads()
    threads.run(lambda call: None, 60)
    for _ in range(3):
        idle(threads)
        threads.run(lambda call: None, 60)
    assert threads._count == 1
    with pytest.raises(KeyError):
        threads.run(lambda call: dict[str, int]()["x"], 60)


def test_threads_that_could_not_be_started_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "_MOST_THREADS", 1)
    threads = _CallThreads()

    def refuse(thread: Any) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        for _ in range(2):
            with pytest.raises(RuntimeError, match="can't start"):
                threads.run(lambda call: 1, 60)
    assert threads.run(lambda call: 1, 60) == 1


def test_calls_that_hang_are_given_up_and_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "_MOST_THREADS", 1)
    threads, over, steps = _CallThreads(), threading.Event(), []

    def hang(call: client._Call) -> None:
        over.wait()
        steps.append("first")
        call.go_on()
        steps.append("second")

    with pytest.raises(TimeoutError):
        threads.run(hang, 0)
    with pytest.raises(TimeoutError):
        threads.run(lambda call: 1, 60)
    over.set()
    idle(threads)
    assert steps == ["first"], "nobody waits for the second step any more"
    assert threads.run(lambda call: 1, 60) == 1
