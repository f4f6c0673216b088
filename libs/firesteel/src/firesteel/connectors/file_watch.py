"""Files that appear while the job runs."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Final

from firesteel.connectors.file_splits import FileEnumerator, check_paths, list_files, ranges
from firesteel.core.clock import Clock, SystemClock
from firesteel.functions.source import Plain, Split

_ENTRIES_AT_ONCE: Final = 2000
"""So many files are looked at for one request: a large tree must not hold up the JobMaster."""


class WatchedFilesEnumerator(FileEnumerator):
    """Hands out ranges of the files that are there, then of those that appear; it never ends.

    Configuration: as of ``FileEnumerator``, and ``interval_ms``: time between two looks.
    A file is read once: its path is remembered for ever, also in snapshots, so it has to be complete when it appears
    (write it under a name that begins with a dot or underscore, then rename it). Empty files are looked at again.

    Args:
        config: see above.
        clock: says when to look again.

    Raises:
        ProgramError: a path does not exist on this host, or can't be read.
    """

    def __init__(self, config: Mapping[str, Any], clock: Clock | None = None) -> None:
        self._config = config
        self._paths = [str(path) for path in config["paths"]]
        self._interval = int(config["interval_ms"]) / 1000
        check_paths(self._paths)
        self._clock = SystemClock() if clock is None else clock
        self._seen: set[str] = set()
        self._listing: Iterator[tuple[str, int]] | None = None
        self._next_look = self._clock.monotonic()
        self._left: deque[Split] = deque()

    def next_splits(self, subtask: int, parallelism: int) -> list[Split]:
        """The next ranges; looks for new files when there are none left and it is time."""
        if not self._left:
            self._look()
        return super().next_splits(subtask, parallelism)

    def _look(self) -> None:
        now = self._clock.monotonic()
        if self._listing is None:
            if now < self._next_look:
                return
            self._listing = list_files(self._paths)
        looked = 0
        for path, size in islice(self._listing, _ENTRIES_AT_ONCE):
            looked += 1
            if size and path not in self._seen:
                self._seen.add(path)
                self._left.extend(ranges(path, size, self._config))
        if looked < _ENTRIES_AT_ONCE:
            self._listing = None
            self._next_look = now + self._interval

    @property
    def exhausted(self) -> bool:
        """Never."""
        return False

    def snapshot(self) -> Plain:
        """The files seen and the splits that are left."""
        return {"seen": sorted(self._seen), "left": super().snapshot()}

    def restore(self, state: Plain) -> None:
        """Continue from a snapshot."""
        assert isinstance(state, dict)
        self._seen = set(state["seen"])
        self._listing = None
        super().restore(state["left"])
