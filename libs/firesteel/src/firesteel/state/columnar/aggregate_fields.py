"""Where aggregates store their numbers: in the keyed state of an operator, or in arrays of their own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from typing_extensions import override

from firesteel.expressions.aggregates import BoundAggregate
from firesteel.state.columnar.store import ColumnarState
from firesteel.state.columnar.values import StateColumn

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

VALUE: Final = "value"
SEEN: Final = "seen"


class SeenSlots(ABC):
    """Which slots have a value."""

    @abstractmethod
    def mark(self, slots: Ints, valid: Mask | None = None) -> None:
        """Note values of slots; ``valid`` says which of them are not null, None = all."""

    @abstractmethod
    def flags(self, slots: Ints) -> Mask | None:
        """Which slots have a value; None = all."""


class Fields(ABC):
    """The columns of one aggregate.

    Attributes:
        merging: slots are merged later, so that the order of their rows matters.
    """

    merging: bool

    @abstractmethod
    def column(self, name: str, data_type: pa.DataType, nothing: Any = 0) -> StateColumn:
        """Create a column; where slots are merged, new slots have ``nothing``, else 0 or None."""

    @abstractmethod
    def seen(self) -> SeenSlots:
        """Create the flags of slots that have a value."""


class KeyedFields(Fields):
    """Columns of keyed state: they exist for each key, and are part of its snapshots.

    Args:
        bound: the aggregate, which names them.
        state: stores them. ``touch`` must be called for slots before rows are added.
    """

    merging = False

    def __init__(self, bound: BoundAggregate, state: ColumnarState) -> None:
        self._bound, self._state = bound, state

    @override
    def column(self, name: str, data_type: pa.DataType, nothing: Any = 0) -> StateColumn:
        name = self._bound.aggregate.function if name == VALUE else name
        return self._state.column(f"{self._bound.name}.{name}", data_type)

    @override
    def seen(self) -> SeenSlots:
        return _Flags(self.column(SEEN, pa.bool_()))


class _Flags(SeenSlots):
    def __init__(self, column: StateColumn) -> None:
        self._column = column

    def mark(self, slots: Ints, valid: Mask | None = None) -> None:
        self._column.set(slots if valid is None else slots[valid], True)

    def flags(self, slots: Ints) -> Mask:
        seen: Mask = self._column.get(slots)
        return seen


class SlotColumn(StateColumn):
    """A column whose new slots have a value of their own."""

    __slots__ = ("_filled", "_nothing")

    def __init__(self, name: str, data_type: pa.DataType, nothing: Any = 0) -> None:
        super().__init__(name, data_type, 0)
        self._nothing = nothing
        self._filled = 0

    def ensure(self, count: int) -> None:
        """Make room for ``count`` slots."""
        if count <= self._filled:
            return
        self.array.ensure(count)
        values = self.array.values
        if self.codec.fixed and self._nothing != 0:
            values[self._filled :] = self._nothing
        self._filled = len(values)


class SlotFields(Fields):
    """Columns of their own, for slots that can be merged, written out and put back.

    A slot is marked as having a value, or not, when it is new; with ``sparse`` it may be marked later.

    Args:
        sparse: slots may exist before anything is added to them.

    Attributes:
        count: number of slots.
    """

    merging = True

    def __init__(self, *, sparse: bool = False) -> None:
        self.count = 0
        self._sparse = sparse
        self._columns: list[SlotColumn] = []
        self._seen: _LazyFlags | None = None

    @override
    def column(self, name: str, data_type: pa.DataType, nothing: Any = 0) -> SlotColumn:
        column = SlotColumn(name, data_type, nothing)
        column.ensure(self.count)
        self._columns.append(column)
        return column

    @override
    def seen(self) -> SeenSlots:
        self._seen = _LazyFlags(self, at_once=self._sparse)
        return self._seen

    def ensure(self, count: int) -> None:
        """Make room for ``count`` slots."""
        self.count = max(self.count, count)
        for column in self._columns:
            column.ensure(count)

    def dump(self, slots: Ints, valid: Mask | None) -> dict[str, pa.Array]:
        """Contents of slots, as columns; the values are null where they are not valid."""
        columns = {
            column.name: column.codec.column(column.get(slots), valid if column.name == VALUE else None)
            for column in self._columns
        }
        return columns if self._seen is None else {**columns, SEEN: flags_column(slots, self._seen.flags(slots))}

    def load(self, slots: Ints, columns: dict[str, pa.Array]) -> None:
        """Put the columns of ``dump`` back into new slots."""
        for column in self._columns:
            stored = columns[column.name]
            if stored.type != column.codec.data_type:
                stored = stored.cast(column.codec.data_type)
            numbers = column.codec.numbers(stored)
            if stored.null_count:
                is_valid = stored.is_valid().to_numpy(zero_copy_only=False)
                column.set(slots[is_valid], numbers[is_valid])
            else:
                column.set(slots, numbers)
        if self._seen is not None:
            seen = columns[SEEN].to_numpy(zero_copy_only=False)
            self._seen.mark(slots, None if seen.all() else seen)

    def load_nothing(self, slots: Ints) -> None:
        """Mark new slots as empty: the aggregate did not exist when they were written."""
        if self._seen is not None:
            self._seen.mark(slots, np.zeros(len(slots), np.bool_))


def flags_column(slots: Ints, valid: Mask | None) -> pa.Array:
    """Column of flags; None = all are set."""
    return pa.array(np.ones(len(slots), np.bool_) if valid is None else valid)


class _LazyFlags(SeenSlots):
    """Flags that are stored only from the first null on: until then all slots have a value."""

    def __init__(self, fields: SlotFields, *, at_once: bool) -> None:
        self._fields = fields
        self._flags = SlotColumn(SEEN, pa.bool_()) if at_once else None
        self._known = 0  # number of slots when values last came

    def mark(self, slots: Ints, valid: Mask | None = None) -> None:
        if valid is not None and self._flags is None:
            self._flags = SlotColumn(SEEN, pa.bool_())
            self._flags.ensure(self._fields.count)
            self._flags.array.values[: self._known] = True
        if self._flags is None:
            self._known = self._fields.count
            return
        self._flags.ensure(self._fields.count)
        self._flags.set(slots if valid is None else slots[valid], True)

    def flags(self, slots: Ints) -> Mask | None:
        return None if self._flags is None else self._flags.get(slots)
