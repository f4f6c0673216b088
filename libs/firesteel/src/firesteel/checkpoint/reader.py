"""Reads savepoints and checkpoints for users: the state of each operator, key by key.

Reading keys and values unpickles them, so it must happen in the user's own process only. Sizes are read without that.
"""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

import pyarrow as pa

from firesteel.checkpoint import savepoints
from firesteel.checkpoint.chunks import HEADER_BYTES, StoredChunk, read_chunks
from firesteel.checkpoint.handles import InlineState, StateHandle
from firesteel.checkpoint.metadata import CheckpointMetadata, OperatorState
from firesteel.checkpoint.savepoints import read_savepoint_metadata
from firesteel.checkpoint.state_reader import StateReader
from firesteel.config import Settings
from firesteel.core.errors import ConfigurationError
from firesteel.core.short_repr import short_repr
from firesteel.state.heap_snapshot import decode
from firesteel.state.heap_timers import KIND as TIMERS
from firesteel.state.heap_timers import timers_in
from firesteel.state.snapshots import SEVERAL

_IN_FILES: Final = "it is in files of a state backend: take a savepoint in the canonical format, or start a job from it"
_COLUMNS: Final = ("columns", "columns-removed")
"""Kinds of state that are read as batches."""
_NOT_ENTRIES: Final = ("results",)
"""Kinds of state that have no keys and values."""


@dataclass
class StateSize:
    """One state of an operator, in all subtasks.

    Attributes:
        name, kind: name and kind of the state.
        entries: the number of entries in chunks; entries in files of a backend are not counted.
        bytes: the size of the chunks as they were written, headers included.
        by_key_group: the bytes of each key group; -1 stands for chunks with several key groups.
        in_files: whether the state is in files of a state backend.
    """

    name: str
    kind: str
    entries: int = 0
    bytes: int = 0
    by_key_group: Counter[int] = field(default_factory=Counter)
    in_files: bool = False


