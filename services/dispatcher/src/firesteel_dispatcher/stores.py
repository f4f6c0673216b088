"""Where submitted jobs are kept: graphs in memory, blobs in the run directory. Interfaces for durable ones."""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Protocol

from firesteel.graph.job_graph import JobGraph

PIECE = 1 << 20
"""Bytes that are read from a blob at once."""


class JobGraphStore(Protocol):
    """Graphs of jobs that have not ended."""

    def put(self, graph: JobGraph) -> None:
        """Store a graph; when this returns it is safe."""

    def get(self, job_id: str) -> JobGraph | None:
        """The graph of a job."""

    def remove(self, job_id: str) -> None:
        """The job has ended."""


class BlobStore(Protocol):
    """Blobs by SHA-256, each kept as long as a job needs it."""

    def incoming(self, name: str) -> Path:
        """A path to which a new blob can be written, before it is kept or dropped."""

    def keep(self, job_id: str, received: dict[str, Path]) -> None:
        """Store what was received (name -> where it was written), for a job; when this returns it is safe."""

    def drop(self, received: Collection[Path]) -> None:
        """Delete what was received and is not wanted."""

    def size(self, name: str) -> int | None:
        """Bytes of a blob; None = it is not here."""

    def read(self, name: str) -> Iterator[bytes]:
        """The content, in pieces."""

    def release(self, job_id: str) -> None:
        """The job has ended: blobs that no other job needs are deleted."""


class InMemoryJobGraphStore:
    """Graphs live as long as the process."""

    def __init__(self) -> None:
        self._graphs: dict[str, JobGraph] = {}

    def put(self, graph: JobGraph) -> None:
        """See ``JobGraphStore``."""
        self._graphs[graph.job_id] = graph

    def get(self, job_id: str) -> JobGraph | None:
        """See ``JobGraphStore``."""
        return self._graphs.get(job_id)

    def remove(self, job_id: str) -> None:
        """See ``JobGraphStore``."""
        self._graphs.pop(job_id, None)


class DirectoryBlobStore:
    """One file for each blob.

    Args:
        directory: private to this store; made when needed.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._owners: dict[str, set[str]] = {}
        self._serial = 0

    def incoming(self, name: str) -> Path:
        """See ``BlobStore``."""
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._serial += 1
        return self._directory / f"{name}.{self._serial}.part"

    def keep(self, job_id: str, received: dict[str, Path]) -> None:
        """See ``BlobStore``."""
        for name, path in received.items():
            os.replace(path, self._directory / name)
            self._owners.setdefault(name, set()).add(job_id)

    def drop(self, received: Collection[Path]) -> None:
        """See ``BlobStore``."""
        for path in received:
            path.unlink(missing_ok=True)

    def size(self, name: str) -> int | None:
        """See ``BlobStore``."""
        return (self._directory / name).stat().st_size if name in self._owners else None

    def read(self, name: str) -> Iterator[bytes]:
        """See ``BlobStore``."""
        with (self._directory / name).open("rb") as file:
            while piece := file.read(PIECE):
                yield piece

    def release(self, job_id: str) -> None:
        """See ``BlobStore``."""
        for name, owners in list(self._owners.items()):
            owners.discard(job_id)
            if not owners:
                del self._owners[name]
                (self._directory / name).unlink(missing_ok=True)

    def close(self) -> None:
        """Delete everything."""
        self._owners.clear()
        shutil.rmtree(self._directory, ignore_errors=True)
