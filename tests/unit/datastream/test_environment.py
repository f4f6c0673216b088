from __future__ import annotations

import json
import os
from typing import Any

import pytest

from firesteel.common import (
    Configuration,
    Duration,
    JobExecutionResult,
    JobID,
    TimestampAssigner,
    Types,
    WatermarkStrategy,
)
from firesteel.config.definitions import hand_on
from firesteel.connectors.collection import CollectionSource
from firesteel.connectors.number_sequence import NumberSequenceSource
from firesteel.core.errors import (
    ConfigurationError,
    GraphError,
    JobFailedError,
    ProgramError,
    UnsupportedFeatureError,
)
from firesteel.datastream import RuntimeExecutionMode, SlotSharingGroup, StreamExecutionEnvironment
from firesteel.graph.specs import OperatorKind
from tests.unit.datastream.fakes import FakeExecutor, environment, submitted

NO_WATERMARKS = WatermarkStrategy.no_watermarks()


# --- execution ------------------------------------------------------------------------------------------------------


def test_execute_gives_the_jobs_result(env: StreamExecutionEnvironment, executor: FakeExecutor) -> None:
    env.from_collection([1]).print()
    assert env.execute("numbers") is executor.result
    assert executor.graphs[0].name == "numbers"
    assert submitted(executor) == ["Source: Collection Source", "Sink: Print to Std. Out"]


def test_execute_raises_why_the_job_failed(env: StreamExecutionEnvironment, executor: FakeExecutor) -> None:
    executor.result = JobFailedError("a slot was lost")
    env.from_collection([1]).print()
    with pytest.raises(JobFailedError, match="a slot was lost"):
        env.execute()
    assert not executor.clients[0].cancelled


def test_ctrl_c_cancels_the_job(env: StreamExecutionEnvironment, executor: FakeExecutor) -> None:
    executor.result = KeyboardInterrupt()
    env.from_collection([1]).print()
    with pytest.raises(KeyboardInterrupt):
        env.execute()
    assert executor.clients[0].cancelled


def test_execute_async_does_not_wait(env: StreamExecutionEnvironment, executor: FakeExecutor) -> None:
    executor.result = JobFailedError("later")
    env.from_collection([1]).print()
    assert env.execute_async("numbers") is executor.clients[0]


def test_each_execute_runs_what_was_added_since_the_last(
    env: StreamExecutionEnvironment, executor: FakeExecutor
) -> None:
    stream = env.from_collection([1]).map(str)
    stream.print("first")
    env.execute()
    assert submitted(executor) == ["Source: Collection Source", "Map", "Sink: Print to Std. Out"]
    stream.filter(bool).print("second")
    env.execute()
    assert submitted(executor) == ["Source: Collection Source", "Map", "Filter", "Sink: Print to Std. Out"]
    assert [n.operator.extra["identifier"] for n in executor.graphs[1].nodes.values() if n.is_sink] == ["second"]
    with pytest.raises(GraphError, match="the graph is empty"):
        env.execute()


def test_an_operator_without_a_sink_runs_too(env: StreamExecutionEnvironment, executor: FakeExecutor) -> None:
    env.from_collection([1]).map(str)
    env.execute()
    assert submitted(executor) == ["Source: Collection Source", "Map"]


def test_a_source_alone_is_an_empty_graph(env: StreamExecutionEnvironment, executor: FakeExecutor) -> None:
    env.from_collection([1])
    with pytest.raises(GraphError, match="the graph is empty"):
        env.execute()
    assert executor.graphs == []


def test_what_was_refused_is_not_tried_again(env: StreamExecutionEnvironment, executor: FakeExecutor) -> None:
    env.from_collection([1]).map(str).set_parallelism(9).set_max_parallelism(3).print()
    with pytest.raises(GraphError, match="'Map': parallelism 9 is above its max parallelism 3"):
        env.execute()
    env.from_collection([1]).filter(bool).print()
    env.execute()
    assert submitted(executor) == ["Source: Collection Source", "Filter", "Sink: Print to Std. Out"]


@pytest.mark.parametrize(("name", "error"), [("", ValueError), (7, TypeError)])
def test_a_bad_job_name_is_refused(env: StreamExecutionEnvironment, name: Any, error: type[Exception]) -> None:
    env.from_collection([1]).print()
    with pytest.raises(error, match="the job name"):
        env.execute(name)


def test_the_job_name_is_asked_from_the_call_then_the_configuration(executor: FakeExecutor) -> None:
    env = environment(executor, pipeline__name="configured")
    for job_name in ("given", None):
        env.from_collection([1]).print()
        env.execute(job_name)
    assert [graph.name for graph in executor.graphs] == ["given", "configured"]
    plain = environment(executor)
    plain.from_collection([1]).print()
    plain.execute()
    assert executor.graphs[-1].name == "Flink Streaming Job"


