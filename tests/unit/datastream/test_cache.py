"""``cache()``: which job computes, which one reads, and what removes results; jobs are played by the tests."""

from __future__ import annotations

import json
import logging
import os
import stat
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from firesteel.common import JobStatus
from firesteel.connectors.cached_results import CachedResultsSink, CachedResultsSource
from firesteel.connectors.kept_results import kept_in, parts_of
from firesteel.core.errors import GraphError, ProgramError, SerializationError, StateRestoreError
from firesteel.datastream import CachedDataStream, StreamExecutionEnvironment
from firesteel.functions.source import Source
from firesteel.functions.two_phase import CommitOutcome, Committable, WriterState
from firesteel.graph.specs import OperatorKind
from firesteel.testing import check_source, check_two_phase_sink
from firesteel.testing.writing import Context
from tests.unit.datastream.fakes import FakeExecutor, environment, submitted


@pytest.fixture
def executor() -> FakeExecutor:
    return FakeExecutor()


@pytest.fixture
def env(executor: FakeExecutor, tmp_path: Path) -> StreamExecutionEnvironment:
    return environment(executor, firesteel__cache__directory=str(tmp_path))


def written(directory: Path, records: list[Any], parallelism: int = 2, timestamps: list[int] | None = None) -> None:
    """What a job's sink leaves behind."""
    sink = CachedResultsSink(str(directory))
    writers = [sink.create_writer(Context(subtask, parallelism)) for subtask in range(parallelism)]
    try:
        for number, writer in enumerate(writers):
            writer.open()
            if number == 0:
                writer.write(records, timestamps)
        done = [writer.prepare_commit(end_of_input=True) for writer in writers]
        committer = sink.create_committer(Context(0, parallelism))
        committables = [Committable(data) for prepared in done for data in prepared]
        for outcome in (CommitOutcome.COMMITTED, CommitOutcome.ALREADY_COMMITTED):
            assert {result.outcome for result in committer.commit(committables)} == {outcome}
    finally:
        for writer in writers:
            writer.close()


def sink_of(executor: FakeExecutor) -> Path | None:
    """Where the job that was submitted last writes results."""
    functions = [node.operator.function for node in executor.graphs[-1].nodes.values()]
    paths = [Path(function.describe()["path"]) for function in functions if isinstance(function, CachedResultsSink)]
    assert len(paths) <= 1
    return paths[0] if paths else None


def finish(executor: FakeExecutor, records: list[Any]) -> Path:
    directory = sink_of(executor)
    assert directory is not None
    written(directory, records)
    executor.clients[-1].status = JobStatus.FINISHED
    return directory


def read(source: Source[Any]) -> list[Any]:
    check_source(lambda: source, [1, 2, 3])
    return [1, 2, 3]


def test_the_first_job_writes_and_the_next_ones_read(env: StreamExecutionEnvironment, executor: FakeExecutor) -> None:
    cached = env.from_collection([1, 2, 3]).map(str).name("work").cache()
    assert isinstance(cached, CachedDataStream)
    cached.print()
    env.execute_async()
    assert submitted(executor)[:2] == ["Source: Collection Source", "work"]
    assert "Sink: Cache of work" in submitted(executor)
    directory = finish(executor, [1, 2, 3])
    assert stat.S_IMODE(os.stat(directory.parent).st_mode) == 0o700
    for _ in range(2):
        cached.map(int).print()
        env.execute_async()
        assert submitted(executor) == ["Source: Cached Cache of work", "Map", "Sink: Print to Std. Out"]
        assert sink_of(executor) is None
    source = next(iter(executor.graphs[-1].nodes.values())).operator.function
    assert isinstance(source, CachedResultsSource)
    assert read(source) == [1, 2, 3]


def test_a_plan_changes_nothing(env: StreamExecutionEnvironment, executor: FakeExecutor) -> None:
    env.from_collection([1]).cache().print()
    assert "Cache of" in env.get_execution_plan()
    env.execute_async()
    assert sink_of(executor) is not None


def test_while_one_job_writes_another_computes(env: StreamExecutionEnvironment, executor: FakeExecutor) -> None:
    cached = env.from_collection([1]).cache()
    env.execute_async()
    first = sink_of(executor)
    cached.print()
    env.execute_async()
    assert sink_of(executor) is None
    assert submitted(executor)[0] == "Source: Collection Source"
    assert first is not None
    written(first, [1])
    cached.print()
    env.execute_async()
    assert submitted(executor)[0].startswith("Source: Cached")


@pytest.mark.parametrize("end", [JobStatus.FAILED, JobStatus.CANCELED])
def test_what_a_job_that_failed_wrote_does_not_count(
    env: StreamExecutionEnvironment, executor: FakeExecutor, end: JobStatus
) -> None:
    cached = env.from_collection([1]).cache()
    env.execute_async()
    first = sink_of(executor)
    assert first is not None
    first.mkdir(parents=True)
    (first / "part-0-of-2").touch()
    executor.clients[-1].status = end
    cached.print()
    env.execute_async()
    assert sink_of(executor) not in (None, first)
    assert not first.exists()


