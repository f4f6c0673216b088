"""Tests a two-phase sink against its contract (``firesteel.functions.two_phase``)."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from firesteel.functions.two_phase import (
    CommitOutcome,
    CommitResult,
    Committable,
    TwoPhaseCommitSink,
    TwoPhaseWriter,
    WriterState,
)
from firesteel.testing.rules import require
from firesteel.testing.writing import Context, require_equal

_Commit = Callable[[Sequence[Committable]], Sequence[CommitResult]]
_SHOWN = (CommitOutcome.COMMITTED, CommitOutcome.ALREADY_COMMITTED)


class _Subtask:
    """A writer and a committer of one attempt."""

    def __init__(
        self,
        sink: TwoPhaseCommitSink[Any],
        context: Context,
        states: Sequence[bytes] = (),
        committables: Mapping[int, Sequence[bytes]] | None = None,
    ) -> None:
        """Resume from a checkpoint with these states, and committables by the id of their checkpoint."""
        self.sink, self.context, self.closed = sink, context, False
        _OPEN.append(self)
        self.writer: TwoPhaseWriter[Any] = sink.create_writer(context)
        self.committer = sink.create_committer(context)
        restored = committables or {}
        self.committer.restore_committables(
            [committable for number in sorted(restored) for committable in self._of(number, restored)]
        )
        for number in sorted(restored):
            self._answers(self.committer.recommit, self._of(number, restored), *_SHOWN)
        if states:
            self.writer.restore_state([WriterState(state, sink.version) for state in states])
        self.writer.open()

    def write(self, records: Sequence[Any]) -> None:
        for start in range(0, len(records), 3):
            self.writer.write(list(records[start : start + 3]), None)

    def prepare(self, *, end_of_input: bool = False) -> list[bytes]:
        committables = list(self.writer.prepare_commit(end_of_input=end_of_input))
        require(
            all(type(committable) is bytes for committable in committables),
            f"committables are not bytes: {committables!r}",
        )
        return committables

    def commit(self, checkpoint_id: int, committables: Sequence[bytes], *expected: CommitOutcome) -> None:
        self._answers(self.committer.commit, self._of(checkpoint_id, {checkpoint_id: committables}), *expected)

    def _of(self, checkpoint_id: int, committables: Mapping[int, Sequence[bytes]]) -> list[Committable]:
        return [Committable(data, self.sink.version, checkpoint_id) for data in committables[checkpoint_id]]

    def _answers(self, commit: _Commit, committables: Sequence[Committable], *expected: CommitOutcome) -> None:
        results = commit(committables)
        count = len(committables)
        require(len(results) == count, f"commit() got {count} committables and answered for {len(results)}")
        for result in results:
            require(result.outcome in expected, f"commit() answered {result}, not one of {expected}")

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self.writer.close()
            self.committer.close()


_OPEN: list[_Subtask] = []
"""Subtasks of the running check, so that a failed check closes them, too."""


def check_two_phase_sink(
    make_sink: Callable[[], TwoPhaseCommitSink[Any]],
    records: Sequence[Any],
    visible: Callable[[], Iterable[Any]],
    *,
    leftovers: Callable[[], Iterable[Any]] = tuple,
) -> None:
    """Write, prepare, fail, resume from a checkpoint and commit; compare the visible records after each step.

    Committables are committed as in a job: checkpoint by checkpoint, the oldest first, with their ``checkpoint_id``,
    and after a restart those of two checkpoints.

    Args:
        make_sink: makes a sink to a place that is empty at first, the same place each time.
        records: at least six different records, each of which is to become visible once.
        visible: returns the records that a reader of that place sees, in the form of ``records``, in any order.
        leftovers: lists everything else in that place, which must be empty at the end.

    Raises:
        AssertionError: the message says which rule is broken.
    """
    try:
        _check(make_sink, records, visible, leftovers)
    finally:
        while _OPEN:
            _OPEN.pop().close()


def _check(
    make_sink: Callable[[], TwoPhaseCommitSink[Any]],
    records: Sequence[Any],
    visible: Callable[[], Iterable[Any]],
    leftovers: Callable[[], Iterable[Any]],
) -> None:
    sink = make_sink()
    pickle.loads(pickle.dumps(sink))
    sink.check()
    require(list(visible()) == [], "the place is not empty before the first record")
    _check_abort(make_sink(), records, visible, leftovers)
    third = len(records) // 3
    before, lost, after = records[:third], records[third : 2 * third], records[2 * third :]

    first = _Subtask(make_sink(), Context(0, 1, 0, checkpointing=True))
    first.write(before)
    committables, states = first.prepare(), list(first.writer.snapshot_state())
    first.context.reached(1)
    require(list(visible()) == [], "records are visible before commit()")
    require(not first.context.temporary, "files of a checkpoint are still registered as temporary")
    first.write(lost)
    first.prepare()
    first.writer.snapshot_state()
    first.context.reached(2)
    first.writer.abort()
    first.writer.abort()
    first.close()
    require(list(visible()) == [], "records are visible after abort()")

    second = _Subtask(make_sink(), Context(0, 1, 1, 1, checkpointing=True), states, {1: committables})
    second.commit(1, committables, CommitOutcome.ALREADY_COMMITTED)
    half = len(lost) // 2
    uncommitted: dict[int, list[bytes]] = {}
    for number, part in ((3, lost[:half]), (4, lost[half:])):
        second.write(part)
        uncommitted[number], states = second.prepare(), list(second.writer.snapshot_state())
        second.context.reached(number)
    second.writer.abort()  # the checkpoints are complete, and the process dies before it hears of them
    second.close()

    neighbour = _Subtask(make_sink(), Context(1, 2, 2, 4, checkpointing=True))  # a subtask that rescaling has added
    third_attempt = _Subtask(make_sink(), Context(0, 2, 2, 4, checkpointing=True), states, uncommitted)
    third_attempt.write(after)
    last = third_attempt.prepare(end_of_input=True)
    third_attempt.context.reached(5)
    states = list(third_attempt.writer.snapshot_state())
    require(len(list(visible())) < len(records), "records are visible before the commit of the end")
    neighbour.commit(5, neighbour.prepare(end_of_input=True), CommitOutcome.COMMITTED)
    neighbour.close()
    third_attempt.commit(5, last, CommitOutcome.COMMITTED)
    third_attempt.commit(5, last, CommitOutcome.ALREADY_COMMITTED)
    require_equal(visible(), records, "over three attempts")
    third_attempt.close()

    # Another task has failed: the input ends once more.
    after_end = _Subtask(make_sink(), Context(0, 2, 3, 5, checkpointing=True), states, {5: last})
    after_end.commit(6, after_end.prepare(end_of_input=True), *_SHOWN)
    after_end.close()
    require_equal(visible(), records, "when the last checkpoint was gone on from")
    require(list(leftovers()) == [], f"something is left over: {list(leftovers())}")


def _check_abort(
    sink: TwoPhaseCommitSink[Any],
    records: Sequence[Any],
    visible: Callable[[], Iterable[Any]],
    leftovers: Callable[[], Iterable[Any]],
) -> None:
    """Check that nothing is left of a failed attempt in a job without checkpoints."""
    for prepare in (False, True):
        when = "after" if prepare else "before"
        subtask = _Subtask(sink, Context(0, 1, 0, checkpointing=False))
        subtask.write(records)
        if prepare:
            subtask.prepare(end_of_input=True)
        subtask.writer.abort()
        subtask.writer.abort()
        subtask.close()
        moment = f"after abort() {when} prepare_commit()"
        require(list(visible()) == [], f"records are visible {moment}")
        require(list(leftovers()) == [], f"something is left over {moment}: {list(leftovers())}")
        require(not subtask.context.temporary, f"temporary files are still registered {moment}")
