"""Keyed state in RocksDB, in real slots: all kinds, deaths, restores, and other parallelisms."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from firesteel.common import Encoder, Row, Time, Types
from firesteel.datastream import (
    DataStream,
    EmbeddedRocksDBStateBackend,
    KeyedProcessFunction,
    MapFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from firesteel.datastream.connectors.file_system import FileSink
from firesteel.datastream.functions import KeyedBatchFunction
from firesteel.datastream.state import ListStateDescriptor, ValueStateDescriptor
from firesteel.datastream.window import EventTimeSessionWindows, TumblingEventTimeWindows
from firesteel.expressions import count
from tests.integration.embedded.programs import new_environment, state_of, until
from tests.integration.embedded.test_checkpoints import EXPECTED, Trouble, program
from tests.integration.embedded.test_state import EVENT, EVENTS, Everything, collected, expected_of_everything, first
from tests.integration.embedded.test_windows import EVENTS as EVENTS_IN_TIME
from tests.integration.embedded.test_windows import MaxAndCount, timed
from tests.waiting import the_one_left

pytestmark = pytest.mark.usefixtures("cluster")
KEYS, NUMBERS = 50, 2000


def with_rocksdb(environment: StreamExecutionEnvironment) -> StreamExecutionEnvironment:
    environment.set_state_backend(EmbeddedRocksDBStateBackend())
    return environment


@pytest.mark.parametrize("parallelism", [pytest.param(1, marks=pytest.mark.long), 3])
def test_all_kinds_of_keyed_state(parallelism: int) -> None:
    environment = with_rocksdb(new_environment(parallelism))
    events = environment.from_collection(EVENTS, EVENT)
    assert collected(events.key_by(first).process(Everything())) == expected_of_everything()


@pytest.mark.parametrize("how", ["raise", "kill"])
def test_files_hold_each_record_once_over_a_restart(tmp_path: Path, how: str) -> None:
    stream = program(tmp_path / "mark", how, tmp_path / "checkpoints")
    disk = EmbeddedRocksDBStateBackend(enable_incremental_checkpointing=True)
    disk.set_db_storage_paths(str(tmp_path / "disk"))
    stream.get_execution_environment().set_state_backend(disk)
    sink = FileSink.for_row_format(str(tmp_path / "out"), Encoder.simple_string_encoder()).build()
    stream.sink_to(sink)
    result = stream.get_execution_environment().execute("files")
    assert result is not None
    assert (tmp_path / "mark").exists()
    files = [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
    assert Counter(line for path in files for line in path.read_text().split()) == EXPECTED
    until(lambda: not list((tmp_path / "disk").iterdir()), "local files of all attempts are removed")


class LateTrouble(Trouble):
    """The same when there is more state than fits into memory: only late numbers take time, and not all of them."""

    def map(self, value: Any) -> Any:
        if value < LATE:
            self.completed = 0
        return row_of(value if value < LATE or value % 20 else super().map(value))


LATE, MANY = 25_000, 40_000
PAIR = Types.ROW_NAMED(["key", "number"], [Types.LONG(), Types.LONG()])
COUNTED = Types.ROW_NAMED(["key", "n"], [Types.LONG(), Types.LONG()])


def row_of(number: int) -> Row:
    return Row(key=number % (MANY // 2) * 7919, number=number)


class CountBatches(KeyedBatchFunction):
    """The number of records of each key so far; no key is twice in a batch of few numbers."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count: Any = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_batch(self, batch: pa.RecordBatch, ctx: Any) -> pa.RecordBatch:
        counts = pc.add(self.count.get(ctx.keys).fill_null(0), 1)
        self.count.put(ctx.keys, counts)
        return pa.RecordBatch.from_pydict({"key": batch["key"], "n": counts})


