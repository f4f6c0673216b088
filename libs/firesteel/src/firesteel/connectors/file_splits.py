"""Which files there are, and how they are cut into splits."""

from __future__ import annotations

import os
import socket
import stat
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, islice, pairwise
from typing import Any, Final

from firesteel.connectors.file_patterns import is_pattern, matches, root_of
from firesteel.connectors.file_streams import compression_of, unreadable
from firesteel.connectors.split_list import SplitListEnumerator
from firesteel.core.errors import ProgramError
from firesteel.functions.source import Plain, Split

DEFAULT_SPLIT_BYTES: Final = 16 * 1024 * 1024
"""A file is cut into ranges of about this many bytes."""
ENTRIES_AT_ONCE: Final = 2000
"""So many files are looked at for one request: a large tree must not hold up the JobMaster."""


def check_paths(paths: Sequence[str], refused: Callable[[OSError], None], *, may_match_nothing: bool = False) -> None:
    """Refuse paths that can't be read.

    Args:
        paths: files, folders and patterns.
        refused: as of ``list_files``.
        may_match_nothing: files that a pattern means may come later; the folder in front of its wildcards is there.

    Raises:
        ProgramError: names the path and what is wrong with it.
    """
    for path in paths:
        if is_pattern(path):
            root = root_of(path)
            _check(root, f" (of {path!r})")
            if not may_match_nothing and next(matches(path, refused), None) is None:
                raise ProgramError(f"file source: nothing matches {path!r} on {socket.gethostname()}")
        else:
            _check(path)


def _check(path: str, of: str = "") -> None:
    if not os.path.exists(path):
        raise ProgramError(f"file source: {path!r}{of} does not exist on {socket.gethostname()}")
    if not os.access(path, os.R_OK):
        raise _unreadable(path)


def list_files(paths: Sequence[str], refused: Callable[[OSError], None]) -> Iterator[tuple[str, int]]:
    """(path, size) of all files at or below the paths, in a fixed order; hidden ones (``.`` or ``_``) are left out.

    Links are followed; each folder below a path is read once, however many links lead to it.

    Args:
        paths: files, folders and patterns.
        refused: called when a folder can't be listed; then it is left out, unless this raises.

    Raises:
        OSError: a file can't be looked at.
    """
    for path in chain.from_iterable(matches(path, refused) if is_pattern(path) else (path,) for path in paths):
        if os.path.isdir(path):
            for folder, names in _folders(path, refused):
                for name in sorted(names):
                    if not name.startswith((".", "_")):
                        yield from _file(os.path.join(folder, name))
        else:
            yield from _file(path)


def _folders(path: str, refused: Callable[[OSError], None]) -> Iterator[tuple[str, list[str]]]:
    """Folders and the names in them: first those that are no links, so that they keep their paths when links appear."""
    known: set[tuple[int, int]] = set()
    tops = deque([path])
    while tops:
        for folder, folders, names in os.walk(tops.popleft(), onerror=refused):
            try:
                found = os.stat(folder)
            except FileNotFoundError:
                continue
            shown = sorted(name for name in folders if not name.startswith((".", "_")))
            folders.clear()
            if (found.st_dev, found.st_ino) in known:
                continue
            known.add((found.st_dev, found.st_ino))
            for name in shown:
                full = os.path.join(folder, name)
                if os.path.islink(full):
                    tops.append(full)
                else:
                    folders.append(name)
            yield folder, names


def _unreadable(path: str) -> ProgramError:
    return ProgramError(f"file source: {path!r} can't be read on {socket.gethostname()}: permission denied")


def _file(path: str) -> Iterator[tuple[str, int]]:
    try:
        found = os.stat(path)
    except FileNotFoundError:  # it was removed in the meantime
        return
    if stat.S_ISREG(found.st_mode):
        yield path, found.st_size


