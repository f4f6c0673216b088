"""Jobs with checkpoints that fail and go on: what is visible, record by record."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from firesteel.common import Configuration, Encoder, Types, WatermarkStrategy
from firesteel.datastream import DataStream, KeyedProcessFunction, MapFunction, RuntimeContext
from firesteel.datastream.connectors.file_system import FileSink
from firesteel.datastream.connectors.number_seq import NumberSequenceSource
from firesteel.datastream.state import ValueStateDescriptor
from firesteel.functions.checkpointed import CheckpointListener
from tests.integration.embedded.programs import new_environment

pytestmark = pytest.mark.usefixtures("cluster")
KEYS, RECORDS = 7, 3000


class Trouble(MapFunction, CheckpointListener):  # type: ignore[type-arg]
    """Takes its time until two checkpoints are complete, then fails, once: a file remembers that it has."""

    def __init__(self, mark: Path, how: str) -> None:
        self.mark, self.how = mark, how
        self.completed = 0
        self.failed = False

    def open(self, runtime_context: RuntimeContext) -> None:
        self.failed = self.mark.exists()

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        self.completed += 1

    def map(self, value: Any) -> Any:
        if self.failed:
            return value
        time.sleep(0.01)
        if self.completed >= 2:
            self.mark.write_text(str(os.getpid()))
            if self.how == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            raise ValueError("once")
        return value


class CountByKey(KeyedProcessFunction[Any, Any, Any]):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: Any, ctx: Any) -> Any:
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        yield f"{value % KEYS},{count}"


def program(mark: Path, how: str, directory: Path, parallelism: int = 2) -> DataStream:
    environment = new_environment(parallelism)
    settings = Configuration()
    settings.set_string("execution.checkpointing.dir", str(directory))
    settings.set_string("restart-strategy.type", "fixed-delay")
    settings.set_string("restart-strategy.fixed-delay.attempts", "3")
    settings.set_string("restart-strategy.fixed-delay.delay", "50 ms")
    environment.configure(settings)
    environment.enable_checkpointing(100)
    numbers = environment.from_source(
        NumberSequenceSource(0, RECORDS - 1), WatermarkStrategy.no_watermarks(), "numbers"
    )
    keyed = numbers.map(Trouble(mark, how)).key_by(lambda n: n % KEYS)
    return keyed.process(CountByKey(), Types.STRING())


EXPECTED = Counter(f"{n % KEYS},{n // KEYS + 1}" for n in range(RECORDS))


@pytest.mark.parametrize("how", ["raise", "kill"])
def test_files_hold_each_record_once_over_a_restart(tmp_path: Path, how: str) -> None:
    stream = program(tmp_path / "mark", how, tmp_path / "checkpoints")
    sink = FileSink.for_row_format(str(tmp_path / "out"), Encoder.simple_string_encoder()).build()
    stream.sink_to(sink)
    result = stream.get_execution_environment().execute("files")
    assert result is not None
    assert (tmp_path / "mark").exists()
    files = [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
    assert [path for path in files if path.name.startswith(".")] == []
    assert Counter(line for path in files for line in path.read_text().split()) == EXPECTED


def test_results_for_the_client_are_not_repeated(tmp_path: Path) -> None:
    stream = program(tmp_path / "mark", "raise", tmp_path / "checkpoints")
    with stream.execute_and_collect() as results:
        assert Counter(results) == EXPECTED
    assert (tmp_path / "mark").exists()


def test_a_bounded_job_ends_without_checkpoints_after_tasks_have_finished(tmp_path: Path) -> None:
    (tmp_path / "mark").touch()  # nothing fails
    stream = program(tmp_path / "mark", "raise", tmp_path / "checkpoints")
    settings = Configuration()
    settings.set_string("execution.checkpointing.checkpoints-after-tasks-finish", "false")
    environment = stream.get_execution_environment()
    environment.configure(settings)
    stream.sink_to(FileSink.for_row_format(str(tmp_path / "out"), Encoder.simple_string_encoder()).build())
    result = environment.execute_async("files")
    assert result.get_job_execution_result().result(60) is not None
    files = [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
    assert [path for path in files if path.name.startswith(".")] == []
    assert Counter(line for path in files for line in path.read_text().split()) == EXPECTED
