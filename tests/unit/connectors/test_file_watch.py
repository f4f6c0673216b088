"""Files that appear while the source runs."""

from __future__ import annotations

import errno
import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from firesteel.common.time import Duration
from firesteel.connectors.enumerators import create_enumerator
from firesteel.connectors.file_source import FileSource, StreamFormat
from firesteel.connectors.file_splits import FileEnumerator
from firesteel.connectors.file_watch import WatchedFilesEnumerator
from firesteel.core.errors import ProgramError
from firesteel.functions.source import Boundedness, Split
from firesteel.testing.clock import ManualClock


def watching(path: Path, clock: ManualClock, split_size: int = 1000) -> WatchedFilesEnumerator:
    builder = FileSource.for_record_stream_format(StreamFormat.text_line_format(), path).set_split_size(split_size)
    source = builder.monitor_continuously(Duration.of_seconds(10)).build()
    assert source.boundedness is Boundedness.CONTINUOUS_UNBOUNDED
    spec = source.enumerator()
    assert spec is not None
    assert spec.name == "watched-files"
    return WatchedFilesEnumerator(json.loads(json.dumps(dict(spec.config))), clock)


def names(enumerator: WatchedFilesEnumerator) -> list[str]:
    names: list[str] = []
    while splits := enumerator.next_splits(0, 1):
        names += [Path(str(split.data["path"])).name for split in splits]
    assert not enumerator.exhausted
    return names


def test_new_files_are_found_once_and_at_the_interval(tmp_path: Path) -> None:
    clock = ManualClock()
    (tmp_path / "a").write_text("1\n")
    enumerator = watching(tmp_path, clock)
    assert names(enumerator) == ["a"]
    (tmp_path / "b").write_text("2\n")
    (tmp_path / "_c").write_text("hidden\n")
    (tmp_path / "later").touch()
    clock.advance(9.9)
    assert names(enumerator) == []
    clock.advance(0.2)
    assert names(enumerator) == ["b"]
    (tmp_path / "later").write_text("3\n")
    (tmp_path / "a").write_text("changed\n")
    (tmp_path / "_c").rename(tmp_path / "c")
    clock.advance(10)
    assert names(enumerator) == ["c", "later"]
    (tmp_path / "b").unlink()
    clock.advance(10)
    assert names(enumerator) == []


def test_a_snapshot_remembers_what_was_seen(tmp_path: Path) -> None:
    clock = ManualClock()
    for name in "abc":
        (tmp_path / name).write_text("x" * 30)
    enumerator = watching(tmp_path, clock, 10)
    first = enumerator.next_splits(0, 1)
    state: Any = json.loads(json.dumps(enumerator.snapshot()))
    (tmp_path / "d").write_text("y")
    again = watching(tmp_path, clock, 10)
    again.restore(state)
    again.add_splits_back(first)
    assert names(again) == ["a"] * 3 + ["b"] * 3 + ["c"] * 3 + ["d"]


def test_large_trees_are_looked_at_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("firesteel.connectors.file_splits.ENTRIES_AT_ONCE", 3)
    clock = ManualClock()
    for number in range(8):
        (tmp_path / str(number)).write_text("x")
    enumerator = watching(tmp_path, clock)
    names: list[str] = []
    for _ in range(20):
        names += [str(split.data["path"])[-1] for split in enumerator.next_splits(0, 1)]
    assert names == list("01234567")


def test_what_is_refused(tmp_path: Path) -> None:
    builder = FileSource.for_record_stream_format(StreamFormat.text_line_format(), tmp_path)
    with pytest.raises(ProgramError, match="at least a millisecond"):
        builder.monitor_continuously(Duration.of_nanos(5))
    with pytest.raises(TypeError, match=r"a Time, Duration or timedelta such as .*, not int"):
        builder.monitor_continuously(5)  # type: ignore[arg-type]
    missing = FileSource.for_record_stream_format(StreamFormat.text_line_format(), tmp_path / "missing")
    spec = missing.monitor_continuously(Duration.of_millis(5)).build().enumerator()
    assert spec is not None
    config = spec.config
    with pytest.raises(ProgramError, match="does not exist"):
        WatchedFilesEnumerator(config, ManualClock()).start()
    assert builder.monitor_continuously(Duration.of_millis(5)).process_static_file_set().build().boundedness is (
        Boundedness.BOUNDED
    )


def test_split_sizes_below_zero_are_refused(tmp_path: Path) -> None:
    builder = FileSource.for_record_stream_format(StreamFormat.text_line_format(), tmp_path)
    with pytest.raises(ProgramError, match="at least 1 byte, or 0 = not cut, not -1"):
        builder.set_split_size(-1)


# -- files that are there at the start


def listing(*paths: Path) -> FileEnumerator:
    source = FileSource.for_record_stream_format(StreamFormat.text_line_format(), *paths).build()
    spec = source.enumerator()
    assert spec is not None
    assert spec.name == "files"
    return FileEnumerator(json.loads(json.dumps(dict(spec.config))))


