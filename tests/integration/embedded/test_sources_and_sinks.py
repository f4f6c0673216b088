"""Sources and sinks in real slots, the built-in ones and a user's own."""

from __future__ import annotations

import asyncio
import bz2
import gzip
import random
import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from firesteel.common import Encoder, Types, WatermarkStrategy
from firesteel.core.errors import JobCancelledError, UserFunctionError
from firesteel.datastream import MapFunction, RuntimeContext, SinkFunction, StreamExecutionEnvironment
from firesteel.datastream.connectors.base import (
    END,
    NEED_SPLITS,
    AsyncSourceReader,
    Boundedness,
    EnumeratorSpec,
    ReaderContext,
    Sink,
    SinkWriter,
    Source,
    SourceBatch,
    SourceReader,
    Split,
    WriterContext,
)
from firesteel.datastream.connectors.data_generator import DataGeneratorSource, RateLimiterStrategy
from firesteel.datastream.connectors.file_system import (
    BucketAssigner,
    FileSink,
    FileSource,
    OutputFileConfig,
    RollingPolicy,
    StreamFormat,
)
from firesteel.expressions import count
from tests.integration.embedded.programs import ANYWHERE, ended, new_environment, running, until

pytestmark = pytest.mark.usefixtures("cluster")
NO_WATERMARKS = WatermarkStrategy.no_watermarks()
PARALLELISMS = pytest.mark.parametrize("parallelism", [pytest.param(1, marks=pytest.mark.long), 3])


def lines_of(env: StreamExecutionEnvironment, path: Path, split_size: int | None = None) -> list[str]:
    builder = FileSource.for_record_stream_format(StreamFormat.text_line_format(), str(path))
    source = (builder if split_size is None else builder.set_split_size(split_size)).build()
    return list(env.from_source(source, NO_WATERMARKS, "lines").execute_and_collect())


def test_words_of_lines_in_a_column_are_counted_by_text_that_repeats(tmp_path: Path) -> None:
    chance = random.Random(5)
    words = ["", "ä€", *(f"word{number}" for number in range(200))]
    lines = [" ".join(chance.choices(words, k=10)) for _ in range(30_000)]  # read 64, 128, ... at a time
    (tmp_path / "a.txt").write_text("\n".join(lines))
    env = new_environment(3)
    text = FileSource.for_record_stream_format(StreamFormat.text_line_format(column="line"), str(tmp_path))
    source = text.build()

    def words_of(batch: pa.RecordBatch) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays([pc.list_flatten(pc.ascii_split_whitespace(batch.column(0)))], ["word"])

    word_batches = env.from_source(source, NO_WATERMARKS, "lines").map_batches(
        words_of, Types.ROW_NAMED(["word"], [Types.STRING()])
    )
    counted = word_batches.key_by("word").aggregate(count().alias("n"))
    results = list(counted.execute_and_collect())
    expected = Counter(pc.list_flatten(pc.ascii_split_whitespace(pa.array(lines))).to_pylist())  # "" at their ends, too
    assert Counter(row.word for row in results) == expected
    assert {word: n for word, n in sorted((row.word, row.n) for row in results)} == expected


@ANYWHERE
@PARALLELISMS
def test_files_whole_in_ranges_and_compressed(parallelism: int, tmp_path: Path) -> None:
    chance = random.Random(3)
    expected: Counter[str] = Counter()
    for number in range(12):
        lines = [f"{number}:{i} " + "ä€" * chance.randrange(40) for i in range(chance.randrange(300))]
        text = "\n".join(lines) + ("\n" if number % 2 else "")
        expected.update(text.split("\n")[: None if text and not text.endswith("\n") else -1])
        folder = tmp_path / f"d{number % 3}"
        folder.mkdir(exist_ok=True)
        data = text.encode()
        match number % 4:
            case 0:
                (folder / f"{number}.gz").write_bytes(gzip.compress(data))
            case 1:
                (folder / f"{number}.bz2").write_bytes(bz2.compress(data))
            case _:
                (folder / f"{number}.txt").write_bytes(data)
    (tmp_path / ".hidden").write_text("not read\n")
    assert Counter(lines_of(new_environment(parallelism), tmp_path)) == expected
    assert Counter(lines_of(new_environment(parallelism), tmp_path, 777)) == expected


@ANYWHERE
@PARALLELISMS
def test_generated_records(parallelism: int) -> None:
    env = new_environment(parallelism)
    source = DataGeneratorSource(lambda i: f"n{i}", 5000, type_info=Types.STRING())
    with env.from_source(source, NO_WATERMARKS, "generated").execute_and_collect() as results:
        assert Counter(results) == Counter(f"n{i}" for i in range(5000))
    slow = DataGeneratorSource(lambda i: i, 40, RateLimiterStrategy.per_second(40))
    began = time.monotonic()
    with env.from_source(slow, NO_WATERMARKS, "slow").execute_and_collect() as results:
        assert sorted(results) == list(range(40))
    assert time.monotonic() - began > 0.85


