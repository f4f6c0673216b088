"""File writers: columns give the files that rows give; parts are closed by the clock, also when nothing comes."""

from __future__ import annotations

import heapq
import os
import tempfile
from collections.abc import Callable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firesteel.common.serialization import BulkWriterFactory, Encoder
from firesteel.common.typeinfo import RowTypeInfo, TypeInformation, Types
from firesteel.common.types import Row
from firesteel.connectors.file_committer import FileCommitter
from firesteel.connectors.file_layout import BucketAssigner, OutputFileConfig, RollingPolicy
from firesteel.connectors.file_writer import FileWriter
from firesteel.connectors.filesystems.local import LocalOutput
from firesteel.connectors.formats.csv_files import CsvBulkWriters
from firesteel.connectors.formats.csv_rows import CsvRowSerializationSchema
from firesteel.connectors.formats.csv_schema import CsvSchema
from firesteel.connectors.formats.json_rows import JsonRowSerializationSchema
from firesteel.connectors.formats.parquet_files import ParquetBulkWriters
from firesteel.connectors.hidden_files import HiddenFiles
from firesteel.core.errors import StateRestoreError
from firesteel.functions.sink import WriterContext
from firesteel.functions.two_phase import ALREADY_COMMITTED, COMMITTED, CommitOutcome, Committable, WriterState
from firesteel.runtime.records.columns import StreamColumns
from firesteel.testing.clock import ManualClock
from tests.examples import examples
from tests.unit.expressions.strategies import PLAIN, instant

Format = Encoder | BulkWriterFactory
NEVER = RollingPolicy.on_checkpoint_rolling_policy()


class Subtask(WriterContext):
    """Calls what is due when its clock is moved."""

    subtask_index = attempt = checkpoint_id = 0
    parallelism = 1
    job_id = operator_id = "0" * 32
    checkpointing = False

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.temporary: set[str] = set()
        self._timers: list[tuple[int, int, Callable[[], None]]] = []

    def register_temporary_file(self, path: str) -> None:
        self.temporary.add(path)

    def forget_temporary_file(self, path: str) -> None:
        self.temporary.discard(path)

    def register_timer(self, epoch_ms: int, callback: Callable[[], None]) -> None:
        heapq.heappush(self._timers, (epoch_ms, id(callback), callback))

    def wait(self, seconds: float) -> None:
        until = self.clock.epoch_ms() + round(seconds * 1000)
        while self._timers and self._timers[0][0] <= until:
            due, _, callback = heapq.heappop(self._timers)
            self.clock.advance(max(0, due - self.clock.epoch_ms()) / 1000)
            callback()
        self.clock.advance((until - self.clock.epoch_ms()) / 1000)


def writer_of(
    folder: Path,
    file_format: Format,
    rolling: RollingPolicy = NEVER,
    buckets: BucketAssigner | None = None,
    check_ms: int = 100,
    restored: Sequence[bytes] = (),
    attempt: int = 0,
    checkpoint_id: int = 0,
) -> tuple[FileWriter, Subtask]:
    subtask = Subtask()
    subtask.attempt, subtask.checkpoint_id = attempt, checkpoint_id
    assigner = BucketAssigner.base_path_bucket_assigner() if buckets is None else buckets
    writer = FileWriter(folder, file_format, assigner, rolling, OutputFileConfig(), check_ms, subtask, subtask.clock)
    if restored:
        writer.restore_state([WriterState(state) for state in restored])
    writer.open()
    return writer, subtask


def commit(subtask: Subtask, prepared: Sequence[bytes]) -> list[CommitOutcome]:
    return [result.outcome for result in FileCommitter(subtask).commit([Committable(data) for data in prepared])]


def show(writer: FileWriter, subtask: Subtask) -> None:
    """The end of the input, and the commit."""
    prepared = [Committable(data) for data in writer.prepare_commit(end_of_input=True)]
    assert all(result == COMMITTED for result in FileCommitter(subtask).commit(prepared))


