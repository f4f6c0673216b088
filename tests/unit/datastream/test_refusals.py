from __future__ import annotations

from typing import Any

import pytest

from firesteel.common import Time, Types
from firesteel.core.errors import GraphError, UnsupportedFeatureError
from firesteel.datastream import AsyncDataStream, DataStream, StreamExecutionEnvironment
from firesteel.functions.async_functions import AsyncFunction
from firesteel.functions.checkpointed import CheckpointedFunction
from firesteel.functions.functions import FlatMapFunction, MapFunction, Partitioner
from tests.unit.datastream.user_functions import (
    MyCoMap,
    MyFilter,
    MyKey,
    MyKeyedProcess,
    MyMap,
    MyProcess,
    MySink,
    MySinkFunction,
    coroutine,
    identity,
)


@pytest.mark.parametrize(
    ("method", "argument", "message"),
    [
        ("map", 5, r"map\(\) takes a MapFunction or a callable, not int"),
        ("map", MyMap, r"map\(\) takes an instance: write MyMap\(\), not MyMap"),
        ("map", MyFilter(), r"map\(\) takes a MapFunction or a callable, not MyFilter"),
        ("flat_map", None, r"flat_map\(\) takes a FlatMapFunction or a callable"),
        ("filter", "x", r"filter\(\) takes a FilterFunction or a callable"),
        ("process", identity, r"process\(\) takes a ProcessFunction, not function"),
        ("process", MyProcess, r"write MyProcess\(\)"),
        ("process", MyKeyedProcess(), r"not MyKeyedProcess; key the stream first"),
        ("key_by", 0, "parameter key_selector is a KeySelector or a callable, not int"),
        ("key_by", MyKey, r"parameter key_selector takes an instance: write MyKey\(\)"),
        ("key_by", MyMap(), "parameter key_selector is a KeySelector or a callable, not MyMap"),
        ("key_by", coroutine, "parameter key_selector is a KeySelector or a callable"),
        ("add_sink", identity, r"add_sink\(\) takes a SinkFunction, not function"),
        ("sink_to", MySinkFunction(), r"sink_to\(\) takes a firesteel\.functions\.sink\.Sink"),
        ("print", 3, "sink_identifier is a str, not int"),
        ("project", "x", "an int, not str"),
    ],
)
def test_wrong_types(
    env: StreamExecutionEnvironment, pairs: DataStream, method: str, argument: Any, message: str
) -> None:
    with pytest.raises(TypeError, match=message):
        getattr(pairs, method)(argument)
    with pytest.raises(GraphError, match="the graph is empty"):
        env.execute()


@pytest.mark.parametrize(
    ("method", "argument", "message"),
    [
        ("map", 5, "takes a MapFunction or a callable"),
        ("flat_map", 5, "takes a FlatMapFunction or a callable"),
        ("filter", 5, "takes a FilterFunction or a callable"),
        ("reduce", 5, "takes a ReduceFunction or a callable"),
        ("process", MyProcess(), r"takes a KeyedProcessFunction, not MyProcess \(the stream is keyed\)"),
    ],
)
def test_wrong_types_on_keyed_streams(pairs: DataStream, method: str, argument: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        getattr(pairs.key_by(identity), method)(argument)


@pytest.mark.parametrize(
    ("method", "argument"), [("map", identity), ("flat_map", MyCoMap()), ("process", MyProcess()), ("map", MyCoMap)]
)
def test_wrong_types_on_connected_streams(pairs: DataStream, method: str, argument: Any) -> None:
    with pytest.raises(TypeError):
        getattr(pairs.connect(pairs), method)(argument)


@pytest.mark.parametrize("output_type", [int, Types.INT, [Types.INT()], "Integer"])
def test_wrong_output_types(pairs: DataStream, output_type: Any) -> None:
    with pytest.raises(TypeError, match=r"output_type is .*, not a TypeInformation"):
        pairs.map(identity, output_type)
    with pytest.raises(TypeError, match=r"output_type is .*, not a TypeInformation"):
        pairs.connect(pairs).map(MyCoMap(), output_type)
    with pytest.raises(TypeError, match=r"key_type is .*, not a TypeInformation"):
        pairs.key_by(identity, output_type)


def test_partition_custom_checks_both(pairs: DataStream) -> None:
    with pytest.raises(TypeError, match="parameter partitioner is a Partitioner or a callable, not int"):
        pairs.partition_custom(5, identity)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="parameter key_selector is a KeySelector or a callable, not int"):
        pairs.partition_custom(max, 5)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("method", "arguments", "feature"),
    [
        ("map", [coroutine], "coroutine functions"),
    ],
)
def test_later_features_are_refused_by_name(pairs: DataStream, method: str, arguments: list[Any], feature: str) -> None:
    with pytest.raises(UnsupportedFeatureError, match=f"{feature}.* not in this version"):
        getattr(pairs, method)(*arguments)


