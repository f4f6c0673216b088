"""Formats of files, sockets and source functions in real slots."""

from __future__ import annotations

import json
import socket
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from firesteel.common import Duration, Encoder, Row, Types, WatermarkStrategy
from firesteel.core.errors import JobFailedError, MalformedDataError
from firesteel.datastream import (
    OutputTag,
    ParallelSourceFunction,
    RuntimeContext,
    SourceFunction,
    StreamExecutionEnvironment,
)
from firesteel.datastream.connectors.file_system import (
    BucketAssigner,
    BulkFormat,
    FileFormat,
    FileSink,
    FileSource,
    MalformedPolicy,
    MalformedToSideOutput,
    RollingPolicy,
    StreamFormat,
)
from firesteel.datastream.formats.avro import AvroBulkWriters, AvroFormat, AvroInputFormat, AvroSchema
from firesteel.datastream.formats.csv import CsvBulkWriters, CsvReaderFormat, CsvSchema
from firesteel.datastream.formats.json import JsonLinesFormat, JsonRowSerializationSchema
from firesteel.datastream.formats.parquet import ParquetBulkWriters, ParquetColumnarRowInputFormat
from tests.integration.embedded.programs import ended, new_environment, rest_of, running, until
from tests.waiting import wait_until

pytestmark = pytest.mark.usefixtures("cluster")
NO_WATERMARKS = WatermarkStrategy.no_watermarks()
ROW_TYPE = Types.ROW_NAMED(["id", "text"], [Types.LONG(), Types.STRING()])
SCHEMA = AvroSchema(
    {
        "type": "record",
        "name": "Item",
        "fields": [{"name": "id", "type": "long"}, {"name": "text", "type": ["null", "string"]}],
    }
)
CSV = CsvSchema.builder().add_number_column("id").add_string_column("text").build()
FORMATS: dict[str, tuple[Any, FileFormat]] = {
    "parquet": (ParquetBulkWriters.for_row_type(ROW_TYPE), ParquetColumnarRowInputFormat(ROW_TYPE)),
    "avro": (AvroBulkWriters.for_generic_record(SCHEMA), AvroFormat(SCHEMA)),
    "csv": (CsvBulkWriters.for_schema(CSV), CsvReaderFormat.for_schema(CSV).rows_are_lines()),
    "json": (Encoder.of_schema(JsonRowSerializationSchema(ROW_TYPE)), JsonLinesFormat(ROW_TYPE)),
}


def row(number: int) -> Row:
    return Row(id=number, text="x" * (number % 50))


def record(number: int) -> dict[str, Any]:
    return {"id": number, "text": "x" * (number % 50)}


def fails_at_2000(number: int) -> int:
    if number == 2000:
        raise ValueError("no")
    return number


def sink_of(name: str, folder: Path) -> FileSink:
    written = FORMATS[name][0]
    row_format = isinstance(written, Encoder)
    builder: Any = (FileSink.for_row_format if row_format else FileSink.for_bulk_format)(str(folder), written)
    builder = builder.with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
    return builder.with_rolling_policy(RollingPolicy.default_rolling_policy(part_size=20_000)).build()  # type: ignore[no-any-return]


def source_of(name: str, folder: Path, policy: MalformedPolicy = MalformedPolicy.FAIL) -> FileSource:
    file_format = FORMATS[name][1]
    if isinstance(file_format, BulkFormat):
        builder = FileSource.for_bulk_file_format(file_format, str(folder))
    else:
        assert isinstance(file_format, StreamFormat)
        builder = FileSource.for_record_stream_format(file_format, str(folder))
    return builder.set_split_size(5000).on_malformed(policy).build()


