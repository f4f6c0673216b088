"""A Dispatcher process that kills itself at a chosen moment: ``dispatcher_process.py <moment> <arguments>``.

Moments: ``never``; ``before-store`` and ``after-store`` of a submission; ``after-cancel`` and ``after-end`` of a job.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from firesteel.ha.job_cells import CellJobStore
from firesteel.service.process import run_service
from firesteel_dispatcher.__main__ import build

_METHODS = {"store": "put", "cancel": "set_cancelled", "end": "end"}


def die_around(method: str, before: bool) -> None:
    """Have the process killed before or after the store's method has done its work."""
    work = getattr(CellJobStore, method)

    def deadly(*arguments: Any) -> None:
        if not before:
            work(*arguments)
        os.kill(os.getpid(), signal.SIGKILL)

    setattr(CellJobStore, method, deadly)


if __name__ == "__main__":
    moment = sys.argv[1]
    if moment != "never":
        when, _, what = moment.partition("-")
        die_around(_METHODS[what], when == "before")
    sys.exit(run_service("dispatcher", build, sys.argv[2:]))
