"""What windows over columns have in common as state: they are written pane by pane, or all sessions together."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from firesteel.state.columnar.snapshots import AttachedColumns, Columns, GroupsOf, Ints, OutgoingRows, Rows, stream_of
from firesteel.state.snapshots import Block, StateInfo

WATERMARK: Final = b"firesteel.watermark"
"""Key of a chunk's metadata: how far time had come."""


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
    """The state of a window operation."""

    def __init__(self, stored: StoredAs) -> None:
        super().__init__(*stored)

    @abstractmethod
    def rows(self) -> Sequence[Rows]:
        """All of it, to be written."""

    def outgoing(self) -> OutgoingRows:
        """See ``AttachedState``."""
        return OutgoingRows([self.info], self.rows())

    def take_rows(self, info: StateInfo, batch: pa.RecordBatch) -> None:
        """See ``AttachedColumns``."""
        self.restore_rows(batch, int(batch.schema.metadata[WATERMARK]))

    @abstractmethod
    def restore_rows(self, batch: pa.RecordBatch, watermark: int) -> None:
        """Take over rows, and how far time had come for them."""
