"""The life of a slot after it was accepted: it runs deployments, obeys the TaskManager, and ends when released.

Messages come in on the control thread, where only cancellations take effect. Everything else happens on the main loop,
which most tasks share; ``RunningTask.post`` reaches those that have a loop of their own.
"""

from __future__ import annotations

import gc
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from firesteel.checkpoint.subtask_state import TaskState
from firesteel.config import Settings
from firesteel.config.options import (
    BUFFER_DEBLOAT_ENABLED,
    BUFFER_DEBLOAT_TARGET,
    EXCHANGE_CHANNEL_WINDOW,
    EXCHANGE_MAX_CHUNK,
)
from firesteel.core.clock import Clock
from firesteel.core.errors import ProtocolError
from firesteel.core.log_levels import set_level
from firesteel.functions.source import Split
from firesteel.graph.execution_states import ExecutionState
from firesteel.protocol.checkpoint_messages import DeclineReason
from firesteel.protocol.deployment import Deployment, TaskDescriptor, TaskFailure
from firesteel.protocol.operator_events import Event
from firesteel.runtime.checkpoints.background import RestoreThreads
from firesteel.runtime.checkpoints.uploads import UploadThread
from firesteel.runtime.exchange import Exchange
from firesteel.runtime.loop.collector import collect_seldom
from firesteel.runtime.loop.interrupts import FIRST_INTERRUPT_SECONDS, CancelToken, Interrupter, InterruptGuard
from firesteel.runtime.loop.loop import TaskLoop
from firesteel.runtime.loop.thread import TaskThread
from firesteel.runtime.operator_base.failures import describe_failure
from firesteel.runtime.records.batch import Barrier
from firesteel.runtime.slot.collecting import CollectServer
from firesteel.runtime.slot.control import ControlChannel, Message
from firesteel.runtime.slot.deployer import Deployer, RunningTask, SlotServices
from firesteel.runtime.slot.inspection import Inspector
from firesteel.runtime.slot.stdio import OutputForwarder
from firesteel.runtime.slot.telemetry import SlotTelemetry
from firesteel.runtime.slot.user_code import extend_path, load_main, read_blob, unpack

logger = logging.getLogger(__name__)
FIRST_METRICS_SECONDS: Final = 0.25
"""Time until the first report of metrics."""
METRICS_SECONDS: Final = 1.0
"""Time between reports of metrics."""
RELEASE_INTERRUPT_SECONDS: Final = 0.5
"""Time between interrupts of user code in a slot that is released."""
PEER_LOSS_SECONDS: Final = 0.5
"""Time until a broken connection to another slot fails our tasks. If the process of that slot has died, its own
TaskManager tells the JobMaster immediately, which is the better explanation."""
JOIN_SECONDS: Final = 1.0
"""Time to wait for the end of each thread when the slot ends."""
PENDING_SECONDS: Final = 0.02
"""Time between checks whether the threads of former attempts have ended, while new attempts wait for that."""


@dataclass
class _PendingDeployment:
    """New attempts of a deployment that wait for the end of former ones.

    Attributes:
        deployment: the deployment.
        new: descriptors of the new attempts.
        former: execution ids of the attempts that have to end first.
        received_ms: when the slot got the deployment (epoch).
    """

    deployment: Deployment
    new: list[TaskDescriptor]
    former: list[str]
    received_ms: int


