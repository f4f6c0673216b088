"""Archives of jobs as files, and what is no such file."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from firesteel.config.settings import Settings
from firesteel.core.errors import ConfigurationError
from firesteel.core.files import ABANDONED_AFTER
from firesteel.ha.documents import DamagedEntryError, encode
from firesteel.rest.job_archives import DirectoryPlace, JobArchive, open_place
from firesteel_jobmaster.registry import ProcessRegistry

A = "a" * 32
ARCHIVE = {"jid": A, "name": "numbers", "vertices": [{"id": "v", "subtasks": ["x"]}]}
MADE = JobArchive(A, 17, ARCHIVE, {"jvm": {"version": "Python"}}, {"rest.port": "1"})


def test_what_is_written_is_read_back() -> None:
    assert JobArchive.decode(MADE.encode()) == MADE


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{}",
        MADE.encode()[:-1],
        MADE.encode().replace(b"numbers", b"numberz"),
        encode("job-archive", {"job_id": A}),
        encode("job-archive", {"job_id": A, "ended_ms": "x", "archive": ARCHIVE, "environment": {}, "config": {}}),
        encode("job-archive", {"job_id": "b" * 32, "ended_ms": 1, "archive": ARCHIVE, "environment": {}, "config": {}}),
        encode("job-archive", {"job_id": A, "ended_ms": 1, "archive": {"jid": A}, "environment": {}, "config": {}}),
        encode("other", {}),
    ],
)
def test_what_is_damaged_is_refused(content: bytes) -> None:
    with pytest.raises(DamagedEntryError):
        JobArchive.decode(content)


def test_a_directory_lists_reads_replaces_and_removes(tmp_path: Path) -> None:
    place = DirectoryPlace(tmp_path / "deep" / "archives")
    assert place.listed() == {}
    assert place.read(A) is None
    place.write(A, b"one")
    (tmp_path / "deep" / "archives" / "README").write_text("something else")
    first = place.listed()
    assert list(first) == [A]
    assert place.read(A) == b"one"
    place.write(A, b"two")
    assert place.listed() != first
    assert sorted(path.name for path in (tmp_path / "deep" / "archives").iterdir()) == ["README", f"{A}.archive"]
    place.remove(A)
    place.remove(A)
    assert place.listed() == {}


@pytest.mark.parametrize("starts", ["writer", "reader", "JobMaster host"])
def test_drafts_of_writers_that_died_go_at_the_next_start_and_those_of_living_ones_stay(
    starts: str, tmp_path: Path
) -> None:
    folder = tmp_path / "jobmasters"
    folder.mkdir(mode=0o700)
    name = f"{A}.json" if starts == "JobMaster host" else f"{A}.archive"
    abandoned, live = folder / f".{name}.{'1' * 32}", folder / f".{name}.{'2' * 32}"
    others = [folder / f".notes.{'3' * 32}", folder / f".{name}.lock", folder / f".{name}.{'4' * 31}"]
    for path in (abandoned, live, *others):
        path.write_text("half of")
    past = time.time() - 2 * ABANDONED_AFTER
    for path in (abandoned, *others):
        os.utime(path, (past, past))
    if starts == "writer":
        DirectoryPlace(folder).write(A, b"one")
    elif starts == "reader":
        assert DirectoryPlace(folder).listed() == {}
    else:
        ProcessRegistry(tmp_path)
    assert not abandoned.exists()
    assert all(path.exists() for path in (live, *others))


@pytest.mark.parametrize("text", ["relative", "ftp://there/x", "s3://", "s3://user@bucket/x"])
def test_what_is_no_place_is_named(text: str) -> None:
    with pytest.raises(ConfigurationError, match="archive"):
        open_place(text, "jobmanager.archive.fs.dir", Settings())


def test_places_are_directories_and_buckets(tmp_path: Path) -> None:
    assert str(open_place(str(tmp_path), "x", Settings())) == str(tmp_path)
    assert str(open_place(f"file://{tmp_path}", "x", Settings())) == str(tmp_path)
    settings = Settings({"s3.endpoint": "http://127.0.0.1:9", "s3.access-key": "a", "s3.secret-key": "b"})
    assert str(open_place("s3a://bucket/archives/", "x", settings)) == "s3://bucket/archives"
