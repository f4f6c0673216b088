from __future__ import annotations

import os
from pathlib import Path

from firesteel.core.log_files import bound, keep_newest, last_lines


def logs(folder: Path, *names: str) -> None:
    for age, name in enumerate(names):
        (folder / name).write_text(name)
        os.utime(folder / name, (1000 + age, 1000 + age))


def test_the_newest_logs_stay_and_those_in_use(tmp_path: Path) -> None:
    logs(tmp_path, "a.log", "b.log", "c.log.1", "d.log", "e.log", "other.txt")
    keep_newest(tmp_path, "*.log*", 2, lambda path: path.name == "a.log")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.log", "d.log", "e.log", "other.txt"]
    keep_newest(tmp_path, "*.log*", 0, lambda _: False)
    assert [path.name for path in tmp_path.iterdir()] == ["other.txt"]


def test_a_log_that_is_too_large_begins_anew_and_its_writer_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "one.log"
    with path.open("ab", buffering=0) as writer:
        writer.write(b"0123456789" * 10)
        assert not bound(path, most=100, tail=10)
        writer.write(b"abc")
        assert bound(path, most=100, tail=10)
        assert path.read_bytes() == b""
        assert (tmp_path / "one.log.1").read_bytes() == b"3456789abc"
        writer.write(b"next")
    assert path.read_bytes() == b"next"
    assert not bound(path, most=100, tail=10)
    assert not bound(tmp_path / "none.log")


def test_the_end_of_a_log_is_read_in_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "one.log"
    path.write_bytes(b"first\nse\xffond\n\nlast\n\n")
    assert last_lines(path) == ["first", "se\\xffond", "", "last"]
    assert last_lines(path, most_bytes=12) == ["", "last"]
    path.write_bytes(b"x" * 100 + b"\n")
    assert last_lines(path, most_bytes=11) == ["x" * 10]
    path.write_bytes(b"")
    assert last_lines(path) == []