def test_lost_and_invalidated_results_are_computed_again(
    env: StreamExecutionEnvironment, executor: FakeExecutor, caplog: pytest.LogCaptureFixture
) -> None:
    cached = env.from_collection([1]).cache()
    env.execute_async()
    directory = finish(executor, [1])
    (directory / "part-1-of-2").unlink()
    cached.print()
    with caplog.at_level(logging.WARNING):
        env.execute_async()
    assert "any more, and are computed again; all hosts of the cluster" in caplog.text
    again = finish(executor, [1])
    assert not directory.exists()
    cached.invalidate()
    assert not again.exists()
    cached.print()
    env.execute_async()
    assert sink_of(executor) not in (None, again)


def test_the_end_of_the_environment_removes_results(env: StreamExecutionEnvironment, executor: FakeExecutor) -> None:
    cached = env.from_collection([1]).cache()
    env.execute_async()
    directory = finish(executor, [1])
    env.close()
    assert not directory.parent.exists()
    cached.print()
    env.execute_async()
    other = finish(executor, [1])
    del cached
    executor.graphs.clear()
    env._caches._at_exit()  # type: ignore[misc] # what the interpreter's end calls
    assert not other.parent.exists()


def test_a_cache_behind_a_cache_is_read_alone(env: StreamExecutionEnvironment, executor: FakeExecutor) -> None:
    first = env.from_collection([1]).cache()
    second = first.map(str).name("second").cache()
    second.print()
    env.execute_async()
    sinks = [n.operator.function for n in executor.graphs[-1].nodes.values() if n.operator.kind is OperatorKind.SINK]
    assert len(sinks) == 2
    for sink in sinks:
        written(Path(sink.describe()["path"]), [1])
    second.print()
    env.execute_async()
    assert submitted(executor) == ["Source: Cached Cache of second", "Sink: Print to Std. Out"]


def test_streams_that_never_end_are_refused(env: StreamExecutionEnvironment) -> None:
    stream = env.socket_text_stream("localhost", 9).map(str)
    with pytest.raises(GraphError, match=r"'Source: Socket Stream' is unbounded: write the stream to a file sink"):
        stream.cache()
    with pytest.raises(GraphError, match="Cache for KeyedStream"):
        env.from_collection([1]).key_by(str).cache()


def test_files_keep_records_and_timestamps_in_order(tmp_path: Path) -> None:
    check_two_phase_sink(
        lambda: CachedResultsSink(str(tmp_path / "sink")),
        [1, "a", None, 2, 3, (4, 5)],
        lambda: [] if (parts := parts_of(tmp_path / "sink")) is None else records_of(parts),
    )
    written(tmp_path / "d", ["a", "b"], 3, [7, 8])
    parts = parts_of(tmp_path / "d")
    assert parts is not None
    assert [path.name for path in parts] == ["part-0-of-3", "part-1-of-3", "part-2-of-3"]
    check_source(lambda: CachedResultsSource(parts, None), ["a", "b"])
    assert parts_of(tmp_path / "none") is None


def test_what_is_kept_is_found_by_those_who_look_for_data_sets(tmp_path: Path) -> None:
    complete, partial = tmp_path / "firesteel-cache-1" / ("a" * 32), tmp_path / "firesteel-cache-2" / ("b" * 32)
    written(complete, ["x"], 1, [1])
    written(partial, ["x"], 2, [1])
    (partial / "part-1-of-2").unlink()
    (tmp_path / "firesteel-cache-2" / "notes").mkdir()
    (tmp_path / "others" / ("c" * 32)).mkdir(parents=True)
    (tmp_path / "firesteel-cache-2" / ("d" * 32)).symlink_to(tmp_path / "others")
    results = sorted(kept_in(str(tmp_path)), key=lambda result: result.id)
    assert [(result.id, result.directory, result.is_complete) for result in results] == [
        ("a" * 32, complete, True), ("b" * 32, partial, False)
    ]  # fmt: skip
    assert kept_in(str(tmp_path / "none")) == []


def records_of(parts: list[Path]) -> list[Any]:
    from firesteel.connectors.cached_results import _Cursor

    values: list[Any] = []
    for path in parts:
        with closing(_Cursor(str(path), 0, 0)) as cursor:
            while not (chunk := cursor.read(2)).finished:
                values += chunk.values
            values += chunk.values
    return values


