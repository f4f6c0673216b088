"""Logs that other processes write: kept when these have ended, bounded in number and size."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from firesteel.core.text_output import ESCAPED

logger = logging.getLogger(__name__)
MOST_BYTES: Final = 100_000_000
TAIL_BYTES: Final = 10_000_000


def keep_newest(folder: Path, pattern: str, count: int, in_use: Callable[[Path], bool]) -> None:
    """Remove all but the newest files of a pattern; those in use stay beside them.

    Args:
        folder: where they are.
        pattern: of their names.
        count: how many that are not in use stay.
        in_use: whether somebody still writes to a file.
    """
    ended: list[tuple[float, Path]] = []
    for path in folder.glob(pattern):
        try:
            if not in_use(path):
                ended.append((path.stat().st_mtime, path))
        except FileNotFoundError:  # somebody else was faster
            continue
    ended.sort()
    for _, path in ended[: max(0, len(ended) - count)]:
        path.unlink(missing_ok=True)


def last_lines(path: Path, most_bytes: int = 16_384) -> list[str]:
    """The lines at the end of a log, without the empty ones behind them.

    Args:
        path: of the log, in UTF-8; what is not is shown as U+FFFD.
        most_bytes: of its end that are read; the first line may be cut, and is left out unless it is the only one.

    Raises:
        OSError: it can't be read.
    """
    with path.open("rb") as log:
        start = max(0, log.seek(0, os.SEEK_END) - most_bytes)
        log.seek(start)
        lines = log.read(most_bytes).decode("utf-8", ESCAPED).rstrip().splitlines()
    return lines[1:] if start and len(lines) > 1 else lines


def bound(path: Path, most: int = MOST_BYTES, tail: int = TAIL_BYTES) -> bool:
    """Begin a log anew that has become too large; its end is kept as ``<name>.1``.

    Its writers have opened it for appending and go on; a line of the moment may be lost.

    Args:
        path: of the log.
        most: bytes that are not too large.
        tail: bytes that are kept.

    Returns:
        Whether it was too large.
    """
    try:
        size = path.stat().st_size
        if size <= most:
            return False
        with path.open("rb") as log:
            log.seek(size - tail)
            end = log.read(tail)
        old = path.with_name(path.name + ".1")
        with os.fdopen(os.open(old, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(end)
        os.truncate(path, 0)
    except OSError as error:
        logger.warning("the log %s can't be begun anew: %s", path, error)
        return False
    return True
