"""Files that appear while the job runs."""

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
    """Hands out ranges of the files that are there, then of those that appear; it never ends.

    Configuration: as of ``FileEnumerator``, and ``interval_ms``: time between two looks.
    A file is read once: its path is remembered for ever, also in snapshots, so it has to be complete when it appears
    (write it under a name that begins with a dot or underscore, then rename it). Empty files are looked at again. What
    can't be listed for now is logged once, and looked at again.

    Args:
        config: see above.
        clock: says when to look again.
        files, is_apart: as of ``FileEnumerator``.
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
        """The next ranges; looks for new files when there are none left and it is time."""
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
        """The others are read."""
        if not isinstance(error, FileNotFoundError):  # else it was removed in the meantime
            self._complain(f"file source: {error.filename!r} can't be read: {error.strerror}")

    def _complain(self, what: str) -> None:
        if what not in self._complaints:
            self._complaints.add(what)
            logger.warning("%s; it is looked at again every %.3f s", what, self._interval)

    @property
    def exhausted(self) -> bool:
        """Never."""
        return False
