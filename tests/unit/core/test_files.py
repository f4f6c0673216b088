from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from firesteel.checkpoint.store import StoredCheckpoint
from firesteel.core.files import replace_file
from firesteel.core.process import myself
from firesteel.ha.disk import Disk
from firesteel.service.pid_file import PidFile
from firesteel.spark.driver_record import DriverRecord
from tests.unit.ha.directories import checkpoint_store


def refuse(monkeypatch: pytest.MonkeyPatch, number: int, *, directories: bool) -> None:
    """Have each ``fsync`` of a directory (or of a file) fail; the others do nothing."""

    def fsync(handle: int) -> None:
        if stat.S_ISDIR(os.fstat(handle).st_mode) is directories:
            raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", fsync)


def test_a_file_is_replaced_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    replace_file(path, b"longer", durable=False)
    replace_file(path, b"new", durable=False)
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert os.listdir(tmp_path) == ["a.json"]


def test_what_can_not_be_replaced_stays_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.json"
    replace_file(path, b"old", durable=False)
    refuse(monkeypatch, errno.ENOSPC, directories=False)
    with pytest.raises(OSError, match="No space"):
        replace_file(path, b"new")
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a.json"]


def test_file_and_directory_are_synced_where_that_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced = list[bool]()
    monkeypatch.setattr(os, "fsync", lambda handle: synced.append(stat.S_ISDIR(os.fstat(handle).st_mode)))
    replace_file(tmp_path / "a", b"", durable=False)
    assert synced == []
    replace_file(tmp_path / "a", b"")
    assert synced == [False, True]


@pytest.mark.parametrize("number", [errno.EINVAL, errno.EBADF, errno.ENOTSUP])
def test_stores_work_on_file_systems_that_can_not_sync_directories(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    refuse(monkeypatch, number, directories=True)
    store = checkpoint_store(tmp_path)
    store.add(StoredCheckpoint(1, "/c/chk-1"))
    assert store.all() == [StoredCheckpoint(1, "/c/chk-1")]
    Disk().sync(tmp_path)


def test_an_error_in_the_sync_of_a_directory_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse(monkeypatch, errno.EIO, directories=True)
    with pytest.raises(OSError, match="Input/output"):
        replace_file(tmp_path / "a", b"")
    with pytest.raises(OSError, match="Input/output"):
        Disk().sync(tmp_path)


def test_records_of_processes_leave_no_parts_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "replace", full)
    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="No space"):
        DriverRecord(myself(), "d", {}).write(tmp_path)
    with pytest.raises(OSError, match="No space"), PidFile(tmp_path / "a.pid"):
        pass
    assert os.listdir(tmp_path) == []
