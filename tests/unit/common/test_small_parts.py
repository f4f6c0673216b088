from __future__ import annotations

import asyncio
import copy
import pickle
import threading
from datetime import timedelta
from operator import itemgetter
from typing import Any

import pytest

import firesteel.common as common
from firesteel.common import (
    ByteArraySchema,
    CompletableFuture,
    ConfigOptions,
    Configuration,
    Duration,
    Encoder,
    ExecutionConfig,
    Instant,
    JobExecutionResult,
    JobID,
    JobStatus,
    RestartStrategies,
    Row,
    SimpleStringSchema,
    Time,
    TimestampAssigner,
    Types,
    WatermarkStrategy,
)
from firesteel.common.serialization import DeserializationSchema, RowFieldExtractorSchema, SerializationSchema
from firesteel.common.watermark_strategy import WatermarkGeneratorKind
from firesteel.config import Settings
from firesteel.config.options import HEARTBEAT_INTERVAL

PYFLINK_EXPORTS = [
    "Configuration",
    "ConfigOption",
    "ConfigOptions",
    "ExecutionConfig",
    "TypeInformation",
    "TypeSerializer",
    "Types",
    "SerializationSchema",
    "DeserializationSchema",
    "SimpleStringSchema",
    "ByteArraySchema",
    "Encoder",
    "CompletableFuture",
    "JobClient",
    "JobExecutionResult",
    "JobID",
    "JobStatus",
    "RestartStrategies",
    "RestartStrategyConfiguration",
    "Row",
    "RowKind",
    "WatermarkStrategy",
    "Duration",
    "Instant",
    "Time",
]


def test_the_package_exports_pyflinks_names() -> None:
    assert set(PYFLINK_EXPORTS) <= set(common.__all__)
    assert all(hasattr(common, name) for name in common.__all__)


def test_configuration_keeps_types_and_reads_text() -> None:
    config = Configuration()
    config.set_string("s", "x").set_integer("i", 3).set_boolean("b", True).set_float("f", 1.5)
    config.set_bytearray("y", bytearray(b"ab"))
    assert config.get_string("s", "") == "x"
    assert config.get_integer("i", 0) == 3
    assert config.get_boolean("b", False) is True
    assert config.get_float("f", 0) == 1.5
    assert config.get_bytearray("y", b"") == bytearray(b"ab")
    assert config.get_integer("none", 7) == 7
    assert config.get_string("none", None) is None
    assert config.to_dict() == {"s": "x", "i": "3", "b": "true", "f": "1.5", "y": "YWI="}
    assert config.key_set() == {"s", "i", "b", "f", "y"}
    config.set_string("i", "12")
    assert config.get_integer("i", 0) == 12
    assert config.get_string("b", "") == "true"


def test_configuration_writes_each_value_as_options_read_it() -> None:
    interval = HEARTBEAT_INTERVAL
    config = Configuration.from_dict(
        {interval.key: timedelta(seconds=10), "list": ["a", timedelta(0)], "map": {"a": 1}}
    )
    assert config.to_dict() == {interval.key: "10 s", "list": "a;0 ms", "map": "{a: 1}"}
    assert Settings(config.to_dict()).get(interval) == timedelta(seconds=10)


def test_configuration_says_which_key_is_wrong() -> None:
    config = Configuration.from_dict({"port": "many", "flag": "yes", "rate": "fast", "raw": "text", "half": 1.5})
    with pytest.raises(ValueError, match="'port'"):
        config.get_integer("port", 0)
    with pytest.raises(ValueError, match="'half'"):
        config.get_integer("half", 0)
    with pytest.raises(ValueError, match="'flag'"):
        config.get_boolean("flag", False)
    with pytest.raises(ValueError, match="'rate'"):
        config.get_float("rate", 0)
    with pytest.raises(ValueError, match="'raw'"):
        config.get_bytearray("raw", b"")
    with pytest.raises(ValueError, match="None"):
        config.set_string("x", None)  # type: ignore[arg-type]


def test_configurations_are_copied_merged_and_compared() -> None:
    first = Configuration.from_dict({"a": 1})
    second = Configuration(first)
    second.set_string("b", "2")
    assert first != second
    assert copy.deepcopy(second) == second
    merged = Configuration().add_all(second, "p.")
    assert merged.to_dict() == {"p.a": "1", "p.b": "2"}
    assert merged.contains_key("p.a")
    assert merged.remove_config("p.a") is True
    assert merged.remove_config("p.a") is False
    assert Configuration.from_dict({"a": "1"}) == first
    target: dict[str, Any] = {}
    second.add_all_to_dict(target)
    assert target == {"a": 1, "b": "2"}


def test_configuration_hides_secrets() -> None:
    config = Configuration.from_dict({"s3.secret-key": "hunter2", "a": 1})
    assert "hunter2" not in repr(config) + str(config)
    assert "a=1" in str(config)


