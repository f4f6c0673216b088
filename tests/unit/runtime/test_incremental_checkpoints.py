"""Jobs with state in columns whose checkpoints build on each other, and which crash at any moment."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from firesteel.common import Types
from firesteel.expressions import count
from firesteel.expressions.keys import ColumnKey
from firesteel.graph.specs import OperatorKind as K
from firesteel.graph.specs import PartitionerKind as P
from firesteel.runtime.checkpoints.bases import BASE
from firesteel.runtime.checkpoints.task_checkpoints import CheckpointServices
from firesteel.runtime.checkpoints.uploads import InlineStream
from firesteel.runtime.operator_base.context import TaskInfo
from firesteel.runtime.task import task as task_module
from tests.unit.runtime.mini_job import SHELVES, Checkpoint, MiniJob, Shelf, Vertex
from tests.unit.runtime.test_exactly_once import expected, key_of, keyed, operator, sink, source
from tests.unit.state.file_backend import DONE, FileBackend

BID = Types.TUPLE([Types.LONG(), Types.LONG()])
Splits = list[list[tuple[int, int]]]


class IncrementalJob(MiniJob):
    def services(self) -> CheckpointServices:
        whole = super().services()
        return replace(whole, open_shared=lambda number, hint: InlineStream(), delta_ratio=3.0)

    def trigger(self, savepoint: bool = False, stop: str = "") -> int:
        self.options = {} if self.completed is None else {BASE: str(self.completed.number)}
        return super().trigger(savepoint, stop)


def counted(degrees: Sequence[int]) -> list[Vertex]:
    def chain() -> list[Any]:
        extra = {
            "columns": {"f0": Types.LONG(), "f1": Types.LONG()},
            "input_type": BID,
            "result_type": BID,
        }
        counts = operator("count", K.COLUMNS_AGGREGATE, [count().alias("f1")], key_selectors=(KEY,), extra=extra)
        return [counts, sink()]

    return [
        Vertex("source", source("source"), degrees[0]),
        Vertex("count", chain, degrees[1], [("source", P.HASH, key_of)]),
    ]


KEY = ColumnKey(("f0",), (0,))


def pieces(checkpoint: Checkpoint) -> int:
    """The most files that a subtask's state is in."""
    handles = [
        len(keyed.handles)
        for state in checkpoint.states.values()
        for operator_state in state.operators.values()
        for keyed in operator_state.keyed.values()
    ]
    return max(handles, default=0)


@pytest.fixture(autouse=True)
def _one_batch_for_each_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_module, "STEP_SECONDS", 0.0)


def crash_and_go_on(
    job_class: type[IncrementalJob], seeds: int, vertices: Callable[[Sequence[int]], list[Vertex]]
) -> int:
    """Jobs that crash twice; the most pieces that a checkpoint was in."""
    most = 0
    for seed in range(seeds):
        chance = random.Random(seed)
        splits: Splits = [[(chance.randrange(40), time) for time in range(chance.randrange(20, 60))] for _ in range(3)]
        SHELVES["shelf"] = shelf = Shelf()
        restore: Checkpoint | None = None
        number = 1
        for attempt in range(3):
            degrees = (2, chance.choice([1, 2, 3]), 1)
            job = job_class(vertices(degrees), {"source": splits}, seed, restore, None, number, attempt)
            try:
                if attempt == 2:
                    job.to_end()
                for _ in range(0 if attempt == 2 else 12):
                    job.steps(chance.randrange(1, 30))
                    if job.pending and chance.random() < 0.15:
                        job.abort(chance.choice(list(job.pending)))
                    if not job.pending:
                        job.trigger()
                    most = max(most, pieces(job.completed) if job.completed else 0)
                restore, number = job.completed, job.number + 1
            finally:
                job.crash()
        assert Counter(map(tuple, shelf.visible)) == expected("keyed", {"source": splits}), seed
    return most


def test_nothing_is_lost_and_nothing_is_doubled() -> None:
    assert crash_and_go_on(IncrementalJob, 25, counted) > 1, "no checkpoint built on another one"


@pytest.mark.parametrize("vertices", [counted, keyed], ids=["columns", "rows"])
def test_a_backend_may_write_files(vertices: Callable[[Sequence[int]], list[Vertex]], tmp_path: Path) -> None:
    """Nothing of the runtime knows of it: files are stored, kept, dealt out and fetched."""

    class FileJob(IncrementalJob):
        state_backend = FileBackend()

        def directory_of(self, info: TaskInfo) -> str:
            return str(tmp_path / str(next(serials)) / info.execution_id)

    serials = itertools.count()
    DONE.clear()
    crash_and_go_on(FileJob, 4, vertices)
    assert DONE["put"]
    assert DONE["kept"], "no checkpoint has used a file of another one"
    assert DONE["fetched"]
