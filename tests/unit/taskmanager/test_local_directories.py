"""Directories for local copies of state: made at the start, gone with their job, their TaskManager, or the next one."""

from __future__ import annotations

from pathlib import Path

import pytest

from firesteel.config import Settings
from firesteel.core.errors import ConfigurationError
from firesteel.state import attempt_directories
from firesteel_taskmanager.local_directories import LocalDirectories

KEY = "execution.checkpointing.local-backup.dirs"


def settings(*parents: Path) -> Settings:
    return Settings({KEY: " , ".join(map(str, parents))}, "cluster")


def test_local_directories_go_with_their_job_and_with_the_taskmanager(tmp_path: Path) -> None:
    disks = [tmp_path / "a", tmp_path / "b" / "deep"]
    local, other = LocalDirectories(settings(*disks)), LocalDirectories(settings(*disks))
    local.open()
    other.open()
    mine = [Path(path) for path in local.of("job")]
    assert [path.parents[1] for path in mine] == disks
    for path in (*mine, *map(Path, local.of("next")), *map(Path, other.of("job"))):
        path.mkdir()
    local.forget("job")
    assert not any(path.exists() for path in mine)
    assert all(Path(path).exists() for path in (*local.of("next"), *other.of("job")))
    local.close()
    assert [len(list(disk.iterdir())) for disk in disks] == [1, 1]
    assert local.of("next") == []
    other.close()
    assert [list(disk.iterdir()) for disk in disks] == [[], []]


def test_local_directories_of_a_taskmanager_that_was_killed_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed = LocalDirectories(settings(tmp_path))
    monkeypatch.setattr(attempt_directories, "_started", lambda pid: 1)
    killed.open()
    monkeypatch.undo()
    foreign = tmp_path / "of somebody else"
    foreign.mkdir()
    local = LocalDirectories(settings(tmp_path))
    local.open()
    assert set(tmp_path.iterdir()) == {foreign, *(Path(path).parent for path in local.of("job"))}
    local.close()


def test_a_local_directory_that_can_not_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    local = LocalDirectories(settings(tmp_path / "good", tmp_path / "file"))
    with pytest.raises(ConfigurationError, match=rf"{KEY}: {tmp_path / 'file'} can't be used: "):
        local.open()
    assert list((tmp_path / "good").iterdir()) == []


def test_none_are_configured() -> None:
    local = LocalDirectories(Settings({}, "cluster"))
    local.open()
    assert local.of("job") == []
    local.close()
