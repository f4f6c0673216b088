"""Base classes of sources and sinks; a program's own connectors derive from these."""

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
    ReaderInfo,
    SimpleVersionedSerializer,
    Source,
    SourceBatch,
    SourceReader,
    Split,
    SplitEnumerator,
    SplitEnumeratorContext,
    Wait,
)
from firesteel.functions.two_phase import (
    ALREADY_COMMITTED,
    COMMITTED,
    CommitOutcome,
    CommitResult,
    Committable,
    Committer,
    TwoPhaseCommitSink,
    TwoPhaseWriter,
    WriterState,
)

__all__ = [
    "ALREADY_COMMITTED",
    "COMMITTED",
    "END",
    "NEED_SPLITS",
    "AsyncSourceReader",
    "Boundedness",
    "Chunk",
    "CommitOutcome",
    "CommitResult",
    "Committable",
    "Committer",
    "DeliveryGuarantee",
    "EnumeratorSpec",
    "ReaderContext",
    "ReaderInfo",
    "SimpleVersionedSerializer",
    "Sink",
    "SinkWriter",
    "Source",
    "SourceBatch",
    "SourceReader",
    "Split",
    "SplitCursor",
    "SplitEnumerator",
    "SplitEnumeratorContext",
    "SplitQueueReader",
    "TwoPhaseCommitSink",
    "TwoPhaseWriter",
    "Wait",
    "WriterContext",
    "WriterState",
]
