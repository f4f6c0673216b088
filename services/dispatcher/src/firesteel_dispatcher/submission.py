"""Reads ``POST /jobs``: Flink's multipart form, with our graph as the plan and blobs as the artifacts."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from aiohttp import BodyPartReader, web

from firesteel.config.options import REST_MAX_CONTENT_LENGTH
from firesteel.core.call_pool import CallPool
from firesteel.core.errors import ConfigurationError, FiresteelError, GraphError
from firesteel.core.ids import parse_job_id
from firesteel.graph.job_graph import JobGraph

_PIECE: Final = 256 * 1024
_FILES: Final = CallPool("submitted jobs")
"""Threads that write files of submissions: a disk that hangs holds up the submission, and nothing else."""
_MOST_PARTS: Final = 10_000
_JAVA: Final = b"\xac\xed"
"""First bytes of a serialised Java object."""
_PLAN_NAMES: Final = ("executionPlanFileName", "jobGraphFileName")
"""The field that names the plan, and its name before Flink 2."""
_SAME_PARTS: Final = {"python": 2, "firesteel": 2, "pyarrow": 1, "cloudpickle": 1}
"""Leading parts of a version that client and cluster must have in common."""


class TooLargeError(FiresteelError):
    """The request is larger than the limit."""


@dataclass(frozen=True)
class Submission:
    """A checked submission; ``blobs`` (SHA-256 -> file) are all that the graph names."""

    graph: JobGraph
    blobs: Mapping[str, Path]

    @property
    def fingerprint(self) -> str:
        """Equal for equal graphs."""
        return fingerprint_of(self.graph)


@dataclass(frozen=True)
class _File:
    path: Path
    size: int
    sha: str


def fingerprint_of(graph: JobGraph) -> str:
    """Equal for equal graphs."""
    text = json.dumps(graph.to_plain(), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


async def read_submission(
    request: web.Request, directory: Path, own_versions: Mapping[str, str], limit: int
) -> Submission:
    """Read and check a submission.

    Args:
        request: its multipart body has ``request``, which describes the other parts, and files, in any order.
        directory: where files are written; the caller removes it.
        own_versions: versions of the cluster; keys as in ``JobGraph.versions``.
        limit: bytes of the whole body.

    Raises:
        GraphError: the submission is malformed or inconsistent, or its versions don't go with the cluster's.
        TooLargeError: the body is larger than ``limit``.
        OSError: a file could not be written.
    """
    if request.content_type != "multipart/form-data":
        raise GraphError("a job is submitted as multipart/form-data with the parts request, file_0, file_1, …")
    if (request.content_length or 0) > limit:
        raise TooLargeError(_too_large(limit))
    reader = _Reader(directory, limit)
    try:
        parts = await request.multipart()
        while (part := await parts.next()) is not None:
            if not isinstance(part, BodyPartReader):
                raise GraphError("a part of the body is a multipart body itself")
            await reader.take(part)
    except ValueError as error:
        raise GraphError(f"the multipart body can't be read: {error}") from error
    submission = reader.finish()
    check_versions(submission.graph.versions, own_versions)
    return submission


def check_versions(client: Mapping[str, str], cluster: Mapping[str, str]) -> None:
    """Refuse a program that was pickled with versions whose pickles the slots could not read.

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
    def __init__(self, directory: Path, limit: int) -> None:
        self._directory, self._limit, self._read, self._parts = directory, limit, 0, 0
        self._request: bytes | None = None
        self._files: dict[str, _File] = {}

    async def take(self, part: BodyPartReader) -> None:
        self._parts += 1
        if self._parts > _MOST_PARTS:
            raise GraphError(f"the body has more than {_MOST_PARTS} parts")
        if part.name == "request":
            if self._request is not None:
                raise GraphError("the part 'request' came twice")
            self._request = await self._text(part)
            return
        name = part.filename or part.name or ""
        if not name:
            raise GraphError("a part of the body has neither a name nor a file name")
        if name in self._files:
            raise GraphError(f"the file {name!r:.80} came twice")
        self._files[name] = await self._file(part)

    async def _file(self, part: BodyPartReader) -> _File:
        path, digest, size = self._directory / f"part-{self._parts}", hashlib.sha256(), 0
        file = await _FILES.call(path.open, "xb")
        try:
            while piece := await part.read_chunk(_PIECE):
                self._count(len(piece))
                size += len(piece)
                digest.update(piece)
                await _FILES.call(file.write, piece)
        finally:
            await _FILES.call(file.close)
        return _File(path, size, digest.hexdigest())

    async def _text(self, part: BodyPartReader) -> bytes:
        pieces = []
        while piece := await part.read_chunk(_PIECE):
            self._count(len(piece))
            pieces.append(bytes(piece))
        return b"".join(pieces)

    def _count(self, size: int) -> None:
        self._read += size
        if self._read > self._limit:
            raise TooLargeError(_too_large(self._limit))

    def finish(self) -> Submission:
        if self._request is None:
            raise GraphError("the body has no part 'request'")
        fields = _json(self._request, "the part 'request'")
        if not isinstance(fields, dict):
            raise GraphError("the part 'request' is not a JSON object")
        plan_name = next((fields[key] for key in _PLAN_NAMES if fields.get(key) is not None), None)
        if not isinstance(plan_name, str):
            raise GraphError(f"the part 'request' does not name the plan ({_PLAN_NAMES[0]})")
        plan = self._files.pop(plan_name, None)
        if plan is None:
            raise GraphError(f"the plan {plan_name!r:.80} is not among the files of the body")
        graph = _graph(plan.path)
        plan.path.unlink()
        if fields.get("jobJarFileNames"):
            raise GraphError("jobJarFileNames: Java archives can't be run here, only Python programs")
        return Submission(graph, self._blobs(graph, self._entries(fields)))

    def _entries(self, fields: Mapping[str, Any]) -> dict[str, str]:
        """Names by which the job knows its artifacts, by file name."""
        entry_names: dict[str, str] = {}
        artifacts = fields.get("jobArtifactFileNames") or []
        if not isinstance(artifacts, list):
            raise GraphError("jobArtifactFileNames is not a list")
        for artifact in artifacts:
            entry, name = (artifact.get(k) for k in ("entryName", "fileName")) if isinstance(artifact, dict) else (0, 0)
            if not isinstance(entry, str) or not isinstance(name, str):
                raise GraphError("an item of jobArtifactFileNames has no entryName or no fileName")
            if name not in self._files:
                raise GraphError(f"the artifact {name!r:.80} is not among the files of the body")
            entry_names[name] = entry
        return entry_names

    def _blobs(self, graph: JobGraph, entries: Mapping[str, str]) -> dict[str, Path]:
        blobs: dict[str, Path] = {}
        for file_name, file in self._files.items():
            name = entries.get(file_name, file_name)
            size = graph.blobs.get(name)
            if size is not None and file.size != size:
                raise GraphError(f"the blob {name} has {'more' if file.size > size else 'fewer'} bytes than {size}")
            if size is not None and file.sha != name:
                raise GraphError(f"the blob {name} arrived damaged: its SHA-256 is {file.sha}")
            if file.sha not in graph.blobs:
                raise GraphError(f"{name!r:.80} is not a blob of this graph")
            if file.sha in blobs:
                raise GraphError(f"the blob {file.sha} came twice")
            blobs[file.sha] = file.path
        missing = sorted(set(graph.blobs) - set(blobs))
        if missing:
            raise GraphError(f"{len(missing)} blobs are missing, such as {missing[0]}")
        return blobs


def _graph(path: Path) -> JobGraph:
    content = path.read_bytes()
    if content.startswith(_JAVA):
        raise GraphError(
            "the plan is a Java-serialised object, which only a JVM with the program's classes can read: this cluster "
            "runs Python programs. Submit one with `firesteel run program.py`; a job of Flink's Java API needs Flink."
        )
    graph = JobGraph.from_plain(_json(content, "the graph"))
    try:
        parse_job_id(graph.job_id)
    except (ConfigurationError, TypeError) as error:
        raise GraphError(str(error)) from error
    if not isinstance(graph.blobs, Mapping) or not all(
        _is_sha256(name) and isinstance(size, int) and size >= 0 for name, size in graph.blobs.items()
    ):
        raise GraphError("blobs are named by their SHA-256, and have a size in bytes")
    return graph


def _json(text: bytes, subject: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise GraphError(f"{subject} is not JSON: {error}") from error


def _is_sha256(name: Any) -> bool:
    return isinstance(name, str) and len(name) == 64 and set(name) <= set("0123456789abcdef")


def _too_large(limit: int) -> str:
    return (
        f"The job with its blobs is larger than {limit} bytes ({REST_MAX_CONTENT_LENGTH.key}): raise the limit, or put "
        "the data into files."
    )
