"""Programs in batch mode, on Spark's stages; the same ones as streams."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from firesteel.common import Encoder, Row, Time, TimestampAssigner, Types, WatermarkStrategy
from firesteel.core.errors import UserFunctionError
from firesteel.datastream import DataStream, KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from firesteel.datastream.connectors.file_system import FileSink, FileSource, StreamFormat
from firesteel.datastream.state import ValueStateDescriptor
from firesteel.datastream.window import EventTimeSessionWindows, TumblingEventTimeWindows
from firesteel.expressions import sum_
from tests import tpch
from tests.integration.embedded.programs import ended, new_environment, rest_of

pytestmark = pytest.mark.usefixtures("cluster")
PAIR = Types.TUPLE([Types.STRING(), Types.INT()])
RECORDS = [(f"k{i % 7}", i) for i in range(500)]


class Seconds(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value[1]) * 1000


TIMED = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Seconds())


def environment(mode: str, parallelism: int = 2) -> StreamExecutionEnvironment:
    return new_environment(parallelism, execution__runtime_mode=mode)


def pairs(env: StreamExecutionEnvironment) -> DataStream:
    return env.from_collection(RECORDS, PAIR)


class Summing(KeyedProcessFunction[Any, Any, Any]):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.sum = runtime_context.get_state(ValueStateDescriptor("sum", Types.LONG()))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        self.sum.update((self.sum.value() or 0) + value[1])
        ctx.timer_service().register_event_time_timer(10**12)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Any:
        yield ctx.get_current_key(), self.sum.value()


def timers(env: StreamExecutionEnvironment) -> DataStream:
    keyed = pairs(env).assign_timestamps_and_watermarks(TIMED).key_by(lambda p: p[0])
    return keyed.process(Summing(), PAIR)


def windows(env: StreamExecutionEnvironment) -> DataStream:
    keyed = pairs(env).assign_timestamps_and_watermarks(TIMED).key_by(lambda p: p[0])
    return keyed.window(TumblingEventTimeWindows.of(Time.seconds(60))).reduce(lambda a, b: (a[0], a[1] + b[1]))


def sessions(env: StreamExecutionEnvironment) -> DataStream:
    keyed = pairs(env).filter(lambda p: p[1] % 100 < 50).assign_timestamps_and_watermarks(TIMED).key_by(lambda p: p[0])
    return keyed.window(EventTimeSessionWindows.with_gap(Time.seconds(20))).reduce(lambda a, b: (a[0], a[1] + b[1]))


def unions(env: StreamExecutionEnvironment) -> DataStream:
    numbers = env.from_sequence(1, 50).map(lambda i: ("n", i), PAIR)
    return pairs(env).union(numbers).rebalance().map(lambda p: (p[0], 2 * p[1]), PAIR)


def columns(env: StreamExecutionEnvironment) -> DataStream:
    row = Types.ROW_NAMED(["k", "n"], [Types.STRING(), Types.LONG()])
    rows = env.from_collection([Row(k=k, n=n) for k, n in RECORDS], row).assign_timestamps_and_watermarks(TIMED)
    windowed = rows.key_by("k").window(TumblingEventTimeWindows.of(Time.seconds(100)))
    return windowed.aggregate(sum_("n")).map(lambda r: (r[0], r[-1]), PAIR)


def running(env: StreamExecutionEnvironment) -> DataStream:
    row = Types.ROW_NAMED(["k", "n"], [Types.STRING(), Types.LONG()])
    rows = env.from_collection([Row(k=k, n=n) for k, n in RECORDS], row)
    return rows.key_by("k").aggregate(sum_("n")).map(lambda r: (r[0], r[-1]), PAIR)


LONG = pytest.mark.long


@pytest.mark.parametrize(
    "program",
    [timers, pytest.param(windows, marks=LONG), pytest.param(sessions, marks=LONG), pytest.param(unions, marks=LONG)],
)
def test_the_same_program_gives_the_same_in_both_modes(
    program: Callable[[StreamExecutionEnvironment], DataStream],
) -> None:
    by_mode = {mode: sorted(program(environment(mode)).execute_and_collect()) for mode in ("BATCH", "STREAMING")}
    assert by_mode["BATCH"] == by_mode["STREAMING"]
    assert by_mode["BATCH"]


def count_words(env: StreamExecutionEnvironment, source: Path, target: Path, refuse: bool = False) -> Any:
    def shown(pair: Any) -> str:
        print("shown", pair[0])
        if refuse and pair[0] == "w7":
            raise ValueError("w7 is refused")
        return f"{pair[0]} {pair[1]}"

    lines = FileSource.for_record_stream_format(StreamFormat.text_line_format(), str(source)).build()
    stream = env.from_source(lines, WatermarkStrategy.no_watermarks(), "lines")
    counts = stream.map(lambda word: (word, 1), PAIR).key_by(lambda p: p[0]).reduce(lambda a, b: (a[0], a[1] + b[1]))
    sink = FileSink.for_row_format(str(target), Encoder.simple_string_encoder()).build()
    counts.map(shown, Types.STRING()).sink_to(sink)
    return env.execute_async("count words")


def visible(folder: Path) -> list[str]:
    files = [path for path in folder.rglob("*") if path.is_file() and not path.name.startswith((".", "_"))]
    return sorted(line for path in files for line in path.read_text().splitlines())


def test_files_are_read_and_committed_once_though_a_worker_dies(tmp_path: Path) -> None:
    """Also what people see of it."""
    source, target, killed = tmp_path / "in", tmp_path / "out", tmp_path / "killed"
    source.mkdir()
    for number in range(3):
        (source / f"{number}.txt").write_text("".join(f"w{i % 11}\n" for i in range(1100)))
    env = environment("BATCH")

    def dies_once(pair: Any) -> Any:
        if pair[0] == "w3" and not killed.exists():
            killed.touch()
            os.kill(os.getpid(), 9)
        return f"{pair[0]} {pair[1]}"

    lines = FileSource.for_record_stream_format(StreamFormat.text_line_format(), str(source)).build()
    stream = env.from_source(lines, WatermarkStrategy.no_watermarks(), "lines")
    counts = stream.map(lambda word: (word, 1), PAIR).key_by(lambda p: p[0]).reduce(lambda a, b: (a[0], a[1] + b[1]))
    sink = FileSink.for_row_format(str(target), Encoder.simple_string_encoder()).build()
    counts.map(dies_once, Types.STRING()).sink_to(sink)
    job = env.execute_async("count words")
    assert ended(job) == "FINISHED"
    assert killed.exists()
    assert visible(target) == sorted(f"w{i} 300" for i in range(11))
    details = rest_of(job)
    assert details["job-type"] == "BATCH"
    assert details["plan"]["type"] == "BATCH"
    assert details["plan"]["nodes"][1]["inputs"][0]["exchange"] == "blocking"
    assert [vertex["metrics"]["read-records"] for vertex in details["vertices"]][-1] == 3300
    assert {vertex["status"] for vertex in details["vertices"]} == {"FINISHED"}


def test_nothing_is_visible_of_a_job_that_fails_and_its_author_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, target = tmp_path / "in", tmp_path / "out"
    source.mkdir()
    (source / "0.txt").write_text("".join(f"w{i % 11}\n" for i in range(1100)))
    job = count_words(environment("BATCH"), source, target, refuse=True)
    with pytest.raises(UserFunctionError, match=r"(?s)'Map'.*ValueError: w7 is refused.*record \('w7', 100\)"):
        job.get_job_execution_result().result()
    assert visible(target) == []
    assert "shown w7\n" in capsys.readouterr().out, "what its functions have printed"
    again = count_words(environment("AUTOMATIC"), source, target)
    again.get_job_execution_result().result()
    assert visible(target) == sorted(f"w{i} 100" for i in range(11))
    assert sorted(capsys.readouterr().out.splitlines()) == sorted(f"shown w{i}" for i in range(11))


@LONG
def test_columns_go_through_sparks_shuffle() -> None:
    by_mode = {mode: sorted(columns(environment(mode)).execute_and_collect()) for mode in ("BATCH", "STREAMING")}
    assert by_mode["BATCH"] == by_mode["STREAMING"]
    assert by_mode["BATCH"]
    sums = {key: sum(n for k, n in RECORDS if k == key) for key, _ in RECORDS}
    assert dict(running(environment("BATCH")).execute_and_collect()) == sums


@LONG
def test_a_job_is_cancelled_and_leaves_the_cluster_as_it_was() -> None:
    env = environment("BATCH")

    def waits(pair: Any) -> Any:
        import time

        time.sleep(600)
        return pair

    pairs(env).map(waits, PAIR).print()
    job = env.execute_async("waits")
    from tests.integration.embedded.programs import until

    until(lambda: rest_of(job)["vertices"][0]["status"] == "RUNNING", "the stage runs")
    job.cancel().result()
    assert ended(job) == "CANCELED"
    assert len(list(unions(environment("BATCH")).execute_and_collect())) == 550


class Largest(KeyedProcessFunction[Any, Any, Any]):
    """Gives what each record has, and at its end how large this process has become, in bytes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        yield value[0], len(value[1])

    def close(self) -> None:
        import resource

        largest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
        (self.folder / f"largest-{os.getpid()}").write_text(str(largest))


