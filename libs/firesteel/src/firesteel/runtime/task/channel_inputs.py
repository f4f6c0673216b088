"""The input of a task that reads channels: all of them in turn, until all have ended."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

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
    Watermark,
)
from firesteel.runtime.task.channel_watermarks import ChannelWatermarks
from firesteel.runtime.task.parts import TaskInput

_STAYING = (PartitionerKind.BROADCAST, PartitionerKind.CUSTOM)
"""Records in flight on these edges can't be dealt out to another number of subtasks."""


class ChannelInputs(TaskInput):
    """Round-robin over channels: one batch of each in turn, so that none waits behind another.

    Args:
        channels: each with the index of the operator's input that it feeds.
        on_readable: called on the loop when ``poll`` may give something again.
        name: of the task, for the log.
        clock: injected.
        partitioners: of the edges, by their index; of those that are not named, records in flight stay with their
            subtask.
        must_align: barriers wait for what is in front of them, whatever they say.
        senders: names of the vertices that send over the edges, by their index; for the log.

    Attributes:
        watermarks: of the channels.
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
        self._rescalable = not any(source.partitioner in _STAYING for source in self._sources)
        self._replay: deque[Replayed] = deque()
        self._log: InFlightLog | None = None
        self._last = InFlightSource(0, PartitionerKind.FORWARD)  # of the last batch
        self.barriers_came: set[int] = set()
        self._known = 0  # the last checkpoint whose barrier may overtake
        self.watermarks = ChannelWatermarks([(channel.id, index) for channel, index in channels], name, clock, senders)
        self._aligner = BarrierAligner(len(self._channels), clock)
        self._found: deque[InBand] = deque()
        self._on_readable = on_readable
        for number, (channel, _) in enumerate(self._channels):
            channel.on_readable = on_readable
            channel.on_barrier = partial(self._barrier_came, number)

    at_position = True

    @property
    def bytes_in(self) -> int:
        """Bytes received, running total."""
        return sum(channel.bytes_in for channel in self.channels)

    def open(self) -> None: ...

    def input_watermarks(self, current: int) -> dict[str, int]:
        """Also of each input, if there are several."""
        found = super().input_watermarks(current)
        inputs = sorted({index for _, index in self._channels})
        if len(inputs) > 1:
            found |= {f"currentInput{index + 1}Watermark": self.watermarks.input_watermark(index) for index in inputs}
        return found

    def watermark_origin(self) -> str:
        """Where the watermark comes from that the slowest channel has brought."""
        return self.watermarks.origin()

    def poll(self) -> InputBatch | InBand | None:
        """The next batch or element; ``END_OF_INPUT`` when all channels have ended; None: nothing now.

        Of barriers it gives ``Arrived`` when they have come over all channels, and ``CancelBarrier`` when they won't.
        """
        if self._found:
            return self._found.popleft()
        while self._replay:
            replayed = self._replay.popleft()
            self._last = replayed.source
            if own := replayed.own():
                return InputBatch(own, self._last.input_index)
        aligner = self._aligner
        left = len(self._open)
        while left > 0:
            if self._next >= len(self._open):
                self._next = 0
            number, channel, index = self._open[self._next]
            if number in aligner.blocked:
                self._next += 1
                left -= 1
                continue
            got = channel.poll()
            if got is None:
                self._next += 1
                left -= 1
            elif isinstance(got, Batch):
                self._next += 1
                self._last = self._sources[number]
                if aligner.aligning:
                    aligner.processed(got.bytes_estimate)
                    self._log_batches(number, [got])
                return InputBatch(got, index)
            elif isinstance(got, EndOfInput):
                del self._open[self._next]
                left -= 1
                self._found.extend(aligner.ended(number))
            elif isinstance(got, Watermark):
                passed_on = self.watermarks.update(number, got)
                if passed_on is not None:
                    return passed_on
            elif isinstance(got, Barrier):
                self._found.extend(aligner.barrier(number, got))
                self._expect(got)
                self.barriers_came.add(number)  # it may have hidden another one
            elif isinstance(got, CancelBarrier):
                self._found.extend(aligner.cancelled(number, got.checkpoint_id))
            else:
                raise TypeError(f"{channel.id}: in-band element {got!r} is not known here")  # our own bug
            self._end_log()
            if self._found:
                return self._found.popleft()
        return None if self._open else END_OF_INPUT

    def abort_checkpoint(self, checkpoint_id: int) -> bool:
        """The coordinator gave a checkpoint up; returns whether its barrier was waited for."""
        waited = self._aligner.abort(checkpoint_id)
        if self.overtaking is not None and self.overtaking.checkpoint_id == checkpoint_id:
            self.overtaking = None
        self._end_log()
        self._look_again()
        return waited

    # -- barriers that overtake

    @override
    def triggered(self, barrier: Barrier) -> None:
        self._expect(barrier)

    @override
    def overtake(self) -> Arrived | None:
        barrier, self.overtaking = self.overtaking, None
        if barrier is None:
            return None
        self._found.extend(self._aligner.give_up_below(barrier.checkpoint_id))
        return self._aligner.begin(barrier)

    @override
    def log_in_flight(self, log: InFlightLog, rest: Iterable[InputBatch]) -> None:
        for batch, _ in rest:
            log.write(self._last, batch)
        for replayed in self._replay:
            log.write(replayed.source, replayed.own())
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
        """Into the queue of a channel, or the end has. Who calls is in the middle of something: a step looks at it."""
        self.barriers_came.add(number)
        self._on_readable()

    def _look_again(self) -> None:
        """What was waited for is no longer the same: a barrier that was passed over may be the next now."""
        self.barriers_came.update(number for number, _, _ in self._open)
        self._on_readable()

    def _look_at(self, number: int) -> None:
        """Log what is in front of the barrier in the queue of a channel, or expect to overtake with it."""
        aligner, channel = self._aligner, self._channels[number][0]
        while (element := channel.barrier_ahead()) is not None:
            log = self._log
            logs = log is not None and not aligner.has_arrived(number, log.checkpoint_id)
            if isinstance(element, EndOfInput):
                if log is not None and logs:
                    self._log_batches(number, channel.overtaken(element))
                    self._found.extend(aligner.end_ahead(number, log.checkpoint_id))
                return
            checkpoint_id = element.checkpoint_id
            if log is not None and logs:
                if checkpoint_id == log.checkpoint_id:
                    self._log_batches(number, channel.overtaken(element))
                    self._found.extend(aligner.barrier(number, element))
                    return
                checkpoint_id = max(checkpoint_id, log.checkpoint_id)
            # Barriers grow along a channel: those with lower numbers that it has not delivered will not come.
            self._found.extend(aligner.skipped(number, checkpoint_id))
            self._end_log()
            checkpoint_id = element.checkpoint_id
            if aligner.is_over(checkpoint_id) or (self._log is not None and checkpoint_id < self._log.checkpoint_id):
                channel.discard(element)  # nobody waits for it, and it would hide the next one
                continue
            self._expect(element)
            return

    def _expect(self, barrier: Barrier) -> None:
        """Overtake with a barrier that has come, as soon as it may."""
        if self._must_align:
            return
        if barrier.options.get("rescalable") and not self._rescalable:
            return  # it waits for what is in front of it: the job must be able to change its parallelism
        if barrier.overtakes_at < float("inf") and barrier.checkpoint_id > self._known:
            self._known = barrier.checkpoint_id
            self._may_overtake(barrier)

    def _may_overtake(self, barrier: Barrier) -> None:
        left = barrier.overtakes_at - self._clock.epoch_ms()
        if self._aligner.is_over(barrier.checkpoint_id):
            return
        if left > 0:
            self.call_later(left / 1000, partial(self._may_overtake, barrier))
        else:
            self.overtaking = barrier
            self._on_readable()

    def _log_batches(self, number: int, batches: Iterable[Batch]) -> None:
        log = self._log
        if log is not None and not self._aligner.has_arrived(number, log.checkpoint_id):
            for batch in batches:
                log.write(self._sources[number], batch)

    def _end_log(self) -> None:
        """If the barrier has come over all channels, or won't."""
        if self._log is not None and not (self._log.open and self._aligner.is_begun(self._log.checkpoint_id)):
            log, self._log = self._log, None
            log.end()
            self._look_again()

    def close(self) -> None:
        for channel, _ in self._channels:
            channel.close()
