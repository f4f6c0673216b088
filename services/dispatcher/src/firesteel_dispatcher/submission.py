"""Reads ``POST /jobs``: a multipart form with the graph and its blobs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import BodyPartReader, web

from firesteel.config.options import REST_MAX_CONTENT_LENGTH
from firesteel.core.errors import ConfigurationError, GraphError
from firesteel.core.ids import parse_job_id
from firesteel.graph.job_graph import JobGraph
from firesteel_dispatcher.stores import BlobStore

_PIECE = 256 * 1024
_SAME_PARTS = {"python": 2, "firesteel": 2, "pyarrow": 1, "cloudpickle": 1}
"""How many leading parts of a version have to be the same at the client and in the cluster."""


class TooLargeError(Exception):
    """The request is larger than is allowed."""


@dataclass
class Submission:
    """A checked submission; its blobs lie at ``blobs`` until they are kept or dropped."""

    graph: JobGraph
    blobs: dict[str, Path] = field(default_factory=dict)

    @property
    def fingerprint(self) -> str:
        """Equal for equal graphs."""
        text = json.dumps(self.graph.to_plain(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()


async def read_submission(
    request: web.Request, store: BlobStore, own_versions: Mapping[str, str], limit: int
) -> Submission:
    """Read and check a submission; when this raises, nothing of it is left.

    Args:
        request: with a multipart body: ``request``, the plan, then the blobs, each named by its SHA-256.
        store: where blobs are written.
        own_versions: of the cluster (keys as in ``JobGraph.versions``).
        limit: bytes of the whole body.

    Raises:
        GraphError: it is malformed or inconsistent, or made with versions that don't go with the cluster's.
        TooLargeError: it is larger than ``limit``.
    """
    if request.content_type != "multipart/form-data":
        raise GraphError("a job is submitted as multipart/form-data with the parts request, file_0, file_1, …")
    reader = _Reader(store, limit)
    try:
        try:
            parts = await request.multipart()
        except ValueError as error:
            raise GraphError(f"the multipart body can't be read: {error}") from error
        while True:
            try:
                part = await parts.next()
            except ValueError as error:
                raise GraphError(f"the multipart body can't be read: {error}") from error
            if part is None:
                break
            if not isinstance(part, BodyPartReader):
                raise GraphError("a part of the body is a multipart body itself")
            await reader.take(part)
        graph = reader.finish()
        check_versions(graph.versions, own_versions)
    except BaseException:
        store.drop([path for path, _ in reader.received.values()])
        raise
    return Submission(graph, {name: path for name, (path, _) in reader.received.items()})


def check_versions(client: Mapping[str, str], cluster: Mapping[str, str]) -> None:
    """Refuse what was pickled with something that the slots could not read.

    Raises:
        GraphError: names all versions that differ too much.
    """
    faults = []
    for package, parts in _SAME_PARTS.items():
        theirs, ours = client.get(package), cluster.get(package, "unknown")
        if not isinstance(theirs, str):
            faults.append(f"the version of {package} is missing")
        elif theirs.split(".")[:parts] != ours.split(".")[:parts]:
            faults.append(f"{package} {theirs} was used, the cluster has {ours}")
    if faults:
        raise GraphError(
            f"the program was prepared with versions that do not go with this cluster: {'; '.join(faults)}. "
            "Submit from an environment with the cluster's versions."
        )


class _Reader:
    def __init__(self, store: BlobStore, limit: int) -> None:
        self._store, self._limit, self._read = store, limit, 0
        self._plan_name = ""
        self._graph: JobGraph | None = None
        self.received: dict[str, tuple[Path, int]] = {}

    async def take(self, part: BodyPartReader) -> None:
        """One part, in the order in which they come."""
        if part.name == "request":
            fields = _json(await self._text(part), "the part 'request'")
            name = fields.get("executionPlanFileName") if isinstance(fields, dict) else None
            if not isinstance(name, str):
                raise GraphError("the part 'request' does not name executionPlanFileName")
            self._plan_name = name
        elif not self._plan_name:
            raise GraphError("the part 'request' has to come first")
        elif part.filename == self._plan_name:
            self._graph = JobGraph.from_plain(_json(await self._text(part), "the graph"))
            self._check_graph(self._graph)
        elif self._graph is None:
            raise GraphError(f"the graph ({self._plan_name}) has to come before the blobs")
        else:
            await self._blob(part, self._graph)

    def finish(self) -> JobGraph:
        """All parts came."""
        if self._graph is None:
            raise GraphError("the body holds no graph")
        missing = sorted(set(self._graph.blobs) - set(self.received))
        if missing:
            raise GraphError(f"{len(missing)} blobs are missing, such as {missing[0]}")
        return self._graph

    def _check_graph(self, graph: JobGraph) -> None:
        try:
            parse_job_id(graph.job_id)
        except (ConfigurationError, TypeError) as error:
            raise GraphError(str(error)) from error
        sizes = graph.blobs.items()
        if not all(_is_sha256(name) and isinstance(size, int) and size >= 0 for name, size in sizes):
            raise GraphError("blobs are named by their SHA-256, and have a size in bytes")

    async def _blob(self, part: BodyPartReader, graph: JobGraph) -> None:
        name = part.filename or ""
        size = graph.blobs.get(name)
        if size is None:
            raise GraphError(f"{name!r:.80} is not a blob of this graph")
        if name in self.received:
            raise GraphError(f"the blob {name} came twice")
        path, digest, count = self._store.incoming(name), hashlib.sha256(), 0
        self.received[name] = (path, size)
        with path.open("wb") as file:
            while piece := await part.read_chunk(_PIECE):
                self._count(len(piece))
                count += len(piece)
                if count > size:
                    break
                digest.update(piece)
                file.write(piece)
        if count != size:
            raise GraphError(f"the blob {name} has {'more' if count > size else 'fewer'} bytes than {size}")
        if digest.hexdigest() != name:
            raise GraphError(f"the blob {name} arrived damaged: its SHA-256 is {digest.hexdigest()}")

    async def _text(self, part: BodyPartReader) -> bytes:
        pieces = []
        while piece := await part.read_chunk(_PIECE):
            self._count(len(piece))
            pieces.append(bytes(piece))
        return b"".join(pieces)

    def _count(self, size: int) -> None:
        self._read += size
        if self._read > self._limit:
            raise TooLargeError(
                f"The job with its blobs is larger than {self._limit} bytes ({REST_MAX_CONTENT_LENGTH.key}): raise "
                "the limit, or put the data into files."
            )


def _json(text: bytes, what: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise GraphError(f"{what} is not JSON: {error}") from error


def _is_sha256(name: Any) -> bool:
    return isinstance(name, str) and len(name) == 64 and set(name) <= set("0123456789abcdef")
