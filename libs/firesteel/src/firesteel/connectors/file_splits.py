"""Which files there are, and how they are cut into splits."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

from firesteel.connectors.file_streams import compression_of
from firesteel.connectors.split_list import SplitListEnumerator
from firesteel.core.errors import ProgramError
from firesteel.functions.source import Split

DEFAULT_SPLIT_BYTES: Final = 16 * 1024 * 1024
"""A file is cut into ranges of about this many bytes."""


def check_paths(paths: Sequence[str]) -> None:
    """Refuse paths that can't be read.

    Raises:
        ProgramError: names the path and what is wrong with it.
    """
    for path in paths:
        if not os.path.exists(path):
            raise ProgramError(f"file source: {path!r} does not exist on {socket.gethostname()}")
        if not os.access(path, os.R_OK):
            raise ProgramError(f"file source: {path!r} can't be read on {socket.gethostname()}: permission denied")


def list_files(paths: Sequence[str]) -> Iterator[tuple[str, int]]:
    """(path, size) of all files at or below the paths, in a fixed order; hidden ones (``.`` or ``_``) are left out."""
    for path in paths:
        if os.path.isdir(path):
            for folder, folders, names in os.walk(path):
                folders[:] = sorted(name for name in folders if not name.startswith((".", "_")))
                for name in sorted(names):
                    full = os.path.join(folder, name)
                    if not name.startswith((".", "_")):
                        yield from _file(full)
        else:
            yield from _file(path)


def _file(path: str) -> Iterator[tuple[str, int]]:
    try:
        found = os.stat(path)
    except FileNotFoundError:  # it was removed in the meantime
        return
    if stat.S_ISREG(found.st_mode):
        yield path, found.st_size


class FileEnumerator(SplitListEnumerator):
    """Lists files when it is made and hands out ranges of them, the files in order.

    Configuration: ``paths``, ``split_bytes`` (0 = do not cut files), ``decompress`` (files whose names say that they
    are compressed are not cut).
    A split's data are ``path``, ``start`` and ``end`` (bytes; a file that is not cut is one split of all its bytes).

    Raises:
        ProgramError: a path does not exist on this host, or can't be read.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        paths = [str(path) for path in config["paths"]]
        check_paths(paths)
        super().__init__(split for path, size in list_files(paths) for split in ranges(path, size, config))

    def next_splits(self, subtask: int, parallelism: int) -> list[Split]:
        """The next ranges: several small files at once, so that many small files do not need many requests."""
        taken: list[Split] = []
        total = 0
        share = min(64, max(1, len(self._left) // (4 * parallelism)))
        while self._left and len(taken) < share and (not taken or total < DEFAULT_SPLIT_BYTES // 4):
            split = self._left.popleft()
            total += int(split.data["end"]) - int(split.data["start"])  # type: ignore[arg-type]
            taken.append(split)
        return taken


def ranges(path: str, size: int, config: Mapping[str, Any]) -> Iterator[Split]:
    """The splits of one file; an empty one has none."""
    split_bytes = int(config.get("split_bytes", DEFAULT_SPLIT_BYTES))
    if size == 0:
        return
    if split_bytes <= 0 or (config.get("decompress", True) and compression_of(path) is not None):
        yield Split(f"{path}:0", {"path": path, "start": 0, "end": size})
        return
    count = max(1, round(size / split_bytes))
    cuts = [size * i // count for i in range(count + 1)]
    for start, end in pairwise(cuts):
        yield Split(f"{path}:{start}", {"path": path, "start": start, "end": end})
