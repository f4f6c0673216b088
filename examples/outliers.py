"""Finds readings of sensors that are far above the mean of their sensor so far, by columns from end to end.

Run it with ``python examples/outliers.py``. 200,000 readings are made batch by batch; no Python code sees a single one
before it is found to be an outlier.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from firesteel.common import Types, WatermarkStrategy
from firesteel.datastream import StreamExecutionEnvironment
from firesteel.datastream.connectors.data_generator import DataGeneratorSource
from firesteel.expressions import avg, col, count, last

READING = Types.ROW_NAMED(["sensor", "celsius"], [Types.STRING(), Types.DOUBLE()])
READINGS = 200_000
SENSORS = 1000


def readings(start: int, stop: int) -> tuple[list[str], list[float]]:
    """Sensors and what they read; every 5000th reading or so is much too high."""
    number = np.arange(start, stop, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    sensor = (number >> np.uint64(40)) % np.uint64(SENSORS)
    celsius = 15.0 + ((number >> np.uint64(20)) % np.uint64(100)) / 10.0
    celsius[number % np.uint64(5003) == 0] += 40.0
    return [f"sensor {one}" for one in sensor.tolist()], celsius.tolist()


def make(start: int, count: int) -> pa.RecordBatch:
    """The same as columns."""
    sensors, celsius = readings(start, start + count)
    return pa.RecordBatch.from_pydict({"sensor": sensors, "celsius": celsius})


def main() -> None:
    """Runs the program."""
    env = StreamExecutionEnvironment.get_execution_environment()
    source = DataGeneratorSource.of_batches(make, READING, READINGS)
    stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "Readings")
    stream.set_parallelism(1)  # several would give the readings of a sensor in another order each time
    so_far = stream.key_by("sensor").aggregate(
        count().alias("n"), avg("celsius").alias("mean"), last("celsius").alias("celsius")
    )
    outliers = so_far.filter((col("n") > 20) & (col("celsius") > 2 * col("mean")))
    with outliers.execute_and_collect("outliers") as rows:
        found = sorted((row.sensor, row.n, row.celsius, round(row.mean, 1)) for row in rows)
    for sensor, n, celsius, mean in found[:5]:
        print(f"{sensor}: reading {n} is {celsius}, the mean is {mean}")
    print(f"{len(found)} outliers")


if __name__ == "__main__":
    main()
