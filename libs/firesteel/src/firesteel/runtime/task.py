"""One subtask: takes batches from its input, moves them through its chain, and ends in one of three ways.

Everything here runs on the task's loop: the slot's main loop, or one of its own if its code may block.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final, Protocol

from firesteel.core.state_machine import StateMachine
from firesteel.graph.execution_states import EXECUTION_MOVES, ExecutionState
from firesteel.protocol.deployment import TaskFailure
from firesteel.runtime.activity import Activity, ActivityTimes
from firesteel.runtime.batch import EndOfInput
from firesteel.runtime.chain import ChainExecutor, ChainPlan
from firesteel.runtime.context import OperatorContext, TaskInfo
from firesteel.runtime.exchange.channels import OutputChannel
from firesteel.runtime.failures import describe_failure
from firesteel.runtime.interrupts import CancelToken, Guard
from firesteel.runtime.loop import TaskLoop
from firesteel.runtime.operators import CollectOperator, Consumer
from firesteel.runtime.source_input import Fed, SourceInput

logger = logging.getLogger(__name__)
STEP_SECONDS: Final = 0.001
"""A step takes slices until so much time has passed; the last one may take ``chain.TARGET_SECONDS`` more."""
_now = time.perf_counter


class TaskInput(Protocol):
    """Channels, or a source's reader."""

    @property
    def bytes_in(self) -> int:
        """Bytes received."""

    def open(self) -> None:
        """Get ready."""

    def poll(self) -> Fed | EndOfInput | None:
        """The next batch, the end, or nothing now."""

    def close(self) -> None:
        """Release everything; idempotent."""


class TaskReporter(Protocol):
    """Who hears of a task; called on the task's thread."""

    def state(
        self, execution_id: str, state: ExecutionState, failure: TaskFailure | None, metrics: dict[str, int]
    ) -> None:
        """The task reached a state."""

    def end_of_data(self, execution_id: str) -> None:
        """All input is processed and durable: the task waits for ``commit``."""


