"""Files by which a TaskManager learns how the process of a slot has died. They are beside the control socket.

``<pid>.status`` has the exit status of ``waitpid``; the process that has forked the slot writes it, unless it is 0.
``<pid>.crash`` has the stacks that ``faulthandler`` wrote when native code crashed.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

LARGEST_CRASH = 16_384
"""Bytes of stacks that are shown."""


def status_path(control_socket: str | Path, pid: int) -> Path:
    """Path of the exit status of a slot's process."""
    return Path(control_socket).parent / f"{pid}.status"


def crash_path(control_socket: str | Path, pid: int) -> Path:
    """Path of the stacks of a crash."""
    return Path(control_socket).parent / f"{pid}.crash"


def describe_status(status: int) -> str:
    """An exit status in words, with its possible cause."""
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