def test_a_plan_takes_nothing_away(env: StreamExecutionEnvironment, executor: FakeExecutor) -> None:
    env.from_collection([1]).map(str).set_parallelism(3).print()
    plan = json.loads(env.get_execution_plan())
    assert [(n["type"], n["parallelism"]) for n in plan["nodes"]] == [
        ("Source: Collection Source", 1),
        ("Map", 3),
        ("Sink: Print to Std. Out", 2),
    ]
    assert plan["nodes"][1]["predecessors"] == [{"id": 1, "ship_strategy": "REBALANCE", "side": "first"}]
    assert executor.graphs == []
    env.execute()
    assert len(executor.graphs) == 1


def test_close_reaches_the_executor_only_if_there_is_one(executor: FakeExecutor) -> None:
    StreamExecutionEnvironment().close()
    environment(executor).close()
    assert executor.closed == 1


def test_an_unknown_target_is_refused_naming_the_known() -> None:
    env = StreamExecutionEnvironment(Configuration().set_string("execution.target", "moon"))
    env.from_collection([1]).print()
    with pytest.raises(ConfigurationError, match=r"'moon'; known: local, remote"):
        env.execute()


# --- settings -------------------------------------------------------------------------------------------------------


def test_parallelism_comes_from_the_executor_unless_it_was_set(executor: FakeExecutor) -> None:
    executor.parallelism = 5
    env = environment(executor)
    assert (env.get_parallelism(), env.get_config().get_parallelism()) == (5, -1)
    env.set_parallelism(3)
    assert env.get_parallelism() == 3
    assert environment(executor, parallelism__default=4).get_parallelism() == 4


def test_operators_keep_the_parallelism_of_the_time_they_were_added(executor: FakeExecutor) -> None:
    env = environment(executor)
    stream = env.from_sequence(1, 9).map(str)
    env.set_parallelism(3)
    stream.map(str)
    env.get_config().set_parallelism(4)
    stream.map(str).print()
    env.execute()
    assert [n.parallelism for n in executor.graphs[0].nodes.values()] == [2, 2, 3, 4, 4]


def test_max_parallelism(executor: FakeExecutor) -> None:
    env = environment(executor, pipeline__max_parallelism=64)
    assert env.get_max_parallelism() == 64
    stream = env.from_sequence(1, 9)
    stream.map(str).set_max_parallelism(10)
    env.set_max_parallelism(32)
    env.execute()
    assert [n.max_parallelism for n in executor.graphs[0].nodes.values()] == [32, 10]
    assert environment(executor).get_max_parallelism() == -1


def test_chaining_and_buffer_timeout(executor: FakeExecutor) -> None:
    env = environment(executor)
    assert (env.is_chaining_enabled(), env.get_buffer_timeout()) == (True, 100)
    assert env.is_chaining_of_operators_with_different_max_parallelism_enabled()
    env.disable_operator_chaining().set_buffer_timeout(0)
    assert (env.is_chaining_enabled(), env.get_buffer_timeout()) == (False, 0)
    env.from_sequence(1, 2).print()
    env.execute()
    assert not executor.graphs[0].chaining
    assert {e.buffer_timeout_ms for e in executor.graphs[0].edges} == {0}
    assert env.set_buffer_timeout(-1).get_buffer_timeout() == -1
    assert environment(execution__buffer_timeout__interval="PT0.03S").get_buffer_timeout() == 30
    assert environment(execution__buffer_timeout__interval="1 us").get_buffer_timeout() == 1
    assert environment(execution__buffer_timeout__enabled=False).get_buffer_timeout() == -1


@pytest.mark.parametrize(
    ("method", "value", "error"),
    [
        ("set_parallelism", 0, ValueError),
        ("set_parallelism", "2", TypeError),
        ("set_parallelism", True, TypeError),
        ("set_max_parallelism", 0, ValueError),
        ("set_max_parallelism", 32769, ValueError),
        ("set_buffer_timeout", -2, ValueError),
        ("set_default_local_parallelism", 0, ValueError),
        ("set_runtime_mode", "STREAMING", TypeError),
        ("configure", {"a": "b"}, TypeError),
        ("register_slot_sharing_group", "name", TypeError),
        ("from_collection", "text", TypeError),
        ("from_collection", 5, TypeError),
    ],
)
def test_bad_settings_are_refused(
    env: StreamExecutionEnvironment, method: str, value: Any, error: type[Exception]
) -> None:
    with pytest.raises(error):
        getattr(env, method)(value)


def test_configure_adds_to_what_was_there(executor: FakeExecutor) -> None:
    env = environment(executor, parallelism__default=4, pipeline__name="a")
    env.set_parallelism(6)
    env.configure(Configuration.from_dict({"pipeline.name": "b"}))
    assert env.get_parallelism() == 6, "what the new configuration does not name stays"
    env.configure(Configuration.from_dict({"parallelism.default": "3"}))
    assert env.get_parallelism() == 3
    env.from_collection([1]).print()
    env.execute()
    assert executor.graphs[0].name == "b"


