"""What one task does about a two-phase sink: commits what is in a checkpoint, tries again, gives up."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from firesteel.checkpoint.assign import OperatorRestore, TaskRestore
from firesteel.checkpoint.handles import InlineState
from firesteel.checkpoint.subtask_state import Committables
from firesteel.functions.global_commit import GlobalCommitSink
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
from firesteel.graph.execution_states import ExecutionState as E
from firesteel.graph.specs import OperatorKind as K
from firesteel.runtime.bounded.commit import CHECKPOINT, committable_of, plain_committable
from firesteel.runtime.operators.two_phase import MOST_ATTEMPTS
from firesteel.runtime.records.batch import END_OF_INPUT, Barrier, Batch
from tests.unit.runtime.support import spec
from tests.unit.runtime.test_checkpoints import MADE, bench_of

STORY: list[Any] = []


@pytest.fixture(autouse=True)
def benches() -> Iterator[None]:
    STORY.clear()
    MADE.clear()
    yield
    for bench in MADE:
        bench.loop.close()


class Answers(TwoPhaseCommitSink[Any]):
    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)

    def create_writer(self, context: Any) -> TwoPhaseWriter[Any]:
        return _Writer()

    def create_committer(self, context: Any) -> Committer:
        return _Committer(self.answers)


class _Writer(TwoPhaseWriter[Any]):
    def __init__(self) -> None:
        self.records: list[Any] = []

    def write(self, values: Any, timestamps: Any) -> None:
        self.records += values

    def prepare_commit(self, *, end_of_input: bool) -> Sequence[bytes]:
        committables, self.records = [str(record).encode() for record in self.records], []
        return committables


class _Committer(Committer):
    def __init__(self, answers: list[Any]) -> None:
        self.answers = answers

    def commit(self, committables: Sequence[Committable]) -> Sequence[CommitResult]:
        STORY.append([committable.data for committable in committables])
        answer = self.answers.pop(0) if self.answers else COMMITTED
        if isinstance(answer, BaseException):
            raise answer
        return [answer] * len(committables)


RETRY = CommitResult(CommitOutcome.RETRY, "busy")
UNKNOWN = CommitResult(CommitOutcome.UNKNOWN, "no answer")


class Telling(Answers):
    """Its writer notes where checkpoints are."""

    def create_writer(self, context: Any) -> TwoPhaseWriter[Any]:
        return _Telling(context)


class _Telling(_Writer):
    def __init__(self, context: Any) -> None:
        super().__init__()
        self._context = context

    def write(self, values: Any, timestamps: Any) -> None:
        STORY.append(("write", self._context.checkpoint_id))

    def prepare_commit(self, *, end_of_input: bool) -> Sequence[bytes]:
        STORY.append(("prepare", self._context.checkpoint_id))
        return []

    def snapshot_state(self) -> Sequence[bytes]:
        STORY.append(("snapshot", self._context.checkpoint_id))
        return []


def test_what_is_begun_while_a_checkpoint_is_prepared_is_in_it() -> None:
    """Names of files tell the checkpoint: what was begun behind the one that a task goes on from is removed."""
    bench = bench_of(spec(K.SINK, Telling()))
    bench.give(Batch([1]), Barrier(1, 0), Batch([2]), Barrier(2, 0))
    assert list(dict.fromkeys(STORY)) == [
        ("write", 0), ("prepare", 0), ("snapshot", 0), ("write", 1), ("prepare", 1), ("snapshot", 1),
    ]  # fmt: skip


def test_a_checkpoint_commits_everything_up_to_it_and_nothing_else() -> None:
    bench = bench_of(spec(K.SINK, Answers()))
    bench.give(Batch([1]), Barrier(1, 0), Batch([2]), Barrier(2, 0), Batch([3]), Barrier(3, 0))
    (two,) = bench.reports.acknowledged[2].operators.values()
    assert [(c.checkpoint_id, [item.data for item in c.items]) for c in two.committables] == [  # type: ignore[union-attr]
        (1, [b"1", b"1"]), (2, [b"2", b"2"]),
    ]  # fmt: skip
    bench.task.checkpoint_complete(2)
    bench.task.checkpoint_complete(2)
    bench.run()
    assert STORY == [[b"1", b"1"], [b"2", b"2"]]


def test_what_is_in_the_checkpoint_is_committed_again_before_the_first_record() -> None:
    committables = Committables(4, 1, (InlineState(b"a"), InlineState(b"b")))
    restore = TaskRestore(4, False, {"0" * 32: OperatorRestore(committables=(committables,))})
    bench_of(spec(K.SINK, Answers(ALREADY_COMMITTED)), restore=restore)
    assert STORY == [[b"a", b"b"]]


@pytest.mark.parametrize("answer", [RETRY, UNKNOWN, OSError("gone"), SystemExit("gone")])
def test_what_may_not_be_committed_is_tried_again_and_the_task_ends_only_then(answer: Any) -> None:
    bench = bench_of(spec(K.SINK, Answers(answer, answer)))
    bench.give(Batch([1]), END_OF_INPUT)
    bench.task.trigger_checkpoint(Barrier(1, 0))
    bench.run()
    bench.task.checkpoint_complete(1)
    bench.run()
    assert (len(STORY), bench.states[-1]) == (1, E.RUNNING)
    bench.later(0.1)
    assert (len(STORY), bench.states[-1]) == (2, E.RUNNING)
    bench.later(0.2)
    assert (len(STORY), bench.states[-1]) == (3, E.FINISHED)


def test_commits_that_never_succeed_fail_the_task() -> None:
    bench = bench_of(spec(K.SINK, Answers(*[UNKNOWN] * 99)))
    bench.give(Batch([1]), Barrier(1, 0))
    bench.task.checkpoint_complete(1)
    for _ in range(MOST_ATTEMPTS):
        bench.later(10.0)
    assert bench.states[-1] is E.FAILED
    assert bench.reports.failure is not None
    assert "of checkpoint 1 could not be committed in 10 attempts: no answer" in bench.reports.failure.message


class SecondTime(Answers):
    """Commits nothing that it is asked for the first time."""

    def create_committer(self, context: Any) -> Committer:
        return _Hesitant([])


class _Hesitant(_Committer):
    def commit(self, committables: Sequence[Committable]) -> Sequence[CommitResult]:
        known = {data for batch in STORY for data in batch}
        super().commit(committables)
        return [COMMITTED if committable.data in known else RETRY for committable in committables]


def test_what_joins_while_others_are_tried_again_has_attempts_of_its_own() -> None:
    bench = bench_of(spec(K.SINK, SecondTime()))
    for number in range(1, 3 * MOST_ATTEMPTS):
        bench.give(Batch([number]), Barrier(number, 0))
        bench.task.checkpoint_complete(number)  # the one before is not committed yet
        bench.run()
        bench.later(0.1 if number > 1 else 0.0)
        assert bench.states[-1] is E.RUNNING, bench.reports.failure
    assert STORY[:4] == [[b"1", b"1"], [b"1", b"1"], [b"2", b"2"], [b"2", b"2"]]


class UpToHighest(Answers):
    """Its committer commits nothing up to the highest checkpoint that it has committed: the rule of table formats."""

    def create_committer(self, context: Any) -> Committer:
        return _UpToHighest(self.answers)


class _UpToHighest(_Committer):
    def commit(self, committables: Sequence[Committable]) -> Sequence[CommitResult]:
        (number,) = {committable.checkpoint_id for committable in committables}
        (answer, *_) = super().commit(committables)
        if answer is COMMITTED and number > max(SHOWN, default=0):
            SHOWN[number] = [committable.data for committable in committables]
        return [answer] * len(committables)


SHOWN: dict[int, list[bytes]] = {}


@pytest.mark.parametrize("answer", [RETRY, UNKNOWN])
def test_no_checkpoint_is_committed_before_those_before_it(answer: CommitResult) -> None:
    SHOWN.clear()
    bench = bench_of(spec(K.SINK, UpToHighest(*[answer] * 3)))
    for number in range(10, 16):
        bench.give(Batch([number]), Barrier(number, 0))
        bench.task.checkpoint_complete(number)
        bench.run()
    assert STORY == [[b"10", b"10"]]
    (sink_state,) = bench.reports.acknowledged[15].operators.values()
    assert [committables.checkpoint_id for committables in sink_state.committables] == [*range(10, 16)]
    for seconds in (0.1, 0.2, 0.4):
        assert SHOWN == {}
        bench.later(seconds)
    assert {number: [b"%d" % number] * 2 for number in range(10, 16)} == SHOWN


def test_the_input_ends_while_an_older_checkpoint_is_open() -> None:
    SHOWN.clear()
    bench = bench_of(spec(K.SINK, UpToHighest(RETRY)))
    bench.give(Batch([1]), Barrier(1, 0))
    bench.task.checkpoint_complete(1)
    bench.give(Batch([2]), END_OF_INPUT)
    bench.task.trigger_checkpoint(Barrier(2, 0))
    bench.run()
    bench.task.checkpoint_complete(2)
    bench.run()
    assert (SHOWN, bench.states[-1]) == ({}, E.RUNNING)
    bench.later(0.1)
    assert (SHOWN, bench.states[-1]) == ({1: [b"1", b"1"], 2: [b"2", b"2"]}, E.FINISHED)


class Restoring(UpToHighest):
    """Notes what its committer learns at first."""

    def create_committer(self, context: Any) -> Committer:
        committer = super().create_committer(context)
        vars(committer)["restore_committables"] = STORY.append
        return committer


@pytest.mark.parametrize("globally", [False, True])
def test_restored_checkpoints_are_committed_in_order_whatever_subtask_prepared_them(globally: bool) -> None:
    SHOWN.clear()
    wrapped = (1).to_bytes(4, "little") if globally else b""
    committables = tuple(
        Committables(number, 1, (InlineState(wrapped + b"%d" % number),)) for number in (11, 13, 10, 12)
    )  # after a change of the parallelism those of two former subtasks
    restore = TaskRestore(13, False, {"0" * 32: OperatorRestore(committables=committables)})
    sink: TwoPhaseCommitSink[Any] = Restoring(COMMITTED, RETRY)
    bench = bench_of(spec(K.SINK, GlobalCommitSink(sink) if globally else sink), restore=restore)
    assert [
        [Committable(b"%d" % number, 1, number) for number in range(10, 14)], [b"10"], [b"11"],
    ] == STORY  # fmt: skip
    record = wrapped + b"14" if globally else 14
    bench.give(Batch([record]), Barrier(14, 0))
    bench.task.checkpoint_complete(14)
    bench.run()
    assert list(SHOWN) == [10]
    bench.later(0.1)
    assert list(SHOWN) == [10, 11, 12, 13, 14]


def test_in_batch_mode_all_is_of_the_checkpoint_at_the_end() -> None:
    (bare,) = [json.loads(json.dumps(plain_committable(Committable(b"a", 3))))]
    assert committable_of(bare) == Committable(b"a", 3, CHECKPOINT)


def test_a_known_failure_fails_the_task_at_once() -> None:
    bench = bench_of(spec(K.SINK, Answers(CommitResult(CommitOutcome.FAILED, "the table is gone"))))
    bench.give(Batch([1]), Barrier(1, 0))
    bench.task.checkpoint_complete(1)
    bench.run()
    assert (len(STORY), bench.states[-1]) == (1, E.FAILED)
    assert bench.reports.failure is not None
    expected = "results of sink 'sink' of checkpoint 1 can't be committed: the table is gone"
    assert bench.reports.failure.message == expected


def test_a_committer_has_to_answer_for_each() -> None:
    class Silent(Answers):
        def create_committer(self, context: Any) -> Committer:
            committer = _Committer([])
            committer.commit = lambda committables: []  # type: ignore[method-assign]
            return committer

    bench = bench_of(spec(K.SINK, Silent()))
    bench.give(Batch([1]), Barrier(1, 0))
    bench.task.checkpoint_complete(1)
    bench.run()
    assert bench.reports.failure is not None
    assert "got 2 committables and answered for 0" in bench.reports.failure.message
