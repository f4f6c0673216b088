"""Reads files through a format without a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa

from firesteel.connectors.file_format import BulkFormat, FileFormat, StreamFormat
from firesteel.connectors.file_source import FileSource, FileSourceBuilder
from firesteel.connectors.malformed import MalformedPolicy, MalformedRecords
from firesteel.functions.source import Split, Wait
from firesteel.runtime.records.rows import to_records


def builder_of(file_format: FileFormat, *paths: Path) -> FileSourceBuilder:
    if isinstance(file_format, BulkFormat):
        return FileSource.for_bulk_file_format(file_format, *paths)
    assert isinstance(file_format, StreamFormat)
    return FileSource.for_record_stream_format(file_format, *paths)


def read_split(
    file_format: FileFormat, split: Split, malformed: MalformedRecords, sizes: Sequence[int], restarts: Sequence[int]
) -> list[Any]:
    """All records of a split.

    Args:
        sizes: of the reads, in turn.
        restarts: after these reads the cursor is closed, and another one goes on at its position.
    """
    records: list[Any] = []
    cursor = file_format.open_cursor(split, malformed)
    turn = 0
    try:
        while True:
            chunk = cursor.read(sizes[turn % len(sizes)])
            if isinstance(chunk, Wait):
                continue
            values = chunk.values
            assert len(values) <= sizes[turn % len(sizes)]
            assert len(values) or chunk.finished
            plain = not isinstance(values, pa.RecordBatch)
            records += values if plain else to_records(values, file_format.produced_type())
            if chunk.finished:
                return records
            if turn in restarts:
                cursor.close()
                cursor = file_format.open_cursor(split.at(chunk.position), malformed)
            turn += 1
    finally:
        cursor.close()


def read_file(
    file_format: FileFormat,
    path: Path,
    cuts: Sequence[int] = (),
    *,
    policy: MalformedPolicy = MalformedPolicy.FAIL,
    sizes: Sequence[int] = (1000,),
    restarts: Sequence[int] = (),
) -> list[Any]:
    """The records of all ranges that the cuts make, in order."""
    size = path.stat().st_size
    bounds = sorted({0, size, *(cut for cut in cuts if cut < size)})
    malformed = MalformedRecords(policy)
    records: list[Any] = []
    for start, end in pairwise(bounds):
        split = Split(str(start), {"path": str(path), "start": start, "end": end})
        records += read_split(file_format, split, malformed, sizes, restarts)
    return records