@pytest.mark.parametrize("name", FORMATS)
def test_files_of_a_format_there_and_back(name: str, tmp_path: Path) -> None:
    make: Callable[[int], Any] = record if name == "avro" else row
    env = new_environment(2)
    env.from_sequence(1, 5000).map(make).sink_to(sink_of(name, tmp_path))
    env.execute()
    files = [path.name for path in tmp_path.iterdir()]
    assert len(files) > 2
    assert all(file.startswith("part-") for file in files)
    stream = new_environment(3).from_source(source_of(name, tmp_path), NO_WATERMARKS, "files")
    with stream.map(lambda r: (r["id"], r["text"])).execute_and_collect() as results:
        assert Counter(results) == Counter((i, "x" * (i % 50)) for i in range(1, 5001))


@pytest.mark.parametrize("name", ["parquet", "avro"])
def test_no_file_of_a_bulk_format_stays_after_a_failure(name: str, tmp_path: Path) -> None:
    make: Callable[[int], Any] = record if name == "avro" else row
    env = new_environment(2)
    env.from_sequence(1, 4000).map(fails_at_2000).map(make).sink_to(sink_of(name, tmp_path))
    with pytest.raises(JobFailedError, match="ValueError: no"):
        env.execute()
    # those of a subtask that had finished go with its slot's process, which is a moment behind the job's end
    wait_until(lambda: list(tmp_path.iterdir()) == [], lambda: f"no file is left: {list(tmp_path.iterdir())}")


def test_avro_files_by_create_input(tmp_path: Path) -> None:
    env = new_environment(2)
    env.from_sequence(1, 300).map(record).sink_to(sink_of("avro", tmp_path))
    env.execute()
    with env.create_input(AvroInputFormat(str(tmp_path), SCHEMA)).execute_and_collect() as results:
        assert sorted(item["id"] for item in results) == list(range(1, 301))


def write_lines(path: Path, count: int) -> None:
    """Every tenth line is malformed."""
    lines = [json.dumps({"id": i, "text": "x" * (i % 50)}) if i % 10 else f"bad {i}" for i in range(count)]
    path.write_text("\n".join(lines) + "\n")


def test_a_malformed_line_fails_the_job_and_is_named(tmp_path: Path) -> None:
    path = tmp_path / "items.json"
    path.write_text('{"id": 1}\n{"id": 2}\n{"id": three}\n')
    env = new_environment(1)
    env.from_source(source_of("json", path), NO_WATERMARKS, "items").print()
    with pytest.raises(JobFailedError, match=r"items\.json, line 3, byte 20: Expecting value") as caught:
        env.execute()
    assert isinstance(caught.value.__cause__, MalformedDataError)
    assert (caught.value.__cause__.line, caught.value.__cause__.offset) == (3, 20)


def test_malformed_lines_are_skipped(tmp_path: Path) -> None:
    write_lines(tmp_path / "a", 1000)
    good = [i for i in range(1000) if i % 10]
    env = new_environment(2)
    stream = env.from_source(source_of("json", tmp_path, MalformedPolicy.SKIP), NO_WATERMARKS, "items")
    with stream.map(lambda r: r["id"]).execute_and_collect() as results:
        assert sorted(results) == good
    stream.filter(lambda r: False).print()
    job = env.execute_async()
    assert ended(job) == "FINISHED"
    (vertex,) = rest_of(job)["vertices"]
    path = f"/vertices/{vertex['id']}/subtasks/metrics"
    (name,) = [m["id"] for m in rest_of(job, path) if m["id"].endswith("numRecordsInErrors")]
    (total,) = rest_of(job, f"{path}?get={name}&agg=sum")
    assert total["sum"] == 100


def test_malformed_lines_go_to_a_side_output(tmp_path: Path) -> None:
    write_lines(tmp_path / "a", 1000)
    good = [i for i in range(1000) if i % 10]
    env = new_environment(2)
    tag: OutputTag[Any] = OutputTag("malformed")
    stream = env.from_source(source_of("json", tmp_path, MalformedPolicy.EMIT), NO_WATERMARKS, "items")
    main = stream.process(MalformedToSideOutput(tag), output_type=ROW_TYPE)
    aside = main.get_side_output(tag).map(lambda bad: ("bad", bad.data.decode()))
    with main.map(lambda r: ("good", r["id"])).union(aside).execute_and_collect() as results:
        expected = [("good", i) for i in good] + [("bad", f"bad {i}") for i in range(0, 1000, 10)]
        assert Counter(results) == Counter(expected)


