from __future__ import annotations

from typing import Any

import pytest

import firesteel.datastream as api
from firesteel.common import Types
from firesteel.datastream import functions as public
from firesteel.datastream import state as public_state
from firesteel.datastream.functions import (
    Function,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    MapFunction,
    ProcessFunction,
    RuntimeContext,
    SinkFunction,
)
from firesteel.datastream.state import ValueStateDescriptor
from firesteel.functions import broadcast, checkpointed
from firesteel.functions import functions as defined
from firesteel.functions import state as defined_state


def test_pyflinks_module_paths_give_the_same_classes() -> None:
    assert set(public.__all__) >= set(defined.__all__)
    assert all(getattr(public, name) is getattr(defined, name) for name in defined.__all__)
    assert set(public_state.__all__) == set(defined_state.__all__)
    assert all(getattr(public_state, name) is getattr(defined_state, name) for name in defined_state.__all__)
    assert set(defined.__all__) - {"KeyedStateStore"} <= set(api.__all__)
    assert {*broadcast.__all__, *checkpointed.__all__} <= set(public.__all__)
    assert all(hasattr(api, name) for name in api.__all__)


def some_context() -> RuntimeContext:
    """Of a class that has all methods; none of them is called."""
    methods = {name: lambda self: None for name in RuntimeContext.__abstractmethods__}
    context: RuntimeContext = type("Context", (RuntimeContext,), methods)()
    return context


@pytest.mark.parametrize("function", [KeyedProcessFunction, KeyedCoProcessFunction])
def test_contexts_of_timers_are_contexts_of_records(function: Any) -> None:
    assert issubclass(function.OnTimerContext, function.Context)
    assert {
        "time_domain",
        "timer_service",
        "timestamp",
        "get_current_key",
    } <= function.OnTimerContext.__abstractmethods__
    assert not hasattr(ProcessFunction, "on_timer")


def test_functions_are_abstract_and_open_and_close_may_be_left_out() -> None:
    with pytest.raises(TypeError, match="abstract"):
        MapFunction()  # type: ignore[abstract]
    with pytest.raises(TypeError, match="abstract"):
        SinkFunction()  # type: ignore[abstract]

    class Double(MapFunction[int, int]):
        def map(self, value: int) -> int:
            return 2 * value

    double = Double()
    double.open(some_context())
    double.close()
    assert (double.map(2), double.blocking, isinstance(double, Function)) == (4, False, True)


def test_value_state_descriptors() -> None:
    descriptor = ValueStateDescriptor("count", Types.LONG())
    assert (descriptor.get_name(), descriptor.name, descriptor.type_info) == ("count", "count", Types.LONG())
    assert descriptor == ValueStateDescriptor("count", Types.LONG())
    assert hash(descriptor) == hash(ValueStateDescriptor("count", Types.LONG()))
    assert descriptor != ValueStateDescriptor("count", Types.INT())
    assert repr(descriptor) == "ValueStateDescriptor('count', Long)"
    with pytest.raises(ValueError, match="the name of a state is empty"):
        ValueStateDescriptor("", Types.LONG())
    with pytest.raises(TypeError, match="the name of a state is a str, not int"):
        ValueStateDescriptor(1, Types.LONG())  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"the type of state 'count' is .* leave out the parentheses"):
        ValueStateDescriptor("count", Types.LONG)  # type: ignore[arg-type]
