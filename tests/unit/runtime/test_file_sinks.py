"""File sinks in whole jobs that crash at any moment: each record is visible once, and no hidden file is left behind."""

from __future__ import annotations

import os
import random
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from firesteel.common.serialization import Encoder
from firesteel.common.typeinfo import Types
from firesteel.common.types import Row
from firesteel.connectors.file_compaction import FileCompactor, FileCompactStrategy
from firesteel.connectors.file_layout import BucketAssigner, RollingPolicy
from firesteel.connectors.file_sink import FileSink
from firesteel.connectors.formats.parquet_files import ParquetBulkWriters, ParquetColumnarRowInputFormat
from firesteel.graph.specs import OperatorKind as K
from firesteel.graph.specs import PartitionerKind as P
from firesteel.runtime.task import task as task_module
from tests.examples import examples
from tests.unit.connectors.reading import read_file
from tests.unit.runtime.mini_job import Checkpoint, MiniJob, Vertex
from tests.unit.runtime.test_exactly_once import operator, random_splits, source

ROW = Types.ROW_NAMED(["key", "time"], [Types.LONG(), Types.LONG()])


def encode(record: Any) -> bytes:
    return f"{record[0]},{record[1]}\n".encode()


def bucket(record: Any, now_ms: int) -> str:
    return f"key-{record[0] % 2}"


def as_row(record: Any) -> Row:
    return Row(key=record[0], time=record[1])


def rows_sink(folder: Path, *, compact: tuple[FileCompactStrategy, FileCompactor] | None, size: int) -> FileSink:
    builder = FileSink.for_row_format(folder, Encoder(encode)).with_bucket_assigner(BucketAssigner(bucket))
    builder.with_rolling_policy(RollingPolicy.default_rolling_policy(part_size=size))
    return builder.build() if compact is None else builder.enable_compact(*compact).build()


def vertices(sink: FileSink, p: Sequence[int]) -> list[Vertex]:
    stages = sink.stages()
    if not stages:
        return [
            Vertex("source", source("source"), p[0]),
            Vertex("sink", lambda: [operator("sink", K.SINK, sink)], p[1], [("source", P.REBALANCE, None)]),
        ]
    parts, gather = (operator(stage.name, K.SINK_STAGE, stage) for stage in stages)
    return [
        Vertex("source", lambda: [*source("source")(), operator("row", K.MAP, lambda r: r)], p[0]),
        Vertex("parts", lambda: [parts], p[1], [("source", P.REBALANCE, None)]),
        Vertex("gather", lambda: [gather], 1, [("parts", P.GLOBAL, None)]),
        Vertex("sink", lambda: [operator("sink", K.SINK, sink)], p[2], [("gather", P.REBALANCE, None)]),
    ]


def run_with_crashes(
    sink: FileSink,
    records: Any,
    parallelism: Sequence[Sequence[int]],
    seed: int,
    *,
    between: Callable[[], None] = lambda: None,
    zombies: bool = False,
) -> None:
    """Each attempt begins when the one before is dead; with zombies that goes on for a while, and nobody hears it."""
    chance = random.Random(seed)
    restore: Checkpoint | None = None
    number = 0
    living: list[MiniJob] = []
    for attempt, degrees in enumerate(parallelism):
        job = MiniJob(
            vertices(sink, degrees), {"source": records}, chance.randrange(1 << 30), restore,
            first_checkpoint=number + 1, attempt=attempt,
        )  # fmt: skip
        living.append(job)
        try:
            if attempt == len(parallelism) - 1:
                haunted(job, living[:-1], chance)
            else:
                job.live_for_a_while(chance)
            restore, number = job.completed, job.number
            if zombies:
                job.pending.clear()
                continue
        finally:
            if not zombies or attempt == len(parallelism) - 1:
                while living:
                    living.pop().crash()
        between()


def haunted(job: MiniJob, zombies: list[MiniJob], chance: random.Random) -> None:
    """Run a job to its end, while former attempts write on, and end at some time."""
    while zombies:
        zombie = chance.choice(zombies)
        try:
            zombie.steps(chance.randrange(1, 30))
        except AssertionError:
            assert zombie.failures, "its files may have been removed, nothing else"
        job.live_for_a_while(chance)
        if zombie.failures or chance.random() < 0.5:
            zombies.remove(zombie)
            zombie.crash()
    job.to_end()


def files(folder: Path) -> tuple[list[Path], list[Path]]:
    """Visible and hidden ones."""
    paths = [path for path in folder.rglob("*") if path.is_file()]
    return [p for p in paths if not p.name.startswith(".")], [p for p in paths if p.name.startswith(".")]


@pytest.fixture(autouse=True)
def _one_batch_for_each_step_and_no_waiting_for_disks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_module, "STEP_SECONDS", -1.0)
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