class Letters(Source[str]):
    """Splits of words; the reader gives their letters."""

    def __init__(self, words: list[str], kind: type[Any]) -> None:
        self.words, self.kind = words, kind

    @property
    def boundedness(self) -> Boundedness:
        return Boundedness.BOUNDED

    def enumerator(self) -> EnumeratorSpec:
        splits = [Split(str(number), {"word": word}).to_plain() for number, word in enumerate(self.words)]
        return EnumeratorSpec("static", {"splits": splits})

    def create_reader(self, context: ReaderContext) -> Any:
        return self.kind()


class _Reading:
    def __init__(self) -> None:
        self.splits: list[Split] = []
        self.no_more = False

    def add_splits(self, splits: Sequence[Split]) -> None:
        self.splits.extend(splits)

    def no_more_splits(self) -> None:
        self.no_more = True

    def pause_splits(self, split_ids: Sequence[str]) -> None:
        raise AssertionError("nobody pauses")

    def resume_splits(self, split_ids: Sequence[str]) -> None:
        raise AssertionError("nobody resumes")

    def snapshot(self) -> list[Split]:
        return self.splits

    def read(self) -> Any:
        if not self.splits:
            return END if self.no_more else NEED_SPLITS
        split = self.splits[0]
        word, position = str(split.data["word"]), int(split.position or 0)  # type: ignore[arg-type]
        if position + 1 >= len(word):
            del self.splits[0]
        else:
            self.splits[0] = split.at(position + 1)
        return SourceBatch([word[position]], split.id, position + 1, split_finished=position + 1 >= len(word))


class PlainReader(_Reading, SourceReader[str]):
    def poll(self, max_records: int) -> Any:
        return self.read()


class BlockingReader(_Reading, SourceReader[str]):
    blocking = True

    def open(self) -> None:
        assert threading.current_thread() is not threading.main_thread()

    def poll(self, max_records: int) -> Any:
        time.sleep(0.002)
        return self.read()


class AsyncReader(_Reading, AsyncSourceReader[str]):
    async def poll(self, max_records: int) -> Any:
        await asyncio.sleep(0.002)
        return self.read()


@ANYWHERE
@pytest.mark.parametrize("kind", [PlainReader, BlockingReader, AsyncReader])
def test_a_users_source(kind: type[Any]) -> None:
    words = ["spark", "steel", "a", "flint"] * 5
    stream = new_environment(2).from_source(Letters(words, kind), NO_WATERMARKS, "letters")
    with stream.map(str.upper).execute_and_collect() as results:
        assert Counter(results) == Counter("".join(words).upper())


class Blocking(MapFunction):  # type: ignore[type-arg]
    blocking = True

    def map(self, value: int) -> tuple[int, bool]:
        time.sleep(0.001)
        return value, threading.current_thread() is threading.main_thread()


@ANYWHERE
def test_blocking_functions_have_a_thread_of_their_own() -> None:
    stream = new_environment(2).from_sequence(1, 200).map(Blocking())
    with stream.map(lambda pair: (pair[0] * 2, pair[1])).execute_and_collect() as results:
        assert sorted(results) == [(2 * i, False) for i in range(1, 201)]


# --- sinks -----------------------------------------------------------------------------------------------------


def test_print_has_flinks_prefixes(capsys: pytest.CaptureFixture[str]) -> None:
    env = new_environment(1)
    env.from_collection(["a", None, ("b", 1)]).print()
    env.execute()
    assert capsys.readouterr().out == "a\nNone\n('b', 1)\n"
    env.from_collection(["a"]).print("id")
    env.execute()
    assert capsys.readouterr().out == "id> a\n"
    env.set_parallelism(2)
    for identifier, prefix in ((None, ""), ("x", "x:")):
        stream = env.from_collection(list(range(100)))
        stream.partition_custom(lambda key, count: key % count, lambda value: value).print(identifier)
        env.execute()
        lines = capsys.readouterr().out.splitlines()
        for subtask in (0, 1):
            head = f"{prefix}{subtask + 1}> "
            assert [line for line in lines if line.startswith(head)] == [f"{head}{i}" for i in range(subtask, 100, 2)]
        assert len(lines) == 100


def test_everything_printed_is_there_when_execute_returns(capsys: pytest.CaptureFixture[str]) -> None:
    env = new_environment(2)
    env.from_sequence(1, 20_000).map(lambda i: "x" * 100 + str(i)).print()
    env.execute()
    assert len(capsys.readouterr().out.splitlines()) == 20_000


def file_sink(folder: Path) -> FileSink:
    return (
        FileSink.for_row_format(str(folder), Encoder.simple_string_encoder())
        .with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
        .with_rolling_policy(RollingPolicy.default_rolling_policy(part_size=2000))
        .with_output_file_config(OutputFileConfig.builder().with_part_prefix("p").with_part_suffix(".txt").build())
        .build()
    )


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def rate(count: int | None, per_second: float) -> DataGeneratorSource[int]:
    return DataGeneratorSource(lambda i: i, count, RateLimiterStrategy.per_second(per_second))


