"""Runs a two-phase sink: prepares commits at barriers, and commits when checkpoints are complete.

At each barrier the writer returns committables, which become part of the checkpoint. When that is complete the
committer commits them; after a restart it commits those of the restored checkpoint once more. So a record is visible if
and only if a complete checkpoint contains it. As Flink's ``SinkWriterOperator`` and ``CommitterOperator`` in one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, Final

from typing_extensions import override

from firesteel.common.typeinfo import Types
from firesteel.core.errors import CommitError, ProgramError, TaskInterrupt
from firesteel.functions.coroutines import refuse_coroutines
from firesteel.functions.state import ListState, ListStateDescriptor
from firesteel.functions.two_phase import (
    CommitOutcome,
    CommitResult,
    Committable,
    Committer,
    TwoPhaseCommitSink,
    TwoPhaseWriter,
    WriterState,
)
from firesteel.graph.specs import OperatorSpec
from firesteel.runtime.operator_base.context import OperatorContext, TaskWriterContext
from firesteel.runtime.operator_base.initialization import SnapshotContext
from firesteel.runtime.operators.committable_metrics import CommittableMetrics
from firesteel.runtime.operators.sinks import SinkOperator

MOST_ATTEMPTS: Final = 10
"""Attempts to commit the committables of one checkpoint, after which the task fails."""
FIRST_PAUSE_SECONDS: Final = 0.1
"""Pause before the second attempt; each further pause is twice as long, up to ``LONGEST_PAUSE_SECONDS``."""
LONGEST_PAUSE_SECONDS: Final = 5.0
_WRITER_STATE: Final = ListStateDescriptor("writer-state", Types.PICKLED_BYTE_ARRAY())
_END: Final = 1 << 62
"""Stands for the id of the next checkpoint, which is not known yet when the input ends."""


@dataclass
class _CommitSet:
    """The committables that were prepared at one barrier.

    Attributes:
        checkpoint_id: checkpoint of that barrier.
        committables: those that are not committed yet.
        restored: whether they come from the checkpoint that was restored, so that they may be committed already.
        attempts: how often the committer was called for them.
    """

    checkpoint_id: int
    committables: list[Committable]
    restored: bool = False
    attempts: int = 0


class TwoPhaseSinkOperator(SinkOperator):
    """The operator of a ``TwoPhaseCommitSink``: it owns the writer, the committer and what is between them."""

    def __init__(self, spec: OperatorSpec) -> None:
        super().__init__(spec)
        self._committer: Committer | None = None
        self._prepared: dict[int, tuple[Committable, ...]] = {}
        """Committables by the checkpoint at whose barrier they were prepared, until that checkpoint is complete."""
        self._committing: deque[_CommitSet] = deque()
        """Committables of complete checkpoints, in the order of these. Only the first set is given to the committer: it
        may take the highest checkpoint that it has committed as proof that all before it are committed too."""
        self._closed = False

    @property
    def sink(self) -> TwoPhaseCommitSink[Any]:
        sink = self.spec.function
        assert isinstance(sink, TwoPhaseCommitSink)
        return sink

    @property
    def writer(self) -> TwoPhaseWriter[Any]:
        """The writer of this subtask; it exists from ``create`` on."""
        writer = self._writer
        if not isinstance(writer, TwoPhaseWriter):
            kind = type(writer).__name__
            raise ProgramError(f"sink {self.name!r}: create_writer() gave {kind}, which is no TwoPhaseWriter")
        return writer

    @property
    def blocking(self) -> bool:
        """Whether the writer or the committer may wait for long."""
        return super().blocking or not self.sink.commits_quickly

    @property
    def drained(self) -> bool:
        """Whether all committables of complete checkpoints are committed."""
        return not self._committing

    def open(self, context: OperatorContext) -> None:
        """Commit again what was prepared before the restart, then restore and open the writer."""
        states = [WriterState(data, version) for version, data in self._writer_states().get()]
        self._open_committer(context)
        if states:
            self.writer.restore_state(states)
        self._writer_context.opened(self.with_site(context), self.name)
        self.writer.open()

    def open_to_commit(self, context: OperatorContext) -> None:
        """Commit what was restored, without a writer: opening one may remove files that former writers have left."""
        self._open_committer(context)
        self._writer = None

    def _open_committer(self, context: OperatorContext) -> None:
        if self._writer is None:
            self.create(context)
        self._context = context
        self._metrics = CommittableMetrics(context.metrics.group(self.name), self._pending_count)
        committer = self.sink.create_committer(TaskWriterContext(self.with_site(context), self.spec.id))
        refuse_coroutines(f"sink {self.name!r}", committer)
        self._committer = committer
        if self.restored is not None:
            self._writer_context.reached(self.restored.checkpoint_id)
            committables = sorted(self.restored.committables, key=_checkpoint_of)
            self._metrics.received(len(committables))
            committer.restore_committables(committables)
            self._commit(
                [_CommitSet(number, [*group], True) for number, group in groupby(committables, _checkpoint_of)]
            )

    # -- checkpoints

    def snapshot_state(self, context: SnapshotContext) -> None:
        """Prepare to commit what was written since the last barrier, and take the writer's state."""
        number = context.checkpoint_id
        self._writer_context.prepares(number)
        if not self._finished:
            self._prepared[number] = self._prepare(end_of_input=False)
        elif _END in self._prepared:
            self._prepared[number] = self._prepared.pop(_END)
        version = self.sink.version
        states = self.writer.snapshot_state()
        self._writer_states().update([(version, bytes(state)) for state in states])
        self._writer_context.reached(number)

    def uncommitted(self) -> tuple[tuple[int, tuple[Committable, ...]], ...]:
        """All uncommitted committables, grouped by the checkpoint at which they were prepared, and by version.

        Those of earlier checkpoints are included: their commit may not have happened when this checkpoint is restored.
        """
        uncommitted: dict[tuple[int, int], list[Committable]] = {}
        sets = [(pending.checkpoint_id, pending.committables) for pending in self._committing]
        for number, committables in [*sets, *self._prepared.items()]:
            for committable in committables:
                uncommitted.setdefault((number, committable.version), []).append(committable)
        return tuple((number, tuple(committables)) for (number, _), committables in uncommitted.items())

    def checkpoint_complete(self, checkpoint_id: int) -> None:
        """Commit everything up to this checkpoint: notifications of earlier ones may have been lost."""
        super().checkpoint_complete(checkpoint_id)
        self._commit_up_to(checkpoint_id)

    # -- the end

    @override
    def finish(self) -> None:
        self._finished = True
        self._prepared[_END] = self._prepare(end_of_input=True)

    def commit(self) -> None:
        """Commit everything: the last checkpoint of the job is complete, or the job takes no checkpoints."""
        self._commit_up_to(_END)

    def abort(self) -> None:
        """Remove what was written since the last checkpoint, unless everything is finished and committed."""
        if self._writer is not None and not (self._finished and not self._prepared and self.drained):
            self._writer.abort()

    def close(self) -> None:
        self._closed = True
        committer, self._committer = self._committer, None
        try:
            super().close()
        finally:
            if committer is not None:
                committer.close()

    # -- inside

    def _writer_states(self) -> ListState[Any]:
        store = self.operator_state
        get = store.get_union_list_state if self.sink.needs_all_states else store.get_list_state
        return get(_WRITER_STATE)

    def _prepare(self, *, end_of_input: bool) -> tuple[Committable, ...]:
        version = self.sink.version
        prepared = self.writer.prepare_commit(end_of_input=end_of_input)
        committables = tuple(Committable(bytes(data), version) for data in prepared)
        self._metrics.received(len(committables))
        return committables

    def _pending_count(self) -> int:
        return sum(len(pending.committables) for pending in list(self._committing)) + sum(
            map(len, list(self._prepared.values()))
        )

    def _commit_up_to(self, checkpoint_id: int) -> None:
        sets = []
        for number in sorted(number for number in self._prepared if number <= checkpoint_id):
            prepared = self._prepared.pop(number)
            if prepared:
                sets.append(_CommitSet(number, [replace(item, checkpoint_id=number) for item in prepared]))
        self._commit(sets)

    def _commit(self, sets: Sequence[_CommitSet]) -> None:
        """Queue commit sets behind those that have to be retried."""
        retries_pending = bool(self._committing)
        self._committing += sets
        if self._committing and not retries_pending:
            self._try()

    def _try(self) -> None:
        """Commit one checkpoint after the other.

        Stops at the first checkpoint of which a commit has to be retried, and goes on with that one after a pause, so
        that checkpoints are committed in order, as in Flink.

        Raises:
            CommitError: a commit has failed for good, or was retried too often.
        """
        committer = self._committer
        if self._closed or committer is None:
            return
        while self._committing:
            pending = self._committing[0]
            pending.attempts += 1
            commit = committer.recommit if pending.restored else committer.commit
            results, cause = self._ask(commit, pending.committables)
            to_retry, reason = [], ""
            for committable, result in zip(pending.committables, results, strict=True):
                self._metrics.answered(result.outcome)
                if result.outcome is CommitOutcome.FAILED:
                    what = f"of checkpoint {_name(pending.checkpoint_id)} can't be committed: {result.reason}"
                    raise CommitError(self.name, what)
                if result.outcome in (CommitOutcome.RETRY, CommitOutcome.UNKNOWN):
                    to_retry.append(committable)
                    reason = reason or result.reason
            pending.committables = to_retry
            if to_retry:
                if pending.attempts >= MOST_ATTEMPTS:
                    number = _name(pending.checkpoint_id)
                    what = f"of checkpoint {number} could not be committed in {MOST_ATTEMPTS} attempts: {reason}"
                    raise CommitError(self.name, what) from cause
                pause = min(FIRST_PAUSE_SECONDS * 2 ** (pending.attempts - 1), LONGEST_PAUSE_SECONDS)
                self._context.call_later(pause, self._try)
                return
            self._committing.popleft()
        if self.on_drained is not None:
            self.on_drained()

    def _ask(
        self, commit: Callable[[Sequence[Committable]], Sequence[CommitResult]], committables: Sequence[Committable]
    ) -> tuple[list[CommitResult], BaseException | None]:
        """Call the committer; returns a result for each committable, and what it raised. Then all are UNKNOWN."""
        try:
            results = list(commit(list(committables)))
        except TaskInterrupt:
            raise
        except BaseException as error:  # the committer is the user's: nobody knows what it has done
            reason = f"{type(error).__name__}: {error}"
            return [CommitResult(CommitOutcome.UNKNOWN, reason)] * len(committables), error
        if len(results) != len(committables):
            raise ProgramError(
                f"sink {self.name!r}: commit() got {len(committables)} committables and answered for {len(results)}"
            )
        return results, None


def _checkpoint_of(committable: Committable) -> int:
    return committable.checkpoint_id


def _name(checkpoint_id: int) -> str:
    return "the end of the input" if checkpoint_id == _END else str(checkpoint_id)
