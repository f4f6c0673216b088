"""What goes wrong in a program, or around it, and what its author is told."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from firesteel.common import Configuration, Types, WatermarkStrategy
from firesteel.core.errors import (
    ConfigurationError,
    GraphError,
    JobFailedError,
    ProgramError,
    SerializationError,
    TypeMismatchError,
    UserFunctionError,
)
from firesteel.datastream import DataStream, MapFunction, RuntimeContext, SinkFunction, StreamExecutionEnvironment
from firesteel.datastream.connectors.base import Sink, SinkWriter, Source, WriterContext
from firesteel.datastream.connectors.data_generator import DataGeneratorSource
from firesteel.datastream.connectors.file_system import FileSource, StreamFormat
from tests.integration.embedded.programs import ANYWHERE, family, new_environment, rest_of

pytestmark = pytest.mark.usefixtures("cluster")


class OrderError(Exception):
    """Of the user; its constructor takes more than a message."""

    def __init__(self, number: int, reason: str) -> None:
        super().__init__(number, reason)
        self.number, self.reason = number, reason


def checked(value: int) -> int:
    if value == 7:
        raise OrderError(value, "seven is refused")
    return value


def failure_of(stream: DataStream) -> UserFunctionError:
    with pytest.raises(UserFunctionError) as caught:
        list(stream.execute_and_collect())
    error = caught.value
    text = f"{error}"
    for word in ("py4j", "java.", "org.apache", "firesteel/runtime"):
        assert word not in text, text
    return error


def numbers(parallelism: int = 1) -> DataStream:
    return new_environment(parallelism).from_collection(list(range(10)))


@ANYWHERE
def test_a_users_exception_comes_back_whole() -> None:
    error = failure_of(numbers(2).rebalance().map(str).map(int).name("before").map(checked).name("check").map(str))
    assert (error.operator, error.attempt, error.record, error.subtask in (0, 1)) == ("check", 0, "7", True)
    assert error.error_class.endswith("OrderError")
    assert isinstance(error.__cause__, OrderError)
    assert (error.__cause__.number, error.__cause__.reason) == (7, "seven is refused")
    assert 'raise OrderError(value, "seven is refused")' in error.traceback_text
    assert "check" in str(error)
    assert len(error.job_id) == 32


class FailsIn(MapFunction):  # type: ignore[type-arg]
    def __init__(self, where: str) -> None:
        self.where = where

    def open(self, runtime_context: RuntimeContext) -> None:
        if self.where == "open":
            raise ValueError("in open")

    def map(self, value: Any) -> Any:
        return value

    def close(self) -> None:
        if self.where == "close":
            raise ValueError("in close")


class FailingSink(SinkFunction):  # type: ignore[type-arg]
    def invoke(self, value: Any, context: SinkFunction.Context) -> None:
        if value == 3:
            raise ValueError("in invoke")


def fail_on_4(value: Any, *_: Any) -> Any:
    if value == 4:
        raise ValueError("on four")
    return value % 2


@ANYWHERE
@pytest.mark.parametrize("where", ["open", "close"])
def test_open_and_close(where: str) -> None:
    error = failure_of(numbers().map(FailsIn(where)).name("fragile"))
    assert (error.operator, str(error.__cause__)) == ("fragile", f"in {where}")


@ANYWHERE
def test_sinks_selectors_partitioners_readers() -> None:
    env = new_environment(1)
    env.from_collection(list(range(10))).add_sink(FailingSink()).name("to nowhere")
    with pytest.raises(UserFunctionError, match="in invoke") as caught:
        env.execute()
    assert "to nowhere" in caught.value.operator
    assert caught.value.record == "3"

    error = failure_of(numbers(2).key_by(fail_on_4).map(str))
    assert str(error.__cause__) == "on four"
    assert error.record == "4"
    error = failure_of(numbers(2).partition_custom(fail_on_4, lambda value: value).map(str))
    assert str(error.__cause__) == "on four"
    with pytest.raises(
        JobFailedError, match=r"the partitioner returned 9 for key \d; it has to return an int from 0 to 1"
    ):
        list(numbers(2).partition_custom(lambda key, count: 9, lambda value: value).map(str).execute_and_collect())
    with pytest.raises(JobFailedError, match="A value of type list can't be a key"):
        list(numbers(2).key_by(lambda value: [value]).map(str).execute_and_collect())

    stream = new_environment(1).from_source(Broken(), WatermarkStrategy.no_watermarks(), "broken source")
    error = failure_of(stream)
    assert str(error.__cause__) == "can't read"
    assert "broken source" in error.operator


class Fragile(Sink[int]):
    """Its writer raises in one of its methods, and leaves a mark when it is aborted and when it is closed."""

    def __init__(self, where: str, folder: Path, blocking: bool = False) -> None:
        self.where, self.folder, self.blocking = where, folder, blocking

    def create_writer(self, context: WriterContext) -> SinkWriter[int]:
        if self.where == "create_writer":
            raise ValueError("in create_writer")
        return (BlockingFragileWriter if self.blocking else FragileWriter)(self.where, self.folder)


class FragileWriter(SinkWriter[int]):
    def __init__(self, where: str, folder: Path) -> None:
        self.where, self.folder = where, folder

    def _at(self, where: str) -> None:
        if self.where == where:
            raise ValueError(f"in {where}")

    def open(self) -> None:
        self._at("open")

    def write(self, values: Sequence[int], timestamps: Sequence[int] | None) -> None:
        self._at("write")

    def finish(self) -> list[Any]:
        self._at("finish")
        return []

    def commit(self, committables: Sequence[Any]) -> None:
        self._at("commit")

    def abort(self) -> None:
        (self.folder / "aborted").touch()
        self._at("abort")

    def close(self) -> None:
        (self.folder / "closed").touch()
        self._at("close")


class BlockingFragileWriter(FragileWriter):
    blocking = True


@ANYWHERE
@pytest.mark.parametrize(("place", "blocking"), [("embedded", False), ("processes", True)], indirect=["place"])
def test_the_writer_of_a_sink(blocking: bool, tmp_path: Path) -> None:
    for where in ("create_writer", "open", "write", "finish", "commit"):
        folder = tmp_path / where
        folder.mkdir()
        env = new_environment(1)
        env.from_collection([1, 2, 3]).sink_to(Fragile(where, folder, blocking)).name("to the ledger")
        with pytest.raises(UserFunctionError, match=f"ValueError: in {where}") as caught:
            env.execute()
        error = caught.value
        assert "to the ledger" in error.operator, (where, error)
        assert "raise ValueError(" in error.traceback_text, (where, error)
        assert str(error.__cause__) == f"in {where}"
        marks = {path.name for path in folder.iterdir()}
        left_alone = {"closed"} if where == "commit" else {"aborted", "closed"}  # what may be stored is not aborted
        assert marks == (set() if where == "create_writer" else left_alone), (where, marks)


class Broken(Source[int]):
    from firesteel.datastream.connectors.base import Boundedness, EnumeratorSpec, ReaderContext, Split, SplitQueueReader

    boundedness = Boundedness.BOUNDED

    def enumerator(self) -> EnumeratorSpec:
        return self.EnumeratorSpec("static", {"splits": [self.Split("one", {}).to_plain()]})

    def create_reader(self, context: ReaderContext) -> Any:
        class Reader(self.SplitQueueReader):  # type: ignore[name-defined,misc]
            def open_split(self, split: Any) -> Any:
                raise OSError("can't read")

        return Reader()


@ANYWHERE
def test_records_that_do_not_fit_their_type() -> None:
    row = Types.ROW_NAMED(["name", "age"], [Types.STRING(), Types.INT()])
    with pytest.raises((UserFunctionError, TypeMismatchError)) as caught:
        list(numbers().map(lambda i: ("x", i if i < 5 else "old"), row).name("typed").execute_and_collect())
    for part in ("age", "Integer", "'old'", "typed"):
        assert part in str(caught.value), str(caught.value)
    assert list(numbers().map(lambda i: i + 126, Types.BYTE()).execute_and_collect())[:4] == [126, 127, -128, -127]
    env = new_environment(1, firesteel__types__strict_integers="true")
    with pytest.raises(JobFailedError, match="the type holds -128 to 127"):
        list(env.from_collection([1]).map(lambda i: i + 127, Types.BYTE()).execute_and_collect())


@ANYWHERE
def test_results_that_cannot_be_pickled() -> None:
    for stream in (
        numbers().map(lambda i: threading.Lock()),
        numbers(2).map(lambda i: threading.Lock()).rebalance().map(str),
        numbers().map(lambda i: threading.Lock() if i == 3 else i),
    ):
        with pytest.raises(JobFailedError, match=r"cannot pickle '_thread\.lock' object"):
            list(stream.execute_and_collect())


LOCK = threading.Lock()


class Carrying(MapFunction):  # type: ignore[type-arg]
    def __init__(self) -> None:
        self.connection = threading.Lock()

    def map(self, value: Any) -> Any:
        return value


def jobs(env: StreamExecutionEnvironment) -> int:
    with env.from_collection([1]).execute_and_collect() as results:
        list(results)
        return len(rest_of(results.get_job_client(), "/../../jobs")["jobs"])


@pytest.mark.parametrize(
    ("build", "error", "words"),
    [
        (lambda env: numbers_of(env).map(Carrying()).name("heavy"), SerializationError, "heavy.*connection"),
        (lambda env: numbers_of(env).map(lambda i: LOCK and i), SerializationError, "LOCK"),
        (lambda env: numbers_of(env).map(str).set_parallelism(200).set_max_parallelism(100), ProgramError, "200.*100"),
        (lambda env: env, GraphError, "the graph is empty"),
        (lambda env: numbers_of(env).map(str).uid("a").map(str).uid("a"), GraphError, "'a'"),
        (lambda env: env.from_collection([os.urandom(1 << 20)]), ProgramError, "firesteel.collection.max-bytes"),
        (lambda env: lines(env, "/no/such/file"), ProgramError, "/no/such/file"),
        (
            lambda env: env.configure(text("firesteel.exchange.windw", "1")),
            ConfigurationError,
            "firesteel.exchange.windw",
        ),
        (lambda env: env.configure(text("rest.port", "many")), ConfigurationError, "rest.port"),
        (
            lambda env: (
                env.configure(text("execution.runtime-mode", "BATCH"))
                or env.from_source(DataGeneratorSource(str), WatermarkStrategy.no_watermarks(), "for ever")
            ),
            ProgramError,
            "BATCH.*for ever.*unbounded",
        ),
    ],
)
def test_refused_before_anything_is_deployed(
    build: Callable[[StreamExecutionEnvironment], Any], error: type[Exception], words: str
) -> None:
    env = new_environment(1, firesteel__collection__max_bytes="100 kb")
    slots = len(family(os.getpid())["slot"])
    with pytest.raises(error, match=f"(?s){words}"):  # noqa: PT012 - some are refused while the graph is built
        built = build(env)
        if isinstance(built, DataStream):
            built.print()
        elif built is None:
            numbers_of(env).print()
        env.execute()
    assert len(family(os.getpid())["slot"]) <= slots
    other = new_environment(1)
    assert list(other.from_collection([1]).execute_and_collect()) == [1]


def test_flinks_keys_that_mean_nothing_here_are_named_once(caplog: pytest.LogCaptureFixture) -> None:
    env = new_environment(1, blob__client__socket__timeout="1 s", blob__fetch__backlog="7", my__own__key="x")
    for _ in range(2):
        assert list(env.from_collection([1]).execute_and_collect()) == [1]
    warnings = [record for record in caplog.records if "blob.fetch.backlog" in record.getMessage()]
    assert [record.levelname for record in warnings] == ["WARNING"], caplog.text
    assert "blob.client.socket.timeout" in warnings[0].getMessage()
    assert "of Flink have no effect" in warnings[0].getMessage()
    assert "my.own.key" not in warnings[0].getMessage()
    unknown = [record.getMessage() for record in caplog.records if "my.own.key" in record.getMessage()]
    assert len(unknown) == 1
    assert "Unknown configuration keys" in unknown[0]


def numbers_of(env: StreamExecutionEnvironment) -> DataStream:
    return env.from_collection([1, 2])


def text(key: str, value: str) -> Configuration:
    return Configuration().set_string(key, value)


def lines(env: StreamExecutionEnvironment, path: str) -> DataStream:
    source = FileSource.for_record_stream_format(StreamFormat.text_line_format(), path).build()
    return env.from_source(source, WatermarkStrategy.no_watermarks(), "lines")
