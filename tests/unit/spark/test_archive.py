"""Where class-data archives lie, what their names depend on, and whose are used."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from firesteel.core.run_directory import default_root
from firesteel.spark import archive as module
from firesteel.spark.archive import MOST_ARCHIVES, UNUSED_SECONDS, Archive, archive_for, remove_unused
from firesteel.spark.java import Java


@pytest.fixture
def java(tmp_path: Path) -> Java:
    home = tmp_path / "jdk"
    (home / "lib" / "server").mkdir(parents=True)
    (home / "lib" / "modules").write_bytes(b"m")
    (home / "lib" / "server" / "classes.jsa").touch()
    return Java(home / "bin" / "java", home, 17, "17.0.1+1")


def path_for(java: Java, tmp_path: Path) -> Path:
    archive = archive_for(java, "embedded", {"XDG_CACHE_HOME": str(tmp_path / "cache")})
    assert archive is not None
    return archive.path


def test_the_same_java_and_spark_have_the_same_archive(java: Java, tmp_path: Path) -> None:
    path = path_for(java, tmp_path)
    assert path.parent == tmp_path / "cache" / "firesteel"
    assert path_for(java, tmp_path) == path


def test_another_build_module_file_or_class_path_has_another(
    java: Java, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = {path_for(java, tmp_path), path_for(replace(java, build="17.0.2+8"), tmp_path)}
    (java.home / "lib" / "modules").write_bytes(b"other")
    paths.add(path_for(java, tmp_path))
    monkeypatch.setattr(module, "class_path", lambda whole: [str(java.home / "lib" / "modules")])
    paths.add(path_for(java, tmp_path))
    assert len(paths) == 4


def test_the_kind_follows_the_release(java: Java, tmp_path: Path) -> None:
    assert path_for(java, tmp_path).suffix == ".jsa"
    assert path_for(replace(java, feature=25), tmp_path).suffix == ".aot"
    (java.home / "lib" / "server" / "classes.jsa").unlink()
    assert archive_for(java, "embedded") is None
    assert archive_for(replace(java, feature=25), "embedded") is not None


def test_only_files_that_nobody_else_can_write_are_used(tmp_path: Path) -> None:
    directory = tmp_path / "cache"
    directory.mkdir(mode=0o700)
    archive = Archive(directory / "x.jsa", ahead_of_time=False)
    assert archive.flags_to_use() == ()
    archive.path.write_bytes(b"x")
    archive.path.chmod(0o600)
    assert archive.flags_to_use() == (f"-XX:SharedArchiveFile={archive.path}",)
    archive.path.chmod(0o620)
    assert archive.flags_to_use() == ()
    archive.path.chmod(0o600)
    directory.chmod(0o777)
    assert archive.flags_to_use() == ()


def test_a_file_of_somebody_else_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = Archive(tmp_path / "x.aot", ahead_of_time=True)
    archive.path.write_bytes(b"x")
    archive.path.chmod(0o600)
    assert archive.is_there()
    other = os.geteuid() + 1
    monkeypatch.setattr(os, "geteuid", lambda: other)
    assert not archive.is_there()


def test_a_discarded_one_is_gone(tmp_path: Path) -> None:
    archive = Archive(tmp_path / "x.aot", ahead_of_time=True)
    archive.path.write_bytes(b"x")
    archive.discard()
    archive.discard()
    assert not archive.path.exists()


def test_archives_that_nobody_uses_are_removed(tmp_path: Path) -> None:
    directory = tmp_path / "firesteel"
    directory.mkdir(mode=0o700)
    environment = {"XDG_CACHE_HOME": str(tmp_path)}

    def aged_file(name: str, age: float) -> Path:
        path = directory / name
        path.touch(mode=0o600)
        at = path.stat().st_mtime - age
        os.utime(path, (at, at))
        return path

    old, making = (
        aged_file("driver-17-aa.jsa", UNUSED_SECONDS + 60),
        aged_file("executor-17-aa.jsa", UNUSED_SECONDS + 60),
    )
    used, foreign = (
        aged_file("embedded-25-bb.aot", UNUSED_SECONDS + 60),
        aged_file("kafka-4-cc.jsa", UNUSED_SECONDS + 60),
    )
    aged_file(".driver-17-aa.jsa.lock", 0)
    assert Archive(used, ahead_of_time=True).flags_to_use() != ()
    with Archive(making, ahead_of_time=False).lock(wait=False) as locked:
        assert locked
        assert remove_unused(environment) == [old]
    assert used.exists()
    assert foreign.exists()
    assert not (directory / ".driver-17-aa.jsa.lock").exists()
    assert remove_unused(environment) == [making]
    many = [aged_file(f"driver-17-{number:02}.jsa", 7200.0 + number) for number in range(MOST_ARCHIVES + 3)]
    assert sorted(remove_unused(environment)) == many[MOST_ARCHIVES - 1 :], "the one that was just used counts, too"


def test_a_user_without_a_home_has_archives_beside_the_run_directories(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.path.expanduser", lambda path: path)
    assert module._directory({}) == default_root() / "cache"
    assert module._directory({"XDG_CACHE_HOME": "/c"}) == Path("/c/firesteel")