def all_of(enumerator: FileEnumerator, root: Path) -> list[str]:
    names: list[str] = []
    for _ in range(100):
        if enumerator.exhausted:
            return names
        names += [str(Path(str(s.data["path"])).relative_to(root)) for s in enumerator.next_splits(0, 1)]
    raise AssertionError("it does not end")


def test_files_are_listed_once_and_not_again_when_it_goes_on_from_a_checkpoint(tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / name).write_text(name)
    enumerator = listing(*(tmp_path / name for name in "abc"))
    enumerator.start()
    first_splits = enumerator.next_splits(0, 1)
    state: Any = json.loads(json.dumps(enumerator.snapshot()))
    (tmp_path / "a").unlink()
    again = listing(*(tmp_path / name for name in "abc"))
    again.restore(state)
    assert all_of(again, tmp_path) == list("abc")[len(first_splits) :]
    with pytest.raises(ProgramError, match=r"/a' does not exist"):
        listing(*(tmp_path / name for name in "abc")).start()


@pytest.mark.parametrize("snapshot_after", [None, 0, 2])
def test_large_trees_are_listed_in_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, snapshot_after: int | None
) -> None:
    monkeypatch.setattr("firesteel.connectors.file_splits.ENTRIES_AT_ONCE", 3)
    stats = 0
    real_stat = os.stat

    def counting(path: Any, **more: Any) -> os.stat_result:
        nonlocal stats
        stats += 1
        return real_stat(path, **more)

    for number in range(9):
        (tmp_path / str(number)).write_text("x" if number not in (3, 4, 5) else "")
    enumerator = listing(tmp_path)
    enumerator.start()
    monkeypatch.setattr(os, "stat", counting)
    names: list[str] = []
    for request in range(20):
        if request == snapshot_after:
            before = stats
            state: Any = json.loads(json.dumps(enumerator.snapshot()))
            assert stats == before, "a snapshot looks at nothing"
            enumerator = listing(tmp_path)
            enumerator.restore(state)
        before = stats
        names += [str(split.data["path"])[-1] for split in enumerator.next_splits(0, 1)]
        assert stats - before <= 6
        if enumerator.exhausted:
            break
    assert names == list("012678")


