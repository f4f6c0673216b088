"""Names that people bring along from PyFlink 1.x, and what is said of those that are not there."""

from __future__ import annotations

import ast
import importlib
import pickle
from pathlib import Path
from typing import Any

import pytest

from firesteel.common import SimpleStringSchema
from firesteel.common.serialization import Encoder
from firesteel.connectors.delivery import DeliveryGuarantee
from firesteel.core.errors import ProgramError
from firesteel.datastream import (
    ExternalizedCheckpointCleanup,
    ExternalizedCheckpointRetention,
    StreamExecutionEnvironment,
    TimeCharacteristic,
    connectors,
)
from firesteel.datastream.connectors import FileSink, FlinkKafkaConsumer, FlinkKafkaProducer, StreamingFileSink
from firesteel.datastream.connectors.kafka import KafkaSink, KafkaSource, Semantic
from firesteel_kafka.offsets import KafkaOffsetResetStrategy, KafkaOffsetsInitializer

CONNECTORS = Path(connectors.__file__).parent
BROKERS = {"bootstrap.servers": "broker:9092"}


def names_of(path: Path) -> list[str]:
    """``__all__`` of a module."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return list(ast.literal_eval(node.value))
    return []


def test_the_package_has_the_names_of_all_connectors() -> None:
    """In PyFlink it does, and many programs import from there."""
    below: dict[str, str] = {}
    for path in sorted(CONNECTORS.glob("[a-z]*.py")):
        for name in names_of(path):
            below.setdefault(name, path.stem)
    assert set(importlib.import_module(connectors.__name__).__all__) == set(below)
    for name, module in below.items():
        expected = getattr(importlib.import_module(f"firesteel.datastream.connectors.{module}"), name)
        assert getattr(connectors, name) is expected


@pytest.mark.parametrize(
    ("module", "name", "message"),
    [
        ("datastream", "FsStateBackend", r"removed in Flink 2: use HashMapStateBackend\(\)"),
        ("datastream", "RocksDBStateBackend", r"use EmbeddedRocksDBStateBackend\(\)"),
        ("datastream", "ValueStateDescriptor", "it is in firesteel.datastream.state"),
        ("datastream.functions", "RichMapFunction", r"MapFunction has open\(\) and close\(\): derive from it"),
        ("datastream", "StreamTableEnvironment", "the Table API and SQL are not in this version"),
        ("table", "EnvironmentSettings", "the Table API and SQL are not in this version"),
        ("common.serialization", "JsonRowDeserializationSchema", "it is in firesteel.datastream.formats.json"),
        ("datastream.connectors", "PulsarSource", "a Java connector without counterpart"),
        ("datastream.connectors.kafka", "FlinkKafkaConsumerBase", "use FlinkKafkaConsumer, or KafkaSource"),
    ],
)
def test_an_import_of_a_missing_name_says_what_to_use_instead(module: str, name: str, message: str) -> None:
    with pytest.raises(ImportError, match=f"cannot import name '{name}' from 'firesteel.{module}': .*{message}"):
        exec(f"from firesteel.{module} import {name}", {})


def test_other_missing_names_are_as_in_any_module() -> None:
    for module in ("datastream", "datastream.connectors", "common", "table"):
        imported = importlib.import_module(f"firesteel.{module}")
        assert not hasattr(imported, "__wrapped__")
        assert not hasattr(imported, "NoSuchName")
        with pytest.raises(ImportError, match="cannot import name 'NoSuchName'"):
            exec(f"from firesteel.{module} import NoSuchName", {})


def test_settings_of_old(env: StreamExecutionEnvironment) -> None:
    config = env.get_checkpoint_config()
    config.enable_externalized_checkpoints(ExternalizedCheckpointCleanup.RETAIN_ON_CANCELLATION)
    retain = ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION
    assert config.get_externalized_checkpoint_retention() is retain
    config.set_externalized_checkpoint_cleanup(ExternalizedCheckpointCleanup.DELETE_ON_CANCELLATION)
    assert config.get_externalized_checkpoint_cleanup() is ExternalizedCheckpointRetention.DELETE_ON_CANCELLATION
    assert env.get_stream_time_characteristic() is TimeCharacteristic.EventTime
    env.set_stream_time_characteristic(TimeCharacteristic.ProcessingTime)
    assert env.get_config().get_auto_watermark_interval() == 0
    env.set_stream_time_characteristic(TimeCharacteristic.EventTime)
    assert env.get_config().get_auto_watermark_interval() == 200
    with pytest.raises(TypeError, match="takes a TimeCharacteristic, not 'EventTime'"):
        env.set_stream_time_characteristic("EventTime")  # type: ignore[arg-type]


def test_windows_have_time_as_in_pyflink_1() -> None:
    from firesteel.common import Time
    from firesteel.datastream import window

    assert window.Time is Time


def test_sources_and_sinks_go_where_they_went(env: StreamExecutionEnvironment, tmp_path: Path) -> None:
    consumer = FlinkKafkaConsumer("orders", SimpleStringSchema(), BROKERS)
    stream = env.add_source(consumer, "orders")
    sink = StreamingFileSink.for_row_format(str(tmp_path), Encoder.simple_string_encoder()).build()
    assert type(sink) is FileSink
    stream.add_sink(sink)
    stream.add_sink(FlinkKafkaProducer("copies", SimpleStringSchema(), BROKERS))
    plan = env.get_execution_plan()
    assert "orders" in plan


def settings_of(source: KafkaSource | KafkaSink) -> Any:
    return pickle.loads(pickle.dumps(source))._settings


def test_where_the_old_consumer_begins() -> None:
    def consumer(**properties: str) -> FlinkKafkaConsumer:
        arguments = BROKERS | {key.replace("_", "."): value for key, value in properties.items()}
        return FlinkKafkaConsumer(["a", "b"], SimpleStringSchema(), arguments)

    committed = settings_of(consumer(group_id="g", enable_auto_commit="true"))
    assert committed.starting.needs_group
    assert committed.starting.reset is KafkaOffsetResetStrategy.LATEST
    assert committed.subscription.topics == ("a", "b")
    assert settings_of(consumer(group_id="g", auto_offset_reset="earliest")).starting.reset is (
        KafkaOffsetResetStrategy.EARLIEST
    )
    without_group = settings_of(consumer())
    assert not without_group.starting.needs_group
    assert without_group.starting == settings_of(consumer(group_id="g").set_start_from_latest()).starting
    earliest = settings_of(consumer(group_id="g").set_start_from_earliest()).starting
    assert (
        earliest == settings_of(consumer(auto_offset_reset="earliest")).starting == KafkaOffsetsInitializer.earliest()
    )
    assert not settings_of(consumer(group_id="g").set_commit_offsets_on_checkpoints(False)).commits
    assert settings_of(consumer().set_start_from_timestamp(123)).starting == KafkaOffsetsInitializer.timestamp(123)
    with pytest.raises(ProgramError, match=r"auto\.offset\.reset is earliest, latest or none, not 'smallest'"):
        consumer(auto_offset_reset="smallest")


def test_what_the_old_producer_guarantees() -> None:
    def producer(semantic: Semantic) -> FlinkKafkaProducer:
        return FlinkKafkaProducer("t", SimpleStringSchema(), BROKERS, semantic=semantic)

    default = FlinkKafkaProducer("t", SimpleStringSchema(), BROKERS)
    assert settings_of(default).guarantee is DeliveryGuarantee.AT_LEAST_ONCE
    assert settings_of(producer(Semantic.NONE)).guarantee is DeliveryGuarantee.NONE
    exactly = producer(Semantic.EXACTLY_ONCE)
    with pytest.raises(ProgramError, match=r"EXACTLY_ONCE needs set_transactional_id_prefix\(\)"):
        exactly.check()
    settings = settings_of(exactly.set_transactional_id_prefix("orders"))
    assert (settings.guarantee, settings.prefix) == (DeliveryGuarantee.EXACTLY_ONCE, "orders")
    with pytest.raises(ProgramError, match="would lose records"):
        default.set_log_failures_only(True)
    with pytest.raises(TypeError, match="semantic is a Semantic"):
        FlinkKafkaProducer("t", SimpleStringSchema(), BROKERS, semantic="EXACTLY_ONCE")  # type: ignore[arg-type]
