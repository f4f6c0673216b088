"""Logs of a process for other processes to read: its files, or its last lines where it has none, and those of slots."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from firesteel.core.text_output import ESCAPED
from firesteel.service.logs import FORMAT, FieldsFilter

__all__ = ["LogPiece", "ProcessLog", "ProcessLogs", "RecentLog", "TextRing", "UnknownLogError", "own_log_file"]

RING_BYTES: Final = 1 << 20
SLOT_RING_BYTES: Final = 256 << 10
LARGEST_PART: Final = 1 << 20
RECENT: Final = "recent.log"
"""Name of the log of a process that writes to its standard error."""


class UnknownLogError(Exception):
    """There is no log of this name."""


@dataclass(frozen=True)
class ProcessLog:
    """A log of this process, as listings show it.

    Attributes:
        name: file name, without directories.
        size: bytes; of a ring: of all text that was ever written.
        mtime: epoch ms of the last change.
    """

    name: str
    size: int
    mtime: int


@dataclass(frozen=True)
class LogPiece:
    """A piece of a log, with where it begins.

    Attributes:
        size: bytes of the whole log now.
        offset: position of the first byte of ``data``; of a ring it may be a later one than the caller wanted.
        data: the bytes.
    """

    size: int
    offset: int
    data: bytes


class TextRing:
    """The last bytes of all text that was ever written. Thread-safe."""

    def __init__(self, limit: int = RING_BYTES) -> None:
        self._limit = limit
        self._parts: deque[bytes] = deque()
        self._bytes = self.size = 0
        self.mtime = 0
        self._lock = threading.Lock()

    def write(self, text: str) -> None:
        """Append a text; the oldest bytes go."""
        data = text.encode("utf-8", ESCAPED)
        with self._lock:
            self.size += len(data)
            self.mtime = time.time_ns() // 1_000_000
            self._parts.append(data[-self._limit :])
            self._bytes += len(self._parts[-1])
            while self._bytes - len(self._parts[0]) >= self._limit:
                self._bytes -= len(self._parts.popleft())

    def read(self, offset: int, length: int) -> LogPiece:
        """The bytes from an offset on, or from the first byte that is kept; a negative offset counts from the end."""
        with self._lock:
            data, size = b"".join(self._parts)[-self._limit :], self.size
        first = size - len(data)
        start = min(max(size + offset if offset < 0 else offset, first), size)
        return LogPiece(size, start, data[start - first : start - first + length])


class RecentLog(logging.Handler):
    """Keeps the last lines that a process without a log file has logged."""

    def __init__(self) -> None:
        super().__init__()
        self.ring = TextRing()
        self.setFormatter(logging.Formatter(FORMAT))
        self.addFilter(FieldsFilter())

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self.ring.write(self.format(record) + "\n")
        except Exception:  # a record that can't be formatted is reported by the handler that writes
            self.handleError(record)


def own_log_file() -> Path | None:
    """The log file of this process; None: it logs elsewhere."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler, logging.FileHandler) and handler.baseFilename != os.devnull:
            return Path(handler.baseFilename)
    return None


class ProcessLogs:
    """All logs that can be read of a process.

    Args:
        is_ours: whether a file beside the process's own log is listed as well, by its name.
        main: the process's own log; by default ``own_log_file`` at each request.
        below: folders beside the process's own log whose files are listed as well -> prefix of their names.
    """

    def __init__(
        self,
        is_ours: Callable[[str], bool] | None = None,
        main: Path | None = None,
        below: Mapping[str, str] | None = None,
    ) -> None:
        self._is_ours, self._main, self._below = is_ours, main, dict(below or {})
        self._rings: dict[str, TextRing] = {}

    def ring(self, name: str, limit: int = SLOT_RING_BYTES) -> TextRing:
        """The ring of this name, a new one if there is none."""
        return self._rings.setdefault(name, TextRing(limit))

    @property
    def main(self) -> str:
        """Name of the process's own log; empty: there is none."""
        path = self._file()
        return path.name if path is not None else RECENT if self._recent() is not None else ""

    @property
    def stdout(self) -> str:
        """Name of the file with the process's standard output; empty: the output goes elsewhere."""
        path = self._file()
        return path.with_suffix(".out").name if path is not None and path.with_suffix(".out").is_file() else ""

    def listed(self) -> list[ProcessLog]:
        logs: list[ProcessLog] = []
        for name, path in self._files().items():
            try:
                status = path.stat()
            except OSError:  # it was rotated away just now
                continue
            logs.append(ProcessLog(name, status.st_size, status.st_mtime_ns // 1_000_000))
        logs += [ProcessLog(name, ring.size, ring.mtime) for name, ring in self._all_rings().items()]
        return sorted(logs, key=lambda log: log.name)

    def read(self, name: str, offset: int, length: int) -> LogPiece:
        """A piece of a log.

        Args:
            name: a name from ``listed``.
            offset: of the first byte; a negative one counts from the end.
            length: largest number of bytes, at most ``LARGEST_PART``.

        Raises:
            UnknownLogError: there is no log with this name.
        """
        length = max(0, min(length, LARGEST_PART))
        ring = self._all_rings().get(name)
        if ring is not None:
            return ring.read(offset, length)
        path = self._files().get(name)
        if path is None:
            raise UnknownLogError(f"there is no log {name[:80]!r}")
        try:
            with path.open("rb") as file:
                size = file.seek(0, 2)
                start = min(max(size + offset if offset < 0 else offset, 0), size)
                file.seek(start)
                return LogPiece(size, start, file.read(length))
        except OSError as error:
            raise UnknownLogError(f"the log {name[:80]!r} can't be read: {error.strerror or error}") from error

    def _all_rings(self) -> dict[str, TextRing]:
        recent = self._recent() if self._file() is None else None
        return self._rings if recent is None else {RECENT: recent, **self._rings}

    def _files(self) -> dict[str, Path]:
        main = self._file()
        if main is None:
            return {}
        main_name, output_name = main.name, main.with_suffix(".out").name
        try:
            siblings = list(main.parent.iterdir())
        except OSError:
            return {}
        below = {
            begin + path.name: path
            for folder, begin in self._below.items()
            for path in (main.parent / folder).glob("*.log*")
            if path.is_file() and not path.is_symlink()
        }
        return below | {
            path.name: path
            for path in siblings
            if path.is_file()
            and not path.is_symlink()
            and (
                path.name.startswith(main_name)
                or path.name.startswith(output_name)
                or (self._is_ours is not None and self._is_ours(path.name))
            )
        }

    def _file(self) -> Path | None:
        return self._main or own_log_file()

    @staticmethod
    def _recent() -> TextRing | None:
        return next((handler.ring for handler in logging.getLogger().handlers if isinstance(handler, RecentLog)), None)
