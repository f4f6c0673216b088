"""``python -m firesteel_yarn.container``: the first process of the ApplicationMaster's container.

YARN identifies a container with its first process, and ends the process group of that one. Services have sessions of
their own, and some of their children outlive them on purpose. So this process adopts all orphans, and when the
ApplicationMaster has ended, or YARN ends the container, it kills them all: none may run beside the next attempt.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from types import FrameType

from firesteel.core.process import descendants, die_with_parent, kill

_PR_SET_CHILD_SUBREAPER = 36
_SECONDS = 5.0


def main(command: Sequence[str]) -> int:
    """Run a command; returns its exit code once nothing of it is left."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    parent = os.getpid()
    signal.signal(signal.SIGTERM, _end)
    # nothing else runs in this process yet, so nothing can be held across the fork
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, preexec_fn=lambda: die_with_parent(parent))
    code = 0
    while True:
        try:
            pid, status = os.waitpid(-1, 0)
        except ChildProcessError:
            break
        if pid == child.pid:
            code = os.waitstatus_to_exitcode(status)
            break
    _kill_all()
    return code if code >= 0 else 128 - code


def _end(number: int, frame: FrameType | None) -> None:
    """Kill everything at once: YARN kills the process group a quarter of a second later."""
    _kill_all()
    os._exit(128 + number)


def _kill_all() -> None:
    """Kill processes until this one has no children any more: orphans become its children meanwhile."""
    deadline = time.monotonic() + _SECONDS
    while time.monotonic() < deadline:
        for process in descendants(os.getpid()):
            kill(process)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(0.01)


if __name__ == "__main__":
    sys.exit(main([sys.executable, "-P", "-m", "firesteel_yarn.application_master"]))
