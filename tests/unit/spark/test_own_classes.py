"""The committed jar belongs to the committed sources, and to the installed Spark."""

from __future__ import annotations

import importlib.metadata
import re
from pathlib import Path

import pytest

from firesteel.core.errors import FleetError
from firesteel.spark import own_classes
from firesteel.spark.own_classes import DIGEST_ATTRIBUTE, JAR, SOURCES, SPARK, refuse_other_spark, sources_digest
from tools.spark_jar import MANIFEST, SERVICE, attributes, differences, read_jar


def test_the_jar_was_made_from_these_sources() -> None:
    manifest = attributes(read_jar(JAR)[MANIFEST])
    assert manifest[DIGEST_ATTRIBUTE] == sources_digest(), "run: ./dev run python tools/spark_jar.py"
    assert manifest["Firesteel-Spark"] == SPARK


def test_the_jar_names_its_cluster_manager_and_runs_on_the_oldest_java() -> None:
    jar = read_jar(JAR)
    assert jar[SERVICE].decode().strip().replace(".", "/") + ".class" in jar
    classes = {name: data for name, data in jar.items() if name.endswith(".class")}
    sources = [path.relative_to(SOURCES).with_suffix(".class").as_posix() for path in SOURCES.rglob("*.java")]
    assert set(sources) <= set(classes)
    assert {int.from_bytes(data[6:8], "big") for data in classes.values()} == {61}, "class files of Java 17"


def test_the_digest_changes_with_a_source_and_with_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_classes, "SOURCES", tmp_path)
    digests = set()
    for name, text in (("A.java", "a"), ("A.java", "b"), ("B.java", "b")):
        for old in tmp_path.iterdir():
            old.unlink()
        (tmp_path / name).write_text(text)
        digests.add(sources_digest())
    assert len(digests) == 3


def test_differences_are_named() -> None:
    assert differences({"same": b"", "new": b"", "other": b"a"}, {"same": b"", "old": b"", "other": b"b"}) == [
        "new",
        "old",
        "other",
    ]


def test_a_long_attribute_is_one_again() -> None:
    manifest = read_jar(JAR)[MANIFEST]
    assert len(max(manifest.split(b"\r\n"), key=len)) <= 72
    assert re.fullmatch("[0-9a-f]{64}", attributes(manifest)[DIGEST_ATTRIBUTE])


def test_another_spark_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_other_spark()
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "4.31.0")
    with pytest.raises(FleetError, match=rf"PySpark 4\.31\.0 is installed.*Spark {SPARK} only.*pip install"):
        refuse_other_spark()


def test_no_spark_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", absent)
    with pytest.raises(FleetError, match="pyspark is not installed"):
        refuse_other_spark()
