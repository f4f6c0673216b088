"""Files that appear while the source runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from firesteel.common.time import Duration
from firesteel.connectors.file_source import FileSource, StreamFormat
from firesteel.connectors.file_watch import WatchedFilesEnumerator
from firesteel.core.errors import ProgramError
from firesteel.functions.source import Boundedness
from firesteel.testing.clock import ManualClock


def watching(path: Path, clock: ManualClock, split_size: int = 1000) -> WatchedFilesEnumerator:
    builder = FileSource.for_record_stream_format(StreamFormat.text_line_format(), path).set_split_size(split_size)
    source = builder.monitor_continuously(Duration.of_seconds(10)).build()
    assert source.boundedness is Boundedness.CONTINUOUS_UNBOUNDED
    spec = source.enumerator()
    assert spec.name == "watched-files"
    return WatchedFilesEnumerator(json.loads(json.dumps(dict(spec.config))), clock)


def names(enumerator: WatchedFilesEnumerator) -> list[str]:
    found: list[str] = []
    while splits := enumerator.next_splits(0, 1):
        found += [Path(str(split.data["path"])).name for split in splits]
    assert not enumerator.exhausted
    return found


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
    monkeypatch.setattr("firesteel.connectors.file_watch._ENTRIES_AT_ONCE", 3)
    clock = ManualClock()
    for number in range(8):
        (tmp_path / str(number)).write_text("x")
    enumerator = watching(tmp_path, clock)
    found: list[str] = []
    for _ in range(20):
        found += [str(split.data["path"])[-1] for split in enumerator.next_splits(0, 1)]
    assert found == list("01234567")


def test_what_is_refused(tmp_path: Path) -> None:
    builder = FileSource.for_record_stream_format(StreamFormat.text_line_format(), tmp_path)
    with pytest.raises(ProgramError, match="at least a millisecond"):
        builder.monitor_continuously(Duration.of_nanos(5))
    with pytest.raises(TypeError, match="takes a Duration, not int"):
        builder.monitor_continuously(5)  # type: ignore[arg-type]
    missing = FileSource.for_record_stream_format(StreamFormat.text_line_format(), tmp_path / "missing")
    config = missing.monitor_continuously(Duration.of_millis(5)).build().enumerator().config
    with pytest.raises(ProgramError, match="does not exist"):
        WatchedFilesEnumerator(config, ManualClock())
    assert builder.monitor_continuously(Duration.of_millis(5)).process_static_file_set().build().boundedness is (
        Boundedness.BOUNDED
    )