@ANYWHERE
def test_files_become_visible_at_the_end_only(tmp_path: Path) -> None:
    env = new_environment(2)
    env.from_source(rate(2000, 2000), NO_WATERMARKS, "numbers").sink_to(file_sink(tmp_path))
    job = env.execute_async()
    seen = until(lambda: names(tmp_path), "an open part")
    assert all(name.startswith(".p-") for name in seen), seen
    assert ended(job) == "FINISHED"
    assert all(name.startswith("p-") and name.endswith(".txt") for name in names(tmp_path))
    assert len(names(tmp_path)) > 2
    lines = [int(line) for path in tmp_path.iterdir() for line in path.read_text().splitlines()]
    assert sorted(lines) == list(range(2000))


@ANYWHERE
def test_no_file_stays_after_a_cancel(tmp_path: Path) -> None:
    env = new_environment(2)
    env.from_source(rate(None, 2000), NO_WATERMARKS, "numbers").sink_to(file_sink(tmp_path))
    job = env.execute_async()
    until(lambda: names(tmp_path), "an open part")
    job.cancel().result()
    with pytest.raises(JobCancelledError):
        job.get_job_execution_result().result()
    assert names(tmp_path) == []


def fails_at_900(value: int) -> int:
    if value == 900:
        raise ValueError("no")
    return value


@ANYWHERE
def test_no_file_stays_after_a_failure(tmp_path: Path) -> None:
    env = new_environment(2)
    numbers = env.from_source(rate(None, 2000), NO_WATERMARKS, "numbers")
    numbers.map(fails_at_900).sink_to(file_sink(tmp_path))
    with pytest.raises(UserFunctionError, match="ValueError: no"):
        env.execute()
    assert names(tmp_path) == []


class Appending(SinkFunction):  # type: ignore[type-arg]
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def open(self, runtime_context: RuntimeContext) -> None:
        path = self.folder / str(runtime_context.get_index_of_this_subtask())
        self.file = path.open("w")

    def invoke(self, value: Any, context: SinkFunction.Context) -> None:
        self.file.write(f"{value} {context.timestamp()}\n")

    def close(self) -> None:
        self.file.close()


@ANYWHERE
def test_sink_functions_and_several_sinks(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    env = new_environment(2)
    numbers = env.from_sequence(1, 1000)
    numbers.add_sink(Appending(tmp_path / "one")).name("one")
    numbers.filter(lambda i: i % 2).add_sink(Appending(tmp_path / "two")).name("two").set_parallelism(1)
    result = env.execute("two sinks")
    assert result.get_net_runtime() > 0
    for folder, expected in (("one", range(1, 1001)), ("two", range(1, 1001, 2))):
        lines = [line for path in (tmp_path / folder).iterdir() for line in path.read_text().splitlines()]
        assert sorted(lines) == sorted(f"{i} None" for i in expected)


class Ledger(Sink[Any]):
    """Writes what happens to its writers; commits by a file."""

    def __init__(self, folder: Path, blocking: bool) -> None:
        self.folder, self.blocking = folder, blocking

    def create_writer(self, context: WriterContext) -> SinkWriter[Any]:
        return (BlockingLedgerWriter if self.blocking else LedgerWriter)(self.folder, context)


class LedgerWriter(SinkWriter[Any]):
    def __init__(self, folder: Path, context: WriterContext) -> None:
        self.folder, self.index = folder, context.subtask_index
        self.values: list[Any] = []
        self.steps: list[str] = []

    def open(self) -> None:
        self.steps.append("open")

    def write(self, values: Sequence[Any], timestamps: Sequence[int] | None) -> None:
        if self.blocking:
            assert threading.current_thread() is not threading.main_thread()
        self.values.extend(values)

    def finish(self) -> list[Any]:
        self.steps.append("finish")
        return [{"values": self.values}]

    def commit(self, committables: Sequence[Any]) -> None:
        self.steps.append("commit")
        (self.folder / f"values-{self.index}").write_text(repr(committables[0]["values"]))

    def abort(self) -> None:
        self.steps.append("abort")

    def close(self) -> None:
        self.steps.append("close")
        (self.folder / f"steps-{self.index}").write_text(" ".join(self.steps))


class BlockingLedgerWriter(LedgerWriter):
    blocking = True


@ANYWHERE
@pytest.mark.parametrize(("place", "blocking"), [("embedded", False), ("processes", True)], indirect=["place"])
def test_a_users_sink(tmp_path: Path, blocking: bool) -> None:
    env = new_environment(2)
    env.from_sequence(1, 100).sink_to(Ledger(tmp_path, blocking))
    env.execute()
    values = [eval((tmp_path / f"values-{i}").read_text()) for i in range(2)]
    assert sorted(values[0] + values[1]) == list(range(1, 101))
    assert {(tmp_path / f"steps-{i}").read_text() for i in range(2)} == {"open finish commit close"}

    env.from_source(rate(None, 100), NO_WATERMARKS, "numbers").sink_to(Ledger(tmp_path, blocking))
    job = env.execute_async()
    running(job)
    job.cancel().result()
    assert ended(job) == "CANCELED"
    assert {(tmp_path / f"steps-{i}").read_text() for i in range(2)} == {"open abort close"}
