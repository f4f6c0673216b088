"""Programs in batch mode, stage by stage in this process: a list of blobs stands for Spark's shuffle."""

from __future__ import annotations

import gc
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from firesteel.client.graph_shipment import prepare
from firesteel.common import Configuration, Duration, Encoder, Row, Time, TimestampAssigner, Types, WatermarkStrategy
from firesteel.config import Settings
from firesteel.connectors.enumerators import create_enumerator
from firesteel.connectors.file_source import FileSource
from firesteel.connectors.formats.parquet_files import ParquetColumnarRowInputFormat
from firesteel.connectors.spark_query import QueriedTable, SparkQuerySource
from firesteel.core.errors import FleetError, ProgramError
from firesteel.datastream import (
    AsyncDataStream,
    AsyncFunction,
    BroadcastProcessFunction,
    DataStream,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    MapFunction,
    OutputTag,
    ProcessJoinFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from firesteel.datastream.connectors.data_generator import DataGeneratorSource
from firesteel.datastream.connectors.file_system import FileSink
from firesteel.datastream.connectors.number_seq import NumberSequenceSource
from firesteel.datastream.state import MapStateDescriptor, ValueStateDescriptor
from firesteel.datastream.window import EventTimeSessionWindows, TumblingEventTimeWindows
from firesteel.expressions import col
from firesteel.graph.bounded import is_batch
from firesteel.graph.specs import OperatorKind
from firesteel.protocol.stages import STDOUT, QueryTable, StageQuery, failure_in
from firesteel.runtime.bounded import buckets, printed, stage_main
from firesteel.spark.stage_jobs import check_query
from firesteel_jobmaster.stages import plan_stages
from tests.unit.runtime.bounded_jobs import BoundedJob

PAIR = Types.TUPLE([Types.STRING(), Types.INT()])
RECORDS = [(f"k{i % 5}", i) for i in range(60)]
BATCH = Settings({"execution.runtime-mode": "BATCH"})


class Seconds(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value[1]) * 1000


TIMED = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(0)).with_timestamp_assigner(Seconds())


class Spark(BoundedJob):
    """Runs the stages of a program.

    Args:
        stream: its results are collected; None = of none.
        env: of the program.
        groups: so many key groups are in one bucket.
    """

    def __init__(self, stream: DataStream | None, env: StreamExecutionEnvironment, groups: int = 1) -> None:
        if stream is not None:
            extra = {"buffer_bytes": 1 << 30}
            sink = env._add("Collect", OperatorKind.COLLECT, None, (stream._collected(),), extra=extra)
            sink.internal = True
        graph, _ = env._take(None)
        super().__init__(*prepare(graph, BATCH, same_host=True), groups)


def environment(parallelism: int = 2) -> StreamExecutionEnvironment:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.configure(_configuration())
    return env.set_parallelism(parallelism)


def _configuration() -> Any:
    return Configuration.from_dict({"execution.runtime-mode": "BATCH"})


def results(build: Callable[[StreamExecutionEnvironment], DataStream], groups: int = 1) -> list[Any]:
    env = environment()
    return sorted(Spark(build(env), env, groups).run().collected, key=lambda record: (record[0], record[1]))


def pairs(env: StreamExecutionEnvironment, *, timed: bool = False) -> DataStream:
    stream = env.from_collection(RECORDS[::-1], PAIR).rebalance().map(lambda pair: pair, PAIR)
    return stream.assign_timestamps_and_watermarks(TIMED) if timed else stream


SUMS = {key: sum(n for k, n in RECORDS if k == key) for key in ("k0", "k1", "k2", "k3", "k4")}


@pytest.mark.parametrize("groups", [1, 40, 128])
def test_reduce_gives_the_last_result_of_each_key_only(groups: int) -> None:
    totals = results(lambda e: pairs(e).key_by(lambda p: p[0]).reduce(lambda a, b: (a[0], a[1] + b[1])), groups)
    assert totals == sorted(SUMS.items())


