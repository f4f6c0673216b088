"""The store: what it said is safe survives, whatever happens; what is damaged harms nothing else."""

from __future__ import annotations

import builtins
import errno
import io
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from firesteel.config import Settings
from firesteel.core.errors import ConfigurationError
from firesteel.ha.directory import DirectoryServices
from firesteel.ha.directory_cells import DirectoryCells
from firesteel.ha.disk import Disk
from firesteel.ha.documents import DamagedEntryError, UnknownFormatError, decode, encode
from firesteel.ha.jobs import JobStore, JobsUnreadableError, StoreContents
from firesteel.ha.memory import MemoryCells, MemoryServices
from firesteel.ha.retrieval import DISPATCHER
from tests.unit.ha.crashes import (
    BLOB,
    SHA,
    A,
    B,
    MakeCells,
    check_failing_disk,
    check_power_cuts,
    end,
    job,
    lead,
    put,
)
from tests.unit.ha.directories import NoSyncDisk, edit_record, records_file


def services_in(folder: Path, disk: Disk | None = None) -> DirectoryServices:
    settings = Settings({"high-availability.storageDir": str(folder)})
    return DirectoryServices(settings, disk=disk or NoSyncDisk())


def opened(folder: Path, disk: Disk | None = None) -> tuple[JobStore, StoreContents]:
    """The store of a Dispatcher that follows any other."""
    services = services_in(folder, disk)
    store = services.job_store(lead(services, DISPATCHER))
    return store, store.open()


def content(folder: Path) -> StoreContents:
    """What a Dispatcher would find now."""
    return opened(folder)[1]


def payload(folder: Path, kind: str, job_id: str) -> Path:
    """The folder of a job, or the file with its archive."""
    (path,) = (folder / "default" / "jobs").glob(f"*/{kind}/{job_id}.*")
    return path


def names(contents: StoreContents) -> tuple[list[str], list[str]]:
    return [j.graph.job_id for j in contents.jobs], [e.job_id for e in contents.ends]


def test_what_was_stored_is_found_again(tmp_path: Path) -> None:
    store, contents = opened(tmp_path / "d")
    assert contents == StoreContents((), (), (), 1)
    put(store, Disk(), job(B, 2))
    put(store, Disk(), job(A, 1))
    store.set_jobmaster(A, "http://jm", "token")
    store.set_cancelled(B)
    blob = store.blob(SHA)
    assert blob is not None
    assert blob.read_bytes() == BLOB
    store.close()
    stored = content(tmp_path / "d")
    assert stored.jobs == (
        replace(job(A, 1), jobmaster=("http://jm", "token")),
        replace(job(B, 2), cancel_wanted=True),
    )
    modes = {oct(p.stat().st_mode & 0o077) for p in (tmp_path / "d").rglob("*.json")}
    assert modes == {"0o0"}, "tokens are in there"


def test_a_blob_of_two_jobs_stays_until_the_second_has_ended(tmp_path: Path) -> None:
    store, _ = opened(tmp_path / "d")
    put(store, Disk(), job(A))
    put(store, Disk(), job(B))
    store.end(end(A))
    blob = store.blob(SHA)
    assert blob is not None
    assert blob.is_file()
    store.end(end(B))
    assert store.blob(SHA) is None
    assert store.archive(A) == {"state": "FINISHED", "jid": A}
    store.forget(A)
    assert store.archive(A) is None
    (left,) = [path for path in (tmp_path / "d").rglob("*") if A in path.name or B in path.name]
    assert left.name.startswith(B)


def test_what_need_not_outlive_the_process_goes_with_it(tmp_path: Path) -> None:
    services = MemoryServices(directory=tmp_path / "d")
    store = services.job_store(lead(services, DISPATCHER))
    store.open()
    put(store, Disk(), job(A))
    assert (tmp_path / "d" / "dispatcher").exists()
    store.close()
    assert not (tmp_path / "d" / "dispatcher").exists()


