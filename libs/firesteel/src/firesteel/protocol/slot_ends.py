"""Files by which a TaskManager learns how a process of a slot has died: beside its control socket, named by the pid.

``<pid>.status`` has the exit status as ``waitpid`` gives it; the process that has forked the slot writes it, unless the
status is 0. ``<pid>.crash`` has the stacks that ``faulthandler`` wrote when native code crashed.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

LARGEST_CRASH = 16_384
"""Bytes of stacks that are shown."""


def status_path(control_socket: str | Path, pid: int) -> Path:
    """Where the exit status of a slot's process is."""
    return Path(control_socket).parent / f"{pid}.status"


def crash_path(control_socket: str | Path, pid: int) -> Path:
    """Where the stacks of a crash are."""
    return Path(control_socket).parent / f"{pid}.crash"


def describe_status(status: int) -> str:
    """An exit status in words, with what it may come from."""
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        return f"ended with exit code {code}: user code or a native library left without Python's exit (os._exit)"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = "a signal"
    text = f"was killed by {name} (signal {-code})"
    if -code == signal.SIGKILL:
        return f"{text}: by the kernel for want of memory, or by hand"
    if -code in (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL):
        return f"{text}: native code crashed"
    return text
