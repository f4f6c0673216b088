"""The store: what it said is safe survives, whatever happens; what is damaged harms nothing else."""

from __future__ import annotations

import builtins
import errno
import hashlib
import io
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from firesteel.core.errors import ConfigurationError
from firesteel.graph.chaining import client_versions
from firesteel.graph.job_graph import JobGraph, JobVertex, OperatorInfo
from firesteel.ha.disk import Disk
from firesteel.ha.documents import DamagedEntryError, UnknownFormatError, decode, encode
from firesteel.ha.job_directory import DirectoryJobStore
from firesteel.ha.jobs import JobsUnreadableError, StoreContents, StoredEnd, StoredJob
from tests.unit.ha.power_disk import PowerCut, PowerDisk

BLOB = b"chain" * 100
SHA = hashlib.sha256(BLOB).hexdigest()
A, B = "a" * 32, "b" * 32


def job(job_id: str = A, at: int = 1) -> StoredJob:
    vertex = JobVertex("1" * 32, "v", 1, 128, "default", SHA, (OperatorInfo("1" * 32, "op", None, "map"),))
    graph = JobGraph(job_id, "words", (vertex,), (), blobs={SHA: len(BLOB)}, versions=client_versions())
    return StoredJob(graph, f"fingerprint of {job_id}", at)


def end(job_id: str = A, at: int = 9) -> StoredEnd:
    return StoredEnd(job_id, "words", f"fingerprint of {job_id}", at, {"state": "FINISHED", "jid": job_id})


def put(store: DirectoryJobStore, disk: Disk, what: StoredJob) -> None:
    received = store.receive()
    try:
        part = received / "part-1"
        disk.write(part, BLOB)
        store.put(what, received, {SHA: part})
    except OSError:
        store.drop(received)
        raise


def opened(folder: Path) -> tuple[DirectoryJobStore, StoreContents]:
    store = DirectoryJobStore(folder, Disk(durable=False))
    return store, store.open()


def content(folder: Path) -> StoreContents:
    """What a Dispatcher would find now."""
    store = DirectoryJobStore(folder, Disk())
    try:
        return store.open()
    finally:
        store.close()


def names(found: StoreContents) -> tuple[list[str], list[str]]:
    return [j.graph.job_id for j in found.jobs], [e.job_id for e in found.ends]


