"""Runs a ``SourceFunction`` as a source: in a thread of its own that hands records over."""

from __future__ import annotations

import ctypes
import logging
import threading
from collections import deque
from collections.abc import Sequence
from types import CodeType, FunctionType
from typing import Any, Final, NamedTuple

from typing_extensions import override

from firesteel.common.own_copies import as_given
from firesteel.connectors.checkpoint_lock import CheckpointLock
from firesteel.connectors.single_split import SingleSplit
from firesteel.functions.checkpointed import CheckpointedFunction
from firesteel.functions.source import (
    END,
    NEED_SPLITS,
    Boundedness,
    EnumeratorSpec,
    Polled,
    ReaderContext,
    Source,
    SourceBatch,
    SourceReader,
    Split,
    Wait,
)
from firesteel.functions.source_function import SourceFunction

logger = logging.getLogger(__name__)

AHEAD: Final = 2000
"""Records that the function may be ahead of the task; then ``collect`` waits."""
END_SECONDS: Final = 1.0
"""Seconds that a function may take to end when it was cancelled; then its thread is left behind."""
_INTERRUPT_SECONDS: Final = 0.05
"""Seconds between two interrupts of a function that was cancelled."""


def _mentions(code: CodeType, name: str) -> bool:
    inner = (constant for constant in code.co_consts if isinstance(constant, CodeType))
    return name in code.co_names or any(_mentions(nested, name) for nested in inner)


class _Said(NamedTuple):
    """Stands between records: a watermark, or that nothing comes for now."""

    watermark: int | None


class _Stopped(BaseException):
    """Raised inside ``run`` after a cancel."""


class SourceFunctionSource(Source[Any]):
    """The source of a function; one that is no ``CheckpointedFunction`` can't be replayed."""

    own_watermarks = True

    def __init__(self, function: SourceFunction[Any]) -> None:
        self._function = function
        self.replayable = isinstance(function, CheckpointedFunction)

    @property
    def speaks_of_watermarks(self) -> bool:
        """Whether the code of the function's class calls ``emit_watermark`` anywhere."""
        classes = type(self._function).__mro__
        own = [
            cls for cls in classes if issubclass(cls, SourceFunction) and cls.__module__ != SourceFunction.__module__
        ]
        codes = [value.__code__ for cls in own for value in vars(cls).values() if isinstance(value, FunctionType)]
        return any(_mentions(code, "emit_watermark") for code in codes)

    @property
    def boundedness(self) -> Boundedness:
        """Unbounded: nobody knows whether the function ends."""
        return Boundedness.CONTINUOUS_UNBOUNDED

    def enumerator(self) -> EnumeratorSpec:
        """Make one split for each subtask."""
        return EnumeratorSpec("subtasks")

    @override
    def create_reader(self, context: ReaderContext) -> SourceReader[Any]:
        return FunctionReader(self._function, context)


