"""Caches of an environment: whose results are there, whose are being written, and whose the next job should write."""

from __future__ import annotations

import logging
import os
import secrets
import shutil
import weakref
from collections.abc import Iterable
from pathlib import Path

from firesteel.common.job_client import JobClient
from firesteel.common.job_status import JobStatus
from firesteel.common.typeinfo import TypeInformation
from firesteel.connectors.cached_results import SHARED, CachedResultsSink, CachedResultsSource
from firesteel.connectors.kept_results import new_root, parts_of
from firesteel.core.errors import FiresteelError
from firesteel.datastream import aggregations, checks
from firesteel.graph.specs import OperatorKind
from firesteel.graph.stream_graph import Transformation, reachable

__all__ = ["Cache", "Caches"]

logger = logging.getLogger(__name__)


class Cache:
    """Results of one stream. Its node in graphs passes records on, or is the source that reads them again.

    Args:
        node: passes records on.
        sink: a transformation that writes what the node is given; its directory is chosen for each job.
        type_info: type of the records.
    """

    def __init__(self, node: Transformation, sink: Transformation, type_info: TypeInformation) -> None:
        self.node, self.sink = node, sink
        self._type, self._inputs, self._name = type_info, node.inputs, node.name
        self._results_directory: Path | None = None
        """Where the whole results are; None = no job has finished writing them."""
        self._writing: tuple[Path, JobClient] | None = None
        """Where a job writes them, and that job."""

    def prepare(self) -> bool:
        """Make the node ready for the next graph: a source of the results if they are there, else a pass-through.

        Returns:
            Whether the next graph should write the results.
        """
        if self._writing is not None:
            directory, job = self._writing
            if parts_of(directory) is not None:
                self._results_directory, self._writing = directory, None
            elif not (state := _state(job)).is_globally_terminal_state():
                # another job is still writing them: compute the stream this time, and do not write it twice
                self._compute()
                return False
            else:
                if state is JobStatus.FINISHED:
                    self._warn(directory)
                self._forget(directory)
                self._writing = None
        parts = None if self._results_directory is None else parts_of(self._results_directory)
        if parts is not None:
            node = self.node
            node.kind, node.inputs, node.name = OperatorKind.SOURCE, (), f"Cached {self._name}"
            node.function = CachedResultsSource(parts, checks.coerced(self._type))
            return False
        if self._results_directory is not None:
            self._warn(self._results_directory)
            self._forget(self._results_directory)
            self._results_directory = None
        self._compute()
        return True

    def _compute(self) -> None:
        node = self.node
        node.kind, node.inputs, node.name = OperatorKind.MAP, self._inputs, self._name
        node.function = aggregations.identity

    def write_to(self, directory: Path) -> None:
        """Set the directory that the sink writes to in the next graph."""
        self.sink.function = CachedResultsSink(str(directory))
        self.sink.inputs = self._inputs

    def is_written(self, job: JobClient) -> None:
        """Note that the job which writes to the sink's directory was accepted."""
        sink: CachedResultsSink = self.sink.function
        self._writing = Path(sink.describe()["path"]), job

    def invalidate(self) -> None:
        """Remove the results, and ignore those that a job is still writing."""
        for directory in (self._results_directory, None if self._writing is None else self._writing[0]):
            if directory is not None:
                self._forget(directory)
        self._results_directory = self._writing = None

    def _warn(self, directory: Path) -> None:
        logger.warning(
            "the results that were kept for %r are not in %s any more, and are computed again; %s",
            self._name,
            directory,
            SHARED,
        )

    def _forget(self, directory: Path) -> None:
        shutil.rmtree(directory, ignore_errors=True)


def _state(job: JobClient) -> JobStatus:
    try:
        return job.get_job_status().result()
    except FiresteelError:  # its cluster has ended, or has forgotten it
        return JobStatus.FAILED


class Caches:
    """The caches of an environment."""

    def __init__(self) -> None:
        self._all: list[Cache] = []
        self._root: Path | None = None
        self._at_exit: weakref.finalize[..., Caches] | None = None

    def add(self, cache: Cache) -> None:
        """Note the cache of another stream."""
        self._all.append(cache)

    def prepare(self, ends: Iterable[Transformation], directory: str | None) -> list[Cache]:
        """Prepare all nodes for the next graph, made of what leads to these ends.

        Returns:
            The caches whose sinks belong into the graph, so that their results are there for the next one.
        """
        unfilled_caches = [cache for cache in self._all if cache.prepare()]
        if not unfilled_caches:
            return []
        reachable_nodes = reachable(ends)
        caches_to_write = [cache for cache in unfilled_caches if cache.node.id in reachable_nodes]
        for cache in caches_to_write:
            cache.write_to(self._directory(directory) / secrets.token_hex(16))
        return caches_to_write

    def _directory(self, configured: str | None) -> Path:
        if self._root is None:
            self._root = new_root(configured, secrets.token_hex(16))
            self._at_exit = weakref.finalize(self, _remove, self._root, os.getpid())
        return self._root

    def close(self) -> None:
        """Forget and remove all results; the streams can be used again."""
        for cache in self._all:
            cache.invalidate()
        if self._at_exit is not None:
            self._at_exit()
        self._root = self._at_exit = None


def _remove(root: Path, owner: int) -> None:
    if os.getpid() == owner:
        shutil.rmtree(root, ignore_errors=True)