class StreamTask:
    """A ``Steppable``.

    Life: ``start``, then steps, then either the end of the input or ``cancel`` or a failure. ``INITIALIZING``,
    ``RUNNING`` and the last state are reported; at the last one all is released.

    Args:
        plan: operators; outputs attached.
        inputs: where batches come from.
        outputs: all channels, each with its edge's buffer timeout in ms.
        context: for the operators; each gets its segment's stamp.
        needs_commit: sinks wait for ``commit`` after the end of the input.
    """

    def __init__(
        self,
        info: TaskInfo,
        plan: ChainPlan,
        inputs: TaskInput,
        outputs: Sequence[tuple[OutputChannel, int]],
        context: OperatorContext,
        loop: TaskLoop,
        guard: Guard,
        token: CancelToken,
        reporter: TaskReporter,
        *,
        needs_commit: bool = False,
    ) -> None:
        self.info, self.plan, self.loop = info, plan, loop
        self.runnable = False
        self.executor = ChainExecutor(plan, guard, token)
        self._inputs, self._outputs, self._context = inputs, outputs, context
        self._guard, self._token, self._reporter = guard, token, reporter
        self._cleaning_up = CancelToken(info.execution_id)  # never set: cleaning up is not interrupted, as in Flink
        self._input_ended = False
        self._commit_allowed = not needs_commit
        self._opened: list[Any] = []
        self._flushed = True
        self._activity = ActivityTimes(loop.clock)
        self._machine = StateMachine(info.full_name, ExecutionState.DEPLOYING, EXECUTION_MOVES, loop.clock)
        for channel, _ in outputs:
            channel.on_writable = self.wake
            channel.on_error = self.on_error
        for consumer in plan.consumers:
            consumer.on_writable = lambda: loop.call_soon_threadsafe(self.wake)
            if isinstance(consumer, CollectOperator):
                consumer.on_drained = lambda: loop.call_soon_threadsafe(self._drained)

    # -- what others ask

    @property
    def state(self) -> ExecutionState:
        """The current state."""
        return self._machine.state

    @property
    def ended(self) -> bool:
        """Whether the state is terminal."""
        return self._machine.is_terminal

    def collect_operator(self) -> CollectOperator | None:
        """Its collect operator, if there is one."""
        return next((c for c in self.plan.consumers if isinstance(c, CollectOperator)), None)

    def source_input(self) -> SourceInput | None:
        """Its source's input, if it is a source."""
        return self._inputs if isinstance(self._inputs, SourceInput) else None

    def metrics(self) -> dict[str, int]:
        """Running totals, named as in ``firesteel.protocol.deployment.METRIC_NAMES``; from any thread."""
        busy, idle, back_pressured = self._activity.totals_ms()
        return {
            "numRecordsIn": self.executor.records_in,
            "numRecordsOut": self.executor.records_out,
            "numBytesIn": self._inputs.bytes_in,
            "numBytesOut": sum(channel.bytes_out for channel, _ in self._outputs),
            "busyTimeMs": busy,
            "idleTimeMs": idle,
            "backPressuredTimeMs": back_pressured,
        }

    # -- life

    def start(self) -> None:
        """Open everything and run."""
        self._guarded(self._start)

    def _start(self) -> None:
        self._move(ExecutionState.INITIALIZING, "deployed")
        self._token.check()
        self._guard.active = self._token
        for index in reversed(range(len(self.plan.operators))):  # tail to head, as in Flink
            operator = self.plan.operators[index]
            self._opened.append(operator)
            operator.open(replace(self._context, stamp=self.plan.segment_of[index].stamp))
        self._inputs.open()
        self._guard.active = None
        self._move(ExecutionState.RUNNING, "all operators are open")
        self.loop.add_task(self)
        self.wake()

    def wake(self) -> None:
        """There may be something to do."""
        if not self.ended and not self._input_ended:
            self.runnable = True
            self._activity.switch(Activity.BUSY)

    def step(self) -> None:
        """Slices of the chain and batches of the input, for about ``STEP_SECONDS``."""
        executor = self.executor
        deadline = _now() + STEP_SECONDS
        while not self.ended:
            if self._token.cancelled:
                self._end(ExecutionState.CANCELED, None, "cancelled")
            elif executor.blocked:
                self._rest(Activity.BACK_PRESSURED)
            elif executor.pending:
                executor.step()
                self._flushed = False
                if _now() < deadline:
                    continue
            else:
                got = self._inputs.poll()
                if isinstance(got, Fed):
                    executor.feed(*got)
                    continue
                if got is None:
                    self._rest(Activity.IDLE)
                    self._flush()
                else:
                    self._end_of_input()
            return

    def _rest(self, activity: Activity) -> None:
        self.runnable = False
        self._activity.switch(activity)

    def _flush(self) -> None:
        if not self._flushed:
            self._flushed = True
            for channel, timeout in self._outputs:
                if timeout >= 0:
                    channel.flush()

    def _end_of_input(self) -> None:
        """Flink's order: operators finish head to tail, functions are closed, channels end; then sinks may commit."""
        self._input_ended = True
        self._rest(Activity.BUSY)
        self._guard.active = self._token
        for consumer in self.plan.consumers:
            consumer.finish()
        self._close_operators(lambda operator: not isinstance(operator, Consumer), careful=False)
        self._guard.active = self._token
        self._inputs.close()
        self._guard.active = None
        for channel, _ in self._outputs:
            channel.end()
        self._activity.switch(Activity.IDLE)
        if not self._commit_allowed:
            self._reporter.end_of_data(self.info.execution_id)
        self._complete()

    def _drained(self) -> None:
        self._guarded(self._complete)

    def commit(self) -> None:
        """All tasks of the job have come to their end: make results visible, and finish. Idempotent."""
        self._commit_allowed = True
        self._guarded(self._complete)

    def _complete(self) -> None:
        if self.ended or not self._input_ended or not self._commit_allowed:
            return
        if not all(consumer.drained for consumer in self.plan.consumers):
            return
        self._token.check()
        self._guard.active = self._cleaning_up
        for consumer in self.plan.consumers:
            consumer.commit()
        self._guard.active = None
        self._end(ExecutionState.FINISHED, None, "end of input")

    def cancel(self) -> None:
        """End now; on the task's loop. The token may have been set before."""
        self._token.cancelled = True
        if not self.ended:
            self._end(ExecutionState.CANCELED, None, "cancelled")

    def fail(self, failure: TaskFailure) -> None:
        """End as failed for a reason from outside."""
        if not self.ended:
            self._end(ExecutionState.FAILED, failure, failure.message)

    def on_error(self, error: BaseException) -> None:
        """Something raised: the task fails, unless it was cancelled."""
        self._guard.active = None
        if self.ended:
            logger.warning("%s: after its end: %r", self.info.full_name, error)
        elif self._token.cancelled:
            self._end(ExecutionState.CANCELED, None, "cancelled")
        else:
            failure = describe_failure(error, self.info)
            self._end(ExecutionState.FAILED, failure, f"{failure.error_class}: {failure.message}")

    def _guarded(self, action: Callable[[], None]) -> None:
        try:
            action()
        except BaseException as error:  # user code; whatever it raises fails the task
            self.on_error(error)

    def _end(self, state: ExecutionState, failure: TaskFailure | None, cause: str) -> None:
        """Release everything, then report; what user code raises meanwhile is logged."""
        self.runnable = False
        self.loop.remove_task(self)
        if state is not ExecutionState.FINISHED:
            self._careful("dropping records", self.executor.drop)
            for consumer in self.plan.consumers:
                self._careful(f"abort of {consumer.name!r}", consumer.abort)
        self._close_operators(lambda operator: True, careful=True)
        self._careful("closing the input", self._inputs.close)
        if state is not ExecutionState.FINISHED:
            for channel, _ in self._outputs:
                channel.close()
        self._activity.switch(Activity.IDLE)
        self._move(state, cause, failure)

    def _close_operators(self, which: Callable[[Any], bool], *, careful: bool) -> None:
        """Tail to head, which is the order in which they were opened."""
        waiting, self._opened = self._opened, []
        for position, operator in enumerate(waiting):
            if not which(operator):
                self._opened.append(operator)
            elif careful:
                self._careful(f"close of {operator.name!r}", operator.close)
            else:
                self._guard.active = self._token
                try:
                    operator.close()
                except BaseException:
                    self._opened += waiting[position + 1 :]
                    raise
                self._guard.active = None

    def _careful(self, what: str, action: Callable[[], None]) -> None:
        self._guard.active = self._cleaning_up
        try:
            action()
        except BaseException as error:  # user code at its end: the task's fate is settled
            logger.warning("%s: %s raised %s: %s", self.info.full_name, what, type(error).__name__, error)
        finally:
            self._guard.active = None

    def _move(self, state: ExecutionState, cause: str, failure: TaskFailure | None = None) -> None:
        self._machine.move(state, cause)
        self._reporter.state(self.info.execution_id, state, failure, self.metrics())
