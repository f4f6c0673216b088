"""Assigns the state of a checkpoint to the subtasks of a job that goes on from it. Pure: handles move, nothing is read.

As Flink's ``StateAssignmentOperation``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Final, TypeVar, overload

from firesteel.checkpoint.handles import StateHandle
from firesteel.checkpoint.metadata import OperatorState
from firesteel.checkpoint.reading import Plain, each, member, named, whole_number
from firesteel.checkpoint.subtask_state import Committables, InFlight, KeyedState, KeyKinds, OperatorListState
from firesteel.core.errors import StateRestoreError
from firesteel.graph.key_groups import operator_index
from firesteel.graph.key_kinds import merged
from firesteel.graph.specs import PartitionerKind

T = TypeVar("T")
RESULTS: Final = "results"
"""Name of the part of an operator's state that contains results which the client has not fetched."""
SPLIT, UNION, BROADCAST = "split", "union", "broadcast"
_BY_KEY: Final = PartitionerKind.HASH.value
_FIXED: Final = {PartitionerKind.BROADCAST.value, PartitionerKind.CUSTOM.value}


@dataclass(frozen=True)
class OperatorRestore:
    """The state that one subtask gets back for one operator.

    Attributes:
        keyed: for each part of the operator, the state of former subtasks whose key groups overlap with its own; chunks
            of other key groups have to be skipped.
        operator: operator state of all former subtasks, in their order, as ``HeapOperatorState.restore`` needs it; with
            ``alone`` only that of the subtask with the same number, if that is all the subtask needs.
        splits: splits to go on reading, as plain data.
        committables: committables to commit before anything else.
        keys: kinds of the keys that have state in any subtask.
        in_flight: records to replay before any others.
        alone: whether ``operator`` is that of a single former subtask.
    """

    keyed: Mapping[str, tuple[KeyedState, ...]] = field(default_factory=dict)
    operator: tuple[OperatorListState, ...] = ()
    splits: tuple[Mapping[str, Plain], ...] = ()
    committables: tuple[Committables, ...] = ()
    keys: KeyKinds | None = None
    in_flight: tuple[InFlight, ...] = ()
    alone: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing in it."""
        lists = any(part.states for part in self.operator)
        return not (self.keyed or lists or self.splits or self.committables or self.in_flight)

    def handles(self) -> Iterator[StateHandle]:
        """All pieces of state."""
        for parts in self.keyed.values():
            for part in parts:
                yield from part.handles
                yield from part.files.values()
        for written in self.operator:
            yield from written.handles
        for committables in self.committables:
            yield from committables.items
        for in_flight in self.in_flight:
            yield in_flight.handle

    def to_plain(self) -> dict[str, Any]:
        return {
            "keyed": {name: [part.to_plain() for part in parts] for name, parts in self.keyed.items()},
            "operator": [written.to_plain() for written in self.operator],
            "alone": self.alone,
            "splits": [dict(split) for split in self.splits],
            "committables": [committables.to_plain() for committables in self.committables],
            "keys": None if self.keys is None else self.keys.to_plain(),
            "in_flight": [in_flight.to_plain() for in_flight in self.in_flight],
        }

    @classmethod
    def from_plain(cls, plain: Plain, where: str) -> OperatorRestore:
        """The inverse of ``to_plain``.

        Raises:
            CheckpointFormatError: it is malformed.
        """
        fields: dict[str, Plain] = member(plain, dict, where)
        keys = fields.get("keys")
        return cls(
            named(fields.get("keyed"), _keyed_parts, f"{where}.keyed"),
            each(fields.get("operator"), OperatorListState.from_plain, f"{where}.operator"),
            each(fields.get("splits"), lambda split, at: member(split, dict, at), f"{where}.splits"),
            each(fields.get("committables"), Committables.from_plain, f"{where}.committables"),
            None if keys is None else KeyKinds.from_plain(keys, f"{where}.keys"),
            each(fields.get("in_flight"), InFlight.from_plain, f"{where}.in_flight"),
            member(fields.get("alone", False), bool, f"{where}.alone"),
        )


@dataclass(frozen=True)
class TaskRestore:
    """The state from which one subtask goes on (``TaskDescriptor.restore``).

    Attributes:
        checkpoint_id: id of the checkpoint.
        finished: whether all tasks of the vertex had finished: then the task only commits what is left, and ends.
        operators: state by operator id; operators without state are left out.
    """

    checkpoint_id: int
    finished: bool = False
    operators: Mapping[str, OperatorRestore] = field(default_factory=dict)

    def handles(self) -> Iterator[StateHandle]:
        """All pieces of state."""
        for operator in self.operators.values():
            yield from operator.handles()

    def to_plain(self) -> dict[str, Any]:
        return {
            "checkpoint_id": self.checkpoint_id,
            "finished": self.finished,
            "operators": {id_: operator.to_plain() for id_, operator in self.operators.items()},
        }

    @classmethod
    def from_plain(cls, plain: Plain, where: str = "restore") -> TaskRestore:
        """The inverse of ``to_plain``.

        Raises:
            CheckpointFormatError: it is malformed.
        """
        fields: dict[str, Plain] = member(plain, dict, where)
        return cls(
            whole_number(fields.get("checkpoint_id"), f"{where}.checkpoint_id"),
            member(fields.get("finished"), bool, f"{where}.finished"),
            named(fields.get("operators"), OperatorRestore.from_plain, f"{where}.operators"),
        )


class LazySequence(Sequence[T]):
    """A sequence whose items are created on each access.

    Args:
        make: creates the item at an index.
        count: number of items.
    """

    def __init__(self, make: Callable[[int], T], count: int) -> None:
        self._make, self._count = make, count

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> list[T]: ...
    def __getitem__(self, index: int | slice) -> T | list[T]:
        indices = range(self._count)[index]
        return [self._make(i) for i in indices] if isinstance(indices, range) else self._make(indices)


def assign(
    state: OperatorState, parallelism: int, max_parallelism: int, *, same_program: bool = True
) -> Sequence[OperatorRestore]:
    """Assign an operator's state to subtasks; the state of a subtask is put together when it is accessed.

    Keyed state is assigned by ranges of key groups. Split lists, splits, committables and records in flight stay with
    their subtask if the parallelism is the same, and are distributed round-robin otherwise. Union and broadcast state
    goes to all subtasks. So do records in flight on keyed edges if the parallelism changes; each subtask selects its
    own.

    Args:
        state: state of the operator in the checkpoint.
        parallelism, max_parallelism: those of the job that goes on.
        same_program: whether the same program goes on, so that its key selectors are the same.

    Raises:
        StateRestoreError: there is keyed state and the maximum parallelism has changed; or the parallelism has changed
            and there are records in flight on a broadcast or custom edge.
    """
    if state.max_parallelism != max_parallelism and any(s.keyed for s in state.subtasks.values()):
        raise StateRestoreError(
            f"operator {state.name!r} ({state.operator_id}): the checkpoint was taken with a maximum parallelism of "
            f"{state.max_parallelism}, and the job has {max_parallelism}: keyed state can't be read with another one. "
            f"Set it with set_max_parallelism({state.max_parallelism})."
        )
    same = parallelism == state.parallelism
    former = [state.subtasks.get(index) for index in range(state.parallelism)]
    splits = _deal([s.splits if s else () for s in former], parallelism, same)
    committables = _deal([s.committables if s else () for s in former], parallelism, same)
    written = [s.operator for s in former if s is not None and s.operator is not None]
    alone = len(written) == parallelism and not any(UNION in part.kinds() for part in written)
    keys = _keys([s.keys for s in former if s is not None and s.keys is not None], same_program)
    in_flight = _in_flight(state, [s.in_flight if s else () for s in former], parallelism)
    everything = tuple(written)

    @cache
    def keyed() -> list[dict[str, list[KeyedState]]]:
        return _keyed(state, parallelism, max_parallelism)

    def restore_of(index: int) -> OperatorRestore:
        return OperatorRestore(
            {name: tuple(parts) for name, parts in keyed()[index].items()},
            (written[index],) if alone else everything,
            splits[index],
            committables[index],
            keys,
            in_flight[index],
            alone,
        )

    return LazySequence(restore_of, parallelism)


def _keyed(state: OperatorState, parallelism: int, max_parallelism: int) -> list[dict[str, list[KeyedState]]]:
    """Keyed state by new subtask: each part goes to all that own some of its key groups, which are consecutive."""
    parts_of: list[dict[str, list[KeyedState]]] = [{} for _ in range(parallelism)]
    for _, subtask in sorted(state.subtasks.items()):
        for name, part in subtask.keyed.items():
            first, last = (operator_index(group, parallelism, max_parallelism) for group in part.key_groups)
            for index in range(first, min(last, parallelism - 1) + 1):
                parts_of[index].setdefault(name, []).append(part)
    return parts_of


def _in_flight(
    state: OperatorState, former: Sequence[tuple[InFlight, ...]], parallelism: int
) -> list[tuple[InFlight, ...]]:
    if parallelism == state.parallelism:
        return list(former)
    fixed = {in_flight.partitioner for part in former for in_flight in part} & _FIXED
    if fixed:
        raise StateRestoreError(
            f"operator {state.name!r} ({state.operator_id}): its checkpoint is unaligned and holds records in flight "
            f"of {' and '.join(sorted(fixed))} edges, which belong to the subtasks that they were sent to: keep "
            f"the parallelism {state.parallelism}, or go on from an aligned checkpoint or a savepoint."
        )
    everything = [in_flight for part in former for in_flight in part]
    shared = tuple(replace(in_flight, shared=True) for in_flight in everything if in_flight.partitioner == _BY_KEY)
    unkeyed = [tuple(in_flight for in_flight in part if in_flight.partitioner != _BY_KEY) for part in former]
    return [(*shared, *dealt) for dealt in _deal(unkeyed, parallelism, same=False)]


def _keys(key_kinds: Sequence[KeyKinds], same_program: bool) -> KeyKinds | None:
    """The kinds of keys of all former subtasks."""
    if not key_kinds:
        return None
    kinds = merged(kind for part in key_kinds for kind in part.kinds)
    return KeyKinds(tuple(kinds), same_program and all(part.proved for part in key_kinds))


def _deal(lists: Sequence[tuple[T, ...]], parallelism: int, same: bool) -> list[tuple[T, ...]]:
    """Distribute the items of all lists round-robin; with the ``same`` parallelism each list stays as it is."""
    if same:
        return list(lists)
    everything = [item for items in lists for item in items]
    return [tuple(everything[index::parallelism]) for index in range(parallelism)]


def _keyed_parts(plain: Plain, where: str) -> tuple[KeyedState, ...]:
    return each(plain, KeyedState.from_plain, where)
