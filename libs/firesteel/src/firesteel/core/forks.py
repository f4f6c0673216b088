"""Children that user code forks off a slot (``os.fork``, ``multiprocessing``): nothing of the slot is theirs.

A forked child is a copy of the process with one thread. Without care it holds the slot's connections open after the
slot has died, waits for locks whose owners were not copied, and, when its code ends by ``sys.exit`` or returns, runs
the slot's own error handling and clean-up a second time. So a child closes our sockets as its first act, its standard
streams lead straight into pipes, and it ends where it would come back to our code.
"""

from __future__ import annotations

import os
import stat
import sys
import traceback
import weakref
from contextlib import suppress
from typing import Any, Final, TypeVar

S = TypeVar("S")


class ForkAware:
    """Something that has to be another thing in a forked child. Without effect before ``watch_forks``."""

    def before_fork(self) -> None:
        """Called in the parent, on the thread that forks."""

    def after_fork_in_child(self) -> None:
        """Called in the child, on its only thread. Locks of ours may be held by threads that are not there."""


_aware: Final[weakref.WeakSet[ForkAware]] = weakref.WeakSet()
_sockets: Final[weakref.WeakSet[Any]] = weakref.WeakSet()
_inherited: Final[dict[int, tuple[int, int]]] = {}
"""Sockets that were open before any user code ran, Spark's among them: descriptor -> device and inode."""
_owner: int | None = None
_hooked = False


def watch_forks() -> None:
    """This process is about to run user code: what it forks from now on is not it."""
    global _owner, _hooked
    _owner = os.getpid()
    _inherited.clear()
    for name in os.listdir("/proc/self/fd") if os.path.isdir("/proc/self/fd") else ():
        with suppress(OSError):  # the one that lists
            about = os.fstat(int(name))
            if stat.S_ISSOCK(about.st_mode) and int(name) > 2:
                _inherited[int(name)] = about.st_dev, about.st_ino
    if not _hooked:
        _hooked = True
        os.register_at_fork(before=_before, after_in_child=_in_child)


def stop_watching() -> None:
    """No user code runs any more."""
    global _owner
    _owner = None


def tell_of_forks(aware: ForkAware) -> None:
    """Have this object told of forks as long as it lives."""
    _aware.add(aware)


def closed_in_children(sock: S) -> S:
    """A socket that forked children must not hold."""
    _sockets.add(sock)
    return sock


def end_if_child(error: BaseException | None = None) -> None:
    """End the process, if it is a child of a watched one; elsewhere do nothing.

    Called wherever user code comes back to ours, by an exception or by itself. The exit code is what Python's would be.
    Clean-up of the slot, and what ``atexit`` knows of it, are the parent's.
    """
    if _owner is None or os.getpid() == _owner:
        return
    code = 0
    with suppress(Exception):
        if isinstance(error, SystemExit):
            if isinstance(error.code, int):
                code = error.code & 0xFF
            elif error.code is not None:
                code = 1
                print(error.code, file=sys.stderr)
        elif error is not None:
            code = 1
            traceback.print_exception(error)
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


def _before() -> None:
    if _owner == os.getpid():
        for aware in list(_aware):
            with suppress(Exception):  # the fork is the user's and has to go on
                aware.before_fork()


def _in_child() -> None:
    if _owner is None or os.getppid() != _owner:
        return
    nothing = os.open(os.devnull, os.O_RDWR)
    descriptors = [sock.fileno() for sock in list(_sockets)]
    for descriptor, identity in _inherited.items():
        with suppress(OSError):
            about = os.fstat(descriptor)
            if (about.st_dev, about.st_ino) == identity:
                descriptors.append(descriptor)
    for descriptor in descriptors:
        if descriptor >= 0:  # the number stays taken, or somebody's next file could be closed as ours
            os.dup2(nothing, descriptor, inheritable=False)
    os.close(nothing)
    for aware in list(_aware):
        with suppress(Exception):
            aware.after_fork_in_child()
