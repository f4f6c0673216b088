"""``python -m benchmarks.unaligned_bench``: a checkpoint of a job under back-pressure, aligned and unaligned, in turn.

Two sources hand on numbers far faster than functions behind a rebalance take them (``--sleep-ms`` for each record), so
that all buffers are full when the checkpoint is asked for. Each run is a job of its own in one embedded cluster, which
is cancelled when the checkpoint is complete or ``--timeout`` has passed.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
import urllib.request
from typing import Any

from benchmarks import programs

from firesteel.common import WatermarkStrategy
from firesteel.datastream import MapFunction
from firesteel.datastream.connectors.number_seq import NumberSequenceSource
from firesteel.datastream.functions import SinkFunction


class Slow(MapFunction):  # type: ignore[type-arg]
    """Takes its time for each record."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def map(self, value: Any) -> Any:
        time.sleep(self.seconds)
        return value


class Nothing(SinkFunction[Any]):
    """Drops what it gets."""

    def invoke(self, value: Any, context: Any) -> None:
        pass


def _checkpoints(client: Any) -> dict[str, Any]:
    address = f"{client.get_web_interface_url()}/jobs/{client.get_job_id()}/checkpoints"
    with urllib.request.urlopen(address) as answer:
        told: dict[str, Any] = json.load(answer)
    return told


def _run(
    unaligned: bool, sleep: float, fill: float, timeout: float, parallelism: int, directory: str
) -> dict[str, Any]:
    options = {
        "rest.port": "0",
        "execution.checkpointing.dir": directory,
        "execution.checkpointing.interval": f"{round(fill * 1e3)} ms",
        "execution.checkpointing.timeout": f"{round(timeout * 1e3)} ms",
        "execution.checkpointing.unaligned.enabled": str(unaligned).lower(),
    }
    env = programs.environment(parallelism, options)
    numbers = env.from_source(NumberSequenceSource(0, 2**40), WatermarkStrategy.no_watermarks(), "numbers")
    numbers.rebalance().map(Slow(sleep)).add_sink(Nothing())
    client = env.execute_async("under back-pressure")
    deadline = time.monotonic() + fill + timeout + 30
    found: dict[str, Any] = {}
    while time.monotonic() < deadline and not found:
        time.sleep(0.05)
        told = _checkpoints(client)
        if told["counts"]["completed"] or told["counts"]["failed"]:
            found = told
    client.cancel().result()
    latest = found["latest"]["completed"] if found else None
    return {
        "unaligned": unaligned,
        "sleep_ms": sleep * 1e3,
        "seconds": latest and latest["end_to_end_duration"] / 1e3,
        "in_flight_kb": latest and round(latest["persisted_data"] / 1e3, 1),
    }


def main() -> None:
    """Print a line of JSON for each run; ``seconds`` is null where no checkpoint was complete in time."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sleep-ms", type=float, nargs="+", default=[1.0, 10.0], help="of a function for each record")
    parser.add_argument("--fill", type=float, default=5.0, help="seconds from the start to the checkpoint")
    parser.add_argument("--timeout", type=float, default=300.0, help="of a checkpoint, in seconds")
    parser.add_argument("--parallelism", type=int, default=2)
    parser.add_argument("--runs", type=int, default=1)
    given = parser.parse_args()
    for sleep in given.sleep_ms:
        for _ in range(given.runs):
            for unaligned in (True, False):
                with tempfile.TemporaryDirectory() as directory:
                    result = _run(unaligned, sleep / 1e3, given.fill, given.timeout, given.parallelism, directory)
                print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
