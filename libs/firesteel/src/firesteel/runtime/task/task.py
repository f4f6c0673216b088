"""One subtask: it takes batches from its input, moves them through its chain, and ends finished, canceled or failed.

Everything here runs on the task's loop: the slot's main loop, or one of its own if its code may block. The order of
work is in ``StreamTask._advance``.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from firesteel.checkpoint.assign import TaskRestore
from firesteel.core.errors import CheckpointError
from firesteel.core.forks import end_if_child
from firesteel.core.state_machine import StateMachine
from firesteel.functions.metrics import (
    HOT_KEYS,
    LATENCIES,
    OPERATORS,
    USER_COUNTERS,
    USER_METRICS,
    WATERMARK_PROGRESS,
)
from firesteel.graph.execution_states import EXECUTION_MOVES, ExecutionState
from firesteel.protocol.checkpoint_messages import DeclineReason
from firesteel.protocol.deployment import CHECKPOINT_TIMES, POOL_USAGES, QUEUE_SIZES, TaskFailure
from firesteel.runtime.chain.chain import ChainExecutor, ChainPlan
from firesteel.runtime.checkpoints.background import BackgroundWork
from firesteel.runtime.checkpoints.restore import restore_task
from firesteel.runtime.checkpoints.task_checkpoints import CheckpointServices, TaskCheckpoints
from firesteel.runtime.exchange.channels import InputChannel, OutputChannel
from firesteel.runtime.loop.activity import Activity, ActivityTimes, Rates
from firesteel.runtime.loop.interrupts import CancelToken, InterruptGuard
from firesteel.runtime.loop.loop import Handle, TaskLoop
from firesteel.runtime.loop.metrics import OperatorRates
from firesteel.runtime.operator_base.context import OperatorContext, TaskInfo
from firesteel.runtime.operator_base.failures import describe_failure
from firesteel.runtime.operators import Consumer, WatermarksOperator
from firesteel.runtime.records.batch import (
    END_OF_INPUT,
    MAX_WATERMARK,
    Barrier,
    InputBatch,
    LatencyMarker,
    Watermark,
)
from firesteel.runtime.task.latencies import LatencyTracker
from firesteel.runtime.task.parts import TaskInput, TaskReporter
from firesteel.runtime.task.task_time import TaskTime

logger = logging.getLogger(__name__)
STEP_SECONDS: Final = 0.001
"""Time after which a step begins no further slice; the last one may take ``stages.TARGET_SECONDS`` more."""
_now = time.perf_counter


class StreamTask:
    """The task of one subtask, which the loop steps (``Steppable``).

    Life: ``start``, then steps, then the end of the input, ``cancel`` or a failure. The task reports ``INITIALIZING``,
    ``RUNNING`` and its last state, at which it has released everything.

    Args:
        info: names and numbers of the subtask.
        plan: operators and stages; outputs are attached already.
        inputs: the channels or the source reader from which batches come.
        outputs: all output channels, each with its edge's buffer timeout in ms.
        context: context for the operators; each gets a copy with the stamp of its stage.
        loop: the loop on which the task runs.
        guard: interrupt guard of the loop's thread.
        token: cancel token of the task.
        reporter: gets states, acknowledgements and the end of data.
        needs_commit: whether sinks wait, after the end of the input, for the checkpoint whose completion commits.
        watermark_interval: seconds between periodic watermarks; 0 = none.
        latencies: measures latency markers; None = the job has none.
        checkpoints: services of the slot for checkpoints.
        restore: state of the checkpoint from which the task goes on; None = it begins without state.
    """

    def __init__(
        self,
        info: TaskInfo,
        plan: ChainPlan,
        inputs: TaskInput,
        outputs: Sequence[tuple[OutputChannel, int]],
        context: OperatorContext,
        loop: TaskLoop,
        guard: InterruptGuard,
        token: CancelToken,
        reporter: TaskReporter,
        *,
        needs_commit: bool = False,
        watermark_interval: float = 0.2,
        latencies: LatencyTracker | None = None,
        checkpoints: CheckpointServices | None = None,
        restore: TaskRestore | None = None,
    ) -> None:
        self.info, self.plan, self.loop = info, plan, loop
        self.within: Callable[[Callable[[], None]], None] | None = None
        """Runs what the task does within its trace; None = the slot writes no traces."""
        self.runnable = False
        self.executor = ChainExecutor(plan, guard, token)
        self._latencies = latencies
        markers = latencies if inputs.begins_barriers else None  # only sources send some
        self._time = TaskTime(self.executor, loop, watermark_interval, self.wake, markers)
        self._delayed_calls: set[Handle] = set()
        """Timers of operators and checkpoints; cancelled at the end."""
        self._blocked_since: float | None = None
        self._last_watermark = False
        """Whether the input has ended and the last watermark is in the chain; results may still be awaited."""
        self._inputs, self._outputs = inputs, outputs
        services = checkpoints or CheckpointServices()
        self._context = replace(
            context,
            on_processing_timer=self._time.on_processing_timer,
            call_later=self._call_later,
        )
        if context.checkpointing:
            self._context.make_durable = lambda work: self._checkpoints.make_durable(work, self.on_error)
        self._restore, self._services = restore, services
        self._background: BackgroundWork | None = None
        self._final = services.final
        self._by_pieces = services.unaligned and not inputs.begins_barriers
        self._committed = False
        self._guard, self._token, self._reporter = guard, token, reporter
        self._cleaning_up = CancelToken(info.execution_id)  # never set: cleaning up is not interrupted, as in Flink
        self._input_ended = False
        self._triggered: list[Barrier] = []
        """Checkpoints that the coordinator has triggered here; they begin if the input ends before barriers come."""
        self._waits_for_commit = needs_commit or services.final
        self._opened: list[Any] = []
        self._draining_savepoint = 0
        """Id of the savepoint (stop with drain) in front of whose barrier event time has ended; 0 = none."""
        self._drained = False
        self._stopping = False
        """Whether the savepoint with which the job stops is complete, so that the task only has to end."""
        self._flushed = True  # whether nothing was written since the last flush
        self._activity, self._rates = ActivityTimes(loop.clock), Rates(loop.clock)
        self._operator_rates = OperatorRates(loop.clock)
        self._machine = StateMachine(info.full_name, ExecutionState.DEPLOYING, EXECUTION_MOVES, loop.clock)
        self._checkpoints = TaskCheckpoints(
            info,
            plan.operators,
            [channel for channel, _ in outputs],
            services,
            reporter,
            loop,
            guard,
            token,
            self._wake_for_checkpoints,
            inputs.position if inputs.begins_barriers else None,
            lambda log: inputs.log_in_flight(log, self.executor.rest),
        )
        inputs.call_later = self._checkpoints.call_later = self._call_later
        for channel, _ in outputs:
            channel.on_writable = self.wake
            channel.on_error = self.on_error
        for stage in plan.async_stages:
            stage.operator.on_results = lambda: loop.call_soon_threadsafe(self.wake)
        for consumer in plan.consumers:
            consumer.on_writable = lambda: loop.call_soon_threadsafe(self.wake)
            consumer.on_drained = lambda: loop.call_soon_threadsafe(self._consumer_drained)

    # -- what others ask

    @property
    def state(self) -> ExecutionState:
        return self._machine.state

    @property
    def ended(self) -> bool:
        """Whether the state is terminal."""
        return self._machine.is_terminal

    def metrics(self) -> dict[str, Any]:
        """Metrics of the task, named as in ``firesteel.protocol.deployment.METRIC_NAMES``, and of user functions.

        May be called from any thread.
        """
        busy, idle, back_pressured = self._activity.totals_ms()
        totals = {
            "numRecordsIn": self.executor.records_in,
            "numRecordsOut": self.executor.records_out,
            "numBytesIn": self._inputs.bytes_in,
            "numBytesOut": sum(channel.bytes_out for channel, _ in self._outputs),
            "busyTimeMs": busy,
            "idleTimeMs": idle,
            "backPressuredTimeMs": back_pressured,
        }
        filled = _filled(self._inputs.channels), _filled([channel for channel, _ in self._outputs])
        return {
            **totals,
            **self._rates.update(totals),
            **{name: round(fullest, 4) for name, (fullest, _) in zip(POOL_USAGES, filled, strict=True)},
            **{name: queued for name, (_, queued) in zip(QUEUE_SIZES, filled, strict=True)},
            **dict(zip(CHECKPOINT_TIMES, self._checkpoints.last_times, strict=True)),
            "isBackPressured": int(self._activity.now is Activity.BACK_PRESSURED),
            "currentOutputWatermark": self.executor.output_watermark,
            **self._inputs.input_watermarks(self.executor.input_watermark),
            OPERATORS: self._operator_rates.update(self.plan.flows(), self._own_times()),
            HOT_KEYS: self._hot_keys(),
            WATERMARK_PROGRESS: self._watermark_progress(),
            **({} if self._latencies is None else {LATENCIES: self._latencies.rows()}),
            USER_METRICS: self._context.metrics.values(),
            USER_COUNTERS: self._context.metrics.counters(),
        }

    def _hot_keys(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = []
        for output, sketch in self.plan.sketched_outputs():
            largest = sketch.largest()
            if largest is not None:
                share, channel = largest
                row = {"target": output.target, "share": round(share, 4), "subtask": output.channels[channel].id.down}
                rows.append({**row, "records": round(sketch.records)})
        return rows

    def _own_times(self) -> list[float]:
        first, *others = self.plan.own_times()
        return [first + self._inputs.seconds, *others]

    def _watermark_progress(self) -> list[dict[str, Any]]:
        """What the inputs tell, and the first operator of the chain that makes watermarks of its own."""
        generators = [stage.operator.progress() for stage in self.plan.watermark_stages[:1] if self._opened]
        return [*self._inputs.watermark_progress(), *generators]

    # -- life

    def start(self) -> None:
        """Restore and open all operators, then run."""
        self._guarded(self._start)

    def _start(self) -> None:
        self._move(ExecutionState.INITIALIZING, "deployed")
        self._token.check()
        if self._restore is None:
            self._open_operators()
            self._begin()
            return
        self._checkpoints.restored(self._restore)
        work = partial(restore_task, self._restore, self.plan.operators, self.info, self._services.open_state)
        self._in_background(work, self._open_restored, [])

    def _in_background(
        self, work: Callable[..., Any], then: Callable[[BackgroundWork], None], delayed_calls: list[Callable[[], None]]
    ) -> None:
        """Do work in another thread, while the loop serves other tasks; then go on with ``then``."""
        self._background = BackgroundWork(work, then, self._when_done, delayed_calls)
        self._services.apart(self._token, self._background.run)
        self._go_on()

    def _when_done(self) -> None:
        self.loop.call_soon_threadsafe(lambda: self._guarded(self._go_on))

    def _go_on(self) -> None:
        background = self._background
        if self.ended or background is None or not background.done:
            return
        self._token.check()
        if background.error is not None:
            raise background.error
        background.then(background)

    def _open_restored(self, restored: BackgroundWork) -> None:
        """Open the operators, which have their state as it was written, and migrate what needs it."""
        if restored.result:
            self._inputs.replay(restored.result)
        for operator in self.plan.operators:
            operator.defer_migrations()
        self._open_operators()
        # Opening operators tells the types of today: state of other types is migrated now, again in a thread.
        migrations = [work for operator in self.plan.operators for work in operator.take_migrations()]
        if not migrations:
            self._begin_restored(restored)
            return

        def migrate(check: Callable[[], None]) -> None:
            for migration in migrations:
                check()
                migration()

        self._in_background(migrate, self._begin_restored, restored.delayed_calls)

    def _begin_restored(self, restored: BackgroundWork) -> None:
        self._background = None
        self._begin()
        for call in restored.delayed_calls:
            call()

    def when_open(self, call: Callable[[], None]) -> None:
        """Call as soon as the task is open: now, or when its state has been restored."""
        if self._background is None:
            call()
        else:
            self._background.delayed_calls.append(call)

    def _open_operators(self) -> None:
        """Open the operators, which have their state already."""
        for output in self.plan.spec.outputs:
            assigner = self.plan.watermarks_of(output.operator_index, itself=True)
            self.plan.outlet_of(output).watermark_origin = partial(self._sent_watermark_origin, assigner)
        self._guard.active = self._token
        for index in reversed(range(len(self.plan.operators))):  # tail to head, as in Flink
            operator = self.plan.operators[index]
            self._opened.append(operator)
            operator.open(
                replace(
                    self._context,
                    stamp=self.plan.stage_of[index].stamp,
                    watermark_origin=partial(self._watermark_origin, self.plan.watermarks_of(index)),
                )
            )
        self._guard.active = None

    def _watermark_origin(self, assigner: WatermarksOperator | None) -> str:
        """Text for the log that says where a watermark of this task comes from: an input, or this chain.

        Args:
            assigner: operator of this chain that generates the watermark; None = it comes with the input.
        """
        origin = self._inputs.watermark_origin()
        if assigner is None:
            return origin
        return f"{assigner.name!r}, which reads {origin}" if self._inputs.begins_barriers else repr(assigner.name)

    def _sent_watermark_origin(self, assigner: WatermarksOperator | None) -> str:
        """Like ``_watermark_origin``, for watermarks that go to other tasks: it names the subtask that made them."""
        origin = self._watermark_origin(assigner)
        if assigner is None and not self._inputs.begins_barriers:
            return origin  # a task further upstream has generated it, and added its subtask
        return f"{origin} (subtask {self.info.subtask + 1}/{self.info.parallelism})"

    def _begin(self) -> None:
        """Open the input and run, as all operators are open and their state is migrated."""
        self._guard.active = self._token
        self._inputs.open()
        self._guard.active = None
        self._move(ExecutionState.RUNNING, "all operators are open")
        self.loop.add_task(self)
        self._time.start()
        # Restored timers of processing time fire, unless the task had reached its end in the checkpoint: the end of the
        # input drops such timers.
        earliest = self.executor.earliest_timer()
        had_ended = self._restore is not None and self._restore.finished
        if earliest is not None and not had_ended:
            self._time.on_processing_timer(earliest)
        self.wake()

    def wake(self) -> None:
        """Have the loop step the task, as there may be something to do."""
        if not self.ended and not self._input_ended:
            self.runnable = True
            self._activity.switch(Activity.BUSY)

    def _wake_for_checkpoints(self) -> None:
        """Like ``wake``, but also after the end of the input, when checkpoints are all that is left to do."""
        if not self.ended:
            self.runnable = True

    def _call_later(self, seconds: float, call: Callable[[], None]) -> None:
        """Call after a time, as user code of this task: what it raises fails the task."""

        def due() -> None:
            self._delayed_calls.discard(handle)
            self._guard.active = self._token
            self._guarded(call)
            self._guard.active = None

        handle = self.loop.call_later(seconds, due)
        self._delayed_calls.add(handle)

    def step(self) -> None:
        """Work on slices of the chain and batches of the input, then write out a part of a snapshot under way."""
        if self.within is None:
            self._step()
        else:
            self.within(self._step)

    def _step(self) -> None:
        began = _now()
        if self._input_ended:
            self.runnable = False
            if self._checkpoints.waiting:
                self.runnable = self._checkpoints.work() and self._checkpoints.waiting
                self._complete()
        else:
            self._advance()
        if self._checkpoints.slicing and not self.ended:
            self._checkpoints.write_out(_now() - began)
            self.runnable |= self._checkpoints.slicing or (
                self._checkpoints.waiting
                and (self._input_ended or not self.executor.blocked or self._checkpoints.overtaking)
            )

    def _advance(self) -> None:
        """Work for about ``STEP_SECONDS``.

        The branches are in the order of priority. Each pass does one thing and goes on (``continue``), or leaves the
        loop: because the time is over, or because there is nothing to do until something wakes the task.
        """
        executor = self.executor
        deadline = _now() + STEP_SECONDS
        while not self.ended:
            if self._token.cancelled:
                self._end(ExecutionState.CANCELED, None, "cancelled")
            elif self._checkpoints.stopped_at:
                self._stand_still()
            # A barrier that overtakes needs no room in the outputs, so it comes before back pressure.
            elif self._overtaking():
                if _now() < deadline:
                    continue
            elif executor.blocked:
                if self._blocked_since is None:
                    self._blocked_since = self.loop.clock.monotonic()
                self._rest(Activity.BACK_PRESSURED)
            elif executor.pending:
                executor.step()
                self._flushed = False
                if _now() < deadline:
                    continue
            # From here on no record is in the chain: timers fire, checkpoints begin, the next batch is polled.
            elif self._time.due:
                self._time.run()
                continue
            elif self._checkpoints.waiting and self._inputs.at_position:
                if self._checkpoints.drains and not self._drained:
                    if self._drain():
                        continue
                    return
                if self._work_for_checkpoints():
                    continue
                self._rest(Activity.BUSY)  # the snapshot before has to end first: ``_step`` writes its slices
            elif self._last_watermark:
                self._end_of_input()
            else:
                self._end_of_blocking()
                item = self._inputs.poll()
                if isinstance(item, InputBatch):
                    if self._by_pieces:
                        executor.feed_by_pieces(item.batch, item.input_index)
                    else:
                        executor.feed(item.batch, item.input_index)
                    continue
                if isinstance(item, Watermark):
                    executor.advance(item)
                    continue
                if isinstance(item, LatencyMarker):
                    if self._latencies is not None:
                        self._latencies.passed(item)
                    continue
                if item is not None and self._checkpoints.offer(item):
                    continue
                if item is not None:  # the end of the input is the end of event time
                    self._last_watermark = True
                    self._time.stop()
                    executor.advance(Watermark(MAX_WATERMARK))
                    continue
                self._rest(Activity.IDLE)
                self._flush()
            return

    def _overtaking(self) -> bool:
        """Prepare and begin the checkpoint of a barrier that overtakes.

        Records in the chain must leave it first. They need no room in the outputs, within limits
        (``ChainExecutor.overdrawn``), as one record may make any number of results.

        Returns:
            Whether something was done; if not, the task goes on as without the barrier.
        """
        inputs, checkpoints, executor = self._inputs, self._checkpoints, self.executor
        if inputs.barriers_came:
            inputs.look_ahead()
        if inputs.overtaking is None and not checkpoints.overtaking:
            return False
        if checkpoints.running or executor.waits or not inputs.at_position:
            return False
        if executor.working:
            if executor.overdrawn:
                return False
            executor.step()
            self._flushed = False
            return True
        arrived = None if inputs.overtaking is None else inputs.overtake()
        if arrived is not None:
            checkpoints.offer(arrived)
        if not checkpoints.waiting or not self._work_for_checkpoints():
            return False
        # The barrier has made the outputs ship more than they had credit for: wait until receivers have worked it off.
        executor.wait_for(channel for channel, _ in self._outputs)
        return True

    def _drain(self) -> bool:
        """End event time in front of the barrier of a savepoint (stop with drain); False while results are awaited."""
        if not self._draining_savepoint:
            self._draining_savepoint = self._checkpoints.drains
            self._time.stop()
            self.executor.advance(Watermark(MAX_WATERMARK))
            return True
        if not self.executor.empty:
            self._rest(Activity.BUSY)
            self._flush()
            return False
        self._guard.active = self._token
        for consumer in self.plan.consumers:
            consumer.finish()
        self._guard.active = None
        self._drained = True
        return True

    def _stand_still(self) -> None:
        """Read nothing and fire no timers, as the barrier of the savepoint with which the job stops has passed.

        When the savepoint is complete, the task ends as soon as the tasks in front of it have. If it is given up, the
        task runs on.
        """
        self._rest(Activity.IDLE)
        if self._checkpoints.waiting:
            self.runnable = self._work_for_checkpoints() and self._checkpoints.waiting
        if not self._checkpoints.stopped_at:
            self.wake()
        elif self._checkpoints.stop_complete:
            self._stop()

    def _stop(self) -> None:
        """End after the savepoint; called again until the tasks in front have ended and sinks have committed."""
        if not self._stopping:
            self._stopping = True
            self._time.stop()
            self._guard.active = self._token
            for consumer in self.plan.consumers:
                if self._drained:
                    consumer.commit()
                else:
                    consumer.stop()
            self._guard.active = None
            for channel, _ in self._outputs:
                channel.end()
        if not self._inputs.begins_barriers:
            while (item := self._inputs.poll()) is not END_OF_INPUT:
                if item is None:
                    return
        if not all(consumer.drained for consumer in self.plan.consumers):
            return
        self._guard.active = self._token
        self._inputs.close()
        self._guard.active = None
        self._close_operators(lambda operator: not isinstance(operator, Consumer), careful=False)
        self._end(ExecutionState.FINISHED, None, "stopped with a savepoint")

    def _work_for_checkpoints(self) -> bool:
        worked = self._checkpoints.work()
        if worked:
            self._inputs.position_taken()
        return worked

    # -- checkpoints, from the coordinator

    def trigger_checkpoint(self, barrier: Barrier) -> None:
        """Begin a checkpoint at a source, or where all inputs have ended; other tasks wait for their barriers."""
        if self.ended or self.state is not ExecutionState.RUNNING:
            reason = DeclineReason.TASK_CLOSING if self.ended else DeclineReason.TASK_NOT_READY
            self._reporter.decline_checkpoint(self.info.execution_id, barrier.checkpoint_id, reason, None)
        elif self._inputs.begins_barriers or self._input_ended:
            self._checkpoints.trigger(barrier)
        else:
            self._triggered.append(barrier)
            self._inputs.triggered(barrier)

    def checkpoint_complete(self, checkpoint_id: int) -> None:
        """Commit everything that was prepared up to this checkpoint, which is complete."""
        if not self.ended:
            self._checkpoints.complete(checkpoint_id)

    def checkpoint_aborted(self, checkpoint_id: int) -> None:
        """Give up a checkpoint that will not complete. The task fails if it has ended event time for it already."""
        if not self.ended and checkpoint_id == self._draining_savepoint:
            text = f"savepoint {checkpoint_id}, with which the job was to stop, failed, and event time has ended"
            self.on_error(CheckpointError(text))
        elif not self.ended:
            aligning = self._inputs.abort_checkpoint(checkpoint_id)
            self._checkpoints.aborted(checkpoint_id, was_aligning=aligning)

    def _end_of_blocking(self) -> None:
        """Tell the clocks for idleness how long the task was back-pressured, when no records could come."""
        if self._blocked_since is not None:
            seconds = self.loop.clock.monotonic() - self._blocked_since
            self._blocked_since = None
            self._time.back_pressured(seconds)
            self._inputs.back_pressured(seconds)

    def _rest(self, activity: Activity) -> None:
        self.runnable = False
        self._activity.switch(activity)

    def _flush(self) -> None:
        if not self._flushed:
            self._flushed = True
            for channel, timeout in self._outputs:
                if timeout >= 0:
                    channel.rest()

    def _end_of_input(self) -> None:
        """Finish operators, close functions, end the channels, and let sinks commit, in Flink's order.

        In jobs with checkpoints functions stay open until a last checkpoint is complete, because their state is part of
        it. In other jobs that last checkpoint contains only what sinks have to commit.
        """
        if not self.executor.empty:
            # Asynchronous results are still awaited.
            self._rest(Activity.BUSY)
            self._flush()
            return
        self._input_ended = True
        self._rest(Activity.BUSY)
        self._guard.active = self._token
        for consumer in self.plan.consumers:
            consumer.finish()
        if not self._final:
            self._close_operators(lambda operator: not isinstance(operator, Consumer), careful=False)
        self._guard.active = self._token
        self._inputs.close()
        self._guard.active = None
        for channel, _ in self._outputs:
            channel.end()
        self._activity.switch(Activity.IDLE)
        self._checkpoints.input_ended(self.plan.operators if self._final else self.plan.consumers)
        if self._waits_for_commit:
            self._reporter.end_of_data(self.info.execution_id)
        for barrier in sorted(self._triggered, key=lambda barrier: barrier.checkpoint_id):
            self._checkpoints.trigger(barrier)
        self.runnable = self._checkpoints.waiting
        self._complete()

    def _consumer_drained(self) -> None:
        if self._stopping:
            self.wake()
        else:
            self._guarded(self._complete)

    def _complete(self) -> None:
        """Commit and finish, once the input has ended and the last checkpoint, if the job needs one, is complete."""
        if self.ended or not self._input_ended:
            return
        if self._waits_for_commit and not self._checkpoints.final_complete:
            return
        self._token.check()
        self._guard.active = self._token
        if not self._committed:
            self._committed = True
            for consumer in self.plan.consumers:
                consumer.commit()
        self._guard.active = None
        if not all(consumer.drained for consumer in self.plan.consumers):
            return
        if self._final:
            self._close_operators(lambda operator: not isinstance(operator, Consumer), careful=False)
        self._end(ExecutionState.FINISHED, None, "end of input")

    def cancel(self) -> None:
        """End the task immediately; called on the task's loop. The token may have been set before."""
        self._token.cancelled = True
        if not self.ended:
            self._end(ExecutionState.CANCELED, None, "cancelled")

    def fail(self, failure: TaskFailure) -> None:
        """End the task as failed for a reason outside of its own code."""
        if not self.ended:
            self._end(ExecutionState.FAILED, failure, failure.message)

    def on_error(self, error: BaseException) -> None:
        """Fail the task with an error of its code; if it was cancelled it ends as such."""
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
            if self.within is None:
                action()
            else:
                self.within(action)
        except BaseException as error:  # user code; whatever it raises fails the task
            end_if_child(error)
            self.on_error(error)

    def _end(self, state: ExecutionState, failure: TaskFailure | None, cause: str) -> None:
        """Release everything, then report the last state; what user code raises meanwhile is only logged."""
        self.runnable = False
        self.loop.remove_task(self)
        self._time.stop()
        for handle in self._delayed_calls:
            handle.cancel()
        self._delayed_calls.clear()
        self._checkpoints.close()
        if self._background is not None:
            self._background.give_up()
        if state is not ExecutionState.FINISHED:
            self._log_errors("dropping records", self.executor.drop)
            for consumer in self.plan.consumers:
                self._log_errors(f"abort of {consumer.name!r}", consumer.abort)
        self._close_operators(lambda operator: True, careful=True)
        self._log_errors("closing the input", self._inputs.close)
        if state is not ExecutionState.FINISHED:
            for channel, _ in self._outputs:
                channel.close()
        self._activity.switch(Activity.IDLE)
        self._move(state, cause, failure)

    def _close_operators(self, selects: Callable[[Any], bool], *, careful: bool) -> None:
        """Close the selected operators from tail to head, which is the order in which they were opened.

        Args:
            selects: tells whether to close an operator; the others stay open.
            careful: whether to log what they raise; if not, it fails the task.
        """
        opened, self._opened = self._opened, []
        for position, operator in enumerate(opened):
            if not selects(operator):
                self._opened.append(operator)
            elif careful:
                self._log_errors(f"close of {operator.name!r}", operator.close)
            else:
                self._guard.active = self._token
                try:
                    operator.close()
                except BaseException:
                    # The end of the task closes the others; this one must not be closed twice.
                    self._opened += opened[position + 1 :]
                    raise
                self._guard.active = None

    def _log_errors(self, what: str, action: Callable[[], None]) -> None:
        """Clean up; what user code raises is logged, and a cancellation does not interrupt it."""
        self._guard.active = self._cleaning_up
        try:
            action()
        except BaseException as error:  # user code while the task ends, whose last state is decided
            end_if_child(error)
            logger.warning("%s: %s raised %s: %s", self.info.full_name, what, type(error).__name__, error)
        finally:
            self._guard.active = None

    def _move(self, state: ExecutionState, cause: str, failure: TaskFailure | None = None) -> None:
        self._machine.move(state, cause)
        self._reporter.state(self.info.execution_id, state, failure, self.metrics())


def _filled(channels: Iterable[InputChannel | OutputChannel]) -> tuple[float, int]:
    """How full the fullest channel is (0 to 1, or a bit more), and the bytes that are queued in all channels.

    The fullest channel counts, because it is the one that stops a task, and windows within a slot are much smaller than
    those between slots.
    """
    fullest, queued = 0.0, 0
    for channel in channels:
        queued_here, window = channel.fill
        if window:
            fullest = max(fullest, queued_here / window)
        queued += queued_here
    return fullest, queued
