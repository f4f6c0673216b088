"""The ``_metadata`` of a checkpoint: a line with a version and a checksum, then JSON.

``FIRESTEEL-CHECKPOINT <version> <checksum> <bytes>\\n<JSON>\\n``. The file is written last, and never replaces another
one: a checkpoint without it does not exist.

Metadata of a savepoint name its files relative to their directory, so that a savepoint may be moved as a whole.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final

from firesteel.checkpoint.handles import FileState, StateHandle, checksum
from firesteel.checkpoint.reading import CheckpointFormatError, Plain, each, member, named, whole_number
from firesteel.checkpoint.subtask_state import OperatorSubtaskState
from firesteel.core.errors import CheckpointCorruptedError, CheckpointVersionError

VERSION: Final = 3
"""Version of the metadata and of the files that they name. Since 2, headers of chunks have their own checksum; since 3,
the kinds of keys are written beside keyed state."""
OLDEST: Final = 2
"""The oldest version that can be read; version 1 was in no release."""
SAVEPOINT: Final = "savepoint"
"""Name of the property that only savepoints have."""
MAGIC: Final = "FIRESTEEL-CHECKPOINT"
_FIRST_LINE: Final = re.compile(rb"FIRESTEEL-CHECKPOINT (\d{1,9}) ([0-9a-f]{32}) (\d{1,15})\n")


@dataclass(frozen=True)
class EnumeratorState:
    """State of the enumerator of a source, in the JobMaster.

    Attributes:
        name: name of the enumerator.
        state: its snapshot.
        returned: splits that were assigned and are in no reader's state, as plain data; they are assigned again.
    """

    name: str
    state: Plain
    returned: tuple[Mapping[str, Plain], ...] = ()

    def to_plain(self) -> dict[str, Any]:
        return {"name": self.name, "state": self.state, "returned": [dict(split) for split in self.returned]}

    @classmethod
    def from_plain(cls, plain: Plain, where: str) -> EnumeratorState:
        """The inverse of ``to_plain``.

        Raises:
            CheckpointFormatError: it is malformed.
        """
        fields: dict[str, Plain] = member(plain, dict, where)
        returned = each(fields.get("returned"), lambda split, at: member(split, dict, at), f"{where}.returned")
        return cls(member(fields.get("name"), str, f"{where}.name"), fields.get("state"), returned)


@dataclass(frozen=True)
class OperatorState:
    """State of all subtasks of one operator.

    Attributes:
        operator_id, name, uid: identify the operator.
        parallelism, max_parallelism: those at the time of the checkpoint.
        subtasks: state by number of the subtask; subtasks without state are left out.
        finished: whether all subtasks had finished.
        enumerator: state of the enumerator, of a source.
    """

    operator_id: str
    name: str
    uid: str | None
    parallelism: int
    max_parallelism: int
    subtasks: Mapping[int, OperatorSubtaskState] = field(default_factory=dict)
    finished: bool = False
    enumerator: EnumeratorState | None = None

    @property
    def has_state(self) -> bool:
        """Whether a job without this operator would lose state."""
        return self.enumerator is not None or any(not s.is_empty for s in self.subtasks.values())

    def to_plain(self) -> dict[str, Any]:
        return {
            "operator_id": self.operator_id,
            "name": self.name,
            "uid": self.uid,
            "parallelism": self.parallelism,
            "max_parallelism": self.max_parallelism,
            "subtasks": {str(index): subtask.to_plain() for index, subtask in self.subtasks.items()},
            "finished": self.finished,
            "enumerator": None if self.enumerator is None else self.enumerator.to_plain(),
        }

    @classmethod
    def from_plain(cls, plain: Plain, where: str) -> OperatorState:
        """The inverse of ``to_plain``.

        Raises:
            CheckpointFormatError: it is malformed.
        """
        fields: dict[str, Plain] = member(plain, dict, where)
        uid, enumerator = fields.get("uid"), fields.get("enumerator")
        parallelism = whole_number(fields.get("parallelism"), f"{where}.parallelism")
        subtasks: dict[int, OperatorSubtaskState] = {}
        read = OperatorSubtaskState.from_plain
        for index, subtask in named(fields.get("subtasks"), read, f"{where}.subtasks").items():
            if not index.isdecimal() or int(index) >= parallelism:
                raise CheckpointFormatError(f"{where}.subtasks", f"{index!r} is no subtask of {parallelism}")
            subtasks[int(index)] = subtask
        return cls(
            member(fields.get("operator_id"), str, f"{where}.operator_id"),
            member(fields.get("name"), str, f"{where}.name"),
            None if uid is None else member(uid, str, f"{where}.uid"),
            parallelism,
            whole_number(fields.get("max_parallelism"), f"{where}.max_parallelism"),
            subtasks,
            member(fields.get("finished"), bool, f"{where}.finished"),
            None if enumerator is None else EnumeratorState.from_plain(enumerator, f"{where}.enumerator"),
        )


@dataclass(frozen=True)
class CheckpointMetadata:
    """Everything that a job needs to go on from a checkpoint.

    Attributes:
        checkpoint_id, job_id: identify the checkpoint.
        timestamp_ms: when it was triggered (epoch).
        operators: all operators of the job, in topological order.
        properties: ``job_name``, ``versions`` (of the program that took it), ``key_hash`` (version of the table of
            hashes), ``since_ms``; of a savepoint ``savepoint``: plain ``savepoints.SavepointInfo``.
    """

    checkpoint_id: int
    job_id: str
    timestamp_ms: int
    operators: tuple[OperatorState, ...]
    properties: Mapping[str, Plain] = field(default_factory=dict)

    def handles(self) -> Iterator[StateHandle]:
        """All pieces of state."""
        for operator in self.operators:
            for subtask in operator.subtasks.values():
                yield from subtask.handles()

    def files(self) -> frozenset[str]:
        """Paths of all files of state; a large checkpoint is looked through once."""
        return self._files

    @cached_property
    def _files(self) -> frozenset[str]:
        return frozenset(handle.path for handle in self.handles() if isinstance(handle, FileState))

    def moved(self, new_path: Callable[[str], str]) -> CheckpointMetadata:
        """A copy in which each file has the path that ``new_path`` returns for it."""

        def moved(handle: StateHandle) -> StateHandle:
            return replace(handle, path=new_path(handle.path)) if isinstance(handle, FileState) else handle

        operators = tuple(
            replace(operator, subtasks={index: subtask.moved(moved) for index, subtask in operator.subtasks.items()})
            for operator in self.operators
        )
        return replace(self, operators=operators)

    @property
    def size(self) -> int:
        """Bytes of all pieces of state, those shared with other checkpoints included."""
        return sum(handle.size for handle in self.handles())

    @property
    def since_ms(self) -> int:
        """When the first checkpoint of this run of the job was taken (epoch); 0 = unknown.

        It identifies the run: it is the same for all JobMasters of a run, and differs when the job is submitted again.
        """
        since = self.properties.get("since_ms")
        return since if type(since) is int else 0

    def to_plain(self) -> dict[str, Any]:
        return {
            "checkpoint_id": self.checkpoint_id,
            "job_id": self.job_id,
            "timestamp_ms": self.timestamp_ms,
            "operators": [operator.to_plain() for operator in self.operators],
            "properties": dict(self.properties),
        }

    @classmethod
    def from_plain(cls, plain: Plain, where: str = "metadata") -> CheckpointMetadata:
        """The inverse of ``to_plain``.

        Raises:
            CheckpointFormatError: it is malformed.
        """
        fields: dict[str, Plain] = member(plain, dict, where)
        return cls(
            whole_number(fields.get("checkpoint_id"), f"{where}.checkpoint_id"),
            member(fields.get("job_id"), str, f"{where}.job_id"),
            whole_number(fields.get("timestamp_ms"), f"{where}.timestamp_ms"),
            each(fields.get("operators"), OperatorState.from_plain, f"{where}.operators"),
            named(fields.get("properties"), lambda value, _: value, f"{where}.properties"),
        )

    def to_bytes(self) -> bytes:
        body = json.dumps(self.to_plain(), separators=(",", ":")).encode() + b"\n"
        return f"{MAGIC} {VERSION} {checksum(body)} {len(body)}\n".encode() + body

    @classmethod
    def from_bytes(cls, data: bytes, path: str) -> CheckpointMetadata:
        """Read a metadata file.

        Args:
            data: content of the whole file.
            path: path of the file, named in errors; relative paths in it are relative to its directory.

        Raises:
            CheckpointCorruptedError: it is empty, cut off, changed, or written by another program.
            CheckpointVersionError: its version can't be read by this release.
        """
        if not data:
            raise CheckpointCorruptedError(path, "the file is empty: it was not written to its end")
        first = _FIRST_LINE.match(data)
        if first is None:
            raise CheckpointCorruptedError(path, _what_it_is(data))
        version, expected, length = int(first[1]), first[2].decode(), int(first[3])
        if version > VERSION:
            raise CheckpointVersionError(
                path,
                f"it is of version {version}, and this Firesteel reads versions up to {VERSION}: "
                "go on with the version that wrote it, or a later one",
            )
        if version < OLDEST:
            raise CheckpointVersionError(
                path,
                f"it is of version {version}, and this Firesteel reads versions from {OLDEST} to {VERSION}: "
                "go on with the version that wrote it",
            )
        body = memoryview(data)[first.end() :]
        if len(body) < length:
            missing = length - len(body)
            raise CheckpointCorruptedError(path, f"it is cut off: {missing} of {length} bytes are missing")
        if len(body) > length:
            raise CheckpointCorruptedError(path, f"{len(body) - length} bytes follow that do not belong to it")
        if checksum(body) != expected:
            raise CheckpointCorruptedError(path, "its checksum is wrong: it was changed after it was written")
        try:
            metadata = cls.from_plain(json.loads(bytes(body)))
        except (ValueError, CheckpointFormatError) as error:
            raise CheckpointCorruptedError(path, f"it is no metadata of a checkpoint: {error}") from error
        if SAVEPOINT not in metadata.properties:
            return metadata
        relative = [file for file in metadata.files() if _is_relative(file)]
        for file in relative:
            if ".." in file.split("/"):
                raise CheckpointCorruptedError(path, f"it names a file outside of its directory: {file!r:.80}")
        base = os.path.dirname(path)
        return metadata.moved(lambda file: f"{base}/{file}" if _is_relative(file) else file) if relative else metadata


def _is_relative(path: str) -> bool:
    return not path.startswith("/") and "://" not in path


def _what_it_is(data: bytes) -> str:
    magic = MAGIC.encode()
    if data.startswith(magic) or magic.startswith(data):
        return "its first line is damaged or cut off"
    if data.startswith(bytes.fromhex("4960672d")):
        return "it was written by Apache Flink, whose state Firesteel can't read"
    return f"it is no metadata of a Firesteel checkpoint (it begins with {data[:24]!r})"
