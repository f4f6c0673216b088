"""Functions of each kind, and how the tests look at what was submitted."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from firesteel.common import Types
from firesteel.datastream import (
    CoFlatMapFunction,
    CoMapFunction,
    CoProcessFunction,
    FilterFunction,
    FlatMapFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    KeySelector,
    MapFunction,
    Partitioner,
    ProcessFunction,
    ReduceFunction,
    SinkFunction,
    StreamExecutionEnvironment,
)
from firesteel.functions.sink import Sink, SinkWriter, WriterContext
from firesteel.graph.stream_graph import StreamNode
from tests.unit.datastream.fakes import FakeExecutor

PICKLED = Types.PICKLED_BYTE_ARRAY()


class MyMap(MapFunction[Any, Any]):
    def map(self, value: Any) -> Any:
        return value


class MyFlatMap(FlatMapFunction[Any, Any]):
    def flat_map(self, value: Any) -> Iterable[Any]:
        yield value


class MyFilter(FilterFunction[Any]):
    def filter(self, value: Any) -> bool:
        return True


class MyReduce(ReduceFunction[Any]):
    def reduce(self, value1: Any, value2: Any) -> Any:
        return value1


class MyKey(KeySelector[Any, Any]):
    def get_key(self, value: Any) -> Any:
        return value[0]


class MyPartitioner(Partitioner[Any]):
    def partition(self, key: Any, num_partitions: int) -> int:
        return 0


class MyProcess(ProcessFunction[Any, Any]):
    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Iterable[Any]:
        yield value


class MyKeyedProcess(KeyedProcessFunction[Any, Any, Any]):
    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterable[Any]:
        yield value


class MyCoMap(CoMapFunction[Any, Any, Any]):
    def map1(self, value: Any) -> Any:
        return value

    def map2(self, value: Any) -> Any:
        return value


class MyCoFlatMap(CoFlatMapFunction[Any, Any, Any]):
    def flat_map1(self, value: Any) -> Iterable[Any]:
        yield value

    def flat_map2(self, value: Any) -> Iterable[Any]:
        yield value


class MyCoProcess(CoProcessFunction[Any, Any, Any]):
    def process_element1(self, value: Any, ctx: CoProcessFunction.Context) -> Iterable[Any]:
        yield value

    def process_element2(self, value: Any, ctx: CoProcessFunction.Context) -> Iterable[Any]:
        yield value


class MyKeyedCoProcess(KeyedCoProcessFunction[Any, Any, Any, Any]):
    def process_element1(self, value: Any, ctx: KeyedCoProcessFunction.Context) -> Iterable[Any]:
        yield value

    def process_element2(self, value: Any, ctx: KeyedCoProcessFunction.Context) -> Iterable[Any]:
        yield value


class MySinkFunction(SinkFunction[Any]):
    def invoke(self, value: Any, context: SinkFunction.Context) -> None: ...


class MySink(Sink[Any]):
    def create_writer(self, context: WriterContext) -> SinkWriter[Any]:
        raise AssertionError("no writer is made at the client")


def identity(value: Any) -> Any:
    return value


async def coroutine(value: Any) -> Any:
    return value


def last(executor: FakeExecutor, env: StreamExecutionEnvironment) -> StreamNode:
    """The operator that was added last."""
    env.execute()
    return list(executor.graphs[-1].nodes.values())[-1]
