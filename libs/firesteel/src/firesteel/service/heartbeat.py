"""Finds peers that were silent for too long. Pure: the owner calls ``tick``, and reports signs of life."""

from __future__ import annotations

from dataclasses import dataclass

from firesteel.core.clock import Clock

DEFAULT_TIMEOUT = 50.0
DEFAULT_FAILURES = 2
"""Flink's ``heartbeat.timeout`` in seconds, and ``heartbeat.rpc-failure-threshold``."""
CHECK_PAUSE = 1.5
"""Seconds after which a peer whose port is closed is asked again, since the next round of heartbeats may be far off."""
REGISTERS_AGAIN = 2.5
"""Heartbeat intervals without a heartbeat after which a TaskManager registers again. That costs nothing if all is well,
and a ResourceManager that was started anew need not wait for the heartbeat timeout to know its TaskManagers."""


def is_silence(error: BaseException) -> bool:
    """Whether a peer did not answer in time: it may be frozen, or cut off, for a while. A refused connection is not.

    Only the timeout of heartbeats judges silence; it is no failed call.
    """
    return isinstance(error, TimeoutError) or isinstance(error.__cause__, TimeoutError)


def is_refused(error: BaseException) -> bool:
    """Whether the peer's host answered that nobody listens at the port: the process is gone.

    A host that can't be reached is no such answer: it may be back in a moment.
    """
    return isinstance(getattr(error.__cause__, "os_error", error.__cause__), ConnectionRefusedError)


@dataclass
class _Peer:
    deadline: float
    failures: int = 0


class HeartbeatMonitor:
    """Keeps a deadline for each peer, on the monotonic clock.

    It tolerates stalls of its own process. When the process was stopped, or a thread held the interpreter, messages of
    peers wait unread although the peers are alive. A gap between two calls that is longer than two ticks is such a
    stall: all deadlines move by the gap, and calls that failed during it do not count.

    Args:
        clock: only ``monotonic`` is used.
        timeout: seconds without a sign of life after which a peer has expired.
        tick: seconds between two calls of ``tick`` by the owner; by default a quarter of the timeout, at most one.
        failure_threshold: failed calls in a row after which a peer has expired as well; 0 = failed calls do not count.
    """

    def __init__(
        self,
        clock: Clock,
        timeout: float = DEFAULT_TIMEOUT,
        tick: float | None = None,
        failure_threshold: int = DEFAULT_FAILURES,
    ) -> None:
        self.tick_seconds = min(1.0, timeout / 4) if tick is None else tick
        """Seconds between two calls of ``tick``."""
        if timeout <= 0 or self.tick_seconds <= 0:
            raise ValueError("timeout and tick are positive numbers of seconds")
        self._clock, self._timeout, self._threshold = clock, timeout, failure_threshold
        self._peers: dict[str, _Peer] = {}
        self._last = clock.monotonic()
        self._stalled_at = float("-inf")
        self.lost_seconds = 0.0
        """Sum of the stalls so far."""

    def __contains__(self, peer: str) -> bool:
        return peer in self._peers

    def peers(self) -> list[str]:
        """Names of the watched peers."""
        return list(self._peers)

    def watch(self, peer: str) -> None:
        """Begin to watch a peer, or start its time anew."""
        self._peers[peer] = _Peer(self._now() + self._timeout)

    def forget(self, peer: str) -> None:
        """Stop watching a peer; unknown peers are ignored."""
        self._peers.pop(peer, None)

    def heard(self, peer: str) -> None:
        """A peer gave a sign of life; peers that are not watched are ignored."""
        now = self._now()
        entry = self._peers.get(peer)
        if entry is not None:
            entry.deadline, entry.failures = now + self._timeout, 0

    def failed(self, peer: str) -> None:
        """A call to a peer failed; it does not count right after a stall, which may have been the cause."""
        now = self._now()
        entry = self._peers.get(peer)
        if entry is not None and now - self._stalled_at > 2 * self.tick_seconds:
            entry.failures += 1

    def silence(self, peer: str) -> float:
        """Seconds since the last sign of life of a peer that is watched; stalls of this process do not count."""
        return self._now() - (self._peers[peer].deadline - self._timeout)

    def tick(self) -> list[str]:
        """The peers that have expired by now; each is reported once and then forgotten."""
        now = self._now()
        expired = [
            name
            for name, peer in self._peers.items()
            if now >= peer.deadline or (self._threshold and peer.failures >= self._threshold)
        ]
        for name in expired:
            del self._peers[name]
        return expired

    def _now(self) -> float:
        now = self._clock.monotonic()
        gap = now - self._last
        self._last = now
        if gap > 2 * self.tick_seconds:
            self.lost_seconds += gap
            self._stalled_at = now
            for peer in self._peers.values():
                peer.deadline += gap
                peer.failures = 0
        return now
