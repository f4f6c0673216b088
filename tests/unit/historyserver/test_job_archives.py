"""Archives of jobs as files, and what is no such file."""

from __future__ import annotations

from pathlib import Path

import pytest

from firesteel.config.settings import Settings
from firesteel.core.errors import ConfigurationError
from firesteel.ha.documents import DamagedEntryError, encode
from firesteel.rest.job_archives import DirectoryPlace, JobArchive, open_place

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


@pytest.mark.parametrize("text", ["relative", "ftp://there/x", "s3://", "s3://user@bucket/x"])
def test_what_is_no_place_is_named(text: str) -> None:
    with pytest.raises(ConfigurationError, match="archive"):
        open_place(text, "jobmanager.archive.fs.dir", Settings())


def test_places_are_directories_and_buckets(tmp_path: Path) -> None:
    assert str(open_place(str(tmp_path), "x", Settings())) == str(tmp_path)
    assert str(open_place(f"file://{tmp_path}", "x", Settings())) == str(tmp_path)
    settings = Settings({"s3.endpoint": "http://127.0.0.1:9", "s3.access-key": "a", "s3.secret-key": "b"})
    assert str(open_place("s3a://bucket/archives/", "x", settings)) == "s3://bucket/archives"