class FileEnumerator(SplitListEnumerator):
    """Lists files when it begins anew, and hands out ranges of them, the files in order.

    They are listed in pieces, one for each request. A snapshot looks at no folder. Until all are listed it has the
    names of those that were, and one that is restored goes on with the others; after that it has what is left, and
    nothing is listed again: files that were read may be gone.

    Configuration: ``paths``, ``split_bytes`` (0 = do not cut files), ``decompress`` (files whose names say that they
    are compressed are not cut).
    A split's data are ``path``, ``start`` and ``end`` (bytes; a file that is not cut is one split of all its bytes).
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__(())
        self._config = config
        self._paths = [str(path) for path in config["paths"]]
        self._seen: set[str] = set()
        """Files that were listed."""
        self._listing: Iterator[tuple[str, int]] | None = None
        self._listed = False

    def start(self) -> None:
        """Look whether the paths are there.

        Raises:
            ProgramError: a path does not exist on this host, or can't be read.
        """
        check_paths(self._paths, self._refused)

    def _refused(self, error: OSError) -> None:
        """What is in a folder that can't be listed would be missing in silence."""
        if isinstance(error, PermissionError):
            raise _unreadable(str(error.filename)) from error
        if not isinstance(error, FileNotFoundError):  # it was removed in the meantime
            raise error

    def _look(self) -> bool:
        """List some files more; whether these were the last.

        Raises:
            ProgramError, OSError: a folder can't be listed; the next look begins again.
        """
        if self._listing is None:
            self._listing = list_files(self._paths, self._refused)
        looked = 0
        try:
            for path, size in islice(self._listing, ENTRIES_AT_ONCE):
                looked += 1
                if size and path not in self._seen:
                    self._seen.add(path)
                    self._left.extend(ranges(path, size, self._config))
        except BaseException:
            self._listing = None
            raise
        if looked >= ENTRIES_AT_ONCE:
            return False
        self._listing = None
        return True

    def next_splits(self, subtask: int, parallelism: int) -> list[Split]:
        """The next ranges: several small files at once, so that many small files do not need many requests.

        Raises:
            ProgramError: a folder can't be read.
            OSError: it can't be listed.
        """
        if not self._listed and self._look():
            self._listed = True
            self._seen.clear()
        return self._take(parallelism)

    def _take(self, parallelism: int) -> list[Split]:
        taken: list[Split] = []
        total = 0
        share = min(64, max(1, len(self._left) // (4 * parallelism)))
        while self._left and len(taken) < share and (not taken or total < DEFAULT_SPLIT_BYTES // 4):
            split = self._left.popleft()
            total += int(split.data["end"]) - int(split.data["start"])  # type: ignore[arg-type]
            taken.append(split)
        return taken

    @property
    def exhausted(self) -> bool:
        """Whether all files are listed, and all splits out."""
        return self._listed and super().exhausted

    def snapshot(self) -> Plain:
        """The splits that are left; beside them the files that were listed, while others are not."""
        left = super().snapshot()
        return left if self._listed else {"seen": sorted(self._seen), "left": left}

    def restore(self, state: Plain) -> None:
        """Continue from a snapshot."""
        self._listed = isinstance(state, list)
        if isinstance(state, dict):
            self._seen = set(state["seen"])
            state = state["left"]
        super().restore(state)


def ranges(path: str, size: int, config: Mapping[str, Any]) -> Iterator[Split]:
    """The splits of one file; an empty one has none."""
    split_bytes = int(config.get("split_bytes", DEFAULT_SPLIT_BYTES))
    if size == 0:
        return
    whole = config.get("decompress", True) and (compression_of(path) is not None or unreadable(path) is not None)
    if split_bytes <= 0 or whole:
        yield Split(f"{path}:0", {"path": path, "start": 0, "end": size})
        return
    count = max(1, round(size / split_bytes))
    cuts = [size * i // count for i in range(count + 1)]
    for start, end in pairwise(cuts):
        yield Split(f"{path}:{start}", {"path": path, "start": start, "end": end})
