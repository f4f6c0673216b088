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
_PIECE: Final = 1 << 20


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
        former_log = path.with_name(path.name + ".1")
        with os.fdopen(os.open(former_log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(end)
        os.truncate(path, 0)
    except OSError as error:
        logger.warning("the log %s can't be begun anew: %s", path, error)
        return False
    return True


def keep_old(path: Path, count: int) -> None:
    """Rotate a file: it becomes ``<name>.1``, former files count up by one, and the oldest is removed.

    Args:
        path: of the file; nothing happens if it is missing or empty.
        count: number of former files to keep.

    Raises:
        OSError: it can't be renamed.
    """
    if not path.exists() or path.stat().st_size == 0:
        return
    if count == 0:
        path.unlink()
        return
    _number_on(path, count)
    path.replace(path.with_name(f"{path.name}.1"))


def begin_anew(path: Path, most: int, count: int) -> bool:
    """Copy and truncate a file that has become too large, while its writers, which opened it for appending, go on.

    Its content is kept as by ``keep_old``. What is written between the last read and the truncation, a window of
    microseconds, is lost.

    Returns:
        Whether it was too large.

    Raises:
        OSError: it can't be copied; it stays as it is.
    """
    if path.stat().st_size <= most:
        return False
    if count:
        draft = path.with_name(f".{path.name}.draft")
        with path.open("rb") as source, draft.open("wb") as copy:
            while piece := source.read(_PIECE):
                copy.write(piece)
            _number_on(path, count)
            draft.replace(path.with_name(f"{path.name}.1"))
            while piece := source.read(_PIECE):  # what came meanwhile
                copy.write(piece)
                copy.flush()
            os.truncate(path, 0)
    else:
        os.truncate(path, 0)
    return True


def _number_on(path: Path, count: int) -> None:
    for number in range(count - 1, 0, -1):
        former_log = path.with_name(f"{path.name}.{number}")
        if former_log.exists():
            former_log.replace(path.with_name(f"{path.name}.{number + 1}"))
