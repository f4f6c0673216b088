"""Holds the changes of a table back until the next barrier: what leaves is exact for a prefix of the job's inputs.

While a join waits for the changes of its other input, or an aggregate for those of its groups, the results on the way
are of no moment at which the inputs ever were. The barrier of a checkpoint divides all inputs of the job at once, so at
a barrier the results are those of the rows before it, and only the difference to the last barrier leaves.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from typing_extensions import override

from firesteel.common.typeinfo import Types
from firesteel.functions.state import ListStateDescriptor
from firesteel.graph.specs import OperatorSpec
from firesteel.runtime.operator_base.context import OperatorContext
from firesteel.runtime.operator_base.initialization import SnapshotContext
from firesteel.runtime.operators.async_wait import LaterResults
from firesteel.runtime.operators.changelog import DELETE, INSERT, UPDATE_AFTER, UPDATE_BEFORE, weights_of
from firesteel.runtime.records.batch import MAX_WATERMARK, Batch, Watermark
from firesteel.runtime.records.columns import StreamColumns, columns_of
from firesteel.state.columnar.row_contents import consolidated, content_hashes, equal_rows

_HELD: Final = ListStateDescriptor("held", Types.PICKLED_BYTE_ARRAY())
_FEWEST: Final = 1 << 16
"""Rows that are held before those that cancel each other are looked for."""
_PIECE: Final = 1 << 14
"""Rows of one batch of results."""

Ints = npt.NDArray[np.int64]


class EpochOperator(LaterResults):
    """Gives the net changes of each epoch, which lasts from one barrier to the next; the last ends with the input.

    The places of a key (``extra["key"]``; None = there is none) tell which deletion and insertion are an update.
    """

    takes_columns = True

    def __init__(self, spec: OperatorSpec) -> None:
        super().__init__(spec)
        self._columns = StreamColumns(spec.extra["input_type"])
        self._key: Sequence[int] | None = spec.extra["key"]
        self._held: list[tuple[pa.RecordBatch, Ints]] = []
        """Rows of this epoch with their weights."""
        self._count = 0
        self._limit = _FEWEST
        self._watermark: Watermark | None = None
        self._ready: deque[Batch | Watermark] = deque()

    def open(self, context: OperatorContext) -> None:
        """Go on with rows that had come behind the changes of the last epoch."""
        super().open(context)
        for rows, weights in self.operator_state.get_list_state(_HELD).get():
            self._hold(rows, weights)

    @property
    @override
    def writable(self) -> bool:
        return not self._ready

    @property
    @override
    def ready(self) -> bool:
        return bool(self._ready)

    @property
    @override
    def empty(self) -> bool:
        return not self._ready

    @override
    def put(self, batch: Batch) -> None:
        if len(batch):
            self._hold(columns_of(batch), weights_of(batch))

    def _hold(self, rows: pa.RecordBatch, weights: Ints) -> None:
        self._held.append((rows, weights))
        self._count += len(weights)
        if self._count >= self._limit:
            self._held = [self._net_rows()]
            self._count = len(self._held[0][1])
            self._limit = max(_FEWEST, 2 * self._count)

    def _net_rows(self) -> tuple[pa.RecordBatch, Ints]:
        table = pa.Table.from_batches([rows for rows, _ in self._held]).combine_chunks()
        columns = [column.combine_chunks() for column in table.columns]
        weights = np.concatenate([weights for _, weights in self._held])
        rows = pa.RecordBatch.from_arrays(columns, schema=self._held[0][0].schema)
        stays = consolidated(columns, weights) if columns else None
        return (rows, weights) if stays is None else (rows.take(pa.array(stays)), weights[stays])

    @override
    def put_watermark(self, watermark: Watermark) -> None:
        self._watermark = watermark
        if watermark.timestamp >= MAX_WATERMARK:
            self._end_epoch()

    @override
    def before_barrier(self, checkpoint_id: int) -> None:
        self._end_epoch()

    def _end_epoch(self) -> None:
        if self._held:
            rows, weights = self._net_rows()
            self._held, self._count, self._limit = [], 0, _FEWEST
            order, kinds = self._as_updates(rows, weights)
            for start in range(0, len(order), _PIECE):
                piece = order[start : start + _PIECE]
                self._ready.append(Batch(rows.take(pa.array(piece)), None, kinds[piece]))
        if self._watermark is not None:
            self._ready.append(self._watermark)
            self._watermark = None

    def _as_updates(self, rows: pa.RecordBatch, weights: Ints) -> tuple[Ints, npt.NDArray[np.int8]]:
        """The order in which rows leave, deletions before insertions, and their kinds."""
        kinds = np.where(weights > 0, INSERT, DELETE).astype(np.int8)
        order = np.argsort(weights, kind="stable")
        deleted, inserted = np.flatnonzero(weights < 0), np.flatnonzero(weights > 0)
        if self._key is not None and len(deleted) and len(inserted):
            # A table of one row at most has an empty key: all its rows are equal by a column of one value.
            keys = [rows.column(place) for place in self._key] or [pa.nulls(rows.num_rows, pa.int8())]
            hashes = content_hashes(keys)
            _, old, new = np.intersect1d(hashes[deleted], hashes[inserted], return_indices=True)
            before, after = deleted[old], inserted[new]
            same = equal_rows(*([key.take(pa.array(positions)) for key in keys] for positions in (before, after)))
            kinds[before[same]], kinds[after[same]] = UPDATE_BEFORE, UPDATE_AFTER
        return order, kinds

    @override
    def take(self) -> Batch | Watermark:
        return self._ready.popleft()

    @override
    def snapshot_state(self, context: SnapshotContext) -> None:
        # A source with a thread of its own may have given rows since ``before_barrier``.
        unsent: list[Any] = [(columns_of(item), weights_of(item)) for item in self._ready if isinstance(item, Batch)]
        self.operator_state.get_list_state(_HELD).update([*unsent, *self._held])
        super().snapshot_state(context)
