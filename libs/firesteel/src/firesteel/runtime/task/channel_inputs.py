"""The input of a task that reads channels: all of them in turn, until all have ended."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from firesteel.core.clock import Clock, SystemClock
from firesteel.runtime.batch import END_OF_INPUT, Barrier, Batch, CancelBarrier, EndOfInput, InBand, Watermark
from firesteel.runtime.checkpoints.aligner import BarrierAligner
from firesteel.runtime.exchange.channels import InputChannel
from firesteel.runtime.task.parts import InputBatch, TaskInput
from firesteel.runtime.time.channel_watermarks import ChannelWatermarks


class ChannelInputs(TaskInput):
    """Round-robin over channels: one batch of each in turn, so that none waits behind another.

    Args:
        channels: each with the index of the operator's input that it feeds.
        on_readable: called on the loop when ``poll`` may give something again.
        name: of the task, for the log.
        clock: injected.

    Attributes:
        watermarks: of the channels.
    """

    def __init__(
        self,
        channels: Sequence[tuple[InputChannel, int]],
        on_readable: Callable[[], None],
        name: str = "",
        clock: Clock | None = None,
    ) -> None:
        self._channels = list(channels)
        self._open = [(number, channel, index) for number, (channel, index) in enumerate(channels)]
        self._next = 0
        clock = clock or SystemClock()
        self.watermarks = ChannelWatermarks([(channel.id, index) for channel, index in channels], name, clock)
        self._aligner = BarrierAligner(len(self._channels), clock)
        self._found: deque[InBand] = deque()
        for channel, _ in self._channels:
            channel.on_readable = on_readable

    at_position = True

    @property
    def bytes_in(self) -> int:
        """Bytes received, running total."""
        return sum(channel.bytes_in for channel, _ in self._channels)

    def open(self) -> None:
        """Nothing to do."""

    def input_watermarks(self, current: int) -> dict[str, int]:
        """Also of each input, if there are several."""
        found = super().input_watermarks(current)
        inputs = sorted({index for _, index in self._channels})
        if len(inputs) > 1:
            found |= {f"currentInput{index + 1}Watermark": self.watermarks.input_watermark(index) for index in inputs}
        return found

    def poll(self) -> InputBatch | InBand | None:
        """The next batch or element; ``END_OF_INPUT`` when all channels have ended; None: nothing now.

        Of barriers it gives ``Arrived`` when they have come over all channels, and ``CancelBarrier`` when they won't.
        """
        if self._found:
            return self._found.popleft()
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
                if aligner.aligning:
                    aligner.processed(got.bytes_estimate)
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
            elif isinstance(got, CancelBarrier):
                self._found.extend(aligner.cancelled(number, got.checkpoint_id))
            else:
                raise TypeError(f"{channel.id}: in-band element {got!r} is not known here")  # our own bug
            if self._found:
                return self._found.popleft()
        return None if self._open else END_OF_INPUT

    def abort_checkpoint(self, checkpoint_id: int) -> bool:
        """The coordinator gave a checkpoint up; returns whether its barrier was waited for."""
        return self._aligner.abort(checkpoint_id)

    def close(self) -> None:
        """Close the channels."""
        for channel, _ in self._channels:
            channel.close()