FORMATS: dict[str, Callable[[RowTypeInfo], Format]] = {
    "parquet": lambda row_type: ParquetBulkWriters.for_row_type(row_type),
    "parquet in UTC": lambda row_type: ParquetBulkWriters.for_row_type(row_type, None, True),
    "csv": lambda row_type: CsvBulkWriters.for_schema(CsvSchema(row_type)),
    "lines of csv": lambda row_type: Encoder.of_schema(CsvRowSerializationSchema.Builder(row_type).build(), b""),
    "json": lambda row_type: Encoder.of_schema(JsonRowSerializationSchema.builder().with_type_info(row_type).build()),
}
SMALL_DECIMALS = st.decimals(-1000, 1000, places=4)
FIELDS: list[tuple[TypeInformation, st.SearchStrategy[Any]]] = [
    (Types.BIG_DEC(), SMALL_DECIMALS) if type_info == Types.BIG_DEC() else (type_info, values)
    for type_info, values in PLAIN
    if type_info not in (Types.BIG_INT(), Types.FLOAT(), Types.DOUBLE(), Types.INSTANT())
] + [
    (Types.BIG_INT(), st.integers(-(10**37), 10**37)),
    (Types.FLOAT(), st.floats(width=32, allow_nan=False, allow_infinity=False)),
    (Types.DOUBLE(), st.floats(allow_nan=False, allow_infinity=False)),
    (Types.INSTANT(), st.datetimes().map(instant)),
    (Types.LIST(Types.INT()), st.lists(st.integers(0, 9), max_size=3)),
]


def contents(folder: Path, name: str) -> list[Any]:
    paths = sorted(folder.rglob("part-*"), key=lambda path: (path.parent, int(path.name.rsplit("-", 1)[1])))
    if name.startswith("parquet"):
        return [(str(path.parent.relative_to(folder)), pq.read_table(path)) for path in paths]
    return [(str(path.parent.relative_to(folder)), path.read_bytes()) for path in paths]


@pytest.mark.parametrize("name", FORMATS)
@settings(max_examples=examples(25))
@given(data=st.data())
def test_columns_give_the_files_that_rows_give(name: str, data: st.DataObject) -> None:
    fields = data.draw(st.lists(st.sampled_from(FIELDS), min_size=1, max_size=4))
    types = [type_info for type_info, _ in fields]
    row_type = Types.ROW_NAMED([f"c{i}" for i in range(len(types))], types)
    parts = st.tuples(*[st.none() | values for _, values in fields])
    rows = [Row(**dict(zip(row_type.field_names, row, strict=True))) for row in data.draw(st.lists(parts, max_size=12))]
    cuts = sorted(data.draw(st.lists(st.integers(0, len(rows)), max_size=3)))
    rolling = data.draw(st.sampled_from([NEVER, RollingPolicy.default_rolling_policy(40)]))
    by_length = BucketAssigner(lambda row, now_ms: str(len(str(row.c0)) % 2))
    buckets = data.draw(st.sampled_from([None, by_length, BucketAssigner.date_time_bucket_assigner("yyyy")]))
    as_columns = data.draw(st.lists(st.booleans(), min_size=len(cuts) + 1, max_size=len(cuts) + 1))
    columns = StreamColumns(row_type)
    folders = []
    for columnar in (False, True):
        with tempfile.TemporaryDirectory() as folder:
            writer, subtask = writer_of(Path(folder), FORMATS[name](row_type), rolling, buckets)
            assert writer.takes_columns
            for start, end, by_column in zip([0, *cuts], [*cuts, len(rows)], as_columns, strict=True):
                if columnar and by_column:
                    writer.write_columns(columns.from_records(rows[start:end]), None)
                else:
                    writer.write(rows[start:end], None)
            show(writer, subtask)
            writer.close()
            assert subtask.temporary == set()
            folders.append(contents(Path(folder), name))
    assert folders[0] == folders[1]


def test_columns_are_written_by_name_and_those_of_tuples_by_position(tmp_path: Path) -> None:
    written = Types.ROW_NAMED(["a", "b"], [Types.INT(), Types.STRING()])
    turned = StreamColumns(Types.ROW_NAMED(["b", "x", "a"], [Types.STRING(), Types.INT(), Types.INT()]))
    pairs = StreamColumns(Types.TUPLE([Types.INT(), Types.STRING()]))
    writer, subtask = writer_of(
        tmp_path, ParquetBulkWriters.for_row_type(written), RollingPolicy.on_checkpoint_rolling_policy()
    )
    writer.write_columns(turned.from_records([Row(b="one", x=0, a=1)]), None)
    writer.write_columns(pairs.from_records([(2, "two")]), None)
    writer.write([Row(a=3, b="three")], None)
    with pytest.raises(ValueError, match=r"Field names \['b'\] do not exist"):
        writer.write_columns(StreamColumns(Types.ROW_NAMED(["a"], [Types.INT()])).from_records([Row(a=1)]), None)
    with pytest.raises(ValueError, match="3 values for the 2 fields"):
        writer.write_columns(StreamColumns(Types.TUPLE([Types.INT()] * 3)).from_records([(1, 2, 3)]), None)
    with pytest.raises(ValueError, match="a value of column 'b' is no string"):
        writer.write_columns(StreamColumns(Types.TUPLE([Types.INT()] * 2)).from_records([(1, 2)]), None)
    show(writer, subtask)
    (table,) = [pq.read_table(path) for path in tmp_path.glob("part-*")]
    assert table.to_pylist() == [{"a": 1, "b": "one"}, {"a": 2, "b": "two"}, {"a": 3, "b": "three"}]


