"""Jobs that are to start from what is no whole checkpoint: each is told which file is wrong, and nothing is touched."""

from __future__ import annotations

import copy
import json
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from socket import gethostname
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from firesteel.checkpoint.handles import checksum
from firesteel.checkpoint.metadata import VERSION
from firesteel.runtime.task import task as task_module
from tests.examples import examples
from tests.unit.checkpoint_faults.whole_job import WholeJob
from tests.unit.ha.directories import edit_record
from tests.unit.jobmaster.jobs import JOB
from tests.unit.runtime.mini_job import Shelf

RETAIN: dict[str, Any] = {"execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION"}

SHELF: list[Shelf] = []
"""With what the retained job had committed."""


@pytest.fixture(scope="module")
def retained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a checkpoint; tests change copies of it."""
    directory = tmp_path_factory.mktemp("retained")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(task_module, "STEP_SECONDS", -1.0)
        job = WholeJob(directory, 1, 2, **RETAIN)
        job.until(job.has_completed(2), "checkpoints")
        job.do(job.core.cancel("by a test"))
        job.until(lambda: job.ended, "the end")
        job.rest()
        job.close()
    SHELF.append(job.shelf)
    (checkpoint,) = (directory / "checkpoints" / JOB).glob("chk-*")
    assert len(list(checkpoint.iterdir())) >= 3, "state in files, and metadata"
    return checkpoint


def copied(retained: Path, directory: Path) -> Path:
    """State files keep their names: the metadata say where they are."""
    target = directory / "copy"
    shutil.copytree(retained, target)
    body = (target / "_metadata").read_bytes().split(b"\n", 1)[1].replace(str(retained).encode(), str(target).encode())
    (target / "_metadata").write_bytes(signed(body))
    return target


def signed(body: bytes, version: int = VERSION) -> bytes:
    return f"FIRESTEEL-CHECKPOINT {version} {checksum(body)} {len(body)}\n".encode() + body


def contents(directory: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def from_path(path: Path | str) -> dict[str, Any]:
    return {"execution.state-recovery.path": str(path), **RETAIN}


def started(directory: Path, path: Path | str, **more: Any) -> WholeJob:
    """A job from this path, when it is settled whether it can run."""
    shelf = copy.deepcopy(SHELF[0]) if SHELF else None
    settings = {**from_path(path), **more}
    job = WholeJob(Path(tempfile.mkdtemp(dir=directory)), 1, 2, shelf=shelf, **settings)
    job.until(lambda: job.ended or bool(job.completed), "it runs, or not")
    return job


def refused(directory: Path, path: Path | str, **more: Any) -> str:
    job = started(directory, path, **more)
    assert job.state == "FAILED"
    job.rest()
    assert job.left() == []
    return job.message()


def test_what_is_whole_is_taken(retained: Path, tmp_path: Path) -> None:
    path = copied(retained, tmp_path)
    before = contents(path)
    job = started(tmp_path, path)
    job.until(lambda: job.ended, "the end")
    assert job.state == "FINISHED", job.message()
    assert Counter(job.shelf.visible) == job.expected
    assert contents(path) == before


@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_each_bit_of_a_checkpoint_counts(data: Any, retained: Path, tmp_path: Path) -> None:
    path = copied(retained, Path(tempfile.mkdtemp(dir=tmp_path)))
    file = path / data.draw(st.sampled_from(sorted(entry.name for entry in retained.iterdir())))
    content = bytearray(file.read_bytes())
    content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    file.write_bytes(content)
    before = contents(path)
    message = refused(path.parent, path)
    assert str(file) in message
    assert "Nothing was changed" in message
    assert contents(path) == before


@settings(max_examples=examples(30), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_each_byte_of_a_checkpoint_is_missed(data: Any, retained: Path, tmp_path: Path) -> None:
    path = copied(retained, Path(tempfile.mkdtemp(dir=tmp_path)))
    file = path / data.draw(st.sampled_from(sorted(entry.name for entry in retained.iterdir())))
    size = file.stat().st_size
    os.truncate(file, data.draw(st.sampled_from([0, 1, 10, size // 2, size - 1]) | st.integers(0, size - 1)))
    assert str(file) in refused(path.parent, path)


def _write(content: bytes) -> Callable[[Path], object]:
    return lambda path: (path / "_metadata").write_bytes(content)


def _changed(**changes: Any) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        plain = json.loads((path / "_metadata").read_bytes().split(b"\n", 1)[1])
        (path / "_metadata").write_bytes(signed(json.dumps({**plain, **changes}).encode()))

    return change


def _no_state(path: Path) -> None:
    next(entry for entry in path.iterdir() if entry.name != "_metadata").unlink()


def _directories(path: Path) -> None:
    (path / "_metadata").unlink()
    (path / "_metadata").mkdir()


def _a_directory_of_state(path: Path) -> None:
    file = next(entry for entry in path.iterdir() if entry.name != "_metadata")
    file.unlink()
    file.mkdir()


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda path: (path / "_metadata").unlink(), "there is no checkpoint, for it has no metadata"),
        (shutil.rmtree, "there is no such file or directory"),
        (_write(b""), "the file is empty"),
        (_write(bytes.fromhex("4960672d00000004") + bytes(100)), "it was written by Apache Flink"),
        (_write(b'{"checkpoint": 1}'), "it is no metadata of a Firesteel checkpoint"),
        (_write(signed(b"[1, 2]\n")), "an object is expected, not list"),
        (_write(signed(b"{}\n", VERSION + 1)), f"it is of version {VERSION + 1}, and this Firesteel reads"),
        (_no_state, "the file is missing"),
        (_directories, "it is a directory, and should be a file"),
        (_a_directory_of_state, "it is a directory, and should be a file"),
        (_changed(checkpoint_id="x"), "metadata.checkpoint_id: an integer is expected"),
    ],
)
def test_what_is_no_checkpoint_is_told(
    damage: Callable[[Path], None], reason: str, retained: Path, tmp_path: Path
) -> None:
    path = copied(retained, tmp_path)
    damage(path)
    message = refused(tmp_path, path)
    assert reason in message
    assert f"{path}" in message
    assert "execution.state-recovery.path, -s" in message
    assert "chk-<n>" in message


@pytest.mark.parametrize(("mount", "what"), [("empty", "is empty"), ("missing", "is not there either")])
def test_a_mount_that_is_away_is_told(mount: str, what: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    message = refused(tmp_path, tmp_path / mount / "savepoint-1")
    assert f"there is no such file or directory; {tmp_path / mount} {what}: is its file system mounted?" in message
    assert f"looked for on {gethostname()}" in message


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("s3://bucket/chk-1", "there are no credentials for the object store"),
        ("chk-1", "the path has to be absolute"),
        ("/dev/null/chk-1", "the file is missing"),
        ("/a\0b", "holds no zero byte"),
        ("/" + "x" * 300, "the file is missing"),
    ],
)
def test_what_is_no_path_is_told(path: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    assert reason in refused(tmp_path, path)


def test_what_may_not_be_read_is_told_soon(retained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = Path.read_bytes

    def refuse(self: Path) -> bytes:
        if self.name == "_metadata":
            raise PermissionError(13, os.strerror(13))
        return read(self)

    path = copied(retained, tmp_path)
    monkeypatch.setattr(Path, "read_bytes", refuse)
    job = WholeJob(tmp_path / "job", **from_path(path))
    job.until(lambda: job.ended, "the end", rounds=60)
    assert "Permission denied. Let the cluster's user read it" in job.message()


def test_another_parallelism_is_fine_and_another_maximum_is_told(retained: Path, tmp_path: Path) -> None:
    path = copied(retained, tmp_path)
    plain = json.loads((path / "_metadata").read_bytes().split(b"\n", 1)[1])
    job = WholeJob(tmp_path / "three", 1, 3, shelf=copy.deepcopy(SHELF[0]), **from_path(path))
    job.until(lambda: job.ended, "the end")
    assert job.state == "FINISHED", job.message()
    assert Counter(job.shelf.visible) == job.expected
    for operator in plain["operators"]:
        operator["max_parallelism"] = 64
    (path / "_metadata").write_bytes(signed(json.dumps(plain).encode()))
    assert "Set it with set_max_parallelism(64)" in refused(tmp_path, path)


def test_keys_that_were_hashed_otherwise_are_told(retained: Path, tmp_path: Path) -> None:
    path = copied(retained, tmp_path)
    _changed(properties={"key_hash": 2})(path)
    message = refused(tmp_path, path)
    assert "version 2 of the table of hashes" in message
    assert "'number'" in message


@pytest.mark.parametrize("storage", ["jobmanager", "filesystem"])
def test_a_checkpoint_of_files_is_read_whatever_the_storage_is_now(
    storage: str, retained: Path, tmp_path: Path
) -> None:
    more: dict[str, Any] = {"execution.checkpointing.storage": storage}
    job = started(tmp_path, copied(retained, tmp_path), **more)
    assert job.state in ("RUNNING", "FINISHED"), job.message()


# -- the job's own checkpoints


def own(tmp_path: Path) -> tuple[WholeJob, Path, str]:
    """A job whose JobMaster is gone, its last checkpoint, and the store's record of it."""
    more: dict[str, Any] = {"execution.checkpointing.num-retained": "2", "firesteel.state-recovery.fall-back": "NEVER"}
    job = WholeJob(tmp_path, 1, 2, **more)
    job.until(job.has_completed(3), "checkpoints")
    last = tmp_path / "checkpoints" / JOB / f"chk-{job.completed[-1]}" / "_metadata"
    return job, last, f"checkpoint.{job.completed[-1]}"