def test_a_field_is_summed_in_place_and_the_record_of_the_source_stays_as_it_is() -> None:
    records = [("k0", 1, "first"), ("k1", 2, "other"), ("k0", 3, "second")]
    tuples = Types.TUPLE([Types.STRING(), Types.LONG(), Types.STRING()])

    def build(e: StreamExecutionEnvironment) -> DataStream:
        return e.from_collection(records, tuples).map(lambda pair: records[0] if pair[1] == 1 else pair, tuples)

    sums = results(lambda e: build(e).key_by(lambda pair: pair[0]).sum(1))
    assert sums == [("k0", 4, "first"), ("k1", 2, "other")]
    assert records[0] == ("k0", 1, "first")
    rows = Types.ROW_NAMED(["k", "n"], [Types.STRING(), Types.LONG()])
    named = results(lambda e: build(e).map(lambda pair: Row(k=pair[0], n=pair[1]), rows).key_by("k").max("n"))
    assert named == [Row(k="k0", n=3), Row(k="k1", n=2)]
    numbers = results(
        lambda e: pairs(e).map(lambda p: p[1], Types.INT()).key_by(lambda n: n % 5).sum().map(lambda n: (n, 0))
    )
    assert [number for number, _ in numbers] == sorted(SUMS.values())


def test_garbage_is_collected_seldom_while_a_task_runs() -> None:
    """Looking through all that is held, each time that 700 records more have come, costs a tenth of a job."""
    before = gc.get_threshold()
    windows = results(
        lambda e: pairs(e).map(lambda pair: (str(gc.get_threshold()[0]), 1), PAIR).key_by(lambda p: p[0]).sum(1)
    )
    ((threshold, count),) = windows
    assert count == len(RECORDS)
    assert int(threshold) > 10 * before[0]
    assert gc.get_threshold() == before


def test_sums_of_columns_give_the_last_row_of_each_key_only() -> None:
    assert results(lambda e: pairs(e).key_by(lambda p: p[0]).sum(1)) == sorted(SUMS.items())
    row = Types.ROW_NAMED(["k", "n"], [Types.STRING(), Types.LONG()])

    def by_columns(env: StreamExecutionEnvironment) -> DataStream:
        rows = env.from_collection([Row(k=k, n=n) for k, n in RECORDS], row)
        return rows.key_by("k").sum("n")

    assert sorted((row["k"], row["n"]) for row in results(by_columns)) == sorted(SUMS.items())


