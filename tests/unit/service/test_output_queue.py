"""Standard output that nobody reads, for a while or for ever; files of standard output that grow."""

from __future__ import annotations

import asyncio
import io
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

import pytest

from firesteel.config import Settings
from firesteel.core.log_files import begin_anew, keep_old
from firesteel.service import output_queue, own_output
from firesteel.service.output_queue import OutputQueue
from firesteel.service.own_output import bound_own_output, output_file


@pytest.fixture
def ends() -> Iterator[tuple[int, TextIO]]:
    reader, writer = os.pipe()
    stream = os.fdopen(writer, "w", encoding="utf-8")
    yield reader, stream
    os.close(reader)
    try:
        stream.close()
    except BrokenPipeError:
        pass


def as_stdout(ends: tuple[int, TextIO], monkeypatch: pytest.MonkeyPatch) -> int:
    """Writes of this process go into the pipe; in the test itself, for pytest sets its own before each."""
    monkeypatch.setattr(sys, "stdout", ends[1])
    return ends[0]


def test_what_a_stream_takes_is_written_at_once(ends: tuple[int, TextIO], monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = as_stdout(ends, monkeypatch)
    queue = OutputQueue("stdout")
    queue.write("one\n")
    queue.write("two €\n")
    assert os.read(pipe, 100).decode() == "one\ntwo €\n"
    assert [thread for thread in threading.enumerate() if thread.name == "waiting stdout"] == []


def test_nobody_waits_and_nothing_is_lost(ends: tuple[int, TextIO], monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = as_stdout(ends, monkeypatch)
    queue = OutputQueue("stdout")
    text = "".join(f"line {number}\n" for number in range(30_000))  # five pipes full
    for start in range(0, len(text), 5000):
        queue.write(text[start : start + 5000])  # returns
    output = b""
    while len(output) < len(text):
        output += os.read(pipe, 1 << 16)
    assert output.decode() == text
    assert queue.drain()
    queue.write("at once again\n")
    assert os.read(pipe, 100) == b"at once again\n"


def test_what_is_left_out_is_said(ends: tuple[int, TextIO], monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = as_stdout(ends, monkeypatch)
    monkeypatch.setattr(output_queue, "MOST_WAITING", 100_000)
    queue = OutputQueue("stdout")
    for _ in range(400):
        queue.write("x" * 999 + "\n")
    end = b" characters were left out here: nobody read them\n"
    output = b""
    while not output.endswith(end):
        output += os.read(pipe, 1 << 16)
    shown = output.count(b"x")
    left_out = int(output.removesuffix(end).rpartition(b"... ")[2])
    assert shown + output.count(b"x\n") + left_out == 400_000
    assert left_out > 100_000
    queue.drain()


def test_a_reader_that_has_stopped_is_not_waited_for(ends: tuple[int, TextIO], monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = as_stdout(ends, monkeypatch)
    monkeypatch.setattr(output_queue, "STUCK_SECONDS", 0.0)
    queue = OutputQueue("stdout")
    queue.write("x" * 200_000)
    assert not queue.drain()
    while os.read(pipe, 1 << 16).count(b"x") == 1 << 16:
        pass
    monkeypatch.setattr(output_queue, "STUCK_SECONDS", 20.0)


def test_a_stream_without_a_descriptor_takes_all(monkeypatch: pytest.MonkeyPatch) -> None:
    cell = io.StringIO()
    monkeypatch.setattr(sys, "stdout", cell)
    OutputQueue("stdout").write("x" * 1_000_000)
    assert len(cell.getvalue()) == 1_000_000
    monkeypatch.setattr(sys, "stdout", None)
    OutputQueue("stdout").write("nowhere")


def test_a_file_that_is_too_large_is_begun_anew_and_old_ones_are_kept(tmp_path: Path) -> None:
    out = tmp_path / "a.out"
    with out.open("ab", buffering=0) as writer:
        assert output_file(writer.fileno()) == out
        for content in (b"first", b"second", b"third"):
            writer.write(content)
            assert not begin_anew(out, 10, 2)
            assert begin_anew(out, 4, 2)
            assert out.read_bytes() == b""
        writer.write(b"now")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {
        "a.out": b"now", "a.out.1": b"third", "a.out.2": b"second",
    }  # fmt: skip
    keep_old(out, 2)
    keep_old(out, 2)  # there is none
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {
        "a.out.1": b"now", "a.out.2": b"third",
    }  # fmt: skip


def test_only_files_that_are_appended_to_are_begun_anew(tmp_path: Path, ends: tuple[int, TextIO]) -> None:
    with (tmp_path / "a.out").open("wb") as writer:
        assert output_file(writer.fileno()) is None
    assert output_file(ends[0]) is None


def test_the_file_of_this_process_is_begun_anew_as_often_as_it_is_too_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    out = tmp_path / "a.out"
    large, small = bytes(70_000), b"small"
    contents = [large, small, large]

    def look() -> Path | None:
        if not contents:
            return None  # ends the test
        out.write_bytes(contents.pop(0))
        return out

    monkeypatch.setattr(own_output, "output_file", look)
    monkeypatch.setattr(own_output, "LOOK_SECONDS", 0.0)
    (tmp_path / "a.out.2").mkdir()  # where the second one would go: that file stays as it is
    asyncio.run(bound_own_output(Settings({"firesteel.log.max-size": "64 kb", "env.log.max": "2"})))
    assert (tmp_path / "a.out.1").read_bytes() == large
    assert out.read_bytes() == large
    assert "a.out can't be begun anew" in caplog.text