def test_row_groups_are_cut_where_they_are_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("firesteel.connectors.formats.parquet_files.ROW_GROUP_ROWS", 10)
    row_type = Types.ROW_NAMED(["n"], [Types.LONG()])
    columns = StreamColumns(row_type)
    writer, subtask = writer_of(
        tmp_path, ParquetBulkWriters.for_row_type(row_type), RollingPolicy.on_checkpoint_rolling_policy()
    )
    numbers = iter(range(100))
    for count in (3, 25, 1, 4):
        batch = columns.from_records([Row(n=next(numbers)) for _ in range(count)])
        writer.write_columns(batch, None)
        writer.write([Row(n=next(numbers))], None)
    show(writer, subtask)
    (path,) = tmp_path.glob("part-*")
    metadata = pq.read_metadata(path)
    assert [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)] == [10, 10, 10, 7]
    assert pq.read_table(path).column("n").to_pylist() == list(range(37))


def test_formats_without_columns_say_so(tmp_path: Path) -> None:
    writer, _ = writer_of(tmp_path, Encoder.simple_string_encoder())
    assert not writer.takes_columns
    assert not JsonRowSerializationSchema(Types.LIST(Types.INT())).takes_columns


@pytest.mark.parametrize(("age", "inactivity"), [(60_000, 5_000), (5_000, 60_000)], ids=["inactivity", "age"])
def test_parts_are_closed_when_nothing_comes(tmp_path: Path, age: int, inactivity: int) -> None:
    rolling = RollingPolicy.default_rolling_policy(1000, age, inactivity)
    writer, subtask = writer_of(tmp_path, Encoder.simple_string_encoder(), rolling, check_ms=1_000)
    writer.write(["one"], None)
    subtask.wait(4.9)
    assert [len(writer._open), len(writer._closed)] == [1, 0]
    subtask.wait(1.1)
    assert [len(writer._open), len(writer._closed)] == [0, 1]
    writer.write(["two"], None)
    subtask.wait(20)
    assert [len(writer._open), len(writer._closed)] == [0, 2], "it looks again and again"
    show(writer, subtask)
    assert sorted(path.read_text() for path in tmp_path.glob("part-*")) == ["one\n", "two\n"]


def test_decimal_numbers_that_a_file_can_not_hold_name_the_column(tmp_path: Path) -> None:
    row_type = Types.ROW_NAMED(["price"], [Types.BIG_DEC()])
    writer, _ = writer_of(
        tmp_path, ParquetBulkWriters.for_row_type(row_type), RollingPolicy.on_checkpoint_rolling_policy()
    )
    with pytest.raises(ValueError, match="a value of column 'price'"):
        writer.write_columns(StreamColumns(row_type).from_records([Row(price=Decimal("1e-30"))]), None)
    writer.abort()


def hidden(folder: Path) -> list[str]:
    return sorted(path.read_text() for path in folder.rglob(".*") if path.is_file())


def test_a_checkpoint_by_hand_keeps_its_parts_also_without_an_interval(tmp_path: Path) -> None:
    writer, subtask = writer_of(tmp_path, Encoder.simple_string_encoder(), RollingPolicy.default_rolling_policy())
    writer.write(["a"], None)
    assert writer.prepare_commit(end_of_input=False) == []
    (state,) = writer.snapshot_state()
    writer.write(["b"], None)
    writer.abort()
    writer.close()
    assert hidden(tmp_path) == ["a\nb\n"]
    assert not subtask.temporary
    again, subtask = writer_of(tmp_path, Encoder.simple_string_encoder(), restored=[state])
    assert hidden(tmp_path)[1:] == ["a\nb\n"], "nobody touches the part that it goes on from"
    again.write(["c"], None)
    prepared = again.prepare_commit(end_of_input=True)
    assert again.snapshot_state() == []  # a checkpoint by hand, while the others of the job come to their end
    again.abort()
    assert commit(subtask, prepared) == [CommitOutcome.COMMITTED]
    assert hidden(tmp_path) == []
    assert [path.read_text() for path in tmp_path.glob("part-*")] == ["a\nc\n"]


