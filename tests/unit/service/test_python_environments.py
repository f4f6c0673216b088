"""Python environments of jobs: what is made, shared and removed, and when."""

from __future__ import annotations

import asyncio
import shutil
import sys
import threading
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from firesteel.protocol.python_environment import PythonArchive, PythonEnvironment
from firesteel.service import python_environments
from firesteel.service.python_environments import PythonEnvironmentError, PythonEnvironments

ENVIRONMENT = PythonEnvironment(archives=(PythonArchive("a" * 64, "data", "zip"),))
PLAIN = {**ENVIRONMENT.to_plain(), "blob_address": "", "timeout_seconds": 60.0}


def environments(folder: Path) -> PythonEnvironments:
    archive = folder / "archive.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("inner/file.txt", "content")

    async def fetch(_: str, __: str, names: list[str]) -> Mapping[str, str]:
        return dict.fromkeys(names, str(archive))

    return PythonEnvironments(folder / "python", fetch, "a test")


async def gone(path: Path) -> None:
    async with asyncio.timeout(30):
        while path.exists():
            await asyncio.sleep(0.001)


def test_jobs_share_an_environment_which_goes_with_the_last_of_them(tmp_path: Path) -> None:
    async def scenario() -> None:
        shared_environments = environments(tmp_path)
        first, second = await asyncio.gather(
            shared_environments.prepare("one", PLAIN), shared_environments.prepare("two", PLAIN)
        )
        assert first == second
        assert (Path(first.directory) / "data" / "inner" / "file.txt").read_text() == "content"
        shared_environments.forget("one")
        await asyncio.sleep(0.05)
        assert Path(first.directory).exists()
        shared_environments.forget("two")
        await gone(Path(first.directory).parent)
        await shared_environments.close()
        assert not (tmp_path / "python").exists()

    asyncio.run(scenario())


def test_an_environment_that_is_needed_again_at_once_survives_its_removal(tmp_path: Path) -> None:
    async def scenario() -> None:
        shared_environments = environments(tmp_path)
        for round_number in range(5):
            job = str(round_number)
            await shared_environments.prepare(job, PLAIN)
            shared_environments.forget(job)
        prepared = await shared_environments.prepare("last", PLAIN)
        await asyncio.sleep(0.05)
        assert (Path(prepared.directory) / "data" / "inner" / "file.txt").read_text() == "content"
        await shared_environments.close()

    asyncio.run(scenario())


def test_an_archive_that_is_still_being_unpacked_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def slow(path: str, target: Path) -> None:
        begun.set()
        assert go_on.wait(30)
        target.mkdir(parents=True)  # as an archive does whose next file comes just after its directory was removed
        (target / "late.txt").write_text("content")

    monkeypatch.setattr(python_environments, "unpack_zip", slow)

    async def scenario() -> None:
        shared_environments = environments(tmp_path)
        preparing = asyncio.ensure_future(shared_environments.prepare("job", PLAIN))
        assert await asyncio.to_thread(begun.wait, 30)
        shared_environments.forget("job")
        with pytest.raises(asyncio.CancelledError):
            await preparing
        go_on.set()
        async with asyncio.timeout(30):
            while shared_environments._removals:
                await asyncio.sleep(0.001)
        assert list((tmp_path / "python").iterdir()) == []
        await shared_environments.close()

    asyncio.run(scenario())


def test_an_attempt_begins_only_when_the_one_before_has_unpacked_its_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on, unpackings = threading.Event(), list[str]()

    def unpack(path: str, target: Path) -> None:
        number = len(unpackings)
        unpackings.append("begin")
        if number == 0:
            assert go_on.wait(30)
        unpackings.append("end")
        target.mkdir(parents=True)

    monkeypatch.setattr(python_environments, "unpack_zip", unpack)

    async def scenario() -> None:
        shared_environments = environments(tmp_path)
        with pytest.raises(PythonEnvironmentError, match=r"was not ready within 0\.05 s"):
            await shared_environments.prepare("job", {**PLAIN, "timeout_seconds": 0.05})
        again = asyncio.ensure_future(shared_environments.prepare("job", PLAIN))
        await asyncio.sleep(0.05)
        assert unpackings == ["begin"]  # the thread of the first attempt can't be ended
        go_on.set()
        prepared = await again
        assert unpackings == ["begin", "end", "begin", "end"]
        assert (Path(prepared.directory) / "data").is_dir()
        await shared_environments.close()

    asyncio.run(scenario())


