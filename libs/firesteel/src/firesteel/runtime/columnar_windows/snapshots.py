"""Snapshots of windows over columns, which are written pane by pane, or all sessions together."""

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
"""Key in the metadata of a chunk, of the watermark at which its rows were written."""


_WIDER: Final = ("int8", "int16", "int32", "int64")
"""Types of inputs; each of them contains all numbers of those before it."""


def _wider(was: str, now: str) -> bool:
    return was in _WIDER and now in _WIDER and _WIDER.index(was) <= _WIDER.index(now)


class WindowRows(Rows):
    """The rows of a pane, or of all sessions, at the moment of a snapshot.

    Args:
        count: number of rows.
        make: returns the rows at some positions as columns, the keys first.
        watermark: watermark of that moment.
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
    """How windows are written to snapshots.

    Attributes:
        info: description of the state in snapshots.
        keys: number of columns of the key.
        groups_of: computes the key groups of keys.
        key_groups: key groups that the subtask owns.
    """

    info: StateInfo
    keys: int
    groups_of: GroupsOf
    key_groups: range


class WindowState(AttachedColumns):
    """The state of a window operation over columns.

    Aggregates are identified by their names: one that the program has added begins empty in windows that are open, and
    one that it has removed is dropped.
    """

    def __init__(self, stored: StoredAs) -> None:
        super().__init__(*stored)

    def expect(self, info: StateInfo) -> None:
        """Check restored state: windows, keys, and aggregates of the same name must not have changed.

        Raises:
            StateMigrationError: they have.
        """
        was, now = info.schema, self.info.schema
        super().expect(replace(info, schema={**was, "aggregates": now["aggregates"]}))
        former = {name: (function, input_type) for name, function, input_type in was["aggregates"]}
        for name, function, input_type in now["aggregates"]:
            former_function, former_input = former.get(name, (function, input_type))
            if former_function != function:
                reason = f"it was {former_function} and is {function} now"
                raise StateMigrationError(info.name, name, reason)
            if former_input != input_type and not _wider(former_input, input_type):
                raise StateMigrationError(info.name, name, f"its input was {former_input} and is {input_type} now")

    @abstractmethod
    def rows(self) -> Sequence[Rows]:
        """The whole state at this moment, to be written."""

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
            if separator:  # a field of an aggregate, which may have another number now, or may be removed
                aggregate = info.schema["aggregates"][int(number)][0]
                column = f"{numbers[aggregate]}.{field}" if aggregate in numbers else ""
            names.append(column)
        named = [(name, column) for name, column in zip(names, batch.columns, strict=True) if name]
        columns, names = [column for _, column in named], [name for name, _ in named]
        self.restore_rows(pa.RecordBatch.from_arrays(columns, names=names), watermark)

    @abstractmethod
    def restore_rows(self, batch: pa.RecordBatch, watermark: int) -> None:
        """Take over rows, and the watermark at which they were written."""