def test_a_directory_that_can_not_be_used_is_said(tmp_path: Path) -> None:
    services = services_in(tmp_path / "d")
    leadership = lead(services, DISPATCHER)
    (tmp_path / "d" / "default" / "jobs").write_text("")
    with pytest.raises(ConfigurationError, match=r"can't use the directory .*jobs: Not a directory"):
        services.job_store(leadership).open()


@pytest.mark.parametrize(
    "number",
    [
        errno.ENOSPC,
        errno.EDQUOT,
        errno.EIO,
        errno.EROFS,
        errno.ESTALE,
        errno.ETIMEDOUT,
        errno.ENOTCONN,
        errno.EHOSTDOWN,
    ],
    ids=errno.errorcode.get,
)
def test_a_disk_that_is_away_or_full_at_the_start_is_waited_for(tmp_path: Path, number: int) -> None:
    class AwayDisk(Disk):
        is_away = False

        def make_directory(self, path: Path) -> None:
            if self.is_away:
                raise OSError(number, os.strerror(number))
            super().make_directory(path)

    disk = AwayDisk()
    services = services_in(tmp_path / "d", disk)
    store = services.job_store(lead(services, DISPATCHER))
    disk.is_away = True
    with pytest.raises(JobsUnreadableError, match=f"for now: {os.strerror(number)}"):
        store.open()
    disk.is_away = False
    assert store.open() == StoreContents((), (), term=1)


def _wrong_version(path: Path) -> None:
    head, _, body = path.read_bytes().partition(b"\n")
    path.write_bytes(head.replace(b" 1 ", b" 2 ") + b"\n" + body)


def _flip(path: Path) -> None:
    text = bytearray(path.read_bytes())
    text[-3] ^= 1
    path.write_bytes(text)


