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
from firesteel.functions.sink import WriterContext
from firesteel.functions.two_phase import (
    CommitOutcome,
    CommitResult,
    Committer,
    TwoPhaseCommitSink,
    TwoPhaseWriter,
)
from tests.integration.embedded.programs import ended, new_environment, state_of, until
from tests.waiting import the_one_left

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


@pytest.mark.parametrize("how", [pytest.param("raise", marks=pytest.mark.long), "kill"])
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


def slow_numbers(directory: Path, **settings: str) -> DataStream:
    def wait(number: int) -> int:
        time.sleep(0.002)
        return number

    environment = new_environment(1, execution__checkpointing__dir=str(directory), **settings)
    environment.enable_checkpointing(50)
    return environment.from_sequence(0, 1999).map(wait)


def test_another_program_gets_the_results_that_come_behind_a_retained_checkpoint(tmp_path: Path) -> None:
    retention = {"execution__checkpointing__externalized_checkpoint_retention": "RETAIN_ON_CANCELLATION"}
    with slow_numbers(tmp_path, **retention).execute_and_collect() as results:
        first_results = [next(results) for _ in range(500)]
        job = results.get_job_client()
    until(lambda: state_of(job) == "CANCELED", "the end of the first program's job")
    metadata = the_one_left(lambda: tmp_path.glob("*/chk-*/_metadata"), "one checkpoint is left")
    rest = list(slow_numbers(tmp_path, execution__state_recovery__path=str(metadata.parent)).execute_and_collect())
    assert first_results == list(range(500))
    assert rest == list(range(rest[0], 2000))
    assert rest[0] > 0, "what the first program had said to have is not in the checkpoint"


class LateFailure(TwoPhaseCommitSink[Any]):
    """Fails at its last commit, once, when the program has had time to get all results."""

    def __init__(self, failed: Path) -> None:
        self.failed = failed

    def create_writer(self, context: WriterContext) -> TwoPhaseWriter[Any]:
        return AtTheEnd()

    def create_committer(self, context: WriterContext) -> Committer:
        return LateCommitter(self.failed)


class AtTheEnd(TwoPhaseWriter[Any]):
    def write(self, values: Any, timestamps: Any) -> None: ...

    def prepare_commit(self, *, end_of_input: bool) -> list[bytes]:
        return [b"all"] if end_of_input else []


class LateCommitter(Committer):
    def __init__(self, failed: Path) -> None:
        self.failed, self.calls = failed, 0

    def commit(self, committables: Any) -> list[CommitResult]:
        self.calls += len(committables)
        if self.failed.exists():
            return [CommitResult(CommitOutcome.COMMITTED)] * len(committables)
        if self.calls < 5:
            return [CommitResult(CommitOutcome.RETRY, "too early")] * len(committables)
        self.failed.touch()
        return [CommitResult(CommitOutcome.FAILED, "once")] * len(committables)


@pytest.mark.parametrize("checkpoints", [True, False])
def test_a_job_that_restarts_behind_its_last_result_ends(tmp_path: Path, checkpoints: bool) -> None:
    environment = new_environment(1, restart_strategy__type="fixed-delay", restart_strategy__fixed_delay__delay="50 ms")
    if checkpoints:
        environment.enable_checkpointing(3000)  # the last one has the results, and none comes behind it
    stream = environment.from_sequence(1, 10).rebalance()
    stream.sink_to(LateFailure(tmp_path / "failed"))
    with stream.map(str).execute_and_collect() as results:
        assert [next(results) for _ in range(10)] == [str(number) for number in range(1, 11)]
        assert list(results) == []  # without checkpoints, too: what is to be committed is stored first
        job = results.get_job_client()
    assert (tmp_path / "failed").exists()
    assert ended(job) == "FINISHED"
