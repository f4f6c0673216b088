"""Where aggregates keep what they know of each slot: in the keyed state of an operator, or in arrays of their own."""

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
    """Which slots hold a value."""

    @abstractmethod
    def mark(self, slots: Ints, valid: Mask | None = None) -> None:
        """Values have come to slots; ``valid`` says which of them are no nulls, None = all."""

    @abstractmethod
    def of(self, slots: Ints) -> Mask | None:
        """Which slots hold a value; None = all."""


class Fields(ABC):
    """The columns of one aggregate.

    Attributes:
        merging: slots are brought together later, so that it matters which of their rows came first.
    """

    merging: bool

    @abstractmethod
    def column(self, name: str, data_type: pa.DataType, nothing: Any = 0) -> StateColumn:
        """A column; where slots are merged, new ones hold ``nothing``, else 0 or None."""

    @abstractmethod
    def seen(self) -> SeenSlots:
        """Which slots hold a value."""


class KeyedFields(Fields):
    """Columns of keyed state, which are there for each key and stand in its snapshots.

    Args:
        bound: names them.
        state: keeps them. Whoever adds rows has called ``touch`` for their slots.
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

    def of(self, slots: Ints) -> Mask:
        seen: Mask = self._column.get(slots)
        return seen


class SlotColumn(StateColumn):
    """A column whose new slots hold a value of their own."""

    __slots__ = ("_filled", "_nothing")

    def __init__(self, name: str, data_type: pa.DataType, nothing: Any = 0) -> None:
        super().__init__(name, data_type, 0)
        self._nothing = nothing
        self._filled = 0

    def ensure(self, count: int) -> None:
        """Make room for so many slots."""
        if count <= self._filled:
            return
        self.array.ensure(count)
        values = self.array.values
        if self.codec.fixed and self._nothing != 0:
            values[self._filled :] = self._nothing
        self._filled = len(values)


class SlotFields(Fields):
    """Columns of their own, for slots that can be merged, written out and put back.

    A slot is to be among those that are marked when it is new, unless ``sparse`` is set.

    Args:
        sparse: some slots may be there before anything is added to them.

    Attributes:
        count: so many slots there are.
    """

    merging = True

    def __init__(self, *, sparse: bool = False) -> None:
        self.count = 0
        self._sparse = sparse
        self._columns: list[SlotColumn] = []
        self._seen: _LazyFlags | None = None

    @override
    def column(self, name: str, data_type: pa.DataType, nothing: Any = 0) -> SlotColumn:
        made = SlotColumn(name, data_type, nothing)
        made.ensure(self.count)
        self._columns.append(made)
        return made

    @override
    def seen(self) -> SeenSlots:
        self._seen = _LazyFlags(self, at_once=self._sparse)
        return self._seen

    def ensure(self, count: int) -> None:
        """Make room for so many slots."""
        self.count = max(self.count, count)
        for column in self._columns:
            column.ensure(count)

    def dump(self, slots: Ints, valid: Mask | None) -> dict[str, pa.Array]:
        """What slots hold, as columns; their values are null where they are not valid."""
        found = {
            column.name: column.codec.column(column.get(slots), valid if column.name == VALUE else None)
            for column in self._columns
        }
        return found if self._seen is None else {**found, SEEN: flags_column(slots, self._seen.of(slots))}

    def load(self, slots: Ints, columns: dict[str, pa.Array]) -> None:
        """Put back what ``dump`` gave, into new slots."""
        for column in self._columns:
            given = columns[column.name]
            if given.type != column.codec.data_type:
                given = given.cast(column.codec.data_type)
            numbers = column.codec.numbers(given)
            if given.null_count:
                there = given.is_valid().to_numpy(zero_copy_only=False)
                column.set(slots[there], numbers[there])
            else:
                column.set(slots, numbers)
        if self._seen is not None:
            seen = columns[SEEN].to_numpy(zero_copy_only=False)
            self._seen.mark(slots, None if seen.all() else seen)

    def load_nothing(self, slots: Ints) -> None:
        """New slots hold no value: the aggregate was not there when they were written."""
        if self._seen is not None:
            self._seen.mark(slots, np.zeros(len(slots), np.bool_))


def flags_column(slots: Ints, valid: Mask | None) -> pa.Array:
    """A column of flags; None = all are set."""
    return pa.array(np.ones(len(slots), np.bool_) if valid is None else valid)


class _LazyFlags(SeenSlots):
    """As long as there are no nulls, all slots hold a value, and nothing is kept."""

    def __init__(self, fields: SlotFields, *, at_once: bool) -> None:
        self._fields = fields
        self._flags = SlotColumn(SEEN, pa.bool_()) if at_once else None
        self._known = 0  # slots there were when the last values had come

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

    def of(self, slots: Ints) -> Mask | None:
        return None if self._flags is None else self._flags.get(slots)