DAMAGE: list[Callable[[Path], Any]] = [
    lambda path: path.write_bytes(b""),
    lambda path: path.write_bytes(path.read_bytes()[:-1]),
    lambda path: path.write_bytes(b"\x80\x04garbage"),
    lambda path: path.write_bytes(encode("job", {"graph": 7})),
    lambda path: path.write_bytes(encode("job", {"graph": job(B).graph.to_plain(), "fingerprint": "", "submitted_ms": 1})),  # noqa: E501
    lambda path: path.write_bytes(encode("other", {})),
    _flip,
    lambda path: path.unlink(),
    lambda path: (path.parent / "blobs" / SHA).unlink(),
    lambda path: (path.parent / "blobs" / SHA).write_bytes(BLOB[:-1]),
    lambda path: (path.parent / "blobs" / SHA).write_bytes(BLOB.swapcase()),
]  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_job_waits_with_its_reason_and_harms_no_other(
    damage: Callable[[Path], Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder, (store, _) = tmp_path / "d", opened(tmp_path / "d")
    put(store, Disk(), job(A))
    put(store, Disk(), job("c" * 32))
    store.set_jobmaster(A, "http://jm", "token")
    store.end(end(B))
    entry = payload(folder, "job", A)
    shutil.copytree(entry, tmp_path / "whole")
    damage(entry / "graph.json")
    for _ in range(2):  # also the next Dispatcher finds it
        store, contents = opened(folder)
        assert names(contents) == (["c" * 32], [B])
        (waiting,) = contents.unreadable
        assert (waiting.job_id, waiting.jobmaster) == (A, ("http://jm", "token"))
        assert f"{A} is damaged: " in waiting.reason
        assert waiting.reason in caplog.text
    with pytest.raises(DamagedEntryError, match=f"{A} is damaged"):
        store.read_again(A)
    shutil.rmtree(entry)
    (tmp_path / "whole").rename(entry)
    assert store.read_again(A).graph == job(A).graph
    assert store.blob(SHA) is not None


@pytest.mark.parametrize("kind", ["job", "cancel"])
@pytest.mark.parametrize(
    "damage",
    [lambda line: b"", lambda line: line[:-1], lambda line: line[:20] + b"\x80" + line[21:], lambda line: b"{}"],
)
def test_a_damaged_record_harms_no_other_and_people_can_mend_it(
    damage: Callable[[bytes], bytes], kind: str, tmp_path: Path
) -> None:
    folder, (store, _) = tmp_path / "d", opened(tmp_path / "d")
    put(store, Disk(), job(A))
    put(store, Disk(), job("c" * 32))
    store.set_cancelled(A)
    store.end(end(B))
    before = edit_record(folder / "default", f"{kind}.{A}", damage, DISPATCHER)
    for _ in range(2):
        store, contents = opened(folder)
        assert names(contents) == (["c" * 32], [B])
        (waiting,) = contents.unreadable
        assert f"the record job.{A} is damaged: it was changed" in waiting.reason
    by_hand = before.partition(b" ")[2]  # JSON without its checksum
    edit_record(folder / "default", f"{kind}.{A}", lambda line: by_hand, DISPATCHER)
    assert store.read_again(A).cancel_wanted
    assert sorted(names(content(folder))[0]) == [A, "c" * 32]


def test_a_cell_that_is_damaged_as_a_whole_is_waited_for(tmp_path: Path) -> None:
    store, _ = opened(tmp_path / "d")
    put(store, Disk(), job(A))
    path = records_file(tmp_path / "d" / "default", DISPATCHER)
    whole = path.read_bytes()
    damages: list[tuple[Callable[[], object], str]] = [
        (lambda: path.write_bytes(whole[:100]), "is damaged: .*Bring it back from a copy"),
        (lambda: path.write_bytes(b""), "is damaged: .*Bring it back from a copy"),
        (path.unlink, "is missing. Bring it back from a copy"),
    ]
    for damage, reason in damages:
        damage()
        with pytest.raises(OSError, match=reason):
            content(tmp_path / "d")
    path.write_bytes(whole.replace(b" cell 1 ", b" cell 2 ", 1))
    with pytest.raises(ConfigurationError, match=r"another version of Firesteel has written .*records: .*format 2"):
        content(tmp_path / "d")
    path.write_bytes(whole)
    assert names(content(tmp_path / "d")) == ([A], [])


def test_jobs_of_another_version_keep_a_dispatcher_from_leading(tmp_path: Path) -> None:
    store, _ = opened(tmp_path / "d")
    put(store, Disk(), job(A))
    store.end(end(B))
    path = payload(tmp_path / "d", "job", A) / "graph.json"
    whole, plain = path.read_bytes(), decode("job", path.read_bytes())
    plain["graph"]["format_version"] = 2
    path.write_bytes(encode("job", plain))
    with pytest.raises(
        ConfigurationError, match=r"another version of Firesteel .*format 2; this version reads format 1"
    ):
        content(tmp_path / "d")
    path.write_bytes(whole)
    for file in (path, payload(tmp_path / "d", "ended", B)):
        whole = file.read_bytes()
        _wrong_version(file)
        with pytest.raises(ConfigurationError, match=r"another version of Firesteel .*the format 2; "):
            content(tmp_path / "d")
        file.write_bytes(whole)
    assert names(content(tmp_path / "d")) == ([A], [B])


def test_a_damaged_end_stays_where_it_is_and_its_job_does_not_run_again(tmp_path: Path) -> None:
    store, _ = opened(tmp_path / "d")
    store.end(end(A))
    put(store, Disk(), job(A))  # as by a service that does not change two records in one step
    store.end(end(B))
    archive = payload(tmp_path / "d", "ended", A)
    _flip(archive)
    with pytest.raises(DamagedEntryError, match="checksum"):
        store.archive(A)
    contents = content(tmp_path / "d")
    assert (names(contents), contents.unreadable) == (([], [B]), ())
    assert archive.exists()


def test_an_application_that_is_damaged_is_not_run_again(tmp_path: Path) -> None:
    store, _ = opened(tmp_path / "d")
    store.set_application({"id": "a", "state": "FINISHED"})
    edit_record(tmp_path / "d" / "default", "application", lambda line: line[:-2] + b"x" + line[-1:], DISPATCHER)
    with pytest.raises(ConfigurationError, match=r"application is damaged: .*is not run again"):
        content(tmp_path / "d")


@pytest.mark.parametrize("unreadable", ["graph", "blob", "end", "records"])
def test_what_can_not_be_read_for_now_is_said(unreadable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, _ = opened(tmp_path / "d")
    put(store, Disk(), job(A))
    store.end(end(B))
    entry = payload(tmp_path / "d", "job", A)
    path = {
        "graph": entry / "graph.json",
        "blob": entry / "blobs" / SHA,
        "end": payload(tmp_path / "d", "ended", B),
        "records": records_file(tmp_path / "d" / "default", DISPATCHER),
    }[unreadable]
    opened_file = io.open

    def failing(file: Any, *arguments: Any, **more: Any) -> Any:
        if str(file) == str(path):
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(file))
        return opened_file(file, *arguments, **more)

    with monkeypatch.context() as broken:
        for where in (io, builtins):
            broken.setattr(where, "open", failing)
        how = OSError if unreadable == "records" else JobsUnreadableError  # a Dispatcher can't even campaign then
        with pytest.raises(how, match="Input/output error") as error:
            content(tmp_path / "d")
    assert path.name in str(error.value)
    assert names(content(tmp_path / "d")) == ([A], [B])


def test_strange_files_do_no_harm(tmp_path: Path) -> None:
    store, _ = opened(tmp_path / "d")
    folder = tmp_path / "d" / "default" / "jobs"
    received = store.receive()
    (folder / "notes.txt").write_text("?")
    assert content(tmp_path / "d").unreadable == ()
    assert (folder / "notes.txt").exists()
    assert not received.exists()


def test_documents_say_what_is_wrong() -> None:
    assert decode("job", encode("job", {"a": [1]})) == {"a": [1]}
    for kind, text, reason in (
        ("end", encode("job", {}), "of the kind 'job', not 'end'"),
        ("job", encode("job", {}).replace(b" 1 ", b" x ", 1), "format 'x'"),
        ("job", b"", "does not begin with the header"),
        ("job", encode("job", {}) + b" ", "checksum"),
    ):
        with pytest.raises(DamagedEntryError, match=reason):
            decode(kind, text)
    with pytest.raises(UnknownFormatError, match="format 9; this version reads format 1"):
        decode("job", encode("job", {}).replace(b" 1 ", b" 9 ", 1))


# Power cuts and full disks at every single operation


def memory_cells() -> MakeCells:
    cells: dict[Path, MemoryCells] = {}
    return lambda folder, disk: cells.setdefault(folder, MemoryCells())


def directory_cells() -> MakeCells:
    return lambda folder, disk: DirectoryCells(folder, disk, folder / "payloads")


CELLS = pytest.mark.parametrize("cells", [memory_cells, directory_cells])


@CELLS
@pytest.mark.parametrize("lose", [True, False])
@pytest.mark.parametrize("stride", [4, pytest.param(1, marks=pytest.mark.long)])
def test_what_was_acknowledged_survives_a_power_cut_at_any_moment(
    cells: Callable[[], MakeCells], lose: bool, stride: int, tmp_path: Path
) -> None:
    check_power_cuts(tmp_path, cells(), lose=lose, stride=stride)


@CELLS
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("stride", [4, pytest.param(1, marks=pytest.mark.long)])
def test_a_disk_that_fails_once_costs_nothing(
    cells: Callable[[], MakeCells], number: int, stride: int, tmp_path: Path
) -> None:
    check_failing_disk(tmp_path, cells(), number, stride=stride)
