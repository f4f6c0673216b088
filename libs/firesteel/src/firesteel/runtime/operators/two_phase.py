"""Runs a two-phase sink: prepares commits at barriers, and commits when checkpoints are complete."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from firesteel.common.typeinfo import Types
from firesteel.core.errors import CommitError, ProgramError
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
from firesteel.runtime.chain.context import OperatorContext, TaskWriterContext
from firesteel.runtime.chain.initialization import SnapshotContext
from firesteel.runtime.operators.committable_metrics import CommittableMetrics
from firesteel.runtime.operators.sinks import SinkOperator

MOST_ATTEMPTS: Final = 10
FIRST_PAUSE_SECONDS: Final = 0.1
LONGEST_PAUSE_SECONDS: Final = 5.0
_WRITER_STATE: Final = ListStateDescriptor("writer-state", Types.PICKLED_BYTE_ARRAY())
_END: Final = 1 << 62
"""What was prepared at the end of the input belongs to the next checkpoint, whatever its number."""


@dataclass
class _Asked:
    """What the committer is asked for.

    Attributes:
        checkpoint_id: at whose barrier it was prepared.
        committable: the sink's.
        again: it is out of the checkpoint that the task goes on from, and may be committed already.
        attempts: how often the committer was asked for it.
    """

    checkpoint_id: int
    committable: Committable
    again: bool
    attempts: int = 0


class TwoPhaseSinkOperator(SinkOperator):
    """See the module.

    Attributes:
    """

    def __init__(self, spec: OperatorSpec) -> None:
        super().__init__(spec)
        self._committer: Committer | None = None
        self._prepared: dict[int, tuple[Committable, ...]] = {}
        """By the checkpoint at whose barrier it was prepared; not in the hands of the committer yet."""
        self._committing: list[_Asked] = []
        """The committer has to be asked, or asked once more."""
        self._closed = False

    @property
    def sink(self) -> TwoPhaseCommitSink[Any]:
        """The sink."""
        sink = self.spec.function
        assert isinstance(sink, TwoPhaseCommitSink)
        return sink

    @property
    def writer(self) -> TwoPhaseWriter[Any]:
        """Its writer, from ``create`` on."""
        writer = self._writer
        if not isinstance(writer, TwoPhaseWriter):
            kind = type(writer).__name__
            raise ProgramError(f"sink {self.name!r}: create_writer() gave {kind}, which is no TwoPhaseWriter")
        return writer

    @property
    def blocking(self) -> bool:
        """Its writer or its committer may wait for long."""
        return super().blocking or not self.sink.commits_quickly

    @property
    def drained(self) -> bool:
        """Nothing waits for the committer."""
        return not self._committing

    def open(self, context: OperatorContext) -> None:
        """Commit again what was prepared before the restart, then open the writer."""
        states = [WriterState(data, version) for version, data in self._writer_states().get()]
        self._open_committer(context)
        if states:
            self.writer.restore_state(states)
        self._writer_context.opened(self.with_site(context), self.name)
        self.writer.open()

    def open_to_commit(self, context: OperatorContext) -> None:
        """See ``SinkOperator``. A writer that is opened may clear up behind those before it."""
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
            self._metrics.received(len(self.restored.committables))
            self._commit([_Asked(self.restored.checkpoint_id, one, True) for one in self.restored.committables])

    # -- checkpoints

    def snapshot_state(self, context: SnapshotContext) -> None:
        """Prepare what was written since the last barrier."""
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
        """What a checkpoint has to hold: by the checkpoint at which it was prepared, and by version."""
        found: dict[tuple[int, int], list[Committable]] = {}
        for one in self._committing:
            found.setdefault((one.checkpoint_id, one.committable.version), []).append(one.committable)
        for number, prepared in self._prepared.items():
            for committable in prepared:
                found.setdefault((number, committable.version), []).append(committable)
        return tuple((number, tuple(committables)) for (number, _), committables in found.items())

    def checkpoint_complete(self, checkpoint_id: int) -> None:
        """Commit everything up to this checkpoint: notifications of earlier ones may have been lost."""
        super().checkpoint_complete(checkpoint_id)
        self._commit_up_to(checkpoint_id)

    # -- the end

    def finish(self) -> None:
        """Make all durable, show nothing yet."""
        self._finished = True
        self._prepared[_END] = self._prepare(end_of_input=True)

    def commit(self) -> None:
        """Make the results visible: a checkpoint is complete that no record comes behind, or the job needs none."""
        self._commit_up_to(_END)

    def abort(self) -> None:
        """Remove what is in no checkpoint."""
        if self._writer is not None and not (self._finished and not self._prepared and self.drained):
            self._writer.abort()

    def close(self) -> None:
        """Close committer and writer."""
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
        made = tuple(
            Committable(bytes(data), version) for data in self.writer.prepare_commit(end_of_input=end_of_input)
        )
        self._metrics.received(len(made))
        return made

    def _pending_count(self) -> int:
        return len(self._committing) + sum(map(len, list(self._prepared.values())))

    def _commit_up_to(self, checkpoint_id: int) -> None:
        found = [
            _Asked(number, committable, False)
            for number in sorted(self._prepared)
            if number <= checkpoint_id
            for committable in self._prepared.pop(number)
        ]
        self._commit(found)

    def _commit(self, found: list[_Asked]) -> None:
        """Hand these to the committer, behind those that it has to be asked for again."""
        waits = bool(self._committing)
        self._committing += found
        if self._committing and not waits:
            self._try()

    def _try(self) -> None:
        """Ask the committer; what is not done yet is tried again later.

        Raises:
            CommitError: something can't be committed, or it was tried too often.
        """
        committer = self._committer
        if self._closed or committer is None:
            return
        restored = [one for one in self._committing if one.again]
        others = [one for one in self._committing if not one.again]
        again: list[_Asked] = []
        reason, cause = "", None
        for commit, asked in ((committer.recommit, restored), (committer.commit, others)):
            results, error = self._ask(commit, asked)
            cause = cause or error
            for one, result in zip(asked, results, strict=True):
                one.attempts += 1
                self._metrics.answered(result.outcome)
                if result.outcome is CommitOutcome.FAILED:
                    what = f"of checkpoint {_name(one.checkpoint_id)} can't be committed: {result.reason}"
                    raise CommitError(self.name, what)
                if result.outcome in (CommitOutcome.RETRY, CommitOutcome.UNKNOWN):
                    again.append(one)
                    reason = reason or result.reason
        self._committing = again
        if not again:
            if self.on_drained is not None:
                self.on_drained()
            return
        oldest = max(again, key=lambda one: one.attempts)  # each has its own: others may join while it is tried again
        if oldest.attempts >= MOST_ATTEMPTS:
            number = _name(oldest.checkpoint_id)
            what = f"of checkpoint {number} could not be committed in {MOST_ATTEMPTS} attempts: {reason}"
            raise CommitError(self.name, what) from cause
        pause = min(FIRST_PAUSE_SECONDS * 2 ** (oldest.attempts - 1), LONGEST_PAUSE_SECONDS)
        self._context.call_later(pause, self._try)

    def _ask(
        self, commit: Callable[[Sequence[Committable]], Sequence[CommitResult]], asked: list[_Asked]
    ) -> tuple[list[CommitResult], Exception | None]:
        """One call of the committer: an answer for each, and what it raised."""
        if not asked:
            return [], None
        try:
            results = list(commit([one.committable for one in asked]))
        except Exception as error:  # the committer is the user's: nobody knows what it has done
            return [CommitResult(CommitOutcome.UNKNOWN, f"{type(error).__name__}: {error}")] * len(asked), error
        if len(results) != len(asked):
            raise ProgramError(
                f"sink {self.name!r}: commit() got {len(asked)} committables and answered for {len(results)}"
            )
        return results, None


def _name(checkpoint_id: int) -> str:
    return "the end of the input" if checkpoint_id == _END else str(checkpoint_id)