class FunctionReader(SingleSplit, SourceReader[Any]):
    """Runs the function in a thread from when its split arrives; paused, it waits when it is too far ahead.

    Attributes:
        lock: which the function holds while several things are one step.
    """

    what = "source function"

    def __init__(self, function: SourceFunction[Any], context: ReaderContext) -> None:
        super().__init__()
        self._function, self._context = function, context
        self._records: deque[tuple[Any, int | None] | _Said] = deque()
        self._change = threading.Condition()
        self._stopped = self._done = self._interruptible = False
        self._error: BaseException | None = None
        self._draining = self._started = False
        self._further: list[Split] = []
        self.lock = CheckpointLock(context.wake_up)
        self._thread = threading.Thread(target=self._main, name="firesteel-source-function", daemon=True)

    def add_splits(self, splits: Sequence[Split]) -> None:
        """Start the function with the first one. Others are of subtasks that are no more: the function has their state.

        They are kept until it ends, so that as many functions run again when the parallelism is raised.

        Raises:
            CheckpointVersionError: a split is of another version.
        """
        first = [] if self._started else splits[:1]
        others = splits[len(first) :]
        for split in others:
            self.check_version(split)
        super().add_splits(first)
        self._further += others
        if first:
            self._started = True
            self._thread.start()

    def is_silent(self, split_id: str) -> bool:
        """Whether the split belonged to a subtask that does not exist any more."""
        return any(split.id == split_id for split in self._further)

    def snapshot(self) -> list[Split]:
        """All splits, which have no position."""
        return [*super().snapshot(), *self._further]

    def poll(self, max_records: int) -> Polled[Any]:
        """Return what the function has emitted."""
        if self.split is None and self._further:
            self.split = self._further.pop(0)  # the function has ended, and with it all splits
        split = self.split
        if split is None:
            return END if self.none_follow else NEED_SPLITS
        if self.is_paused and not self._draining:
            return Wait()
        with self._change:
            if self._records:
                records, mark = self._take(max_records)
                self._change.notify_all()
            elif not self._done:
                return Wait()
            else:
                if self._error is not None:
                    raise self._error
                self.split = None
                return SourceBatch([], split.id, None, split_finished=True)
        stamps = [stamp for _, stamp in records if stamp is not None]
        values = [value for value, _ in records]
        if mark is None:
            return SourceBatch(values, split.id, None, stamps or None)
        idle = mark.watermark is None
        return SourceBatch(values, split.id, None, stamps or None, watermark=mark.watermark, idle=idle)

    def _take(self, count: int) -> tuple[list[tuple[Any, int | None]], _Said | None]:
        """Records that all have timestamps, or none of them; and the watermark or idleness behind them."""
        waiting, polled = self._records, list[tuple[Any, int | None]]()
        stamped: bool | None = None
        while waiting and len(polled) < count:
            first = waiting[0]
            if isinstance(first, _Said):
                waiting.popleft()
                return polled, first
            if stamped is not None and (first[1] is not None) is not stamped:
                break  # the timestamps of a batch are a list, or None
            stamped = first[1] is not None
            polled.append(first)
            waiting.popleft()
        return polled, None

    @override
    def checkpointed_function(self) -> object | None:
        return self._function

    def ready_for_checkpoint(self) -> bool:
        """Whether the function is outside of its lock, and what it gave before has been polled."""
        self._draining = True
        return self.lock.claim() and not self._records

    def checkpoint_taken(self) -> None:
        """Let the function go on."""
        self._draining = False
        self.lock.give_back()

    def give(self, value: Any, timestamp: int | None) -> None:
        """Called by the function's thread; waits for room."""
        self._put((value, timestamp))

    def say(self, watermark: int | None) -> None:
        """Called by the function's thread: a watermark behind what was given, or None for idleness."""
        self._put(_Said(watermark))

    def _put(self, entry: tuple[Any, int | None] | _Said) -> None:
        with self.lock, self._change:
            while len(self._records) >= AHEAD and not self._stopped:
                self._change.wait()
            if self._stopped:
                raise _Stopped
            first = not self._records
            self._records.append(entry)
        if first:
            self._context.wake_up()

    def _main(self) -> None:
        function = self._function
        error: BaseException | None = None
        try:
            runtime = self._context.runtime_context()
            if runtime is not None:
                function.open(runtime)
        except BaseException as problem:
            error = problem
        else:
            error = self._run()
            try:
                function.close()
            except BaseException as problem:
                error = error or problem
        with self._change:
            self._error = error
            self._done = True
        self._context.wake_up()

    def _run(self) -> BaseException | None:
        """Run the function, which may be interrupted; returns what it raised.

        The interrupt (``_interrupt``) is an exception that Python raises in this thread at some later instruction. It
        may arrive when ``run`` has ended already, so it is caught at each place where it can, and it must not hit
        ``close()`` of the function.
        """
        error: BaseException | None = None
        try:
            try:
                self._interruptible = True
                self._function.run(_Context(self))
            except _Stopped:
                pass
            except BaseException as problem:
                error = problem
        except _Stopped:
            pass
        while True:
            try:
                with self._change:
                    self._interruptible = False
                for _ in range(10):  # an interrupt that is on its way arrives here, not in close() of the function
                    pass
                return error
            except _Stopped:
                pass

    def close(self) -> None:
        """Cancel the function and wait for its end, not for ever."""
        if self._thread.ident is None:
            return
        with self._change:
            self._stopped = True
            running = not self._done
            self._change.notify_all()
        self.lock.break_up()
        if running:
            try:
                self._function.cancel()
            except BaseException:  # the user's own code
                logger.exception("cancel() of %s raised", type(self._function).__name__)
        for _ in range(int(END_SECONDS / _INTERRUPT_SECONDS)):
            self._thread.join(_INTERRUPT_SECONDS)
            if not self._thread.is_alive():
                return
            self._interrupt()
        logger.warning(
            "run() of %s did not return after cancel(); its thread is left behind", type(self._function).__name__
        )

    def _interrupt(self) -> None:
        with self._change:
            if self._interruptible:
                number = ctypes.c_ulong(self._thread.ident or 0)
                ctypes.pythonapi.PyThreadState_SetAsyncExc(number, ctypes.py_object(_Stopped))


class _Context(SourceFunction.SourceContext[Any]):
    def __init__(self, reader: FunctionReader) -> None:
        self._reader = reader
        self._lock = reader.lock

    def collect(self, element: Any) -> None:
        self._reader.give(as_given(element), None)

    def collect_with_timestamp(self, element: Any, timestamp: int) -> None:
        self._reader.give(as_given(element), _milliseconds("collect_with_timestamp", "timestamp", timestamp))

    def emit_watermark(self, watermark: Any) -> None:
        milliseconds = getattr(watermark, "timestamp", watermark)
        self._reader.say(_milliseconds("emit_watermark", "watermark", milliseconds))

    def mark_as_temporarily_idle(self) -> None:
        self._reader.say(None)

    def get_checkpoint_lock(self) -> Any:
        return self._lock


def _milliseconds(method: str, what: str, value: Any) -> int:
    if type(value) is not int:
        raise TypeError(f"{method}() takes a {what} in ms, an int, not {value!r:.80}")
    return value