def test_what_was_begun_behind_the_checkpoint_is_removed(tmp_path: Path) -> None:
    def attempt(checkpoint_id: int, number: int, subtask_index: int, parallelism: int) -> Subtask:
        subtask = Subtask()
        subtask.checkpoint_id, subtask.attempt = checkpoint_id, number
        subtask.subtask_index, subtask.parallelism = subtask_index, parallelism
        return subtask

    for checkpoint_id, index, parallelism in ((3, 0, 2), (4, 0, 2), (3, 1, 2), (4, 1, 2)):
        HiddenFiles(attempt(checkpoint_id, 0, index, parallelism)).begin(tmp_path, "part").write_text(
            f"{checkpoint_id} {index}"
        )
    other = attempt(9, 0, 0, 2)
    other.job_id = "1" * 32
    HiddenFiles(other).begin(tmp_path, "part").write_text("of another job")
    HiddenFiles(attempt(4, 0, 0, 2)).remove_orphans(tmp_path)
    assert len(hidden(tmp_path)) == 5, "a first attempt has no orphans"
    HiddenFiles(attempt(4, 1, 0, 2)).remove_orphans(tmp_path)
    assert hidden(tmp_path) == ["3 0", "3 1", "4 1", "of another job"], "the other subtask may be running"
    HiddenFiles(attempt(4, 2, 0, 3)).remove_orphans(tmp_path)
    assert hidden(tmp_path) == ["3 0", "3 1", "of another job"], "with another parallelism all have ended"


GOES_ON = RollingPolicy.default_rolling_policy()
LINES = Encoder.simple_string_encoder()


def test_an_attempt_that_is_still_alive_writes_into_no_file_of_the_next(tmp_path: Path) -> None:
    old, _ = writer_of(tmp_path, LINES, GOES_ON)
    old.write(["a"], None)
    assert old.prepare_commit(end_of_input=False) == []
    (state,) = old.snapshot_state()
    old.write(["zombie, not flushed"], None)
    new, subtask = writer_of(tmp_path, LINES, GOES_ON, restored=[state], attempt=1, checkpoint_id=1)
    new.write(["b"], None)
    old.write(["zombie"], None)
    prepared = new.prepare_commit(end_of_input=True)
    old.abort()
    assert commit(subtask, prepared) == [CommitOutcome.COMMITTED]
    old.close()
    assert [path.read_text() for path in tmp_path.glob("part-*")] == ["a\nb\n"]
    assert hidden(tmp_path) == []


def test_an_attempt_that_never_took_a_checkpoint_leaves_what_it_went_on_from(tmp_path: Path) -> None:
    first, _ = writer_of(tmp_path, LINES, GOES_ON)
    first.write(["a"], None)
    first.prepare_commit(end_of_input=False)
    states = list(first.snapshot_state())
    first.abort()
    for attempt in (1, 2):
        again, subtask = writer_of(tmp_path, LINES, GOES_ON, restored=states, attempt=attempt, checkpoint_id=1)
        again.write(["lost"], None)
        again.abort()
        assert hidden(tmp_path) == ["a\n"]
        assert subtask.temporary == set()
    for attempt in (3, 4, 5):
        again, subtask = writer_of(tmp_path, LINES, GOES_ON, restored=states, attempt=attempt, checkpoint_id=attempt)
        again.write([str(attempt)], None)
        again.prepare_commit(end_of_input=False)
        states = list(again.snapshot_state())
        again.abort()
        assert len(hidden(tmp_path)) == 2, "its own, and the one that it goes on from"
    show(*writer_of(tmp_path, LINES, GOES_ON, restored=states, attempt=6, checkpoint_id=6))
    assert [path.read_text() for path in tmp_path.glob("part-*")] == ["a\n3\n4\n5\n"]
    assert hidden(tmp_path) == []


def test_two_parts_of_a_folder_go_on_as_two(tmp_path: Path) -> None:
    states: list[bytes] = []
    for value in "ab":
        writer, _ = writer_of(tmp_path, LINES, GOES_ON)
        writer.write([value], None)
        writer.prepare_commit(end_of_input=False)
        states += writer.snapshot_state()
        writer.abort()
    writer, subtask = writer_of(tmp_path, LINES, GOES_ON, restored=states, attempt=1, checkpoint_id=1)
    writer.write(["c"], None)
    show(writer, subtask)
    assert sorted(path.read_text() for path in tmp_path.glob("part-*")) == ["a\nc\n", "b\n"]
    assert hidden(tmp_path) == []


