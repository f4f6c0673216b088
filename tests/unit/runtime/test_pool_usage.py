"""How full the channels of a task are."""

from __future__ import annotations

from typing import Any

from firesteel.runtime.exchange.channels import ChannelId, OutputChannel
from firesteel.runtime.exchange.local import LocalPipe
from firesteel.runtime.task.task import _filled


def channel(number: int, queued: int, window: int) -> OutputChannel:
    no_loop: Any = None
    output = LocalPipe(ChannelId(0, number, 0), no_loop, window).output
    output.queued_bytes, output.window = queued, window
    return output


def test_the_fullest_channel_counts_since_it_stops_the_task() -> None:
    wide = [channel(number, 1000, 1 << 20) for number in range(3)]
    assert _filled([*wide, channel(3, 60_000, 1 << 16)]) == (60_000 / (1 << 16), 63_000)
    assert _filled([]) == (0.0, 0)
    assert _filled([channel(0, 5, 0)]) == (0.0, 5), "one that is not connected yet has no room at all"
