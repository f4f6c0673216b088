"""Steps of a checkpoint at which somebody dies: all of this runs in processes of the cluster.

The test writes an *order* into a folder that all processes see: a number, a step, who dies, and how many splits have to
be at their end. The first process that comes to the step then takes it, says so, and either kills itself or stands
still until the test has killed somebody else.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Final

ORDER: Final = "order"
READ: Final = "read-"
"""Sources write files of such names, one for each split that has come to its end."""
MYSELF: Final = "itself"
"""Dies who comes to the step."""
PATIENCE: Final = 120.0
"""Seconds after which a process that stands still goes on, so that a test that broke off leaves nobody behind."""

RECORD: Final = "between two records"
BEFORE_BARRIER: Final = "before the barrier"
SYNC: Final = "in the synchronous part"
ASYNC: Final = "between the synchronous and the asynchronous part"
WRITTEN: Final = "with the state written, before it is acknowledged"
ACKNOWLEDGED: Final = "after all have acknowledged"
BEFORE_METADATA: Final = "before _metadata"
AFTER_METADATA: Final = "after _metadata"
REMOVING: Final = "while the checkpoint before is removed"
CLOSING: Final = "while it cleans up behind the end of the job"
BEFORE_COMMIT: Final = "before the commit"
WITHIN_COMMIT: Final = "with a part of it committed"
AFTER_COMMIT: Final = "after the commit"

IN_SLOTS: Final = (
    RECORD, BEFORE_BARRIER, SYNC, ASYNC, WRITTEN, BEFORE_COMMIT, WITHIN_COMMIT, AFTER_COMMIT,
)  # fmt: skip
"""What slots do."""
IN_JOBMASTER: Final = (ACKNOWLEDGED, BEFORE_METADATA, AFTER_METADATA, REMOVING)
"""What the JobMaster does."""
STEPS: Final = (*IN_SLOTS, *IN_JOBMASTER)
"""What comes again and again while a job runs; ``CLOSING`` comes once, behind its end."""


def at(folder: Path, step: str) -> None:
    """The process has come to a step: die here or let somebody die, if that was ordered."""
    try:
        number, ordered_step, who, ended = (folder / ORDER).read_text().split("\n")
    except (FileNotFoundError, ValueError):
        return
    if ordered_step != step or len(list(folder.glob(f"{READ}*"))) < int(ended):
        return
    try:
        os.close(os.open(folder / f"taken-{number}", os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return
    write(folder / f"arrived-{number}", str(os.getpid()))
    if who == MYSELF:
        os.kill(os.getpid(), signal.SIGKILL)
    deadline = time.monotonic() + PATIENCE
    while not (folder / f"done-{number}").exists() and time.monotonic() < deadline:
        time.sleep(0.005)


def write(file: Path, text: str) -> None:
    """Write a file that is there as a whole or not at all."""
    draft = file.with_name(f".{file.name}.{os.getpid()}")
    draft.write_text(text)
    draft.replace(file)
