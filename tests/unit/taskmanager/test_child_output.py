"""Pipes of slots, as the TaskManager reads them."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from firesteel.core.errors import ProtocolError
from firesteel_taskmanager.child_output import ChildOutput


def test_what_is_in_a_pipe_comes_out_when_it_is_drained_and_when_its_writers_are_gone(tmp_path: Path) -> None:
    async def run() -> None:
        texts, ended = list[tuple[int, str, bytes]](), asyncio.Event()
        output = ChildOutput(tmp_path, lambda *text: texts.append(text), lambda channel: ended.set())
        path = tmp_path / "1.stdout"
        os.mkfifo(path)
        writer = os.open(path, os.O_RDWR)
        output.open(7, "stdout", str(path))
        assert not path.exists()  # nobody else opens it
        os.write(writer, b"first")
        output.drain(7)
        assert texts == [(7, "stdout", b"first")]
        os.write(writer, b"last words of a process that dies")
        os.close(writer)
        await ended.wait()
        assert texts[1:] == [(7, "stdout", b"last words of a process that dies")]
        output.close()

    asyncio.run(run())


def test_only_pipes_beside_the_control_socket_are_opened(tmp_path: Path) -> None:
    async def run() -> None:
        output = ChildOutput(tmp_path / "own", lambda *_: None, lambda _: None)
        (tmp_path / "own").mkdir()
        (tmp_path / "own" / "file").write_text("secret")
        os.mkfifo(tmp_path / "pipe")
        for name in (tmp_path / "pipe", tmp_path / "own" / "file", tmp_path / "own" / ".." / "pipe"):
            with pytest.raises(ProtocolError, match="no pipe"):
                output.open(1, "stdout", str(name))

    asyncio.run(run())