class SavepointState:
    """One state of an operator.

    Attributes:
        name, kind: name and kind of the state; a kind is ``value``, ``list``, ``map``, ``reducing``, ``aggregating``,
            ``table`` (operators of the runtime), ``timers``, ``columns``, ``split``, ``union`` or ``broadcast``.
        namespaced: whether keys are pairs of key and namespace, such as a window.
        ttl: whether values are pairs of value and last access; lists and maps have such a pair for each element.
        schema: schema of the values, as plain data.
    """

    def __init__(self, operator: SavepointOperator, info: Mapping[str, Any]) -> None:
        self._operator, self._info = operator, info
        self.name, self.kind = str(info["name"]), str(info["kind"])
        self.namespaced, self.ttl = bool(info.get("namespaced")), bool(info.get("ttl"))
        self.schema: Mapping[str, Any] = info.get("schema", {})

    def __repr__(self) -> str:
        return f"SavepointState({self.name!r}, {self.kind})"

    def _chunks(self) -> Iterator[StoredChunk]:
        for infos, handles, files in self._operator.parts():
            numbers = {n for n, info in enumerate(infos) if (info["name"], info["kind"]) == (self.name, self.kind)}
            if numbers and files:
                raise ConfigurationError(f"state {self.name!r} can't be read: {_IN_FILES}")
            for handle in handles:
                yield from (chunk for chunk in self._operator.chunks_of(handle) if chunk.state in numbers)

    def items(self) -> Iterator[tuple[Any, Any]]:
        """Yield keys and values of all subtasks.

        The value of a timer is (timestamp, namespace); the key of an element of operator state (``split``, ``union``)
        is its position in the subtask's list.

        Raises:
            ConfigurationError: the state is in columns (see ``batches``), or in files of a state backend.
            CheckpointError: a file is missing or damaged.
        """
        if self.kind in _COLUMNS:
            raise ConfigurationError(f"state {self.name!r} is in columns: read it with batches()")
        for chunk in self._chunks():
            if self.kind == TIMERS:
                for timestamp, key, namespace in timers_in(chunk.data):
                    yield key, (timestamp, namespace)
            else:
                yield from decode(chunk.data)

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        return self.items()

    def largest_keys(self, count: int = 10) -> list[tuple[Any, int]]:
        """Return the keys with the largest values, with their bytes in all namespaces; reads and unpickles all entries.

        Raises:
            ConfigurationError: as for ``items``.
            CheckpointError: a file is missing or damaged.
        """
        bytes_by_key: Counter[Any] = Counter()
        for key, value in self.items():
            bytes_by_key[key[0] if self.namespaced else key] += len(pickle.dumps(value, protocol=5))
        return bytes_by_key.most_common(count)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the batches of state in columns; the columns of the key come first.

        Raises:
            ConfigurationError: the state is not in columns.
            CheckpointError: a file is missing or damaged.
        """
        if self.kind not in _COLUMNS:
            raise ConfigurationError(f"state {self.name!r} is {self.kind} state: read it with items()")
        for chunk in self._chunks():
            with pa.ipc.open_stream(chunk.data) as reader:
                yield from reader


class SavepointOperator:
    """One operator in a savepoint or checkpoint.

    Attributes:
        operator_id, uid, name: identify the operator.
        parallelism, max_parallelism: those at the time of the savepoint.
        states: states by name; if an operator has two with the same name, the second is ``<name>:<kind>``.
        splits: plain splits of a source, with their positions.
        written: the operator in the metadata.
    """

    def __init__(self, written: OperatorState, reader: StateReader) -> None:
        self.written, self._reader = written, reader
        self.operator_id, self.uid, self.name = written.operator_id, written.uid, written.name
        self.parallelism, self.max_parallelism = written.parallelism, written.max_parallelism
        self.splits = [dict(split) for _, subtask in sorted(written.subtasks.items()) for split in subtask.splits]
        self.states: dict[str, SavepointState] = {}
        for infos, _, _ in self.parts():
            for info in infos:
                same_name = self.states.get(info["name"])
                if info["kind"] in _NOT_ENTRIES or (same_name is not None and same_name.kind == info["kind"]):
                    continue
                state = SavepointState(self, info)
                self.states.setdefault(state.name if same_name is None else f"{state.name}:{state.kind}", state)

    def __repr__(self) -> str:
        return f"SavepointOperator({self.uid or self.operator_id!r}, {self.name!r}, {list(self.states)})"

    def parts(self) -> Iterator[tuple[tuple[Mapping[str, Any], ...], tuple[StateHandle, ...], bool]]:
        """Yield for each snapshot of a subtask the descriptions of its states, its chunks, and whether it has files."""
        for _, subtask in sorted(self.written.subtasks.items()):
            for keyed in subtask.keyed.values():
                yield keyed.states, keyed.handles, bool(keyed.files)
            if subtask.operator is not None:
                yield subtask.operator.states, subtask.operator.handles, False

    def chunks_of(self, handle: StateHandle) -> Iterator[StoredChunk]:
        """Yield the chunks of a stream of state, after comparing their checksums."""
        with self._reader.open_state(handle) as stream:
            yield from read_chunks(stream, "the metadata" if isinstance(handle, InlineState) else handle.path)

    def state(self, name: str) -> SavepointState:
        """Return the state with this name.

        Raises:
            ConfigurationError: there is no such state; the message lists the existing ones.
        """
        if name not in self.states:
            names = ", ".join(map(repr, self.states)) or "none"
            raise ConfigurationError(f"operator {self.name!r} has no state {name!r} (it has: {names})")
        return self.states[name]

    def sizes(self) -> list[StateSize]:
        """Return the size of each state, over all subtasks; reads all chunks."""
        sizes: dict[tuple[str, str], StateSize] = {}
        for infos, handles, files in self.parts():
            part_sizes = [
                sizes.setdefault((info["name"], info["kind"]), StateSize(info["name"], info["kind"])) for info in infos
            ]
            for handle in handles:
                for chunk in self.chunks_of(handle):
                    size = part_sizes[chunk.state]
                    size.entries += chunk.entries
                    size.bytes += HEADER_BYTES + len(chunk.data)
                    group = -1 if chunk.key_group == SEVERAL else chunk.key_group
                    size.by_key_group[group] += HEADER_BYTES + len(chunk.data)
            # Where a part has files, a state without a chunk is taken to be in them: its entries were not counted.
            for size in part_sizes if files else ():
                size.in_files = size.in_files or not size.entries
        return list(sizes.values())


class Savepoint:
    """A savepoint, or a checkpoint.

    Attributes:
        path: path from which it was read.
        metadata: its metadata.
        operators: operators by uid, or by id if they have none.
    """

    def __init__(self, path: str, metadata: CheckpointMetadata, reader: StateReader) -> None:
        self.path, self.metadata = path, metadata
        operators = [SavepointOperator(operator, reader) for operator in metadata.operators]
        self.operators = {operator.uid or operator.operator_id: operator for operator in operators}

    def __repr__(self) -> str:
        return f"Savepoint({self.path!r}, {list(self.operators)})"

    def operator(self, name: str) -> SavepointOperator:
        """Return the operator with this uid, id or name.

        Raises:
            ConfigurationError: there is no such operator, or several have this name.
        """
        if name in self.operators:
            return self.operators[name]
        matches = [operator for operator in self.operators.values() if name in (operator.operator_id, operator.name)]
        if len(matches) == 1:
            return matches[0]
        operators = ", ".join(f"{operator.name!r} ({uid})" for uid, operator in self.operators.items())
        number = "no operator" if not matches else "several operators"
        raise ConfigurationError(f"{self.path} has {number} {name!r}; it has: {operators}")


def read_savepoint(path: str, settings: Settings | None = None) -> Savepoint:
    """Open a savepoint, or a retained checkpoint, in a directory that this host sees or in an object store.

    Values are unpickled as they are read, so their classes have to be importable here.

    Args:
        path: path of its directory, or of its ``_metadata``.
        settings: configuration with ``s3.*``, for a savepoint in an object store.

    Raises:
        CheckpointError: there is no savepoint, or it is damaged.
        ConfigurationError: the path is malformed, or the settings are wrong.
    """
    settings = settings or Settings()
    return Savepoint(path, read_savepoint_metadata(path, settings), StateReader(settings))


def inspect(path: str, settings: Settings | None = None, keys: int = 0) -> dict[str, Any]:
    """Describe a savepoint or checkpoint as plain data; nothing is unpickled, unless ``keys`` is set.

    Args:
        path: path of its directory, or of its ``_metadata``.
        settings: configuration with ``s3.*``, for a savepoint in an object store.
        keys: number of keys to list for each state, those with the largest values; their classes have to be importable
            here.

    Raises:
        CheckpointError: there is no savepoint, or it is damaged (each file is read).
        ConfigurationError: the path is malformed, or the settings of its object store are wrong.
    """
    settings = settings or Settings()
    savepoint, reader = read_savepoint(path, settings), StateReader(settings)
    metadata = savepoint.metadata
    info = savepoints.info_of(metadata)
    if info is not None:
        for handle in metadata.handles():
            if not isinstance(handle, InlineState):
                savepoints.check_file(handle, reader)
    return {
        "path": path,
        "type": "checkpoint" if info is None else "savepoint",
        "format": "" if info is None else info.format,
        "stop": "" if info is None else info.stop,
        "checkpoint-id": metadata.checkpoint_id,
        "job-id": metadata.job_id,
        "job-name": str(metadata.properties.get("job_name", "")),
        "timestamp": metadata.timestamp_ms,
        "size": metadata.size,
        "operators": [_plain(operator, keys) for operator in savepoint.operators.values()],
    }


def _plain(operator: SavepointOperator, keys: int) -> dict[str, Any]:
    subtasks = operator.written.subtasks.values()
    return {
        "name": operator.name,
        "uid": operator.uid,
        "id": operator.operator_id,
        "parallelism": operator.parallelism,
        "max-parallelism": operator.max_parallelism,
        "finished": operator.written.finished,
        "splits": sum(len(subtask.splits) for subtask in subtasks),
        "committables": sum(len(committables.items) for subtask in subtasks for committables in subtask.committables),
        "size": sum(handle.size for subtask in subtasks for handle in subtask.handles()),
        "states": [
            {
                "name": size.name,
                "kind": size.kind,
                "entries": None if size.in_files else size.entries,
                "size": None if size.in_files else size.bytes,
                "in-files": size.in_files,
                **_largest(operator, size, keys),
                "by-key-group": {
                    "several" if group < 0 else str(group): count for group, count in sorted(size.by_key_group.items())
                },
            }
            for size in operator.sizes()
        ],
    }


def _largest(operator: SavepointOperator, size: StateSize, keys: int) -> dict[str, Any]:
    """The field ``largest-keys`` of a state; none if ``keys`` is 0, or the state has no entries by key."""
    if not keys or size.in_files or size.kind in (*_COLUMNS, *_NOT_ENTRIES, TIMERS, "split", "union", "broadcast"):
        return {}
    state = next(
        candidate
        for candidate in operator.states.values()
        if (candidate.name, candidate.kind) == (size.name, size.kind)
    )
    return {
        "largest-keys": [{"key": short_repr(key, 80), "size": key_bytes} for key, key_bytes in state.largest_keys(keys)]
    }


def utc_text(epoch_ms: int) -> str:
    """Return a point in time as text: ``2026-01-31 12:00:00 UTC``."""
    return datetime.fromtimestamp(epoch_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def inspection_lines(description: Mapping[str, Any]) -> list[str]:
    """Return the description of ``inspect`` as lines of text."""
    kind = " ".join(filter(None, [description["format"].lower(), description["type"]]))
    lines = [
        f"{description['path']}: {kind} {description['checkpoint-id']} of job {description['job-name']!r} "
        f"({description['job-id']}), {utc_text(description['timestamp'])}, {description['size']} bytes"
    ]
    if description["stop"]:
        lines.append(f"The job was stopped with it ({description['stop']}).")
    for operator in description["operators"]:
        uid = f"uid {operator['uid']!r}" if operator["uid"] else operator["id"]
        parts = [f"parallelism {operator['parallelism']} of {operator['max-parallelism']}", f"{operator['size']} bytes"]
        parts += [f"{operator[items]} {items}" for items in ("splits", "committables") if operator[items]]
        parts += ["finished"] if operator["finished"] else []
        lines += ["", f"{operator['name']} ({uid}): {', '.join(parts)}"]
        if operator["states"]:
            lines.append(f"  {'state':<30} {'kind':<12} {'entries':>10} {'bytes':>12} {'groups':>7}  largest group")
        for state in operator["states"]:
            if state["in-files"]:
                lines.append(f"  {state['name']:<30} {state['kind']:<12} in files of the state backend")
                continue
            groups = state["by-key-group"]
            largest = max(groups, key=groups.__getitem__, default="")
            shown = f"{largest}: {groups[largest]} bytes" if largest else ""
            lines.append(
                f"  {state['name']:<30} {state['kind']:<12} {state['entries']:>10} {state['size']:>12} "
                f"{len(groups):>7}  {shown}".rstrip()
            )
            lines += [f"    {entry['key']}: {entry['size']} bytes" for entry in state.get("largest-keys", ())]
    return lines
