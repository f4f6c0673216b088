"""CSV files to Parquet: typed columns, a folder for each carrier, and what can't be read beside them.

python examples/recipes/csv_to_parquet.py --output /tmp/flights
"""

from __future__ import annotations

import argparse
import datetime
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

from firesteel.common import Duration, Encoder, Row, Types, WatermarkStrategy
from firesteel.datastream import OutputTag, ProcessFunction, RuntimeExecutionMode, StreamExecutionEnvironment
from firesteel.datastream.connectors.file_system import (
    BucketAssigner,
    FileSink,
    FileSource,
    MalformedPolicy,
    MalformedRecord,
    OutputFileConfig,
    RollingPolicy,
)
from firesteel.datastream.formats.csv import CsvReaderFormat, CsvSchema
from firesteel.datastream.formats.parquet import ParquetBulkWriters

CSV = (
    CsvSchema.builder()
    .add_string_column("carrier")
    .add_number_column("flight", Types.INT())
    .add_string_column("origin")
    .add_string_column("dest")
    .add_number_column("dep_delay", Types.INT())
    .add_string_column("time_hour")
    .set_use_header()  # columns are found by their names; those that are not named here are left out
    .set_null_value("NA")
    .build()
)
FLIGHT = Types.ROW_NAMED(
    ["carrier", "flight", "origin", "dest", "delay", "hour"],
    [Types.STRING(), Types.INT(), Types.STRING(), Types.STRING(), Types.INT(), Types.SQL_TIMESTAMP()],
)
BAD = OutputTag("bad", Types.STRING())


class Convert(ProcessFunction[Any, Row]):
    """A flight with its time as a time; what has no carrier, or no time, goes aside with the reason."""

    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Iterator[Any]:
        if isinstance(value, MalformedRecord):  # the reader could not make a row of it
            yield BAD, f"{value.path}, byte {value.offset}: {value.reason}"
            return
        try:
            hour = datetime.datetime.fromisoformat(value.time_hour or "").astimezone(datetime.UTC).replace(tzinfo=None)
        except ValueError:
            yield BAD, f"no time: {value}"
            return
        if value.carrier is None:
            yield BAD, f"no carrier: {value}"
        else:
            yield Row(value.carrier, value.flight, value.origin, value.dest, value.dep_delay, hour)


def build(env: StreamExecutionEnvironment, source: str, output: Path, *, follow: bool = False) -> None:
    """The program."""
    files = FileSource.for_record_stream_format(CsvReaderFormat.for_schema(CSV), source)
    files.on_malformed(MalformedPolicy.EMIT)
    if follow:
        files.monitor_continuously(Duration.of_seconds(1))
    read = env.from_source(files.build(), WatermarkStrategy.no_watermarks(), "flights").uid("flights")
    flights = read.process(Convert(), FLIGHT).name("convert")
    parquet = (
        FileSink.for_bulk_format(str(output / "flights"), ParquetBulkWriters.for_row_type(FLIGHT))
        # as Hive, Spark, DuckDB and pyarrow.dataset name partitions; a carrier may hold anything, a folder may not
        .with_bucket_assigner(BucketAssigner(lambda row, now: f"carrier={quote(row.carrier, safe='')}"))
        .with_output_file_config(OutputFileConfig.builder().with_part_suffix(".parquet").build())
    )
    flights.sink_to(parquet.build()).name("Parquet").uid("parquet")
    lines = FileSink.for_row_format(str(output / "bad"), Encoder.simple_string_encoder())
    lines.with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
    lines.with_rolling_policy(RollingPolicy.on_checkpoint_rolling_policy())
    flights.get_side_output(BAD).sink_to(lines.build()).uid("bad")


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--input", default=str(Path(__file__).parents[1] / "data" / "flights.csv"), help="file or folder"
    )
    parser.add_argument("--output", type=Path, required=True, help="folder")
    parser.add_argument("--follow", action="store_true", help="without an end: convert each file that comes")
    options = parser.parse_args()
    env = StreamExecutionEnvironment.get_execution_environment()
    if options.follow:
        env.enable_checkpointing(60_000)  # a file of Parquet is complete, and visible, at each
    else:
        env.set_runtime_mode(RuntimeExecutionMode.BATCH)
    build(env, options.input, options.output, follow=options.follow)
    env.execute("CSV to Parquet")


if __name__ == "__main__":
    main()
