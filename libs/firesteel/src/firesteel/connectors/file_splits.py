"""Lists files, and makes splits of them."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, wait
from itertools import chain, islice, pairwise
from typing import Any, ClassVar, Final, TypeVar

from firesteel.connectors.file_streams import compression_of, unreadable
from firesteel.connectors.filesystems.file_system import FileSystems
from firesteel.connectors.filesystems.local import unreadable_path
from firesteel.connectors.split_list import SplitListEnumerator
from firesteel.core.call_pool import CallPool
from firesteel.functions.source import Plain, Split

logger = logging.getLogger(__name__)
T = TypeVar("T")
DEFAULT_SPLIT_BYTES: Final = 16 * 1024 * 1024
"""Approximate size of the ranges that a file is split into."""
ENTRIES_AT_ONCE: Final = 2000
"""Files that one request looks at, so that a large tree does not hold up the JobMaster."""

PATIENCE: Final = 0.05
"""Seconds that a request waits for a part of a listing. Disks answer sooner, which saves a second request."""
SILENCE: Final = 60.0
"""Seconds without an answer of a file system after which a warning is logged; the source waits on."""


class FileEnumerator(SplitListEnumerator):
    """Lists files, and hands out ranges of them, the files in order.

    Files are listed in parts, one for each request. A snapshot looks at no folder. Before all files are listed it holds
    the names of those that are, and a restored enumerator goes on with the others. After that it holds the remaining
    ranges, and a restored enumerator lists nothing: files that were read may be gone.

    Configuration: ``paths``, ``split_bytes`` (0 = one range for each file), ``decompress`` (files whose names say
    that they are compressed are one range), ``empty_is_damaged`` (empty files are splits, too, so that the format says
    what is wrong with them; a source that watches for files looks at them again, since they may be being written).
    A split's data are ``path``, ``start`` and ``end`` in bytes.

    Args:
        config: the configuration.
        files: file systems of the paths; None = those without settings.
        is_apart: look at files in a thread, because the caller must not wait for a file system that is slow or hangs.
            There are no splits until it has answered.
    """

    may_match_nothing: ClassVar[bool] = False

    def __init__(self, config: Mapping[str, Any], files: FileSystems | None = None, *, is_apart: bool = False) -> None:
        super().__init__(())
        self._config, self._files = config, FileSystems() if files is None else files
        self._paths = [str(path) for path in config["paths"]]
        self._splits_empty = bool(config.get("empty_is_damaged")) and not self.may_match_nothing
        self._seen: set[str] = set()
        """Paths of files that were listed."""
        self._listing: Iterator[tuple[str, int]] | None = None
        self._listed = self._unchecked = False
        self._pool = CallPool("file listing", threads=1, deadline=None) if is_apart else None
        """A pool of its own, so that a call that hangs holds up no other enumerator."""
        self._under_way: Future[Any] | None = None
        self._asked_at = 0.0

    def start(self) -> None:
        """Check that the paths exist. If the answer takes long, its error is raised by the first request.

        Raises:
            ProgramError: a path does not exist on this host, or can't be read.
            OSError, FileSystemError: the file system does not answer now.
        """
        self._unchecked = True
        self._check()

    def _check(self) -> bool:
        """Whether the paths are known to exist."""
        if self._unchecked:
            self._unchecked = False
            if self._answer(self._check_paths) is None:
                self._unchecked = True
        return not self._unchecked

    def _check_paths(self) -> bool:
        for path in self._paths:
            self._files.of(path).check(path, self._refused, may_match_nothing=self.may_match_nothing)
        return True

    def _answer(self, look: Callable[[], T]) -> T | None:
        """Result of a look at files, or its error; None while the look is under way."""
        if self._pool is None:
            return look()
        if self._under_way is None:
            self._under_way, self._asked_at = self._pool.submit(look), time.monotonic()
            wait([self._under_way], PATIENCE)
        if not self._under_way.done():
            if time.monotonic() - self._asked_at > SILENCE:
                self._asked_at = time.monotonic()
                logger.warning("%s: the file system has not answered for %g s", ", ".join(self._paths)[:500], SILENCE)
            return None
        look_future, self._under_way = self._under_way, None
        result: T = look_future.result()
        return result

    @property
    def idle(self) -> bool:
        """Whether no listing is under way."""
        return self._listing is None and self._under_way is None

    def _refused(self, error: OSError) -> None:
        """Raise: the files of a folder that can't be listed would be missing silently."""
        if isinstance(error, PermissionError):
            raise unreadable_path(str(error.filename)) from error
        if not isinstance(error, FileNotFoundError):  # a folder may be removed meanwhile
            raise error

    def _look(self) -> bool:
        """List some more files; returns whether these were the last.

        Raises:
            ProgramError, OSError, FileSystemError: a folder can't be listed; the next look begins again.
        """
        if not self._check():
            return False
        if self._listing is None:
            self._listing = chain.from_iterable(self._files.of(path).find(path, self._refused) for path in self._paths)
        listing = self._listing
        try:
            piece = self._answer(lambda: list(islice(listing, ENTRIES_AT_ONCE)))
            if piece is None:
                return False
            for path, size in piece:
                if (size or self._is_damaged(path)) and path not in self._seen:
                    self._seen.add(path)
                    self._left.extend(ranges(path, size, self._config))
        except BaseException:
            self._listing = None
            raise
        if len(piece) >= ENTRIES_AT_ONCE:
            return False
        self._listing = None
        return True

    def _is_damaged(self, empty_path: str) -> bool:
        """Whether an empty file is a split, so that the format reports it; empty objects may stand for folders."""
        return self._splits_empty and not empty_path.endswith(("/", "_$folder$"))

    def next_splits(self, subtask: int, parallelism: int) -> list[Split]:
        """The next ranges; several if files are small, so that many small files do not need many requests.

        Raises:
            ProgramError: a folder can't be read.
            OSError, FileSystemError: a folder can't be listed.
        """
        if not self._listed and self._look():
            self._listed = True
            self._seen.clear()
        return self._take(parallelism)

    def _take(self, parallelism: int) -> list[Split]:
        splits: list[Split] = []
        total = 0
        # A quarter of a fair share, so that a faster subtask can read more, and the last files are spread evenly.
        share = min(64, max(1, len(self._left) // (4 * parallelism)))
        while self._left and len(splits) < share and (not splits or total < DEFAULT_SPLIT_BYTES // 4):
            split = self._left.popleft()
            total += int(split.data["end"]) - int(split.data["start"])  # type: ignore[arg-type]
            splits.append(split)
        return splits

    @property
    def exhausted(self) -> bool:
        """Whether all files are listed, and all ranges handed out."""
        return self._listed and super().exhausted

    def snapshot(self) -> Plain:
        """Ranges that were not handed out; and while files are being listed, the names of those that were."""
        splits = super().snapshot()
        return splits if self._listed else {"seen": sorted(self._seen), "left": splits}

    def restore(self, state: Plain) -> None:
        """Continue from a snapshot."""
        self._listed = isinstance(state, list)
        if isinstance(state, dict):
            self._seen = set(state["seen"])
            state = state["left"]
        super().restore(state)


def ranges(path: str, size: int, config: Mapping[str, Any]) -> Iterator[Split]:
    """The splits of one file; an empty file has none, unless empty files are damaged."""
    split_bytes = int(config.get("split_bytes", DEFAULT_SPLIT_BYTES))
    if size == 0:
        if config.get("empty_is_damaged"):
            yield Split(f"{path}:0", {"path": path, "start": 0, "end": 0})
        return
    is_compressed = config.get("decompress", True) and (
        compression_of(path) is not None or unreadable(path) is not None
    )
    if split_bytes <= 0 or is_compressed:
        yield Split(f"{path}:0", {"path": path, "start": 0, "end": size})
        return
    count = max(1, round(size / split_bytes))
    cuts = [size * i // count for i in range(count + 1)]
    for start, end in pairwise(cuts):
        yield Split(f"{path}:{start}", {"path": path, "start": start, "end": end})
