"""The watermark of a task that reads channels: the minimum over the channels of each input, then over the inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from firesteel.core.clock import Clock
from firesteel.runtime.exchange.channels import ChannelId
from firesteel.runtime.operator_base.watermarks import CombinedWatermark, HeldBack
from firesteel.runtime.records.batch import MAX_WATERMARK, MIN_WATERMARK, Watermark


class _Channel:
    """The watermark and status of a channel.

    Attributes:
        aligned: False from when the channel woke up behind the others until it has caught up; meanwhile it does not
            hold them back.
        origin: origin of the last watermark (``Watermark.origin``).
        changed_at: monotonic time at which the watermark has risen last, or the channel has woken up.
    """

    __slots__ = ("aligned", "changed_at", "id", "idle", "input_index", "origin", "watermark")

    def __init__(self, channel: ChannelId, input_index: int, now: float) -> None:
        self.id, self.input_index = channel, input_index
        self.watermark = MIN_WATERMARK
        self.idle = False
        self.aligned = True
        self.origin = ""
        self.changed_at = now


class ChannelWatermarks:
    """Combines the watermarks of channels, as Flink's ``StatusWatermarkValve`` does.

    A channel that was idle and wakes up behind the input's watermark is left out until it has caught up. When all
    channels of an input are idle, the input's watermark is the greatest of theirs. Other than in Flink, a channel that
    has ended counts only when all have (Flink takes ended channels as active, so that idle ones are overtaken).

    Args:
        channels: the channels, each with the index of the input that it feeds.
        name: name of the task, for the log.
        clock: measures for how long a channel holds others back.
        senders: names of the vertices that send over the edges, by index of the edge; for the log.
    """

    def __init__(
        self,
        channels: Sequence[tuple[ChannelId, int]],
        name: str,
        clock: Clock,
        senders: Mapping[int, str] | None = None,
    ) -> None:
        self._senders = senders or {}
        self._clock = clock
        self._channels = [_Channel(channel, index, clock.monotonic()) for channel, index in channels]
        """A list, not a heap as in Flink: channels are few enough to look at all when the slowest one advances."""
        self._inputs = {index: CombinedWatermark() for _, index in channels}
        self._all = CombinedWatermark()
        self._held_back_log = HeldBack(name, clock)

    def input_watermark(self, input_index: int) -> int:
        """The watermark of one input."""
        return self._inputs[input_index].watermark if input_index in self._inputs else MIN_WATERMARK

    def update(self, number: int, watermark: Watermark) -> Watermark | None:
        """Take a watermark of a channel; returns the watermark to pass on if that has changed.

        Args:
            number: position of the channel in ``channels``.
            watermark: watermark that it sent.
        """
        channel = self._channels[number]
        former = channel.watermark
        woke_up = channel.idle and not watermark.idle
        channel.watermark, channel.idle = max(former, watermark.timestamp), watermark.idle
        channel.origin = watermark.origin
        if woke_up or channel.watermark != former:
            channel.changed_at = self._clock.monotonic()
        combined = self._inputs[channel.input_index]
        if woke_up or not channel.aligned:
            channel.aligned = channel.watermark >= combined.watermark
        elif former > combined.watermark and not watermark.idle and channel.watermark != MAX_WATERMARK:
            # The usual case, without a look at all channels: this one was not the slowest, and so changes nothing.
            self._log_if_held_back()
            return None
        if not self._combine(channel.input_index, combined):
            self._log_if_held_back()
            return None
        former_element = self._all.element
        # In two updates, as in Flink: the watermark that an input has got counts before the input turns idle.
        self._all.update([(part.watermark, part.idle and part is not combined) for part in self._inputs.values()])
        self._all.update([(part.watermark, part.idle) for part in self._inputs.values()])
        self._log_if_held_back()
        return None if self._all.element == former_element else self._all.element

    def origin(self) -> str:
        """Name the origin of the watermark: that of the slowest channel that is not idle, and has not ended.

        It is the source and split, or the operator, for which the watermark was made, however many exchanges lie in
        between, or the subtask that sent it if that did not say so.
        """
        active = [c for c in self._channels if not c.idle and c.aligned and c.watermark != MAX_WATERMARK]
        slowest = min(active or self._channels, key=lambda channel: channel.watermark)
        if slowest.origin:
            return slowest.origin
        sender = self._senders.get(slowest.id.edge)
        return f"{sender!r}, subtask {slowest.id.up + 1}" if sender else str(slowest.id)

    def progress(self) -> list[dict[str, Any]]:
        """Tell for each input how far event time is, and which channel holds it back (``WATERMARK_PROGRESS``).

        May be called from any thread.
        """
        now = self._clock.monotonic()
        inputs: list[dict[str, Any]] = []
        for index in sorted(self._inputs):
            channels = [channel for channel in self._channels if channel.input_index == index]
            not_ended = [channel for channel in channels if channel.watermark != MAX_WATERMARK]
            active = [channel for channel in not_ended if not channel.idle and channel.aligned]
            progress = {
                "input": index + 1,
                "members": len(channels),
                "idle": sum(channel.idle for channel in not_ended),
                "ended": len(channels) - len(not_ended),
                "all_idle": self._inputs[index].idle,
            }
            if active:
                slowest = min(active, key=lambda channel: channel.watermark)
                progress |= {
                    "watermark": slowest.watermark,
                    "ahead": max(channel.watermark for channel in active),
                    "edge": slowest.id.edge,
                    "subtask": slowest.id.up,
                    "still_ms": round((now - slowest.changed_at) * 1000),
                }
            inputs.append(progress)
        return inputs

    def _combine(self, index: int, combined: CombinedWatermark) -> bool:
        """Compute the watermark of an input from its channels; returns whether it, or its status, has changed."""
        channels = [channel for channel in self._channels if channel.input_index == index]
        former = (combined.watermark, combined.idle)
        # A channel that woke up behind the others counts as idle, unless no other one is active.
        combined.update([(c.watermark, c.idle or not c.aligned) for c in channels])
        if combined.idle:
            not_ended = [c for c in channels if c.watermark != MAX_WATERMARK]
            combined.idle = all(c.idle for c in not_ended)
            if combined.idle:
                combined.watermark = max(combined.watermark, *(c.watermark for c in not_ended))
        return former != (combined.watermark, combined.idle)

    def _log_if_held_back(self) -> None:
        self._held_back_log.look(
            self._all.watermark,
            (
                (f"{channel.id} (input {channel.input_index + 1})", channel.watermark, channel.idle)
                for channel in self._channels
                if channel.aligned
            ),
        )
