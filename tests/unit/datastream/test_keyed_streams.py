from __future__ import annotations

import json
import pickle
from typing import Any

import pytest

from firesteel.common import Row, Types
from firesteel.core.errors import GraphError
from firesteel.datastream import (
    DataStream,
    KeyedStream,
    StreamExecutionEnvironment,
)
from firesteel.graph.specs import OperatorKind, PartitionerKind
from tests.unit.datastream.fakes import FakeExecutor
from tests.unit.datastream.user_functions import (
    PICKLED,
    MyCoFlatMap,
    MyCoMap,
    MyCoProcess,
    MyFilter,
    MyFlatMap,
    MyKey,
    MyKeyedCoProcess,
    MyKeyedProcess,
    MyMap,
    MyReduce,
    MySinkFunction,
    identity,
    last,
)


def test_a_keyed_operator_and_its_edge_share_the_selector(
    env: StreamExecutionEnvironment, executor: FakeExecutor, pairs: DataStream
) -> None:
    for selector in (identity, MyKey()):
        pairs.key_by(selector).process(MyKeyedProcess())
        node = last(executor, env)
        (edge,) = node.in_edges
        assert (edge.partitioner, node.operator.kind) == (PartitionerKind.HASH, OperatorKind.KEYED_PROCESS)
        assert node.operator.key_selectors[0] is edge.key_selector is selector


@pytest.mark.parametrize(
    ("method", "function", "kind", "keyed"),
    [
        ("map", MyMap(), OperatorKind.KEYED_MAP, True),
        ("map", identity, OperatorKind.MAP, False),
        ("flat_map", MyFlatMap(), OperatorKind.KEYED_FLAT_MAP, True),
        ("flat_map", identity, OperatorKind.FLAT_MAP, False),
        ("filter", MyFilter(), OperatorKind.KEYED_FILTER, True),
        ("filter", bool, OperatorKind.FILTER, False),
        ("reduce", MyReduce(), OperatorKind.REDUCE, True),
        ("reduce", max, OperatorKind.REDUCE, True),
        ("process", MyKeyedProcess(), OperatorKind.KEYED_PROCESS, True),
    ],
)
def test_keyed_operators(
    env: StreamExecutionEnvironment,
    executor: FakeExecutor,
    pairs: DataStream,
    method: str,
    function: Any,
    kind: OperatorKind,
    keyed: bool,
) -> None:
    stream = getattr(pairs.key_by(identity), method)(function)
    assert not isinstance(stream, KeyedStream)
    keeps = method in ("filter", "reduce")
    assert stream.get_type() == (pairs.get_type() if keeps else PICKLED)
    node = last(executor, env)
    assert [e.partitioner for e in node.in_edges] == [PartitionerKind.HASH]
    assert (node.operator.kind, node.operator.function) == (kind, function)
    assert node.operator.key_selectors == ((identity,) if keyed else ())
    assert node.operator.output_type == (pairs.get_type() if method == "reduce" else None)


def test_keyed_operators_take_an_output_type(
    env: StreamExecutionEnvironment, executor: FakeExecutor, pairs: DataStream
) -> None:
    for method, function in (("map", MyMap()), ("flat_map", MyFlatMap()), ("process", MyKeyedProcess())):
        stream = getattr(pairs.key_by(identity), method)(function, output_type=Types.LONG())
        assert stream.get_type() == last(executor, env).operator.output_type == Types.LONG()


def test_the_type_of_a_keyed_stream(pairs: DataStream) -> None:
    assert str(pairs.key_by(identity, Types.STRING()).get_type()) == (
        "RowTypeInfo(f0: String, f1: TupleTypeInfo(String, Integer))"
    )
    assert str(pairs.map(identity).key_by(identity).get_type()) == (
        "RowTypeInfo(f0: PickledByteArrayTypeInfo, f1: PickledByteArrayTypeInfo)"
    )


def test_keying_again_keys_the_original_stream(
    env: StreamExecutionEnvironment, executor: FakeExecutor, pairs: DataStream
) -> None:
    pairs.key_by(identity).key_by(len).map(MyMap())
    (edge,) = last(executor, env).in_edges
    assert (edge.source, edge.key_selector) == (1, len)


def test_printing_a_keyed_stream_prints_its_records(
    env: StreamExecutionEnvironment, executor: FakeExecutor, pairs: DataStream
) -> None:
    pairs.key_by(identity).print("id")
    node = last(executor, env)
    assert [e.partitioner for e in node.in_edges] == [PartitionerKind.HASH]
    assert node.operator.extra == {"identifier": "id", "input_type": pairs.get_type()}
    assert len(executor.graphs[0].nodes) == 2


def test_collecting_a_keyed_stream_gives_rows_of_key_and_record(
    env: StreamExecutionEnvironment, executor: FakeExecutor, pairs: DataStream
) -> None:
    keyed = pairs.key_by(MyKey(), Types.STRING())
    keyed.execute_and_collect()
    _, mapped, collect = executor.graphs[0].nodes.values()
    assert [e.partitioner for e in mapped.in_edges] == [PartitionerKind.HASH]
    assert mapped.operator.output_type == keyed.get_type()
    function = pickle.loads(pickle.dumps(mapped.operator.function))
    assert function(("a", 1)) == Row("a", ("a", 1))
    assert collect.operator.kind is OperatorKind.COLLECT


