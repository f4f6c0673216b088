from __future__ import annotations

from typing import Any

import pytest

from firesteel.common import Types
from firesteel.core.errors import GraphError, UnsupportedFeatureError
from firesteel.datastream import (
    DataStream,
    SlotSharingGroup,
    StreamExecutionEnvironment,
)
from firesteel.graph.specs import OperatorKind, PartitionerKind
from firesteel.graph.stream_graph import ChainingStrategy
from tests.unit.datastream.fakes import FakeExecutor
from tests.unit.datastream.user_functions import (
    PICKLED,
    MyFilter,
    MyFlatMap,
    MyKey,
    MyMap,
    MyPartitioner,
    MyProcess,
    MySink,
    MySinkFunction,
    identity,
    last,
)


@pytest.mark.parametrize(
    ("method", "function", "name", "kind"),
    [
        ("map", identity, "Map", OperatorKind.MAP),
        ("map", MyMap(), "Map", OperatorKind.MAP),
        ("map", str, "Map", OperatorKind.MAP),
        ("flat_map", identity, "FlatMap", OperatorKind.FLAT_MAP),
        ("flat_map", MyFlatMap(), "FlatMap", OperatorKind.FLAT_MAP),
        ("process", MyProcess(), "PROCESS", OperatorKind.PROCESS),
    ],
)
@pytest.mark.parametrize("output_type", [None, Types.INT(), PICKLED])
def test_operators_with_an_output_type(
    env: StreamExecutionEnvironment,
    executor: FakeExecutor,
    pairs: DataStream,
    method: str,
    function: Any,
    name: str,
    kind: OperatorKind,
    output_type: Any,
) -> None:
    stream = getattr(pairs, method)(function, output_type)
    assert (stream.get_name(), stream.get_type()) == (name, output_type or PICKLED)
    operator = last(executor, env).operator
    assert (operator.kind, operator.function, operator.key_selectors) == (kind, function, ())
    assert operator.output_type == (Types.INT() if output_type == Types.INT() else None)


@pytest.mark.parametrize("function", [bool, MyFilter()])
def test_filter_keeps_the_type(
    env: StreamExecutionEnvironment, executor: FakeExecutor, pairs: DataStream, function: Any
) -> None:
    stream = pairs.filter(function)
    assert stream.get_type() == pairs.get_type()
    operator = last(executor, env).operator
    assert (operator.kind, operator.function, operator.output_type) == (OperatorKind.FILTER, function, None)


def test_project(env: StreamExecutionEnvironment, executor: FakeExecutor, pairs: DataStream) -> None:
    stream = pairs.project(1, 0, 1)
    assert str(stream.get_type()) == "TupleTypeInfo(Integer, String, Integer)"
    assert stream.get_name() == "Projection"
    assert last(executor, env).operator.function(("x", 5)) == (5, "x", 5)
    with pytest.raises(TypeError, match="Only Tuple DataStreams can be projected"):
        pairs.map(identity).project(0)
    with pytest.raises(ValueError, match="at least one field index"):
        pairs.project()
    with pytest.raises(ValueError, match="between 0 and 1, not 2"):
        pairs.project(2)


def test_settings_reach_the_graph(env: StreamExecutionEnvironment, executor: FakeExecutor, pairs: DataStream) -> None:
    stream = pairs.map(identity)
    chained = (
        stream.name("n")
        .uid("u")
        .set_uid_hash("ab" * 16)
        .set_description("d")
        .set_parallelism(4)
        .set_max_parallelism(40)
        .set_buffer_timeout(5)
        .slot_sharing_group("g")
        .start_new_chain()
    )
    assert chained is stream
    assert stream.get_name() == "n"
    node = last(executor, env)
    assert (node.name, node.uid, node.uid_hash, node.description) == ("n", "u", "ab" * 16, "d")
    assert (node.parallelism, node.max_parallelism, node.buffer_timeout_ms) == (4, 40, 5)
    assert (node.slot_sharing_group, node.chaining_strategy) == ("g", ChainingStrategy.HEAD)


