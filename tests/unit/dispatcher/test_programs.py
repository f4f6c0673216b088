"""Uploads of programs: whole ones are listed, and no others."""

from __future__ import annotations

import asyncio
import fcntl
import io
import zipfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from firesteel.core.errors import ConfigurationError
from firesteel_dispatcher.programs import UnknownProgramError, UploadedPrograms


async def _pieces(*pieces: bytes) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece


def test_a_program_on_its_way_is_neither_listed_nor_found(tmp_path: Path) -> None:
    asyncio.run(_a_program_on_its_way_is_neither_listed_nor_found(tmp_path))


async def _a_program_on_its_way_is_neither_listed_nor_found(tmp_path: Path) -> None:
    programs, go_on, arrived = UploadedPrograms(tmp_path, "token"), asyncio.Event(), asyncio.Event()

    async def slowly() -> AsyncIterator[bytes]:
        yield b"x = 1\n"
        arrived.set()
        await go_on.wait()
        yield b"y = 2\n"

    upload = asyncio.create_task(programs.add("job.py", slowly()))
    await arrived.wait()
    assert await programs.listed() == []
    for entry in tmp_path.iterdir():
        with pytest.raises(UnknownProgramError):
            await programs.find(f"{entry.name.removeprefix('.upload-')}_job.py")
    go_on.set()
    path = await upload
    assert [row["id"] for row in await programs.listed()] == [path.name]
    assert (await programs.find(path.name)).read_bytes() == b"x = 1\ny = 2\n"
    await programs.remove(path.name)
    assert await programs.listed() == []


def test_what_a_crash_has_cut_off_is_removed_at_the_start(tmp_path: Path) -> None:
    asyncio.run(_what_a_crash_has_cut_off_is_removed_at_the_start(tmp_path))


async def _what_a_crash_has_cut_off_is_removed_at_the_start(tmp_path: Path) -> None:
    programs = UploadedPrograms(tmp_path, "token")
    whole = await programs.add("job.py", _pieces(b"x = 1\n"))
    (tmp_path / ".upload-0f0e0d0c-0000-4000-8000-000000000000").write_bytes(b"x = ")
    (tmp_path / "0f0e0d0c-0000-4000-8000-000000000001").mkdir()  # the rename had not come
    other = tmp_path / ".upload-0f0e0d0c-0000-4000-8000-000000000002"
    with other.open("xb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # another Dispatcher writes it
        assert [row["id"] for row in await programs.listed()] == [whole.name]
        await programs.remove_drafts()
        assert sorted(path.name for path in tmp_path.iterdir()) == sorted([other.name, whole.name[:36]])


def test_nothing_is_left_of_a_program_that_is_refused_or_breaks_off(tmp_path: Path) -> None:
    asyncio.run(_nothing_is_left_of_a_program_that_is_refused_or_breaks_off(tmp_path))


async def _nothing_is_left_of_a_program_that_is_refused_or_breaks_off(tmp_path: Path) -> None:
    programs = UploadedPrograms(tmp_path, "token")
    with pytest.raises(ConfigurationError, match=r"job\.py is no program of Python: .*line 1"):
        await programs.add("job.py", _pieces(b"x = = 1\n"))
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("job.py", "x = 1\n")
    with pytest.raises(ConfigurationError, match=r"job\.zip is no archive"):
        await programs.add("job.zip", _pieces(content.getvalue()[:-5]))

    async def broken() -> AsyncIterator[bytes]:
        yield b"x = 1\n"
        raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        await programs.add("job.py", broken())
    assert await programs.listed() == []
    assert list(tmp_path.iterdir()) == []