@LONG
def test_key_groups_that_are_larger_than_memory_lie_in_files(tmp_path: Path) -> None:
    """Two key groups of 130 MB each, one in each task: as Python objects these are more than half a GB.

    ``FIRESTEEL_TEST_RECORDS=20000000`` makes it ten times as much: then more than ten times what both slots may take.
    """
    count, text = int(os.environ.get("FIRESTEEL_TEST_RECORDS", 2_000_000)), 100
    env = environment("BATCH").set_max_parallelism(2)
    pairs = env.from_sequence(1, count).map(lambda i: (i, f"{i:0{text}}"), Types.TUPLE([Types.LONG(), Types.STRING()]))
    sizes = pairs.key_by(lambda p: p[0]).process(Largest(tmp_path), Types.TUPLE([Types.LONG(), Types.LONG()]))
    sums = sizes.key_by(lambda p: 0).reduce(lambda a, b: (a[0] + b[0], a[1] + b[1]))
    sums.map(lambda pair: f"{pair[0]} {pair[1]}", Types.STRING()).sink_to(
        FileSink.for_row_format(str(tmp_path / "out"), Encoder.simple_string_encoder()).build()
    )
    job = env.execute_async("large groups")
    assert ended(job, 100 + count / 20_000) == "FINISHED"
    assert visible(tmp_path / "out") == [f"{count * (count + 1) // 2} {count * text}"]
    vertices = rest_of(job)["vertices"]
    grouped = next(vertex for vertex in vertices if "KEYED" in vertex["name"])
    spilled = rest_of(job, f"/vertices/{grouped['id']}/subtasks/metrics?get=numBytesSpilled&agg=sum")
    assert spilled[0]["sum"] > 50 * count
    largest = [int(path.read_text()) for path in tmp_path.glob("largest-*")]
    print(f"{spilled[0]['sum'] / 1e6:,.0f} MB spilled, processes of at most {max(largest, default=0) / 1e6:,.0f} MB")
    assert largest
    assert max(largest) < 500_000_000


@LONG
@pytest.mark.parametrize("name", tpch.QUERIES)
def test_queries_over_a_gigabyte_give_what_a_database_gives(name: str, tmp_path: Path) -> None:
    """What is a GB as text: a million and a half orders, six million lines."""
    tpch.generate(tmp_path, 1_500_000)
    query = tpch.QUERIES[name]
    rows = sorted(map(tuple, query.program(environment("BATCH"), tmp_path).execute_and_collect()))
    assert rows == query.expected(tmp_path)
