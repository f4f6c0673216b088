"""The input of a task that runs a user's enumerator: it takes events from the JobMaster and sends decisions back.

User code runs only in slots, so an enumerator that a user wrote is a task beside its source, and the JobMaster forwards
events between the two. Everything runs on the task's own thread, except for the work of ``call_async``.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, TypeVar

from typing_extensions import override

from firesteel.config import Settings
from firesteel.core.errors import ProgramError, ProtocolError
from firesteel.functions.functions import RuntimeContext
from firesteel.functions.source import ReaderInfo, Split, SplitEnumerator, SplitEnumeratorContext
from firesteel.protocol import operator_events as events
from firesteel.runtime.checkpoints.position import SourcePosition
from firesteel.runtime.loop.interrupts import CancelToken, InterruptGuard
from firesteel.runtime.loop.loop import TaskLoop
from firesteel.runtime.operator_base.split_codec import SplitCodec
from firesteel.runtime.operators.enumerator import EnumeratorOperator
from firesteel.runtime.records.batch import END_OF_INPUT, InBand
from firesteel.runtime.task.parts import TaskInput

T = TypeVar("T")
_now = time.perf_counter
STEP_SECONDS: Final = 0.01
"""Time for which calls of the enumerator run before barriers have their turn."""
Say = Callable[[int, Sequence[events.Event]], None]
"""Sends events to the JobMaster, with the number of the message."""
_Call = Callable[[SplitEnumerator], None]


class EnumeratorInput(TaskInput):
    """The input of an enumerator's task. It has no records, and ends when the readers of the source have ended.

    Args:
        operator: owns the enumerator.
        readers: parallelism of the source.
        token: cancel token of the task.
        say: sends decisions of the enumerator to the JobMaster.
        on_readable: called on the task's loop when ``poll`` has something to do.
        runtime_context: context for the user's code.
        finished: whether the source had ended in the checkpoint from which the job goes on.
        settings: configuration of the job.
    """

    begins_barriers = True
    bytes_in = 0

    def __init__(
        self,
        operator: EnumeratorOperator,
        readers: int,
        token: CancelToken,
        say: Say,
        on_readable: Callable[[], None],
        runtime_context: RuntimeContext | None = None,
        *,
        finished: bool = False,
        settings: Settings | None = None,
    ) -> None:
        self._operator, self._token, self._say, self._on_readable = operator, token, say, on_readable
        self._loop: TaskLoop | None = None
        self._guard = InterruptGuard()
        self._context = _Context(self, readers, SplitCodec(operator.name, operator.source), runtime_context, settings)
        self._calls: deque[_Call] = deque()
        self._added = self._handled = 0  # running totals of calls queued and made
        self._barrier_behind: int | None = None
        """Number of calls that must be handled before the waiting barrier; None = no barrier waits."""
        self._received = self._sent = 0  # numbers of the last messages from and to the JobMaster
        self._out: list[events.Event] = []
        self._async_calls = _CallThread()
        self._ended, self._closed = finished, False
        self._finished = finished

    def run_on(self, loop: TaskLoop, guard: InterruptGuard) -> None:
        """Set the loop, and the guard of its thread, on which all other methods are called; before ``open``."""
        self._loop, self._guard = loop, guard

    def open(self) -> None:
        if not self._finished:
            self._operator.begin(self._context)
            self._flush()

    # -- the task

    @property
    def at_position(self) -> bool:
        """Whether all calls that were queued before the barrier came have been handled."""
        if self._barrier_behind is None:
            self._barrier_behind = self._added
        return self._handled >= self._barrier_behind

    def position(self) -> SourcePosition:
        """The number of the last message to the JobMaster: splits assigned after it are still in the state."""
        self._flush()
        return SourcePosition(self._operator.spec.id, (), self._sent)

    @override
    def position_taken(self) -> None:
        self._barrier_behind = None

    def poll(self) -> InBand | None:
        """Make queued calls of the enumerator for about ``STEP_SECONDS``; returns the end of the input at last."""
        assert self._loop is not None
        deadline = _now() + STEP_SECONDS
        while self._calls and not self._ended and _now() < deadline:
            call = self._calls.popleft()
            self._handled += 1
            self._guard.active = self._token
            self._operator.call(call)
            self._guard.active = None
        self._flush()
        if self._calls or self._barrier_behind is not None:
            self._loop.call_soon(self._on_readable)
        return END_OF_INPUT if self._ended else None

    def close(self) -> None:
        """Drop queued calls; later events are ignored, and decisions are not sent."""
        self._closed = True
        self._calls.clear()
        self._async_calls.close()

    # -- from the JobMaster

    def take(self, number: int, received: Sequence[events.Event]) -> None:
        """Queue events of the JobMaster; a message that came before is ignored.

        Raises:
            ProtocolError: a message was lost, or an event is of unknown form.
        """
        if number <= self._received or self._closed:
            return
        if number > self._received + 1:
            where = f"events for {self._operator.name}"
            raise ProtocolError(where, f"number {number} came behind {self._received}: what is between is lost")
        self._received = number
        for event in received:
            self.add(self._reaction(event))

    def _reaction(self, event: events.Event) -> _Call:
        """The call of the enumerator to which an event leads."""
        context = self._context
        match event:
            case {"type": events.ADD_READER, "subtask": int(subtask), "host": str(host)}:

                def add(enumerator: SplitEnumerator) -> None:
                    context.readers[subtask] = ReaderInfo(subtask, host)
                    enumerator.add_reader(subtask)

                return add
            case {"type": events.REQUEST, "subtask": int(subtask)}:
                return lambda enumerator: enumerator.handle_split_request(subtask, context.location(subtask))
            case {"type": events.ADD_BACK, "subtask": int(subtask), "splits": splits}:

                def back(enumerator: SplitEnumerator) -> None:
                    returned = [context.codec.from_plain(Split.from_plain(plain)) for plain in splits]
                    enumerator.add_splits_back(returned, subtask)

                return back
            case {"type": events.FINISH}:
                return self._finish
        raise ProtocolError(f"events for {self._operator.name}", f"{event!r:.200}")

    def _finish(self, _: SplitEnumerator) -> None:
        self._ended = True

    # -- from the enumerator

    def add(self, call: _Call) -> None:
        """Queue a call of the enumerator."""
        if not self._closed:
            self._calls.append(call)
            self._added += 1
            self._on_readable()

    def add_from_anywhere(self, call: _Call) -> None:
        """Queue a call of the enumerator; may be called from any thread."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(lambda: self.add(call))

    def decided(self, event: events.Event) -> None:
        """Send a decision of the enumerator to the JobMaster, with others of the same turn of the loop.

        Raises:
            ProgramError: it was made in ``snapshot_state``: nobody could tell whether the state already contains it.
        """
        if self._operator.gives_state:
            raise ProgramError(f"operator {self._operator.name!r}: snapshot_state() must not assign splits")
        self._out.append(event)
        if len(self._out) == 1 and self._loop is not None:
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        if self._out and not self._closed:
            out, self._out = self._out, []
            self._sent += 1
            self._say(self._sent, out)

    def call_async(
        self, work: Callable[[], T], handler: Callable[[T | None, BaseException | None], None], delay: float,
        period: float | None,
    ) -> None:  # fmt: skip
        """Run work in the thread for asynchronous calls, and its handler in the task's; delays are in seconds."""
        assert self._loop is not None

        def handle(result: T | None, error: BaseException | None) -> None:
            handler(result, error)
            if period is not None:
                self.call_async(work, handler, period, period)

        def begin() -> None:
            if not self._closed:
                self._async_calls.do(work, lambda *ended: self.add_from_anywhere(lambda _: handle(*ended)))

        if delay > 0:
            self._loop.call_later(delay, begin)
        else:
            begin()


