"""Jobs with state in columns whose checkpoints build on each other, and which crash at any moment."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from firesteel.common import Types
from firesteel.expressions import count
from firesteel.expressions.keys import ColumnKey
from firesteel.graph.specs import OperatorKind as K
from firesteel.graph.specs import PartitionerKind as P
from firesteel.runtime import task as task_module
from firesteel.runtime.checkpoints.deltas import BASE
from firesteel.runtime.checkpoints.task_checkpoints import CheckpointServices
from firesteel.runtime.checkpoints.uploads import InlineStream
from tests.unit.runtime.mini_job import SHELVES, Checkpoint, MiniJob, Shelf, Vertex
from tests.unit.runtime.test_exactly_once import expected, key_of, operator, sink, source

BID = Types.TUPLE([Types.LONG(), Types.LONG()])
Splits = list[list[tuple[int, int]]]


class IncrementalJob(MiniJob):
    def services(self) -> CheckpointServices:
        whole = super().services()
        return replace(whole, open_shared=lambda number, hint: InlineStream(), delta_ratio=3.0)

    def trigger(self) -> int:
        self.options = {} if self.completed is None else {BASE: str(self.completed.number)}
        return super().trigger()


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


def test_nothing_is_lost_and_nothing_is_doubled() -> None:
    most = 0
    for seed in range(25):
        chance = random.Random(seed)
        splits: Splits = [[(chance.randrange(40), time) for time in range(chance.randrange(20, 60))] for _ in range(3)]
        SHELVES["shelf"] = shelf = Shelf()
        restore: Checkpoint | None = None
        number = 1
        for attempt in range(3):
            degrees = (2, chance.choice([1, 2, 3]))
            job = IncrementalJob(counted(degrees), {"source": splits}, seed, restore, None, number, attempt)
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
    assert most > 1, "no checkpoint built on another one"
