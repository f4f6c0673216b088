from __future__ import annotations

from typing import Any

import pytest

import firesteel.datastream as api
from firesteel.common import Types
from firesteel.core.errors import UnsupportedFeatureError
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
from firesteel.datastream.state import ValueState, ValueStateDescriptor
from firesteel.functions import functions as defined
from firesteel.functions import state as defined_state
from firesteel.functions.metrics import MetricGroup


def test_pyflinks_module_paths_give_the_same_classes() -> None:
    assert set(public.__all__) >= set(defined.__all__)
    assert all(getattr(public, name) is getattr(defined, name) for name in defined.__all__)
    assert set(public_state.__all__) == set(defined_state.__all__)
    assert all(getattr(public_state, name) is getattr(defined_state, name) for name in defined_state.__all__)
    assert set(defined.__all__) - {"KeyedStateStore"} <= set(api.__all__)
    assert all(hasattr(api, name) for name in api.__all__)


class Context(RuntimeContext):
    def get_metrics_group(self) -> MetricGroup:
        raise NotImplementedError

    def get_state(self, state_descriptor: ValueStateDescriptor) -> ValueState[Any]:
        raise NotImplementedError

    def get_task_name(self) -> str:
        return "t"

    def get_number_of_parallel_subtasks(self) -> int:
        return 1

    def get_max_number_of_parallel_subtasks(self) -> int:
        return 1

    def get_index_of_this_subtask(self) -> int:
        return 0

    def get_attempt_number(self) -> int:
        return 0

    def get_task_name_with_subtasks(self) -> str:
        return "t (1/1)#0"

    def get_job_parameter(self, key: str, default_value: str) -> str:
        return default_value


@pytest.mark.parametrize(
    ("method", "arguments", "feature"),
    [
        ("get_list_state", [None], "list state is"),
        ("get_map_state", [None], "map state is"),
        ("get_reducing_state", [None], "reducing state is"),
        ("get_aggregating_state", [None], "aggregating state is"),
    ],
)
def test_a_runtime_context_refuses_what_comes_later(method: str, arguments: list[Any], feature: str) -> None:
    with pytest.raises(UnsupportedFeatureError, match=f"{feature} not in this version"):
        getattr(Context(), method)(*arguments)


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
    double.open(Context())
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
    with pytest.raises(UnsupportedFeatureError, match="state 'count': time-to-live"):
        descriptor.enable_time_to_live(None)
