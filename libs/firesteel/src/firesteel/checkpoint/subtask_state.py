"""The state that one subtask has written for a checkpoint, operator by operator, as plain data."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from firesteel.checkpoint.handles import FileState, StateHandle, handle_from_plain
from firesteel.checkpoint.reading import CheckpointFormatError, Plain, each, member, named, whole_number


@dataclass(frozen=True)
class KeyedState:
    """Keyed state of one part of an operator: chunks by state and key group, and files of the state backend.

    Attributes:
        states: descriptions of the states (plain ``firesteel.state.snapshots.StateInfo``); chunks name them by index.
        key_groups: the first and the last one that the subtask owned.
        handles: streams of chunks (``firesteel.checkpoint.chunks``), to be read one after the other.
        files: files of the state backend, by name. Plain data without files do not have this field.
    """

    states: tuple[Mapping[str, Plain], ...]
    key_groups: tuple[int, int]
    handles: tuple[StateHandle, ...] = ()
    files: Mapping[str, StateHandle] = field(default_factory=dict)

    def to_plain(self) -> dict[str, Any]:
        plain: dict[str, Any] = {
            "states": [dict(state) for state in self.states],
            "key_groups": list(self.key_groups),
            "handles": [handle.to_plain() for handle in self.handles],
        }
        if self.files:
            plain["files"] = {name: handle.to_plain() for name, handle in self.files.items()}
        return plain

    @classmethod
    def from_plain(cls, plain: Plain, where: str) -> KeyedState:
        """The inverse of ``to_plain``.

        Raises:
            CheckpointFormatError: it is malformed.
        """
        fields: dict[str, Plain] = member(plain, dict, where)
        groups = each(fields.get("key_groups"), whole_number, f"{where}.key_groups")
        if len(groups) != 2 or groups[0] > groups[1]:
            raise CheckpointFormatError(f"{where}.key_groups", f"{list(groups)} is no range")
        return cls(
            each(fields.get("states"), _object, f"{where}.states"),
            (groups[0], groups[1]),
            each(fields.get("handles"), handle_from_plain, f"{where}.handles"),
            named(fields.get("files", {}), handle_from_plain, f"{where}.files"),
        )


@dataclass(frozen=True)
class OperatorListState:
    """Operator state of one subtask: lists that are split or united, and broadcast state.

    Attributes:
        states: plain ``StateInfo``; their kind is ``split``, ``union`` or ``broadcast``.
        handles: streams of chunks; their key group means nothing.
    """

    states: tuple[Mapping[str, Plain], ...]
    handles: tuple[StateHandle, ...] = ()

    def kinds(self) -> set[str]:
        return {str(state.get("kind")) for state in self.states}

    def to_plain(self) -> dict[str, Any]:
        return {
            "states": [dict(state) for state in self.states],
            "handles": [handle.to_plain() for handle in self.handles],
        }

    @classmethod
    def from_plain(cls, plain: Plain, where: str) -> OperatorListState:
        """The inverse of ``to_plain``.

        Raises:
            CheckpointFormatError: it is malformed.
        """
        fields: dict[str, Plain] = member(plain, dict, where)
        return cls(
            each(fields.get("states"), _object, f"{where}.states"),
            each(fields.get("handles"), handle_from_plain, f"{where}.handles"),
        )


@dataclass(frozen=True)
class Committables:
    """The committables that a two-phase sink has prepared at a barrier and not committed yet.

    Attributes:
        checkpoint_id: checkpoint at whose barrier they were prepared.
        version: version of the layout of the data, which the sink defines.
        items: data of each committable.
    """

    checkpoint_id: int
    version: int
    items: tuple[StateHandle, ...]

    def to_plain(self) -> dict[str, Any]:
        return {
            "checkpoint_id": self.checkpoint_id,
            "version": self.version,
            "items": [item.to_plain() for item in self.items],
        }

    @classmethod
    def from_plain(cls, plain: Plain, where: str) -> Committables:
        """The inverse of ``to_plain``.

        Raises:
            CheckpointFormatError: it is malformed.
        """
        fields: dict[str, Plain] = member(plain, dict, where)
        return cls(
            whole_number(fields.get("checkpoint_id"), f"{where}.checkpoint_id"),
            whole_number(fields.get("version"), f"{where}.version"),
            each(fields.get("items"), handle_from_plain, f"{where}.items"),
        )


@dataclass(frozen=True)
class KeyKinds:
    """The kinds of keys in an operator's state.

    Attributes:
        kinds: plain kinds of all keys that came (``firesteel.graph.key_kinds``).
        proved: whether the current key selector is known to return such keys. It is not while no key has come since the
            job began with the checkpoint of another job.
    """

    kinds: tuple[Plain, ...]
    proved: bool = True

    def to_plain(self) -> dict[str, Any]:
        return {"kinds": list(self.kinds), "proved": self.proved}

    @classmethod
    def from_plain(cls, plain: Plain, where: str) -> KeyKinds:
        """The inverse of ``to_plain``.

        Raises:
            CheckpointFormatError: it is malformed.
        """
        fields: dict[str, Plain] = member(plain, dict, where)
        return cls(
            each(fields.get("kinds"), _kind, f"{where}.kinds"), member(fields.get("proved"), bool, f"{where}.proved")
        )


@dataclass(frozen=True)
class InFlight:
    """Records that a barrier has overtaken on their way to a subtask.

    Attributes:
        input_index: input of the operator to which they were sent.
        partitioner: partitioner of their edge (``firesteel.graph.specs.PartitionerKind``).
        handle: stream of chunks, each of which is a message of the exchange.
        shared: whether several subtasks read it, each for the records of its own keys.
    """

    input_index: int
    partitioner: str
    handle: StateHandle
    shared: bool = False

    def to_plain(self) -> dict[str, Any]:
        return {
            "input": self.input_index,
            "partitioner": self.partitioner,
            "handle": self.handle.to_plain(),
            "shared": self.shared,
        }

    @classmethod
    def from_plain(cls, plain: Plain, where: str) -> InFlight:
        """The inverse of ``to_plain``.

        Raises:
            CheckpointFormatError: it is malformed.
        """
        fields: dict[str, Plain] = member(plain, dict, where)
        return cls(
            whole_number(fields.get("input"), f"{where}.input"),
            member(fields.get("partitioner"), str, f"{where}.partitioner"),
            handle_from_plain(fields.get("handle"), f"{where}.handle"),
            member(fields.get("shared"), bool, f"{where}.shared"),
        )


@dataclass(frozen=True)
class OperatorSubtaskState:
    """State of one operator in one subtask.

    Attributes:
        keyed: keyed state by part of the operator (keyed backend, columnar state, ...), under names that it chooses.
        operator: operator state; None = it has none.
        splits: splits of a source reader as plain data, with positions behind the last record before the barrier.
        committables: committables of a two-phase sink.
        keys: kinds of the keys of ``keyed``, if that is not in columns; None = unknown (version 2 of the metadata).
        in_flight: records in front of the head of a chain. Plain data without any do not have this field.
    """

    keyed: Mapping[str, KeyedState] = field(default_factory=dict)
    operator: OperatorListState | None = None
    splits: tuple[Mapping[str, Plain], ...] = ()
    committables: tuple[Committables, ...] = ()
    keys: KeyKinds | None = None
    in_flight: tuple[InFlight, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing in it."""
        return not (self.keyed or self.operator or self.splits or self.committables or self.in_flight)

    def handles(self) -> Iterator[StateHandle]:
        """All pieces of state."""
        for keyed in self.keyed.values():
            yield from keyed.handles
            yield from keyed.files.values()
        if self.operator is not None:
            yield from self.operator.handles
        for committables in self.committables:
            yield from committables.items
        for in_flight in self.in_flight:
            yield in_flight.handle

    def moved(self, move: Callable[[StateHandle], StateHandle]) -> OperatorSubtaskState:
        """A copy in which each handle is replaced by the one that ``move`` returns for it."""

        def all_of(handles: tuple[StateHandle, ...]) -> tuple[StateHandle, ...]:
            return tuple(map(move, handles))

        return replace(
            self,
            keyed={
                name: replace(
                    part,
                    handles=all_of(part.handles),
                    files={file: move(handle) for file, handle in part.files.items()},
                )
                for name, part in self.keyed.items()
            },
            operator=None if self.operator is None else replace(self.operator, handles=all_of(self.operator.handles)),
            committables=tuple(replace(prepared, items=all_of(prepared.items)) for prepared in self.committables),
            in_flight=tuple(replace(records, handle=move(records.handle)) for records in self.in_flight),
        )

    def to_plain(self) -> dict[str, Any]:
        plain = {
            "keyed": {name: keyed.to_plain() for name, keyed in self.keyed.items()},
            "operator": None if self.operator is None else self.operator.to_plain(),
            "splits": [dict(split) for split in self.splits],
            "committables": [committables.to_plain() for committables in self.committables],
            "keys": None if self.keys is None else self.keys.to_plain(),
        }
        if self.in_flight:
            plain["in_flight"] = [in_flight.to_plain() for in_flight in self.in_flight]
        return plain

    @classmethod
    def from_plain(cls, plain: Plain, where: str) -> OperatorSubtaskState:
        """The inverse of ``to_plain``.

        Raises:
            CheckpointFormatError: it is malformed.
        """
        fields: dict[str, Plain] = member(plain, dict, where)
        operator, keys = fields.get("operator"), fields.get("keys")
        return cls(
            named(fields.get("keyed"), KeyedState.from_plain, f"{where}.keyed"),
            None if operator is None else OperatorListState.from_plain(operator, f"{where}.operator"),
            each(fields.get("splits"), _object, f"{where}.splits"),
            each(fields.get("committables"), Committables.from_plain, f"{where}.committables"),
            None if keys is None else KeyKinds.from_plain(keys, f"{where}.keys"),
            each(fields.get("in_flight", []), InFlight.from_plain, f"{where}.in_flight"),
        )


