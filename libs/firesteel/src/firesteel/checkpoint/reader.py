"""Shows what is in savepoints and checkpoints: the state of each operator, key by key.

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
_NOT_ENTRIES: Final = ("results",)


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
        name, kind: of the state; a kind is ``value``, ``list``, ``map``, ``reducing``, ``aggregating``, ``table``
            (of operators of the runtime), ``timers``, ``columns``, ``split``, ``union`` or ``broadcast``.
        namespaced: keys are pairs of key and namespace: a window, say.
        ttl: values are pairs of value and the time of their last access; lists and maps have one for each element.
        schema: of the values, as plain data.
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
        """Keys and values, of all subtasks. Of timers the value is (timestamp, namespace); of lists of an operator
        (``split``, ``union``) the key is the position in the subtask's list.

        Raises:
            ConfigurationError: it is in columns (see ``batches``), or in files of a state backend.
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
        """The keys with the most bytes, with these, in all namespaces; all entries are read, and values unpickled.

        Raises:
            ConfigurationError: as ``items``.
            CheckpointError: a file is missing or damaged.
        """
        bytes_by_key: Counter[Any] = Counter()
        for key, value in self.items():
            bytes_by_key[key[0] if self.namespaced else key] += len(pickle.dumps(value, protocol=5))
        return bytes_by_key.most_common(count)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """State in columns: batches of Arrow, the columns of the key in front.

        Raises:
            ConfigurationError: it is not in columns.
            CheckpointError: a file is missing or damaged.
        """
        if self.kind not in _COLUMNS:
            raise ConfigurationError(f"state {self.name!r} is {self.kind} state: read it with items()")
        for chunk in self._chunks():
            with pa.ipc.open_stream(chunk.data) as reader:
                yield from reader


class SavepointOperator:
    """One operator.

    Attributes:
        operator_id, uid, name: of the operator.
        parallelism, max_parallelism: when it was written.
        states: by name; where two of an operator have the same, the second one is ``<name>:<kind>``.
        splits: plain splits of a source with their positions.
    """

    def __init__(self, written: OperatorState, reader: StateReader) -> None:
        self._written, self._reader = written, reader
        self.operator_id, self.uid, self.name = written.operator_id, written.uid, written.name
        self.parallelism, self.max_parallelism = written.parallelism, written.max_parallelism
        self.splits = [dict(split) for _, subtask in sorted(written.subtasks.items()) for split in subtask.splits]
        self.states: dict[str, SavepointState] = {}
        for infos, _, _ in self.parts():
            for info in infos:
                known = self.states.get(info["name"])
                if info["kind"] in _NOT_ENTRIES or (known is not None and known.kind == info["kind"]):
                    continue
                state = SavepointState(self, info)
                self.states.setdefault(state.name if known is None else f"{state.name}:{state.kind}", state)

    def __repr__(self) -> str:
        return f"SavepointOperator({self.uid or self.operator_id!r}, {self.name!r}, {list(self.states)})"

    def parts(self) -> Iterator[tuple[tuple[Mapping[str, Any], ...], tuple[StateHandle, ...], bool]]:
        """For each snapshot of a subtask: the descriptions of its states, its chunks, and whether it has files."""
        for _, subtask in sorted(self._written.subtasks.items()):
            for keyed in subtask.keyed.values():
                yield keyed.states, keyed.handles, bool(keyed.files)
            if subtask.operator is not None:
                yield subtask.operator.states, subtask.operator.handles, False

    def chunks_of(self, handle: StateHandle) -> Iterator[StoredChunk]:
        """The chunks of a stream of state; their checksums are verified."""
        with self._reader.open_state(handle) as stream:
            yield from read_chunks(stream, "the metadata" if isinstance(handle, InlineState) else handle.path)

    def state(self, name: str) -> SavepointState:
        """The state of a name.

        Raises:
            ConfigurationError: there is none; the message lists those that there are.
        """
        if name not in self.states:
            known = ", ".join(map(repr, self.states)) or "none"
            raise ConfigurationError(f"operator {self.name!r} has no state {name!r} (it has: {known})")
        return self.states[name]

    def sizes(self) -> list[StateSize]:
        """The size of each state in all subtasks; all chunks are read."""
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
            for size in part_sizes if files else ():
                size.in_files = size.in_files or not size.entries
        return list(sizes.values())


