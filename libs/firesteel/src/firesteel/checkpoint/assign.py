"""Who gets which state when a job goes on from a checkpoint. Pure: handles are moved, nothing is read."""

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
"""The part of an operator's state that has the results that a client has not fetched."""
SPLIT, UNION, BROADCAST = "split", "union", "broadcast"
_BY_KEY: Final = PartitionerKind.HASH.value
_FIXED: Final = {PartitionerKind.BROADCAST.value, PartitionerKind.CUSTOM.value}


@dataclass(frozen=True)
class OperatorRestore:
    """What one subtask gets back for one operator.

    Attributes:
        keyed: by part of the operator: what former subtasks wrote whose key groups touch the own ones; chunks of other
            key groups have to be left out.
        operator: what former subtasks wrote, in their order, as ``HeapOperatorState.restore`` wants to know of them;
            with ``alone`` only what the subtask of the same number wrote, which is all that the own one needs.
        splits: plain splits to read on.
        committables: to be committed before anything else.
        keys: what is known of the keys that have state in any subtask.
        in_flight: records to be replayed before any others.
        alone: see ``operator``.
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
        given: dict[str, Plain] = member(plain, dict, where)
        keys = given.get("keys")
        return cls(
            named(given.get("keyed"), _keyed_parts, f"{where}.keyed"),
            each(given.get("operator"), OperatorListState.from_plain, f"{where}.operator"),
            each(given.get("splits"), lambda split, at: member(split, dict, at), f"{where}.splits"),
            each(given.get("committables"), Committables.from_plain, f"{where}.committables"),
            None if keys is None else KeyKinds.from_plain(keys, f"{where}.keys"),
            each(given.get("in_flight"), InFlight.from_plain, f"{where}.in_flight"),
            member(given.get("alone", False), bool, f"{where}.alone"),
        )


@dataclass(frozen=True)
class TaskRestore:
    """What one subtask goes on from (``TaskDescriptor.restore``).

    Attributes:
        checkpoint_id: of the checkpoint.
        finished: the whole vertex had finished: it commits what is left, gives nothing and ends.
        operators: by operator id; those without state are left out.
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
        given: dict[str, Plain] = member(plain, dict, where)
        return cls(
            whole_number(given.get("checkpoint_id"), f"{where}.checkpoint_id"),
            member(given.get("finished"), bool, f"{where}.finished"),
            named(given.get("operators"), OperatorRestore.from_plain, f"{where}.operators"),
        )


class MadeWhenAsked(Sequence[T]):
    """So many things, each of which is made when it is asked for.

    Args:
        make: gives the one of a number.
        count: of them.
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
    """What each subtask gets of an operator's state; that of a subtask is put together when it is asked for.

    Keyed state goes by ranges of key groups. Split lists, splits and committables stay where they were if the
    parallelism is the same, else they are dealt out in turn; union and broadcast state goes to everybody. So do records
    in flight, but those that are by key go to everybody, who picks the own ones.

    Args:
        state: in the checkpoint.
        parallelism, max_parallelism: of now.
        same_program: the program that wrote it goes on, so that its key selectors are the same.

    Raises:
        StateRestoreError: there is keyed state, and the maximum parallelism is another one; or the parallelism is
            another one, and there are records in flight of an edge whose subtasks all get the same, or chosen, records.
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

    def of(index: int) -> OperatorRestore:
        return OperatorRestore(
            {name: tuple(parts) for name, parts in keyed()[index].items()},
            (written[index],) if alone else everything,
            splits[index],
            committables[index],
            keys,
            in_flight[index],
            alone,
        )

    return MadeWhenAsked(of, parallelism)


def _keyed(state: OperatorState, parallelism: int, max_parallelism: int) -> list[dict[str, list[KeyedState]]]:
    """By subtask: each part goes to those that own some of its key groups, which are next to one another."""
    found: list[dict[str, list[KeyedState]]] = [{} for _ in range(parallelism)]
    for _, subtask in sorted(state.subtasks.items()):
        for name, part in subtask.keyed.items():
            first, last = (operator_index(group, parallelism, max_parallelism) for group in part.key_groups)
            for index in range(first, min(last, parallelism - 1) + 1):
                found[index].setdefault(name, []).append(part)
    return found


def _in_flight(
    state: OperatorState, former: Sequence[tuple[InFlight, ...]], parallelism: int
) -> list[tuple[InFlight, ...]]:
    if parallelism == state.parallelism:
        return list(former)
    fixed = {one.partitioner for part in former for one in part} & _FIXED
    if fixed:
        raise StateRestoreError(
            f"operator {state.name!r} ({state.operator_id}): its checkpoint is unaligned and holds records in flight "
            f"of {' and '.join(sorted(fixed))} edges, which only the subtasks of then can go on with: keep the "
            f"parallelism {state.parallelism}, or go on from an aligned checkpoint or a savepoint."
        )
    shared = tuple(replace(one, shared=True) for part in former for one in part if one.partitioner == _BY_KEY)
    dealt = _deal(
        [tuple(one for one in part if one.partitioner != _BY_KEY) for part in former], parallelism, same=False
    )
    return [(*shared, *own) for own in dealt]


def _keys(known: Sequence[KeyKinds], same_program: bool) -> KeyKinds | None:
    if not known:
        return None
    kinds = merged(kind for one in known for kind in one.kinds)
    return KeyKinds(tuple(kinds), same_program and all(one.proved for one in known))


def _deal(lists: Sequence[tuple[T, ...]], parallelism: int, same: bool) -> list[tuple[T, ...]]:
    if same:
        return list(lists)
    everything = [item for items in lists for item in items]
    return [tuple(everything[index::parallelism]) for index in range(parallelism)]


def _keyed_parts(plain: Plain, where: str) -> tuple[KeyedState, ...]:
    return each(plain, KeyedState.from_plain, where)
