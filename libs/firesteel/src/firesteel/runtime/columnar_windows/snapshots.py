"""What windows over columns have in common as state: they are written pane by pane, or all sessions together."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
from typing_extensions import override

from firesteel.core.errors import StateMigrationError
from firesteel.state.columnar.snapshots import AttachedColumns, Columns, GroupsOf, Ints, OutgoingRows, Rows, stream_of
from firesteel.state.snapshots import Block, StateInfo

WATERMARK: Final = b"firesteel.watermark"
"""Key of a chunk's metadata: how far time had come."""


_WIDER: Final = ("int8", "int16", "int32", "int64")
"""Inputs of aggregates, each of which holds all numbers of those before."""


def _wider(was: str, now: str) -> bool:
    return was in _WIDER and now in _WIDER and _WIDER.index(was) <= _WIDER.index(now)


class WindowRows(Rows):
    """A part of the state of a moment.

    Args:
        count: of rows.
        make: gives the rows of some positions as columns, the keys first.
        watermark: how far time has come for these rows.
    """

    def __init__(self, count: int, make: Callable[[Ints], pa.RecordBatch], watermark: int) -> None:
        super().__init__(count)
        self._make = make
        self._schema = make(np.empty(0, np.int64)).schema.with_metadata({WATERMARK: str(watermark)})

    def copy(self, positions: Ints) -> Columns:
        return list(self._make(positions).columns)

    def write(self, positions: Ints, columns: Columns) -> Block:
        return Block(len(positions), stream_of(pa.RecordBatch.from_arrays(columns, schema=self._schema)))


class StoredAs(NamedTuple):
    """How windows are written.

    Attributes:
        info: what snapshots say about them.
        keys: how many columns the key has.
        groups_of: the key groups of keys.
        key_groups: those that the subtask owns.
    """

    info: StateInfo
    keys: int
    groups_of: GroupsOf
    key_groups: range


class WindowState(AttachedColumns):
    """The state of a window operation.

    Aggregates are known by their names: one that was added begins empty in windows that are open, and one that is not
    there any more is forgotten.
    """

    def __init__(self, stored: StoredAs) -> None:
        super().__init__(*stored)

    def expect(self, info: StateInfo) -> None:
        """See ``AttachedState``: windows and keys have to be the same, and aggregates of the same name."""
        was, now = info.schema, self.info.schema
        super().expect(replace(info, schema={**was, "aggregates": now["aggregates"]}))
        before = {name: (function, given) for name, function, given in was["aggregates"]}
        for name, function, given in now["aggregates"]:
            known = before.get(name, (function, given))
            if known[0] != function:
                reason = f"it was {known[0]} and is {function} now"
                raise StateMigrationError(info.name, name, reason)
            if known[1] != given and not _wider(known[1], given):
                raise StateMigrationError(info.name, name, f"its input was {known[1]} and is {given} now")

    @abstractmethod
    def rows(self) -> Sequence[Rows]:
        """All of it, to be written."""

    @override
    def outgoing(self) -> OutgoingRows:
        return OutgoingRows([self.info], self.rows())

    @override
    def take_rows(self, info: StateInfo, batch: pa.RecordBatch) -> None:
        watermark = int(batch.schema.metadata[WATERMARK])
        numbers = {name: number for number, (name, _, _) in enumerate(self.info.schema["aggregates"])}
        names: list[str] = []
        for column in batch.schema.names:
            number, separator, field = column.partition(".")
            if separator:  # a field of an aggregate, which may have another number now, or is not there
                aggregate = info.schema["aggregates"][int(number)][0]
                column = f"{numbers[aggregate]}.{field}" if aggregate in numbers else ""
            names.append(column)
        kept = [(name, column) for name, column in zip(names, batch.columns, strict=True) if name]
        columns, names = [column for _, column in kept], [name for name, _ in kept]
        self.restore_rows(pa.RecordBatch.from_arrays(columns, names=names), watermark)

    @abstractmethod
    def restore_rows(self, batch: pa.RecordBatch, watermark: int) -> None:
        """Take over rows, and how far time had come for them."""
