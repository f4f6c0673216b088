"""Plug-in look-up."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path
from types import ModuleType

import pytest

from firesteel.core import plugins, pyflink_names
from firesteel.core.errors import ConfigurationError
from tests.uninstalled import uninstall


@pytest.fixture
def built_in(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    table: dict[str, str] = {}
    monkeypatch.setitem(plugins.BUILT_IN, "some.group", table)
    return table


def test_a_built_in_is_found(built_in: dict[str, str]) -> None:
    built_in["one"] = "collections:deque"
    assert plugins.load("some.group", "one").__name__ == "deque"


def test_an_unknown_name_lists_the_known_ones(built_in: dict[str, str]) -> None:
    built_in.update(one="a:b", two="c:d")
    with pytest.raises(ConfigurationError, match=r"'three'; known: one, two"):
        plugins.load("some.group", "three")


def test_an_unknown_name_says_which_process_has_looked(built_in: dict[str, str]) -> None:
    with pytest.raises(ConfigurationError) as caught:
        plugins.load("some.group", "three")
    assert f"Process {os.getpid()} (" in str(caught.value)
    assert f"on {socket.gethostname()}, with {sys.executable}, has looked" in str(caught.value)


def test_a_missing_package_is_named(built_in: dict[str, str]) -> None:
    built_in["one"] = "no_such_package.module:thing"
    with pytest.raises(ConfigurationError, match="needs the package 'no_such_package'"):
        plugins.load("some.group", "one")


def test_a_missing_attribute_is_named_and_a_broken_module_is_not_hidden(
    built_in: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    built_in["one"] = "collections:no_such_thing"
    with pytest.raises(ConfigurationError, match="collections:no_such_thing, which does not exist"):
        plugins.load("some.group", "one")

    def broken(name: str) -> ModuleType:
        raise AttributeError("inside the module")

    monkeypatch.setattr(plugins, "import_module", broken)
    built_in["two"] = "broken:thing"
    with pytest.raises(AttributeError, match="inside the module"):
        plugins.load("some.group", "two")
    assert "broken" not in sys.modules


def test_what_is_built_in_is_of_the_library() -> None:
    targets = [target for names in plugins.BUILT_IN.values() for target in names.values()]
    assert targets
    assert all(target.startswith("firesteel.") for target in targets)


@pytest.mark.parametrize(
    ("group", "name", "distribution", "extra"),
    [
        ("firesteel.state_backends", "rocksdb", "firesteel-rocksdb", "rocksdb"),
        ("firesteel.checkpoint_storages", "s3", "firesteel-s3", "s3"),
        ("firesteel.object_stores", "hdfs", "firesteel-hdfs", "hdfs"),
        ("firesteel.high_availability", "zookeeper", "firesteel-zookeeper", "zookeeper"),
        ("firesteel.providers", "yarn", "firesteel-yarn", "yarn"),
        ("firesteel.commands", "yarn-logs", "firesteel-yarn", "yarn"),
        ("firesteel.session_targets", "kubernetes-session", "firesteel-kubernetes", "kubernetes"),
    ],
)
def test_a_plug_in_of_ours_that_is_not_installed_says_how_it_is(
    group: str, name: str, distribution: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert plugins.load(group, name)
    uninstall(distribution, monkeypatch)
    with pytest.raises(ConfigurationError) as caught:
        plugins.load(group, name)
    sentence, _, place = str(caught.value).partition(". ")
    assert sentence == f"the {group} plug-in {name!r} is not installed: pip install 'firesteel[{extra}]'"
    assert place.startswith(f"Process {os.getpid()} (")


@pytest.mark.parametrize(
    ("module", "name", "distribution", "extra"),
    [
        ("firesteel.datastream.connectors.kafka", "KafkaSource", "firesteel-kafka", "kafka"),
        ("firesteel.datastream.connectors", "KafkaSource", "firesteel-kafka", "kafka"),
        ("firesteel.datastream.connectors.jdbc", "JdbcSink", "firesteel-jdbc", "jdbc"),
        ("firesteel.datastream.formats.avro", "AvroSchema", "firesteel-formats", "avro"),
        ("firesteel.datastream.formats.parquet", "AvroParquetReaders", "firesteel-formats", "formats"),
    ],
)
def test_a_name_of_pyflink_whose_plug_in_is_not_installed_says_how_it_is(
    module: str, name: str, distribution: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = pyflink_names.reexports(module)
    assert find(name).__name__ == name
    uninstall(distribution, monkeypatch)
    with pytest.raises(ModuleNotFoundError) as caught:
        find(name)
    assert str(caught.value) == f"{name} is in {distribution}, which is not installed: pip install 'firesteel[{extra}]'"


def test_modules_of_others_are_no_plug_ins_of_ours() -> None:
    assert plugins.missing_plugin("firesteel_kafka.source") is not None
    assert plugins.missing_plugin("firesteel_of_somebody") is None
    assert plugins.missing_plugin("firesteel.nothing") is None
    assert plugins.missing_plugin("kafka") is None
    assert plugins.missing_plugin(None) is None


def test_entry_points_that_come_with_the_search_path_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert plugins.known_names("some.group") == set()
    info = tmp_path / "other-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[some.group]\nnew = collections:deque\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert plugins.load("some.group", "new").__name__ == "deque"
