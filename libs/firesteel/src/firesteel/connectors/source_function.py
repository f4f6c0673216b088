"""Runs a ``SourceFunction`` as a source: in a thread of its own that hands records over."""

from __future__ import annotations

import ctypes
import logging
import threading
from collections import deque
from collections.abc import Sequence
from typing import Any, Final

from firesteel.core.errors import ProgramError, UnsupportedFeatureError
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
"""So many records the function may be ahead of the task."""
END_SECONDS: Final = 1.0
"""So long a function that was cancelled may take to end; then its thread is left behind."""
_INTERRUPT_SECONDS: Final = 0.05


class _Stopped(BaseException):
    """Raised inside ``run`` after a cancel."""


class SourceFunctionSource(Source[Any]):
    """The source of a function; it can't be replayed."""

    replayable = False

    def __init__(self, function: SourceFunction[Any]) -> None:
        self._function = function

    @property
    def boundedness(self) -> Boundedness:
        """Not known, so unbounded."""
        return Boundedness.CONTINUOUS_UNBOUNDED

    def enumerator(self) -> EnumeratorSpec:
        """One split for each subtask."""
        return EnumeratorSpec("subtasks")

    def create_reader(self, context: ReaderContext) -> SourceReader[Any]:
        """Runs the function."""
        return FunctionReader(self._function, context)


class FunctionReader(SourceReader[Any]):
    """Runs the function in a thread from when its split arrives."""

    def __init__(self, function: SourceFunction[Any], context: ReaderContext) -> None:
        self._function, self._context = function, context
        self._records: deque[tuple[Any, int | None]] = deque()
        self._change = threading.Condition()
        self._stopped = self._done = self._interruptible = False
        self._error: BaseException | None = None
        self._split: Split | None = None
        self._paused = False
        self._no_more = False
        self._thread = threading.Thread(target=self._main, name="firesteel-source-function", daemon=True)

    def add_splits(self, splits: Sequence[Split]) -> None:
        """Start the function.

        Raises:
            ProgramError: the split is of another version, or a second one.
        """
        for split in splits:
            if split.version != 1 or self._split is not None:
                raise ProgramError(f"source function: split {split.id!r} of version {split.version} is not expected")
            self._split = split
            self._thread.start()

    def no_more_splits(self) -> None:
        """After what was added so far nothing will come."""
        self._no_more = True

    def pause_splits(self, split_ids: Sequence[str]) -> None:
        """Give nothing; the function waits when it is too far ahead."""
        self._paused = self._paused or (self._split is not None and self._split.id in split_ids)

    def resume_splits(self, split_ids: Sequence[str]) -> None:
        """Give records again."""
        if self._split is not None and self._split.id in split_ids:
            self._paused = False

    def snapshot(self) -> list[Split]:
        """The split, which has no position."""
        return [] if self._split is None else [self._split]

    def poll(self, max_records: int) -> Polled[Any]:
        """What the function has given."""
        split = self._split
        if split is None:
            return END if self._no_more else NEED_SPLITS
        if self._paused:
            return Wait()
        with self._change:
            if self._records:
                taken = self._take(max_records)
                self._change.notify_all()
            elif not self._done:
                return Wait()
            else:
                taken = []
        if not taken:
            if self._error is not None:
                raise self._error
            self._split = None
            return SourceBatch([], split.id, None, split_finished=True)
        stamps = [stamp for _, stamp in taken if stamp is not None]
        return SourceBatch([value for value, _ in taken], split.id, None, stamps or None)

    def _take(self, count: int) -> list[tuple[Any, int | None]]:
        """Records that all have timestamps, or none."""
        records = self._records
        stamped = records[0][1] is not None
        taken: list[tuple[Any, int | None]] = []
        while records and len(taken) < count and (records[0][1] is not None) is stamped:
            taken.append(records.popleft())
        return taken

    def give(self, value: Any, timestamp: int | None) -> None:
        """Called by the function's thread; waits for room."""
        with self._change:
            while len(self._records) >= AHEAD and not self._stopped:
                self._change.wait()
            if self._stopped:
                raise _Stopped
            first = not self._records
            self._records.append((value, timestamp))
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
        """Runs the function, which may be interrupted; what it raised."""
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
        if running:
            try:
                self._function.cancel()
            except Exception:
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
        self._give = reader.give
        self._lock = threading.RLock()

    def collect(self, element: Any) -> None:
        self._give(element, None)

    def collect_with_timestamp(self, element: Any, timestamp: int) -> None:
        if type(timestamp) is not int:
            raise TypeError(f"collect_with_timestamp() takes a timestamp in ms, an int, not {timestamp!r:.80}")
        self._give(element, timestamp)

    def emit_watermark(self, watermark: Any) -> None:
        raise UnsupportedFeatureError(
            "emit_watermark(): source functions give no watermarks in this version of firesteel; call "
            "assign_timestamps_and_watermarks() on the stream"
        )

    def get_checkpoint_lock(self) -> Any:
        return self._lock
