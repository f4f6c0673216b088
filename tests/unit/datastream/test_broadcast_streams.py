from __future__ import annotations

from typing import Any

import pytest

from firesteel.common import Time, Types
from firesteel.core.errors import GraphError
from firesteel.datastream import (
    BroadcastConnectedStream,
    BroadcastProcessFunction,
    BroadcastStream,
    DataStream,
    KeyedBroadcastProcessFunction,
    StreamExecutionEnvironment,
)
from firesteel.datastream.state import MapStateDescriptor, StateTtlConfig, ValueStateDescriptor
from firesteel.graph.specs import OperatorKind, PartitionerKind
from tests.unit.datastream.fakes import FakeExecutor
from tests.unit.datastream.user_functions import MyProcess, identity, last

RULES = MapStateDescriptor("rules", Types.STRING(), Types.INT())
LIMITS = MapStateDescriptor("limits", Types.STRING(), Types.INT())


class Plain(BroadcastProcessFunction[Any, Any, Any]):
    def process_element(self, value: Any, ctx: Any) -> Any: ...

    def process_broadcast_element(self, value: Any, ctx: Any) -> Any: ...


class Keyed(KeyedBroadcastProcessFunction[Any, Any, Any, Any]):
    def process_element(self, value: Any, ctx: Any) -> Any: ...

    def process_broadcast_element(self, value: Any, ctx: Any) -> Any: ...


@pytest.mark.parametrize("keyed", [False, True])
def test_the_graph_has_one_operator_with_a_broadcast_edge(
    env: StreamExecutionEnvironment, executor: FakeExecutor, pairs: DataStream, keyed: bool
) -> None:
    rules = env.from_collection(["x"], Types.STRING()).broadcast(RULES, LIMITS)
    assert isinstance(rules, BroadcastStream)
    connected = (pairs.key_by(identity) if keyed else pairs).connect(rules)
    assert isinstance(connected, BroadcastConnectedStream)
    function = Keyed() if keyed else Plain()
    stream = connected.process(function, Types.STRING())
    name, kind = (
        ("Co-Process-Broadcast-Keyed", OperatorKind.KEYED_BROADCAST_PROCESS)
        if keyed
        else ("Co-Process-Broadcast", OperatorKind.BROADCAST_PROCESS)
    )
    assert (stream.get_name(), stream.get_type()) == (name, Types.STRING())
    node = last(executor, env)
    assert (node.operator.kind, node.operator.function) == (kind, function)
    assert node.operator.key_selectors == ((identity,) if keyed else ())
    assert node.operator.extra["broadcast_states"] == (RULES, LIMITS)
    kinds = {edge.input_index: edge.partitioner for edge in node.in_edges}
    assert kinds[1] is PartitionerKind.BROADCAST
    assert (kinds[0] is PartitionerKind.HASH) == keyed


def test_without_a_descriptor_broadcast_gives_a_stream(pairs: DataStream) -> None:
    assert isinstance(pairs.broadcast(), DataStream)


def test_wrong_descriptors(pairs: DataStream) -> None:
    with pytest.raises(TypeError, match="takes MapStateDescriptors, not ValueStateDescriptor"):
        pairs.broadcast(ValueStateDescriptor("n", Types.INT()))  # type: ignore[call-overload]
    with pytest.raises(GraphError, match="two states of the name 'rules'"):
        pairs.broadcast(RULES, MapStateDescriptor("rules", Types.STRING(), Types.STRING()))
    mortal = MapStateDescriptor("mortal", Types.STRING(), Types.INT())
    mortal.enable_time_to_live(StateTtlConfig.new_builder(Time.hours(1)).build())
    with pytest.raises(GraphError, match="'mortal' can't have a time-to-live"):
        pairs.broadcast(mortal)
    with pytest.raises(GraphError, match="Cannot override partitioning"):
        pairs.key_by(identity).broadcast(RULES)


def test_wrong_functions(pairs: DataStream) -> None:
    rules = pairs.broadcast(RULES)
    with pytest.raises(TypeError, match=r"key the stream first: key_by\(...\)\.connect"):
        pairs.connect(rules).process(Keyed())
    with pytest.raises(TypeError, match=r"takes a KeyedBroadcastProcessFunction, not Plain \(the stream is keyed\)"):
        pairs.key_by(identity).connect(rules).process(Plain())
    with pytest.raises(TypeError, match="takes an instance"):
        pairs.connect(rules).process(Plain)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="takes a BroadcastProcessFunction, not MyProcess"):
        pairs.connect(rules).process(MyProcess())  # type: ignore[arg-type]


def test_streams_of_two_environments_do_not_connect(pairs: DataStream) -> None:
    other = StreamExecutionEnvironment.get_execution_environment().from_collection([1]).broadcast(RULES)
    with pytest.raises(GraphError, match="different environments"):
        pairs.connect(other)
