"""Records are gathered before they are divided among very many partitions: a part of a handful of records costs more to
handle than its records do."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from firesteel.runtime.chain.partitioners import Output, Routed
from firesteel.runtime.records.batch import Batch, alike, merge
from firesteel.runtime.records.sizes import values_bytes

OF_A_PART: Final = 128
"""Records that a part has on average, if they are no large ones."""
MOST_BYTES: Final = 4 << 20
"""About so many are held at most."""


class GatheringOutput(Output):
    """An edge whose records are divided many at a time. Columns are not held up: their batches are large.

    Args:
        output: chooses the channels.

    Attributes:
        output: the same.
    """

    def __init__(self, output: Output) -> None:
        super().__init__(output.name, output.channels)
        self.output = output
        self._most = OF_A_PART * len(output.channels)
        self._held: list[Batch] = []
        self._records = self._bytes = 0

    @property
    def takes_columns(self) -> bool:
        return self.output.takes_columns

    def route(self, batch: Batch) -> Routed:
        """Nothing, or what was held so far."""
        if isinstance(batch.values, pa.RecordBatch):
            return [*self.drain(), *self.output.route(batch)]
        before = self.drain() if self._held and not alike(self._held[-1], batch) else ()
        self._held.append(batch)
        self._records += len(batch)
        self._bytes += values_bytes(batch.values)
        if self._records < self._most and self._bytes < MOST_BYTES:
            return before
        return [*before, *self.drain()]

    def drain(self) -> Routed:
        """All that is held."""
        held, self._held = self._held, []
        self._records = self._bytes = 0
        return list(self.output.route(merge(held))) if held else ()

    def close(self) -> None:
        self._held = []