def test_files_that_appear_while_the_job_runs(tmp_path: Path) -> None:
    (tmp_path / "1").write_text("one\ntwo\n")
    builder = FileSource.for_record_stream_format(StreamFormat.text_line_format(), str(tmp_path))
    source = builder.monitor_continuously(Duration.of_millis(50)).build()
    stream = new_environment(2).from_source(source, NO_WATERMARKS, "watched")
    with stream.execute_and_collect() as results:
        assert sorted([next(results), next(results)]) == ["one", "two"]
        (tmp_path / ".2").write_text("three\n")
        (tmp_path / ".2").rename(tmp_path / "2")
        assert next(results) == "three"


def test_text_from_a_socket() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            for part in (b"a\r\nb\n\xc3", b"\xa4\nlast"):  # the connection ends between; it is made again
                connection, _ = server.accept()
                with connection:
                    connection.sendall(part)

        thread = threading.Thread(target=serve)
        thread.start()
        env = new_environment(2)
        stream = env.socket_text_stream("127.0.0.1", server.getsockname()[1], max_retries=1)
        with stream.execute_and_collect() as results:
            assert list(results) == ["a", "b", "ä", "last"]
        thread.join()


def test_a_socket_that_nobody_serves() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # bound, but it does not listen
        port = unused.getsockname()[1]
        env = new_environment(1)
        env.socket_text_stream("127.0.0.1", port).print()
        with pytest.raises(JobFailedError, match=rf"socket text: 127\.0\.0\.1:{port}"):
            env.execute()


class Counting(SourceFunction):  # type: ignore[type-arg]
    def __init__(self, count: int | None, folder: Path) -> None:
        self.count, self.folder = count, folder
        self.running = True

    def open(self, runtime_context: RuntimeContext) -> None:
        self.subtask = runtime_context.get_index_of_this_subtask()

    def run(self, ctx: SourceFunction.SourceContext[Any]) -> None:
        number = 0
        while self.running and number != self.count:
            ctx.collect((self.subtask, number))
            number += 1

    def cancel(self) -> None:
        self.running = False
        (self.folder / f"cancelled-{self.subtask}").touch()

    def close(self) -> None:
        (self.folder / f"closed-{self.subtask}").touch()


class CountingEverywhere(Counting, ParallelSourceFunction):  # type: ignore[type-arg]
    pass


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def collected(env: StreamExecutionEnvironment, function: SourceFunction[Any]) -> list[Any]:
    with env.add_source(function).execute_and_collect() as results:
        return list(results)


def test_source_functions(tmp_path: Path) -> None:
    env = new_environment(2)
    assert collected(env, Counting(5000, tmp_path)) == [(0, i) for i in range(5000)]
    assert names(tmp_path) == ["closed-0"]
    everywhere = collected(env, CountingEverywhere(3000, tmp_path))
    assert sorted(everywhere) == [(subtask, i) for subtask in (0, 1) for i in range(3000)]
    assert names(tmp_path) == ["closed-0", "closed-1"]


def test_cancel_of_a_source_function(tmp_path: Path) -> None:
    env = new_environment(2)
    env.add_source(Counting(None, tmp_path)).filter(lambda pair: False).print()
    job = env.execute_async()
    running(job)
    job.cancel().result()
    assert ended(job) == "CANCELED"
    until(lambda: names(tmp_path) == ["cancelled-0", "closed-0"], "the end of the function")


class Failing(SourceFunction):  # type: ignore[type-arg]
    def run(self, ctx: SourceFunction.SourceContext[Any]) -> None:
        ctx.collect("before")
        raise KeyError("in run")

    def cancel(self) -> None:
        raise AssertionError("it does not run any more")


def test_a_source_function_that_fails() -> None:
    env = new_environment(1)
    env.add_source(Failing(), "failing").print()
    with pytest.raises(JobFailedError, match="KeyError: 'in run'"):
        env.execute()
