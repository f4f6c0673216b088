"""Writes records in each format, and reads them back: CSV, JSON lines, Parquet.

The records are the functions of real source files: file, line, name, number of parameters.

Run it with ``python examples/formats.py FOLDER [FILE ...]``.
"""

from __future__ import annotations

import ast
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from firesteel.common import Encoder, Row, Types, WatermarkStrategy
from firesteel.datastream import DataStream, StreamExecutionEnvironment
from firesteel.datastream.connectors.file_system import FileSink, FileSource
from firesteel.datastream.formats.csv import CsvBulkWriters, CsvReaderFormat, CsvSchema
from firesteel.datastream.formats.json import JsonRowSerializationSchema
from firesteel.datastream.formats.parquet import ParquetBulkWriters, ParquetColumnarRowInputFormat
from firesteel.table import DataTypes

NAMES = ["file", "line", "name", "parameters"]
TYPE = Types.ROW_NAMED(NAMES, [Types.STRING(), Types.INT(), Types.STRING(), Types.INT()])
ROW_TYPE = DataTypes.ROW(
    [
        DataTypes.FIELD("file", DataTypes.STRING()),
        DataTypes.FIELD("line", DataTypes.INT()),
        DataTypes.FIELD("name", DataTypes.STRING()),
        DataTypes.FIELD("parameters", DataTypes.INT()),
    ]
)


def functions(paths: list[Path]) -> Iterator[Row]:
    """Of all files."""
    for path in paths:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef):
                yield Row(path.name, node.lineno, node.name, len(node.args.args))


def most_parameters(stream: DataStream) -> tuple[int, str]:
    """Of all functions, and how many there are."""
    with stream.execute_and_collect() as results:
        rows = list(results)
    return len(rows), max((row.parameters, row.name) for row in rows)[1]


def main(folder: Path, paths: list[Path]) -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    rows = env.from_collection(list(functions(paths)), TYPE)
    csv = CsvSchema.builder().add_string_column("file").add_number_column("line", DataTypes.INT())
    schema = csv.add_string_column("name").add_number_column("parameters", DataTypes.INT()).build()
    json = JsonRowSerializationSchema.builder().with_type_info(TYPE).build()

    rows.sink_to(FileSink.for_bulk_format(str(folder / "csv"), CsvBulkWriters.for_schema(schema)).build())
    rows.sink_to(FileSink.for_bulk_format(str(folder / "parquet"), ParquetBulkWriters.for_row_type(ROW_TYPE)).build())
    rows.sink_to(FileSink.for_row_format(str(folder / "json"), Encoder.of_schema(json)).build())
    env.execute("Write")

    sources = {
        "csv": FileSource.for_record_stream_format(CsvReaderFormat.for_schema(schema), str(folder / "csv")),
        "parquet": FileSource.for_bulk_file_format(ParquetColumnarRowInputFormat(ROW_TYPE), str(folder / "parquet")),
    }
    for name, builder in sources.items():
        stream = env.from_source(builder.process_static_file_set().build(), WatermarkStrategy.no_watermarks(), name)
        count, function = most_parameters(stream)
        print(f"{name}: {count} functions, {function} has the most parameters")
    lines = [line for path in (folder / "json").rglob("*") if path.is_file() for line in path.read_text().splitlines()]
    print(f"json: {len(lines)} lines")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("say below which folder to write: formats.py FOLDER [FILE ...]")
    library = Path(sysconfig.get_paths()["stdlib"])
    main(Path(sys.argv[1]), [Path(name) for name in sys.argv[2:]] or [library / "argparse.py", library / "csv.py"])
