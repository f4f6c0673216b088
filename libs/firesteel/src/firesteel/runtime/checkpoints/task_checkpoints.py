"""The part of a task that takes checkpoints: from a barrier that has arrived to the acknowledgement.

Everything runs on the task's loop, except for writing to the storage, which the writing thread of the slot does
(``uploads``). A checkpoint passes these steps: ``offer`` or ``trigger`` queues the barrier; ``work`` begins the
snapshot, once no record is in the chain and no other snapshot is being serialised; ``write_out`` serialises it in
slices; when the thread has written everything, the task acknowledges.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Protocol

from firesteel.checkpoint import savepoints
from firesteel.checkpoint.assign import TaskRestore
from firesteel.checkpoint.handles import StateHandle
from firesteel.checkpoint.local_copies import LocalCopies
from firesteel.checkpoint.state_figures import STATES
from firesteel.checkpoint.storage import StateWriter
from firesteel.checkpoint.subtask_state import TaskState
from firesteel.core.errors import TaskInterrupt
from firesteel.protocol.checkpoint_messages import DeclineReason
from firesteel.protocol.deployment import TaskFailure
from firesteel.runtime.checkpoints.aligner import Arrived
from firesteel.runtime.checkpoints.background import Apart, at_once
from firesteel.runtime.checkpoints.bases import Bases, WrittenPart
from firesteel.runtime.checkpoints.in_flight import InFlightLog
from firesteel.runtime.checkpoints.position import SourcePosition
from firesteel.runtime.checkpoints.restore import OpenState, open_inline
from firesteel.runtime.checkpoints.snapshot import TaskSnapshot
from firesteel.runtime.checkpoints.uploads import InlineStream, OpenStream, Submit, Upload
from firesteel.runtime.exchange.channels import OutputChannel
from firesteel.runtime.loop.interrupts import CancelToken, InterruptGuard
from firesteel.runtime.loop.loop import TaskLoop
from firesteel.runtime.operator_base.base import Operator
from firesteel.runtime.operator_base.context import TaskInfo
from firesteel.runtime.operator_base.failures import describe_failure
from firesteel.runtime.operators import LaterResults
from firesteel.runtime.records.batch import Barrier, CancelBarrier, InBand

logger = logging.getLogger(__name__)
_now = time.perf_counter
_SHARE: Final = 4.0
"""A snapshot may take up to this many times the time that records took in a step. Most of the time goes to the snapshot
because every access to state costs more until it is over."""
_LONGEST: Final = 0.008
"""Most seconds of a step for a snapshot; its last slice may take ``state.snapshots.SLICE_SECONDS`` more."""
_REMEMBERED: Final = 64
"""Number of aborted checkpoints that are remembered, so that a trigger that comes late is recognised."""


def _at_once(work: Callable[[], None]) -> None:
    work()


@dataclass
class CheckpointServices:
    """The services of a slot that checkpoints of its tasks use.

    Attributes:
        open_stream: opens a stream to the checkpoint storage.
        submit: runs work on the thread that writes state.
        open_state: opens state in the checkpoint storage for reading.
        final: whether a task whose input has ended waits for a last checkpoint before it finishes.
        open_shared: opens a stream for state that several checkpoints use; None = checkpoints are not incremental.
        delta_ratio: with ``open_shared``: largest ratio of changes to the entries of the full snapshot before them.
        apart: runs the restore in a thread that may wait.
        unaligned: whether barriers may overtake records.
        open_savepoint: opens a stream to a savepoint in a directory.
        copies: copies of the task's state on a local disk; None = there are none.
    """

    open_stream: OpenStream = field(default=lambda checkpoint_id, hint: InlineStream())
    submit: Submit = _at_once
    open_state: OpenState = open_inline
    final: bool = False
    open_shared: OpenStream | None = None
    delta_ratio: float = 1.0
    apart: Apart = at_once
    unaligned: bool = False
    open_savepoint: Callable[[str, int, str], StateWriter] = lambda directory, checkpoint_id, hint: InlineStream()
    copies: LocalCopies | None = None


class CheckpointReporter(Protocol):
    """Gets the outcome of checkpoints and tells the JobMaster; called on the task's thread."""

    def acknowledge_checkpoint(
        self, execution_id: str, checkpoint_id: int, metrics: Mapping[str, Any], state: TaskState
    ) -> None:
        """Report that the task's state is written."""

    def decline_checkpoint(
        self, execution_id: str, checkpoint_id: int, reason: DeclineReason, failure: TaskFailure | None
    ) -> None:
        """Report that the task does not take part, or could not write its state."""