def test_a_bad_value_is_refused_and_changes_nothing(env: StreamExecutionEnvironment) -> None:
    with pytest.raises(ConfigurationError, match=r"pipeline\.max-parallelism"):
        env.configure(Configuration.from_dict({"pipeline.max-parallelism": "many", "pipeline.name": "x"}))
    env.configure(Configuration())
    with pytest.raises(ConfigurationError, match=r"parallelism\.default"):
        environment(parallelism__default=0)


def test_the_environment_of_the_process_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FIRESTEEL_OPTION_PARALLELISM_DEFAULT", "7")
    monkeypatch.setenv("FIRESTEEL_OPTION_PIPELINE_OPERATOR_CHAINING_ENABLED", "false")
    env = environment()
    assert (env.get_parallelism(), env.is_chaining_enabled()) == (7, False)
    assert environment(parallelism__default=2).get_parallelism() == 2


def test_definitions_of_the_command_line_count(monkeypatch: pytest.MonkeyPatch, executor: FakeExecutor) -> None:
    monkeypatch.setenv("FIRESTEEL_DEFINITIONS", "")
    hand_on(["parallelism.default=6", "pipeline.name=from -D"])
    env = environment(executor)
    assert (env.get_parallelism(), environment(parallelism__default=2).get_parallelism()) == (6, 2)
    env.from_collection([1]).print()
    env.execute()
    assert executor.graphs[0].name == "from -D"


def test_the_executor_gets_what_the_program_set_by_whatever_way(executor: FakeExecutor) -> None:
    env = environment(executor, heartbeat__interval="3 s")
    config = env.get_config()
    config.set_global_job_parameters({"a": 1, "b": "x y"}).set_task_cancellation_timeout(5000)
    config.set_task_cancellation_interval(30_000)
    env.set_parallelism(3).set_buffer_timeout(7)
    env.from_collection([1]).print()
    env.execute()
    assert executor.configurations[0].to_dict() == {
        "heartbeat.interval": "3 s",
        "execution.buffer-timeout.enabled": "true",
        "execution.buffer-timeout.interval": "7 ms",
        "parallelism.default": "3",
        "pipeline.global-job-parameters": "{a: 1, b: x y}",
        "task.cancellation.timeout": "5 s",
    }


def test_what_the_program_did_not_set_is_left_to_the_cluster(
    env: StreamExecutionEnvironment, executor: FakeExecutor
) -> None:
    env.from_collection([1]).print()
    env.execute()
    assert executor.configurations[0].to_dict() == {}


def test_execution_config_follows_the_configuration() -> None:
    config = environment(
        pipeline__object_reuse=True,
        pipeline__auto_generate_uids=False,
        pipeline__global_job_parameters="a:1,b:2",
        task__cancellation__interval="1 s",
        task__cancellation__timeout=2000,
    ).get_config()
    assert config.is_object_reuse_enabled()
    assert not config.has_auto_generated_uids_enabled()
    assert config.get_global_job_parameters() == {"a": "1", "b": "2"}
    assert (config.get_task_cancellation_interval(), config.get_task_cancellation_timeout()) == (1000, 2000)


def test_uids_can_be_demanded(executor: FakeExecutor) -> None:
    env = environment(executor)
    env.get_config().disable_auto_generated_uids()
    env.from_collection([1]).print()
    env.execute()
    assert not executor.graphs[0].auto_generate_uids
    executor.answers = [None]
    assert list(env.from_collection([1]).uid("in").execute_and_collect()) == [], "the API's own sink needs no uid"


def test_strict_integers(executor: FakeExecutor) -> None:
    env = environment(executor, firesteel__types__strict_integers=True)
    env.from_collection([1]).print()
    env.execute()
    assert {n.operator.strict_integers for n in executor.graphs[0].nodes.values()} == {True}


def test_default_local_parallelism_is_the_usable_cores(executor: FakeExecutor) -> None:
    env = environment(executor)
    assert env.get_default_local_parallelism() == len(os.sched_getaffinity(0))
    env.set_default_local_parallelism(9)
    assert (env.get_default_local_parallelism(), env.get_parallelism()) == (9, 9)


def test_runtime_modes(executor: FakeExecutor) -> None:
    env = environment(executor)
    for mode in RuntimeExecutionMode:
        assert env.set_runtime_mode(mode) is env
        assert env._configuration.get_string("execution.runtime-mode", "") == mode.value
    env.configure(Configuration.from_dict({"execution.runtime-mode": "BATCH"}))
    with pytest.raises(ConfigurationError, match="STREAMING, BATCH, AUTOMATIC"):
        env.configure(Configuration.from_dict({"execution.runtime-mode": "QUICK"}))


