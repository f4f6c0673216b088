"""The standard output of a process where it is a file (``.out``): bounded like its log, by size and number."""

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
    """The file that a descriptor appends to; None: it is something else, or is not appended to."""
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode) or not sys.platform.startswith("linux"):
            return None
        if not fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_APPEND:
            return None  # it would go on behind a hole
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        return path if os.path.samestat(path.stat(), os.fstat(descriptor)) else None
    except OSError:
        return None


async def bound_own_output(settings: Settings) -> None:
    """Look from time to time whether the standard output is too large, for ever.

    Args:
        settings: say how large a log may be, and how many old ones are kept.
    """
    most, count = settings.get(options.LOG_SIZE), settings.get(options.LOG_MAX)
    while (path := output_file()) is not None:
        try:
            if await _POOL.call(begin_anew, path, most, count):
                logger.info("%s had more than %d bytes, and was begun anew", path, most)
        except OSError as error:
            logger.warning("%s can't be begun anew: %s", path, error)
        await asyncio.sleep(LOOK_SECONDS)
