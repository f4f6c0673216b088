"""Keyed state in RocksDB, in real slots: all kinds, deaths, restores, and other parallelisms."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from firesteel.common import Encoder, Time, Types
from firesteel.datastream import (
    DataStream,
    EmbeddedRocksDBStateBackend,
    KeyedProcessFunction,
    MapFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from firesteel.datastream.connectors.file_system import FileSink
from firesteel.datastream.state import ListStateDescriptor, ValueStateDescriptor
from firesteel.datastream.window import EventTimeSessionWindows, TumblingEventTimeWindows
from tests.integration.embedded.programs import new_environment, state_of, until
from tests.integration.embedded.test_checkpoints import EXPECTED, program
from tests.integration.embedded.test_state import EVENT, EVENTS, Everything, collected, expected_of_everything, first
from tests.integration.embedded.test_windows import EVENTS as EVENTS_IN_TIME
from tests.integration.embedded.test_windows import MaxAndCount, timed

pytestmark = pytest.mark.usefixtures("cluster")
KEYS, NUMBERS = 50, 2000


def with_rocksdb(environment: StreamExecutionEnvironment) -> StreamExecutionEnvironment:
    environment.set_state_backend(EmbeddedRocksDBStateBackend())
    return environment


@pytest.mark.parametrize("parallelism", [1, 3])
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
    assert (tmp_path / "disk").is_dir()


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


@pytest.mark.parametrize(("before", "now"), [(2, 3), (3, 1)])
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
    (metadata,) = tmp_path.glob("*/chk-*/_metadata")
    needed = metadata.read_bytes()

    def shared() -> list[str]:
        return [path.name for path in metadata.parents[1].glob("shared/*")]

    until(lambda: all(name.encode() in needed for name in shared()), "files that nobody needs are removed")
    assert shared()
    rest = list(counted(now, tmp_path, execution__state_recovery__path=str(metadata.parent)).execute_and_collect())
    counts: dict[int, list[int]] = {}
    for kind, key, count in rest:
        if kind == "count":
            counts.setdefault(key, []).append(count)
    for key, found in counts.items():
        assert found == list(range(found[0], NUMBERS // KEYS + 1)), key
    assert min(found[0] for found in counts.values()) > 1, "the state of the first program is not there"
    seen = sorted((key, numbers) for kind, key, numbers in rest if kind == "seen")
    assert seen == [(key, tuple(range(key, NUMBERS, KEYS))) for key in range(KEYS)]


@pytest.mark.parametrize("parallelism", [1, 3])
def test_windows(parallelism: int) -> None:
    stream = timed(with_rocksdb(new_environment(parallelism)), EVENTS_IN_TIME).key_by(first)
    for window in (
        TumblingEventTimeWindows.of(Time.milliseconds(500)),
        EventTimeSessionWindows.with_gap(Time.milliseconds(20)),
    ):
        found = collected(stream.window(window).aggregate(MaxAndCount()))
        on_heap = timed(new_environment(parallelism), EVENTS_IN_TIME).key_by(first).window(window)
        assert found == collected(on_heap.aggregate(MaxAndCount()))
        assert len(found) > 50
        stream = timed(with_rocksdb(new_environment(parallelism)), EVENTS_IN_TIME).key_by(first)
