"""Waits for the barrier of a checkpoint on all channels of a task. Pure: events in, what follows from them out.

Exactly once: a channel that has delivered the barrier is blocked until all have; what it brings meanwhile stays in its
buffers, which credit bounds. At least once: no channel is blocked, several checkpoints may be waited for. A channel
that has come to its end needs no barrier. Barriers grow along a channel: one that delivers a later barrier will not
deliver the earlier one any more, so the earlier checkpoint is given up.

A barrier that overtakes begins its checkpoint with the first channel, and blocks none. It is waited for on the others
all the same: what comes in front of it there belongs to the checkpoint.
"""

from __future__ import annotations

from firesteel.core.clock import Clock
from firesteel.runtime.records.batch import Barrier, CancelBarrier, InBand


class Arrived(InBand):
    """A barrier has come over all channels, or was asked for by the coordinator.

    Attributes:
        barrier: the barrier.
        start_delay_ms: from the trigger until the first channel delivered it.
        alignment_ms: from then until the last one did.
        processed_bytes: taken in between, about.
        overtakes: it has come over one channel at least, and overtaken what is in the others.
    """

    __slots__ = ("alignment_ms", "barrier", "overtakes", "processed_bytes", "start_delay_ms")

    def __init__(
        self,
        barrier: Barrier,
        start_delay_ms: int = 0,
        alignment_ms: int = 0,
        processed_bytes: int = 0,
        *,
        overtakes: bool = False,
    ) -> None:
        self.barrier, self.overtakes = barrier, overtakes
        self.start_delay_ms, self.alignment_ms = start_delay_ms, alignment_ms
        self.processed_bytes = processed_bytes

    def __repr__(self) -> str:
        return f"Arrived({self.barrier.checkpoint_id})"


class _Waiting:
    """A checkpoint whose barrier has come over some channels."""

    __slots__ = ("arrived", "barrier", "began", "begun", "processed", "start_delay_ms")

    def __init__(self, barrier: Barrier, began: float, start_delay_ms: int) -> None:
        self.barrier, self.began, self.start_delay_ms = barrier, began, start_delay_ms
        self.arrived: set[int] = set()
        self.processed = 0
        self.begun = False  # the barrier has overtaken: the checkpoint was begun before it came over all channels


class BarrierAligner:
    """See the module.

    Args:
        channels: how many; they are numbered from 0.
        clock: injected.

    Attributes:
        blocked: channels that must not be read now.
    """

    def __init__(self, channels: int, clock: Clock) -> None:
        self._clock = clock
        self._open = set(range(channels))
        self._waiting: dict[int, _Waiting] = {}
        self._done = 0
        """All checkpoints up to this one are over."""
        self._given_up: set[int] = set()
        """Those above it that are over, too."""
        self.blocked: frozenset[int] = frozenset()

    @property
    def aligning(self) -> bool:
        """Whether a barrier is waited for."""
        return bool(self._waiting)

    def barrier(self, channel: int, barrier: Barrier) -> list[InBand]:
        """A channel delivered a barrier; what the task has to do now: ``Arrived`` and ``CancelBarrier``."""
        checkpoint = barrier.checkpoint_id
        out = self.skipped(channel, checkpoint)
        if not self.is_over(checkpoint):
            self._of(barrier).arrived.add(channel)
            out += self._complete()
        self._block()
        return out

    def begin(self, barrier: Barrier) -> Arrived | None:
        """A barrier overtakes: the checkpoint begins now, and no channel waits for another. None: it has begun."""
        if self.is_over(barrier.checkpoint_id) or (waiting := self._of(barrier)).begun:
            return None
        waiting.begun = True
        self._block()
        return Arrived(barrier, waiting.start_delay_ms, overtakes=True)

    def give_up_below(self, checkpoint_id: int) -> list[InBand]:
        """Give up the checkpoints before this one that are waited for: it begins, and theirs would come behind it."""
        out = [self._give_up(number) for number in sorted(self._waiting) if number < checkpoint_id]
        self._block()
        return out

    def is_begun(self, checkpoint_id: int) -> bool:
        """Whether a checkpoint has begun, and its barrier is still to come over some channels."""
        waiting = self._waiting.get(checkpoint_id)
        return waiting is not None and waiting.begun

    def has_arrived(self, channel: int, checkpoint_id: int) -> bool:
        """Whether a channel has delivered the barrier of a checkpoint that is waited for."""
        waiting = self._waiting.get(checkpoint_id)
        return waiting is not None and channel in waiting.arrived

    def end_ahead(self, channel: int, checkpoint_id: int) -> list[InBand]:
        """All that a channel will bring is known; a begun checkpoint need not wait for it."""
        if checkpoint_id in self._waiting:
            self._waiting[checkpoint_id].arrived.add(channel)
        return self._complete()

    def _of(self, barrier: Barrier) -> _Waiting:
        waiting = self._waiting.get(barrier.checkpoint_id)
        if waiting is None:
            delay = max(0, self._clock.epoch_ms() - barrier.timestamp)
            waiting = self._waiting[barrier.checkpoint_id] = _Waiting(barrier, self._clock.monotonic(), delay)
        return waiting

    def cancelled(self, channel: int, checkpoint_id: int) -> list[InBand]:
        """A channel said that the barrier will not come."""
        out = self.skipped(channel, checkpoint_id)
        if not self.is_over(checkpoint_id):
            out.append(self._give_up(checkpoint_id))
        self._block()
        return out

    def ended(self, channel: int) -> list[InBand]:
        """A channel came to its end."""
        self._open.discard(channel)
        out = self._complete()
        self._block()
        return out

    def abort(self, checkpoint_id: int) -> bool:
        """The coordinator gave the checkpoint up; returns whether its barrier was waited for."""
        waited = checkpoint_id in self._waiting
        if not self.is_over(checkpoint_id):
            self._give_up(checkpoint_id)
            self._block()
        return waited

    def processed(self, size: int) -> None:
        """So many bytes were taken from channels that are not blocked."""
        for waiting in self._waiting.values():
            waiting.processed += size

    def is_over(self, checkpoint_id: int) -> bool:
        """Whether a checkpoint is complete here, or was given up."""
        return checkpoint_id <= self._done or checkpoint_id in self._given_up

    def skipped(self, channel: int, checkpoint_id: int) -> list[InBand]:
        """Give up the checkpoints before this one whose barriers the channel has left out."""
        left_out = [
            number
            for number, waiting in sorted(self._waiting.items())
            if number < checkpoint_id and channel not in waiting.arrived
        ]
        out = [self._give_up(number) for number in left_out]
        self._block()
        return out

    def _give_up(self, checkpoint_id: int) -> InBand:
        self._waiting.pop(checkpoint_id, None)
        self._given_up.add(checkpoint_id)
        return CancelBarrier(checkpoint_id)

    def _complete(self) -> list[InBand]:
        out: list[InBand] = []
        for number in sorted(self._waiting):
            waiting = self._waiting[number]
            if not self._open <= waiting.arrived:
                continue
            del self._waiting[number]
            self._done = max(self._done, number)
            self._given_up = {given_up for given_up in self._given_up if given_up > self._done}
            if waiting.begun:
                continue
            took = int((self._clock.monotonic() - waiting.began) * 1000)
            out.append(Arrived(waiting.barrier, waiting.start_delay_ms, took, waiting.processed))
        return out

    def _block(self) -> None:
        blocked: set[int] = set()
        for waiting in self._waiting.values():
            if waiting.barrier.exactly_once and not waiting.begun:
                blocked |= waiting.arrived
        self.blocked = frozenset(blocked)
