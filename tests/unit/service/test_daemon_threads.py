"""Threads that may hang without anybody waiting for them."""

from __future__ import annotations

import threading

import pytest

from firesteel.service.daemon_threads import DaemonThread


def test_calls_are_done_one_after_the_other() -> None:
    one, go_on, order = DaemonThread("store"), threading.Event(), list[int]()

    def wait() -> None:
        assert go_on.wait(20)
        order.append(1)

    first = one.submit(wait)
    second = one.submit(order.append, 2)
    third = one.submit(order.append, 3)
    assert third.cancel()
    go_on.set()
    first.result(20)
    second.result(20)
    assert order == [1, 2]
    with pytest.raises(ZeroDivisionError):
        one.submit(lambda: 1 // 0).result(20)
    one.shutdown()
    assert [thread for thread in threading.enumerate() if thread.name == "store"] == []
    with pytest.raises(RuntimeError, match="takes no more calls"):
        one.submit(order.append, 4)


def test_nobody_waits_for_a_call_that_hangs() -> None:
    one, go_on, entered = DaemonThread("store"), threading.Event(), threading.Event()

    def hang() -> None:
        entered.set()
        assert go_on.wait(20)

    hung = one.submit(hang)
    assert entered.wait(20)
    one.shutdown(wait=False)
    assert not hung.done()
    assert [thread.daemon for thread in threading.enumerate() if thread.name == "store"] == [True]
    go_on.set()
    hung.result(20)