@dataclass(frozen=True)
class TaskState:
    """State of all operators of a subtask, with which it acknowledges a checkpoint.

    Attributes:
        operators: state by operator id; operators without state may be left out.
        finished: whether its operators have finished, so that no record will come from it after the barrier.
        splits_serial: serial of the last splits that a source reader had got at the barrier (0 = none yet, see
            ``protocol.split_messages.Splits``); after a restore the JobMaster assigns later ones again.
    """

    operators: Mapping[str, OperatorSubtaskState] = field(default_factory=dict)
    finished: bool = False
    splits_serial: int = 0

    def handles(self) -> Iterator[StateHandle]:
        """All pieces of state."""
        for operator in self.operators.values():
            yield from operator.handles()

    def files(self) -> set[str]:
        """Paths of all files."""
        return {handle.path for handle in self.handles() if isinstance(handle, FileState)}

    @property
    def size(self) -> int:
        """Bytes of all pieces of state, and of splits, which have no handle, as they are in the metadata."""
        splits = (split for operator in self.operators.values() for split in operator.splits)
        return sum(handle.size for handle in self.handles()) + sum(len(json.dumps(dict(split))) for split in splits)

    def to_plain(self) -> dict[str, Any]:
        return {
            "operators": {id_: operator.to_plain() for id_, operator in self.operators.items()},
            "finished": self.finished,
            "splits_serial": self.splits_serial,
        }

    @classmethod
    def from_plain(cls, plain: Plain, where: str = "task state") -> TaskState:
        """The inverse of ``to_plain``.

        Raises:
            CheckpointFormatError: it is malformed.
        """
        fields: dict[str, Plain] = member(plain, dict, where)
        return cls(
            named(fields.get("operators"), OperatorSubtaskState.from_plain, f"{where}.operators"),
            member(fields.get("finished"), bool, f"{where}.finished"),
            whole_number(fields.get("splits_serial"), f"{where}.splits_serial"),
        )

    def to_bytes(self) -> bytes:
        return json.dumps(self.to_plain(), separators=(",", ":")).encode()

    @classmethod
    def from_bytes(cls, data: bytes | str, where: str = "task state") -> TaskState:
        """The inverse of ``to_bytes``.

        Raises:
            CheckpointFormatError: it is malformed.
        """
        try:
            plain = json.loads(data)
        except ValueError as error:
            raise CheckpointFormatError(where, f"no JSON ({error})") from error
        return cls.from_plain(plain, where)


def _object(plain: Plain, where: str) -> Mapping[str, Plain]:
    return member(plain, dict, where)


def _kind(plain: Plain, where: str) -> Plain:
    if isinstance(plain, str) or (isinstance(plain, list) and plain):
        return plain
    raise CheckpointFormatError(where, f"{plain!r} is no kind of keys")
