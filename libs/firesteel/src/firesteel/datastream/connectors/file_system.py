"""Files as source and sink."""

from __future__ import annotations

from firesteel.connectors.file_compaction import FileCompactor, FileCompactStrategy
from firesteel.connectors.file_format import BulkFormat, FileFormat, StreamFormat
from firesteel.connectors.file_layout import (
    BucketAssigner,
    DefaultRollingPolicy,
    OnCheckpointRollingPolicy,
    OutputFileConfig,
    OutputFileConfigBuilder,
    RollingPolicy,
)
from firesteel.connectors.file_sink import BulkFormatBuilder, FileSink, RowFormatBuilder
from firesteel.connectors.file_source import (
    FileEnumeratorProvider,
    FileSource,
    FileSourceBuilder,
    FileSplitAssignerProvider,
)
from firesteel.connectors.malformed import MalformedPolicy, MalformedRecord, MalformedRecords
from firesteel.connectors.malformed_output import MalformedToSideOutput

__all__ = [
    "BucketAssigner",
    "BulkFormat",
    "BulkFormatBuilder",
    "DefaultRollingPolicy",
    "FileCompactStrategy",
    "FileCompactor",
    "FileEnumeratorProvider",
    "FileFormat",
    "FileSink",
    "FileSource",
    "FileSourceBuilder",
    "FileSplitAssignerProvider",
    "MalformedPolicy",
    "MalformedRecord",
    "MalformedRecords",
    "MalformedToSideOutput",
    "OnCheckpointRollingPolicy",
    "OutputFileConfig",
    "OutputFileConfigBuilder",
    "RollingPolicy",
    "RowFormatBuilder",
    "StreamFormat",
]
