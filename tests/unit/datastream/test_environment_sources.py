"""Sources of an environment besides ``from_source``, and what is said of those that can't be replayed."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from firesteel.common import Types
from firesteel.core.errors import ProgramError
from firesteel.datastream import ParallelSourceFunction, SourceFunction, StreamExecutionEnvironment
from firesteel.datastream.checkpointing_mode import CheckpointingMode
from firesteel.datastream.formats.avro import AvroInputFormat, AvroSchema
from firesteel.graph.job_graph import JobGraph
from firesteel.graph.plan import job_plan
from tests.unit.datastream.fakes import FakeExecutor
from tests.unit.graph.graphs import build


class Ones(SourceFunction[int]):
    def run(self, ctx: SourceFunction.SourceContext[int]) -> None:
        ctx.collect(1)

    def cancel(self) -> None:
        pass


class ManyOnes(Ones, ParallelSourceFunction[int]):
    pass


def test_source_functions(env: StreamExecutionEnvironment, executor: FakeExecutor) -> None:
    env.set_parallelism(3)
    stream = env.add_source(Ones(), type_info=Types.INT())
    assert stream.get_type() == Types.INT()
    stream.print()
    env.add_source(ManyOnes(), "many").print()
    env.execute()
    parallelisms = {node.name: node.parallelism for node in executor.graphs[0].nodes.values() if node.is_source}
    assert parallelisms == {"Source: Custom Source": 1, "Source: many": 3}


def test_text_of_files_and_sockets(env: StreamExecutionEnvironment, executor: FakeExecutor, tmp_path: Path) -> None:
    assert env.read_text_file(tmp_path, "latin-1").get_type() == Types.STRING()
    stream = env.socket_text_stream("localhost", 9999)
    assert stream.get_type() == Types.STRING()
    assert stream.get_name() == "Socket Stream"
    stream.print()
    env.set_parallelism(4).execute()
    assert [node.parallelism for node in executor.graphs[0].nodes.values() if node.is_source] == [1]


def test_input_formats(env: StreamExecutionEnvironment, tmp_path: Path) -> None:
    schema = AvroSchema.parse_string('{"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}')
    stream = env.create_input(AvroInputFormat(tmp_path, schema))
    assert str(stream.get_type()).startswith('GenericRecord("{')


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda env: env.add_source(Ones), TypeError, r"write Ones\(\), not Ones"),
        (lambda env: env.add_source(5), TypeError, "takes a SourceFunction, not int"),
        (lambda env: env.create_input(5), TypeError, "InputFormat, not int"),
        (lambda env: env.socket_text_stream("h", 0), ProgramError, "port is between 1 and 65535, not 0"),
        (lambda env: env.socket_text_stream("h", 1, ""), ProgramError, "the delimiter is a text"),
        (lambda env: env.socket_text_stream("h", 1, max_retries=-2), ProgramError, "at least -1"),
        (lambda env: env.read_text_file("ftp://host/x"), ProgramError, "there is no file system for ftp"),
        (lambda env: env.read_text_file("/tmp", "nonsense"), ProgramError, "unknown charset 'nonsense'"),
    ],
)
def test_what_is_refused(env: StreamExecutionEnvironment, call: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        call(env)


def test_plans_say_which_sources_can_not_be_replayed(env: StreamExecutionEnvironment, executor: FakeExecutor) -> None:
    env.add_source(Ones(), type_info=Types.LONG()).union(env.from_sequence(1, 2)).print()
    nodes = {node["type"]: node for node in json.loads(env.get_execution_plan())["nodes"]}
    assert nodes["Source: Custom Source"]["guarantee"] == "AT_MOST_ONCE"
    assert "guarantee" not in nodes["Source: Sequence Source"]
    env.execute()
    graph, _ = build(executor.graphs[0])
    again = JobGraph.from_plain(json.loads(json.dumps(graph.to_plain())))
    guarantees = {node["description"]: node.get("guarantee") for node in job_plan(again)["nodes"]}
    assert guarantees["Source: Custom Source<br/>"] == "AT_MOST_ONCE"
    assert guarantees["Source: Sequence Source<br/>"] is None


@pytest.mark.parametrize(
    ("interval", "mode", "warned"),
    [
        (None, CheckpointingMode.EXACTLY_ONCE, False),
        (1000, CheckpointingMode.EXACTLY_ONCE, True),
        (1000, CheckpointingMode.AT_LEAST_ONCE, False),
    ],
)
def test_a_job_of_exactly_once_with_a_source_function_is_warned_about(
    env: StreamExecutionEnvironment,
    caplog: pytest.LogCaptureFixture,
    interval: int | None,
    mode: CheckpointingMode,
    warned: bool,
) -> None:
    if interval is not None:
        env.enable_checkpointing(interval, mode)
    env.add_source(Ones()).print()
    env.from_sequence(1, 2).print()
    with caplog.at_level(logging.WARNING):
        env.execute()
    said = [record.getMessage() for record in caplog.records if "can't be replayed" in record.getMessage()]
    assert [text.partition(" can't")[0] for text in said] == (["Source: Custom Source"] if warned else [])