def test_streams_know_where_they_belong(env: StreamExecutionEnvironment, pairs: DataStream) -> None:
    stream = pairs.map(identity).key_by(identity)
    assert stream.get_execution_environment() is env
    assert stream.get_execution_config() is env.get_config()


class AsyncMap(MapFunction[Any, Any]):
    async def map(self, value: Any) -> Any:
        return value


class AsyncOpen(MyMap):
    async def open(self, runtime_context: Any) -> None: ...  # type: ignore[override]


class AsyncClose(MySinkFunction):
    async def close(self) -> None: ...  # type: ignore[override]


class AsyncFlatMap(FlatMapFunction[Any, Any]):
    async def flat_map(self, value: Any) -> Any:
        yield value


class AsyncKey(MyKey):
    async def open(self, runtime_context: Any) -> None: ...  # type: ignore[override]


class AsyncPartition(Partitioner[Any]):
    async def partition(self, key: Any, num_partitions: int) -> Any:  # type: ignore[override]
        return 0


class AsyncWriters(MySink):
    async def create_writer(self, context: Any) -> Any: ...  # type: ignore[override]


class AsyncState(MyMap, CheckpointedFunction):
    def initialize_state(self, context: Any) -> None: ...

    async def snapshot_state(self, context: Any) -> None: ...  # type: ignore[override]


class OwnCoroutines(MyMap):
    """Methods that firesteel does not call are its own affair."""

    async def fetch(self) -> None: ...

    async def _fetch(self) -> None: ...


class AsyncWithState(AsyncFunction[Any, Any], CheckpointedFunction):
    async def open(self, runtime_context: Any) -> None: ...  # type: ignore[override]

    async def close(self) -> None: ...  # type: ignore[override]

    async def timeout(self, value: Any) -> list[Any]:  # type: ignore[override]
        return []

    async def async_invoke(self, value: Any) -> list[Any]:
        return []

    def initialize_state(self, context: Any) -> None: ...

    async def snapshot_state(self, context: Any) -> None: ...  # type: ignore[override]


@pytest.mark.parametrize(
    ("method", "arguments", "name"),
    [
        ("map", [AsyncMap()], "AsyncMap.map"),
        ("map", [AsyncOpen()], "AsyncOpen.open"),
        ("map", [AsyncState()], "AsyncState.snapshot_state"),
        ("flat_map", [AsyncFlatMap()], "AsyncFlatMap.flat_map"),
        ("add_sink", [AsyncClose()], "AsyncClose.close"),
        ("key_by", [AsyncKey()], "AsyncKey.open"),
        ("partition_custom", [AsyncPartition(), MyKey()], "AsyncPartition.partition"),
        ("sink_to", [AsyncWriters()], "AsyncWriters.create_writer"),
    ],
)
def test_coroutine_functions_that_nobody_would_await_are_refused(
    pairs: DataStream, method: str, arguments: list[Any], name: str
) -> None:
    with pytest.raises(UnsupportedFeatureError, match=rf"{name}\(\) is a coroutine function .* AsyncFunction"):
        getattr(pairs, method)(*arguments)


def test_of_asynchronous_functions_only_what_is_awaited_may_be_a_coroutine_function(pairs: DataStream) -> None:
    with pytest.raises(UnsupportedFeatureError, match=r"AsyncWithState.snapshot_state\(\) is a coroutine function"):
        AsyncDataStream.ordered_wait(pairs, AsyncWithState(), Time.seconds(1))


def test_coroutine_functions_of_the_programs_own_are_none_of_our_business(pairs: DataStream) -> None:
    pairs.map(OwnCoroutines())
