"""The base class of operators on keyed streams: keys, keyed state, and its restore."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Final

import numpy as np
import pyarrow as pa
from typing_extensions import override

from firesteel.checkpoint.subtask_state import KeyKinds
from firesteel.core.call_each import call_each
from firesteel.core.clock import Clock
from firesteel.core.errors import ProgramError, StateDatabaseError, TaskInterrupt
from firesteel.expressions.keys import ManyKeys
from firesteel.functions.functions import KeySelector
from firesteel.graph.key_groups import KeyGroupAssigner, key_group_range
from firesteel.graph.key_hash_columns import key_groups_of
from firesteel.graph.specs import OperatorSpec
from firesteel.runtime.operator_base.base import KEYED, Transform, method_of
from firesteel.runtime.operator_base.context import OperatorContext, TaskInfo
from firesteel.runtime.operator_base.initialization import SnapshotContext
from firesteel.runtime.operator_base.key_check import KeyCheck
from firesteel.runtime.operator_base.restored import OperatorRestored, no_such_part
from firesteel.state.backend import FETCHED_TOGETHER, KeyedStateBackend, KeyedStateParameters, StateBackend
from firesteel.state.heap import HeapKeyedState
from firesteel.state.keys import NO_KEY
from firesteel.state.snapshots import WrittenState

TIMERS: Final = "timers"
"""Kind of the states that are timers; in earlier versions they were a separate part with this name."""


def state_parameters(
    spec: OperatorSpec, info: TaskInfo, clock: Clock, memory: int = 0, directory: str = ""
) -> KeyedStateParameters:
    """The parameters with which a state backend creates the state of a keyed operator.

    Args:
        spec: specification of the operator.
        info: description of its task.
        clock: clock of the task.
        memory: managed memory of the slot in bytes; 0 = unknown.
        directory: working directory of the task, in which each operator has one; empty = there is none.
    """
    first, last = key_group_range(info.subtask, info.parallelism, info.max_parallelism)
    assigner = KeyGroupAssigner(info.max_parallelism, info.max_parallelism)
    return KeyedStateParameters(
        key_group_of=assigner,
        key_groups_of_keys=assigner.assign,
        key_groups_of=partial(_key_groups_of, max_parallelism=info.max_parallelism),
        key_groups=range(first, last + 1),
        max_parallelism=info.max_parallelism,
        clock=clock,
        strict_integers=spec.strict_integers,
        operator=spec.name,
        memory=memory,
        directory=directory and os.path.join(directory, spec.id),
    )


def _key_groups_of(columns: Sequence[pa.Array], max_parallelism: int) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    return key_groups_of(columns, max_parallelism)


class KeysAhead:
    """A key selector that computes the keys of a slice of records together, before the operator gets the records."""

    def __init__(self, selector: ManyKeys) -> None:
        self._selector = selector
        self._ahead: Iterator[Any] = iter(())

    def look_ahead(self, records: Sequence[Any]) -> None:
        """Compute the keys of the records that come next, in order."""
        self._ahead = iter(self._selector.keys_of(records))

    def keys_of(self, records: Sequence[Any]) -> list[Any]:
        """The keys of any records, without regard to those that come next."""
        return list(self._selector.keys_of(records))

    def __call__(self, record: Any) -> Any:
        """Return the key of the next record, which is computed already if it was looked ahead."""
        for key in self._ahead:
            return key
        return self._selector.keys_of((record,))[0]


class KeyedTransform(Transform):
    """An operator with keyed state. As a base class in front of an operator without keys it sets the key for that one.

    Operators in which most keyed jobs spend their time override ``apply`` with a loop that also sets the key, because
    that costs less for a record than two generators.

    Attributes:
        keyed: the state backend of the operator.
        key_selectors: one callable for each input.
    """

    inputs = 1
    has_timers: ClassVar[bool] = False

    def __init__(self, spec: OperatorSpec) -> None:
        super().__init__(spec)
        if len(spec.key_selectors) != self.inputs:
            raise ProgramError(
                f"operator {spec.name!r} has {self.inputs} keyed inputs but {len(spec.key_selectors)} key selectors"
            )
        self.key_selectors: list[Callable[[Any], Any]] = [
            KeysAhead(selector) if isinstance(selector, ManyKeys) else method_of(selector, KeySelector, "get_key")
            for selector in spec.key_selectors
        ]
        self.looks_ahead = any(isinstance(selector, KeysAhead) for selector in self.key_selectors)
        self.keyed: KeyedStateBackend = HeapKeyedState(strict_integers=spec.strict_integers)
        self.check = KeyCheck()
        self.key_group_of: Callable[[Any], int] = lambda key: 0

    def use_backend(self, backend: StateBackend, parameters: KeyedStateParameters) -> None:
        """Create the state in this backend, in place of the one on the heap; called before anything is opened."""
        self.key_groups, self.key_group_of = parameters.key_groups, parameters.key_group_of
        self.keyed = backend.create_keyed_state(parameters)
        self.looks_ahead = self.looks_ahead or self.keyed.fetches_ahead

    @override
    def open(self, context: OperatorContext) -> None:
        self.keyed.show_metrics(context.metrics.group(self.name))
        super().open(context)

    def look_ahead(self, records: Sequence[Any], input_index: int) -> None:
        """Compute the keys of records together, and fetch their state from a backend for which that is faster."""
        if input_index >= len(self.key_selectors):
            return
        selector = self.key_selectors[input_index]
        if isinstance(selector, KeysAhead):
            selector.look_ahead(records)
        if self.keyed.fetches_ahead and len(records) >= FETCHED_TOGETHER:
            try:
                self.keyed.fetch_ahead(
                    lambda: (
                        selector.keys_of(records) if isinstance(selector, KeysAhead) else call_each(selector, records)
                    )
                )
            except StateDatabaseError:
                raise
            except TaskInterrupt:
                raise
            except BaseException:  # raised by a selector or about a key; ``apply`` raises it again, with the record
                pass

    def apply(self, records: Iterator[Any], input_index: int) -> Iterator[Any]:
        """Apply the operator without keys, with the current key set for each record."""
        return super().apply(self.with_keys(records, input_index), input_index)  # type: ignore[safe-super]

    def with_keys(self, records: Iterator[Any], input_index: int) -> Iterator[Any]:
        """Yield the records; before each, its key becomes the current key of the backend."""
        keyed, key_of, check, seen = self.keyed, self.key_selectors[input_index], self.check, self.check.seen
        for value in records:
            keyed.key = key = key_of(value)
            if key.__class__ not in seen:
                keyed.key = key = check(key)
            yield value

    def keys_of(self, values: Sequence[Any], input_index: int) -> list[Any]:
        """The checked keys of records. When the check raises, the local ``value`` holds the record at fault."""
        keys = call_each(self.key_selectors[input_index], values)
        seen, check = self.check.seen, self.check
        if seen.issuperset(map(type, keys)):
            return keys
        for position, value in enumerate(values):  # noqa: B007 - read from the traceback
            if keys[position].__class__ not in seen:
                keys[position] = check(keys[position])
        return keys

    @override
    def key_kinds(self) -> KeyKinds | None:
        return KeyKinds(tuple(self.check.kinds), self.check.proved)

    def restore(self, restored: OperatorRestored) -> None:
        """Take over state, and note the kinds of its keys, with which the first key that comes has to agree."""
        super().restore(restored)
        if restored.keys is not None:
            infos = [info for parts in restored.keyed.values() for part in parts for info in part.states]
            names = sorted({info.name.partition("@")[0] for info in infos if info.kind != TIMERS})
            self.check.restore(self.name, restored.keys.kinds, names, proved=restored.keys.proved)

    @override
    def restore_parts(self, parts: Mapping[str, Sequence[WrittenState]]) -> None:
        # Timers that an earlier version has written as a part of their own are restored together with the keyed state.
        written = [part for name in (KEYED, TIMERS) for part in parts.get(name, ())]
        if not self.has_timers and any(info.kind == TIMERS for part in written for info in part.states):
            raise no_such_part(self.name, TIMERS, self.snapshot_parts())
        others = {name: part for name, part in parts.items() if name not in (KEYED, TIMERS)}
        super().restore_parts({KEYED: written, **others} if written else others)

    @override
    def snapshot_state(self, context: SnapshotContext) -> None:
        self.keyed.key = NO_KEY  # user code that uses keyed state at a barrier gets an error
        super().snapshot_state(context)

    def close(self) -> None:
        """Close the function, then the state backend, which the function may still use."""
        self.keyed.key = NO_KEY
        try:
            super().close()
        finally:
            self.keyed.close()
