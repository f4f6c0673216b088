"""When a barrier has come over all channels, and what happens when it does not."""

from __future__ import annotations

from typing import Any

from firesteel.runtime.checkpoints.aligner import Arrived, BarrierAligner
from firesteel.runtime.records.batch import END_OF_INPUT, Barrier, Batch, CancelBarrier, InBand, InputBatch
from firesteel.runtime.task.channel_inputs import ChannelInputs
from tests.unit.runtime.support import FakeInput, ManualClock

AT_LEAST_ONCE = {"mode": "AT_LEAST_ONCE"}


def inputs_of(*channels: FakeInput, clock: ManualClock | None = None) -> ChannelInputs:
    return ChannelInputs([(channel, 0) for channel in channels], lambda: None, clock=clock or ManualClock())


def polled(inputs: ChannelInputs) -> list[Any]:
    """All that is there now: values, or the number of a checkpoint that begins, or minus that of one that won't."""
    items: list[Any] = []
    while (got := inputs.poll()) is not None:
        if isinstance(got, InputBatch):
            items += got.batch.values
        elif isinstance(got, Arrived):
            items.append(f"checkpoint {got.barrier.checkpoint_id}")
        elif isinstance(got, CancelBarrier):
            items.append(f"no {got.checkpoint_id}")
        else:
            items.append(got)
            break
    return items


def test_records_behind_a_barrier_wait_until_all_channels_have_delivered_it() -> None:
    first = FakeInput([Batch([1]), Barrier(1, 0), Batch([2])])
    second = FakeInput([Batch([10])])
    inputs = inputs_of(first, second)
    assert polled(inputs) == [1, 10]
    second.give(Batch([11]), Barrier(1, 0), Batch([12]))
    assert polled(inputs) in ([11, "checkpoint 1", 2, 12], [11, "checkpoint 1", 12, 2])


def test_at_least_once_lets_records_pass() -> None:
    first = FakeInput([Barrier(1, 0, AT_LEAST_ONCE), Batch([2])])
    second = FakeInput([Batch([10])])
    inputs = inputs_of(first, second)
    assert sorted(polled(inputs)) == [2, 10]
    second.give(Barrier(1, 0, AT_LEAST_ONCE))
    assert polled(inputs) == ["checkpoint 1"]


def test_at_least_once_waits_for_several_checkpoints() -> None:
    first = FakeInput([Barrier(1, 0, AT_LEAST_ONCE), Barrier(2, 0, AT_LEAST_ONCE)])
    second = FakeInput([Batch([1])])
    inputs = inputs_of(first, second)
    assert polled(inputs) == [1]
    second.give(Barrier(1, 0, AT_LEAST_ONCE), Batch([2]), Barrier(2, 0, AT_LEAST_ONCE))
    assert polled(inputs) == ["checkpoint 1", 2, "checkpoint 2"]


def test_a_channel_that_has_ended_needs_no_barrier() -> None:
    first = FakeInput([Barrier(1, 0), Batch([2]), END_OF_INPUT])
    second = FakeInput([Batch([10]), END_OF_INPUT])
    assert polled(inputs_of(first, second)) == [10, "checkpoint 1", 2, END_OF_INPUT]


def test_the_last_channel_may_end_while_the_barrier_is_waited_for() -> None:
    first, second = FakeInput([END_OF_INPUT]), FakeInput([Barrier(1, 0)])
    assert polled(inputs_of(first, second)) == ["checkpoint 1"]


def test_a_later_barrier_gives_up_the_earlier_checkpoint() -> None:
    first = FakeInput([Barrier(1, 0), Batch([1]), Barrier(2, 0), Batch([2])])
    second = FakeInput([Barrier(2, 0), Batch([12])])
    items = polled(inputs_of(first, second))
    assert items[:3] == ["no 1", 1, "checkpoint 2"]
    assert sorted(items[3:]) == [2, 12]


def test_a_cancelled_barrier_sets_the_channels_free_once() -> None:
    first = FakeInput([Barrier(1, 0), Batch([1])])
    second = FakeInput([CancelBarrier(1), Barrier(1, 0), Batch([2])])
    assert polled(inputs_of(first, second)) == ["no 1", 2, 1]


def test_a_cancel_ahead_of_all_barriers_is_passed_on_and_remembered() -> None:
    first = FakeInput([CancelBarrier(1), Barrier(2, 0)])
    second = FakeInput([Barrier(1, 0), Barrier(2, 0)])
    assert polled(inputs_of(first, second)) == ["no 1", "checkpoint 2"]


def test_an_abort_sets_the_channels_free_and_late_barriers_are_ignored() -> None:
    first, second = FakeInput([Barrier(1, 0), Batch([1])]), FakeInput()
    inputs = inputs_of(first, second)
    assert polled(inputs) == []
    assert inputs.abort_checkpoint(1)
    assert polled(inputs) == [1]
    second.give(Barrier(1, 0), Batch([2]))
    assert polled(inputs) == [2]
    assert not inputs.abort_checkpoint(1)


def test_doubled_and_late_barriers_change_nothing() -> None:
    aligner = BarrierAligner(1, ManualClock())
    assert [type(event) for event in aligner.barrier(0, Barrier(5, 0))] == [Arrived]
    assert aligner.barrier(0, Barrier(5, 0)) == []
    assert aligner.barrier(0, Barrier(4, 0)) == []
    assert aligner.cancelled(0, 5) == []
    assert not aligner.abort(3)
    assert not aligner.aligning


def test_the_time_of_alignment_and_the_bytes_meanwhile_are_counted() -> None:
    clock = ManualClock()
    first = FakeInput([Barrier(1, clock.epoch_ms() - 250)])
    second = FakeInput([Batch([1], bytes_estimate=70)])
    inputs = inputs_of(first, second, clock=clock)
    assert polled(inputs) == [1]
    clock.now += 0.125
    second.give(Barrier(1, 0))
    got: InBand | InputBatch | None = inputs.poll()
    assert isinstance(got, Arrived)
    assert (got.start_delay_ms, got.alignment_ms, got.processed_bytes) == (250, 125, 70)
