"""Tells TaskManagers how processes of slots have died.

Spark's daemon forks the slots, so the system reports their exit status to it, which it would ignore. Instead it writes
the status to a file; each slot tells the daemon over a pipe where.

A slot that dies does not end the processes that it has started. Its TaskManager does, if it still lives; so the daemon
also ends those in the slot's process group.
"""

from __future__ import annotations

import json
import os
import signal
from contextlib import suppress
from types import FrameType

from firesteel.core.process import kill_group_behind, reap_children
from firesteel.protocol.slot_ends import status_path

_pipe: tuple[int, int] | None = None
_control_sockets: dict[int, str] = {}
"""Control sockets, beside which the status files lie, by pid of the slot."""


def watch_children() -> None:
    """Write down how children die from now on; called in the daemon before it forks any."""
    global _pipe
    _pipe = os.pipe()
    os.set_blocking(_pipe[0], False)
    os.set_blocking(_pipe[1], False)
    daemon = os.getpid()

    def before_fork() -> None:
        # Spark's daemon ignores SIGCHLD before its first fork, so the handler is installed here, at the last moment.
        # Slots that fork must not do it.
        if os.getpid() == daemon:
            signal.signal(signal.SIGCHLD, _child_ended)

    os.register_at_fork(before=before_fork)


def announce_death_to(control_socket: str) -> None:
    """Ask the daemon that has forked this process, if it watches its children, to write its status there."""
    if _pipe is not None:
        with suppress(OSError):  # the daemon is gone, and this process will be soon
            os.write(_pipe[1], json.dumps([os.getpid(), control_socket]).encode() + b"\n")


def write_status(control_socket: str, pid: int, status: int) -> None:
    """Write how a slot's process has ended, unless its status is 0."""
    if status == 0:
        return
    path = status_path(control_socket, pid)
    draft = path.with_suffix(".draft")
    with suppress(OSError):  # the TaskManager is gone
        draft.write_text(str(status), encoding="ascii")
        draft.replace(path)


def _child_ended(number: int, frame: FrameType | None) -> None:
    assert _pipe is not None
    with suppress(BlockingIOError):
        for line in os.read(_pipe[0], 1 << 20).splitlines():
            pid, control_socket = json.loads(line)
            _control_sockets[pid] = control_socket
    for pid, status in reap_children(_end_group):
        control_socket = _control_sockets.pop(pid, None)
        if control_socket is not None:
            write_status(control_socket, pid, status)


def _end_group(pid: int) -> None:
    if pid in _control_sockets:  # only slots lead a process group of their own
        kill_group_behind(pid)
