"""Modules by their old names: what was written before they moved is read, and means what they are now."""

from __future__ import annotations

import importlib
import pickle
import runpy
import sys
from pathlib import Path

import pytest

import firesteel.connectors
from firesteel.common.serialization import SimpleStringSchema
from firesteel.core.moved_modules import MOVED, new_name
from firesteel_formats.avro_schema import AvroSchema
from firesteel_jdbc.options import JdbcExecutionOptions
from firesteel_kafka.partitions import KafkaTopicPartition
from firesteel_kafka.source import KafkaSource

PICKLES = Path(__file__).parents[2] / "fixtures" / "moved_modules"
"""Written by the version in which all plug-ins were modules of ``firesteel``."""


def read(name: str) -> object:
    return pickle.loads((PICKLES / f"{name}.pickle").read_bytes())


@pytest.mark.parametrize("old", MOVED)
def test_an_old_name_means_the_very_same_module(old: str) -> None:
    assert importlib.import_module(old) is importlib.import_module(MOVED[old])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("kafka_partition", KafkaTopicPartition("t", 3)),
        ("avro_schema", AvroSchema.parse_string('"string"')),
        ("jdbc_options", JdbcExecutionOptions.builder().with_batch_size(7).build()),
    ],
)
def test_values_of_old_state_are_read(name: str, value: object) -> None:
    assert read(name).__class__ is value.__class__
    assert pickle.dumps(read(name)) == pickle.dumps(value)  # and what is written has the new names
    assert b"firesteel.connectors" in (PICKLES / f"{name}.pickle").read_bytes()
    assert b"firesteel.connectors" not in pickle.dumps(read(name))


def test_a_source_of_an_old_job_graph_is_read() -> None:
    source = read("kafka_source")
    schema = SimpleStringSchema()
    now = (
        KafkaSource.builder().set_bootstrap_servers("b:9092").set_topics("t").set_group_id("g")
        .set_value_only_deserializer(schema).build()
    )  # fmt: skip
    assert isinstance(source, KafkaSource)
    assert pickle.dumps(source) == pickle.dumps(now)


def test_modules_below_an_old_package_are_not_loaded_twice() -> None:
    for name in ("firesteel.connectors.kafka.source", "firesteel.connectors.kafka"):
        sys.modules.pop(name, None)
    old = importlib.import_module("firesteel.connectors.kafka.source")
    assert old is sys.modules["firesteel_kafka.source"]
    assert old.KafkaSource is KafkaSource
    assert old.__name__ == getattr(old.__spec__, "name", None) == "firesteel_kafka.source"
    assert firesteel.connectors.kafka is sys.modules["firesteel_kafka"]  # type: ignore[attr-defined]


def test_python_m_runs_an_old_name(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Deployments on Kubernetes that were made before say so."""
    monkeypatch.delitem(sys.modules, "firesteel_dispatcher.jobmanager", raising=False)
    monkeypatch.setattr(sys, "argv", ["jobmanager", "--help"])
    monkeypatch.setattr("signal.signal", lambda *_: None)
    with pytest.raises(SystemExit, match="0"):
        runpy.run_module("firesteel_dispatcher.jobmanager", run_name="__main__", alter_sys=False)
    assert "usage: firesteel-jobmanager" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("firesteel.connectors.kafka", "firesteel_kafka"),
        ("firesteel.connectors.kafka.source", "firesteel_kafka.source"),
        ("firesteel.connectors.formats.avro_rows", "firesteel_formats.avro_rows"),
        ("firesteel.connectors.formats.json_rows", None),
        ("firesteel.checkpoint.s3", "firesteel.checkpoint.object_storage"),
        ("firesteel.checkpoint.storage", None),
        ("firesteel.kubernetes_of_somebody", None),
        ("firesteel", None),
        ("numpy", None),
    ],
)
def test_only_what_has_moved_is_renamed(old: str, new: str | None) -> None:
    assert new_name(old) == new


def test_a_module_that_was_never_there_is_not_found_below_an_old_package() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"firesteel_kafka\.no_such_module"):
        importlib.import_module("firesteel.connectors.kafka.no_such_module")
    with pytest.raises(ModuleNotFoundError, match=r"firesteel\.connectors\.no_such_module"):
        importlib.import_module("firesteel.connectors.no_such_module")