@pytest.mark.parametrize(
    ("kind", "how"), [("aggregate", "kill"), pytest.param("function", "raise", marks=pytest.mark.long)]
)
def test_columns_larger_than_memory_count_each_record_once_over_a_restart(tmp_path: Path, kind: str, how: str) -> None:
    settings = {
        "restart_strategy__type": "fixed-delay",
        "restart_strategy__fixed_delay__attempts": "3",
        "restart_strategy__fixed_delay__delay": "50 ms",
        "execution__checkpointing__dir": str(tmp_path / "checkpoints"),
        "execution__checkpointing__incremental": "true",
        "state__backend__rocksdb__memory__fixed_per_slot": "1 mb",
    }
    environment = with_rocksdb(new_environment(2, **settings))
    environment.enable_checkpointing(100)
    numbers = environment.from_sequence(0, MANY - 1).set_parallelism(1).uid("numbers")
    rows = numbers.map(LateTrouble(tmp_path / "mark", how), PAIR).set_parallelism(1).uid("trouble").key_by("key")
    if kind == "aggregate":
        counted = rows.aggregate(count().alias("n"))
    else:
        counted = rows.process_batches(CountBatches(), COUNTED)
    with counted.execute_and_collect() as results:
        totals = Counter((row.key, row.n) for row in results)
    assert (tmp_path / "mark").exists()
    assert totals == Counter((key * 7919, n) for key in range(MANY // 2) for n in (1, 2))


class Seen(KeyedProcessFunction[Any, Any, Any]):
    """Gives how many records of its key there were, and, from a timer, all of them when the input has ended."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.seen = runtime_context.get_list_state(ListStateDescriptor("seen", Types.LONG()))
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: Any, ctx: Any) -> Any:
        self.seen.add(value)
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        ctx.timer_service().register_event_time_timer(2**62)
        yield "count", value % KEYS, count

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        yield "seen", ctx.get_current_key(), tuple(self.seen.get())


class Slowly(MapFunction):  # type: ignore[type-arg]
    def map(self, value: Any) -> Any:
        time.sleep(0.002)
        return value


def counted(parallelism: int, directory: Path, **settings: str) -> DataStream:
    environment = with_rocksdb(new_environment(parallelism, execution__checkpointing__dir=str(directory), **settings))
    environment.set_max_parallelism(16)
    environment.enable_checkpointing(50)
    numbers = environment.from_sequence(0, NUMBERS - 1).set_parallelism(1).uid("numbers")
    slowly = numbers.map(Slowly()).set_parallelism(1).uid("slowly")
    return slowly.key_by(lambda n: n % KEYS).process(Seen()).uid("seen")


@pytest.mark.parametrize(("before", "now"), [(2, 3), pytest.param(3, 1, marks=pytest.mark.long)])
def test_another_parallelism_goes_on_from_a_retained_checkpoint(tmp_path: Path, before: int, now: int) -> None:
    settings = {
        "execution__checkpointing__externalized_checkpoint_retention": "RETAIN_ON_CANCELLATION",
        "execution__checkpointing__incremental": "true",
        "execution__checkpointing__data_inline_threshold": "0",
    }
    with counted(before, tmp_path, **settings).execute_and_collect() as results:
        for _ in range(500):
            next(results)
        job = results.get_job_client()
    until(lambda: state_of(job) == "CANCELED", "the end of the first program's job")
    metadata = the_one_left(lambda: tmp_path.glob("*/chk-*/_metadata"), "one checkpoint is left")
    needed = metadata.read_bytes()

    def shared() -> list[str]:
        return [path.name for path in metadata.parents[1].glob("shared/*")]

    until(lambda: all(name.encode() in needed for name in shared()), "files that nobody needs are removed")
    assert shared()
    rest = list(counted(now, tmp_path, execution__state_recovery__path=str(metadata.parent)).execute_and_collect())
    counts: dict[int, list[int]] = {}
    for kind, key, number in rest:
        if kind == "count":
            counts.setdefault(key, []).append(number)
    for key, numbers_seen in counts.items():
        assert numbers_seen == list(range(numbers_seen[0], NUMBERS // KEYS + 1)), key
    assert min(numbers[0] for numbers in counts.values()) > 1, "the state of the first program is not there"
    seen = sorted((key, numbers) for kind, key, numbers in rest if kind == "seen")
    assert seen == [(key, tuple(range(key, NUMBERS, KEYS))) for key in range(KEYS)]


@pytest.mark.parametrize("parallelism", [pytest.param(1, marks=pytest.mark.long), 3])
def test_windows(parallelism: int) -> None:
    stream = timed(with_rocksdb(new_environment(parallelism)), EVENTS_IN_TIME).key_by(first)
    for window in (
        TumblingEventTimeWindows.of(Time.milliseconds(500)),
        EventTimeSessionWindows.with_gap(Time.milliseconds(20)),
    ):
        results_on_disk = collected(stream.window(window).aggregate(MaxAndCount()))
        on_heap = timed(new_environment(parallelism), EVENTS_IN_TIME).key_by(first).window(window)
        assert results_on_disk == collected(on_heap.aggregate(MaxAndCount()))
        assert len(results_on_disk) > 50
        stream = timed(with_rocksdb(new_environment(parallelism)), EVENTS_IN_TIME).key_by(first)