def test_lists_have_two_forms() -> None:
    assert Configuration.parse_list_value("[a, 'b']") == ["a", "b"]
    assert Configuration.parse_list_value("a;b") == ["a", "b"]
    assert Configuration.parse_list_value("") == []
    assert Configuration.parse_list_value(None) == []


def test_config_options_are_built() -> None:
    option = ConfigOptions.key("k").int_type().default_value(3)
    assert (option.key, option.default_value) == ("k", 3)
    assert ConfigOptions.key("k").string_type().no_default_value().default_value is None
    assert option == ConfigOptions.key("k").int_type().default_value(3)
    assert option != ConfigOptions.key("k").string_type().default_value("3")


def test_durations_and_times() -> None:
    assert Duration.of_seconds(90) == Duration.of_millis(90_000) == Duration.of_nanos(90 * 10**9)
    assert Duration.of_days(1) == Duration.of_hours(24) == Duration.of_minutes(1440)
    assert Duration.of_millis(1) < Duration.of_seconds(1)
    assert Duration.of_millis(1500).to_timedelta() == timedelta(seconds=1.5)
    assert Duration.of_nanos(1_999_999).to_millis() == 1
    assert Time.days(1) == Time.hours(24) == Time.minutes(1440) == Time.seconds(86_400) == Time.milliseconds(86_400_000)
    assert Time.seconds(2).to_milliseconds() == 2000


def test_instants_before_1970_round_down() -> None:
    assert Instant.of_epoch_milli(-1) == Instant(-1, 999_000_000)
    assert Instant.of_epoch_milli(-1).to_epoch_milli() == -1
    assert Instant(1, 5) > Instant(1, 4)
    assert pickle.loads(pickle.dumps(Instant(1, 5))) == Instant(1, 5)
    with pytest.raises(ValueError, match="nanoseconds"):
        Instant(0, 10**9)


def test_execution_config_has_pyflinks_defaults() -> None:
    config = ExecutionConfig()
    assert config.get_auto_watermark_interval() == 200
    assert config.is_closure_cleaner_enabled() is True
    assert config.get_task_cancellation_interval() == 30_000
    assert config.get_task_cancellation_timeout() == 180_000
    assert config.get_parallelism() == -1
    assert config.get_max_parallelism() == -1
    assert config.has_auto_generated_uids_enabled() is True
    assert config.has_generic_types_disabled() is False
    assert config.is_object_reuse_enabled() is False
    assert config.get_global_job_parameters() == {}
    assert ExecutionConfig.PARALLELISM_DEFAULT == -1


def test_execution_config_setters_chain_and_check() -> None:
    config = ExecutionConfig().set_parallelism(4).set_max_parallelism(128).disable_closure_cleaner()
    config.set_global_job_parameters({"a": 1})
    assert (config.get_parallelism(), config.get_max_parallelism()) == (4, 128)
    assert config.is_closure_cleaner_enabled() is False
    assert config.get_global_job_parameters() == {"a": "1"}
    with pytest.raises(ValueError, match="parallelism"):
        config.set_parallelism(0)
    with pytest.raises(ValueError, match="maximum parallelism"):
        config.set_max_parallelism(40_000)
    with pytest.raises(ValueError, match="watermark"):
        config.set_auto_watermark_interval(-1)
    switches = ("closure_cleaner", "force_kryo", "generic_types", "auto_generated_uids", "force_avro", "object_reuse")
    for name in switches:
        before = ExecutionConfig()
        on, off = getattr(ExecutionConfig(), f"enable_{name}")(), getattr(ExecutionConfig(), f"disable_{name}")()
        assert on != off
        assert before in (on, off)


def test_restart_strategies() -> None:
    fixed = RestartStrategies.fixed_delay_restart(3, 5000)
    assert fixed.get_restart_attempts() == 3
    assert fixed.get_delay_between_attempts_interval() == timedelta(seconds=5)
    assert fixed == RestartStrategies.fixed_delay_restart(3, timedelta(seconds=5))
    assert fixed != RestartStrategies.fixed_delay_restart(4, 5000)
    rate = RestartStrategies.failure_rate_restart(2, timedelta(minutes=1), 1000)
    assert (rate.get_max_failure_rate(), rate.get_failure_interval()) == (2, timedelta(minutes=1))
    assert RestartStrategies.no_restart() == RestartStrategies.no_restart()
    assert RestartStrategies.no_restart() != RestartStrategies.fall_back_restart()
    assert "3 restart attempts" in fixed.get_description()


