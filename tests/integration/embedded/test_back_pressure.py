"""A sink that is slower than its source, over ten million records."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from firesteel.common import WatermarkStrategy
from firesteel.datastream.connectors.base import Sink, SinkWriter, WriterContext
from firesteel.datastream.connectors.data_generator import DataGeneratorSource
from tests.integration.embedded.programs import family, new_environment, proportional, rest_of, running

pytestmark = [pytest.mark.usefixtures("cluster"), pytest.mark.long, pytest.mark.timeout(900)]

RECORDS = 10_000_000
PER_SECOND = 400_000
"""Of the sink; the source alone makes more than a million."""
MIB = 1 << 20


class Throttled(Sink[str]):
    """Takes so many records a second, and at the end writes how many there were and what their lengths sum up to."""

    def __init__(self, report: Path) -> None:
        self.report = report

    def create_writer(self, context: WriterContext) -> SinkWriter[str]:
        return ThrottledWriter(self.report)


class ThrottledWriter(SinkWriter[str]):
    blocking = True

    def __init__(self, report: Path) -> None:
        self.report = report
        self.count = self.total = 0
        self.began = 0.0

    def open(self) -> None:
        self.began = time.monotonic()

    def write(self, values: Sequence[str], timestamps: Sequence[int] | None) -> None:
        self.count += len(values)
        self.total += sum(map(int, values))
        time.sleep(max(0.0, self.began + self.count / PER_SECOND - time.monotonic()))

    def finish(self) -> list[Any]:
        self.report.write_text(f"{self.count} {self.total}")
        return []


@pytest.mark.parametrize("where", ["in another slot", "in the same slot"])
def test_a_slow_sink_slows_the_source_and_memory_stays_flat(where: str, tmp_path: Path) -> None:
    report = tmp_path / "report"
    env = new_environment(1)
    # broken back-pressure would pile up about a hundred bytes for each record
    source = DataGeneratorSource(lambda i: f"{i:064d}", RECORDS)
    stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "fast").disable_chaining()
    sink = stream.sink_to(Throttled(report)).name("slow")
    if where == "in another slot":
        sink.slot_sharing_group("slow")
    job = env.execute_async()
    running(job)
    slots = [slot.pid for slot in family(os.getpid())["slot"]]
    assert len(slots) == (2 if where == "in another slot" else 1)
    sizes: list[int] = []
    while (details := rest_of(job))["state"] == "RUNNING":
        sizes.append(sum(map(proportional, slots)))
        time.sleep(0.1)  # the pace of the samples
    assert details["state"] == "FINISHED"
    assert report.read_text() == f"{RECORDS} {RECORDS * (RECORDS - 1) // 2}"
    assert len(sizes) > 20, "too few samples to judge"
    assert max(sizes) < sizes[0] + 24 * MIB, [size // MIB for size in sizes]
    assert details["vertices"][0]["metrics"]["accumulated-backpressured-time"] > 1000
