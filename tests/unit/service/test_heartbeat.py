from __future__ import annotations

import pytest

from firesteel.core.errors import PeerUnreachableError
from firesteel.service.heartbeat import HeartbeatMonitor, is_refused, is_silence
from firesteel.testing.clock import ManualClock


def run(clock: ManualClock, monitor: HeartbeatMonitor, seconds: float, tick: float = 1.0) -> list[str]:
    expired: list[str] = []
    for _ in range(round(seconds / tick)):
        clock.advance(tick)
        expired += monitor.tick()
    return expired


def test_a_silent_peer_expires_once() -> None:
    clock = ManualClock()
    monitor = HeartbeatMonitor(clock, timeout=50)
    monitor.watch("a")
    assert run(clock, monitor, 49) == []
    assert run(clock, monitor, 1) == ["a"]
    assert run(clock, monitor, 100) == []
    assert "a" not in monitor


def test_a_sign_of_life_starts_the_time_anew() -> None:
    clock = ManualClock()
    monitor = HeartbeatMonitor(clock, timeout=10)
    monitor.watch("a")
    monitor.watch("b")
    expired: list[str] = []
    for _ in range(5):
        expired += run(clock, monitor, 9)
        monitor.heard("a")
    assert expired == ["b"]


@pytest.mark.parametrize("stall", [3, 60, 3600])
def test_a_stall_of_our_own_expires_nobody(stall: float) -> None:
    clock = ManualClock()
    monitor = HeartbeatMonitor(clock, timeout=5)
    monitor.watch("a")
    run(clock, monitor, 4)
    clock.advance(stall)  # stopped process, or a thread that holds the interpreter
    assert monitor.tick() == []
    assert monitor.lost_seconds == stall
    assert run(clock, monitor, 1) == ["a"], "the stall moved the deadline, it did not start it anew"


def test_a_peer_that_is_heard_after_the_stall_lives() -> None:
    clock = ManualClock()
    monitor = HeartbeatMonitor(clock, timeout=5)
    monitor.watch("a")
    clock.advance(600)
    monitor.heard("a")
    assert run(clock, monitor, 4) == []


def test_a_stall_is_noticed_by_whatever_is_called_first() -> None:
    clock = ManualClock()
    monitor = HeartbeatMonitor(clock, timeout=5)
    monitor.watch("old")
    clock.advance(600)
    monitor.watch("new")
    assert monitor.tick() == []
    assert monitor.lost_seconds == 600


def test_a_failure_threshold() -> None:
    clock = ManualClock()
    monitor = HeartbeatMonitor(clock, timeout=50, failure_threshold=2)
    monitor.watch("a")
    run(clock, monitor, 5)
    monitor.failed("a")
    monitor.heard("a")
    monitor.failed("a")
    assert monitor.tick() == []
    monitor.failed("a")
    assert monitor.tick() == ["a"]


def test_calls_that_failed_in_a_stall_do_not_count() -> None:
    clock = ManualClock()
    monitor = HeartbeatMonitor(clock, timeout=50, failure_threshold=2)
    monitor.watch("a")
    run(clock, monitor, 5)
    monitor.failed("a")
    clock.advance(60)
    monitor.failed("a")
    monitor.failed("a")
    assert monitor.tick() == []
    run(clock, monitor, 3)
    monitor.failed("a")
    assert monitor.tick() == []


def test_no_threshold() -> None:
    clock = ManualClock()
    monitor = HeartbeatMonitor(clock, timeout=50, failure_threshold=0)
    monitor.watch("a")
    run(clock, monitor, 5)
    for _ in range(10):
        monitor.failed("a")
    assert monitor.tick() == []


def test_strangers_are_ignored() -> None:
    monitor = HeartbeatMonitor(ManualClock(), timeout=1)
    monitor.heard("x")
    monitor.failed("x")
    monitor.forget("x")
    assert monitor.peers() == []


@pytest.mark.parametrize(("timeout", "tick"), [(50.0, 1.0), (4.0, 1.0), (2.0, 0.5)])
def test_a_short_timeout_is_looked_at_more_often(timeout: float, tick: float) -> None:
    clock = ManualClock()
    monitor = HeartbeatMonitor(clock, timeout)
    assert monitor.tick_seconds == tick
    monitor.watch("a")
    assert run(clock, monitor, timeout - tick, tick) == []
    assert run(clock, monitor, tick, tick) == ["a"]


def test_a_gap_of_three_ticks_is_a_stall_of_our_own_also_with_a_short_timeout() -> None:
    clock = ManualClock()
    monitor = HeartbeatMonitor(clock, timeout=2)
    monitor.watch("a")
    clock.advance(3 * monitor.tick_seconds)
    assert monitor.tick() == []
    assert monitor.lost_seconds == 3 * monitor.tick_seconds
    assert run(clock, monitor, 1.5, monitor.tick_seconds) == []
    assert run(clock, monitor, 0.5, monitor.tick_seconds) == ["a"]


def test_bad_settings() -> None:
    with pytest.raises(ValueError, match="positive"):
        HeartbeatMonitor(ManualClock(), timeout=0)


def test_a_closed_port_is_no_silence_and_no_way_to_the_host_no_closed_port() -> None:
    def of(cause: BaseException) -> Exception:
        error = PeerUnreachableError("TaskManager")
        error.__cause__ = cause
        return error

    class ConnectorError(Exception):  # as aiohttp's
        def __init__(self, error: OSError) -> None:
            self.os_error = error

    refused = of(ConnectorError(ConnectionRefusedError(111, "Connect call failed")))
    assert (is_refused(refused), is_silence(refused)) == (True, False)
    no_way = of(ConnectorError(OSError(113, "No route to host")))
    assert (is_refused(no_way), is_silence(no_way)) == (False, False)
    late = of(TimeoutError())
    assert (is_refused(late), is_silence(late)) == (False, True)
    assert not is_refused(PeerUnreachableError("another one leads"))
