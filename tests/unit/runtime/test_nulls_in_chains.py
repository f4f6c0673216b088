"""None passes inside a chain whatever the declared type, and never leaves it: as in PyFlink, and in both modes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from firesteel.common import Configuration, Types
from firesteel.datastream import (
    DataStream,
    OutputTag,
    ProcessFunction,
    SinkFunction,
    StreamExecutionEnvironment,
)
from firesteel.expressions import col
from firesteel.protocol.deployment import TaskFailure
from firesteel.protocol.stages import failure_in
from firesteel.runtime.operator_base.failures import describe_failure
from firesteel.runtime.records.batch import Batch
from tests.unit.runtime.programs import results
from tests.unit.runtime.support import INFO
from tests.unit.runtime.test_bounded import Spark
from tests.unit.runtime.test_functions_that_raise import bounded, streaming
from tests.unit.runtime.whole_graphs import WholeGraph

ROW = Types.ROW_NAMED(["name", "age"], [Types.STRING(), Types.INT()])
TEXTS = ["1", "x", "2", "", "3"]


def parsed(text: str) -> Any:
    return int(text) if text.isdigit() else None


def parsed_row(text: str) -> Any:
    return (f"n{text}", int(text)) if text.isdigit() else None


class Parse(ProcessFunction):  # type: ignore[type-arg]
    def process_element(self, value: Any, ctx: Any) -> Any:
        yield parsed(value)


TAG = OutputTag("x", Types.INT())
UNTYPED = OutputTag("y")
RECEIVED: list[Any] = []


class Sides(ProcessFunction):  # type: ignore[type-arg]
    """Gives None to its main output, which has no type, and to the side outputs."""

    def process_element(self, value: Any, ctx: Any) -> Any:
        yield TAG, parsed(value)
        yield UNTYPED, parsed(value)
        yield parsed(value)


class Receive(SinkFunction):  # type: ignore[type-arg]
    def invoke(self, value: Any, context: Any) -> None:
        RECEIVED.append(value)


def side(stream: DataStream, tag: Any) -> DataStream:
    sides = stream.process(Sides()).name("parse")
    sides.map(str)
    return sides.get_side_output(tag)


def is_there(value: Any) -> bool:
    return value is not None


def texts(parallelism: int = 1) -> DataStream:
    env = StreamExecutionEnvironment(Configuration()).set_parallelism(parallelism)
    return env.from_collection(TEXTS).name("texts")


def streamed(stream: DataStream) -> list[Any]:
    return results(stream, lambda name: [Batch(list(TEXTS))])


def batched(stream: DataStream) -> list[Any]:
    return Spark(stream, stream.get_execution_environment()).run().collected


def streaming_failure(stream: DataStream) -> TaskFailure:
    with pytest.raises(Exception) as caught:  # noqa: PT011 - it is looked at
        streamed(stream)
    return describe_failure(caught.value, INFO)


def batch_failure(stream: DataStream) -> TaskFailure:
    with pytest.raises(RuntimeError) as caught:
        batched(stream)
    failure = failure_in(str(caught.value))
    assert failure is not None
    return TaskFailure.from_plain(failure.failure)


@pytest.mark.parametrize("run", [streamed, batched])
@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (lambda s: s.map(parsed, Types.INT()).filter(is_there), [1, 2, 3]),
        (lambda s: s.map(parsed, Types.INT()).filter(is_there).key_by(lambda v: 0).map(lambda v: -v), [-1, -2, -3]),
        (lambda s: s.map(parsed, Types.INT()).filter(is_there).filter(bool).rebalance().map(str), ["1", "2", "3"]),
        (lambda s: s.map(parsed, Types.INT()).map(lambda v: v or 0, Types.INT()), [1, 0, 2, 0, 3]),
        (lambda s: s.flat_map(lambda t: [parsed(t)], Types.INT()).filter(is_there), [1, 2, 3]),
        (lambda s: s.process(Parse(), Types.INT()).filter(is_there), [1, 2, 3]),
        (lambda s: s.map(parsed_row, ROW).filter(is_there).map(lambda r: r.age), [1, 2, 3]),
        (lambda s: s.map(parsed_row, ROW).filter(is_there).filter(col("age") > 1).map(lambda r: r.age), [2, 3]),
        (lambda s: s.map(parsed), [1, None, 2, None, 3]),
        (lambda s: side(s, TAG).filter(is_there), [1, 2, 3]),
        (lambda s: side(s, TAG).filter(is_there).key_by(lambda v: 0).map(lambda v: -v), [-1, -2, -3]),
        (lambda s: side(s, TAG).map(lambda v: v or 0, Types.INT()), [1, 0, 2, 0, 3]),
        (lambda s: side(s, UNTYPED), [1, None, 2, None, 3]),
        (lambda s: s.process(Sides()), [1, None, 2, None, 3]),
    ],
)
def test_none_is_taken_out_in_the_chain(build: Callable[[DataStream], DataStream], expected: Any, run: Any) -> None:
    assert sorted(run(build(texts())), key=str) == sorted(expected, key=str)


@pytest.mark.parametrize("failure_of", [streaming_failure, batch_failure])
@pytest.mark.parametrize(
    "build",
    [
        lambda s: s.map(parsed, Types.INT()).name("parse"),
        lambda s: s.map(parsed, Types.INT()).name("parse").rebalance().filter(is_there).set_parallelism(2),
        lambda s: s.map(parsed, Types.INT()).name("parse").filter(lambda v: True).key_by(lambda v: 0).map(str),
        lambda s: s.flat_map(lambda t: [parsed(t)], Types.INT()).name("parse"),
        lambda s: s.process(Parse(), Types.INT()).name("parse"),
        lambda s: side(s, TAG),
        lambda s: side(s, TAG).filter(lambda v: True).key_by(lambda v: 0).map(str),
        lambda s: side(s, TAG).rebalance().filter(is_there).set_parallelism(2),
        lambda s: s.map(parsed_row, ROW).name("parse").filter(col("age") > 1),
        lambda s: s.map(parsed_row, ROW).name("parse").key_by(lambda r: 0).map(str),
    ],
)
def test_none_does_not_leave_the_chain(build: Callable[[DataStream], DataStream], failure_of: Any) -> None:
    failure = failure_of(build(texts()))
    assert (failure.kind, failure.operator, failure.record) == ("type", "parse", "None"), failure
    assert "None may only pass between operators of one chain" in failure.message
    assert ("Integer" in failure.message) or ("ROW" in failure.message.upper())


@pytest.mark.parametrize("run_job", [streaming, bounded])
@pytest.mark.parametrize(
    "build",
    [
        lambda s: s.map(parsed, Types.INT()).name("parse"),
        lambda s: s.map(parsed, Types.INT()).name("parse").filter(lambda v: True),
        lambda s: side(s, TAG),
    ],
)
def test_a_sink_function_of_the_user_is_a_sink(build: Callable[[DataStream], DataStream], run_job: Any) -> None:
    """A declared type counts there; without one it gets what there is."""
    env = StreamExecutionEnvironment(Configuration()).set_parallelism(1)
    build(env.from_collection(TEXTS)).add_sink(Receive())
    failure = run_job(env)
    assert (failure.kind, failure.operator, failure.record) == ("type", "parse", "None"), failure
    assert "None may only pass between operators of one chain" in failure.message


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (lambda s: s.map(parsed, Types.INT()).filter(is_there), [1, 2, 3]),
        (lambda s: s.map(parsed), [1, None, 2, None, 3]),
        (lambda s: side(s, UNTYPED), [1, None, 2, None, 3]),
    ],
)
def test_a_sink_function_without_a_declared_type_gets_none(
    build: Callable[[DataStream], DataStream], expected: Any
) -> None:
    RECEIVED.clear()
    env = StreamExecutionEnvironment(Configuration()).set_parallelism(1)
    build(env.from_collection(TEXTS)).add_sink(Receive())
    WholeGraph(env._stream_graph(None)).run()
    assert expected == RECEIVED
