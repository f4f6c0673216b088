"""The built-in sources and sinks pass the public conformance kits, and the kits find what is wrong."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from firesteel.common.serialization import Encoder
from firesteel.common.typeinfo import Types
from firesteel.common.types import Row
from firesteel.connectors.collection import CollectionSource
from firesteel.connectors.data_generator import DataGeneratorSource, RateLimiterStrategy
from firesteel.connectors.file_committer import FileCommitter
from firesteel.connectors.file_compaction import FileCompactor, FileCompactStrategy
from firesteel.connectors.file_layout import (
    BucketAssigner,
    DefaultRollingPolicy,
    OnCheckpointRollingPolicy,
    OutputFileConfig,
    RollingPolicy,
)
from firesteel.connectors.file_sink import FileSink
from firesteel.connectors.file_source import FileSource, StreamFormat, local_path
from firesteel.connectors.file_writer import FileWriter
from firesteel.connectors.formats.parquet_files import ParquetBulkWriters, ParquetColumnarRowInputFormat
from firesteel.connectors.number_sequence import NumberSequenceSource
from firesteel.connectors.split_reader import Chunk
from firesteel.core.errors import ProgramError
from firesteel.functions.sink import Sink, SinkWriter, WriterContext
from firesteel.functions.source import Source
from firesteel.functions.two_phase import ALREADY_COMMITTED, CommitOutcome, CommitResult, Committable, Committer
from firesteel.testing import check_sink, check_source, check_two_phase_sink
from firesteel.testing.clock import ManualClock
from tests.unit.connectors.reading import read_file


def double(number: int) -> int:
    return 2 * number


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda: CollectionSource(["a", None, 3, "a"]), ["a", None, 3, "a"]),
        (lambda: CollectionSource([]), []),
        (lambda: NumberSequenceSource(-3, 40), list(range(-3, 41))),
        (lambda: NumberSequenceSource(5, 5), [5]),
        (lambda: DataGeneratorSource(double, 50), [2 * i for i in range(50)]),
        (lambda: DataGeneratorSource(double, 20, RateLimiterStrategy.per_second(10)), [2 * i for i in range(20)]),
        (lambda: DataGeneratorSource(double, 0), []),
    ],
)
def test_sources(make: Callable[[], Source[Any]], expected: list[Any]) -> None:
    check_source(make, expected)


LINES = ["first", "", "ünïcödé", "x" * 300, "", "last"]


@pytest.mark.parametrize("end", ["", "\n"])
@pytest.mark.parametrize("split_bytes", [0, 1, 7, 100, 10_000])
def test_lines_of_plain_files(tmp_path: Path, end: str, split_bytes: int) -> None:
    (tmp_path / "a.txt").write_text("\n".join(LINES) + end)
    (tmp_path / "empty.txt").write_text("")
    (tmp_path / "deeper").mkdir()
    (tmp_path / "deeper" / "b.txt").write_text("one\r\ntwo\r\n", newline="")
    (tmp_path / ".hidden").write_text("not read")
    (tmp_path / "_SUCCESS").write_text("not read")

    def make() -> Source[Any]:
        builder = FileSource.for_record_stream_format(StreamFormat.text_line_format(), tmp_path)
        return builder.set_split_size(split_bytes).build()

    check_source(make, [*LINES, "one", "two"], batch_sizes=(1, 1000), parallelisms=(1, 3))


@pytest.mark.parametrize(
    ("ending", "compress"),
    [(".gz", gzip.compress), (".bz2", bz2.compress), (".xz", lzma.compress), (".deflate", zlib.compress)],
)
def test_lines_of_compressed_files(tmp_path: Path, ending: str, compress: Callable[[bytes], bytes]) -> None:
    (tmp_path / f"a{ending}").write_bytes(compress("\n".join(LINES).encode()))

    def make() -> Source[Any]:
        builder = FileSource.for_record_stream_format(StreamFormat.text_line_format(), tmp_path / f"a{ending}")
        return builder.set_split_size(5).build()

    check_source(make, LINES)


def _hidden(folder: Path) -> list[Path]:
    return [path for path in folder.rglob(".*") if path.is_file()]


def _visible(folder: Path) -> list[str]:
    files = sorted(path for path in folder.rglob("*") if path.is_file() and not path.name.startswith("."))
    return [line for path in files for line in path.read_text().splitlines()]


@pytest.mark.parametrize("rolling", [RollingPolicy.on_checkpoint_rolling_policy(), RollingPolicy(part_size=8)])
@pytest.mark.parametrize(
    "buckets", [BucketAssigner.base_path_bucket_assigner(), BucketAssigner.date_time_bucket_assigner()]
)
def test_file_sink(tmp_path: Path, rolling: RollingPolicy, buckets: BucketAssigner) -> None:
    def make() -> FileSink:
        builder = FileSink.for_row_format(tmp_path, Encoder.simple_string_encoder())
        return builder.with_rolling_policy(rolling).with_bucket_assigner(buckets).build()

    records = [f"record {i}" for i in range(25)]
    check_two_phase_sink(make, records, lambda: _visible(tmp_path), leftovers=lambda: _hidden(tmp_path))


def test_folders_of_hours_may_have_quoted_text_in_their_names() -> None:
    quoted = BucketAssigner.date_time_bucket_assigner("yyyy'o''clock'''HH", "UTC")
    assert quoted.bucket_of(None, 0) == "1970o'clock'00"
    with pytest.raises(ProgramError, match=r"a quote in .* has no end"):
        BucketAssigner.date_time_bucket_assigner("yyyy'T")


def test_file_sink_rolls_by_size_and_names_parts(tmp_path: Path) -> None:
    names = OutputFileConfig.builder().with_part_prefix("rows").with_part_suffix(".txt").build()

    def make() -> FileSink:
        builder = FileSink.for_row_format(tmp_path, Encoder.simple_string_encoder())
        builder.with_bucket_assigner(BucketAssigner.base_path_bucket_assigner()).with_output_file_config(names)
        return builder.with_rolling_policy(RollingPolicy.default_rolling_policy(part_size=10)).build()

    records = [f"1234567{i}" for i in range(6)]
    check_two_phase_sink(make, records, lambda: _visible(tmp_path), leftovers=lambda: _hidden(tmp_path))
    parts = sorted(path.name for path in tmp_path.iterdir())
    assert len(parts) == 3  # 9 bytes a row: the second row of a part passes the limit
    assert all(name.startswith("rows-") and name.endswith(".txt") for name in parts)


def test_file_sink_of_a_bulk_format(tmp_path: Path) -> None:
    row_type = Types.ROW_NAMED(["id"], [Types.LONG()])
    rows = [Row(id=i) for i in range(25)]

    def make() -> FileSink:
        builder = FileSink.for_bulk_format(tmp_path, ParquetBulkWriters.for_row_type(row_type))
        builder.with_rolling_policy(RollingPolicy.default_rolling_policy(part_size=100))
        return builder.with_bucket_assigner(BucketAssigner(_even)).build()

    def visible() -> list[Any]:
        reader = ParquetColumnarRowInputFormat(row_type)
        return [row for path in sorted(tmp_path.rglob("part-*")) for row in read_file(reader, path)]

    check_two_phase_sink(make, rows, visible, leftovers=lambda: _hidden(tmp_path))
    assert {path.parent.name for path in tmp_path.rglob("part-*")} == {"even", "odd"}
    assert len(list(tmp_path.rglob("part-*"))) > 4


def _even(record: Any, now_ms: int) -> str:
    return "odd" if record.id % 2 else "even"


class Writing(WriterContext):
    subtask_index = attempt = 0
    parallelism = 1
    job_id = "0" * 32

    def register_temporary_file(self, path: str) -> None:
        pass

    def forget_temporary_file(self, path: str) -> None:
        pass


def test_parts_are_closed_by_age_and_inactivity_in_buckets_without_records(tmp_path: Path) -> None:
    clock = ManualClock()
    writer = FileWriter(
        tmp_path, Encoder.simple_string_encoder(), BucketAssigner(lambda record, now_ms: str(record)[0]),
        RollingPolicy.default_rolling_policy(1000, 10_000, 4_000), OutputFileConfig(), 100, Writing(), clock,
    )  # fmt: skip

    def written(*records: str, after: float) -> list[int]:
        """Numbers of open and closed parts."""
        clock.advance(after)
        writer.write(records, None)
        return [len(writer._open), len(writer._closed)]

    assert written("a1", "b1", after=0) == [2, 0]
    assert written("a2", after=3.9) == [2, 0]
    assert written("a3", after=0.2) == [1, 1], "nothing came for b during four seconds"
    assert written("a4", after=3.9) == [1, 1]
    assert written("a5", after=2.5) == [1, 2], "a is older than ten seconds"
    committables = [Committable(data) for data in writer.prepare_commit(end_of_input=True)]
    assert {result.outcome for result in FileCommitter(Writing()).commit(committables)} == {CommitOutcome.COMMITTED}
    writer.close()
    contents = sorted(path.read_text().split() for path in tmp_path.rglob("part-*"))
    assert contents == [["a1", "a2", "a3", "a4"], ["a5"], ["b1"]]


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/a/b", "/a/b"),
        ("file:/a/b", "/a/b"),
        ("~/a", f"{Path.home()}/a"),
        (Path("~"), f"{Path.home()}"),
        ("/a/~/*.csv", "/a/~/*.csv"),
        ("file:///a/b", "/a/b"),
        ("file://localhost/a/b", "/a/b"),
        (Path("file:///a/b"), "/a/b"),
        ("a/b:c", os.path.abspath("a/b:c")),
        ("12:30", os.path.abspath("12:30")),
    ],
)
def test_paths_and_file_uris(path: Any, expected: str) -> None:
    assert local_path(path, "file sink", "writes") == expected


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("", "the path is empty"),
        ("hdfs:/a", "writes local files only, not hdfs://"),
        ("s3://bucket", "writes local files only, not s3://"),
        ("file://host/a", "names no directory of this host"),
        ("file://", "names no directory of this host"),
        ("file:a", "names no directory of this host"),
        ("~nobody of this name/a", "home directory"),
    ],
)
def test_paths_that_are_refused(path: str, reason: str) -> None:
    with pytest.raises(ProgramError, match=reason):
        local_path(path, "file sink", "writes")


def test_what_file_sinks_refuse(tmp_path: Path) -> None:
    encoder = Encoder.simple_string_encoder()
    builder = FileSink.for_row_format(tmp_path, encoder)
    with pytest.raises(TypeError, match="for_bulk_format"):
        FileSink.for_row_format(tmp_path, ParquetBulkWriters.for_row_type(Types.ROW([Types.INT()])))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="for_row_format"):
        FileSink.for_bulk_format(tmp_path, encoder)  # type: ignore[arg-type]
    with pytest.raises(ProgramError, match="there is no file system for ftp://"):
        FileSink.for_row_format("ftp://host/x", encoder)
    strategy = FileCompactStrategy.builder().set_size_threshold(5).set_num_compact_threads(2).build()
    with pytest.raises(TypeError, match="takes a FileCompactor second, not int"):
        builder.enable_compact(strategy, 5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="takes a FileCompactStrategy first, not NoneType"):
        builder.enable_compact(None, FileCompactor.concat_file_compactor())  # type: ignore[arg-type]
    bulk = FileSink.for_bulk_format(tmp_path, ParquetBulkWriters.for_row_type(Types.ROW([Types.INT()])))
    with pytest.raises(ProgramError, match=r"can't be put one after the other; take FileCompactor.record_wise"):
        bulk.enable_compact(strategy, FileCompactor.concat_file_compactor()).build()
    with pytest.raises(TypeError, match="takes a StreamFormat or BulkFormat, not str"):
        FileCompactor.record_wise_file_compactor("parquet")  # type: ignore[arg-type]
    with pytest.raises(ProgramError, match="say when"):
        FileCompactStrategy.builder().build()
    with pytest.raises(ProgramError, match="the number of checkpoints is at least 1, not 0"):
        FileCompactStrategy.builder().enable_compaction_on_checkpoint(0)
    with pytest.raises(ProgramError, match="at least 1 ms, not 0"):
        builder.with_bucket_check_interval(0)
    with pytest.raises(ProgramError, match="begins with a dot"):
        OutputFileConfig(".x")
    with pytest.raises(ProgramError, match="path separator"):
        OutputFileConfig("x", "/y")
    assert isinstance(RollingPolicy.on_checkpoint_rolling_policy(), OnCheckpointRollingPolicy)
    assert isinstance(RollingPolicy.default_rolling_policy(), DefaultRollingPolicy)


class _Forgetful(CollectionSource):
    """Loses its position: a reader that continues begins again."""

    def create_reader(self, context: Any) -> Any:
        reader = super().create_reader(context)
        open_split = reader.open_split

        def lossy(split: Any) -> Any:
            cursor: Any = open_split(split.at(None))
            read = cursor.read
            cursor.read = lambda n: Chunk(read(n).values, 0, cursor._position >= 4)
            return cursor

        vars(reader)["open_split"] = lossy
        return reader


def test_the_source_kit_finds_a_lost_position() -> None:
    with pytest.raises(AssertionError, match="continued from a snapshot"):
        check_source(lambda: _Forgetful([1, 2, 3, 4]), [1, 2, 3, 4])


def test_the_source_kit_finds_a_missing_record() -> None:
    with pytest.raises(AssertionError, match=r"missing \[4\]"):
        check_source(lambda: CollectionSource([1, 2, 3]), [1, 2, 3, 4])


class _Eager(FileSink):
    """Shows its results at the barrier."""

    def create_writer(self, context: Any) -> Any:
        writer, committer = super().create_writer(context), self.create_committer(context)
        prepare = writer.prepare_commit

        def eager(*, end_of_input: bool) -> Any:
            committables = prepare(end_of_input=end_of_input)
            committer.commit([Committable(data) for data in committables])
            return committables

        writer.prepare_commit = eager  # type: ignore[method-assign]
        return writer


class _Loser(FileSink):
    """Does not know what it had open."""

    def create_writer(self, context: Any) -> Any:
        writer = super().create_writer(context)
        snapshot = writer.snapshot_state
        writer.snapshot_state = lambda: snapshot()[:0]  # type: ignore[method-assign]
        return writer


@pytest.mark.parametrize(("kind", "problem"), [(_Eager, "visible"), (_Loser, "records are visible instead of")])
def test_the_sink_kit_finds_early_visibility_and_loss(tmp_path: Path, kind: type[FileSink], problem: str) -> None:
    def make() -> FileSink:
        sink = FileSink.for_row_format(tmp_path, Encoder.simple_string_encoder()).build()
        sink.__class__ = kind
        return sink

    records = [f"record {i}" for i in range(6)]
    with pytest.raises(AssertionError, match=problem):
        check_two_phase_sink(make, records, lambda: _visible(tmp_path))


class _HighestCheckpoint(FileSink):
    """Takes the highest checkpoint it has committed as proof that all up to it are, as sinks of table formats do."""

    folder: Path

    def create_committer(self, context: Any) -> Committer:
        return _UpToHighest(super().create_committer(context), self.folder)


class _UpToHighest(Committer):
    def __init__(self, committer: Committer, folder: Path) -> None:
        self._committer, self._note = committer, folder / ".highest"

    def commit(self, committables: Sequence[Committable]) -> list[CommitResult]:
        highest = int(self._note.read_text()) if self._note.exists() else 0
        results: list[CommitResult] = []
        for committable in committables:
            if committable.checkpoint_id > highest:
                results += self._committer.recommit([committable])
                self._note.write_text(str(committable.checkpoint_id))
            else:
                results.append(ALREADY_COMMITTED)
        return results


class _OnceAfterRestart(FileSink):
    """Takes the first checkpoint after a restart for all that it holds."""

    def create_committer(self, context: Any) -> Committer:
        committer = super().create_committer(context)
        recommit, calls = committer.recommit, []

        def only_once(committables: Sequence[Committable]) -> Sequence[CommitResult]:
            calls.append(committables)
            return recommit(committables) if len(calls) == 1 else [ALREADY_COMMITTED] * len(committables)

        committer.recommit = only_once  # type: ignore[method-assign]
        return committer


def test_the_sink_kit_commits_by_checkpoint(tmp_path: Path) -> None:
    def make(kind: type[FileSink]) -> FileSink:
        builder = FileSink.for_row_format(tmp_path / kind.__name__, Encoder.simple_string_encoder())
        sink = builder.with_rolling_policy(RollingPolicy.on_checkpoint_rolling_policy()).build()
        sink.__class__ = kind
        vars(sink)["folder"] = tmp_path / kind.__name__
        return sink

    records = [f"record {i}" for i in range(6)]
    check_two_phase_sink(
        lambda: make(_HighestCheckpoint), records, lambda: _visible(tmp_path / _HighestCheckpoint.__name__)
    )
    with pytest.raises(AssertionError, match="5 records are visible instead of 6 over three attempts"):
        check_two_phase_sink(
            lambda: make(_OnceAfterRestart), records, lambda: _visible(tmp_path / _OnceAfterRestart.__name__)
        )


class _Plain(Sink[Any]):
    """Shows its results at the end, or too early."""

    def __init__(self, path: Path, *, eager: bool) -> None:
        self.path, self.eager = path, eager

    def create_writer(self, context: Any) -> Any:
        return _PlainWriter(self.path / str(context.subtask_index), context, eager=self.eager)


class _PlainWriter(SinkWriter[Any]):
    def __init__(self, path: Path, context: Any, *, eager: bool) -> None:
        self.visible, self.hidden, self.context = path, path.with_name(f".{path.name}"), context
        self.path = self.visible if eager else self.hidden
        self.records: list[Any] = []

    def write(self, values: Any, timestamps: Any) -> None:
        self.records += values

    def finish(self) -> Any:
        self.context.register_temporary_file(str(self.hidden))
        self.path.write_text("".join(f"{record}\n" for record in self.records))
        return [str(self.path)]

    def commit(self, committables: Any) -> None:
        if self.hidden.exists():
            self.hidden.rename(self.visible)
        self.context.forget_temporary_file(str(self.hidden))

    def abort(self) -> None:
        self.hidden.unlink(missing_ok=True)
        self.context.forget_temporary_file(str(self.hidden))


def test_the_kit_for_sinks_that_show_all_at_the_end(tmp_path: Path) -> None:
    check_sink(lambda: _Plain(tmp_path, eager=False), ["a", "b", "c", "d"], lambda: _visible(tmp_path))
    (tmp_path / "eager").mkdir()
    with pytest.raises(AssertionError, match="visible"):
        check_sink(lambda: _Plain(tmp_path / "eager", eager=True), ["a"], lambda: _visible(tmp_path / "eager"))
