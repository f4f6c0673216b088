"""Value state as functions of batches see it: a column of values for a column of keys."""

from __future__ import annotations

from typing import Any, Final, NoReturn

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from firesteel.core.clock import Clock
from firesteel.core.errors import ProgramError, TypeMismatchError
from firesteel.core.short_repr import short_repr
from firesteel.expressions.schema import arrow_type
from firesteel.expressions.values import column_of, fitted, form_of
from firesteel.functions.batch_functions import BatchValueState, Keys
from firesteel.functions.functions import KeyedStateStore
from firesteel.functions.state import StateDescriptor, ValueStateDescriptor
from firesteel.state.columnar.store import ColumnarState
from firesteel.state.columnar.values import valid_of
from firesteel.state.heap_ttl import Life

Ints = npt.NDArray[np.int64]

_VALUE: Final = ":value"
_THERE: Final = ":there"
TIME: Final = ":time"
"""Suffixes of the columns of a state. The last one, the time of the last access (epoch ms), is for time-to-live."""


class BatchStates(KeyedStateStore):
    """Gives out value states, which are all stored in one ``ColumnarState``.

    Args:
        state: stores the values.
        operator: for errors.
        clock: for time-to-live.
    """

    def __init__(self, state: ColumnarState, operator: str, clock: Clock) -> None:
        self.state, self._operator, self._clock = state, operator, clock
        self._known: dict[str, tuple[StateDescriptor, ColumnValueState]] = {}
        self._last: tuple[list[pa.Array], Ints] | None = None

    def get_state(self, state_descriptor: ValueStateDescriptor) -> Any:
        """The ``BatchValueState`` of a descriptor.

        Raises:
            ProgramError: the name belongs to state of another type, or the type's values can't be stored in columns.
        """
        if not isinstance(state_descriptor, ValueStateDescriptor):
            raise ProgramError(f"get_state() takes a ValueStateDescriptor, not {type(state_descriptor).__name__}")
        name = state_descriptor.name
        declared = self._known.get(name)
        if declared is None:
            declared = self._known[name] = state_descriptor, self._made(state_descriptor)
        elif declared[0] != state_descriptor:
            raise ProgramError(
                f"state {name!r} of operator {self._operator!r} is asked for as {state_descriptor.type_info}, but is "
                f"{declared[0].type_info} elsewhere: give each state a name of its own"
            )
        return declared[1]

    def _made(self, descriptor: ValueStateDescriptor) -> ColumnValueState:
        config = descriptor.ttl_config
        if config is not None and config.is_enabled():
            return TtlColumnValueState(self, descriptor, Life(config, self._clock))
        self.state.columns.pop(descriptor.name + TIME, None)  # restored from a job that had a time-to-live
        return ColumnValueState(self, descriptor)

    def saw(self, rows: int) -> None:
        """Note that rows have come, for clean-up with each record."""
        for _, state in self._known.values():
            state.saw(rows)

    def prune(self) -> None:
        """Prepare for a snapshot."""
        for _, state in self._known.values():
            state.prune()

    def get_list_state(self, state_descriptor: Any) -> NoReturn:
        self._refuse("list", state_descriptor)

    def get_map_state(self, state_descriptor: Any) -> NoReturn:
        self._refuse("map", state_descriptor)

    def get_reducing_state(self, state_descriptor: Any) -> NoReturn:
        self._refuse("reducing", state_descriptor)

    def get_aggregating_state(self, state_descriptor: Any) -> NoReturn:
        self._refuse("aggregating", state_descriptor)

    def _refuse(self, kind: str, descriptor: Any) -> NoReturn:
        name = getattr(descriptor, "name", descriptor)
        raise ProgramError(
            f"{kind} state {name!r} of operator {self._operator!r}: functions of batches keep value state; use "
            "get_state(), or a KeyedProcessFunction for other kinds"
        )

    # -- keys, for the states

    def columns(self, keys: Keys) -> list[pa.Array]:
        """Keys as columns of the key's types.

        Raises:
            ProgramError: they have another form or type.
        """
        types = self.state.key_types
        parts = [keys] if len(types) == 1 and not isinstance(keys, tuple) else keys
        if not isinstance(parts, list | tuple) or len(parts) != len(types):
            expected = "a column" if len(types) == 1 else f"a tuple of {len(types)} columns"
            raise ProgramError(f"keys of {self._operator!r} must be {expected}, not {short_repr(keys, 80)}")
        columns = []
        for part, data_type in zip(parts, types, strict=True):
            try:
                part = part.combine_chunks() if isinstance(part, pa.ChunkedArray) else part
                column = part if isinstance(part, pa.Array) else pa.array(part, from_pandas=False)
                if len(column) == column.null_count:
                    column = pa.nulls(len(column), data_type)
                columns.append(fitted(column, data_type))
            except (pa.ArrowException, TypeError, ValueError) as error:
                raise ProgramError(
                    f"keys of {self._operator!r} are {data_type}, which {short_repr(part, 80)} is not: {error}"
                ) from None
        if len({len(column) for column in columns}) > 1:
            raise ProgramError(f"keys of {self._operator!r}: the columns have different lengths")
        return columns

    def find(self, columns: list[pa.Array]) -> Ints:
        """Slots of keys, which must belong to this subtask; -1 for unknown ones."""
        last = self._last
        if last is not None and len(last[0]) == len(columns) and all(map(_same, last[0], columns)):
            return last[1]
        slots = self.state.find(columns)
        missing = np.flatnonzero(slots < 0)
        if missing.size:
            self.state.refuse_foreign(columns, missing)
        self._last = columns, slots
        return slots

    def add(self, columns: list[pa.Array]) -> Ints:
        """Slots of keys, which must belong to this subtask; new ones are added."""
        slots = self.find(columns)
        if slots.size and slots.min() < 0:
            slots = self.state.slots(columns)
            self._last = columns, slots
        return slots

    def release_empty(self, slots: Ints) -> None:
        """Release keys that have no value in any state."""
        empty = np.ones(len(slots), bool)
        for name, column in self.state.columns.items():
            if name.endswith(_THERE):
                empty &= ~column.get(slots)
        if empty.any():
            self.state.release(np.unique(slots[empty]))
            self._last = None

    def forget(self) -> None:
        """Forget the last look-up: the batch is over, or its slots are no longer valid."""
        self._last = None


