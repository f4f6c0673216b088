"""Checkpoints of a job under back-pressure: barriers overtake what is queued, and it counts once after a death."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from firesteel.common import Encoder, Types, WatermarkStrategy
from firesteel.datastream import MapFunction, RuntimeContext
from firesteel.datastream.connectors.file_system import FileSink
from firesteel.datastream.connectors.number_seq import NumberSequenceSource
from firesteel.functions.checkpointed import CheckpointListener
from tests.integration.embedded.programs import new_environment, rest_of
from tests.integration.embedded.test_checkpoints import EXPECTED, KEYS, RECORDS, CountByKey

pytestmark = pytest.mark.usefixtures("cluster")


class Slow(MapFunction, CheckpointListener):  # type: ignore[type-arg]
    """Takes its time for each record until two checkpoints are complete, then dies, once, and notes how many it had."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark
        self.completed = self.mapped = 0
        self.failed = False

    def open(self, runtime_context: RuntimeContext) -> None:
        self.failed = self.mark.exists()

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        self.completed += 1

    def map(self, value: Any) -> Any:
        if self.failed:
            return value
        self.mapped += 1
        time.sleep(0.01)
        if self.completed >= 2:
            self.mark.write_text(str(self.mapped))
            os.kill(os.getpid(), signal.SIGKILL)
        return value


class Blocking(Slow):
    blocking = True


@pytest.mark.parametrize("slow", [Slow, Blocking])
def test_checkpoints_do_not_wait_for_what_is_queued_and_it_counts_once(tmp_path: Path, slow: type[Slow]) -> None:
    mark = tmp_path / "mark"
    environment = new_environment(
        2,
        **{
            "execution.checkpointing.dir": str(tmp_path / "checkpoints"),
            "execution.checkpointing.interval": "100 ms",
            "execution.checkpointing.unaligned.enabled": "true",
            "restart-strategy.type": "fixed-delay",
            "restart-strategy.fixed-delay.attempts": "3",
            "restart-strategy.fixed-delay.delay": "50 ms",
        },
    )
    numbers = environment.from_source(
        NumberSequenceSource(0, RECORDS - 1), WatermarkStrategy.no_watermarks(), "numbers"
    )
    counted = numbers.rebalance().map(slow(mark)).key_by(lambda n: n % KEYS).process(CountByKey())
    out = FileSink.for_row_format(str(tmp_path / "out"), Encoder.simple_string_encoder()).build()
    counted.map(str, Types.STRING()).sink_to(out)
    job = environment.execute_async("slow")
    job.get_job_execution_result().result(120)
    files = [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
    assert Counter(line for path in files for line in path.read_text().split()) == EXPECTED
    assert int(mark.read_text()) < RECORDS / 2 / 3, "two checkpoints were complete long before what was queued"
    config = rest_of(job, "/checkpoints/config")
    assert config["unaligned_checkpoints"] is True
    restored = rest_of(job, "/checkpoints")["latest"]["restored"]
    assert restored["id"] >= 2