def test_a_union_of_keyed_streams_has_the_records_spread_by_key(
    env: StreamExecutionEnvironment, executor: FakeExecutor, pairs: DataStream
) -> None:
    united = pairs.key_by(identity).union(pairs.key_by(len), pairs)
    assert united.get_type() == pairs.get_type()
    united.add_sink(MySinkFunction())
    plan = json.loads(env.get_execution_plan())
    keyed = [n for n in plan["nodes"] if n["type"] == "_keyed_stream_values_operator"]
    assert [n["predecessors"][0]["ship_strategy"] for n in keyed] == ["HASH", "HASH"]
    assert [p["id"] for p in plan["nodes"][-1]["predecessors"]] == [keyed[0]["id"], keyed[1]["id"], 1]


def test_partitioning_and_projecting_keep_to_the_record_type(pairs: DataStream) -> None:
    assert str(pairs.key_by(identity).project(1).get_type()) == "TupleTypeInfo(Integer)"


@pytest.mark.parametrize(
    ("method", "arguments"),
    [
        ("name", ["n"]),
        ("get_name", []),
        ("uid", ["u"]),
        ("set_uid_hash", ["ab" * 16]),
        ("set_description", ["d"]),
        ("set_parallelism", [2]),
        ("set_max_parallelism", [2]),
        ("force_non_parallel", []),
        ("set_buffer_timeout", [2]),
        ("start_new_chain", []),
        ("disable_chaining", []),
        ("slot_sharing_group", ["g"]),
    ],
)
def test_a_keyed_stream_is_no_operator(pairs: DataStream, method: str, arguments: list[Any]) -> None:
    with pytest.raises(GraphError, match="KeyedStream is not supported"):
        getattr(pairs.key_by(identity), method)(*arguments)
    assert pairs.get_name() == "Collection Source"


@pytest.mark.parametrize(
    ("method", "arguments"),
    [
        ("shuffle", []),
        ("rebalance", []),
        ("rescale", []),
        ("forward", []),
        ("broadcast", []),
        ("global_", []),
        ("partition_custom", [max, identity]),
    ],
)
def test_a_keyed_stream_is_not_partitioned_again(pairs: DataStream, method: str, arguments: list[Any]) -> None:
    with pytest.raises(GraphError, match="Cannot override partitioning for KeyedStream"):
        getattr(pairs.key_by(identity), method)(*arguments)


@pytest.mark.parametrize(
    ("method", "function", "kind", "name"),
    [
        ("map", MyCoMap(), OperatorKind.CO_MAP, "Co-Map"),
        ("flat_map", MyCoFlatMap(), OperatorKind.CO_FLAT_MAP, "Co-Flat-Map"),
        ("process", MyCoProcess(), OperatorKind.CO_PROCESS, "Co-Process"),
    ],
)
def test_connected_streams(
    env: StreamExecutionEnvironment,
    executor: FakeExecutor,
    pairs: DataStream,
    method: str,
    function: Any,
    kind: OperatorKind,
    name: str,
) -> None:
    other = env.from_sequence(1, 3)
    stream = getattr(pairs.connect(other.broadcast()), method)(function, Types.INT())
    assert (stream.get_name(), stream.get_type()) == (name, Types.INT())
    node = last(executor, env)
    assert (node.operator.kind, node.operator.function, node.operator.key_selectors) == (kind, function, ())
    assert node.operator.output_type == Types.INT()
    assert [(e.source, e.input_index, e.partitioner) for e in node.in_edges] == [
        (1, 0, PartitionerKind.REBALANCE),
        (2, 1, PartitionerKind.BROADCAST),
    ]


@pytest.mark.parametrize(
    ("method", "function", "kind"),
    [
        ("map", MyCoMap(), OperatorKind.KEYED_CO_MAP),
        ("flat_map", MyCoFlatMap(), OperatorKind.KEYED_CO_FLAT_MAP),
        ("process", MyCoProcess(), OperatorKind.KEYED_CO_PROCESS),
        ("process", MyKeyedCoProcess(), OperatorKind.KEYED_CO_PROCESS),
    ],
)
@pytest.mark.parametrize("late", [False, True])
def test_connected_keyed_streams(
    env: StreamExecutionEnvironment,
    executor: FakeExecutor,
    pairs: DataStream,
    method: str,
    function: Any,
    kind: OperatorKind,
    late: bool,
) -> None:
    other = env.from_sequence(1, 3)
    connected = (
        pairs.connect(other).key_by(identity, len) if late else pairs.key_by(identity).connect(other.key_by(len))
    )
    getattr(connected, method)(function)
    node = last(executor, env)
    assert (node.operator.kind, node.operator.key_selectors) == (kind, (identity, len))
    assert [(e.partitioner, e.key_selector) for e in node.in_edges] == [
        (PartitionerKind.HASH, identity),
        (PartitionerKind.HASH, len),
    ]


def test_one_keyed_side_gives_no_keyed_state(
    env: StreamExecutionEnvironment, executor: FakeExecutor, pairs: DataStream
) -> None:
    connected = pairs.key_by(identity).connect(env.from_sequence(1, 3))
    connected.map(MyCoMap())
    node = last(executor, env)
    assert (node.operator.kind, node.operator.key_selectors) == (OperatorKind.CO_MAP, ())
    assert node.in_edges[0].partitioner is PartitionerKind.HASH
    with pytest.raises(TypeError, match=r"not MyKeyedCoProcess; key both streams first"):
        connected.process(MyKeyedCoProcess())