def test_slot_sharing_groups_are_registered_by_name_only(env: StreamExecutionEnvironment) -> None:
    assert env.register_slot_sharing_group(SlotSharingGroup.builder("a").build()) is env
    big = SlotSharingGroup.builder("big").set_cpu_cores(2).set_task_heap_memory_mb(100).build()
    with pytest.raises(UnsupportedFeatureError, match="slot sharing group 'big': slots with resources"):
        env.register_slot_sharing_group(big)


# --- sources --------------------------------------------------------------------------------------------------------


def test_from_collection(env: StreamExecutionEnvironment, executor: FakeExecutor) -> None:
    items = [(1, "a")]
    untyped = env.from_collection(items)
    typed = env.from_collection(iter(items), Types.ROW([Types.INT(), Types.STRING()]))
    assert untyped.get_type() == Types.PICKLED_BYTE_ARRAY()
    assert str(typed.get_type()) == "RowTypeInfo(Integer, String)"
    items.append((2, "b"))
    untyped.print()
    typed.print()
    env.execute()
    first, second, *_ = executor.graphs[0].nodes.values()
    assert isinstance(first.operator.function, CollectionSource)
    assert first.operator.function._items == [(1, "a")], "the collection was copied"
    assert (first.operator.output_type, second.operator.output_type) == (None, typed.get_type())
    assert (first.operator.kind, first.parallelism) == (OperatorKind.SOURCE, 1)


def test_a_collection_is_never_parallel(env: StreamExecutionEnvironment) -> None:
    stream = env.from_collection([1]).set_parallelism(1)
    with pytest.raises(GraphError, match="'Collection Source': the parallelism of a non-parallel operator is 1, not 2"):
        stream.set_parallelism(2)


def test_from_sequence_is_parallel(env: StreamExecutionEnvironment, executor: FakeExecutor) -> None:
    stream = env.from_sequence(1, 10)
    assert (stream.get_type(), stream.get_name()) == (Types.LONG(), "Sequence Source")
    stream.print()
    env.execute()
    node = executor.graphs[0].nodes[1]
    assert isinstance(node.operator.function, NumberSequenceSource)
    assert (node.parallelism, node.operator.output_type) == (2, None)
    with pytest.raises(ProgramError, match="from 5 to 1"):
        env.from_sequence(5, 1)


def test_from_source_may_declare_another_type(env: StreamExecutionEnvironment, executor: FakeExecutor) -> None:
    stream = env.from_source(NumberSequenceSource(1, 2), NO_WATERMARKS, "numbers", Types.SHORT())
    stream.print()
    env.execute()
    assert stream.get_type() == executor.graphs[0].nodes[1].operator.output_type == Types.SHORT()


class Assigner(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value)


def test_watermark_strategies_that_change_nothing_here_are_accepted(env: StreamExecutionEnvironment) -> None:
    source = NumberSequenceSource(1, 2)
    for strategy in (
        NO_WATERMARKS,
        WatermarkStrategy.for_monotonous_timestamps(),
        WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(1)).with_idleness(Duration.of_seconds(1)),
    ):
        assert env.from_source(source, strategy, "numbers").get_name() == "numbers"


def test_a_source_keeps_a_strategy_that_does_something(env: StreamExecutionEnvironment) -> None:
    source = NumberSequenceSource(1, 2)
    for strategy in (
        NO_WATERMARKS.with_timestamp_assigner(Assigner()),
        NO_WATERMARKS.with_idleness(Duration.of_seconds(1)),
        WatermarkStrategy.for_monotonous_timestamps().with_watermark_alignment("g", Duration.of_seconds(1)),
    ):
        operator = env.from_source(source, strategy, "numbers")._operator("test")
        assert operator.extra == {"watermark_strategy": strategy}
    assert env.from_source(source, NO_WATERMARKS, "numbers")._operator("test").extra == {}


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (([1], NO_WATERMARKS, "n"), TypeError, "takes a firesteel.functions.source.Source, not list"),
        ((NumberSequenceSource(1, 2), None, "n"), TypeError, "WatermarkStrategy"),
        ((NumberSequenceSource(1, 2), NO_WATERMARKS, ""), ValueError, "source_name is empty"),
        ((NumberSequenceSource(1, 2), NO_WATERMARKS, None), TypeError, "source_name is a str"),
        ((NumberSequenceSource(1, 2), NO_WATERMARKS, "n", Types.INT), TypeError, "leave out the parentheses"),
    ],
)
def test_from_source_checks(
    env: StreamExecutionEnvironment, arguments: tuple[Any, ...], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        env.from_source(*arguments)


def test_result_keeps_its_numbers() -> None:
    assert JobExecutionResult(JobID(), 7).get_net_runtime() == 7
