"""Files as source and sink."""

from __future__ import annotations

from firesteel.connectors.file_layout import (
    BucketAssigner,
    OutputFileConfig,
    OutputFileConfigBuilder,
    RollingPolicy,
)
from firesteel.connectors.file_sink import FileSink, RowFormatBuilder
from firesteel.connectors.file_source import FileSource, FileSourceBuilder, StreamFormat

__all__ = [
    "BucketAssigner",
    "FileSink",
    "FileSource",
    "FileSourceBuilder",
    "OutputFileConfig",
    "OutputFileConfigBuilder",
    "RollingPolicy",
    "RowFormatBuilder",
    "StreamFormat",
]
