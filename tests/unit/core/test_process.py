"""Signals to processes of others, which may end at any moment."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from firesteel.core import process
from firesteel.core.process import ProcessId
from firesteel.spark.hosted_driver import HostedDriver

OTHER = ProcessId(4_000_001, 7)
"""A pid that Linux never gives."""


class Signals:
    """In place of ``os.kill``: what was sent, or that nobody is there."""

    def __init__(self, is_there: bool) -> None:
        self.is_there, self.sent = is_there, list[tuple[int, int]]()

    def __call__(self, pid: int, number: int) -> None:
        self.sent.append((pid, number))
        if not self.is_there:
            raise ProcessLookupError


@pytest.fixture
def send(monkeypatch: pytest.MonkeyPatch) -> Callable[[bool], Signals]:
    """Signals go to one process, which is found by a look at it, and is there or has just ended."""

    def patched(is_there: bool) -> Signals:
        signals = Signals(is_there)
        monkeypatch.setattr(process, "identify", lambda pid: OTHER if pid == OTHER.pid else None)
        monkeypatch.setattr(os, "kill", signals)
        return signals

    return patched


def test_a_process_is_asked_to_end_and_killed(send: Callable[[bool], Signals]) -> None:
    signals = send(True)
    assert process.ask_to_end(OTHER)
    process.kill(OTHER)
    assert signals.sent == [(OTHER.pid, signal.SIGTERM), (OTHER.pid, signal.SIGKILL)]


def test_a_later_process_with_the_same_pid_gets_no_signal(send: Callable[[bool], Signals]) -> None:
    signals = send(True)
    assert not process.ask_to_end(ProcessId(OTHER.pid, OTHER.start - 1))
    process.kill(ProcessId(OTHER.pid, OTHER.start - 1))
    assert signals.sent == []


def test_a_process_that_ends_between_look_and_signal_is_gone(send: Callable[[bool], Signals]) -> None:
    signals = send(False)
    assert not process.ask_to_end(OTHER)
    process.kill(OTHER)
    assert len(signals.sent) == 2


def test_an_attached_driver_may_end_between_look_and_signal(
    send: Callable[[bool], Signals], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    signals = send(False)
    monkeypatch.setattr(process, "wait_gone", lambda processes, timeout: [])
    monkeypatch.setattr("firesteel.spark.hosted_driver._KILLED_SECONDS", 0.0)
    HostedDriver(OTHER, tmp_path).end(grace=1.0)
    assert signals.sent == [(OTHER.pid, signal.SIGTERM), (OTHER.pid, signal.SIGKILL)]


def test_children_that_have_ended_are_given_once() -> None:
    pids = {}
    for code in (0, 7):
        if (pid := os.fork()) == 0:
            os._exit(code)
        pids[pid] = code
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    ended = {pid: os.waitstatus_to_exitcode(status) for pid, status in process.reap_children()}
    assert {pid: ended[pid] for pid in pids} == pids
    assert not pids.keys() & dict(process.reap_children()).keys()


def test_children_are_looked_at_before_others_can_have_their_pids() -> None:
    pids = {}
    for code in (0, 7):
        if (pid := os.fork()) == 0:
            os._exit(code)
        pids[code] = pid
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    zombies = []

    def look(pid: int) -> None:
        os.kill(pid, 0)  # it is still there
        zombies.append(pid)

    ended = dict(process.reap_children(look))
    assert {pid: os.waitstatus_to_exitcode(ended[pid]) for pid in pids.values()} == {pids[0]: 0, pids[7]: 7}
    assert pids[7] in zombies
    assert pids[0] not in zombies, "it has ended in order"
