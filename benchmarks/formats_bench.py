"""Processor time of a record in readers and writers of files: ``python -m benchmarks.formats_bench [records]``."""

from __future__ import annotations

import io
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from firesteel.common.typeinfo import Types
from firesteel.common.types import make_row
from firesteel.connectors.file_format import FileFormat
from firesteel.connectors.formats.csv_files import CsvBulkWriters, CsvReaderFormat
from firesteel.connectors.formats.csv_schema import CsvSchema
from firesteel.connectors.formats.json_rows import JsonLinesFormat, JsonRowSerializationSchema
from firesteel.connectors.formats.parquet_files import ParquetBulkWriters, ParquetColumnarRowInputFormat
from firesteel.connectors.malformed import MalformedRecords
from firesteel.functions.source import Split, Wait
from firesteel.runtime.records.columns import StreamColumns
from firesteel_formats.avro_files import AvroBulkWriters, AvroFormat
from firesteel_formats.avro_schema import AvroSchema

RUNS, AT_ONCE = 5, 2000
NAMES = ("id", "user", "price", "sold", "at")
ROW = Types.ROW_NAMED(
    list(NAMES), [Types.LONG(), Types.STRING(), Types.DOUBLE(), Types.BOOLEAN(), Types.SQL_TIMESTAMP()]
)
RECORD = AvroSchema(
    {
        "type": "record",
        "name": "Sale",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "user", "type": ["null", "string"]},
            {"name": "price", "type": "double"},
            {"name": "sold", "type": "boolean"},
        ],
    }
)


def _best(count: int, work: Callable[[], None]) -> int:
    """Nanoseconds a record of the quickest run."""
    times = []
    for _ in range(RUNS):
        before = time.process_time()
        work()
        times.append(time.process_time() - before)
    return round(min(times) / count * 1e9)


def _read(file_format: FileFormat, path: Path) -> None:
    cursor = file_format.open_cursor(
        Split("0", {"path": str(path), "start": 0, "end": os.path.getsize(path)}), MalformedRecords()
    )
    while isinstance(chunk := cursor.read(AT_ONCE), Wait) or not chunk.finished:
        pass
    cursor.close()


def main(count: int) -> None:
    """Print a line of JSON."""
    began = datetime(2026, 1, 1)
    rows = [
        make_row(NAMES, [i, f"user {i % 997}", i / 7, i % 2 == 0, began + timedelta(seconds=i)]) for i in range(count)
    ]
    dicts = [{"id": i, "user": f"user {i % 997}", "price": i / 7, "sold": i % 2 == 0} for i in range(count)]
    batch = StreamColumns(ROW).from_records(rows)
    lines = JsonRowSerializationSchema(ROW)
    csv, parquet = CsvBulkWriters(CsvSchema(ROW)), ParquetBulkWriters.for_row_type(ROW)
    avro = AvroBulkWriters(RECORD, "deflate")

    def write(factory: Any, records: list[Any], stream: Any) -> None:
        writer = factory.create(stream)
        for start in range(0, count, AT_ONCE):
            writer.write(records[start : start + AT_ONCE])
        writer.finish()

    def write_columns(factory: Any) -> None:
        writer = factory.create(io.BytesIO())
        for start in range(0, count, AT_ONCE):
            writer.write_columns(batch.slice(start, AT_ONCE))
        writer.finish()

    found: dict[str, int] = {}
    with tempfile.TemporaryDirectory() as folder:
        paths = {name: Path(folder) / name for name in ("csv", "json", "avro", "parquet")}
        for name, factory, records in (("csv", csv, rows), ("parquet", parquet, rows), ("avro", avro, dicts)):
            with paths[name].open("wb") as stream:
                write(factory, records, stream)
            found[f"{name}_written"] = _best(count, lambda f=factory, r=records: write(f, r, io.BytesIO()))  # type: ignore[misc]
        paths["json"].write_bytes(b"".join(lines.serialize(row) + b"\n" for row in rows))
        found["json_written"] = _best(count, lambda: _each(lines.serialize, rows))
        found["csv_written_columns"] = _best(count, lambda: write_columns(csv))
        found["parquet_written_columns"] = _best(count, lambda: write_columns(parquet))
        formats: dict[str, FileFormat] = {
            "csv": CsvReaderFormat(CsvSchema(ROW)),
            "json": JsonLinesFormat(ROW),
            "avro": AvroFormat(),
            "parquet": ParquetColumnarRowInputFormat(ROW),
        }
        for name, file_format in formats.items():
            found[f"{name}_read"] = _best(count, lambda n=name, f=file_format: _read(f, paths[n]))  # type: ignore[misc]
    print(json.dumps(dict(sorted(found.items()))))


def _each(work: Callable[[Any], Any], values: list[Any]) -> None:
    for value in values:
        work(value)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000)