def test_what_an_earlier_release_has_left_goes_on(tmp_path: Path) -> None:
    owner = HiddenFiles(Subtask())._owner
    part, orphan = (tmp_path / f".part-{i}{owner}0of1.{i}.{'0' * 32}" for i in (0, 1))
    part.write_text("a\nlost\n")
    orphan.write_text("lost\n")
    state = f'{{"bucket":"","hidden":"{part}","visible":"{tmp_path}/part-0","size":2}}'.encode()
    writer, subtask = writer_of(tmp_path, LINES, GOES_ON, restored=[state], attempt=1, checkpoint_id=1)
    assert not orphan.exists()
    show(writer, subtask)
    assert [path.read_text() for path in tmp_path.glob("part-*")] == ["a\n"]
    assert hidden(tmp_path) == []


def test_a_late_attempt_does_not_remove_what_the_next_has_begun(tmp_path: Path) -> None:
    late = Subtask()
    late.attempt, late.checkpoint_id = 1, 4
    new, subtask = writer_of(tmp_path, LINES, GOES_ON, attempt=2, checkpoint_id=4)
    new.write(["a"], None)
    HiddenFiles(late).remove_orphans(tmp_path)
    late.parallelism = 2
    HiddenFiles(late).remove_orphans(tmp_path)
    show(new, subtask)
    assert [path.read_text() for path in tmp_path.glob("part-*")] == ["a\n"]


def test_a_part_of_rows_does_not_go_on_in_a_bulk_format(tmp_path: Path) -> None:
    writer, _ = writer_of(tmp_path, LINES, GOES_ON)
    writer.write(["a"], None)
    writer.prepare_commit(end_of_input=False)
    states = list(writer.snapshot_state())
    writer.abort()
    bulk = ParquetBulkWriters.for_row_type(Types.ROW_NAMED(["n"], [Types.LONG()]))
    with pytest.raises(StateRestoreError, match=r"open part of rows, .*, and the sink writes a bulk format now"):
        writer_of(tmp_path, bulk, restored=states, attempt=1, checkpoint_id=1)
    assert hidden(tmp_path) == ["a\n"]


def test_files_that_were_taken_away_are_committed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    writer, subtask = writer_of(tmp_path, LINES)
    writer.write(["a"], None)
    prepared = [Committable(data) for data in writer.prepare_commit(end_of_input=False)]
    committer = FileCommitter(subtask)
    assert committer.commit(prepared) == [COMMITTED]
    assert committer.recommit(prepared) == [ALREADY_COMMITTED]
    assert caplog.text == ""
    (path,) = tmp_path.glob("part-*")
    path.unlink()
    assert committer.recommit(prepared) == [ALREADY_COMMITTED]
    assert f"part file {path} is gone" in caplog.text
    (result,) = committer.commit(prepared)
    assert (result.outcome, "has vanished" in result.reason) == (CommitOutcome.FAILED, True)


def test_a_part_that_has_lost_bytes_is_not_shown(tmp_path: Path) -> None:
    writer, subtask = writer_of(tmp_path, LINES)
    writer.write(["a"], None)
    (prepared,) = writer.prepare_commit(end_of_input=False)
    (path,) = tmp_path.iterdir()
    path.write_text("")
    (result,) = FileCommitter(subtask).commit([Committable(prepared)])
    assert (result.outcome, "is shorter than 2 bytes" in result.reason) == (CommitOutcome.FAILED, True)
    assert list(tmp_path.iterdir()) == [path]


def test_what_a_failed_task_has_not_synced_leaves_no_descriptor(tmp_path: Path) -> None:
    def descriptors() -> set[str]:
        return {descriptor for descriptor in os.listdir("/dev/fd") if os.path.exists(f"/dev/fd/{descriptor}")}

    output = LocalOutput(tmp_path / ".hidden", tmp_path / "visible")
    output.stream.write(b"some")
    before, to_be_done = descriptors(), list[Callable[[], None]]()
    output.persist(to_be_done.append)
    assert len(descriptors()) == len(before) + 1
    to_be_done.clear()
    assert descriptors() == before
    output.persist(to_be_done.append)
    to_be_done.pop()()
    assert descriptors() == before
    output.discard()