def _same(array: pa.Array, other: pa.Array) -> bool:
    return array is other


class ColumnValueState(BatchValueState):
    """Value state of many keys, as one Arrow column."""

    def __init__(self, states: BatchStates, descriptor: ValueStateDescriptor) -> None:
        name, type_info = descriptor.name, descriptor.type_info
        data_type = arrow_type(type_info)
        if data_type is None or form_of(type_info) is not None:
            raise ProgramError(
                f"state {name!r}: values of {type_info} can't stand in a column of a batch; use a type such as "
                "Types.LONG(), Types.DOUBLE() or Types.STRING(), or a KeyedProcessFunction"
            )
        self._states, self._name, self._type_info, self._data_type = states, name, type_info, data_type
        self._value = states.state.column(name + _VALUE, data_type)
        self._there = states.state.column(name + _THERE, pa.bool_())

    def get(self, keys: Keys) -> pa.Array:
        return self.values_of(self._states.find(self._states.columns(keys)))

    def saw(self, rows: int) -> None:
        """Note that rows have come."""

    def prune(self) -> None:
        """Prepare for a snapshot."""

    def written(self, slots: Ints) -> None:
        """Note that values of slots are being written."""

    def values_of(self, slots: Ints) -> pa.Array:
        """Values of slots; null where there is none."""
        has_slot = slots >= 0
        if has_slot.all():
            has_value = self._there.get(slots)
            return self._value.codec.column(self._value.get(slots), None if has_value.all() else has_value)
        readable = np.where(has_slot, slots, 0)
        if not self._states.state.index.capacity:
            return pa.nulls(len(slots), self._data_type)
        return self._value.codec.column(self._value.get(readable), has_slot & self._there.get(readable))

    def put(self, keys: Keys, values: Any) -> None:
        columns = self._states.columns(keys)
        column = self._column(values, len(columns[0]))
        valid = valid_of(column)
        if not len(column):
            return
        slots = self._states.add(columns)
        self._states.state.touch(slots)
        self.written(slots)
        self._value.set(slots, self._value.codec.numbers(column))
        if valid is None:
            self._there.set(slots, True)
            return
        self._there.set(slots, valid)
        self._clear(slots)

    def clear(self, keys: Keys) -> None:
        slots = self._states.find(self._states.columns(keys))
        self.drop(slots[slots >= 0])

    def drop(self, slots: Ints) -> None:
        """Forget the values of slots."""
        if slots.size:
            self._states.state.touch(slots)
            self._there.set(slots, False)
            self._clear(slots)

    def _clear(self, slots: Ints) -> None:
        """Drop values that were cleared, and keys without any value."""
        empty = slots[~self._there.get(slots)]
        self._value.clear(empty)
        self._states.release_empty(empty)

    def _column(self, values: Any, count: int) -> pa.Array:
        """Values as a column of the declared type."""
        if isinstance(values, pa.ChunkedArray):
            values = values.combine_chunks()
        if isinstance(values, pa.Scalar):
            values = values.as_py()
        if isinstance(values, pa.Array):
            column = values
        elif isinstance(values, np.ndarray):
            column = pa.array(values, from_pandas=False)
        elif isinstance(values, list | tuple):
            column = column_of(values, f"state {self._name!r}", self._type_info)
        else:
            column = pa.repeat(column_of([values], f"state {self._name!r}", self._type_info)[0], count)
        if len(column) != count:
            raise ProgramError(f"state {self._name!r}: there are {count} keys but {len(column)} values")
        if len(column) == column.null_count:
            return pa.nulls(count, self._data_type)
        try:
            return fitted(column, self._data_type)
        except (pa.ArrowException, ValueError) as error:
            shown = f"a column of {column.type}"
            raise TypeMismatchError(f"state {self._name!r}", str(self._type_info), shown, str(error)) from None