class Slot:
    """All tasks of one slot process.

    Everything but ``on_message``, ``on_closed`` and ``tick`` belongs to the main thread. ``attach`` sets the control
    channel, before anything else.

    Args:
        allocation_id: allocation id of the slot.
        loop: the main loop.
        exchange: connections to other slots.
        interrupter: interrupts user code of cancelled tasks.
        clock: measures times, and stamps reports.
    """

    def __init__(
        self,
        allocation_id: str,
        loop: TaskLoop,
        exchange: Exchange,
        interrupter: Interrupter,
        clock: Clock,
    ) -> None:
        self._allocation_id, self._loop, self._exchange, self._clock = allocation_id, loop, exchange, clock
        self._interrupter = interrupter
        self._streams: Sequence[OutputForwarder] = ()
        self._channel: ControlChannel | None = None
        self._tasks: dict[str, RunningTask] = {}
        """Tasks that have not ended, by execution. Nothing else here may refer to the functions of a task, so that they
        are freed when it ends."""
        self._threads: dict[str, TaskThread] = {}
        """Threads of tasks that block, by execution, until they have ended."""
        self._has_garbage = False
        """Whether tasks have ended since the last garbage collection."""
        self._lock = threading.Lock()
        """Guards ``_tokens`` and ``_guards``, which the control thread reads."""
        self._tokens: dict[str, CancelToken] = {}
        self._attempts: dict[tuple[str, int], TaskDescriptor] = {}
        """The last attempt of each subtask that was here."""
        self._job_fields: dict[str, str] = {}
        """Fields of log records that name the job."""
        self._task_fields: dict[str, dict[str, Any]] = {}
        """Fields of log records that name a task, by execution."""
        self._pending: list[_PendingDeployment] = []
        self._main_blob: str | None = None  # SHA-256 of the blob with the program's main module that is loaded
        self._telemetry: SlotTelemetry | None = None
        self._guards: list[InterruptGuard] = [interrupter.main]
        self._interrupt_at: float | None = None  # when ``tick`` interrupts next; None = nothing was cancelled
        self._interrupt_every = 30.0
        self._released = False
        self._collects = CollectServer(loop, self._send)
        self._inspector = Inspector(self._send, lambda: dict(self._tasks))
        exchange.on_failure = self._peer_failed
        self._uploads, self._restores = UploadThread(), RestoreThreads()
        self._services = SlotServices(
            exchange,
            loop,
            interrupter.main,
            self,
            temporary_files=self._temporary_file,
            kept_files=self._kept_file,
            write_stdout=self._write_stdout,
            stdout_writable=lambda: self._channel is None or self._channel.output_room(),
            request_splits=lambda execution_id: self._send({"type": "request_splits", "execution_id": execution_id}),
            report_watermark=lambda execution_id, group, watermark: self._send(
                {"type": "watermark", "execution_id": execution_id, "group": group, "watermark": watermark}
            ),
            submit_upload=self._uploads.submit,
            apart=self._restores.run,
            operator_events=self._operator_events,
        )

    def attach(self, channel: ControlChannel, streams: Sequence[OutputForwarder]) -> None:
        """Set the control channel, before it is started, and the streams to which the program writes, stdout first."""
        self._channel = channel
        self._streams = streams
        channel.on_output_room = lambda: self._loop.call_soon_threadsafe(self._output_room)
        self._loop.call_later(FIRST_METRICS_SECONDS, self._report_metrics)

    def _write_stdout(self, text: str) -> None:
        self._streams[0].write(text)

    def running_here(self) -> str | None:
        """The execution id of the task whose user code the calling thread runs; None if it runs none."""
        thread = threading.get_ident()
        for guard in (*self._guards, *self._restores.guards()):
            if guard.thread == thread and guard.active is not None:
                return guard.active.owner
        return None

    # -- called on the control thread

    def on_message(self, message: Message, payload: bytes) -> None:
        """Take a message of the TaskManager, and have the main loop handle it.

        Cancellations take effect here as well, because user code may keep the main thread.
        """
        kind = message["type"]
        if kind == "cancel":
            self._set_cancelled(message.get("execution_ids"), float(message.get("interval_ms") or 30_000) / 1000)
        elif kind == "release":
            self._set_cancelled(None, RELEASE_INTERRUPT_SECONDS)
        elif kind == "log_levels":
            set_log_levels(message["levels"])
            return
        elif kind == "inspect":
            self._inspector.answer(message)
            return
        self._loop.call_soon_threadsafe(lambda: self._handle(message))

    def on_closed(self, reason: str) -> None:
        """End everything, because the TaskManager is gone."""
        self._set_cancelled(None, RELEASE_INTERRUPT_SECONDS)
        self._loop.call_soon_threadsafe(lambda: self._release(reason))

    def _set_cancelled(self, execution_ids: list[str] | None, interval: float) -> None:
        with self._lock:
            for execution_id, token in self._tokens.items():
                if execution_ids is None or execution_id in execution_ids:
                    token.cancelled = True
            self._interrupt_every = interval
            self._interrupt_at = self._clock.monotonic() + FIRST_INTERRUPT_SECONDS

    def tick(self) -> float | None:
        """Interrupt user code of tasks that are cancelled and still run; returns when to be called again, or None."""
        if self._interrupt_at is None:
            return None
        now = self._clock.monotonic()
        if now >= self._interrupt_at:
            with self._lock:
                guards = list(self._guards)
                still_running = any(token.cancelled for token in self._tokens.values())
            for guard in (*guards, *self._restores.guards()):
                self._interrupter.interrupt(guard)
            self._interrupt_at = now + self._interrupt_every if still_running else None
        return self._interrupt_at

    # -- the main loop

    def _handle(self, message: Message) -> None:
        kind = message["type"]
        if kind == "deploy":
            self._receive(message["deployment"])
        elif kind == "cancel":
            self._cancel(message.get("execution_ids"))
        elif kind == "assign_splits":
            splits = [Split.from_plain(plain) for plain in message["splits"]]
            no_more, serial = bool(message["no_more"]), int(message.get("serial", 0))
            self._on_task(message["execution_id"], lambda task: _add_splits(task, splits, no_more, serial))
        elif kind == "operator_events":
            number, events = int(message["number"]), message["events"]
            self._on_task(message["execution_id"], lambda task: _tell_enumerator(task, number, events))
        elif kind == "group_watermark":
            watermark = int(message["watermark"])
            self._on_task(message["execution_id"], lambda task: _align(task, watermark))
        elif kind == "trigger_checkpoint":
            self._trigger_checkpoint(message)
        elif kind in ("checkpoint_complete", "checkpoint_aborted"):
            checkpoint_id, complete = int(message["checkpoint_id"]), kind == "checkpoint_complete"
            for execution_id in message["execution_ids"]:
                self._on_task(execution_id, lambda task: _notify(task, checkpoint_id, complete=complete))
        elif kind == "collect":
            self._collect(message)
        elif kind == "release":
            self._release("released")

    def _trigger_checkpoint(self, message: Message) -> None:
        number = int(message["checkpoint_id"])
        for execution_id in message["execution_ids"]:
            if execution_id not in self._tasks:
                self.decline_checkpoint(execution_id, number, DeclineReason.TASK_NOT_READY, None)
                continue
            barrier = Barrier(number, int(message["timestamp_ms"]), message["options"])
            task = self._tasks[execution_id]
            task.post(lambda task=task, barrier=barrier: task.task.trigger_checkpoint(barrier))  # type: ignore[misc]

    def _on_task(self, execution_id: str, call: Callable[[RunningTask], None]) -> None:
        """Call with a task on its own loop, once its state is restored; a task that has ended is ignored."""
        task = self._tasks.get(execution_id)
        if task is not None:
            task.post(lambda: task.task.when_open(lambda: call(task)))

    def _receive(self, plain: dict[str, Any]) -> None:
        try:
            deployment = Deployment.from_plain(plain)
        except (TypeError, KeyError, ValueError) as error:
            logger.error("malformed deployment: %s", error)
            failure = describe_failure(error, kind="internal")
            for task in plain["tasks"]:
                self.state(task["execution_id"], ExecutionState.FAILED, failure, {})
        else:
            self._job_fields = {"job": deployment.job_id}
            self._deploy(deployment)

    def _deploy(self, deployment: Deployment) -> None:
        """Run new attempts as soon as former ones of the same subtasks have ended.

        Attempts that this slot has already got are left alone: a deployment may be repeated.
        """
        new = [d for d in deployment.tasks if self._attempt_of(d) < d.attempt]
        if self._released or not new:
            return
        with self._lock:
            for descriptor in new:
                self._tokens[descriptor.execution_id] = CancelToken(descriptor.execution_id)
        last = [self._attempts.get((d.vertex_id, d.subtask)) for d in new]
        former = [d.execution_id for d in last if d is not None]
        # If a former attempt is pending itself it may never begin; then those for which it waits have to end first.
        for pending in self._pending:
            if any(d.execution_id in former for d in pending.new):
                former += pending.former
        self._attempts.update({(d.vertex_id, d.subtask): d for d in new})
        for d in new:
            self._task_fields[d.execution_id] = {
                "task": f"{d.vertex_name} ({d.subtask + 1}/{d.parallelism})#{d.attempt}",
                "vertex": d.vertex_id,
                "subtask": d.subtask,
                "attempt": d.attempt,
            }
        self._pending.append(_PendingDeployment(deployment, new, former, self._clock.epoch_ms()))
        self._run_pending()

    def _attempt_of(self, descriptor: TaskDescriptor) -> int:
        """The number of the last attempt of a subtask that was here; -1 if there was none."""
        last = self._attempts.get((descriptor.vertex_id, descriptor.subtask))
        return last.attempt if last is not None else -1

    def _run_pending(self) -> None:
        """Run the pending deployments whose former attempts have ended; look again soon for the others."""
        for pending in list(self._pending):
            for descriptor in [d for d in pending.new if self._tokens[d.execution_id].cancelled]:
                pending.new.remove(descriptor)
                self.state(descriptor.execution_id, ExecutionState.CANCELED, None, {})
            if pending.new and not all(map(self._is_over, pending.former)):
                self._loop.call_later(PENDING_SECONDS, self._run_pending)
                continue
            self._pending.remove(pending)
            for execution_id in pending.former:
                self._forget(execution_id)
            if pending.new and not self._released:
                self._run(pending.deployment, pending.new, pending.received_ms)

    def _is_over(self, execution_id: str) -> bool:
        """Whether a task and its thread have ended."""
        if execution_id in self._tasks:
            return False
        thread = self._threads.get(execution_id)
        if thread is not None and not thread.join(0):
            return False
        self._threads.pop(execution_id, None)
        return True

    def _forget(self, execution_id: str) -> None:
        """Forget an attempt that has ended, because another one takes its place."""
        self._task_fields.pop(execution_id, None)
        self._collects.forget(execution_id)
        with self._lock:
            self._tokens.pop(execution_id, None)

    def _run(self, deployment: Deployment, new: Sequence[TaskDescriptor], received_ms: int) -> None:
        """Build all tasks of a deployment, then start them."""
        begun_ms = self._clock.epoch_ms()
        if deployment.trace:
            self._telemetry = self._telemetry or SlotTelemetry(self._allocation_id, self._clock)
            self._telemetry.prepare(deployment)
        if self._has_garbage:
            # The objects of former attempts are frozen (``collect_seldom``): free their cycles before new ones come.
            self._has_garbage = False
            gc.unfreeze()
            gc.collect()
        deployer = Deployer(deployment, self._services)
        built: list[RunningTask] = []
        try:
            self._prepare(deployment, new)
        except BaseException as error:  # importing the user's modules may raise anything, SystemExit too
            for descriptor in new:
                self._refuse(deployer, descriptor, error)
            return
        for descriptor in new:
            token = self._tokens[descriptor.execution_id]
            try:
                task = deployer.build(descriptor, token)
            except BaseException as error:  # unpickling functions may raise anything
                self._refuse(deployer, descriptor, error)
                continue
            self._tasks[descriptor.execution_id] = task
            if task.thread is not None:
                self._threads[descriptor.execution_id] = task.thread
                with self._lock:
                    self._guards.append(task.guard)
            self._collects.serve(descriptor.execution_id, task.task.plan.consumers, task.on_error)
            if self._telemetry is not None:
                task.task.within = self._telemetry.begin(deployment, descriptor, received_ms, begun_ms)
            built.append(task)
        for task in built:
            task.start()
        collect_seldom()

    def log_fields(self) -> dict[str, Any]:
        """Fields of a log record that is made by the calling thread: job, task, and the open span."""
        execution_id = self.running_here()
        fields = {"execution_id": execution_id, **self._job_fields, **self._task_fields.get(execution_id or "", {})}
        return fields if self._telemetry is None else fields | self._telemetry.log_fields()

    def close_telemetry(self) -> None:
        """Export the last spans and values, for a limited time."""
        if self._telemetry is not None:
            self._telemetry.close()

    def _begins_anew(self, new: Sequence[TaskDescriptor]) -> bool:
        """Whether the program's globals have to be loaded afresh: a restart, and no other task of the job is here.

        Functions may keep things in globals of the program. If the job restarts, these must begin anew: a set of ids
        that were seen would contain those of records that come again. But tasks of other regions that run on still use
        the globals, and share them with the new tasks.
        """
        threads = [thread for thread in self._threads.values() if not thread.join(0)]
        return not self._tasks and not threads and any(descriptor.attempt for descriptor in new)

    def _prepare(self, deployment: Deployment, new: Sequence[TaskDescriptor]) -> None:
        """Configure the exchange for the job, and load the program's modules."""
        token = self._tokens[new[0].execution_id]
        settings = Settings(dict(deployment.config), "job")
        self._exchange.configure(
            deployment.job_id,
            deployment.job_attempt,
            deployment.secret,
            self._allocation_id,
            deployment.placement.peers,
            settings.get(EXCHANGE_CHANNEL_WINDOW),
            settings.get(EXCHANGE_MAX_CHUNK),
            settings.get(BUFFER_DEBLOAT_TARGET).total_seconds() if settings.get(BUFFER_DEBLOAT_ENABLED) else 0.0,
        )
        archives = [unpack(deployment.blobs[name], name) for name in deployment.python_files]
        extend_path([*archives, *deployment.python_path])
        if deployment.main_blob is not None and (deployment.main_blob != self._main_blob or self._begins_anew(new)):
            blob = read_blob(deployment.blobs[deployment.main_blob], deployment.main_blob)
            self._interrupter.main.active = token
            load_main(blob)
            self._main_blob = deployment.main_blob
            self._interrupter.main.active = None

    def _refuse(self, deployer: Deployer, descriptor: TaskDescriptor, error: BaseException) -> None:
        """Report a task that could not be built, as failed or, if it was cancelled meanwhile, as such."""
        self._interrupter.main.active = None
        cancelled = self._tokens[descriptor.execution_id].cancelled
        failure = None if cancelled else describe_failure(error, deployer.info(descriptor), deploying=True)
        self.state(
            descriptor.execution_id, ExecutionState.CANCELED if cancelled else ExecutionState.FAILED, failure, {}
        )

    def _cancel(self, execution_ids: list[str] | None) -> None:
        for execution_id, task in list(self._tasks.items()):
            if execution_ids is None or execution_id in execution_ids:
                task.post(task.task.cancel)
        self._run_pending()

    def _collect(self, message: Message) -> None:
        self._collects.request(
            int(message["request_id"]),
            message["execution_id"],
            int(message["offset"]),
            int(message["max_bytes"]),
            int(message["wait_ms"]) / 1000,
        )

    def _peer_failed(self, error: Exception, allocation: str | None) -> None:
        """Fail the tasks that exchange records with another slot, as the connection broke or could not be made."""
        failure = describe_failure(error, kind="external" if isinstance(error, ProtocolError | OSError) else None)
        tasks = [t for t in self._tasks.values() if not t.task.ended and (allocation is None or allocation in t.peers)]
        self._loop.call_later(PEER_LOSS_SECONDS, lambda: self._fail_all(failure, tasks))

    @staticmethod
    def _fail_all(failure: TaskFailure, tasks: Sequence[RunningTask]) -> None:
        for task in tasks:
            task.post(lambda task=task: task.task.fail(_at(failure, task)))  # type: ignore[misc]

    def _output_room(self) -> None:
        for task in self._tasks.values():
            task.post(task.task.wake)

    def _release(self, reason: str) -> None:
        """End all tasks, then the loop."""
        if not self._released:
            self._released = True
            logger.info("slot %s ends: %s", self._allocation_id, reason)
            self._cancel(None)
        self._stop_if_over()

    def _stop_if_over(self) -> None:
        if self._released and not self._tasks:
            self._loop.stop()

    def join_threads(self) -> bool:
        """Wait shortly for all threads of the slot, after the loop has stopped; returns whether they have ended."""
        self._inspector.close(JOIN_SECONDS)
        self._uploads.stop(JOIN_SECONDS)
        for thread in self._threads.values():
            thread.stop()
        ended = self._restores.join(JOIN_SECONDS)
        return ended and all(thread.join(JOIN_SECONDS) for thread in self._threads.values())

    def fail(self, error: BaseException) -> None:
        """Fail all tasks with an error of the runtime itself."""
        logger.error("slot %s: %s", self._allocation_id, error, exc_info=error)
        self._fail_all(describe_failure(error, kind="internal"), list(self._tasks.values()))

    # -- ``TaskReporter``, called on the tasks' threads

    def state(
        self, execution_id: str, state: ExecutionState, failure: TaskFailure | None, metrics: dict[str, Any]
    ) -> None:
        if self._telemetry is not None:
            self._telemetry.moved(execution_id, state, failure.message if failure else "")
        if state.is_terminal:
            for stream in self._streams:
                stream.flush()
            with self._lock:
                token = self._tokens.get(execution_id)
                if token is not None:
                    # A new token, not cancelled: the task has ended, so ``tick`` must not wait for it any more.
                    self._tokens[execution_id] = CancelToken(execution_id)
            self._loop.call_soon_threadsafe(lambda: self._task_ended(execution_id, state))
        self._send(
            {
                "type": "task_state",
                "execution_id": execution_id,
                "state": state.value,
                "error": failure.to_plain() if failure else None,
                "metrics": metrics,
            }
        )

    def _task_ended(self, execution_id: str, state: ExecutionState) -> None:
        self._collects.ended(execution_id, state)
        task = self._tasks.pop(execution_id, None)
        if task is not None:
            self._has_garbage = True
            if task.thread is not None:
                task.thread.stop()
                with self._lock:
                    self._guards.remove(task.guard)
        self._stop_if_over()

    def _operator_events(self, execution_id: str, number: int, events: Sequence[Event]) -> None:
        self._send({"type": "operator_events", "execution_id": execution_id, "number": number, "events": list(events)})

    def end_of_data(self, execution_id: str) -> None:
        self._send({"type": "end_of_data", "execution_id": execution_id})

    def acknowledge_checkpoint(
        self, execution_id: str, checkpoint_id: int, metrics: Mapping[str, Any], state: TaskState
    ) -> None:
        if self._telemetry is not None:
            self._telemetry.acknowledged(execution_id, checkpoint_id, metrics)
        message = {
            "type": "acknowledge_checkpoint",
            "execution_id": execution_id,
            "checkpoint_id": checkpoint_id,
            "metrics": dict(metrics),
        }
        self._send(message, state.to_bytes())

    def decline_checkpoint(
        self, execution_id: str, checkpoint_id: int, reason: DeclineReason, failure: TaskFailure | None
    ) -> None:
        self._send(
            {
                "type": "decline_checkpoint",
                "execution_id": execution_id,
                "checkpoint_id": checkpoint_id,
                "reason": reason.value,
                "failure": failure.to_plain() if failure else None,
            }
        )

    def _temporary_file(self, path: str, add: bool) -> None:
        self._send({"type": "temporary_files", "add": [path] if add else [], "remove": [] if add else [path]})

    def _kept_file(self, path: str, checkpoint_id: int) -> None:
        self._send({"type": "temporary_files", "add": [], "remove": [path], "keep": {path: checkpoint_id}})

    def _report_metrics(self) -> None:
        self._loop.call_later(METRICS_SECONDS, self._report_metrics)
        tasks = {execution_id: task.task.metrics() for execution_id, task in self._tasks.items() if not task.task.ended}
        if tasks:
            self._send({"type": "metrics", "tasks": tasks})

    def _send(self, message: Mapping[str, Any], payload: bytes = b"") -> None:
        if self._channel is not None:
            self._channel.send(dict(message), payload)


