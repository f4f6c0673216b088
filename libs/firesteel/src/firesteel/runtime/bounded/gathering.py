"""Gathers records before they are divided among many partitions, because small parts cost more than their records."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from firesteel.runtime.chain.partitioners import Output, Routed
from firesteel.runtime.records.batch import Batch, alike, merge
from firesteel.runtime.records.sizes import values_bytes

OF_A_PART: Final = 128
"""Records of a part, on average, for which records are gathered."""
MOST_BYTES: Final = 4 << 20
"""Bytes that are gathered at most, if records are large."""


class GatheringOutput(Output):
    """An edge whose records are routed many at a time. Columns are routed immediately, as their batches are large.

    Args:
        output: routes the records.

    Attributes:
        output: as given to the constructor.
    """

    def __init__(self, output: Output) -> None:
        super().__init__(output.name, output.channels)
        self.output = output
        self._most = OF_A_PART * len(output.channels)
        self._gathered: list[Batch] = []
        self._records = self._bytes = 0

    @property
    def takes_columns(self) -> bool:
        return self.output.takes_columns

    def route(self, batch: Batch) -> Routed:
        """Gather a batch; routes nothing, or all that was gathered if it is enough."""
        if isinstance(batch.values, pa.RecordBatch):
            return [*self.drain(), *self.output.route(batch)]
        routed = self.drain() if self._gathered and not alike(self._gathered[-1], batch) else ()
        self._gathered.append(batch)
        self._records += len(batch)
        self._bytes += values_bytes(batch.values)
        if self._records < self._most and self._bytes < MOST_BYTES:
            return routed
        return [*routed, *self.drain()]

    def drain(self) -> Routed:
        """Route all that was gathered."""
        gathered, self._gathered = self._gathered, []
        self._records = self._bytes = 0
        return list(self.output.route(merge(gathered))) if gathered else ()

    def close(self) -> None:
        self._gathered = []
