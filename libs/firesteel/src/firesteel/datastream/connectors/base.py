"""What sources and sinks are made of; a program's own derive from these."""

from __future__ import annotations

from firesteel.connectors.delivery import DeliveryGuarantee
from firesteel.connectors.split_reader import Chunk, SplitCursor, SplitQueueReader
from firesteel.functions.sink import Sink, SinkWriter, WriterContext
from firesteel.functions.source import (
    END,
    NEED_SPLITS,
    AsyncSourceReader,
    Boundedness,
    EnumeratorSpec,
    ReaderContext,
    Source,
    SourceBatch,
    SourceReader,
    Split,
    Wait,
)

__all__ = [
    "END",
    "NEED_SPLITS",
    "AsyncSourceReader",
    "Boundedness",
    "Chunk",
    "DeliveryGuarantee",
    "EnumeratorSpec",
    "ReaderContext",
    "Sink",
    "SinkWriter",
    "Source",
    "SourceBatch",
    "SourceReader",
    "Split",
    "SplitCursor",
    "SplitQueueReader",
    "Wait",
    "WriterContext",
]