def test_what_goes_wrong_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    writer = CachedResultsSink(str(tmp_path / "file" / "d")).create_writer(Context(0, 1))
    with pytest.raises(ProgramError, match=r"can't be written to.*firesteel.cache.directory"):
        writer.open()
    with pytest.raises(ProgramError, match=r"part-0-of-1 can't be read.*firesteel.cache.directory"):
        records_of([tmp_path / "part-0-of-1"])
    written(tmp_path / "d", [1, 2, 3], 1)
    cut = tmp_path / "d" / "part-0-of-1"
    cut.write_bytes(cut.read_bytes()[:-1])
    with pytest.raises(ProgramError, match=r"is cut off behind byte 0: call invalidate\(\)"):
        records_of([cut])

    class Stubborn:
        def __reduce__(self) -> Any:
            raise ValueError("never")

    with pytest.raises(SerializationError, match="a record can't be pickled: ValueError: never"):
        written(tmp_path / "e", [Stubborn()], 1)


@pytest.mark.parametrize("periodic", [True, False])
def test_a_cache_goes_on_from_a_checkpoint_as_often_as_it_has_to(periodic: bool, tmp_path: Path) -> None:
    """Also from one by hand."""
    directory = tmp_path / "d"
    sink = CachedResultsSink(str(directory))

    attempts = count()

    def written_by(records: list[Any], states: list[bytes]) -> Any:
        writer = sink.create_writer(Context(0, 1, next(attempts), checkpointing=periodic))
        if states:
            writer.restore_state([WriterState(state) for state in states])
        writer.open()
        writer.write(records, None)
        return writer

    first = written_by(["kept"], [])
    assert first.prepare_commit(end_of_input=False) == ()
    states = list(first.snapshot_state())
    first.write(["lost"], None)
    first.abort()
    first.close()
    second = written_by(["lost again"], states)
    second.abort()
    second.close()
    third = written_by(["last"], states)
    (prepared,) = third.prepare_commit(end_of_input=True)
    sink.create_committer(Context(0, 1)).commit([Committable(prepared)])
    third.close()
    (part,) = directory.iterdir()
    assert [word for word in (b"kept", b"lost", b"last") if word in part.read_bytes()] == [b"kept", b"last"]


def test_an_attempt_that_is_still_alive_does_not_write_into_the_cache_of_the_next(tmp_path: Path) -> None:
    directory = tmp_path / "d"
    sink = CachedResultsSink(str(directory))
    states: list[bytes] = []
    former: list[Any] = []
    for attempt in range(4):
        writer = sink.create_writer(Context(0, 1, attempt, checkpointing=True))
        if states:
            writer.restore_state([WriterState(state) for state in states])
        writer.open()
        assert len(list(directory.iterdir())) <= 2, "its own, and the one that it goes on from"
        writer.write([attempt], None)
        if attempt < 3:
            states = list(writer.snapshot_state())
            writer.write(["zombie"], None)
            former.append(writer)
    (prepared,) = writer.prepare_commit(end_of_input=True)
    for zombie in former:
        zombie.write(["zombie"], None)
        zombie.abort()
    sink.create_committer(Context(0, 1, 3)).commit([Committable(prepared)])
    assert records_of(list(directory.iterdir())) == [0, 1, 2, 3]
    for subtask_writer in (*former, writer):
        subtask_writer.close()


def test_what_a_checkpoint_refers_to_outlives_the_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each checkpoint needs what was written before it; a job without checkpoints begins again, and syncs nothing."""
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda file: synced.append(os.fstat(file).st_size))
    sink = CachedResultsSink(str(tmp_path / "sink"))
    for checkpointing, syncs in ((True, 3), (False, 0)):
        synced.clear()
        writer = sink.create_writer(Context(0, 1, checkpointing=checkpointing))
        writer.open()
        sizes = []
        for record in range(2):
            writer.write([record], None)
            if checkpointing:
                sizes.append(json.loads(*writer.snapshot_state())[1])
        writer.write(["last"], None)
        (committable,) = writer.prepare_commit(end_of_input=True)
        sizes.append(os.path.getsize(json.loads(committable)[0]))
        assert synced == sizes[:syncs]
        writer.close()


def test_a_file_that_has_lost_records_of_the_checkpoint_is_refused(tmp_path: Path) -> None:
    sink = CachedResultsSink(str(tmp_path / "sink"))
    writer = sink.create_writer(Context(0, 1, 0, checkpointing=True))
    writer.open()
    writer.write([1, 2, 3], None)
    state = [WriterState(data) for data in writer.snapshot_state()]
    (hidden,) = (tmp_path / "sink").iterdir()
    os.truncate(hidden, hidden.stat().st_size - 1)  # as after the crash of a host
    again = sink.create_writer(Context(0, 1, 1, checkpointing=True))
    again.restore_state(state)
    with pytest.raises(StateRestoreError, match="shorter than the"):
        again.open()
    for subtask_writer in (writer, again):
        subtask_writer.close()
