"""Files as source and sink."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
from firesteel.connectors.file_sink import BulkFormatBuilder, FileSink, RowFormatBuilder, StreamingFileSink
from firesteel.connectors.file_source import (
    FileEnumeratorProvider,
    FileSource,
    FileSourceBuilder,
    FileSplitAssignerProvider,
)
from firesteel.connectors.malformed import MalformedPolicy, MalformedRecord, MalformedRecords
from firesteel.connectors.malformed_output import MalformedToSideOutput
from firesteel.core.pyflink_names import missing_names

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
    "StreamingFileSink",
]

if not TYPE_CHECKING:
    __getattr__ = missing_names(__name__)