def test_a_removal_that_hangs_does_not_hold_up_the_next_environment_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on, remove = threading.Event(), shutil.rmtree

    def slow(path: Path, ignore_errors: bool = False) -> None:
        assert go_on.wait(30)
        remove(path, ignore_errors=ignore_errors)

    async def scenario() -> None:
        shared_environments = environments(tmp_path)
        await shared_environments.prepare("job", PLAIN)
        monkeypatch.setattr(shutil, "rmtree", slow)
        shared_environments.forget("job")
        try:
            async with asyncio.timeout(20):
                with pytest.raises(PythonEnvironmentError, match=r"was not ready within 0\.05 s"):
                    await shared_environments.prepare("next", {**PLAIN, "timeout_seconds": 0.05})
        finally:
            go_on.set()
        prepared = await shared_environments.prepare("next", PLAIN)
        assert (Path(prepared.directory) / "data" / "inner" / "file.txt").read_text() == "content"
        await shared_environments.close()

    asyncio.run(scenario())


def test_files_of_a_failed_attempt_are_removed_off_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remove, threads = shutil.rmtree, list[threading.Thread]()

    def noted(path: Path, ignore_errors: bool = False) -> None:
        threads.append(threading.current_thread())
        remove(path, ignore_errors=ignore_errors)

    async def scenario() -> None:
        shared_environments = environments(tmp_path)
        left = tmp_path / "python" / ENVIRONMENT.id / "work" / "data" / "left"
        left.mkdir(parents=True)
        monkeypatch.setattr(shutil, "rmtree", noted)
        prepared = await shared_environments.prepare("job", PLAIN)
        assert not left.exists()
        assert (Path(prepared.directory) / "data" / "inner" / "file.txt").exists()
        assert len(threads) == 1
        assert threads[0] is not threading.current_thread()
        await shared_environments.close()

    asyncio.run(scenario())


INTERPRETER = """#!/bin/sh
case "$*" in
"-m venv "*) mkdir -p "$3/bin" "$3/lib/python3/site-packages" && cp "$0" "$3/bin/python" ;;
"-m pip install "*) echo "Looking in links"; echo "No matching distribution found for no-such-package==7"; exit 1 ;;
*) echo "[[{0.major}, {0.minor}], null]" ;;
esac
"""
"""An interpreter that makes environments at once, and whose pip has nothing. A real one takes 5 s of a core."""


def test_what_pip_says_of_a_package_that_is_not_there_is_the_error(tmp_path: Path) -> None:
    chosen = tmp_path / "python-of-the-job"
    chosen.write_text(INTERPRETER.format(sys.version_info))
    chosen.chmod(0o755)
    environment = PythonEnvironment(requirements="b" * 64, packages="a" * 64, executable=str(chosen))
    plain = {**environment.to_plain(), "blob_address": "", "timeout_seconds": 60.0}

    async def scenario() -> None:
        made = environments(tmp_path)
        with pytest.raises(PythonEnvironmentError) as caught:
            await made.prepare("one", plain)
        await made.close()
        assert str(caught.value) == (
            "The Python environment of the job could not be made on a test: the packages could not be installed"
            " (exit code 1):\nLooking in links\nNo matching distribution found for no-such-package==7"
        )

    asyncio.run(scenario())


def with_executable(folder: Path, script: str) -> dict[str, Any]:
    executable = folder / "wrapper"
    executable.write_text(f"#!/bin/sh\n{script}\n")
    executable.chmod(0o700)
    environment = PythonEnvironment(executable=str(executable))
    return {**environment.to_plain(), "blob_address": "", "timeout_seconds": 60.0}


def test_an_interpreter_may_print_lines_of_its_own_around_its_version(tmp_path: Path) -> None:
    async def scenario() -> None:
        talkative = with_executable(tmp_path, f'echo a warning >&2; {sys.executable} "$@"; echo goodbye')
        prepared = await environments(tmp_path).prepare("job", talkative)
        assert prepared.python == str(tmp_path / "wrapper")
        other = tmp_path / "other"
        other.mkdir()
        with pytest.raises(PythonEnvironmentError, match="does not tell its version:\nhello"):
            await environments(other).prepare("job", with_executable(other, "echo hello"))

    asyncio.run(scenario())
