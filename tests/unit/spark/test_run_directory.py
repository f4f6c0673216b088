"""Run directories: private, short, and removed once their owner is dead."""

from __future__ import annotations

import fcntl
import os
import stat
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from firesteel.core import run_directory
from firesteel.core.errors import RunDirectoryError
from firesteel.core.process import identify, myself
from firesteel.core.run_directory import SOCKET_PATH_LIMIT, RunDirectory, remove_abandoned


@pytest.fixture
def root(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(run_directory, "_ROOM_FOR_SOCKETS", 0)  # pytest's own directories are long
    return tmp_path_factory.mktemp("r") / "root"


def dead_pid() -> int:
    ended = subprocess.Popen([sys.executable, "-S", "-c", ""])
    ended.wait()
    return ended.pid


def test_a_run_directory_is_private_and_named_after_its_owner(root: Path) -> None:
    directory = RunDirectory.create(root)
    assert directory.path.parent == root
    assert directory.path.name.startswith(f"{os.getpid():x}-{myself().start:x}-")
    for path in (root, directory.path, directory.subdir("inner")):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
    directory.remove()


def test_two_of_one_process_are_two(root: Path) -> None:
    first, second = RunDirectory.create(root), RunDirectory.create(root)
    assert first.path != second.path
    first.remove()
    assert second.path.is_dir()
    second.remove()


def test_remove_takes_everything_and_may_be_called_twice(root: Path) -> None:
    directory = RunDirectory.create(root)
    (directory.subdir("a") / "file").write_text("x")
    directory.remove()
    directory.remove()
    assert [entry.name for entry in root.iterdir()] == [".lock"]


def test_create_removes_directories_of_dead_owners_only(root: Path) -> None:
    mine = RunDirectory.create(root)
    pid, me = dead_pid(), myself()
    gone = root / f"{pid:x}-1f-0"
    reused = root / f"{os.getpid():x}-{me.start + 1:x}-0"  # our pid, but of another process
    foreign = root / "something-else"
    for path in (gone, reused, foreign):
        path.mkdir()
        (path / "file").write_text("x")
    other = RunDirectory.create(root)
    assert not gone.exists()
    assert not reused.exists()
    assert foreign.is_dir()
    assert mine.path.is_dir()
    mine.remove()
    other.remove()


def test_a_link_with_a_dead_owners_name_is_not_followed(root: Path, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").write_text("x")
    root.mkdir(mode=0o700)
    (root / f"{dead_pid():x}-1-0").symlink_to(precious)
    RunDirectory.create(root).remove()
    assert (precious / "file").exists()


def test_a_directory_that_is_locked_counts_as_owned(root: Path) -> None:
    living = RunDirectory.create(root)
    renamed = living.path.rename(root / f"{dead_pid():x}-1-0")  # as if seen from another pid namespace
    RunDirectory.create(root).remove()
    assert renamed.is_dir()
    living.remove()
    RunDirectory.create(root).remove()
    assert not renamed.exists()


def test_many_at_once_do_not_disturb_each_other(root: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        directories = list(pool.map(lambda _: RunDirectory.create(root), range(32)))
    assert len({directory.path for directory in directories}) == 32
    assert all(directory.path.is_dir() for directory in directories)
    for directory in directories:
        directory.remove()


def test_a_root_of_somebody_else_is_refused(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root.mkdir(mode=0o700)
    monkeypatch.setattr(os, "geteuid", lambda: root.stat().st_uid + 1)
    with pytest.raises(RunDirectoryError, match=r"belongs to user \d+, not to \d+"):
        RunDirectory.create(root)


def test_a_root_that_is_a_link_is_refused(root: Path, tmp_path: Path) -> None:
    root.symlink_to(tmp_path)
    with pytest.raises(RunDirectoryError, match="not a directory"):
        RunDirectory.create(root)


def test_a_root_that_others_may_enter_is_closed_to_them(root: Path) -> None:
    root.mkdir()
    root.chmod(0o777)
    RunDirectory.create(root).remove()
    assert stat.S_IMODE(root.stat().st_mode) == 0o700


def test_too_long_a_root_is_refused_with_the_limit(tmp_path: Path) -> None:
    with pytest.raises(RunDirectoryError, match=rf"too long by \d+ bytes.*{SOCKET_PATH_LIMIT} bytes"):
        RunDirectory.create(tmp_path / ("x" * 80))


def test_too_long_a_socket_path_is_refused(root: Path) -> None:
    directory = RunDirectory.create(root)
    assert directory.socket_path("s") == directory.path / "s"
    with pytest.raises(RunDirectoryError, match=f"{SOCKET_PATH_LIMIT} are allowed"):
        directory.socket_path("s" * 100)
    directory.remove()


def test_the_default_root_leaves_room_for_sparks_sockets() -> None:
    directory = RunDirectory.create()
    try:
        assert directory.path.parent.name == f"firesteel-{os.geteuid()}"
        assert len(os.fsencode(directory.path / "w" / f".{'0' * 36}.sock")) <= SOCKET_PATH_LIMIT
    finally:
        directory.remove()


@pytest.mark.parametrize("name", ["a,b", "a\nb"])
def test_a_path_that_spark_would_take_for_several_is_refused_and_never_the_default_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    with pytest.raises(RunDirectoryError, match=r"has (a comma|the character '\\n') in its name; choose another one\."):
        RunDirectory.create(tmp_path / name)
    (tmp_path / name).mkdir()
    monkeypatch.setattr(run_directory, "_ROOM_FOR_SOCKETS", 0)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / name))
    assert run_directory.default_root() == Path(f"/tmp/firesteel-{os.geteuid()}")


def test_without_any_directory_for_temporary_files_it_is_said_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere() -> str:
        raise FileNotFoundError(2, "No usable temporary directory found in ['/tmp']")

    monkeypatch.setattr("tempfile.gettempdir", nowhere)
    with pytest.raises(RunDirectoryError, match=r"No usable temporary directory.*; set TMPDIR"):
        RunDirectory.create()


def test_a_forked_child_does_not_remove_its_parents_directory(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = RunDirectory.create(root)
    real = os.getpid()
    with monkeypatch.context() as patch:
        patch.setattr(os, "getpid", lambda: real + 1)
        directory.remove()
    assert directory.path.is_dir()
    directory.remove()


def test_a_zombie_is_gone() -> None:
    child = subprocess.Popen([sys.executable, "-S", "-c", ""], stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.read()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert identify(child.pid) is None
    child.wait()
    child.stdout.close()


def test_remove_leaves_it_to_those_who_outlive_its_owner(root: Path) -> None:
    directory = RunDirectory.create(root)
    (directory.path / "log").touch()
    user = os.open(directory.path, os.O_RDONLY | os.O_DIRECTORY)
    fcntl.flock(user, fcntl.LOCK_SH)
    directory.remove()
    assert (directory.path / "log").exists()
    gone = directory.path.rename(root / f"{dead_pid():x}-1f-0")  # as if its owner had ended
    RunDirectory.create(root).remove()
    assert gone.exists(), "it is used"
    os.close(user)
    RunDirectory.create(root).remove()
    assert [entry.name for entry in root.iterdir()] == [".lock"]


def test_a_sweep_waits_for_processes_that_are_just_ending(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = RunDirectory.create(root)
    used = directory.path.rename(root / f"{dead_pid():x}-1f-0")
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        directory.remove()  # lets go of the lock

    monkeypatch.setattr(time, "sleep", wait)
    remove_abandoned(root, 0.0)
    assert (used.exists(), waits) == (True, [])
    remove_abandoned(root, 60.0)
    assert (used.exists(), len(waits)) == (False, 1)
