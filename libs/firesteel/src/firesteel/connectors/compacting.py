"""A file sink that joins small files before they become visible.

Three operators stand in a row. In each subtask the first one writes part files as a sink without compaction does, and
passes them on when they are finished. The second, of parallelism 1, collects the parts of each folder until the
strategy says that they are joined. The third joins them in threads of its own, and commits: the joined file appears,
then its parts are removed. Until then parts are hidden files, and belong to the state of the operator that has them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from typing_extensions import override

from firesteel.common.serialization import BulkWriterFactory, Encoder
from firesteel.connectors.file_compaction import FileCompactor, FileCompactStrategy
from firesteel.connectors.file_writer import FileWriter
from firesteel.connectors.hidden_files import HiddenFiles
from firesteel.core.call_pool import CallPool
from firesteel.core.errors import CheckpointVersionError, FiresteelError
from firesteel.functions.sink import WriterContext
from firesteel.functions.sink_stages import SinkStage, StageFactory
from firesteel.functions.two_phase import TwoPhaseWriter, WriterState

PREFIX = "compacted-"


def _json(plain: Any) -> bytes:
    return json.dumps(plain, separators=(",", ":")).encode()


@dataclass(frozen=True)
class Compaction:
    """Settings of the compaction of one sink.

    Attributes:
        strategy: when files are joined.
        compactor: how files are joined.
    """

    strategy: FileCompactStrategy
    compactor: FileCompactor


# -- the first stage: parts


class PartFiles(StageFactory):
    """Writes parts as a sink without compaction does.

    Args:
        make_writer: makes the writer of a subtask.
    """

    name = "Parts"

    def __init__(self, make_writer: Callable[[WriterContext], FileWriter]) -> None:
        self._make_writer = make_writer

    def create(self, context: WriterContext) -> SinkStage:
        """Make the stage of one subtask, which writes parts."""
        return _Parts(self._make_writer(context), context)


class _Parts(SinkStage):
    def __init__(self, writer: FileWriter, context: WriterContext) -> None:
        self._writer, self._context = writer, context
        self._passed_on: set[str] = set()
        """Paths of parts that belong to the next operator, until it has made them visible or joined them."""

    def open(self, states: Sequence[bytes]) -> None:
        if states:
            self._writer.restore_state([WriterState(state) for state in states])
        self._writer.open()

    def write(self, values: list[Any], timestamps: Sequence[int] | None) -> list[bytes]:
        self._writer.write(values, timestamps)
        return []

    def prepare(self, *, end_of_input: bool) -> list[bytes]:
        parts = list(self._writer.prepare_commit(end_of_input=end_of_input))
        self._passed_on.update(json.loads(part)["from"] for part in parts)
        if end_of_input:
            self._writer.snapshot_state()  # from now on the parts belong to the next operator
        return parts

    def snapshot(self) -> list[bytes]:
        return list(self._writer.snapshot_state())

    def checkpoint_complete(self) -> None:
        for path in [path for path in self._passed_on if not os.path.exists(path)]:
            self._passed_on.discard(path)
            self._context.forget_temporary_file(path)

    def close(self) -> None:
        self._writer.abort()
        self._writer.close()


# -- the second stage: which parts are joined


class PartGathering(StageFactory):
    """Collects parts by folder, in one subtask."""

    name = "Compact coordinator"
    parallel = False

    def __init__(self, compaction: Compaction) -> None:
        self._compaction = compaction

    @override
    def create(self, context: WriterContext) -> SinkStage:
        return _PartCollector(self._compaction.strategy, joins=self._compaction.compactor.joins)


class _PartCollector(SinkStage):
    """Collects parts by folder. A request is a list of parts that become one file."""

    def __init__(self, strategy: FileCompactStrategy, *, joins: bool) -> None:
        self._strategy, self._joins = strategy, joins
        self._folders: dict[str, list[dict[str, Any]]] = {}
        self._sizes: dict[str, int] = {}
        self._barriers = 0

    def open(self, states: Sequence[bytes]) -> None:
        for state in states:
            plain = json.loads(state)
            self._barriers = max(self._barriers, plain["barriers"])
            for part in plain["parts"]:
                self._take(part)

    def _take(self, part: dict[str, Any]) -> str:
        folder = os.path.dirname(str(part["to"]))
        self._folders.setdefault(folder, []).append(part)
        self._sizes[folder] = self._sizes.get(folder, 0) + part["size"]
        return folder

    def write(self, values: list[Any], timestamps: Sequence[int] | None) -> list[bytes]:
        requests: list[bytes] = []
        for value in values:
            if not self._joins:
                requests.append(_json([json.loads(value)]))
                continue
            folder = self._take(json.loads(value))
            threshold = self._strategy.size_threshold
            if threshold is not None and self._sizes[folder] >= threshold:
                requests.append(self._request(folder))
        return requests

    def _request(self, folder: str) -> bytes:
        del self._sizes[folder]
        return _json(self._folders.pop(folder))

    def prepare(self, *, end_of_input: bool) -> list[bytes]:
        self._barriers += not end_of_input
        limit = self._strategy.num_checkpoints_before_compaction
        if not end_of_input and (limit is None or self._barriers < limit):
            return []
        self._barriers = 0
        return [self._request(folder) for folder in list(self._folders)]

    def snapshot(self) -> list[bytes]:
        parts = [part for parts in self._folders.values() for part in parts]
        return [_json({"barriers": self._barriers, "parts": parts})]

    def close(self) -> None:
        pass


# -- the sink: joins and commits


@dataclass
class _Request:
    """Parts that are being joined.

    Attributes:
        parts: committables of the parts, with their sizes.
        hidden: file that is committed: the joined one, or the only part.
        visible: path of the file when it is committed.
        joining: future of the joined file; None if there is only one part.
    """

    parts: list[dict[str, Any]]
    hidden: Path
    visible: Path
    joining: Future[None] | None


class CompactingWriter(TwoPhaseWriter[bytes]):
    """Joins the parts of requests, in threads of its own.

    Args:
        base_path, file_format: base path and format of the sink.
        compaction: settings of the compaction.
        context: context of the subtask.
    """

    def __init__(
        self,
        base_path: Path,
        file_format: Encoder | BulkWriterFactory,
        compaction: Compaction,
        context: WriterContext,
    ) -> None:
        self._base_path, self._format, self._compactor = base_path, file_format, compaction.compactor
        self._context = context
        self._hidden = HiddenFiles(context)
        self._threads = CallPool("firesteel-compaction", compaction.strategy.num_compact_threads, deadline=None)
        self._running: list[_Request] = []
        self._finished: list[_Request] = []
        """Requests that are carried out, and in no checkpoint yet."""
        self._restored: list[WriterState] = []

    def restore_state(self, states: Sequence[WriterState]) -> None:
        """Take requests that were not carried out at the checkpoint.

        Raises:
            CheckpointVersionError: a later release wrote the state.
        """
        for state in states:
            if state.version != 1:
                raise CheckpointVersionError(
                    "file sink", f"state of version {state.version} was written by a later release: go on with that one"
                )
        self._restored = list(states)

    def open(self) -> None:
        """Carry restored requests out again."""
        self._hidden.remove_orphans(self._base_path)
        for state in self._restored:
            request = json.loads(state.data)
            if request["target"] is not None:  # a file that was not finished; it is joined again, into another file
                Path(request["target"]).unlink(missing_ok=True)
            self._begin(request["parts"])
        self._restored = []

    def write(self, values: Sequence[bytes], timestamps: Sequence[int] | None) -> None:
        """Begin to join the parts of requests; ``prepare_commit`` sees which are done."""
        for value in values:
            self._begin(json.loads(value))

    def _begin(self, parts: list[dict[str, Any]]) -> None:
        sources = [Path(part["from"]) for part in parts]
        for source in sources:
            if not source.exists():
                raise FiresteelError(f"file sink: part file {source}, which was to be joined with others, is missing")
        visible = Path(parts[0]["to"])
        if self._compactor.joins:
            visible = visible.with_name(PREFIX + visible.name)
        if len(parts) == 1:
            self._running.append(_Request(parts, sources[0], visible, None))
            return
        hidden = self._hidden.begin(visible.parent, visible.name)
        joining = self._threads.submit(self._compactor.compact, sources, hidden, self._format)
        self._running.append(_Request(parts, hidden, visible, joining))

    def prepare_commit(self, *, end_of_input: bool) -> Sequence[bytes]:
        """Commit the files that are joined by now; at the end of the input wait for all."""
        unfinished: list[_Request] = []
        for request in self._running:
            if request.joining is None or end_of_input or request.joining.done():
                self._wait_for(request)
                self._finished.append(request)
            else:
                unfinished.append(request)
        self._running = unfinished
        committables = [_committable(request) for request in self._finished]
        if self._context.checkpointing or not end_of_input:
            self._keep()
        return committables

    def _wait_for(self, request: _Request) -> None:
        """Wait until the file of a request is joined; an error names the file."""
        if request.joining is None:
            return
        try:
            request.joining.result()
        except Exception as error:
            count = len(request.parts)
            raise FiresteelError(f"file sink: {count} parts could not become {request.visible}: {error}") from error

    def _keep(self) -> None:
        for request in self._finished:
            self._context.keep_temporary_file(str(request.hidden))
        self._finished = []

    def snapshot_state(self) -> Sequence[bytes]:
        """Requests that are not carried out yet; after a restore they are carried out again."""
        self._keep()
        return [
            _json({"parts": request.parts, "target": None if request.joining is None else str(request.hidden)})
            for request in self._running
        ]

    def abort(self) -> None:
        """Remove joined files that are in no checkpoint; their parts belong to the state of an operator."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        for request in [*self._running, *self._finished]:
            if request.joining is not None:
                request.joining.add_done_callback(partial(_remove, request.hidden))
                self._context.forget_temporary_file(str(request.hidden))
        self._running, self._finished = [], []

    def close(self) -> None:
        """Cancel joins that have not begun, and end the threads."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def _remove(path: Path, joining: Future[None]) -> None:
    path.unlink(missing_ok=True)


def _committable(request: _Request) -> bytes:
    sources = [part["from"] for part in request.parts] if request.joining is not None else []
    sources += [path for part in request.parts for path in part.get("remove", ())]
    return _json({"from": str(request.hidden), "to": str(request.visible), "remove": sources})