def by_size(size: int) -> FileCompactStrategy:
    return FileCompactStrategy.builder().set_size_threshold(size).set_num_compact_threads(2).build()


def by_checkpoints(count: int) -> FileCompactStrategy:
    return FileCompactStrategy.builder().enable_compaction_on_checkpoint(count).build()


CONCAT = FileCompactor.concat_file_compactor()
WAYS: dict[str, tuple[FileCompactStrategy, FileCompactor] | None] = {
    "not": None,
    "by size": (by_size(200), CONCAT),
    "by checkpoints": (by_checkpoints(2), CONCAT),
    "each as it is": (by_checkpoints(1), FileCompactor.identical_file_compactor()),
}


@pytest.mark.parametrize("way", WAYS)
@settings(max_examples=examples(25), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 1 << 30))
def test_each_record_is_visible_once_and_nothing_is_left_over(way: str, seed: int) -> None:
    chance = random.Random(seed)
    records = random_splits(chance)
    degrees = [[chance.randrange(1, 4) for _ in range(3)] for _ in range(chance.randrange(1, 5))]
    if chance.random() < 0.5:
        degrees = [degrees[0]] * len(degrees)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sink = rows_sink(folder, compact=WAYS[way], size=chance.choice([20, 60, 10_000]))
        run_with_crashes(sink, records, degrees, chance.randrange(1 << 30))
        visible, hidden = files(folder)
        lines = Counter(line for path in visible for line in path.read_text().splitlines())
        assert lines == Counter(f"{key},{time}" for split in records for key, time in split)
        assert hidden == []
        assert all(path.parent.name == f"key-{int(path.read_text()[0]) % 2}" for path in visible)
        assert all(path.name.startswith("compacted-") == (way.startswith("by")) for path in visible)


def test_parts_of_all_subtasks_become_one_file(tmp_path: Path) -> None:
    records = [[(0, number)] for number in range(30)]
    run_with_crashes(rows_sink(tmp_path, compact=(by_size(10**9), CONCAT), size=1), records, [[3, 3, 2]], 1)
    (visible,), hidden = files(tmp_path)
    assert hidden == []
    assert sorted(visible.read_text().splitlines()) == sorted(f"0,{number}" for number in range(30))


def test_parquet_is_joined_record_by_record(tmp_path: Path) -> None:
    reader = ParquetColumnarRowInputFormat(ROW)
    builder = FileSink.for_bulk_format(tmp_path, ParquetBulkWriters.for_row_type(ROW))
    builder.with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
    builder.with_rolling_policy(RollingPolicy.default_rolling_policy(part_size=1))
    sink = builder.enable_compact(by_size(10**9), FileCompactor.record_wise_file_compactor(reader)).build()
    records = [[(split, number) for number in range(5)] for split in range(4)]
    run_with_crashes(sink, records, [[2, 2, 1], [2, 2, 1]], 3)
    visible, hidden = files(tmp_path)
    assert hidden == []
    rows = [row for path in visible for row in read_file(reader, path)]
    assert sorted((row.key, row.time) for row in rows) == sorted(record for split in records for record in split)
    assert len(visible) < 20, "nothing was joined"


@pytest.mark.parametrize("way", WAYS)
@settings(max_examples=examples(15), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 1 << 30))
def test_attempts_that_are_still_alive_write_into_no_file_of_the_next(way: str, seed: int) -> None:
    chance = random.Random(seed)
    records = random_splits(chance)
    degrees = [[chance.randrange(1, 4) for _ in range(3)]] * chance.randrange(2, 4)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sink = rows_sink(folder, compact=WAYS[way], size=chance.choice([60, 10_000]))
        run_with_crashes(sink, records, degrees, chance.randrange(1 << 30), zombies=True)
        visible, _ = files(folder)  # what a zombie has begun it may have left
        lines = Counter(line for path in visible for line in path.read_text().splitlines())
        assert lines == Counter(f"{key},{time}" for split in records for key, time in split)


@pytest.mark.parametrize("way", WAYS)
@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 1 << 30))
def test_visible_files_may_be_taken_away_at_any_time(way: str, seed: int) -> None:
    chance = random.Random(seed)
    records = random_splits(chance)
    lines: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)

        def take_away() -> None:
            for path in files(folder)[0]:
                lines.update(path.read_text().splitlines())
                path.unlink()

        sink = rows_sink(folder, compact=WAYS[way], size=chance.choice([20, 60]))
        degrees = [[chance.randrange(1, 4) for _ in range(3)] for _ in range(4)]
        run_with_crashes(sink, records, degrees, chance.randrange(1 << 30), between=take_away)
        take_away()
        assert lines == Counter(f"{key},{time}" for split in records for key, time in split)
        assert files(folder) == ([], [])