class Doors:
    """Folders that can't be read, also by root."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.closed: dict[str, int] = {}
        self._scandir = os.scandir
        monkeypatch.setattr(os, "scandir", self.scandir)

    def scandir(self, path: Any) -> Any:
        number = self.closed.get(str(path))
        if number is not None:
            raise OSError(number, os.strerror(number), str(path))
        return self._scandir(path)


def test_a_folder_that_can_not_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    doors = Doors(monkeypatch)
    for name in "abc":
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text("x")
    doors.closed[str(tmp_path / "b")] = errno.EACCES
    enumerator = listing(tmp_path)
    with pytest.raises(ProgramError, match=r"/b' can't be read on .*: permission denied"):
        enumerator.next_splits(0, 1)
    doors.closed[str(tmp_path / "b")] = errno.EIO
    with pytest.raises(OSError, match="Input/output error"):
        enumerator.next_splits(0, 1)
    doors.closed.clear()
    assert all_of(enumerator, tmp_path) == ["a/file", "b/file", "c/file"], "each once, after it was refused"


def test_a_watched_folder_that_can_not_be_read_is_logged_and_looked_at_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    doors, clock = Doors(monkeypatch), ManualClock()
    for name in "abc":
        (tmp_path / name).mkdir()
        (tmp_path / name / name).write_text("x")
    doors.closed[str(tmp_path / "b")] = errno.EACCES
    enumerator = watching(tmp_path, clock)
    assert names(enumerator) == ["a", "c"]
    clock.advance(10)
    assert names(enumerator) == []
    assert [record.getMessage() for record in caplog.records] == [
        f"file source: '{tmp_path}/b' can't be read: Permission denied; it is looked at again every 10.000 s"
    ]
    doors.closed.clear()
    clock.advance(10)
    assert names(enumerator) == ["b"]


def test_links_are_followed_and_each_folder_is_read_once(tmp_path: Path) -> None:
    data, elsewhere = tmp_path / "data", tmp_path / "elsewhere"
    (data / "real").mkdir(parents=True)
    (elsewhere / "deep").mkdir(parents=True)
    (data / "real" / "r").write_text("x")
    (elsewhere / "deep" / "d").write_text("x")
    (data / "a-link").symlink_to(elsewhere)
    (data / "b-link").symlink_to(data / "real")
    (data / "real" / "up").symlink_to(data)
    (data / "nowhere").symlink_to(tmp_path / "missing")
    (data / "_hidden").symlink_to(elsewhere)
    enumerator = listing(data)
    enumerator.start()
    assert all_of(enumerator, data) == ["real/r", "a-link/deep/d"]
    clock = ManualClock()
    assert names(watching(data, clock)) == ["r", "d"]


# -- patterns


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in (
        "2026-01/a.csv", "2026-01/b.txt", "2026-02/c.csv", "2026-02/deep/er/d.csv", "_tmp/e.csv", "2026-02/.f.csv",
        "2026-02/_g.csv", "x[1].csv", "other/h.csv",
    ):  # fmt: skip
        path = tmp_path / "data" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    (tmp_path / "data" / "link").symlink_to(tmp_path / "data" / "2026-02")
    return tmp_path / "data"


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("2026-*/*.csv", ["2026-01/a.csv", "2026-02/c.csv"]),
        ("2026-0?", ["2026-01/a.csv", "2026-01/b.txt", "2026-02/c.csv", "2026-02/deep/er/d.csv"]),
        ("2026-0[2-9]/c.csv", ["2026-02/c.csv"]),
        ("2026-02/**/*.csv", ["2026-02/c.csv", "2026-02/deep/er/d.csv"]),
        ("**/er/*", ["2026-02/deep/er/d.csv"]),
        ("other/**", ["other/h.csv"]),
        ("2026-02/_*.csv", ["2026-02/_g.csv"]),
        ("x[1].csv", ["x[1].csv"]),
        ("lin?/c.csv", ["link/c.csv"]),
        ("*.csv/none", None),
        ("*.tsv", None),
        ("missing/*.csv", None),
    ],
)
def test_patterns_of_paths(tree: Path, pattern: str, expected: list[str] | None) -> None:
    enumerator = listing(tree / pattern)
    if expected is None:
        with pytest.raises(ProgramError, match=r"nothing matches|/missing' \(of .*\) does not exist"):
            enumerator.start()
    else:
        enumerator.start()
        assert all_of(enumerator, tree) == expected


def test_patterns_that_overlap_give_each_file_once(tree: Path) -> None:
    enumerator = listing(tree / "2026-*", tree / "*" / "*.csv", tree / "2026-01" / "a.csv")
    files = all_of(enumerator, tree)
    assert sorted(files) == sorted(set(files))


def test_a_folder_that_a_pattern_meets_and_that_can_not_be_read_is_named(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    doors = Doors(monkeypatch)
    doors.closed[str(tree / "2026-02")] = errno.EACCES
    enumerator = listing(tree / "2026-*" / "*.csv")
    with pytest.raises(ProgramError, match=r"/2026-02' can't be read on .*: permission denied"):
        all_of(enumerator, tree)


def test_new_files_that_match_are_found(tmp_path: Path) -> None:
    clock = ManualClock()
    enumerator = watching(tmp_path / "*.csv", clock)
    enumerator.start()
    assert names(enumerator) == []
    for name in ("a.csv", "b.txt"):
        (tmp_path / name).write_text("x")
    clock.advance(10)
    assert names(enumerator) == ["a.csv"]


class _HungFiles:
    """A file system that answers when it is told to."""

    def __init__(self) -> None:
        self.go_on, self.asked = threading.Event(), list[str]()

    def of(self, path: str) -> Any:
        return self

    def check(self, path: str, refused: Any, *, may_match_nothing: bool) -> None:
        self.asked.append("check")
        assert self.go_on.wait(20)

    def find(self, path: str, refused: Any) -> Iterator[tuple[str, int]]:
        self.asked.append("find")
        assert self.go_on.wait(20)
        yield f"{path}/a", 5


@pytest.mark.parametrize("kind", [FileEnumerator, WatchedFilesEnumerator])
def test_a_file_system_that_hangs_is_waited_for_elsewhere(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("firesteel.connectors.file_splits.PATIENCE", 0.001)
    files: Any = _HungFiles()
    enumerator = kind({"paths": ["/mnt"], "interval_ms": 1000}, files=files, is_apart=True)
    enumerator.start()  # returns
    for _ in range(5):
        assert enumerator.next_splits(0, 1) == []
        assert not enumerator.exhausted
    assert files.asked == ["check"]  # one call, not five
    state = enumerator.snapshot()
    files.go_on.set()
    splits: list[Split] = []
    while not splits:
        splits = enumerator.next_splits(0, 1)
    assert [split.data["path"] for split in splits] == ["/mnt/a"]
    again = kind({"paths": ["/mnt"], "interval_ms": 1000}, files=files, is_apart=True)
    again.restore(state)
    splits = []
    while not splits:
        splits = again.next_splits(0, 1)
    assert [split.data["path"] for split in splits] == ["/mnt/a"]


@pytest.mark.parametrize("name", ["files", "watched-files"])
def test_a_jobmaster_waits_for_no_file_system(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Enumerators that it makes look apart from its loop."""
    monkeypatch.setattr("firesteel.connectors.file_splits.PATIENCE", 0.001)
    files = _HungFiles()
    monkeypatch.setattr("firesteel.connectors.file_splits.FileSystems", lambda: files)
    enumerator = create_enumerator(name, {"paths": ["/mnt"], "interval_ms": 1000})
    enumerator.start()
    assert enumerator.next_splits(0, 1) == []
    assert files.asked == ["check"]
    files.go_on.set()
