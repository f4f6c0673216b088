"""Finds trains of delays: planes whose flights left late three times in a row, in event time, out of order.

Run it with ``python examples/late_flights.py``. The flights are made up from a seed, about two minutes of event time
out of order, as a feed of airports would give them.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any, NamedTuple

from firesteel.common import Duration, TimestampAssigner, Types, WatermarkStrategy
from firesteel.datastream import KeyedProcessFunction, OutputTag, RuntimeContext, StreamExecutionEnvironment
from firesteel.datastream.state import ValueStateDescriptor

MINUTE = 60_000
OUT_OF_ORDER = 2 * MINUTE
LONG = OutputTag("long delays", Types.PICKLED_BYTE_ARRAY())


class Departure(NamedTuple):
    """A flight that left."""

    plane: str
    time: int
    """Milliseconds of event time."""
    delay: int
    """Minutes."""


class ByDeparture(TimestampAssigner):
    """Event time is when the plane left."""

    def extract_timestamp(self, value: Departure, record_timestamp: int) -> int:
        return value.time


class DelayTrains(KeyedProcessFunction[str, Departure, str]):
    """Waits until event time has passed a departure, so that it sees each plane's departures in order."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.waiting = runtime_context.get_state(ValueStateDescriptor("waiting", Types.PICKLED_BYTE_ARRAY()))
        self.in_a_row = runtime_context.get_state(ValueStateDescriptor("in a row", Types.INT()))

    def process_element(
        self, value: Departure, ctx: KeyedProcessFunction.Context
    ) -> Iterator[tuple[OutputTag[Any], Departure]]:
        self.waiting.update([*(self.waiting.value() or ()), value])
        ctx.timer_service().register_event_time_timer(value.time)
        if value.delay > 180:
            yield LONG, value

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[str]:
        waiting = self.waiting.value() or []
        for departure in (one for one in waiting if one.time == timestamp):
            row = (self.in_a_row.value() or 0) + 1 if departure.delay > 15 else 0
            self.in_a_row.update(row)
            if row == 3:
                yield f"{departure.plane} left late three times in a row until minute {timestamp // MINUTE}"
        self.waiting.update([one for one in waiting if one.time > timestamp] or None)


def departures(count: int) -> list[Departure]:
    """So many departures, out of order."""
    rng = random.Random(2013)
    planes = [f"N{rng.randrange(100, 999)}" for _ in range(40)]
    made = [
        Departure(rng.choice(planes), number * MINUTE // 4, int(rng.expovariate(1 / 25)) - 10)
        for number in range(count)
    ]
    return sorted(made, key=lambda departure: departure.time + rng.randrange(OUT_OF_ORDER))


def main() -> None:
    """Runs the program."""
    env = StreamExecutionEnvironment.get_execution_environment()
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(OUT_OF_ORDER))
    flights = env.from_collection(departures(5000)).assign_timestamps_and_watermarks(
        strategy.with_timestamp_assigner(ByDeparture())
    )
    trains = flights.key_by(lambda departure: departure.plane).process(DelayTrains(), Types.STRING())
    long_delays = trains.get_side_output(LONG).map(
        lambda one: f"{one.plane} left {one.delay} minutes late", Types.STRING()
    )
    with trains.union(long_delays).execute_and_collect("delays") as lines:
        found = sorted(lines)
    for line in found[:10]:
        print(line)
    print(f"{len(found)} lines")


if __name__ == "__main__":
    main()