def test_schemas() -> None:
    assert SimpleStringSchema().deserialize(SimpleStringSchema().serialize("ä")) == "ä"
    assert SimpleStringSchema("latin-1").serialize("ä") == b"\xe4"
    assert SimpleStringSchema().deserialize(b"a\xffb\xe4\xbd") == "a\ufffdb\ufffd", "as in Flink"
    assert SimpleStringSchema().get_produced_type() == Types.STRING()
    assert ByteArraySchema().serialize(bytearray(b"a")) == b"a"
    assert issubclass(SimpleStringSchema, SerializationSchema)
    assert issubclass(SimpleStringSchema, DeserializationSchema)
    with pytest.raises(LookupError):
        SimpleStringSchema("no-such-charset")
    with pytest.raises(TypeError, match="int"):
        SimpleStringSchema().serialize(1)
    with pytest.raises(TypeError, match="str"):
        ByteArraySchema().serialize("a")
    extractor = RowFieldExtractorSchema(1)
    assert [extractor.serialize(Row(0, value)) for value in ("a", b"b", None)] == [b"a", b"b", b""]
    with pytest.raises(TypeError, match="int"):
        extractor.serialize((0, 1))


def test_the_string_encoder_writes_lines_and_travels() -> None:
    encoder = pickle.loads(pickle.dumps(Encoder.simple_string_encoder()))
    assert encoder.encode(Row(a=1)) == b"Row(a=1)\n"
    assert Encoder.simple_string_encoder("utf-16-le").encode("a") == b"a\x00\n\x00"
    with pytest.raises(LookupError):
        Encoder.simple_string_encoder("no-such-charset")


def test_job_ids_and_results() -> None:
    job_id = JobID()
    assert JobID.from_hex_string(str(job_id)) == job_id
    assert JobID() != job_id
    assert len(job_id.to_hex_string()) == 32
    with pytest.raises(ValueError, match="32 hex digits"):
        JobID("../../etc")
    result = JobExecutionResult(job_id, 5, {"n": 3})
    assert (result.get_job_id(), result.get_net_runtime()) == (job_id, 5)
    assert result.get_accumulator_result("n") == 3
    assert result.get_accumulator_result("m") is None
    assert result.get_all_accumulator_results() == {"n": 3}


def test_terminal_states() -> None:
    terminal = {status.name for status in JobStatus if status.is_terminal_state()}
    assert terminal == {"FAILED", "CANCELED", "FINISHED", "SUSPENDED"}
    assert not JobStatus.SUSPENDED.is_globally_terminal_state()


def test_futures_are_filled_from_another_thread_and_awaited() -> None:
    future: CompletableFuture[int] = CompletableFuture()
    assert not future.done()
    thread = threading.Thread(target=future.set_result, args=(3,))
    thread.start()
    assert future.result(10) == 3
    thread.join()
    assert future.done()
    assert future.exception() is None

    async def wait() -> int:
        return await CompletableFuture.completed(4)

    assert asyncio.run(wait()) == 4
    failed: CompletableFuture[int] = CompletableFuture()
    failed.set_exception(KeyError("x"))
    with pytest.raises(KeyError):
        failed.result()
    pending: CompletableFuture[int] = CompletableFuture()
    assert pending.cancel()
    assert pending.cancelled()


class Assigner(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value)


def test_watermark_strategies_describe() -> None:
    plain = WatermarkStrategy.no_watermarks()
    assert not plain.makes_watermarks
    assert plain.timestamp_assigner is None
    bounded = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(20))
    assert bounded.kind is WatermarkGeneratorKind.BOUNDED_OUT_OF_ORDERNESS
    assert bounded.max_out_of_orderness == Duration.of_seconds(20)
    full = (
        bounded.with_timestamp_assigner(Assigner())
        .with_idleness(Duration.of_minutes(1))
        .with_watermark_alignment("g", Duration.of_seconds(5))
    )
    assert bounded.timestamp_assigner is None
    assert full.timestamp_assigner is not None
    assert full.timestamp_assigner.extract_timestamp("5", -1) == 5
    assert full.idle_timeout == Duration.of_minutes(1)
    assert (full.alignment_group, full.alignment_max_drift) == ("g", Duration.of_seconds(5))
    assert full.alignment_update_interval == Duration.of_seconds(1)
    assert WatermarkStrategy.for_monotonous_timestamps().makes_watermarks


@pytest.mark.parametrize(
    "function",
    [lambda value, record_timestamp: value[1], lambda value: value[1], itemgetter(1), lambda *both: both[0][1]],
)
def test_timestamps_may_be_read_by_functions(function: Any) -> None:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(function)
    assert strategy.timestamp_assigner is not None
    assert strategy.timestamp_assigner.extract_timestamp(("a", 5), -1) == 5


def test_watermark_strategies_refuse_wrong_things_at_once() -> None:
    strategy = WatermarkStrategy.for_monotonous_timestamps()
    with pytest.raises(TypeError, match="extract_timestamp"):
        strategy.with_timestamp_assigner("ts")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"an instance: write Assigner\(\), not Assigner"):
        strategy.with_timestamp_assigner(Assigner)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="Duration"):
        strategy.with_idleness(5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="positive"):
        strategy.with_idleness(Duration.of_millis(0))
    with pytest.raises(ValueError, match="zero or more"):
        WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(-1))
