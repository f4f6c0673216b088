"""What a test left behind: processes, threads, open files, temporary files. Each is named.

Whatever stood before the test (a cluster of a module-scoped fixture, its JVM) is no leak. A JVM that stood before may
keep new children of its own (Spark's Python daemon starts with the first slot), but no grandchildren (slot processes).
"""

from __future__ import annotations

import dataclasses
import gc
import os
import shutil
import sys
import tempfile
import threading
import time
import uuid
from pathlib import Path

from firesteel.core.call_pool import PoolThread
from firesteel.core.process import myself

NO_ARCHIVES = "FIRESTEEL_OPTION_FIRESTEEL_JVM_ARCHIVE_IN_BACKGROUND"
"""Set to false in tests: programs leave no process behind that makes archives of Java classes."""
GRACE_SECONDS = 5.0
"""How long things may take to go away after the test ended."""

FD_SLACK = 4
"""Descriptors that libraries may open once and keep (random devices, event loops' wake-up pipes, log files)."""

ALLOWED_THREADS = (
    "asyncio_",  # the default executor of a loop that is being closed
    "ThreadPoolExecutor-",
)
"""Beginnings of the names of daemon or pool threads that end with their owner, soon but not at once."""

TMP_PATHS = "t"
"""Where ``tmp_path`` is in workers, so that paths of sockets below it are short enough."""

MARK = "FIRESTEEL_TEST_SESSION"
"""Environment variable that everything started by this test run inherits: orphans are found by it."""


@dataclasses.dataclass(frozen=True)
class Process:
    """A process of this test run; pid and start time together are its identity."""

    pid: int
    started: int
    parent: int
    command: str


@dataclasses.dataclass
class Snapshot:
    """What is there at one moment."""

    processes: dict[tuple[int, int], Process]
    threads: dict[int, threading.Thread]
    files: dict[int, str]
    temporary: set[str]


def begin_session() -> None:
    """Marks this process's future children and gives the run a temporary directory of its own.

    A worker of pytest-xdist is a run of its own: it has inherited both from the process that started it.
    """
    parent = None
    if "PYTEST_XDIST_WORKER" in os.environ:
        parent = os.environ["PYTEST_DEBUG_TEMPROOT"]
        os.environ.pop(MARK, None)
    os.environ.setdefault(MARK, uuid.uuid4().hex)
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())  # tmp_path stays where pytest rotates it
    os.environ["TMPDIR"] = tempfile.tempdir = tempfile.mkdtemp(prefix="f", dir=parent)
    os.mkdir(os.path.join(tempfile.tempdir, TMP_PATHS))


def end_session() -> None:
    """Removes the run's temporary directory."""
    shutil.rmtree(os.environ["TMPDIR"], ignore_errors=True)


def snapshot() -> Snapshot:
    """Everything that is watched, now."""
    return Snapshot(_processes(), {id(t): t for t in threading.enumerate()}, _open_files(), _temporary())


def leaks_since(before: Snapshot, grace: float = GRACE_SECONDS) -> list[str]:
    """One line for each thing that is there now, was not there before, and does not go away within the grace time."""
    deadline = time.monotonic() + grace
    while True:
        gc.collect()
        leaks = _compare(before, snapshot())
        if not leaks or time.monotonic() > deadline:
            return leaks
        time.sleep(0.05)


def _compare(before: Snapshot, now: Snapshot) -> list[str]:
    leaks = []
    old_pids = {process.pid for process in before.processes.values()}
    for key, process in now.processes.items():
        if key not in before.processes and process.parent not in old_pids:
            leaks.append(f"process {process.pid} (parent {process.parent}): {process.command}")
    for ident, thread in now.threads.items():
        if isinstance(thread, PoolThread):
            continue  # it ends by itself, some time after its last call
        if ident not in before.threads and not thread.name.startswith(ALLOWED_THREADS):
            leaks.append(f"{'daemon ' if thread.daemon else ''}thread {thread.name!r}")
    opened = {fd: target for fd, target in now.files.items() if before.files.get(fd) != target}
    if len(now.files) > len(before.files) + FD_SLACK:
        leaks += [f"open descriptor {fd}: {target}" for fd, target in opened.items()]
    leaks += [f"temporary file {path}" for path in sorted(now.temporary - before.temporary)]
    return leaks


def _processes() -> dict[tuple[int, int], Process]:
    """Descendants of this process and whatever carries its mark, this process excepted (Linux; elsewhere none)."""
    if not sys.platform.startswith("linux"):
        return {}
    mark = f"{MARK}={os.environ.get(MARK, '')}".encode()
    me, own_start = os.getpid(), myself().start
    everything: dict[int, tuple[Process, bool]] = {}
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        try:
            stat = _contents(f"{entry.path}/stat").decode(errors="replace")
            fields = stat.rpartition(")")[2].split()
            parent, started = int(fields[1]), int(fields[19])
            if fields[0] == "Z" and parent != me:
                continue  # dead, and its own parent's to reap
            if started < own_start:
                continue  # older than this run: none of its children
            command = _contents(f"{entry.path}/cmdline").replace(b"\0", b" ").decode(errors="replace").strip()
            process = Process(int(entry.name), started, parent, command[:200] or stat.split(")")[0])
        except (OSError, IndexError):
            continue
        try:
            marked = mark in _contents(f"{entry.path}/environ").split(b"\0")
        except OSError:
            marked = False
        everything[process.pid] = (process, marked)
    processes = {}
    for process, marked in everything.values():
        if process.pid != os.getpid() and (marked or _descends(process, everything)):
            processes[process.pid, process.started] = process
    return processes


def _contents(path: str) -> bytes:
    with open(path, "rb", buffering=0) as file:
        return file.read()


def _descends(process: Process, everything: dict[int, tuple[Process, bool]]) -> bool:
    parent, seen = process.parent, set[int]()
    while parent in everything and parent not in seen:
        if parent == os.getpid():
            return True
        seen.add(parent)
        parent = everything[parent][0].parent
    return False


def _open_files() -> dict[int, str]:
    descriptors = {}
    for folder in ("/proc/self/fd", "/dev/fd"):
        if os.path.isdir(folder):
            for name in os.listdir(folder):
                try:
                    descriptors[int(name)] = os.readlink(os.path.join(folder, name))
                except OSError:
                    continue
            break
    return descriptors


def _temporary() -> set[str]:
    """Files and folders of the run's temporary directory: run directories one by one."""
    paths: set[str] = set()
    root = Path(tempfile.gettempdir())
    for path in root.iterdir():
        if path.name.startswith("firesteel-") and path.is_dir():
            paths.update(str(child) for child in path.iterdir() if child.is_dir())
        elif not path.name.startswith("hsperfdata_"):
            paths.add(str(path))
    return paths