def test_what_was_stored_is_found_again(tmp_path: Path) -> None:
    store = DirectoryJobStore(tmp_path / "d", Disk())
    assert store.open() == StoreContents((), (), (), 1)
    put(store, Disk(), job(B, 2))
    put(store, Disk(), job(A, 1))
    store.set_jobmaster(A, "http://jm", "token")
    store.set_cancelled(B)
    blob = store.blob(SHA)
    assert blob is not None
    assert blob.read_bytes() == BLOB
    store.close()
    found = content(tmp_path / "d")
    assert found.jobs == (
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
    assert sorted(path.name for path in (tmp_path / "d" / "ended").iterdir()) == [f"{B}.json"]
    store.close()
    assert not (tmp_path / "d").exists(), "what need not outlive the process goes with it"


def test_a_directory_that_can_not_be_used_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match="can't use the directory"):
        opened(tmp_path / "file" / "d")


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
        is_away = True

        def make_directory(self, path: Path) -> None:
            if self.is_away:
                raise OSError(number, os.strerror(number))
            super().make_directory(path)

    disk = AwayDisk()
    store = DirectoryJobStore(tmp_path / "d", disk)
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
    lambda path: (path.parent / "cancel.json").write_bytes(b"?"),
]  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_job_waits_with_its_reason_and_harms_no_other(
    damage: Callable[[Path], Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = DirectoryJobStore(tmp_path / "d", Disk())
    store.open()
    put(store, Disk(), job(A))
    put(store, Disk(), job("c" * 32))
    store.set_jobmaster(A, "http://jm", "token")
    store.end(end(B))
    store.close()
    entry = tmp_path / "d" / "jobs" / A
    shutil.copytree(entry, tmp_path / "whole")
    damage(entry / "job.json")
    store = DirectoryJobStore(tmp_path / "d", Disk())
    for _ in range(2):  # also the next Dispatcher finds it
        found = store.open()
        assert names(found) == (["c" * 32], [B])
        (waiting,) = found.unreadable
        assert (waiting.job_id, waiting.jobmaster) == (A, ("http://jm", "token"))
        assert f"{A} is damaged: " in waiting.reason
        assert waiting.reason in caplog.text
    with pytest.raises(DamagedEntryError, match=f"{A} is damaged"):
        store.read_again(A)
    shutil.rmtree(entry)
    (tmp_path / "whole").rename(entry)
    assert store.read_again(A).graph == job(A).graph
    assert store.blob(SHA) is not None


def test_jobs_of_another_version_keep_a_dispatcher_from_leading(tmp_path: Path) -> None:
    store = DirectoryJobStore(tmp_path / "d", Disk())
    store.open()
    put(store, Disk(), job(A))
    store.end(end(B))
    store.close()
    path = tmp_path / "d" / "jobs" / A / "job.json"
    whole, plain = path.read_bytes(), decode("job", path.read_bytes())
    plain["graph"]["format_version"] = 2
    path.write_bytes(encode("job", plain))
    with pytest.raises(
        ConfigurationError, match=r"another version of Firesteel .*format 2; this version reads format 1"
    ):
        content(tmp_path / "d")
    path.write_bytes(whole)
    for file in (path, tmp_path / "d" / "ended" / f"{B}.json"):
        whole = file.read_bytes()
        _wrong_version(file)
        with pytest.raises(ConfigurationError, match=r"another version of Firesteel .*the format 2; "):
            content(tmp_path / "d")
        file.write_bytes(whole)
    assert names(content(tmp_path / "d")) == ([A], [B])


def test_a_damaged_end_stays_where_it_is_and_its_job_does_not_run_again(tmp_path: Path) -> None:
    store = DirectoryJobStore(tmp_path / "d", Disk())
    store.open()
    put(store, Disk(), job(A))
    shutil.copytree(tmp_path / "d" / "jobs" / A, tmp_path / "before")
    store.end(end(A))
    store.end(end(B))
    (tmp_path / "before").rename(tmp_path / "d" / "jobs" / A)  # the power went before it was removed
    _flip(tmp_path / "d" / "ended" / f"{A}.json")
    with pytest.raises(DamagedEntryError, match="checksum"):
        store.archive(A)
    store.close()
    found = content(tmp_path / "d")
    assert (names(found), found.unreadable) == (([], [B]), ())
    assert (tmp_path / "d" / "ended" / f"{A}.json").exists()


def test_an_application_that_is_damaged_is_not_run_again(tmp_path: Path) -> None:
    store = DirectoryJobStore(tmp_path / "d", Disk())
    store.open()
    store.set_application({"id": "a", "state": "FINISHED"})
    store.close()
    _flip(tmp_path / "d" / "application.json")
    with pytest.raises(ConfigurationError, match=r"application.json is damaged: .*It is not run again"):
        content(tmp_path / "d")


@pytest.mark.parametrize("unreadable", [f"jobs/{A}/job.json", f"jobs/{A}/blobs/{SHA}", f"ended/{B}.json"])
def test_what_can_not_be_read_for_now_is_said(unreadable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "d"
    store = DirectoryJobStore(folder, Disk())
    store.open()
    put(store, Disk(), job(A))
    store.end(end(B))
    store.close()
    opened_file = io.open

    def failing(path: Any, *arguments: Any, **more: Any) -> Any:
        if str(path) == str(folder / unreadable):
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
        return opened_file(path, *arguments, **more)

    with monkeypatch.context() as broken:
        for where in (io, builtins):
            broken.setattr(where, "open", failing)
        with pytest.raises(JobsUnreadableError, match=f"can't read .*{unreadable} for now: Input/output error"):
            content(folder)
    assert names(content(folder)) == ([A], [B])


def test_strange_files_do_no_harm(tmp_path: Path) -> None:
    content(tmp_path / "d")
    (tmp_path / "d" / "jobs" / "notes.txt").write_text("?")
    (tmp_path / "d" / "incoming" / "7").mkdir()
    found = content(tmp_path / "d")
    assert found.unreadable == ()
    assert (tmp_path / "d" / "jobs" / "notes.txt").exists()
    assert list((tmp_path / "d" / "incoming").iterdir()) == []


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


def history(store: DirectoryJobStore, disk: Disk) -> list[tuple[Callable[[], None], set[str]]]:
    """Operations, each with what has to be found when it has returned."""
    return [
        (lambda: put(store, disk, job(A, 1)), {"job a"}),
        (lambda: store.set_jobmaster(A, "http://1", "t"), {"job a", "jobmaster of a"}),
        (lambda: put(store, disk, job(B, 2)), {"job a", "jobmaster of a", "job b"}),
        (lambda: store.set_cancelled(B), {"job a", "jobmaster of a", "job b", "b cancelled"}),
        (lambda: store.end(end(A)), {"end of a", "job b", "b cancelled"}),
        (lambda: store.end(end(B)), {"end of a", "end of b"}),
        (lambda: store.forget(A), {"end of b"}),
    ]


def summary(found: StoreContents) -> set[str]:
    assert found.unreadable == (), "a half-written entry was seen"
    seen = {f"job {j.graph.job_id[0]}" for j in found.jobs} | {f"end of {e.job_id[0]}" for e in found.ends}
    seen |= {f"jobmaster of {j.graph.job_id[0]}" for j in found.jobs if j.jobmaster}
    return seen | {f"{j.graph.job_id[0]} cancelled" for j in found.jobs if j.cancel_wanted}


@pytest.mark.parametrize("lose", [True, False])
def test_what_was_acknowledged_survives_a_power_cut_at_any_moment(lose: bool, tmp_path: Path) -> None:
    for cut in count(1):
        folder = tmp_path / str(cut)
        disk = PowerDisk(tmp_path, cut)
        store = DirectoryJobStore(folder, disk)
        allowed: list[set[str]] = [set()]
        try:
            store.open()
            for operation, after in history(store, disk):
                allowed = [allowed[-1], after]
                operation()
                allowed = [after]
        except PowerCut:
            pass
        else:
            assert cut > 40, "the test has lost its meaning"
            return
        finally:
            if lose:
                disk.lose()
        assert summary(content(folder)) in allowed, f"power cut at operation {cut}"


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_a_disk_that_fails_once_costs_nothing(number: int, tmp_path: Path) -> None:
    for fail in count(4):  # the first ones belong to opening
        folder = tmp_path / str(fail)
        disk = PowerDisk(tmp_path, fail, number)
        store = DirectoryJobStore(folder, disk)
        store.open()
        failed = 0
        for number_of_operation, (operation, _) in enumerate(history(store, disk)):
            before = entries(folder)
            try:
                operation()
            except OSError:
                failed += 1
                is_submission = number_of_operation in (0, 2)
                assert not is_submission or entries(folder) == before, f"half a job is left at {fail}"
                operation()  # again
        store.close()
        assert summary(content(folder)) == {"end of b"}, f"failure at operation {fail}"
        assert list((folder / "incoming").iterdir()) == []
        if disk.operations < fail:
            assert fail > 40, "the test has lost its meaning"
            return
        assert failed <= 1


def entries(folder: Path) -> list[str]:
    """Names of all files of jobs."""
    return sorted(str(path.relative_to(folder)) for path in (folder / "jobs").rglob("*"))
