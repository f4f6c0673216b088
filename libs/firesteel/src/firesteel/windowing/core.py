"""Windows of any kind: any assigner, trigger and evictor, merging or not. Flink's window operator as a pure core.

It decides; records, timers and times come from outside, and results go out as iterators that are pulled one at a time.
What a key's windows hold is ``{window: contents}`` in the table that the host gave.

Where windows merge, Flink keeps the contents under the first of the merged windows and a map from window to that one.
Here contents are moved: they are one reference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, MutableMapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from typing_extensions import override

from firesteel.common.own_copies import own_copy as own
from firesteel.core.errors import ProgramError
from firesteel.functions.functions import RuntimeContext
from firesteel.windowing.assigners import CountWindows, FixedTimeWindows, MergingWindowAssigner, no_timestamp
from firesteel.windowing.builtin_triggers import is_quiet, keeps_cleanup_timers
from firesteel.windowing.contents import EMPTY, contents_of
from firesteel.windowing.contexts import (
    AssignerContext,
    EvictorContext,
    FunctionContext,
    MergeNamespaces,
    Stores,
    Timers,
    TriggerContext,
)
from firesteel.windowing.evaluation import Results, clearer_of, evaluator_of
from firesteel.windowing.session_assigners import TimeSessions
from firesteel.windowing.session_order import SessionOrder
from firesteel.windowing.spec import WindowSpec
from firesteel.windowing.triggers import TriggerResult
from firesteel.windowing.windows import MAX_TIMESTAMP, MIN_TIMESTAMP, TimeWindow

__all__ = ["WindowCore", "WindowHost"]

_KNOWN_PANES: Final = 1024


class ResultStamp(Protocol):
    """Carries the timestamp of the next result."""

    value: int | None


@dataclass
class WindowHost:
    """What the core stands on.

    Attributes:
        timers: of the operator.
        table: what the windows hold: key -> window -> contents.
        stores: keyed state by window, or by None.
        merge_namespaces: brings the keyed state of some windows into that of another one.
        stamp: takes the timestamp of each result.
        results: makes records of what a window function returned; coerces them.
        late: called with a record that came too late; what it gives is yielded.
        runtime_context: of the subtask.
    """

    timers: Timers
    table: MutableMapping[Any, dict[Any, Any]]
    stores: Stores
    merge_namespaces: MergeNamespaces
    stamp: ResultStamp
    results: Results
    late: Callable[[Any], Iterable[Any]]
    runtime_context: RuntimeContext


class _Merges(MergingWindowAssigner.MergeCallback[Any]):
    """Collects what an assigner says about merging."""

    def __init__(self) -> None:
        self.found: list[tuple[Any, list[Any]]] = []

    @override
    def merge(self, to_be_merged: Iterable[Any], merge_result: Any) -> None:
        self.found.append((merge_result, list(dict.fromkeys(to_be_merged))))


class WindowCore:
    """The window operation of one subtask.

    Args:
        spec: what the program said.
        host: what it stands on. The current key of its timers and stores is the key that is handed in.
    """

    def __init__(self, spec: WindowSpec, host: WindowHost) -> None:
        self._assigner, self._trigger, self._evictor = spec.assigner, spec.trigger, spec.evictor
        self._event_time = spec.assigner.is_event_time()
        self._merger = spec.assigner if isinstance(spec.assigner, MergingWindowAssigner) else None
        sessions = isinstance(spec.assigner, TimeSessions) and (
            type(spec.assigner).merge_windows is TimeSessions.merge_windows
        )
        self._order = SessionOrder() if sessions else None
        counts = spec.assigner if isinstance(spec.assigner, CountWindows) and spec.assigner.period else None
        self._counts = counts if counts is not None and counts.is_default(spec.trigger) else None
        self._fixed = spec.assigner if isinstance(spec.assigner, FixedTimeWindows) and spec.fixed else None
        self._known: dict[int, list[TimeWindow]] = {}
        self._keeps_timers = keeps_cleanup_timers(spec.trigger)
        self._quiet = is_quiet(spec.trigger, event_time=self._event_time)
        self._lateness = spec.allowed_lateness
        self._timers, self._table, self._stamp, self._late = host.timers, host.table, host.stamp, host.late
        self._contents = contents_of(spec)
        self._shared = self._contents.changes and not spec.one_window
        self._function_context = FunctionContext(host.timers, host.stores, self._merger is not None)
        self._evaluate = evaluator_of(spec.window_function, self._function_context, host.results)
        self._clear_function = clearer_of(spec.window_function, self._function_context)
        self._trigger_context = TriggerContext(host.timers, host.stores, host.merge_namespaces, host.runtime_context)
        self._assigner_context = AssignerContext(host.timers, host.runtime_context)
        self._evictor_context = EvictorContext(host.timers, host.runtime_context)

    # --- records ---------------------------------------------------------------------------------------------------

    def add(self, key: Any, value: Any, timestamp: int | None) -> Iterable[Any]:
        """Put a record into its windows; the results of those that fire by it."""
        windows: Iterable[Any]
        if self._fixed is None:
            time = MIN_TIMESTAMP if timestamp is None else timestamp
            windows = self._assigner.assign_windows(value, time, self._assigner_context)
        else:
            windows = self._windows_at(timestamp)
            shared = self._shared and len(windows) > 1
            panes = self._table.get(key) if self._quiet else None
            if panes is not None and windows and not self._has_ended(windows[-1]):
                for window in windows:
                    if panes.get(window, EMPTY) is EMPTY:
                        break
                else:  # what happens most often: all windows are open, their timers are set, and none has ended
                    add = self._contents.add
                    for window in windows:
                        panes[window] = add(panes[window], own(value) if shared else value, timestamp)
                    self._table[key] = panes
                    return ()
        return self._add(key, value, timestamp, windows)

    def _has_ended(self, window: TimeWindow) -> bool:
        return self._event_time and window[1] - 1 <= self._timers.current_watermark()

    def _windows_at(self, timestamp: int | None) -> list[TimeWindow]:
        """The windows of a record where they are of one size; the same objects again for the same time."""
        fixed = self._fixed
        assert fixed is not None
        if not self._event_time:
            time = self._timers.current_processing_time()
        elif timestamp is None:
            raise no_timestamp(fixed)
        else:
            time = timestamp
        pane = (time - fixed.offset) // fixed.pane
        found = self._known.get(pane)
        if found is None:
            if len(self._known) >= _KNOWN_PANES:
                self._known.clear()
            found = self._known[pane] = fixed.windows_at(time)
        return found

    def _add(self, key: Any, value: Any, timestamp: int | None, windows: Iterable[Any]) -> Iterator[Any]:
        time = MIN_TIMESTAMP if timestamp is None else timestamp
        table, trigger, context, contents = self._table, self._trigger, self._trigger_context, self._contents
        watermark = self._timers.current_watermark()
        panes = table.get(key)
        if panes is None:
            panes = {}
        skipped = True
        for assigned in windows:
            window = assigned if self._merger is None else self._merge(key, panes, assigned)
            if self._event_time and self._cleanup_time(window) <= watermark:
                if self._merger is not None:
                    self._close(key, panes, window)
                continue
            skipped = False
            held = panes.get(window, EMPTY)
            mine = own(value) if self._shared else value
            if held is EMPTY:
                self._open(key, panes, window, contents.first(mine, timestamp))
            else:
                panes[window] = contents.add(held, mine, timestamp)
            table[key] = panes
            context.window = window
            result = trigger.on_element(value, time, window, context)
            if result is not TriggerResult.CONTINUE:
                yield from self._act(result, key, panes, window)
            if held is EMPTY or not self._keeps_timers:
                self._register_cleanup(window)
        self._keep(key, panes)
        if skipped and self._counts is not None:
            self._forget_count()
        if skipped and self._event_time and time + self._lateness <= watermark:
            self._stamp.value = timestamp
            yield from self._late(value)

    # --- timers ----------------------------------------------------------------------------------------------------

    def on_event_time(self, key: Any, window: Any, time: int) -> Iterator[Any]:
        """An event-time timer of a window fired."""
        yield from self._on_timer(key, window, time, event_time=True)

    def on_processing_time(self, key: Any, window: Any, time: int) -> Iterator[Any]:
        """A processing-time timer of a window fired."""
        yield from self._on_timer(key, window, time, event_time=False)

    def _on_timer(self, key: Any, window: Any, time: int, *, event_time: bool) -> Iterator[Any]:
        panes = self._table.get(key)
        if panes is None:
            panes = {}
        if self._merger is not None and window not in panes:
            return  # it was merged into another one, or thrown away, and its trigger left a timer behind
        context = self._trigger_context
        context.window = window
        call = self._trigger.on_event_time if event_time else self._trigger.on_processing_time
        result = call(time, window, context)
        ends = event_time is self._event_time and time == self._cleanup_time(window)
        if result is not TriggerResult.CONTINUE:
            yield from self._act(result, key, panes, window, ends=ends)
        if ends:
            self._throw_away(key, panes, window)
        self._keep(key, panes)

    def _keep(self, key: Any, panes: dict[Any, Any]) -> None:
        if panes:
            self._table[key] = panes
        else:
            self._table.pop(key, None)

    def _open(self, key: Any, panes: dict[Any, Any], window: Any, held: Any) -> None:
        if self._order is not None and window not in panes:
            self._order.opened(key, window)
        panes[window] = held

    def _close(self, key: Any, panes: dict[Any, Any], window: Any) -> Any:
        if window not in panes:
            return EMPTY
        if self._order is not None:
            self._order.closed(key, window)
        return panes.pop(window)

    # --- windows ---------------------------------------------------------------------------------------------------

    def _act(
        self, result: TriggerResult, key: Any, panes: dict[Any, Any], window: Any, *, ends: bool = False
    ) -> Iterator[Any]:
        fires, purges = _meaning(self._trigger, result)
        if fires and panes.get(window, EMPTY) is not EMPTY:
            yield from self._fire(key, panes, window, goes_on=not (ends or purges))
        if purges:
            self._empty(panes, window)
            if self._counts is not None:
                self._forget_count()
        self._trigger_context.window = window

    def _forget_count(self) -> None:
        """A count window is over: keys whose windows all are leave nothing behind, as in Flink's Java API.

        Windows of a key are numbered from 0 again then. Functions that keep state by window must not find that of an
        earlier one, so the numbers go on once there is such state.
        """
        if self._counts is not None and not self._function_context.has_window_state:
            self._counts.forget(self._assigner_context)

    def _fire(self, key: Any, panes: dict[Any, Any], window: Any, *, goes_on: bool) -> Iterator[Any]:
        held = panes[window]
        self._stamp.value = window.max_timestamp()
        evictor = self._evictor
        if evictor is None:
            yield from self._evaluate(key, window, self._contents.elements(held, goes_on=goes_on))
            return
        evictor.evict_before(held, len(held), window, self._evictor_context)
        yield from self._evaluate(key, window, self._contents.elements(held, goes_on=goes_on))
        evictor.evict_after(held, len(held), window, self._evictor_context)
        if not held:
            self._empty(panes, window)

    def _empty(self, panes: dict[Any, Any], window: Any) -> None:
        if self._merger is None:
            panes.pop(window, None)
        elif window in panes:
            panes[window] = EMPTY

    def _throw_away(self, key: Any, panes: dict[Any, Any], window: Any) -> None:
        self._close(key, panes, window)
        self._trigger_context.window = window
        self._trigger.clear(window, self._trigger_context)
        if self._clear_function is not None:
            self._clear_function(window)

    def _cleanup_time(self, window: Any) -> int:
        last: int = window.max_timestamp()
        return min(last + self._lateness, MAX_TIMESTAMP) if self._event_time else last

    def _register_cleanup(self, window: Any) -> None:
        time = self._cleanup_time(window)
        if time == MAX_TIMESTAMP:
            return
        if self._event_time:
            self._timers.register_event_time_timer(window, time)
        else:
            self._timers.register_processing_time_timer(window, time)

    def _delete_cleanup(self, window: Any) -> None:
        time = self._cleanup_time(window)
        if self._event_time:
            self._timers.delete_event_time_timer(window, time)
        else:
            self._timers.delete_processing_time_timer(window, time)

    # --- merging ---------------------------------------------------------------------------------------------------

    def _merge(self, key: Any, panes: dict[Any, Any], new: Any) -> Any:
        """The window that a new one has become part of; merges those of the key that it brings together."""
        assert self._merger is not None
        if not panes:
            return new
        if self._order is not None:  # what TimeWindow.merge_windows would say, without looking at all old windows
            touched = self._order.touched(key, panes, new)
            into = new
            for window in touched:
                into = into.cover(window)
            if touched and (len(touched) > 1 or into != touched[0]):
                self._check_end(into)
                self._bring_together(key, panes, touched, into)
            return into
        merges = _Merges()
        self._merger.merge_windows([*panes, new], merges)
        into = new
        for result, merged in merges.found:
            if new in merged:
                into = result
            before = [window for window in merged if window in panes]
            if before and before != [result]:
                self._check_end(result)
                self._bring_together(key, panes, before, result)
        return into

    def _bring_together(self, key: Any, panes: dict[Any, Any], before: list[Any], result: Any) -> None:
        held = EMPTY
        for window in before:
            other = self._close(key, panes, window)
            if held is EMPTY:
                held = other
            elif other is not EMPTY:
                held = self._contents.merge(held, other)
        self._open(key, panes, result, held)
        context = self._trigger_context
        context.window, context.merged = result, before
        self._trigger.on_merge(result, context)
        for window in before:
            if window != result:
                context.window = window
                self._trigger.clear(window, context)
                self._delete_cleanup(window)
        context.merged = ()
        self._register_cleanup(result)

    def _check_end(self, window: Any) -> None:
        now = self._timers.current_watermark() if self._event_time else self._timers.current_processing_time()
        if self._cleanup_time(window) <= now:
            clock = "watermark" if self._event_time else "processing time"
            raise ProgramError(
                f"{self._assigner!r} merged windows into {window!r}, whose end is not behind the current {clock} "
                f"{now}: windows may grow by merging, but not end earlier"
            )


def _meaning(trigger: Any, result: Any) -> tuple[bool, bool]:
    if isinstance(result, TriggerResult):
        return result.value
    raise ProgramError(
        f"{type(trigger).__name__} returned {result!r}; on_element(), on_event_time() and on_processing_time() have to "
        "return a TriggerResult"
    )