class Summing(KeyedProcessFunction[Any, Any, Any]):
    """Counts with state; gives the sum by a timer of event time, and the times that it saw by one of the clock."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.sum = runtime_context.get_state(ValueStateDescriptor("sum", Types.LONG()))
        self.keys: list[str] = []
        self.times: list[int] = []

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        key = ctx.get_current_key()
        if not self.keys or self.keys[-1] != key:
            assert key not in self.keys, "keys come one after the other"
            self.keys.append(key)
            self.times = []
        assert ctx.timer_service().current_watermark() < 0, "event time stands still"
        self.times.append(ctx.timestamp() or 0)
        assert self.times == sorted(self.times), "records of a key come by time"
        self.sum.update((self.sum.value() or 0) + value[1])
        ctx.timer_service().register_event_time_timer(10**12)
        ctx.timer_service().register_processing_time_timer(10**15)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Any:
        total = self.sum.value() or 0
        yield ctx.get_current_key(), total if timestamp == 10**12 else -total
        self.sum.clear()
        self.sum.update(total)


@pytest.mark.parametrize("groups", [1, 128])
def test_functions_with_keys_see_one_key_after_the_other_and_timers_fire_behind_it(groups: int) -> None:
    sums = results(lambda e: pairs(e, timed=True).key_by(lambda p: p[0]).process(Summing(), PAIR), groups)
    assert sums == sorted([*SUMS.items(), *((key, -total) for key, total in SUMS.items())])


def test_windows_fire_at_the_end_and_nothing_is_late() -> None:
    def tumbling(env: StreamExecutionEnvironment) -> DataStream:
        keyed = pairs(env, timed=True).key_by(lambda p: p[0])
        return keyed.window(TumblingEventTimeWindows.of(Time.seconds(20))).reduce(lambda a, b: (a[0], a[1] + b[1]))

    def sessions(env: StreamExecutionEnvironment) -> DataStream:
        keyed = pairs(env, timed=True).key_by(lambda p: p[0])
        return keyed.window(EventTimeSessionWindows.with_gap(Time.seconds(6))).reduce(lambda a, b: (a[0], a[1] + b[1]))

    def counts(env: StreamExecutionEnvironment) -> DataStream:
        return pairs(env).key_by(lambda p: p[0]).count_window(5).reduce(lambda a, b: (a[0], 1))

    expected: dict[Any, int] = defaultdict(int)
    for key, number in RECORDS:
        expected[key, number // 20] += number
    for groups in (1, 128):
        assert results(tumbling, groups) == sorted((key, total) for (key, _), total in expected.items())
        assert results(sessions, groups) == sorted(SUMS.items())
        assert results(counts, groups) == sorted([(key, 1) for key in SUMS] * 2)


class Both(KeyedCoProcessFunction[Any, Any, Any, Any]):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.seen = runtime_context.get_state(ValueStateDescriptor("seen", Types.STRING()))

    def process_element1(self, value: Any, ctx: Any) -> Any:
        self.seen.update((self.seen.value() or "") + "a")
        ctx.timer_service().register_event_time_timer(1)

    def process_element2(self, value: Any, ctx: Any) -> Any:
        self.seen.update((self.seen.value() or "") + "b")

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        yield ctx.get_current_key(), self.seen.value()


@pytest.mark.parametrize("budget", [0, 300])
def test_more_than_fits_into_memory_is_divided_by_key_and_lies_in_files(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, budget: int
) -> None:
    monkeypatch.setenv("FIRESTEEL_RUN_DIRECTORY", str(tmp_path))
    whole = Spark(pairs(env := environment(), timed=True).key_by(lambda p: p[0]).process(Summing(), PAIR), env).run()
    assert {spilled for *_, spilled in whole.totals} == {0}
    monkeypatch.setattr(buckets, "HELD_BYTES", budget)
    env = environment()
    divided = Spark(pairs(env, timed=True).key_by(lambda p: p[0]).process(Summing(), PAIR), env, 128).run()
    assert sorted(divided.collected) == sorted(whole.collected)
    assert max(spilled for *_, spilled in divided.totals) > 0
    assert max(report["metrics"]["numBytesSpilled"] for report in divided.reports) > 0
    test_two_inputs_with_keys_come_merged_by_time()
    test_windows_fire_at_the_end_and_nothing_is_late()
    assert list(tmp_path.iterdir()) == []


def test_tasks_tell_how_far_they_have_come() -> None:
    env = environment()
    spark = Spark(pairs(env).map(lambda p: p, PAIR).rebalance().map(lambda p: p, PAIR), env).run()
    records_read = sorted(totals[0] for totals in spark.totals)
    assert records_read == sorted(report["metrics"]["numRecordsIn"] for report in spark.reports)
    assert sum(records_read) > 0
    for report in spark.reports:
        *_, last = report["operators"].values()
        assert last[0] == report["metrics"]["numRecordsIn"]
        assert last[4] > 0 or not last[0], "its own time"


def test_two_inputs_with_keys_come_merged_by_time() -> None:
    def program(env: StreamExecutionEnvironment) -> DataStream:
        first = env.from_collection([("x", 1), ("x", 3), ("y", 2)], PAIR).assign_timestamps_and_watermarks(TIMED)
        second = env.from_collection([("y", 1), ("x", 2)], PAIR).assign_timestamps_and_watermarks(TIMED)
        keyed = first.key_by(lambda p: p[0]).connect(second.key_by(lambda p: p[0]))
        return keyed.process(Both(), Types.TUPLE([Types.STRING(), Types.STRING()]))

    for groups in (1, 128):
        assert results(program, groups) == [("x", "aba"), ("y", "ba")]


class Joined(ProcessJoinFunction[Any, Any, Any]):
    def process_element(self, left: Any, right: Any, ctx: Any) -> Any:
        yield left[0], left[1] * 100 + right[1]


def test_interval_joins() -> None:
    def program(env: StreamExecutionEnvironment) -> DataStream:
        first = pairs(env, timed=True).key_by(lambda p: p[0])
        second = env.from_collection([("k1", 6), ("k2", 40)], PAIR).assign_timestamps_and_watermarks(TIMED)
        joined = first.interval_join(second.key_by(lambda p: p[0])).between(Time.seconds(-5), Time.seconds(5))
        return joined.process(Joined(), PAIR)

    expected = sorted(
        (k, n * 100 + m) for k, n in RECORDS for j, m in (("k1", 6), ("k2", 40)) if k == j and abs(n - m) <= 5
    )
    assert results(program) == expected


RULES = MapStateDescriptor("rules", Types.STRING(), Types.INT())


class Ruled(BroadcastProcessFunction[Any, Any, Any]):
    def process_element(self, value: Any, ctx: Any) -> Any:
        yield value[0], value[1] * ctx.get_broadcast_state(RULES).get(value[0])

    def process_broadcast_element(self, value: Any, ctx: Any) -> Any:
        ctx.get_broadcast_state(RULES).put(value[0], value[1])
        return ()


def test_the_broadcast_side_comes_first() -> None:
    def program(env: StreamExecutionEnvironment) -> DataStream:
        rules = env.from_collection([(f"k{i}", i) for i in range(5)], PAIR).broadcast(RULES)
        return pairs(env).connect(rules).process(Ruled(), PAIR)

    assert results(program) == sorted((key, number * int(key[1])) for key, number in RECORDS)


LARGE = OutputTag("large", PAIR)


class Sorting(KeyedProcessFunction[Any, Any, Any]):
    def process_element(self, value: Any, ctx: Any) -> Any:
        yield (LARGE, value) if value[1] >= 50 else value


def test_side_outputs_unions_and_partitioners() -> None:
    def program(env: StreamExecutionEnvironment) -> DataStream:
        main = pairs(env).key_by(lambda p: p[0]).process(Sorting(), PAIR)
        side = main.get_side_output(LARGE).map(lambda p: (p[0], -p[1]), PAIR)
        return main.union(side).partition_custom(lambda key, count: key % count, lambda p: p[1]).map(lambda p: p, PAIR)

    assert results(program) == sorted((key, -n if n >= 50 else n) for key, n in RECORDS)


class Doubling(AsyncFunction[Any, Any]):
    async def async_invoke(self, value: Any) -> list[Any]:
        return [(value[0], value[1] * 2)]


def test_asynchronous_functions() -> None:
    def program(env: StreamExecutionEnvironment) -> DataStream:
        return AsyncDataStream.unordered_wait(pairs(env), Doubling(), Time.seconds(60), 10, PAIR)

    assert results(program) == sorted((key, 2 * number) for key, number in RECORDS)


def test_only_what_is_committed_is_visible_and_a_commit_may_be_repeated(tmp_path: Path) -> None:
    env = environment()
    sink = FileSink.for_row_format(str(tmp_path), Encoder.simple_string_encoder()).build()
    pairs(env).map(lambda p: f"{p[0]} {p[1]}", Types.STRING()).sink_to(sink)
    spark = Spark(None, env)
    stages = plan_stages(spark.graph, create_enumerator)
    spark.run()
    spark.task(stages[-1], 0, 0)  # an earlier attempt that comes late, and that Spark does not look at
    assert visible(tmp_path) == []
    expected = sorted(f"{key} {number}" for key, number in RECORDS)
    for _ in range(2):
        spark.commit()
        assert sorted(visible(tmp_path)) == expected


def visible(folder: Path) -> list[str]:
    files = [path for path in folder.rglob("*") if path.is_file() and not path.name.startswith((".", "_"))]
    return [line for path in files for line in path.read_text().splitlines()]


def test_what_is_printed_is_kept_until_the_end() -> None:
    env = environment(1)
    env.from_sequence(1, 3).print()
    assert Spark(None, env).run().printed == "1\n2\n3\n"


class Talking(MapFunction[int, int]):
    def open(self, runtime_context: Any) -> None:
        print("opens")

    def map(self, value: int) -> int:
        print("maps", value)
        print("odd" * (value % 2), file=sys.stderr)
        return -value

    def close(self) -> None:
        print("closes", end="")


def test_what_code_prints_is_told_with_the_rows() -> None:
    env = environment(1)
    streams = sys.stdout, sys.stderr
    env.from_sequence(1, 2).map(Talking(), Types.LONG()).print()
    job = Spark(None, env).run()
    assert job.printed == "opens\nmaps 1\n-1\nmaps 2\n-2\ncloses"
    assert job.complained == "odd\n\n"
    assert (sys.stdout, sys.stderr) == streams


def test_code_that_prints_without_end_is_cut_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(printed, "MOST_OF_CODE", 20)
    env = environment(1)
    env.from_sequence(1, 9).map(Talking(), Types.LONG()).print()
    job = Spark(None, env).run()
    lines = [line for line in job.printed.splitlines() if not line.startswith("-")]
    assert lines[:3] == ["opens", "maps 1", "maps 2"]
    assert lines[3:] == ["... and more: a task of a bounded job shows 20 characters of what its code prints"]
    assert job.printed.count("-") == 9, "all rows are there"


def test_what_a_commit_prints_stays_where_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def commit(*_: Any) -> Iterator[bytes]:
        print("commits")
        yield b"done"

    monkeypatch.setattr(stage_main, "commit", commit)
    task = {
        "commits": True, "parallelism": 1, "max_parallelism": 1, "job_id": "0", "job_name": "j", "vertex": "v",
        "name": "n", "job_parameters": {}, "python_path": [], "python_files": [], "main": None, "partition": 0,
    }  # fmt: skip
    assert list(stage_main.stage_main(task, {}, 0, 0, iter(()))) == [b"done"]
    assert capsys.readouterr().out == "commits\n"


class Failing(MapFunction[Any, Any]):
    closed = 0

    def map(self, value: Any) -> Any:
        print("maps", value[1], end=";")
        if value[1] == 7:
            raise ValueError("seven")
        return value

    def close(self) -> None:
        Failing.closed += 1


def test_a_users_exception_says_where_it_was() -> None:
    env = environment()
    pairs(env).map(Failing(), PAIR).name("picky").print()
    with pytest.raises(RuntimeError) as caught:
        Spark(None, env).run()
    details = failure_in(f"org.apache.spark: Job aborted\n{caught.value}\n\tat java.lang")
    assert details is not None
    failure = details.failure
    place = failure["operator"], failure["error_class"], failure["record"]
    assert place == ("picky", "ValueError", "('k2', 7)")
    assert failure["recoverable"] is True
    ((stream, text),) = details.printed
    assert (stream, text[-14:]) == (STDOUT, "maps 9;maps 7;")
    assert "(" not in text, "rows of a sink are no results"
    assert failure_in("an executor was lost") is None


def test_what_is_not_there_is_refused_by_name() -> None:
    env = environment(1)
    env.from_source(NumberSequenceSource(1, 3), WatermarkStrategy.no_watermarks(), "few").print()
    graph, _ = env._take(None)
    for same_host in (True, False):
        chosen, _ = prepare(graph, Settings({"execution.runtime-mode": "AUTOMATIC"}), same_host=same_host)
        assert is_batch(chosen)
    env = environment(1)
    env.from_source(DataGeneratorSource(str), WatermarkStrategy.no_watermarks(), "for ever").print()
    graph, _ = env._take(None)
    with pytest.raises(ProgramError, match=r"source 'Source: for ever.*' is unbounded"):
        prepare(graph, BATCH, same_host=True)
    chosen, _ = prepare(graph, Settings({"execution.runtime-mode": "AUTOMATIC"}), same_host=True)
    assert not is_batch(chosen)


# -- queries of Spark SQL


def queried(folder: Path) -> Spark:
    row_type = Types.ROW_NAMED(["a", "b"], [Types.INT(), Types.STRING()])
    files = FileSource.for_bulk_file_format(ParquetColumnarRowInputFormat(row_type), str(folder)).build().enumerator()
    assert files is not None
    table = QueriedTable("t0", "parquet", "`a` INT, `b` STRING", {}, files)
    source = SparkQuerySource("SELECT a, b FROM t0", {"spark.sql.ansi.enabled": "false"}, [table], row_type)
    env = environment(3)
    rows = env.from_source(source, WatermarkStrategy.no_watermarks(), "query").filter(col("a") > 1)
    return Spark(rows.map(lambda row: f"{row.a}{row.b}", Types.STRING()), env)


def test_a_stage_of_a_query_reads_the_files_that_there_are(tmp_path: Path) -> None:
    for name in ("one two.parquet", ".hidden.parquet", "_SUCCESS"):
        (tmp_path / name).write_bytes(b"12345")
    (stage,) = plan_stages(queried(tmp_path).graph, create_enumerator)
    assert stage.query == StageQuery(
        "SELECT a, b FROM t0",
        {"spark.sql.ansi.enabled": "false"},
        (QueryTable("t0", "parquet", "`a` INT, `b` STRING", {}, [f"file:{tmp_path}/one two.parquet"], 5),),
        3,
        max_iterations=1000,
    )
    assert (stage.tasks, stage.task["parallelism"]) == ((), 3)


def test_rows_of_a_query_come_as_spark_gives_them(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"1")
    rows = pa.record_batch({"a": pa.array([1, 2, None, 3], pa.int32()), "b": ["x", "y", None, None]})
    job = queried(tmp_path)
    job.queried = [piece.serialize().to_pybytes() for piece in (rows.slice(0, 2), rows.slice(2))]
    assert sorted(job.run().collected) == ["2y", "3None"]


@pytest.mark.parametrize(
    ("settings", "file_format"), [({"spark.driver.extraJavaOptions": "x"}, "parquet"), ({}, "binaryFile")]
)
def test_a_query_touches_nothing_but_spark_sql(settings: dict[str, str], file_format: str) -> None:
    check_query(StageQuery("SELECT 1", {"spark.sql.a": "1"}, (QueryTable("t", "parquet", "", {}, [], 0),), 1))
    with pytest.raises(FleetError, match=r"a query of Spark SQL can't have (spark\.driver\.extraJava|binaryFile)"):
        check_query(StageQuery("SELECT 1", settings, (QueryTable("t", file_format, "", {}, [], 0),), 1))
