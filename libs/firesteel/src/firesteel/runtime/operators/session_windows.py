"""The operator of session windows that are evaluated at their end, by event time or by the clock."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from typing_extensions import override

from firesteel.runtime.operator_base.context import TaskRuntimeContext
from firesteel.runtime.operators.windows import WindowTransform
from firesteel.state.backend import Timer
from firesteel.windowing.assigners import no_timestamp
from firesteel.windowing.contents import contents_of
from firesteel.windowing.contexts import FunctionContext
from firesteel.windowing.evaluation import clearer_of, evaluator_of
from firesteel.windowing.session_assigners import TimeSessions
from firesteel.windowing.sessions import END, HELD, NEVER, START, Sessions
from firesteel.windowing.windows import MIN_TIMESTAMP, TimeWindow

SESSIONS: Final = "session-contents"


class SessionWindowOperator(WindowTransform):
    """Session windows without a custom trigger or evictor, around the core in ``firesteel.windowing.sessions``.

    Such sessions need no merging of window objects: the state of a key is a short list of its sessions in the order of
    time, and most records extend the last one.
    """

    @override
    def make(self, runtime_context: TaskRuntimeContext) -> None:
        spec, timers = self.windows, self.timers
        assert isinstance(spec.assigner, TimeSessions)
        self._assigner, self._event_time = spec.assigner, spec.assigner.event_time
        arm = timers.register_event_time_timer if self._event_time else timers.register_processing_time_timer
        self._contents = contents_of(spec)
        self._sessions = Sessions(self._contents, spec.allowed_lateness, lambda time: arm(None, time))
        context = FunctionContext(timers, self.keyed.store, merging=True)
        self._evaluate = evaluator_of(spec.window_function, context, self.results)
        self._clear = clearer_of(spec.window_function, context)

    def apply(self, records: Iterator[Any], input_index: int) -> Iterator[Any]:
        """Add records to their sessions; yields results only of ended sessions that are kept for late records."""
        keyed, stamp, clock = self.keyed, self.stamp, self.timers.current_processing_time
        key_of, check, seen = self.key_selectors[0], self.check, self.check.seen
        table, event_time, gap_of, add = (
            keyed.table(SESSIONS),
            self._event_time,
            self._assigner.gap_of,
            self._contents.add,
        )
        watermark = self.timers.current_watermark() if event_time else MIN_TIMESTAMP
        for value in records:
            keyed.key = key = key_of(value)
            if key.__class__ not in seen:
                keyed.key = key = check(key)
            timestamp = stamp.value
            start = timestamp if event_time else clock()
            if start is None:
                raise no_timestamp(self._assigner)
            end = start + gap_of(value)
            sessions = table.get(key)
            if sessions is None:
                sessions = [NEVER]
            else:
                last = sessions[-1]
                if last[START] <= start <= last[END] and last[END] - 1 > watermark:
                    # The usual case, records in the order of time: the last session is extended in place.
                    last[HELD] = add(last[HELD], value, timestamp)
                    if end > last[END]:
                        last[END] = end
                    table[key] = sessions
                    continue
            session = self._sessions.add(sessions, start, end, watermark, value, timestamp)
            if session is None:
                yield from self.late(value)
                continue
            table[key] = sessions
            if session[END] - 1 <= watermark:
                yield from self._evaluated(key, session, goes_on=True)

    def _evaluated(self, key: Any, session: Any, *, goes_on: bool) -> Iterator[Any]:
        start, end, contents = session
        self.stamp.value = end - 1
        window = TimeWindow(start, end)
        yield from self._evaluate(key, window, self._contents.elements(contents, goes_on=goes_on))

    def _on_timer(self, timer: Timer) -> Iterator[Any]:
        key, time = timer.key, timer.timestamp
        table = self.keyed.table(SESSIONS)
        sessions = table.get(key)
        if sessions is None or sessions[0] != time:
            return  # the sessions have changed since the timer was set, and an earlier timer replaces it
        due = self._sessions.due(sessions, time)
        if due.fires is not None:
            yield from self._evaluated(key, due.fires, goes_on=due.ends is not due.fires)
        if due.ends is not None and self._clear is not None:
            self._clear(TimeWindow(due.ends[START], due.ends[END]))
        if self._sessions.done(sessions, due, time):
            table[key] = sessions
        else:
            table.pop(key, None)

    @override
    def on_event_time(self, timer: Timer) -> Iterator[Any]:
        return self._on_timer(timer)

    @override
    def on_processing_time(self, timer: Timer) -> Iterator[Any]:
        return self._on_timer(timer)
