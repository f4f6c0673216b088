"""Waits until the barrier of a checkpoint has come over all channels of a task. Pure: events in, consequences out.

Exactly once: a channel that has delivered the barrier is blocked until all have; what comes over it meanwhile stays in
its queue, which credit bounds. At least once: no channel is blocked, and several checkpoints may be aligned at a time.
A channel that has ended needs no barrier. Numbers of barriers grow along a channel: one that delivers a later barrier
will not deliver an earlier one any more, so the earlier checkpoint is given up. As Flink's
``SingleCheckpointBarrierHandler`` and ``CheckpointBarrierTracker``.

A barrier that overtakes begins its checkpoint with the first channel, and blocks none. It still has to come over the
others: records in front of it there belong to the checkpoint.
"""

from __future__ import annotations

from firesteel.core.clock import Clock
from firesteel.runtime.records.batch import Barrier, CancelBarrier, InBand


class Arrived(InBand):
    """A barrier that has come over all channels, or that the coordinator has triggered at a source.

    Attributes:
        barrier: the barrier.
        start_delay_ms: time from the trigger until the first channel delivered it.
        alignment_ms: time from then until the last channel delivered it.
        processed_bytes: estimated bytes processed during the alignment.
        overtakes: whether it overtakes: it has come over at least one channel, and not yet over all.
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


class _Alignment:
    """A checkpoint whose barrier has come over some channels."""

    __slots__ = ("arrived", "barrier", "began", "begun", "processed", "start_delay_ms")

    def __init__(self, barrier: Barrier, began: float, start_delay_ms: int) -> None:
        self.barrier, self.began, self.start_delay_ms = barrier, began, start_delay_ms
        self.arrived: set[int] = set()  # channels that have delivered the barrier
        self.processed = 0
        self.begun = False  # whether the barrier overtakes: the checkpoint began before it came over all channels


class BarrierAligner:
    """Tells from the barriers of all channels when checkpoints begin, and when they have to be given up.

    Methods for events return what the task has to do now: ``Arrived`` to begin a checkpoint, ``CancelBarrier`` to give
    one up.

    Args:
        channels: number of channels; they are numbered from 0.
        clock: measures how long alignments take.

    Attributes:
        blocked: channels that must not be read now.
    """

    def __init__(self, channels: int, clock: Clock) -> None:
        self._clock = clock
        self._open = set(range(channels))
        self._alignments: dict[int, _Alignment] = {}
        self._done = 0
        """All checkpoints up to this one are complete here or given up."""
        self._given_up: set[int] = set()
        """Checkpoints above ``_done`` that are given up."""
        self.blocked: frozenset[int] = frozenset()

    @property
    def aligning(self) -> bool:
        """Whether the barrier of a checkpoint has come over some channels and not over all."""
        return bool(self._alignments)

    def barrier(self, channel: int, barrier: Barrier) -> list[InBand]:
        """Take a barrier that a channel has delivered."""
        checkpoint_id = barrier.checkpoint_id
        consequences = self.skipped(channel, checkpoint_id)
        if not self.is_over(checkpoint_id):
            self._alignment(barrier).arrived.add(channel)
            consequences += self._complete()
        self._block()
        return consequences

    def begin(self, barrier: Barrier) -> Arrived | None:
        """Let a barrier overtake: its checkpoint begins now, and no channel waits for another. None if it has begun."""
        if self.is_over(barrier.checkpoint_id) or (alignment := self._alignment(barrier)).begun:
            return None
        alignment.begun = True
        self._block()
        return Arrived(barrier, alignment.start_delay_ms, overtakes=True)

    def give_up_below(self, checkpoint_id: int) -> list[InBand]:
        """Give up alignments of earlier checkpoints: this one begins, and their barriers would come behind its."""
        consequences = [self._give_up(number) for number in sorted(self._alignments) if number < checkpoint_id]
        self._block()
        return consequences

    def is_begun(self, checkpoint_id: int) -> bool:
        """Whether a checkpoint has begun by overtaking, and its barrier has still to come over some channels."""
        alignment = self._alignments.get(checkpoint_id)
        return alignment is not None and alignment.begun

    def has_arrived(self, channel: int, checkpoint_id: int) -> bool:
        """Whether a channel has delivered the barrier of a checkpoint that is being aligned."""
        alignment = self._alignments.get(checkpoint_id)
        return alignment is not None and channel in alignment.arrived

    def end_ahead(self, channel: int, checkpoint_id: int) -> list[InBand]:
        """Note that the end of a channel is in its queue, so that a begun checkpoint needs no barrier of it."""
        if checkpoint_id in self._alignments:
            self._alignments[checkpoint_id].arrived.add(channel)
        return self._complete()

    def _alignment(self, barrier: Barrier) -> _Alignment:
        alignment = self._alignments.get(barrier.checkpoint_id)
        if alignment is None:
            delay = max(0, self._clock.epoch_ms() - barrier.timestamp)
            alignment = self._alignments[barrier.checkpoint_id] = _Alignment(barrier, self._clock.monotonic(), delay)
        return alignment

    def cancelled(self, channel: int, checkpoint_id: int) -> list[InBand]:
        """Take the news of a channel that the barrier of a checkpoint will not come."""
        consequences = self.skipped(channel, checkpoint_id)
        if not self.is_over(checkpoint_id):
            consequences.append(self._give_up(checkpoint_id))
        self._block()
        return consequences

    def ended(self, channel: int) -> list[InBand]:
        """Take the end of a channel, which needs no barriers from now on."""
        self._open.discard(channel)
        consequences = self._complete()
        self._block()
        return consequences

    def abort(self, checkpoint_id: int) -> bool:
        """Give up a checkpoint that the coordinator has aborted; returns whether it was being aligned."""
        was_aligning = checkpoint_id in self._alignments
        if not self.is_over(checkpoint_id):
            self._give_up(checkpoint_id)
            self._block()
        return was_aligning

    def processed(self, size: int) -> None:
        """Count bytes that were taken from channels during alignments, for the statistics of checkpoints."""
        for alignment in self._alignments.values():
            alignment.processed += size

    def is_over(self, checkpoint_id: int) -> bool:
        """Whether a checkpoint is complete here, or was given up."""
        return checkpoint_id <= self._done or checkpoint_id in self._given_up

    def skipped(self, channel: int, checkpoint_id: int) -> list[InBand]:
        """Give up earlier checkpoints whose barriers a channel has not delivered before this one's."""
        skipped = [
            number
            for number, alignment in sorted(self._alignments.items())
            if number < checkpoint_id and channel not in alignment.arrived
        ]
        consequences = [self._give_up(number) for number in skipped]
        self._block()
        return consequences

    def _give_up(self, checkpoint_id: int) -> InBand:
        self._alignments.pop(checkpoint_id, None)
        self._given_up.add(checkpoint_id)
        return CancelBarrier(checkpoint_id)

    def _complete(self) -> list[InBand]:
        """End the alignments whose barriers have come over all channels that have not ended."""
        arrived: list[InBand] = []
        for number in sorted(self._alignments):
            alignment = self._alignments[number]
            if not self._open <= alignment.arrived:
                continue
            del self._alignments[number]
            self._done = max(self._done, number)
            self._given_up = {given_up for given_up in self._given_up if given_up > self._done}
            if alignment.begun:  # by overtaking: the task has begun this checkpoint already
                continue
            alignment_ms = int((self._clock.monotonic() - alignment.began) * 1000)
            arrived.append(Arrived(alignment.barrier, alignment.start_delay_ms, alignment_ms, alignment.processed))
        return arrived

    def _block(self) -> None:
        """Recompute which channels are blocked: those that are ahead of others in an exactly-once alignment."""
        blocked: set[int] = set()
        for alignment in self._alignments.values():
            if alignment.barrier.exactly_once and not alignment.begun:
                blocked |= alignment.arrived
        self.blocked = frozenset(blocked)
