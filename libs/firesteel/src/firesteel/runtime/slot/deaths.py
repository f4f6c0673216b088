"""Tells TaskManagers how processes of slots have died: Spark's daemon, which forks them, is the one to whom the system
tells it.

By itself the daemon ignores the ends of its children. Each slot says over a pipe where its exit status is to be
written.

A slot that dies ends nothing that it has started. Its TaskManager does, if there is still one; so the daemon does as
well, for what is in the slot's process group.
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
"""Of slots that have said where their status is to be written, by pid."""


def watch_children() -> None:
    """From now on write down how children die; in the daemon, before it forks any."""
    global _pipe
    _pipe = os.pipe()
    os.set_blocking(_pipe[0], False)
    os.set_blocking(_pipe[1], False)
    daemon = os.getpid()

    def before_fork() -> None:
        # Spark's daemon has SIGCHLD ignored before its first fork, so this comes right then; not in slots that fork.
        if os.getpid() == daemon:
            signal.signal(signal.SIGCHLD, _child_ended)

    os.register_at_fork(before=before_fork)


def announce_death_to(control_socket: str) -> None:
    """Have the status of this process written for the TaskManager, if a daemon has forked it that does so."""
    if _pipe is not None:
        with suppress(OSError):  # the daemon is gone, and this process soon
            os.write(_pipe[1], json.dumps([os.getpid(), control_socket]).encode() + b"\n")


def write_status(control_socket: str, pid: int, status: int) -> None:
    """Write how a slot's process has ended, unless it was in order."""
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
    if pid in _control_sockets:  # a slot: it leads its group
        kill_group_behind(pid)