def _align(task: RunningTask, watermark: int) -> None:
    source = task.source
    if source is not None:
        try:
            source.align(watermark)
        except BaseException as error:
            task.task.on_error(error)


def _tell_enumerator(task: RunningTask, number: int, events: Sequence[Event]) -> None:
    if task.enumerator is not None:
        try:
            task.enumerator.take(number, events)
        except BaseException as error:
            task.task.on_error(error)


def _notify(task: RunningTask, checkpoint_id: int, *, complete: bool) -> None:
    if complete:
        task.task.checkpoint_complete(checkpoint_id)
    else:
        task.task.checkpoint_aborted(checkpoint_id)


def set_log_levels(levels: Mapping[str, str]) -> None:
    """Set levels of loggers of this process, by name, as its TaskManager says."""
    for logger, level in levels.items():
        set_level(logger, level)


def _add_splits(task: RunningTask, splits: list[Split], no_more: bool, serial: int) -> None:
    source = task.source
    if source is not None:
        try:
            source.add_splits(splits, no_more, serial)
        except BaseException as error:
            task.task.on_error(error)


def _at(failure: TaskFailure, task: RunningTask) -> TaskFailure:
    """A copy of a failure that names this task."""
    info = task.task.info
    plain = {**failure.to_plain(), "vertex_name": info.task_name, "subtask": info.subtask, "attempt": info.attempt}
    return TaskFailure.from_plain(plain)
