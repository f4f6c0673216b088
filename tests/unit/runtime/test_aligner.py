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
    found: list[Any] = []
    while (got := inputs.poll()) is not None:
        if isinstance(got, InputBatch):
            found += got.batch.values
        elif isinstance(got, Arrived):
            found.append(f"checkpoint {got.barrier.checkpoint_id}")
        elif isinstance(got, CancelBarrier):
            found.append(f"no {got.checkpoint_id}")
        else:
            found.append(got)
            break
    return found


def test_records_behind_a_barrier_wait_until_all_channels_have_delivered_it() -> None:
    one = FakeInput([Batch([1]), Barrier(1, 0), Batch([2])])
    two = FakeInput([Batch([10])])
    inputs = inputs_of(one, two)
    assert polled(inputs) == [1, 10]
    two.give(Batch([11]), Barrier(1, 0), Batch([12]))
    assert polled(inputs) in ([11, "checkpoint 1", 2, 12], [11, "checkpoint 1", 12, 2])


def test_at_least_once_lets_records_pass() -> None:
    one = FakeInput([Barrier(1, 0, AT_LEAST_ONCE), Batch([2])])
    two = FakeInput([Batch([10])])
    inputs = inputs_of(one, two)
    assert sorted(polled(inputs)) == [2, 10]
    two.give(Barrier(1, 0, AT_LEAST_ONCE))
    assert polled(inputs) == ["checkpoint 1"]


def test_at_least_once_waits_for_several_checkpoints() -> None:
    one = FakeInput([Barrier(1, 0, AT_LEAST_ONCE), Barrier(2, 0, AT_LEAST_ONCE)])
    two = FakeInput([Batch([1])])
    inputs = inputs_of(one, two)
    assert polled(inputs) == [1]
    two.give(Barrier(1, 0, AT_LEAST_ONCE), Batch([2]), Barrier(2, 0, AT_LEAST_ONCE))
    assert polled(inputs) == ["checkpoint 1", 2, "checkpoint 2"]


def test_a_channel_that_has_ended_needs_no_barrier() -> None:
    one = FakeInput([Barrier(1, 0), Batch([2]), END_OF_INPUT])
    two = FakeInput([Batch([10]), END_OF_INPUT])
    assert polled(inputs_of(one, two)) == [10, "checkpoint 1", 2, END_OF_INPUT]


def test_the_last_channel_may_end_while_the_barrier_is_waited_for() -> None:
    one, two = FakeInput([END_OF_INPUT]), FakeInput([Barrier(1, 0)])
    assert polled(inputs_of(one, two)) == ["checkpoint 1"]


def test_a_later_barrier_gives_up_the_earlier_checkpoint() -> None:
    one = FakeInput([Barrier(1, 0), Batch([1]), Barrier(2, 0), Batch([2])])
    two = FakeInput([Barrier(2, 0), Batch([12])])
    found = polled(inputs_of(one, two))
    assert found[:3] == ["no 1", 1, "checkpoint 2"]
    assert sorted(found[3:]) == [2, 12]


def test_a_cancelled_barrier_sets_the_channels_free_once() -> None:
    one = FakeInput([Barrier(1, 0), Batch([1])])
    two = FakeInput([CancelBarrier(1), Barrier(1, 0), Batch([2])])
    assert polled(inputs_of(one, two)) == ["no 1", 2, 1]


def test_a_cancel_ahead_of_all_barriers_is_passed_on_and_remembered() -> None:
    one = FakeInput([CancelBarrier(1), Barrier(2, 0)])
    two = FakeInput([Barrier(1, 0), Barrier(2, 0)])
    assert polled(inputs_of(one, two)) == ["no 1", "checkpoint 2"]


def test_an_abort_sets_the_channels_free_and_late_barriers_are_ignored() -> None:
    one, two = FakeInput([Barrier(1, 0), Batch([1])]), FakeInput()
    inputs = inputs_of(one, two)
    assert polled(inputs) == []
    assert inputs.abort_checkpoint(1)
    assert polled(inputs) == [1]
    two.give(Barrier(1, 0), Batch([2]))
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
    one = FakeInput([Barrier(1, clock.epoch_ms() - 250)])
    two = FakeInput([Batch([1], bytes_estimate=70)])
    inputs = inputs_of(one, two, clock=clock)
    assert polled(inputs) == [1]
    clock.now += 0.125
    two.give(Barrier(1, 0))
    got: InBand | InputBatch | None = inputs.poll()
    assert isinstance(got, Arrived)
    assert (got.start_delay_ms, got.alignment_ms, got.processed_bytes) == (250, 125, 70)