class TtlColumnValueState(ColumnValueState):
    """Value state with a time-to-live: each value has the time of its last access beside it.

    Expired values are removed when they are read, and by a cursor that checks ``cleanup_size`` slots with each access.
    The life of values that were restored without a time begins at the restore.
    """

    def __init__(self, states: BatchStates, descriptor: ValueStateDescriptor, life: Life) -> None:
        name = descriptor.name + TIME
        restored = name in states.state.columns
        super().__init__(states, descriptor)
        self._life = life
        self._time = states.state.column(name, pa.int64())
        self._cursor = states.state.cursor()
        if not restored:
            states.state.fill(self._time, life.now())

    def get(self, keys: Keys) -> pa.Array:
        life, now = self._life, self._life.now()
        slots = self._states.find(self._states.columns(keys))
        known_slots = slots[slots >= 0]
        dead = self._expired(known_slots)
        values = self.values_of(slots) if life.show_expired or not dead.size else None
        if life.on_read:
            self._states.state.touch(known_slots)
            alive = known_slots[self._there.get(known_slots)]
            self._time.set(alive, now)
        self.drop(dead)
        if values is None:
            values = self.values_of(slots)
        self._sweep(len(slots))
        return values

    def put(self, keys: Keys, values: Any) -> None:
        super().put(keys, values)
        self._sweep(len(self._states.columns(keys)[0]))

    def clear(self, keys: Keys) -> None:
        super().clear(keys)
        self._sweep(len(self._states.columns(keys)[0]))

    def written(self, slots: Ints) -> None:
        """Begin the life of these values."""
        self._time.set(slots, self._life.now())

    def saw(self, rows: int) -> None:
        """Remove some expired values, if that is configured for each record."""
        if self._life.every_record:
            self._sweep(rows)

    def prune(self) -> None:
        """Remove expired values, if snapshots must not have them."""
        if self._life.drop_at_snapshot:
            self.drop(self._expired(self._states.state.in_use()))

    def _expired(self, slots: Ints) -> Ints:
        return slots[self._there.get(slots) & (self._time.get(slots) <= self._life.dead_before())]

    def _sweep(self, accesses: int) -> None:
        """Remove expired values in the next slots of the cursor."""
        slots = self._cursor.next(accesses * self._life.cleanup_size)
        if self._states.state.evicts:
            self._states.forget()
        if slots.size:
            self.drop(self._expired(slots))