def test_settings_of_a_sink_reach_the_graph(
    env: StreamExecutionEnvironment, executor: FakeExecutor, pairs: DataStream
) -> None:
    group = SlotSharingGroup.builder("g").build()
    pairs.print().name("n").uid("u").set_description("d").set_parallelism(4).disable_chaining().slot_sharing_group(
        group
    )
    node = last(executor, env)
    assert (node.name, node.uid, node.description, node.parallelism) == ("Sink: n", "u", "d", 4)
    assert (node.slot_sharing_group, node.chaining_strategy) == ("g", ChainingStrategy.NEVER)


def test_force_non_parallel(env: StreamExecutionEnvironment, executor: FakeExecutor, pairs: DataStream) -> None:
    stream = pairs.map(identity).force_non_parallel()
    with pytest.raises(GraphError, match="'Map': the parallelism of a non-parallel operator is 1"):
        stream.set_parallelism(3)
    node = last(executor, env)
    assert (node.parallelism, node.max_parallelism) == (1, 1)


@pytest.mark.parametrize(
    ("method", "value", "error"),
    [
        ("name", "", ValueError),
        ("name", 3, TypeError),
        ("uid", "", ValueError),
        ("set_uid_hash", "ABCD" * 8, ValueError),
        ("set_uid_hash", "ab", ValueError),
        ("set_description", None, TypeError),
        ("set_parallelism", 0, ValueError),
        ("set_parallelism", 1.5, TypeError),
        ("set_max_parallelism", 0, ValueError),
        ("set_max_parallelism", 32769, ValueError),
        ("set_buffer_timeout", -2, ValueError),
        ("slot_sharing_group", "", ValueError),
        ("slot_sharing_group", 3, TypeError),
        (
            "slot_sharing_group",
            SlotSharingGroup.builder("x").set_cpu_cores(1).set_task_heap_memory_mb(1).build(),
            UnsupportedFeatureError,
        ),
    ],
)
def test_bad_settings_are_refused_and_change_nothing(
    env: StreamExecutionEnvironment,
    executor: FakeExecutor,
    pairs: DataStream,
    method: str,
    value: Any,
    error: type[Exception],
) -> None:
    stream = pairs.map(identity)
    with pytest.raises(error):
        getattr(stream, method)(value)
    node = last(executor, env)
    assert (node.name, node.uid, node.uid_hash, node.parallelism, node.slot_sharing_group) == (
        "Map", None, None, 2, "default",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("method", "kind"),
    [
        ("shuffle", PartitionerKind.SHUFFLE),
        ("rebalance", PartitionerKind.REBALANCE),
        ("rescale", PartitionerKind.RESCALE),
        ("broadcast", PartitionerKind.BROADCAST),
        ("global_", PartitionerKind.GLOBAL),
    ],
)
def test_partitioning(
    env: StreamExecutionEnvironment, executor: FakeExecutor, pairs: DataStream, method: str, kind: PartitionerKind
) -> None:
    spread = getattr(pairs, method)()
    assert (spread.get_type(), spread.get_name()) == (pairs.get_type(), "Partition")
    spread.map(identity).set_parallelism(3)
    assert [e.partitioner for e in last(executor, env).in_edges] == [kind]


def test_forward(env: StreamExecutionEnvironment, executor: FakeExecutor, pairs: DataStream) -> None:
    pairs.forward().map(identity).set_parallelism(1)
    assert [e.partitioner for e in last(executor, env).in_edges] == [PartitionerKind.FORWARD]
    pairs.forward().map(identity).set_parallelism(2)
    with pytest.raises(GraphError, match=r"forward\(\) from 'Source: Collection Source' \(parallelism 1\)"):
        env.execute()


