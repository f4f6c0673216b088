"""The watermark of a task that reads channels: the minimum over the channels of each input, then over the inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from firesteel.core.clock import Clock
from firesteel.runtime.exchange.channels import ChannelId
from firesteel.runtime.operator_base.watermarks import CombinedWatermark, HeldBack
from firesteel.runtime.records.batch import MAX_WATERMARK, MIN_WATERMARK, Watermark


class _Channel:
    """What is known of a channel.

    Attributes:
        aligned: false from when it woke up behind the others until it has caught up: it does not hold them back.
        origin: of its last watermark, see ``Watermark``.
    """

    __slots__ = ("aligned", "id", "idle", "input_index", "origin", "watermark")

    def __init__(self, channel: ChannelId, input_index: int) -> None:
        self.id, self.input_index = channel, input_index
        self.watermark = MIN_WATERMARK
        self.idle = False
        self.aligned = True
        self.origin = ""


class ChannelWatermarks:
    """See the module.

    As in Flink, a channel that was idle and wakes up behind the input's watermark is left out until it has caught up,
    and when all channels of an input are idle the input's watermark is the greatest of theirs. A channel that has come
    to its end counts only when all have (Flink takes ended ones as active, so that idle ones are overtaken).

    Args:
        channels: each with the index of the input that it feeds.
        name: of the task, for the log.
        clock: injected.
        senders: names of the vertices that send over the edges, by their index; for the log.
    """

    def __init__(
        self,
        channels: Sequence[tuple[ChannelId, int]],
        name: str,
        clock: Clock,
        senders: Mapping[int, str] | None = None,
    ) -> None:
        self._senders = senders or {}
        self._channels = [_Channel(channel, index) for channel, index in channels]
        """Few enough for a look at all of them whenever the slowest one goes on."""
        self._inputs = {index: CombinedWatermark() for _, index in channels}
        self._all = CombinedWatermark()
        self._held = HeldBack(name, clock)

    def input_watermark(self, input_index: int) -> int:
        """The watermark of one input."""
        return self._inputs[input_index].watermark if input_index in self._inputs else MIN_WATERMARK

    def update(self, number: int, watermark: Watermark) -> Watermark | None:
        """A channel sent this; returns what to pass on if anything changed.

        Args:
            number: of the channel, as in ``channels``.
            watermark: what it sent.
        """
        channel = self._channels[number]
        before = channel.watermark
        woke_up = channel.idle and not watermark.idle
        channel.watermark, channel.idle = max(before, watermark.timestamp), watermark.idle
        channel.origin = watermark.origin
        combined = self._inputs[channel.input_index]
        if woke_up or not channel.aligned:
            channel.aligned = channel.watermark >= combined.watermark
        elif before > combined.watermark and not watermark.idle and channel.watermark != MAX_WATERMARK:
            self._look()
            return None  # it was ahead of another one, and still is
        if not self._combine(channel.input_index, combined):
            self._look()
            return None
        before_all = self._all.element
        # as in Flink, the watermark that an input has got counts before the input turns idle
        self._all.update([(part.watermark, part.idle and part is not combined) for part in self._inputs.values()])
        self._all.update([(part.watermark, part.idle) for part in self._inputs.values()])
        self._look()
        return None if self._all.element == before_all else self._all.element

    def origin(self) -> str:
        """Where the watermark comes from that this one follows: that of the slowest channel that is not idle.

        It is the source and split, or the operator, that the watermark was made for, however many exchanges lie in
        between; the subtask in front if that did not say so. Of channels that have ended only when all have.
        """
        following = [c for c in self._channels if not c.idle and c.aligned and c.watermark != MAX_WATERMARK]
        followed = min(following or self._channels, key=lambda channel: channel.watermark)
        if followed.origin:
            return followed.origin
        sender = self._senders.get(followed.id.edge)
        return f"{sender!r}, subtask {followed.id.up}" if sender else str(followed.id)

    def _combine(self, index: int, combined: CombinedWatermark) -> bool:
        mine = [channel for channel in self._channels if channel.input_index == index]
        # one that woke up behind the others counts as idle, unless nobody else is active
        before = (combined.watermark, combined.idle)
        combined.update([(c.watermark, c.idle or not c.aligned) for c in mine])
        if combined.idle:
            going_on = [c for c in mine if c.watermark != MAX_WATERMARK]
            combined.idle = all(c.idle for c in going_on)
            if combined.idle:
                combined.watermark = max(combined.watermark, *(c.watermark for c in going_on))
        return before != (combined.watermark, combined.idle)

    def _look(self) -> None:
        self._held.look(
            self._all.watermark,
            (
                (f"{channel.id} (input {channel.input_index + 1})", channel.watermark, channel.idle)
                for channel in self._channels
                if channel.aligned
            ),
        )
