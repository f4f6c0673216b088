"""The input of a task that reads channels: all of them in turn, until all have ended.

It combines the watermarks of the channels (``channel_watermarks``) and aligns their barriers
(``checkpoints.aligner``). The second half is about barriers that overtake.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from typing_extensions import override

from firesteel.core.clock import Clock, SystemClock
from firesteel.graph.specs import PartitionerKind
from firesteel.runtime.checkpoints.aligner import Arrived, BarrierAligner
from firesteel.runtime.checkpoints.in_flight import InFlightLog, InFlightSource, Replayed
from firesteel.runtime.exchange.channels import InputChannel
from firesteel.runtime.records.batch import (
    END_OF_INPUT,
    Barrier,
    Batch,
    CancelBarrier,
    EndOfInput,
    InBand,
    InputBatch,
    LatencyMarker,
    Watermark,
)
from firesteel.runtime.task.channel_watermarks import ChannelWatermarks
from firesteel.runtime.task.parts import TaskInput

_NOT_RESCALABLE = (PartitionerKind.BROADCAST, PartitionerKind.CUSTOM)
"""Records in flight on these edges can't be redistributed to another number of subtasks."""


class ChannelInputs(TaskInput):
    """Reads channels round-robin: one batch of each in turn, so that none waits behind another.

    Args:
        channels: the channels, each with the index of the operator's input that it feeds.
        on_readable: called on the loop when ``poll`` may return something again.
        name: name of the task, for the log.
        clock: measures alignment and idleness.
        partitioners: partitioners of the edges, by index of the edge; records in flight on edges that are not named
            stay with their subtask.
        senders: names of the vertices that send over the edges, by index of the edge; for the log.
        must_align: whether barriers wait for the records in front of them, even if they might overtake.

    Attributes:
        watermarks: combines the watermarks of the channels.
    """

    def __init__(
        self,
        channels: Sequence[tuple[InputChannel, int]],
        on_readable: Callable[[], None],
        name: str = "",
        clock: Clock | None = None,
        partitioners: Mapping[int, PartitionerKind] | None = None,
        senders: Mapping[int, str] | None = None,
        *,
        must_align: bool = False,
    ) -> None:
        self._channels = list(channels)
        self.channels = [channel for channel, _ in channels]
        self._open = [(number, channel, index) for number, (channel, index) in enumerate(channels)]
        self._next = 0
        self._clock = clock = clock or SystemClock()
        kinds = partitioners or {}
        self._sources = [
            InFlightSource(index, kinds.get(channel.id.edge, PartitionerKind.FORWARD)) for channel, index in channels
        ]
        self._must_align = must_align
        self._rescalable = not any(source.partitioner in _NOT_RESCALABLE for source in self._sources)
        self._replay: deque[Replayed] = deque()
        self._log: InFlightLog | None = None
        self._last_source = InFlightSource(0, PartitionerKind.FORWARD)  # where the last batch came from
        self.barriers_came: set[int] = set()
        self._last_overtaker = 0  # the highest checkpoint whose barrier may overtake
        self.watermarks = ChannelWatermarks([(channel.id, index) for channel, index in channels], name, clock, senders)
        self._aligner = BarrierAligner(len(self._channels), clock)
        self._alignment_events: deque[InBand] = deque()  # ``Arrived`` and ``CancelBarrier`` to return from ``poll``
        self._on_readable = on_readable
        for number, (channel, _) in enumerate(self._channels):
            channel.on_readable = on_readable
            channel.on_barrier = partial(self._barrier_came, number)

    at_position = True

    @property
    @override
    def bytes_in(self) -> int:
        return sum(channel.bytes_in for channel in self.channels)

    def open(self) -> None: ...

    @override
    def input_watermarks(self, current: int) -> dict[str, int]:
        gauges = super().input_watermarks(current)
        inputs = sorted({index for _, index in self._channels})
        if len(inputs) > 1:
            gauges |= {f"currentInput{index + 1}Watermark": self.watermarks.input_watermark(index) for index in inputs}
        return gauges

    @override
    def watermark_progress(self) -> list[dict[str, Any]]:
        return self.watermarks.progress()

    @override
    def watermark_origin(self) -> str:
        return self.watermarks.origin()

    def poll(self) -> InputBatch | InBand | None:
        """Take the next batch or element; ``END_OF_INPUT`` when all channels have ended; None if there is nothing now.

        In place of barriers it returns ``Arrived`` when one has come over all channels, and ``CancelBarrier`` when one
        will not come.
        """
        if self._alignment_events:
            return self._alignment_events.popleft()
        while self._replay:
            replayed = self._replay.popleft()
            self._last_source = replayed.source
            if batch := replayed.own_records():
                return InputBatch(batch, self._last_source.input_index)
        aligner = self._aligner
        channels_to_try = len(self._open)
        while channels_to_try > 0:
            if self._next >= len(self._open):
                self._next = 0
            number, channel, index = self._open[self._next]
            if number in aligner.blocked:
                self._next += 1
                channels_to_try -= 1
                continue
            item = channel.poll()
            if item is None:
                self._next += 1
                channels_to_try -= 1
            elif isinstance(item, Batch):
                self._next += 1
                self._last_source = self._sources[number]
                if aligner.aligning:
                    aligner.processed(item.bytes_estimate)
                    self._log_batches(number, [item])
                return InputBatch(item, index)
            elif isinstance(item, EndOfInput):
                del self._open[self._next]
                channels_to_try -= 1
                self._alignment_events.extend(aligner.ended(number))
            elif isinstance(item, Watermark):
                combined = self.watermarks.update(number, item)
                if combined is not None:
                    return combined
            elif isinstance(item, LatencyMarker):
                return item
            elif isinstance(item, Barrier):
                self._alignment_events.extend(aligner.barrier(number, item))
                self._expect(item)
                self.barriers_came.add(number)  # a further barrier may have been hidden behind this one
            elif isinstance(item, CancelBarrier):
                self._alignment_events.extend(aligner.cancelled(number, item.checkpoint_id))
            else:
                raise TypeError(f"{channel.id}: in-band element {item!r} is not known here")  # our own bug
            self._end_log()
            if self._alignment_events:
                return self._alignment_events.popleft()
        return None if self._open else END_OF_INPUT

    def abort_checkpoint(self, checkpoint_id: int) -> bool:
        """Give up a checkpoint that the coordinator has aborted; returns whether its barrier had come somewhere."""
        was_aligning = self._aligner.abort(checkpoint_id)
        if self.overtaking is not None and self.overtaking.checkpoint_id == checkpoint_id:
            self.overtaking = None
        self._end_log()
        self._look_again()
        return was_aligning

    # -- barriers that overtake

    @override
    def triggered(self, barrier: Barrier) -> None:
        self._expect(barrier)

    @override
    def overtake(self) -> Arrived | None:
        barrier, self.overtaking = self.overtaking, None
        if barrier is None:
            return None
        self._alignment_events.extend(self._aligner.give_up_below(barrier.checkpoint_id))
        return self._aligner.begin(barrier)

    @override
    def log_in_flight(self, log: InFlightLog, rest: Iterable[InputBatch]) -> None:
        for batch, _ in rest:
            log.write(self._last_source, batch)
        # Batches that were in flight at the former checkpoint and were not replayed yet are in flight still.
        for replayed in self._replay:
            log.write(replayed.source, replayed.own_records())
        self._log = log
        self._look_again()
        self.look_ahead()

    @override
    def look_ahead(self) -> None:
        numbers, self.barriers_came = self.barriers_came, set()
        for number in sorted(numbers):
            self._look_at(number)
        self._end_log()

    @override
    def replay(self, batches: Iterable[Replayed]) -> None:
        self._replay.extend(batches)

    def _barrier_came(self, number: int) -> None:
        """Note that a barrier, or the end, has come into the queue of a channel.

        The caller is in the middle of carrying the channel, so the queue is looked at in the next step of the task.
        """
        self.barriers_came.add(number)
        self._on_readable()

    def _look_again(self) -> None:
        """Look at all queues in the next step: a checkpoint is over, so a barrier that was passed over may be next."""
        self.barriers_came.update(number for number, _, _ in self._open)
        self._on_readable()

    def _look_at(self, number: int) -> None:
        """Look at the first barrier, or the end, in the queue of a channel.

        If a checkpoint is being logged and this channel has not delivered its barrier, everything in front of the
        element is in flight and is logged. A barrier of a later checkpoint is noted, in order to overtake with it; one
        of a checkpoint that is over is removed, because it would hide the next one.
        """
        aligner, channel = self._aligner, self._channels[number][0]
        while (element := channel.barrier_ahead()) is not None:
            log = self._log
            logs = log is not None and not aligner.has_arrived(number, log.checkpoint_id)
            if isinstance(element, EndOfInput):
                if log is not None and logs:
                    self._log_batches(number, channel.overtaken(element))
                    self._alignment_events.extend(aligner.end_ahead(number, log.checkpoint_id))
                return
            checkpoint_id = element.checkpoint_id
            if log is not None and logs:
                if checkpoint_id == log.checkpoint_id:
                    self._log_batches(number, channel.overtaken(element))
                    self._alignment_events.extend(aligner.barrier(number, element))
                    return
                checkpoint_id = max(checkpoint_id, log.checkpoint_id)
            # Numbers of barriers grow along a channel: lower ones that it has not delivered will not come any more.
            self._alignment_events.extend(aligner.skipped(number, checkpoint_id))
            self._end_log()
            checkpoint_id = element.checkpoint_id
            if aligner.is_over(checkpoint_id) or (self._log is not None and checkpoint_id < self._log.checkpoint_id):
                channel.discard(element)
                continue
            self._expect(element)
            return

    def _expect(self, barrier: Barrier) -> None:
        """Let a barrier overtake as soon as it may, unless records in flight must not become part of its checkpoint."""
        if self._must_align:
            return
        if barrier.options.get("rescalable") and not self._rescalable:
            # The job wants to restore this checkpoint with another parallelism, so the barrier stays in its place.
            return
        if barrier.overtakes_at < float("inf") and barrier.checkpoint_id > self._last_overtaker:
            self._last_overtaker = barrier.checkpoint_id
            self._may_overtake(barrier)

    def _may_overtake(self, barrier: Barrier) -> None:
        """Overtake with a barrier now, or when its time has come (the alignment timeout)."""
        remaining_ms = barrier.overtakes_at - self._clock.epoch_ms()
        if self._aligner.is_over(barrier.checkpoint_id):
            return
        if remaining_ms > 0:
            self.call_later(remaining_ms / 1000, partial(self._may_overtake, barrier))
        else:
            self.overtaking = barrier
            self._on_readable()

    def _log_batches(self, number: int, batches: Iterable[Batch]) -> None:
        log = self._log
        if log is not None and not self._aligner.has_arrived(number, log.checkpoint_id):
            for batch in batches:
                log.write(self._sources[number], batch)

    def _end_log(self) -> None:
        """End the log if its barrier has come over all channels, or will not come."""
        if self._log is not None and not (self._log.open and self._aligner.is_begun(self._log.checkpoint_id)):
            log, self._log = self._log, None
            log.end()
            self._look_again()

    def close(self) -> None:
        for channel, _ in self._channels:
            channel.close()
