"""Archives of ended jobs that are kept in memory."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

Archive = Mapping[str, Any]


class ArchiveCache:
    """Archives of ended jobs, those that were used last, up to a number of bytes.

    Args:
        most: bytes of their JSON together.
    """

    def __init__(self, most: int) -> None:
        self._most, self._size = most, 0
        self._archives: OrderedDict[str, tuple[Archive, int]] = OrderedDict()

    def put(self, job_id: str, archive: Archive) -> None:
        """Keep an archive, unless it is too large; those that were used longest ago make room for it."""
        self.forget(job_id)
        size = len(json.dumps(archive))
        if size <= self._most:
            self._archives[job_id] = (archive, size)
            self._size += size
        while self._size > self._most:
            self._size -= self._archives.popitem(last=False)[1][1]

    def get(self, job_id: str) -> Archive | None:
        """The archive of a job; None: it is not in memory."""
        entry = self._archives.get(job_id)
        if entry is None:
            return None
        self._archives.move_to_end(job_id)
        return entry[0]

    def forget(self, job_id: str) -> None:
        entry = self._archives.pop(job_id, None)
        if entry is not None:
            self._size -= entry[1]