def taken_over(job: WholeJob) -> str:
    before = contents(job.directory / "checkpoints")
    job.kill_jobmaster()
    job.until(lambda: job.ended, "the end")
    assert job.state == "FAILED"
    job.rest()
    assert contents(job.directory / "checkpoints") == before
    return job.message()


def test_a_checkpoint_of_another_job_in_the_own_place_is_told(tmp_path: Path) -> None:
    job, last, _ = own(tmp_path)
    _changed(job_id="cd" * 16)(last.parent)
    assert f"{last}: it is of job {'cd' * 16}, and should be of job {JOB}" in taken_over(job)


def test_an_older_checkpoint_in_the_place_of_the_last_one_is_told(tmp_path: Path) -> None:
    job, last, _ = own(tmp_path)
    shutil.copy(last.parent.parent / f"chk-{job.completed[-2]}" / "_metadata", last)
    assert f"it is checkpoint {job.completed[-2]}, and should be {job.completed[-1]}" in taken_over(job)


def test_an_entry_of_the_store_that_was_changed_is_told(tmp_path: Path) -> None:
    job, _, record = own(tmp_path)
    edit_record(tmp_path / "store", record, lambda line: line.replace(b"chk-", b"chk_"))
    assert f"{record}: it was changed, or is no document of the cluster" in taken_over(job)


def test_a_job_whose_checkpoints_are_all_damaged_keeps_what_is_left_of_them(tmp_path: Path) -> None:
    job, last, _ = own(tmp_path)
    for metadata in last.parent.parent.glob("chk-*/_metadata"):
        os.truncate(metadata, 100)
    message = taken_over(job)
    assert "none of them can be read" in message
    assert str(last) in message