class Savepoint:
    """A savepoint, or a checkpoint.

    Attributes:
        path: as it was given.
        metadata: of it.
        operators: by uid, or by id for those that have none.
    """

    def __init__(self, path: str, metadata: CheckpointMetadata, reader: StateReader) -> None:
        self.path, self.metadata = path, metadata
        operators = [SavepointOperator(operator, reader) for operator in metadata.operators]
        self.operators = {operator.uid or operator.operator_id: operator for operator in operators}

    def __repr__(self) -> str:
        return f"Savepoint({self.path!r}, {list(self.operators)})"

    def operator(self, name: str) -> SavepointOperator:
        """The operator of a uid, an id or a name.

        Raises:
            ConfigurationError: there is none, or several have this name.
        """
        if name in self.operators:
            return self.operators[name]
        named = [candidate for candidate in self.operators.values() if name in (candidate.operator_id, candidate.name)]
        if len(named) == 1:
            return named[0]
        known = ", ".join(f"{candidate.name!r} ({uid})" for uid, candidate in self.operators.items())
        what = "no operator" if not named else "several operators"
        raise ConfigurationError(f"{self.path} has {what} {name!r}; it has: {known}")


def read_savepoint(path: str, settings: Settings | None = None) -> Savepoint:
    """Opens a savepoint, or a retained checkpoint, in a directory that this host sees or in an object store.

    Values are unpickled as they are read, so their classes have to be importable here.

    Args:
        path: its directory, or its ``_metadata``.
        settings: have ``s3.*``, for one in an object store.

    Raises:
        CheckpointError: there is none, or it is damaged.
        ConfigurationError: it is no path, or the settings are wrong.
    """
    settings = settings or Settings()
    return Savepoint(path, read_savepoint_metadata(path, settings), StateReader(settings))


def inspect(path: str, settings: Settings | None = None, keys: int = 0) -> dict[str, Any]:
    """What is in a savepoint or checkpoint, as plain data; nothing is unpickled, unless keys are wanted.

    Args:
        path: of it.
        settings: have ``s3.*``, for one in an object store.
        keys: so many keys of each state, those with the most bytes. Their classes have to be importable here.

    Raises:
        CheckpointError: there is none, or it is damaged: each file is read.
        ConfigurationError: it is no path, or the settings of its object store are wrong.
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
        "operators": [_plain(one, keys) for one in savepoint.operators.values()],
    }


def _plain(operator: SavepointOperator, keys: int) -> dict[str, Any]:
    written = operator._written
    subtasks = written.subtasks.values()
    return {
        "name": operator.name,
        "uid": operator.uid,
        "id": operator.operator_id,
        "parallelism": operator.parallelism,
        "max-parallelism": operator.max_parallelism,
        "finished": written.finished,
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
    """The entry ``largest-keys`` of a state; nothing if no keys were asked for, or the state has no entries by key."""
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


def table_of(found: Mapping[str, Any]) -> list[str]:
    """What ``inspect`` has found, for people."""
    when = datetime.fromtimestamp(found["timestamp"] / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    kind = " ".join(filter(None, [found["format"].lower(), found["type"]]))
    lines = [
        f"{found['path']}: {kind} {found['checkpoint-id']} of job {found['job-name']!r} ({found['job-id']}), {when}, "
        f"{found['size']} bytes"
    ]
    if found["stop"]:
        lines.append(f"The job was stopped with it ({found['stop']}).")
    for operator in found["operators"]:
        uid = f"uid {operator['uid']!r}" if operator["uid"] else operator["id"]
        parts = [f"parallelism {operator['parallelism']} of {operator['max-parallelism']}", f"{operator['size']} bytes"]
        parts += [f"{operator[what]} {what}" for what in ("splits", "committables") if operator[what]]
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
            lines += [f"    {one['key']}: {one['size']} bytes" for one in state.get("largest-keys", ())]
    return lines
