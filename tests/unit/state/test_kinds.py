"""All kinds of keyed state without time-to-live, and how they are asked for."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from firesteel.common.time import Duration, Time
from firesteel.common.typeinfo import Types
from firesteel.core.errors import ProgramError, TypeMismatchError
from firesteel.functions.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from firesteel.state.backend import KeyedStateParameters
from firesteel.state.heap import HeapKeyedState


class Average:
    def create_accumulator(self) -> tuple[int, int]:
        return 0, 0

    def add(self, value: int, accumulator: tuple[int, int]) -> tuple[int, int]:
        return accumulator[0] + value, accumulator[1] + 1

    def get_result(self, accumulator: tuple[int, int]) -> float:
        return accumulator[0] / accumulator[1]

    def merge(self, acc_a: tuple[int, int], acc_b: tuple[int, int]) -> tuple[int, int]:
        return acc_a[0] + acc_b[0], acc_a[1] + acc_b[1]


def keyed_at(key: Any, **more: Any) -> HeapKeyedState:
    keyed = HeapKeyedState(KeyedStateParameters(**more))
    keyed.key = key
    return keyed


def test_list_state() -> None:
    keyed = keyed_at("a")
    state = keyed.get_list_state(ListStateDescriptor("names", Types.STRING()))
    assert state.get() == []
    state.add("x")
    state.add_all(["y", "z"])
    assert state.get() == ["x", "y", "z"] == list(state)
    state.get().append("not in it")
    assert list(state.get()) == ["x", "y", "z"]
    state.update(name for name in "pq")
    assert state.get() == ["p", "q"]
    keyed.key = "b"
    assert state.get() == []
    state.add_all([])
    assert list(keyed.keys()) == ["a"]
    keyed.key = "a"
    state.update([])
    assert list(keyed.keys()) == []
    for bad in (None, "text"):
        with pytest.raises(TypeError, match="'names'"):
            state.add_all(bad)
    with pytest.raises(TypeError, match="None can't be an element"):
        state.add(None)


def test_a_list_that_does_not_fit_is_refused_as_a_whole() -> None:
    keyed = keyed_at("a")
    state = keyed.get_list_state(ListStateDescriptor("pairs", Types.TUPLE([Types.INT(), Types.STRING()])))
    with pytest.raises(TypeMismatchError, match=r"state pairs\.f1"):
        state.add_all([(1, "x"), (2, 3)])
    assert state.get() == []


def test_map_state_has_pyflinks_methods_and_keeps_the_order() -> None:
    keyed = keyed_at("a")
    state = keyed.get_map_state(MapStateDescriptor("prices", Types.STRING(), Types.DOUBLE()))
    assert state.is_empty()
    state.put("z", 1)
    state["y"] = 2.5
    state.put_all({"a": 3.0, "z": 4.0})
    assert list(state.items()) == [("z", 4.0), ("y", 2.5), ("a", 3.0)]
    assert (list(state), list(state.keys()), list(state.values())) == (
        ["z", "y", "a"],
        ["z", "y", "a"],
        [4.0, 2.5, 3.0],
    )
    assert type(state["z"]) is float
    assert "y" in state
    assert state.contains("z")
    assert state.get("none") is None
    del state["z"]
    state.remove("none")
    state.put("z", None)
    assert list(state.items()) == [("y", 2.5), ("a", 3.0), ("z", None)]
    for name in "yaz":
        state.remove(name)
    assert state.is_empty()
    assert list(keyed.keys()) == []
    with pytest.raises(TypeMismatchError, match=r"state prices\[value\]"):
        state.put("x", "cheap")
    with pytest.raises(TypeMismatchError, match=r"state prices\[key\]"):
        state.put(None, 1.0)
    with pytest.raises(TypeError, match="takes a dict"):
        state.put_all([("x", 1.0)])
    assert state.is_empty()


def test_reducing_and_aggregating_state() -> None:
    keyed = keyed_at("a")
    total = keyed.get_reducing_state(
        ReducingStateDescriptor("total", lambda number, other: number + other, Types.SHORT())
    )
    mean = keyed.get_aggregating_state(
        AggregatingStateDescriptor("mean", Average(), Types.TUPLE([Types.INT(), Types.INT()]))
    )
    assert (total.get(), mean.get()) == (None, None)
    for value in (1, 2, 6):
        total.add(value)
        mean.add(value)
    assert (total.get(), mean.get()) == (9, 3.0)
    total.add(32767)
    assert total.get() == 9 - 32769, "typed as a short: it wraps as Java's"
    total.add(None)
    mean.add(None)
    assert (total.get(), mean.get(), list(keyed.keys())) == (None, None, [])


def test_descriptors_say_what_is_wrong_with_them() -> None:
    with pytest.raises(TypeError, match="parentheses"):
        ListStateDescriptor("x", Types.INT)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="key type of state 'x'"):
        MapStateDescriptor("x", "str", Types.INT())  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="ReduceFunction or a callable"):
        ReducingStateDescriptor("x", 3, Types.INT())  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="instance of an AggregateFunction"):
        AggregatingStateDescriptor("x", Average, Types.INT())
    with pytest.raises(ValueError, match="empty"):
        ValueStateDescriptor("", Types.INT())
    with pytest.raises(TypeError, match="enable_time_to_live"):
        ValueStateDescriptor("x", Types.INT()).enable_time_to_live(Time.hours(1))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"the time-to-live of state is a Time, Duration or timedelta"):
        StateTtlConfig.new_builder(3600)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="positive"):
        StateTtlConfig.new_builder(Time.seconds(0))
    for hour in (Duration.of_hours(1), datetime.timedelta(hours=1)):
        assert StateTtlConfig.new_builder(hour).build() == StateTtlConfig.new_builder(Time.hours(1)).build()
    with pytest.raises(ValueError, match="at least 1"):
        StateTtlConfig.new_builder(Time.seconds(1)).cleanup_incrementally(0, True)


@pytest.mark.parametrize(
    "other",
    [
        ListStateDescriptor("n", Types.LONG()),
        ValueStateDescriptor("n", Types.INT()),
        MapStateDescriptor("n", Types.LONG(), Types.LONG()),
    ],
)
def test_a_name_stands_for_one_state(other: Any) -> None:
    keyed = keyed_at("a")
    keyed.get_state(ValueStateDescriptor("n", Types.LONG()))
    getters: dict[type, Any] = {ListStateDescriptor: keyed.get_list_state, MapStateDescriptor: keyed.get_map_state}
    with pytest.raises(ProgramError, match="state 'n' was asked for as"):
        getters.get(type(other), keyed.get_state)(other)


def test_a_name_has_one_time_to_live() -> None:
    keyed = keyed_at("a")
    first = ValueStateDescriptor("n", Types.LONG())
    first.enable_time_to_live(StateTtlConfig.new_builder(Time.hours(1)).build())
    state = keyed.get_state(first)
    same = ValueStateDescriptor("n", Types.LONG())
    same.enable_time_to_live(StateTtlConfig.new_builder(Time.hours(1)).build())
    assert keyed.get_state(same) is state
    with pytest.raises(ProgramError, match="3600000 ms"):
        keyed.get_state(ValueStateDescriptor("n", Types.LONG()))


def test_tables_of_operators_are_apart_from_states_of_the_same_name() -> None:
    keyed = keyed_at("a")
    keyed.table("n")["a"] = 1
    state = keyed.get_state(ValueStateDescriptor("n", Types.LONG()))
    assert state.value() is None
    assert keyed.table("n") is keyed.table("n")


def test_ttl_config_has_pyflinks_getters() -> None:
    config = (
        StateTtlConfig.new_builder(Time.seconds(1))
        .set_update_type(StateTtlConfig.UpdateType.OnReadAndWrite)
        .set_state_visibility(StateTtlConfig.StateVisibility.ReturnExpiredIfNotCleanedUp)
        .set_ttl(Time.seconds(5))
        .cleanup_full_snapshot()
        .cleanup_incrementally(7, True)
        .cleanup_in_rocksdb_compact_filter(100)
        .build()
    )
    assert config.get_ttl() == Time.seconds(5)
    assert config.is_enabled()
    assert config.get_update_type() is StateTtlConfig.UpdateType.OnReadAndWrite
    assert config.get_ttl_time_characteristic() is StateTtlConfig.TtlTimeCharacteristic.ProcessingTime
    strategies = config.get_cleanup_strategies()
    incremental = strategies.get_incremental_cleanup_strategy()
    filtering = strategies.get_rocksdb_compact_filter_cleanup_strategy()
    assert incremental is not None
    assert filtering is not None
    assert (incremental.get_cleanup_size(), incremental.run_cleanup_for_every_record()) == (7, True)
    assert (filtering.get_query_time_after_num_entries(), filtering.get_periodic_compaction_time()) == (
        100,
        Time.days(30),
    )
    assert strategies.in_full_snapshot()
    bare = StateTtlConfig.new_builder(Time.seconds(1)).disable_cleanup_in_background().build().get_cleanup_strategies()
    assert bare.get_incremental_cleanup_strategy() is None
    assert not bare.is_cleanup_in_background()
    assert not bare.in_full_snapshot()
