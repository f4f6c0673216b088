"""The same pipeline over a folder of old files, on Spark's stages, and over what comes live.

    python examples/backfill.py            the flights of examples/data, in runtime mode BATCH
    python examples/backfill.py --live     the same files as a stream that goes on: put further files beside them

The pipeline does not know which of the two it is: only the source and the runtime mode differ.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from firesteel.common import Duration, Types, WatermarkStrategy
from firesteel.datastream import DataStream, RuntimeExecutionMode, StreamExecutionEnvironment
from firesteel.datastream.connectors.file_system import FileSource, StreamFormat

DATA = Path(__file__).with_name("data")
ORIGIN, DESTINATION = 12, 13
"""Positions in a line."""
PER_ROUTE = Types.TUPLE([Types.STRING(), Types.INT()])


def per_route(lines: DataStream) -> DataStream:
    """How many flights each route has."""

    def route(line: str) -> tuple[str, int]:
        fields = line.split(",")
        return f"{fields[ORIGIN]}-{fields[DESTINATION]}", 1

    flights = lines.filter(lambda line: bool(line.strip()) and not line.startswith("year"))
    counted = flights.map(route, PER_ROUTE).name("Route").key_by(lambda pair: pair[0])
    return counted.reduce(lambda a, b: (a[0], a[1] + b[1])).name("Count")


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--live", action="store_true", help="as a stream without end")
    parser.add_argument("--folder", default=str(DATA), help="of the files")
    options = parser.parse_args()
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(2)
    files = FileSource.for_record_stream_format(StreamFormat.text_line_format(), options.folder)
    if options.live:
        files = files.monitor_continuously(Duration.of_seconds(5))
    else:
        env.set_runtime_mode(RuntimeExecutionMode.BATCH)
    lines = env.from_source(files.build(), WatermarkStrategy.no_watermarks(), "Flights")
    per_route(lines).print()
    env.execute("flights per route")


if __name__ == "__main__":
    main()