class TaskCheckpoints:
    """The checkpoints of one task: it takes barriers and sends acknowledgements.

    Args:
        info: description of the task.
        operators: operators of its chain, head first.
        outputs: channels over which barriers leave.
        services: services of the slot.
        reporter: gets the outcome of each checkpoint.
        loop, guard, token: loop, interrupt guard and cancel token of the task.
        wake: makes the task step.
        position: returns the position of the reader, for source tasks.
        log_in_flight: logs the records that a barrier has overtaken, for tasks with inputs.

    Attributes:
        last_times: ``CHECKPOINT_TIMES`` of the last checkpoint that was acknowledged.
        final_complete: whether a checkpoint is complete behind which no record comes.
        stopped_at: id of the savepoint with which the job stops, once its barrier has left here; 0 = none. The task
            does nothing more until it is complete, or given up.
        stop_complete: whether that savepoint is complete.
        call_later: calls after a time, on the task's loop; what the call raises fails the task.
    """

    def __init__(
        self,
        info: TaskInfo,
        operators: Sequence[Operator],
        outputs: Sequence[OutputChannel],
        services: CheckpointServices,
        reporter: CheckpointReporter,
        loop: TaskLoop,
        guard: InterruptGuard,
        token: CancelToken,
        wake: Callable[[], None],
        position: Callable[[], SourcePosition] | None,
        log_in_flight: Callable[[InFlightLog], None],
    ) -> None:
        self._info, self._operators, self._outputs = info, operators, outputs
        self._services, self._reporter, self._loop = services, reporter, loop
        self._guard, self._token, self._wake, self._position = guard, token, wake, position
        self._log_in_flight = log_in_flight
        self._waiting: deque[Arrived | CancelBarrier | Callable[[], None]] = deque()
        self._running: TaskSnapshot | None = None
        self._began = 0.0
        self._sync_ms = 0
        self._writing: dict[int, TaskSnapshot] = {}
        """Snapshots that are serialised, and that the thread is writing, by checkpoint."""
        self._aborted: deque[int] = deque(maxlen=_REMEMBERED)
        self._passed = 0
        """The last checkpoint whose barrier has left here; barriers of earlier ones come too late."""
        self._async_operators = [operator for operator in operators if isinstance(operator, LaterResults)]
        self._prepared_for = 0
        """The last checkpoint for which these operators were told to emit results in front of its barrier."""
        self._input_ended = False
        self._bases = Bases(services.delta_ratio) if services.open_shared is not None else None
        self._first_final: int | None = None
        """The first checkpoint behind which no record comes."""
        self.last_times = (0, 0)
        self.final_complete = False
        self.stopped_at = 0
        self.stop_complete = False
        self.call_later: Callable[[float, Callable[[], None]], object] = lambda seconds, call: None

    # -- questions of the task

    @property
    def drains(self) -> int:
        """Id of the savepoint whose barrier is next, if event time has to end in front of it (drain); 0 = none."""
        first = self._waiting[0] if self._waiting else None
        if not isinstance(first, Arrived) or first.barrier.options.get(savepoints.STOP_OPTION) != savepoints.DRAIN:
            return 0
        return first.barrier.checkpoint_id if first.barrier.checkpoint_id > self._passed else 0

    @property
    def waiting(self) -> bool:
        """Whether ``work`` has something to do, as soon as no record is in the chain."""
        return bool(self._waiting)

    @property
    def slicing(self) -> bool:
        """Whether a snapshot is being serialised and can go on: the writing thread is not too far behind."""
        running = self._running
        return running is not None and running.upload.room and (not running.sliced or running.whole)

    @property
    def overtaking(self) -> bool:
        """Whether a queued barrier overtakes, so that it must not wait for room in the outputs."""
        return any(isinstance(item, Arrived) and self._overtakes(item) for item in self._waiting)

    @property
    def running(self) -> bool:
        """Whether a snapshot is being serialised, so that the next one can't begin."""
        return self._running is not None

    # -- events

    def restored(self, restore: TaskRestore) -> None:
        """Note the state from which the operators go on, so that later checkpoints can build on it.

        Only a part with exactly the key groups of this subtask can be built on: with another parallelism the parts were
        put together anew.
        """
        if self._bases is None:
            return
        for operator in self._operators:
            written, groups = restore.operators.get(operator.spec.id), operator.key_groups
            for name, parts in () if written is None else written.keyed.items():
                if len(parts) == 1 and parts[0].key_groups == (groups[0], groups[-1]):
                    part = WrittenPart(parts[0].handles, parts[0].files)
                    self._bases.written((operator.spec.id, name), restore.checkpoint_id, part)

    def offer(self, element: InBand) -> bool:
        """Queue a barrier, or the news that one will not come, from the inputs; False if the element is neither."""
        if isinstance(element, Arrived | CancelBarrier):
            self._waiting.append(element)
            return True
        return False

    def trigger(self, barrier: Barrier) -> None:
        """Queue a checkpoint that the coordinator triggers at a source, or at a task whose inputs have ended."""
        checkpoint_id = barrier.checkpoint_id
        queued = [waiting.barrier.checkpoint_id for waiting in self._waiting if isinstance(waiting, Arrived)]
        if checkpoint_id <= self._passed or checkpoint_id in queued:
            return  # the coordinator has repeated its call
        if checkpoint_id in self._aborted:
            self._waiting.append(CancelBarrier(checkpoint_id))
        else:
            delay = max(0, self._loop.clock.epoch_ms() - barrier.timestamp)
            self._waiting.append(Arrived(barrier, delay))
            self._when_it_overtakes(barrier, self._wake)
        self._wake()

    def complete(self, checkpoint_id: int) -> None:
        """Queue the notification that a checkpoint is complete, and with it all earlier ones."""
        copies = self._services.copies
        if copies is not None:
            self._services.submit(lambda: copies.complete(checkpoint_id))
        self._waiting.append(lambda: self._completed(checkpoint_id))
        self._wake()

    def aborted(self, checkpoint_id: int, *, was_aligning: bool) -> None:
        """Give up a checkpoint that will not complete, in whatever step it is.

        Args:
            checkpoint_id: id of the checkpoint.
            was_aligning: whether its barrier had come over some of the task's channels; then tasks downstream are told,
                because they may be waiting for it.
        """
        self._aborted.append(checkpoint_id)
        copies = self._services.copies
        if copies is not None:
            self._services.submit(lambda: copies.aborted(checkpoint_id))
        if checkpoint_id == self.stopped_at:
            self.stopped_at = 0
        for waiting in list(self._waiting):
            if isinstance(waiting, Arrived) and waiting.barrier.checkpoint_id == checkpoint_id:
                self._waiting.remove(waiting)
                was_aligning = True
        if was_aligning:
            self._waiting.append(CancelBarrier(checkpoint_id))
        if self._running is not None and self._running.checkpoint_id == checkpoint_id:
            self._running.close()
            self._running.upload.discard()
            self._running = None
        writing = self._writing.pop(checkpoint_id, None)
        if writing is not None:
            writing.upload.discard()
        self._waiting.append(lambda: self._tell(lambda operator: operator.checkpoint_aborted(checkpoint_id)))
        self._wake()

    def input_ended(self, open_operators: Sequence[Operator]) -> None:
        """Note that no record will come any more and that all operators have emitted their results.

        Args:
            open_operators: operators that are not closed; from now on checkpoints contain only their state.
        """
        self._input_ended = True
        if len(open_operators) < len(self._operators):
            self._operators, self._async_operators, self._bases = open_operators, [], None

    def make_durable(self, work: Callable[[], None], on_error: Callable[[BaseException], None]) -> None:
        """Run work on the thread that writes state, before any checkpoint that is acknowledged after this call.

        An error fails the task: nobody knows what is durable after it, and a later checkpoint would not make up for it.
        """

        def run() -> None:
            try:
                work()
            except BaseException as error:  # a sink is a plug-in, and all tasks of the slot share this thread
                self._loop.call_soon_threadsafe(partial(on_error, error))

        self._services.submit(run)

    # -- what is done in steps of the task

    def work(self) -> bool:
        """Do the next queued thing; called when no record is in the chain. False if a snapshot has to end first."""
        first = self._waiting[0]
        if isinstance(first, Arrived) and self._running is not None:
            return False
        if isinstance(first, Arrived) and self._results_first(first.barrier.checkpoint_id):
            return True
        self._waiting.popleft()
        if isinstance(first, Arrived):
            self._begin(first)
        elif isinstance(first, CancelBarrier):
            self._give_up(first)
        else:
            first()
        return True

    def write_out(self, records_took: float) -> None:
        """Serialise a slice of the running snapshot, or several if the records of the step took long.

        Args:
            records_took: seconds that the records of this step have taken.
        """
        deadline = _now() + min(_SHARE * records_took, _LONGEST)
        while True:
            self.slice()
            if not self.slicing or self._token.cancelled or _now() >= deadline:
                return

    def slice(self) -> None:
        running = self._running
        if running is None:
            return
        try:
            self._guard.active = self._token
            running.slice()
            self._guard.active = None
        except TaskInterrupt:
            raise
        except BaseException as error:  # raised by code of the user's values: the checkpoint fails, not the task
            self._guard.active = None
            running.upload.discard()
            self._failed(running, DeclineReason.ASYNC_EXCEPTION, error)
            return
        if running.whole:
            self._running = None
            running.close()
            self._hand_over(running)

    def close(self) -> None:
        """Give up all checkpoints under way, because the task ends."""
        self._waiting.clear()
        if self._running is not None:
            self._running.close()
            self._running.upload.discard()
            self._running = None
        for writing in self._writing.values():
            writing.upload.discard()
        self._writing.clear()

    # -- inside

    def _begin(self, arrived: Arrived) -> None:
        """Send the barrier on and begin the snapshot: the synchronous part of a checkpoint."""
        barrier = arrived.barrier
        if barrier.checkpoint_id <= self._passed:
            return
        self._began = _now()
        self._passed = barrier.checkpoint_id
        # First of all the barrier leaves, so that tasks downstream can align while this one takes its snapshot.
        if not self._input_ended:
            self._broadcast(barrier)
        self._when_it_overtakes(barrier, self._hurry)
        checkpoint_id = barrier.checkpoint_id
        if barrier.options.get(savepoints.STOP_OPTION):
            self.stopped_at = checkpoint_id
        directory = barrier.options.get(savepoints.OPTION)
        upload = Upload(
            checkpoint_id,
            self._info.task_name,
            self._services.open_stream if directory is None else partial(self._services.open_savepoint, directory),
            self._services.submit,
            lambda: self._loop.call_soon_threadsafe(self._wake),
            self._services.open_shared if directory is None else None,
        )
        position = None if self._position is None else self._position()
        bases = self._bases if directory is None else None
        snapshot = TaskSnapshot(arrived, self._operators, upload, position, finished=self._input_ended, bases=bases)
        try:
            self._guard.active = self._token
            snapshot.begin()
            if arrived.overtakes:
                snapshot.log = InFlightLog(checkpoint_id, upload, lambda: self._logged(snapshot))
                self._log_in_flight(snapshot.log)
            self._guard.active = None
        except TaskInterrupt:
            raise
        except BaseException as error:  # user code
            self._guard.active = None
            if snapshot.half_written:
                # Fail the task: a sink that went on would make visible what it has written only in part.
                snapshot.close()
                raise
            self._failed(snapshot, DeclineReason.TASK_FAILURE, error)
            return
        if self._input_ended and self._first_final is None:
            self._first_final = checkpoint_id
        self._running = snapshot
        self._sync_ms = int((_now() - self._began) * 1000)

    def _overtakes(self, arrived: Arrived) -> bool:
        return arrived.overtakes or arrived.barrier.overtakes_at <= self._loop.clock.epoch_ms()

    def _when_it_overtakes(self, barrier: Barrier, call: Callable[[], None]) -> None:
        """Call as soon as a barrier may overtake (the alignment timeout), if ever."""
        remaining_ms = barrier.overtakes_at - self._loop.clock.epoch_ms()
        if remaining_ms <= 0:
            call()
        elif remaining_ms < float("inf"):
            self.call_later(remaining_ms / 1000, call)

    def _hurry(self) -> None:
        for channel in self._outputs:
            channel.hurry()

    def _logged(self, snapshot: TaskSnapshot) -> None:
        """Go on with a snapshot whose log of overtaken records has ended, or fail it if the log has."""
        assert snapshot.log is not None
        if snapshot.log.error is not None and self._running is snapshot:
            snapshot.upload.discard()
            self._failed(snapshot, DeclineReason.TASK_FAILURE, snapshot.log.error)
        self._wake()

    def _results_first(self, checkpoint_id: int) -> bool:
        """Tell operators, once, to emit what has to leave in front of the barrier; returns whether there is any."""
        if not self._async_operators or checkpoint_id <= max(self._passed, self._prepared_for):
            return False
        self._prepared_for = checkpoint_id
        self._guard.active = self._token
        for operator in self._async_operators:
            operator.before_barrier(checkpoint_id)
        self._guard.active = None
        return any(operator.ready for operator in self._async_operators)

    def _broadcast(self, element: Barrier | CancelBarrier) -> None:
        for channel in self._outputs:
            channel.send(element)
            channel.flush()

    def _give_up(self, cancelled: CancelBarrier) -> None:
        """Tell tasks downstream and the coordinator of a barrier that will not come any more."""
        checkpoint_id = cancelled.checkpoint_id
        if self._running is not None and self._running.checkpoint_id == checkpoint_id:  # it began by overtaking
            self._running.close()
            self._running.upload.discard()
            self._running = None
        if checkpoint_id > self._passed and not self._input_ended:  # otherwise a later barrier says it already
            self._broadcast(cancelled)
        if checkpoint_id not in self._aborted:
            self._reporter.decline_checkpoint(self._info.execution_id, checkpoint_id, DeclineReason.SUBSUMED, None)

    def _failed(self, snapshot: TaskSnapshot, reason: DeclineReason, error: BaseException) -> None:
        snapshot.close()
        if self._running is snapshot:
            self._running = None
        failure = describe_failure(error, self._info)
        logger.warning(
            "%s: checkpoint %d: %s: %s",
            self._info.full_name, snapshot.checkpoint_id, failure.error_class, failure.message,
        )  # fmt: skip
        self._reporter.decline_checkpoint(self._info.execution_id, snapshot.checkpoint_id, reason, failure)

    def _hand_over(self, snapshot: TaskSnapshot) -> None:
        """Acknowledge as soon as the writing thread, which has got all chunks, has written them."""
        self._writing[snapshot.checkpoint_id] = snapshot
        sync_ms, began = self._sync_ms, self._began

        def done(handles: dict[int, StateHandle], error: BaseException | None) -> None:
            self._loop.call_soon_threadsafe(lambda: self._written(snapshot, handles, error, sync_ms, began))

        snapshot.upload.finish(done)

    def _written(
        self,
        snapshot: TaskSnapshot,
        handles: Mapping[int, StateHandle],
        error: BaseException | None,
        sync_ms: int,
        began: float,
    ) -> None:
        if self._writing.pop(snapshot.checkpoint_id, None) is None:
            return  # the checkpoint was given up meanwhile
        if error is not None:
            self._failed(snapshot, DeclineReason.ASYNC_EXCEPTION, error)
            return
        try:
            self._acknowledge(snapshot, handles, sync_ms, began)
        except Exception as unsent:  # this is a callback of the slot's loop, which would tell nobody
            self._failed(snapshot, DeclineReason.ASYNC_EXCEPTION, unsent)

    def _acknowledge(
        self, snapshot: TaskSnapshot, handles: Mapping[int, StateHandle], sync_ms: int, began: float
    ) -> None:
        state, arrived = snapshot.state(handles), snapshot.arrived
        if self._services.copies is not None:
            self._services.copies.acknowledged(snapshot.checkpoint_id, state.handles())
        aligned_ms = arrived.alignment_ms if snapshot.log is None else snapshot.log.took_ms
        metrics = {
            "start_delay_ms": arrived.start_delay_ms,
            "alignment_ms": aligned_ms,
            "sync_ms": sync_ms,
            "async_ms": max(0, int((_now() - began) * 1000) - sync_ms),
            "state_size": state.size,
            "checkpointed_size": state.size - snapshot.reused,
            "processed_in_alignment": arrived.processed_bytes,
            "persisted": 0 if snapshot.log is None else snapshot.log.size,
            "unaligned": int(snapshot.log is not None),
            STATES: [figures.to_plain() for figures in snapshot.figures(state)],
        }
        self.last_times = (aligned_ms * 1_000_000, arrived.start_delay_ms * 1_000_000)
        self._reporter.acknowledge_checkpoint(self._info.execution_id, snapshot.checkpoint_id, metrics, state)

    def _completed(self, checkpoint_id: int) -> None:
        self._tell(lambda operator: operator.checkpoint_complete(checkpoint_id))
        if self.stopped_at and checkpoint_id >= self.stopped_at:
            self.stop_complete = True
        if self._first_final is not None and checkpoint_id >= self._first_final:
            self.final_complete = True

    def _tell(self, call: Callable[[Operator], None]) -> None:
        for operator in self._operators:
            self._guard.active = self._token
            call(operator)
            self._guard.active = None
