"""The input of a task that reads channels: all of them in turn, until all have ended."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from firesteel.runtime.batch import END_OF_INPUT, EndOfInput
from firesteel.runtime.exchange.channels import InputChannel
from firesteel.runtime.rows import to_records
from firesteel.runtime.source_input import Fed


class ChannelInputs:
    """Round-robin over channels: one batch of each in turn, so that none waits behind another.

    Args:
        channels: each with the index of the operator's input that it feeds.
        on_readable: called on the loop when ``poll`` may give something again.
    """

    def __init__(self, channels: Sequence[tuple[InputChannel, int]], on_readable: Callable[[], None]) -> None:
        self._channels = list(channels)
        self._open = list(channels)
        self._next = 0
        for channel, _ in self._channels:
            channel.on_readable = on_readable

    blocking = False

    @property
    def bytes_in(self) -> int:
        """Bytes received, running total."""
        return sum(channel.bytes_in for channel, _ in self._channels)

    def open(self) -> None:
        """Nothing to do."""

    def poll(self) -> Fed | EndOfInput | None:
        """The next batch; ``END_OF_INPUT`` when all channels have ended; None: nothing now."""
        left = len(self._open)
        while left > 0:
            if self._next >= len(self._open):
                self._next = 0
            channel, index = self._open[self._next]
            got = channel.poll()
            if got is None:
                self._next += 1
                left -= 1
            elif isinstance(got, EndOfInput):
                del self._open[self._next]
                left -= 1
            else:
                self._next += 1
                return Fed(to_records(got.values, None), got.timestamps, index)
        return None if self._open else END_OF_INPUT

    def close(self) -> None:
        """Close the channels."""
        for channel, _ in self._channels:
            channel.close()
