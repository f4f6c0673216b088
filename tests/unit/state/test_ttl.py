"""Time-to-live: visibility, updates, and a clean-up that frees memory a little at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from firesteel.common.time import Time
from firesteel.common.typeinfo import Types
from firesteel.functions.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from firesteel.state.backend import KeyedStateParameters
from firesteel.state.heap import HeapKeyedState
from firesteel.testing.clock import ManualClock

Builder = Callable[[Any], Any]


def config(change: Builder = lambda builder: builder) -> StateTtlConfig:
    built: StateTtlConfig = change(StateTtlConfig.new_builder(Time.seconds(10))).build()
    return built


def value_state(ttl: StateTtlConfig) -> tuple[HeapKeyedState, Any, ManualClock]:
    clock = ManualClock()
    keyed = HeapKeyedState(KeyedStateParameters(clock=clock))
    descriptor = ValueStateDescriptor("n", Types.LONG())
    descriptor.enable_time_to_live(ttl)
    state = keyed.get_state(descriptor)
    keyed.key = "a"
    return keyed, state, clock


def test_a_value_expires_after_its_last_write() -> None:
    _, state, clock = value_state(config())
    state.update(1)
    clock.advance(9.999)
    assert state.value() == 1
    state.update(2)
    clock.advance(9.999)
    assert state.value() == 2
    clock.advance(0.001)
    assert state.value() is None


def test_reading_extends_life_if_it_is_set_so() -> None:
    _, state, clock = value_state(config(lambda builder: builder.update_ttl_on_read_and_write()))
    state.update(1)
    for _ in range(5):
        clock.advance(9)
        assert state.value() == 1
    clock.advance(10)
    assert state.value() is None


def test_disabled_means_forever() -> None:
    _, state, clock = value_state(config(lambda b: b.set_update_type(StateTtlConfig.UpdateType.Disabled)))
    state.update(1)
    clock.advance(1e6)
    assert state.value() == 1


def test_what_has_expired_is_given_once_if_it_may_be() -> None:
    quiet = config(lambda builder: builder.return_expired_if_not_cleaned_up().disable_cleanup_in_background())
    _, state, clock = value_state(quiet)
    state.update(1)
    clock.advance(11)
    assert state.value() == 1
    assert state.value() is None


def test_combining_starts_anew_after_the_end_of_life() -> None:
    clock = ManualClock()
    keyed = HeapKeyedState(KeyedStateParameters(clock=clock))
    descriptor = ReducingStateDescriptor("n", lambda number, other: number + other, Types.LONG())
    descriptor.enable_time_to_live(config(lambda builder: builder.return_expired_if_not_cleaned_up()))
    state = keyed.get_reducing_state(descriptor)
    keyed.key = "a"
    state.add(1)
    clock.advance(6)
    state.add(2)
    clock.advance(6)
    state.add(4)
    assert state.get() == 7
    clock.advance(10)
    state.add(8)
    assert state.get() == 8


@pytest.mark.parametrize("every_record", [False, True])
def test_clean_up_is_bounded_and_frees_what_is_never_asked_for(every_record: bool) -> None:
    keyed, state, clock = value_state(config(lambda b: b.cleanup_incrementally(3, every_record)))
    for key in range(100):
        keyed.key = key
        state.update(key)
    clock.advance(10)
    for done in range(1, 34):
        if every_record:
            keyed.key = "other"
        else:
            state.value()
        assert len([*keyed.keys()]) >= 100 - 3 * (done + 1)
    for _ in range(2):
        keyed.key = "other"
        state.value()
    assert list(keyed.keys()) == []


def test_what_lives_is_not_looked_at_again_and_again() -> None:
    keyed, state, clock = value_state(config(lambda b: b.cleanup_incrementally(2, False)))
    for key in range(10):
        keyed.key = key
        state.update(key)
        clock.advance(1)
    keyed.key = 0
    state.update(5)
    clock.advance(4)  # keys 1 to 4 have expired, 0 is the youngest
    for _ in range(3):
        state.value()
    assert sorted(keyed.keys()) == [0, 5, 6, 7, 8, 9]


def test_without_clean_up_things_stay_until_they_are_met() -> None:
    keyed, state, clock = value_state(config(lambda b: b.disable_cleanup_in_background()))
    for key in range(3):
        keyed.key = key
        state.update(key)
    clock.advance(10)
    assert state.value() is None
    assert list(keyed.keys()) == [0, 1]


def test_elements_of_a_list_live_by_themselves() -> None:
    clock = ManualClock()
    keyed = HeapKeyedState(KeyedStateParameters(clock=clock))
    descriptor = ListStateDescriptor("n", Types.LONG())
    descriptor.enable_time_to_live(config(lambda builder: builder.cleanup_incrementally(2, False)))
    state = keyed.get_list_state(descriptor)
    keyed.key = "a"
    for value in range(5):
        state.add(value)
        clock.advance(4)
    assert list(state.get()) == [3, 4]
    clock.advance(100)
    keyed.key = "b"
    state.add(1)
    assert list(keyed.keys()) == ["b"]


def test_the_entries_of_a_large_map_are_removed_a_few_at_a_time() -> None:
    clock = ManualClock()
    keyed = HeapKeyedState(KeyedStateParameters(clock=clock))
    descriptor = MapStateDescriptor("n", Types.LONG(), Types.LONG())
    descriptor.enable_time_to_live(config(lambda builder: builder.cleanup_incrementally(10, False)))
    state = keyed.get_map_state(descriptor)
    keyed.key = "a"
    state.put_all(dict.fromkeys(range(1000), 1))
    clock.advance(5)
    state.put(7, 2)
    clock.advance(5)
    keyed.key = "b"
    assert state.is_empty()
    assert list(keyed.keys()) == ["a"]
    keyed.key = "a"
    state.put(8, 3)
    table = keyed._parts["n", "plain"].table
    assert 970 <= len(table["a"]) <= 990, "an access removes some, not all"
    assert list(state.items()) == [(7, 2), (8, 3)]
    assert len(table["a"]) == 2
    clock.advance(10)
    keyed.key = "b"
    assert state.get(1) is None
    assert list(keyed.keys()) == []


def test_a_map_in_which_all_is_read_often_is_in_the_order_of_expiry() -> None:
    clock = ManualClock()
    keyed = HeapKeyedState(KeyedStateParameters(clock=clock))
    descriptor = MapStateDescriptor("n", Types.STRING(), Types.LONG())
    descriptor.enable_time_to_live(config(lambda builder: builder.update_ttl_on_read_and_write()))
    state = keyed.get_map_state(descriptor)
    keyed.key = "a"
    for name in "xyz":
        state.put(name, 1)
        clock.advance(1)
    assert state.get("x") == 1
    assert list(state.keys()) == ["y", "z", "x"]
    clock.advance(9)
    assert "x" in state
    assert list(state) == ["y", "z", "x"], "iterating extends the life of all of them"
    clock.advance(9)
    assert len(list(state.values())) == 3


def test_reading_while_a_snapshot_is_written_changes_no_order() -> None:
    """What expires next stands in front, where cleaning up looks."""
    clock = ManualClock()
    keyed = HeapKeyedState(KeyedStateParameters(clock=clock))
    descriptor = ListStateDescriptor("n", Types.LONG())
    descriptor.enable_time_to_live(config())
    state = keyed.get_list_state(descriptor)
    for key in "abc":
        keyed.key = key
        state.add(1)
        clock.advance(1)
    snapshot = keyed.snapshot()
    keyed.key = "a"
    assert state.get() == [1]
    keyed.key = "b"
    assert state.get() == [1]
    state.add(2)
    list(snapshot)
    assert list(keyed.keys()) == ["a", "c", "b"]
