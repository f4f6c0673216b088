"""Timestamps, watermarks and side outputs as programs ask for them, and what is made of it in the graph."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import cloudpickle
import pytest

from firesteel.common import Duration, Types, WatermarkStrategy
from firesteel.core.errors import GraphError
from firesteel.datastream import (
    CoProcessFunction,
    DataStream,
    KeyedProcessFunction,
    OutputTag,
    ProcessFunction,
    StreamExecutionEnvironment,
    TimeDomain,
    TimerService,
)
from firesteel.functions.output_tag import tags_exist
from firesteel.graph.chaining import build_job_graph
from firesteel.graph.specs import ChainSpec, OperatorKind, PartitionerKind

MONOTONOUS = WatermarkStrategy.for_monotonous_timestamps()


class Split(ProcessFunction[Any, Any]):
    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Iterable[Any]:
        yield value


class TimerWithoutKey(Split):
    def on_timer(self, timestamp: int, ctx: Any) -> None: ...


class CoTimer(CoProcessFunction[Any, Any, Any]):
    def process_element1(self, value: Any, ctx: Any) -> None: ...

    def process_element2(self, value: Any, ctx: Any) -> None: ...

    def on_timer(self, timestamp: int, ctx: Any) -> None: ...


@pytest.fixture
def env() -> StreamExecutionEnvironment:
    return StreamExecutionEnvironment.get_execution_environment()


@pytest.fixture
def numbers(env: StreamExecutionEnvironment) -> DataStream:
    return env.from_collection([1, 2, 3], Types.INT())


def chains(env: StreamExecutionEnvironment) -> list[ChainSpec]:
    chains: list[ChainSpec] = []

    def keep(chain: ChainSpec) -> bytes:
        chains.append(chain)
        return b"x" + bytes([len(chains)])

    build_job_graph(env._stream_graph(None), job_id="0" * 32, pickle_chain=keep, config={})
    return chains


def test_the_operator_keeps_the_type_and_gets_flinks_name(numbers: DataStream) -> None:
    stream = numbers.assign_timestamps_and_watermarks(MONOTONOUS)
    assert stream.get_name() == "Timestamps/Watermarks"
    assert stream.get_type() == Types.INT()
    assert stream._operator("test").kind is OperatorKind.WATERMARKS


def test_what_is_no_strategy_is_refused(numbers: DataStream) -> None:
    with pytest.raises(TypeError, match="watermark_strategy is a WatermarkStrategy"):
        numbers.assign_timestamps_and_watermarks(None)  # type: ignore[arg-type]
    aligned = MONOTONOUS.with_watermark_alignment("group", Duration.of_seconds(1))
    with pytest.raises(GraphError, match="give the strategy to from_source"):
        numbers.assign_timestamps_and_watermarks(aligned)


def test_a_tag_checks_its_id_and_type() -> None:
    with pytest.raises(ValueError, match="id of an OutputTag is empty"):
        OutputTag("")
    with pytest.raises(TypeError, match="is a str, not int"):
        OutputTag(5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="leave out the parentheses"):
        OutputTag("late", Types.INT)  # type: ignore[arg-type]
    assert OutputTag("late").type_info == Types.PICKLED_BYTE_ARRAY()
    assert OutputTag("late", [Types.INT(), Types.STRING()]).type_info == Types.ROW([Types.INT(), Types.STRING()])


def test_a_tag_survives_pickling_and_is_equal_by_id_and_type() -> None:
    tag = OutputTag[int]("late", Types.INT())
    assert cloudpickle.loads(cloudpickle.dumps(tag)) == tag
    assert tag != OutputTag("late", Types.LONG())
    assert len({tag, OutputTag("late", Types.INT()), OutputTag("early", Types.INT())}) == 2
    assert tags_exist()


def test_a_side_output_has_the_tags_type(numbers: DataStream) -> None:
    side = numbers.process(Split(), Types.INT()).get_side_output(OutputTag("words", Types.STRING()))
    assert side.get_type() == Types.STRING()
    assert side.get_name() == "SideOutput"


def test_a_tag_of_another_type_is_refused_when_the_graph_is_built(numbers: DataStream) -> None:
    stream = numbers.process(Split(), Types.INT()).name("splitter")
    stream.get_side_output(OutputTag("words", Types.STRING()))
    stream.get_side_output(OutputTag("words", Types.STRING()))
    with pytest.raises(GraphError, match="'words' of operator 'splitter' has the type String already"):
        stream.get_side_output(OutputTag("words", Types.INT()))
    with pytest.raises(TypeError, match="takes an OutputTag, not str"):
        stream.get_side_output("words")  # type: ignore[arg-type]


def test_a_side_output_belongs_to_an_operators_stream(numbers: DataStream) -> None:
    tag = OutputTag("words", Types.STRING())
    stream = numbers.process(Split())
    for other in (stream.union(stream), stream.rebalance(), stream.get_side_output(tag)):
        with pytest.raises(GraphError, match=r"get_side_output\(\) belongs to an operator"):
            other.get_side_output(tag)
    with pytest.raises(GraphError, match="for KeyedStream is not supported"):
        stream.key_by(lambda value: value).get_side_output(tag)


def test_side_outputs_keep_their_tags(env: StreamExecutionEnvironment, numbers: DataStream) -> None:
    env.set_parallelism(1)
    tag, far = OutputTag("near", Types.INT()), OutputTag("far", Types.INT())
    stream = numbers.process(Split(), Types.INT())
    stream.get_side_output(tag).map(lambda value: value).print()
    stream.get_side_output(far).rebalance().map(lambda value: value).print()
    stream.get_side_output(far).key_by(lambda value: value).map(lambda value: value).print()
    stream.print()
    first = chains(env)[0]
    kinds = [operator.kind for operator in first.operators]
    assert kinds[:2] == [OperatorKind.SOURCE, OperatorKind.PROCESS]
    assert first.operators[1].extra == {"side_outputs": {"near": Types.INT(), "far": Types.INT()}}
    assert {kinds[child]: tag for child, tag in first.tags.items()} == {OperatorKind.MAP: "near"}
    assert sorted((output.partitioner.name, output.tag) for output in first.outputs) == [
        (PartitionerKind.HASH.name, "far"),
        (PartitionerKind.REBALANCE.name, "far"),
    ]


@pytest.mark.parametrize("keyed", [False, True])
def test_a_timer_that_would_never_fire_is_refused(numbers: DataStream, keyed: bool) -> None:
    with pytest.raises(TypeError, match=r"TimerWithoutKey\.on_timer would never be called"):
        numbers.process(TimerWithoutKey())
    both = numbers.connect(numbers)
    if keyed:
        both = both.key_by(lambda value: value, lambda value: value)
    with pytest.raises(TypeError, match="derive from KeyedCoProcessFunction"):
        both.process(CoTimer())


def test_pyflinks_names_are_there() -> None:
    from firesteel.datastream.output_tag import OutputTag as Tag
    from firesteel.datastream.time_domain import TimeDomain as Domain
    from firesteel.datastream.timerservice import TimerService as Service

    assert (Tag, Domain, Service) == (OutputTag, TimeDomain, TimerService)
    assert (TimeDomain.EVENT_TIME.value, TimeDomain.PROCESSING_TIME.value) == (0, 1)
    assert issubclass(KeyedProcessFunction.OnTimerContext, KeyedProcessFunction.Context)
