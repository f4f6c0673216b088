"""What operators on keyed streams have in common."""

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
"""Kind of the states that are timers; they were a part of their own, of this name, in earlier versions."""


def state_parameters(
    spec: OperatorSpec, info: TaskInfo, clock: Clock, memory: int = 0, directory: str = ""
) -> KeyedStateParameters:
    """What the state of an operator with keys is made with.

    Args:
        spec: of the operator.
        info: of its task.
        clock: of the task.
        memory: managed memory of the slot, bytes; 0 = not said.
        directory: of the task; each operator has one in it. Empty = there is none.
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
    """The key selector of an operator whose keys are read for a slice of records together, before it gets them."""

    def __init__(self, selector: ManyKeys) -> None:
        self._selector = selector
        self._ahead: Iterator[Any] = iter(())

    def look_ahead(self, records: Sequence[Any]) -> None:
        """The records that come next, in order."""
        self._ahead = iter(self._selector.keys_of(records))

    def keys_of(self, records: Sequence[Any]) -> list[Any]:
        """The keys of records, whichever come next."""
        return list(self._selector.keys_of(records))

    def __call__(self, record: Any) -> Any:
        """The key of the next record."""
        for key in self._ahead:
            return key
        return self._selector.keys_of((record,))[0]


class KeyedTransform(Transform):
    """An operator with keyed state; in front of an operator class without keys it gives that one keys.

    The operators that most keyed jobs spend their time in have a loop of their own instead: a record costs less there.

    Attributes:
        keyed: its state.
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
        """Keep the state in this backend; before anything is opened."""
        self.key_groups, self.key_group_of = parameters.key_groups, parameters.key_group_of
        self.keyed = backend.create_keyed_state(parameters)
        self.looks_ahead = self.looks_ahead or self.keyed.fetches_ahead

    @override
    def open(self, context: OperatorContext) -> None:
        self.keyed.show_metrics(context.metrics.group(self.name))
        super().open(context)

    def look_ahead(self, records: Sequence[Any], input_index: int) -> None:
        """Read the keys of all of them at once, and what the state has of them."""
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
            except BaseException:  # of a selector, or about a key: it comes again with the record
                pass

    def apply(self, records: Iterator[Any], input_index: int) -> Iterator[Any]:
        """What the operator without keys gives, with the current key set for each record."""
        return super().apply(self.with_keys(records, input_index), input_index)  # type: ignore[safe-super]

    def with_keys(self, records: Iterator[Any], input_index: int) -> Iterator[Any]:
        """The records; each one's key is the current one while it is processed."""
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

    def key_kinds(self) -> KeyKinds | None:
        """Of the keys that came, and of those that were restored."""
        return KeyKinds(tuple(self.check.kinds), self.check.proved)

    def restore(self, restored: OperatorRestored) -> None:
        """Take over state; the first key that comes has to be such a one as those that have state."""
        super().restore(restored)
        if restored.keys is not None:
            infos = [info for written in restored.keyed.values() for one in written for info in one.states]
            names = sorted({info.name.partition("@")[0] for info in infos if info.kind != TIMERS})
            self.check.restore(self.name, restored.keys.kinds, names, proved=restored.keys.proved)

    def restore_parts(self, parts: Mapping[str, Sequence[WrittenState]]) -> None:
        """Give the backend what was written."""
        written = [one for name in (KEYED, TIMERS) for one in parts.get(name, ())]
        if not self.has_timers and any(info.kind == TIMERS for one in written for info in one.states):
            raise no_such_part(self.name, TIMERS, self.snapshot_parts())
        others = {name: some for name, some in parts.items() if name not in (KEYED, TIMERS)}
        super().restore_parts({KEYED: written, **others} if written else others)

    def snapshot_state(self, context: SnapshotContext) -> None:
        """There is no key at a barrier."""
        self.keyed.key = NO_KEY
        super().snapshot_state(context)

    def close(self) -> None:
        """Close the function, then forget the state."""
        self.keyed.key = NO_KEY
        try:
            super().close()
        finally:
            self.keyed.close()
