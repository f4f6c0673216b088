"""Bounds the standard output of a process where it is a file (``.out``), by size and number, as its log is."""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import stat
import sys
from pathlib import Path
from typing import Final

from firesteel.config import Settings, options
from firesteel.core.call_pool import CallPool
from firesteel.core.log_files import begin_anew

logger = logging.getLogger(__name__)
LOOK_SECONDS: Final = 10.0
_POOL: Final = CallPool("standard output", threads=1, deadline=None)


def output_file(descriptor: int = 1) -> Path | None:
    """The file to which a descriptor appends; None: it is no file, or is not opened for appending."""
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode) or not sys.platform.startswith("linux"):
            return None
        if not fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_APPEND:
            return None  # after a truncation, writes would go on behind a hole
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        return path if os.path.samestat(path.stat(), os.fstat(descriptor)) else None
    except OSError:
        return None


async def bound_own_output(settings: Settings) -> None:
    """Begin the file of the standard output anew whenever it is too large; returns if the output is no file.

    Args:
        settings: bound the size of a log, and the number of old ones.
    """
    most, count = settings.get(options.LOG_SIZE), settings.get(options.LOG_MAX)
    while (path := output_file()) is not None:
        try:
            if await _POOL.call(begin_anew, path, most, count):
                logger.info("%s had more than %d bytes, and was begun anew", path, most)
        except OSError as error:
            logger.warning("%s can't be begun anew: %s", path, error)
        await asyncio.sleep(LOOK_SECONDS)
