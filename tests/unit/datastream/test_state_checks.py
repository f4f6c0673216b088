"""State that a function can't have is refused where the graph is built, with the class and the line."""

from __future__ import annotations

from typing import Any

import pytest

from firesteel.common import Types
from firesteel.core.errors import GraphError
from firesteel.datastream import (
    BroadcastProcessFunction,
    CoMapFunction,
    DataStream,
    KeyedProcessFunction,
    MapFunction,
    ProcessFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from firesteel.datastream.state import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor

RULES = MapStateDescriptor("rules", Types.STRING(), Types.STRING())
INTEGER = Types.INT()


@pytest.fixture
def stream(env: StreamExecutionEnvironment) -> DataStream:
    return env.from_collection([("a", 1)])


class Counts(MapFunction[Any, Any]):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.INT()))

    def map(self, value: Any) -> Any:
        return value


class CountsMore(Counts):
    """Inherits what it opens."""


class CountsTwo(CoMapFunction[Any, Any, Any]):
    def open(self, ctx: RuntimeContext) -> None:
        descriptor = ListStateDescriptor("all", Types.INT())
        self.all = ctx.get_list_state(descriptor)

    def map1(self, value: Any) -> Any:
        return value

    map2 = map1


class WithRules(BroadcastProcessFunction[Any, Any, Any]):
    def open(self, ctx: RuntimeContext) -> None:
        self.own = ctx.get_map_state(RULES)

    def process_element(self, value: Any, ctx: Any) -> Any:
        yield value

    process_broadcast_element = process_element


class Perhaps(ProcessFunction[Any, Any]):
    keyed = False

    def open(self, ctx: RuntimeContext) -> None:
        self.later = lambda: ctx.get_state(ValueStateDescriptor("later", Types.INT()))
        if self.keyed:
            self.count = ctx.get_state(ValueStateDescriptor("count", Types.INT()))

    def process_element(self, value: Any, ctx: Any) -> Any:
        yield value


class Elsewhere(ProcessFunction[Any, Any]):
    def open(self, ctx: RuntimeContext) -> None:
        self.client = self.connect()
        self.value = self.client.get_state("of something else")

    def connect(self) -> Any:
        return self

    def get_state(self, name: str) -> str:
        return name

    def process_element(self, value: Any, ctx: Any) -> Any:
        yield value


def test_keyed_state_needs_a_keyed_stream(stream: DataStream) -> None:
    line = Counts.open.__code__.co_firstlineno + 1
    message = (
        rf"Map: Counts\.open asks for keyed state \(get_state, .*test_state_checks\.py:{line}\), but the stream is not"
    )
    with pytest.raises(GraphError, match=message):
        stream.map(Counts())
    with pytest.raises(GraphError, match=r"CountsMore\.open asks .*call key_by\(\) before it"):
        stream.map(CountsMore())
    with pytest.raises(GraphError, match=r"Co-Map: CountsTwo\.open asks for keyed state \(get_list_state"):
        stream.connect(stream).map(CountsTwo())
    with pytest.raises(GraphError, match=r"WithRules\.open asks for keyed state \(get_map_state"):
        stream.connect(stream.broadcast(RULES)).process(WithRules())


def test_on_keyed_streams_and_where_nothing_is_certain_it_passes(stream: DataStream) -> None:
    keyed = stream.key_by(lambda value: value[0])
    keyed.map(Counts())
    keyed.connect(keyed).map(CountsTwo())
    stream.process(Perhaps())
    stream.process(Elsewhere())
    namespace: dict[str, Any] = {"MapFunction": MapFunction, "ValueStateDescriptor": ValueStateDescriptor}
    code = "class Nowhere(MapFunction):\n    def open(self, c): c.get_state(ValueStateDescriptor('a', None))\n"
    exec(code + "    def map(self, value): return value\n", namespace)
    stream.map(namespace["Nowhere"]())  # no source at hand


class Named(KeyedProcessFunction[Any, Any, Any]):
    def process_element(self, value: Any, ctx: Any) -> Any:
        yield value


class TwoTypes(Named):
    def open(self, ctx: RuntimeContext) -> None:
        self.a = ctx.get_state(ValueStateDescriptor("s", Types.INT()))
        self.b = ctx.get_state(ValueStateDescriptor("s", Types.STRING()))


class TwoKinds(Named):
    def open(self, ctx: RuntimeContext) -> None:
        first = ValueStateDescriptor("s", INTEGER)
        self.a, self.b = ctx.get_state(first), ctx.get_list_state(ListStateDescriptor("s", INTEGER))


class SameTwice(Named):
    def open(self, ctx: RuntimeContext) -> None:
        self.a = ctx.get_state(ValueStateDescriptor("s", Types.INT()))
        self.b = ctx.get_state(ValueStateDescriptor("s", INTEGER))
        self.c = ctx.get_state(ValueStateDescriptor("other", Types.STRING()))


def test_one_name_for_two_states_is_refused(stream: DataStream) -> None:
    keyed = stream.key_by(lambda value: value[0])
    with pytest.raises(GraphError, match=r"state 's' as Value.*\(Types\.INT\(\)\) \(.*py:\d+\) and as .*STR"):
        keyed.process(TwoTypes())
    with pytest.raises(GraphError, match=r"TwoKinds\.open asks for .* as ValueState.* and as ListStateDescriptor"):
        keyed.process(TwoKinds())
    keyed.process(SameTwice())


@pytest.mark.parametrize(
    "declared",
    [
        Types.LIST(Types.INT()),
        Types.MAP(Types.INT(), Types.INT()),
        Types.OBJECT_ARRAY(Types.INT()),
        Types.PRIMITIVE_ARRAY(Types.INT()),
        Types.TUPLE([Types.INT(), Types.ROW([Types.LIST(Types.INT())])]),
    ],
)
def test_types_of_keys_that_can_change_are_refused(stream: DataStream, declared: Any) -> None:
    with pytest.raises(GraphError, match="is no type of keys, as its values can change"):
        stream.key_by(lambda value: value, declared)


@pytest.mark.parametrize("declared", [Types.INSTANT(), Types.ROW([Types.INT(), Types.INSTANT()])])
def test_instants_are_no_keys(env: StreamExecutionEnvironment, stream: DataStream, declared: Any) -> None:
    with pytest.raises(GraphError, match=r"Instant.* is no type of keys: take the milliseconds"):
        stream.key_by(lambda value: value, declared)
    with pytest.raises(GraphError, match="Instant is no type of keys"):
        env.from_collection([], Types.ROW_NAMED(["at"], [Types.INSTANT()])).key_by("at")


def test_other_types_of_keys(stream: DataStream) -> None:
    for declared in (Types.PRIMITIVE_ARRAY(Types.BYTE()), Types.ROW([Types.STRING(), Types.SQL_DATE()]), None):
        stream.key_by(lambda value: value, declared)


@pytest.mark.parametrize("method", ["reduce", "sum", "min", "max", "min_by", "max_by"])
def test_methods_of_keyed_streams_say_so(stream: DataStream, method: str) -> None:
    with pytest.raises(AttributeError, match=rf"{method}\(\) belongs to keyed streams: call key_by\(\) first"):
        getattr(stream, method)
    assert not hasattr(stream, method)
    with pytest.raises(AttributeError, match="has no attribute 'no_such_method'"):
        stream.no_such_method  # type: ignore[attr-defined]