class _CallThread:
    """The thread for asynchronous calls, one after the other. It starts with the first; nobody waits for its end."""

    def __init__(self) -> None:
        self._waiting: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def do(self, work: Callable[[], T], done: Callable[[T | None, BaseException | None], None]) -> None:
        """Run work, then call ``done`` in the same thread, with the result or the exception."""

        def run() -> None:
            try:
                result = work()
            except BaseException as error:  # raised by the user's code; its handler gets it
                done(None, error)
            else:
                done(result, None)

        self._waiting.put(run)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="firesteel-enumerator-calls", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while (run := self._waiting.get()) is not None:
            run()
            del run

    def close(self) -> None:
        if self._thread is not None:
            self._waiting.put(None)


class _Context(SplitEnumeratorContext):
    """The context of the enumerator, by which it assigns splits."""

    def __init__(
        self,
        inputs: EnumeratorInput,
        parallelism: int,
        codec: SplitCodec,
        runtime_context: RuntimeContext | None,
        settings: Settings | None,
    ) -> None:
        self._inputs, self._parallelism, self.codec = inputs, parallelism, codec
        self._runtime_context = runtime_context
        self._settings = Settings() if settings is None else settings
        self.readers: dict[int, ReaderInfo] = {}
        self._told_no_more: set[int] = set()

    @property
    def settings(self) -> Settings:
        return self._settings

    def current_parallelism(self) -> int:
        return self._parallelism

    def registered_readers(self) -> Mapping[int, ReaderInfo]:
        return MappingProxyType(self.readers)

    def location(self, subtask_id: int) -> str | None:
        reader = self.readers.get(subtask_id)
        return None if reader is None else reader.location

    def assign_split(self, split: Split, subtask_id: int) -> None:
        self._check(subtask_id, f"assign_split({getattr(split, 'id', split)!r:.60}, {subtask_id})")
        if subtask_id in self._told_no_more:
            raise ProgramError(
                f"assign_split({split.id!r:.60}, {subtask_id}): this reader was told that no more splits come "
                "(signal_no_more_splits)"
            )
        self._inputs.decided(events.assign_splits(subtask_id, [self.codec.to_plain(split)]))

    def signal_no_more_splits(self, subtask_id: int) -> None:
        self._check(subtask_id, f"signal_no_more_splits({subtask_id})")
        if subtask_id not in self._told_no_more:
            self._inputs.decided(events.no_more_splits(subtask_id))
            self._told_no_more.add(subtask_id)

    def _check(self, subtask_id: int, what: str) -> None:
        if subtask_id not in self.readers:
            known = ", ".join(map(str, sorted(self.readers))) or "none"
            raise ProgramError(f"{what}: no reader of this subtask is registered (registered: {known})")

    def call_async(
        self,
        callable: Callable[[], T],
        handler: Callable[[T | None, BaseException | None], None],
        initial_delay_ms: int = 0,
        period_ms: int | None = None,
    ) -> None:
        if initial_delay_ms < 0 or (period_ms is not None and period_ms <= 0):
            raise ProgramError(f"call_async(): delay {initial_delay_ms} ms, period {period_ms} ms: not possible")
        period = None if period_ms is None else period_ms / 1000
        self._inputs.call_async(callable, handler, initial_delay_ms / 1000, period)

    def run_in_coordinator_thread(self, runnable: Callable[[], None]) -> None:
        self._inputs.add_from_anywhere(lambda _: runnable())

    def runtime_context(self) -> RuntimeContext | None:
        return self._runtime_context
