"""Processes of this machine: their identity beyond the pid, their descendants, and death with the parent.

Facts: ``proc(5)`` (field 22 of ``stat`` is the start time in clock ticks since boot), ``prctl(2)`` (PR_SET_PDEATHSIG).
On systems without ``/proc`` the facts come from ``ps``.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_PROC = Path("/proc")
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_HAS_PROC = (_PROC / "self" / "stat").exists()
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class ProcessId:
    """A process that can't be mistaken for a later one with the same pid."""

    pid: int
    start: int
    """Opaque start time; equal for the same process only."""

    def to_plain(self) -> dict[str, int]:
        """JSON-able data, which every record of a process has under the name ``process``."""
        return {"pid": self.pid, "start": self.start}

    @classmethod
    def from_plain(cls, plain: Any) -> ProcessId:
        """The inverse of ``to_plain``.

        Raises:
            ValueError: it is something else.
        """
        try:
            return cls(int(plain["pid"]), int(plain["start"]))
        except (KeyError, TypeError) as error:
            raise ValueError(f"no process: {type(error).__name__}: {error}") from error


def identify(pid: int) -> ProcessId | None:
    """The identity of a live process, or None if there is none with this pid (a zombie counts as gone)."""
    if _HAS_PROC:
        fields = _stat_fields(pid)
        return None if fields is None or fields[0] in "ZX" else ProcessId(pid, int(fields[19]))
    answer = subprocess.run(["ps", "-o", "stat=,lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
    status, _, started = answer.stdout.strip().partition(" ")
    if not status or status.startswith("Z"):
        return None
    return ProcessId(pid, zlib.crc32(started.strip().encode()))


def myself() -> ProcessId:
    """The identity of the calling process."""
    identity = identify(os.getpid())
    assert identity is not None, "a running process finds itself"
    return identity


def is_running(process: ProcessId) -> bool:
    """Whether exactly this process still runs."""
    return identify(process.pid) == process


def children_of_all() -> dict[int, list[int]]:
    """The pids of the children of every process of the machine that has some."""
    children: dict[int, list[int]] = {}
    for child, parent in _parents():
        children.setdefault(parent, []).append(child)
    return children


def descendants(pid: int) -> list[ProcessId]:
    """Children of a process, their children and so on, parents first; the process itself is not among them."""
    children = children_of_all()
    identities: list[ProcessId] = []
    waiting = [pid]
    while waiting:
        for child in children.get(waiting.pop(0), ()):
            identity = identify(child)
            if identity is not None:
                identities.append(identity)
                waiting.append(child)
    return identities


def wait_gone(processes: Iterable[ProcessId], timeout: float) -> list[ProcessId]:
    """Wait until the processes have ended; those that still run after ``timeout`` seconds are returned."""
    deadline = time.monotonic() + timeout
    running = [process for process in processes if is_running(process)]
    while running and time.monotonic() < deadline:
        time.sleep(0.01)
        running = [process for process in running if is_running(process)]
    return running


def ask_to_end(process: ProcessId) -> bool:
    """Send SIGTERM, unless the process is gone already; returns whether it was there."""
    return _send(process, signal.SIGTERM)


def kill(process: ProcessId) -> None:
    """Send SIGKILL, unless the process is gone already."""
    _send(process, signal.SIGKILL)


def lead_own_group() -> None:
    """Make this process the leader of a process group, by which processes that it leaves behind can be found."""
    with suppress(PermissionError):  # it leads a session, and so its group
        os.setpgid(0, 0)


def group_members(leader: ProcessId) -> list[ProcessId]:
    """Live processes of the group that a process leads, or led before it died, without the process itself.

    The system gives no new process the pid of a leader whose group is not empty.
    """
    now = identify(leader.pid)
    if now is not None and now != leader:
        return []
    try:
        os.killpg(leader.pid, 0)
    except ProcessLookupError:
        return []  # behind most leaders nothing is left, and to look at all processes of a machine takes long
    except PermissionError:
        pass
    if _HAS_PROC:
        pids = [int(name) for name in os.listdir(_PROC) if name.isdigit() and _group_of(int(name)) == leader.pid]
    else:
        answer = subprocess.run(["ps", "-axo", "pid=,pgid="], capture_output=True, text=True, check=True)
        pairs = (line.split() for line in answer.stdout.splitlines())
        pids = [int(pid) for pid, group in pairs if int(group) == leader.pid]
    return [member for pid in pids if pid != leader.pid and (member := identify(pid)) is not None]


def family_of(process: ProcessId) -> list[ProcessId]:
    """Live processes that a process has started: its descendants, and its group, also after it has died."""
    below = descendants(process.pid) if is_running(process) else []
    return list(dict.fromkeys([*below, *group_members(process)]))


def reap_children(last_look: Callable[[int], None] | None = None) -> Iterator[tuple[int, int]]:
    """Give pid and wait status of each child that has ended by now, whoever has started it.

    Args:
        last_look: called with the pid of each child that did not end with exit code 0, while it is a zombie: until it
            is reaped no other process, and no other process group, can have its pid. Not called where the system has
            no ``waitid``.
    """
    while True:
        child = -1  # any of them
        try:
            if last_look is not None and hasattr(os, "waitid"):
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
                if ended is None:
                    return
                child = ended.si_pid
                if ended.si_status != 0:
                    last_look(child)
            pid, status = os.waitpid(child, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:  # no further child has ended
            return
        yield pid, status


def kill_group_behind(pid: int) -> int:
    """Send SIGKILL to the process group of a child that has died and is not reaped yet.

    Returns:
        The number of these processes.
    """
    members = group_members(ProcessId(pid, 0))  # a zombie has no identity, and keeps its pid from others
    for member in members:
        kill(member)
    return len(members)


def end_family() -> None:
    """Send SIGKILL to all that this process has started, also to those that have left its group."""
    for member in family_of(myself()):
        kill(member)


def die_with_parent(parent: int | None = None) -> None:
    """Have the kernel SIGKILL this process when its parent dies, whatever signals it ignores. Linux only, else no-op.

    The order closes the gap in which the parent dies before the request: ask first, then look who the parent is.

    Args:
        parent: pid of the parent as it was when this process was forked; by default the parent of now.
    """
    if not sys.platform.startswith("linux"):
        return
    expected = os.getppid() if parent is None else parent
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    if os.getppid() != expected:
        os.kill(os.getpid(), signal.SIGKILL)


def keep_freed_memory() -> None:
    """Have the C library keep up to 64 MiB of freed memory for the next arrays of numpy.

    By itself it gives the memory of each array of more than 128 KiB back to the system, and the pages of the next one
    are zeroed anew: that made columns of 1 MiB three times as expensive (measured). Does nothing where the C library
    is not glibc.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, 32 << 20)
        mallopt(_M_TRIM_THRESHOLD, 64 << 20)


def _send(process: ProcessId, number: signal.Signals) -> bool:
    if not is_running(process):
        return False
    try:
        os.kill(process.pid, number)
    except ProcessLookupError:  # it ended after the look
        return False
    return True


def cpu_seconds(pid: int) -> float:
    """Processor time of a process, and of its children that it has waited for; 0 if it is gone or /proc is missing."""
    fields = _stat_fields(pid)
    # proc(5): utime, stime, cutime and cstime are fields 14 to 17, and these begin with the third.
    return 0.0 if fields is None else sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def _group_of(pid: int) -> int | None:
    try:
        return os.getpgid(pid)
    except OSError:  # it is gone
        return None


def _stat_fields(pid: int) -> list[str] | None:
    """Fields of ``/proc/<pid>/stat`` from the third (state) on; the name before may hold spaces and brackets."""
    try:
        with open(f"{_PROC}/{pid}/stat", "rb", buffering=0) as file:
            text = file.read().decode(errors="replace")
    except OSError:
        return None
    return text.rpartition(")")[2].split()


def _parents() -> list[tuple[int, int]]:
    """(pid, parent's pid) of all processes."""
    if not _HAS_PROC:
        answer = subprocess.run(["ps", "-axo", "pid=,ppid="], capture_output=True, text=True, check=True)
        pairs = (line.split() for line in answer.stdout.splitlines())
        return [(int(pid), int(parent)) for pid, parent in pairs]
    parents = []
    for name in os.listdir(_PROC):
        if name.isdigit():
            fields = _stat_fields(int(name))
            if fields is not None:
                parents.append((int(name), int(fields[1])))
    return parents
