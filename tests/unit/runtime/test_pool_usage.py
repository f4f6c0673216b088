"""How full the channels of a task are."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from firesteel.runtime.exchange.channels import ChannelId, OutputChannel
from firesteel.runtime.exchange.local import LARGEST_WINDOW, LocalPipe
from firesteel.runtime.loop.loop import TaskLoop
from firesteel.runtime.records.batch import Batch
from firesteel.runtime.task.bridge import BridgedInput, BridgedOutput
from firesteel.runtime.task.task import _filled
from tests.unit.runtime.support import ManualClock


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


def pipe_with(batch: Batch, loop: TaskLoop) -> LocalPipe:
    pipe = LocalPipe(ChannelId(0, 0, 0), loop, 1 << 20)
    pipe.output.write(batch)
    return pipe


def test_channels_of_a_task_in_a_thread_of_its_own_are_as_full_as_the_real_ones() -> None:
    main, task = TaskLoop(ManualClock()), TaskLoop(ManualClock())
    pipe = pipe_with(Batch(["x" * 100] * 100), main)
    output, source = BridgedOutput(pipe.output, main, task), BridgedInput(pipe.input, main, task)
    output.write(Batch(["x" * 100] * 100))
    while main.run_once(block=False) or task.run_once(block=False):
        pass
    for usage, queued, real in (
        (*_filled([output]), pipe.output.queued_bytes),
        (*_filled([source]), pipe.input.queued_bytes),
    ):
        assert queued == real > 10_000
        assert usage == queued / LARGEST_WINDOW
    main.close()
    task.close()


def test_columns_fill_the_wider_window_that_they_have() -> None:
    no_loop: Any = None
    pipe = pipe_with(Batch(pa.record_batch({"n": pa.array(range(100_000))})), no_loop)
    usage, queued = _filled([pipe.input])
    assert queued > LARGEST_WINDOW
    assert usage == _filled([pipe.output])[0] < 1
