"""What a two-phase sink shows of its committables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from firesteel.core.errors import CommitError
from firesteel.functions.two_phase import (
    ALREADY_COMMITTED,
    COMMITTED,
    CommitOutcome,
    CommitResult,
    Committable,
    Committer,
    TwoPhaseCommitSink,
    TwoPhaseWriter,
)
from firesteel.graph.specs import OperatorKind, OperatorSpec
from firesteel.runtime.operator_base.context import OperatorContext
from firesteel.runtime.operator_base.initialization import SnapshotContext
from firesteel.runtime.operators import TwoPhaseSinkOperator
from tests.unit.runtime.support import INFO, ManualClock

RETRY, UNKNOWN, FAILED = (
    CommitResult(outcome, "so") for outcome in (CommitOutcome.RETRY, CommitOutcome.UNKNOWN, CommitOutcome.FAILED)
)


class Answers(TwoPhaseCommitSink[Any], Committer):
    """What the committer says is given."""

    def __init__(self, *answers: Sequence[CommitResult]) -> None:
        self.answers = list(answers)

    def create_writer(self, context: Any) -> TwoPhaseWriter[Any]:
        return Writer()

    def create_committer(self, context: Any) -> Committer:
        return self

    def commit(self, committables: Sequence[Committable]) -> Sequence[CommitResult]:
        return self.answers.pop(0)


class Writer(TwoPhaseWriter[Any]):
    """Each record is a committable."""

    def __init__(self) -> None:
        self.records: list[Any] = []

    def write(self, values: Any, timestamps: Any) -> None:
        self.records += values

    def prepare_commit(self, *, end_of_input: bool) -> Sequence[bytes]:
        records, self.records = self.records, []
        return records


def test_each_way_to_end_is_counted() -> None:
    later: list[Callable[[], None]] = []
    context = OperatorContext(
        INFO, ManualClock(), checkpointing=True, call_later=lambda seconds, call: later.append(call)
    )
    sink = Answers([COMMITTED, RETRY, ALREADY_COMMITTED, UNKNOWN], [COMMITTED, RETRY], [FAILED])
    operator = TwoPhaseSinkOperator(OperatorSpec("1" * 32, "Sink: s", OperatorKind.SINK, sink))
    operator.open(context)

    def shown() -> dict[str, Any]:
        return {name.removeprefix("Sink__s.").removesuffix("Committables"): value
                for name, value in context.metrics.values().items() if value}  # fmt: skip

    operator.write([b"a", b"b", b"c", b"d"], None)
    operator.snapshot_state(SnapshotContext(1, 0))
    assert shown() == {"total": 4, "pending": 4}
    operator.checkpoint_complete(1)
    assert shown() == {"total": 4, "pending": 2, "successful": 1, "alreadyCommitted": 1, "retried": 2}
    later.pop()()
    assert shown() == {"total": 4, "pending": 1, "successful": 2, "alreadyCommitted": 1, "retried": 3}
    with pytest.raises(CommitError, match="can't be committed: so"):
        later.pop()()
    assert shown()["failed"] == 1
