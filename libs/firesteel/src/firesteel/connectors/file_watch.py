"""The enumerator of file sources that watch for new files."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from firesteel.connectors.file_splits import FileEnumerator
from firesteel.connectors.filesystems.file_system import FileSystems
from firesteel.core.clock import Clock, SystemClock
from firesteel.core.errors import FileSystemError, ProgramError
from firesteel.functions.source import Split

logger = logging.getLogger(__name__)


class WatchedFilesEnumerator(FileEnumerator):
    """Hands out ranges of the files that exist, then of those that appear; it never ends.

    A file is read once: its path is remembered for ever, also in snapshots. So a file has to be complete when it
    appears (write it under a name that begins with a dot or underscore, then rename it). Empty files are looked at
    again. A folder that can't be listed is logged once, and looked at again.

    Args:
        config: as for ``FileEnumerator``, and ``interval_ms``, the time between two looks.
        clock: measures that time.
        files, is_apart: as for ``FileEnumerator``.
    """

    may_match_nothing = True

    def __init__(
        self,
        config: Mapping[str, Any],
        clock: Clock | None = None,
        files: FileSystems | None = None,
        *,
        is_apart: bool = False,
    ) -> None:
        super().__init__(config, files, is_apart=is_apart)
        self._interval = int(config["interval_ms"]) / 1000
        self._clock = SystemClock() if clock is None else clock
        self._next_look = self._clock.monotonic()
        self._complaints: set[str] = set()

    def next_splits(self, subtask: int, parallelism: int) -> list[Split]:
        """The next ranges; looks for new files if no ranges are left and the interval is over."""
        if not self._left:
            self._watch()
        return self._take(parallelism)

    def _watch(self) -> None:
        now = self._clock.monotonic()
        if self.idle and now < self._next_look:
            return
        try:
            if self.idle:
                self._unchecked = True
            over = self._look()
        except (ProgramError, OSError, FileSystemError) as error:
            self._complain(str(error))
            over = True
        if over:
            self._next_look = now + self._interval

    def _refused(self, error: OSError) -> None:
        """Log a folder that can't be listed; the others are read."""
        if not isinstance(error, FileNotFoundError):  # a folder may be removed meanwhile
            self._complain(f"file source: {error.filename!r} can't be read: {error.strerror}")

    def _complain(self, problem: str) -> None:
        if problem not in self._complaints:
            self._complaints.add(problem)
            logger.warning("%s; it is looked at again every %.3f s", problem, self._interval)

    @property
    def exhausted(self) -> bool:
        """Always false: files may appear at any time."""
        return False