def test_the_last_partitioning_counts(
    env: StreamExecutionEnvironment, executor: FakeExecutor, pairs: DataStream
) -> None:
    pairs.shuffle().broadcast().rescale().map(identity)
    assert [e.partitioner for e in last(executor, env).in_edges] == [PartitionerKind.RESCALE]


def test_partition_custom(env: StreamExecutionEnvironment, executor: FakeExecutor, pairs: DataStream) -> None:
    selector, partitioner = MyKey(), MyPartitioner()
    pairs.partition_custom(max, identity).map(identity)
    (edge,) = last(executor, env).in_edges
    assert (edge.partitioner, edge.key_selector, edge.partition) == (PartitionerKind.CUSTOM, identity, max)
    pairs.partition_custom(partitioner, selector).map(identity)
    (edge,) = last(executor, env).in_edges
    travels: tuple[Any, Any] = (edge.key_selector, edge.partition)
    assert travels == (selector, partitioner)


@pytest.mark.parametrize("method", ["name", "uid", "set_parallelism", "start_new_chain", "force_non_parallel"])
@pytest.mark.parametrize("kind", ["partition", "union"])
def test_what_is_no_operator_has_no_settings(pairs: DataStream, method: str, kind: str) -> None:
    stream = pairs.shuffle() if kind == "partition" else pairs.union(pairs)
    values: dict[str, list[Any]] = {"set_parallelism": [2], "name": ["n"], "uid": ["u"]}
    with pytest.raises(GraphError, match=rf"{method}\(\) belongs to an operator, but this stream is a {kind}"):
        getattr(stream, method)(*values.get(method, []))


def test_union(env: StreamExecutionEnvironment, executor: FakeExecutor, pairs: DataStream) -> None:
    other = env.from_collection([("c", 3)], pairs.get_type())
    united = pairs.union(other.shuffle(), pairs)
    assert (united.get_name(), united.get_type()) == ("Union", pairs.get_type())
    united.map(identity)
    assert [(e.source, e.input_index, e.partitioner) for e in last(executor, env).in_edges] == [
        (1, 0, PartitionerKind.REBALANCE),
        (2, 0, PartitionerKind.SHUFFLE),
        (1, 0, PartitionerKind.REBALANCE),
    ]


def test_a_partitioned_union(env: StreamExecutionEnvironment, executor: FakeExecutor, pairs: DataStream) -> None:
    pairs.union(pairs.map(identity, pairs.get_type())).broadcast().map(identity)
    assert [e.partitioner for e in last(executor, env).in_edges] == [PartitionerKind.BROADCAST] * 2


def test_union_and_connect_check_their_streams(env: StreamExecutionEnvironment, pairs: DataStream) -> None:
    with pytest.raises(GraphError, match=r"union\(\) needs streams of one type, not TupleTypeInfo.* and Pickled"):
        pairs.union(pairs.map(identity))
    stranger = StreamExecutionEnvironment(executor=FakeExecutor()).from_collection([1], pairs.get_type())
    for method in ("union", "connect"):
        with pytest.raises(GraphError, match=rf"{method}\(\): the streams come from different environments"):
            getattr(pairs, method)(stranger)
        with pytest.raises(TypeError, match=rf"{method}\(\) takes a DataStream, not list"):
            getattr(pairs, method)([1])


def test_sinks(env: StreamExecutionEnvironment, executor: FakeExecutor, pairs: DataStream) -> None:
    function, sink = MySinkFunction(), MySink()
    pairs.add_sink(function)
    pairs.sink_to(sink)
    pairs.print()
    env.execute()
    nodes = list(executor.graphs[0].nodes.values())[1:]
    assert [(n.name, n.operator.kind, n.operator.function) for n in nodes] == [
        ("Sink: Unnamed", OperatorKind.SINK_FUNCTION, function),
        ("Sink: Writer", OperatorKind.SINK, sink),
        ("Sink: Print to Std. Out", OperatorKind.PRINT, None),
    ]
    assert nodes[2].operator.extra == {"identifier": "", "input_type": pairs.get_type()}
