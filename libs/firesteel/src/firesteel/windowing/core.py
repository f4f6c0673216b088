"""Windows of any kind: any assigner, trigger and evictor, merging or not. Flink's window operator as a pure core.

The core only decides: records, timers and times come from outside, and results go out as iterators that are pulled one
at a time. What the windows of a key hold, its *panes*, is a dictionary ``{window: contents}`` in the table of the host.

Where windows merge, Flink's ``WindowOperator`` leaves the contents under the first of the merged windows and keeps a
map (``MergingWindowSet``) from each window to that one. Here the contents move to the new window: they are one
reference, so that moving them costs nothing.
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
    """Holds the timestamp that the operator gives to the next results, epoch ms; None = they have none."""

    value: int | None


@dataclass
class WindowHost:
    """Services of the operator around a core.

    Attributes:
        timers: the timers of the operator.
        table: what the windows hold: key -> window -> contents.
        stores: gives the keyed state of a window, or, for None, the state that all windows of the key share.
        merge_namespaces: brings the keyed state of some windows into that of another one.
        stamp: takes the timestamp of each result.
        results: makes records of what a window function returned; coerces them.
        late: called with a record that came too late; the records that it gives are yielded.
        runtime_context: the context of the subtask, for triggers, evictors and assigners.
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
    """Collects the merges that an assigner decides on: each as (result, windows that become it)."""

    def __init__(self) -> None:
        self.decisions: list[tuple[Any, list[Any]]] = []

    @override
    def merge(self, to_be_merged: Iterable[Any], merge_result: Any) -> None:
        self.decisions.append((merge_result, list(dict.fromkeys(to_be_merged))))


class WindowCore:
    """The window operation of one subtask.

    Args:
        spec: what the program declared.
        host: the operator around the core. It has to make the key that it hands in the current key of the timers and
            stores first.
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
        """Put a record into its windows; returns the results of those that the record makes fire."""
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
                else:
                    # What happens most often: all windows are open, their timers are set and none has ended. The
                    # trigger ignores such records (is_quiet), so that nothing but the contents changes.
                    add = self._contents.add
                    for window in windows:
                        panes[window] = add(panes[window], own(value) if shared else value, timestamp)
                    self._table[key] = panes
                    return ()
        return self._add(key, value, timestamp, windows)

    def _has_ended(self, window: TimeWindow) -> bool:
        return self._event_time and window[1] - 1 <= self._timers.current_watermark()

    def _windows_at(self, timestamp: int | None) -> list[TimeWindow]:
        """The windows of a record where all windows are of one size.

        All timestamps of a pane (from one start or end of a window to the next) are in the same windows, so the list
        is made once for each pane and remembered.
        """
        fixed = self._fixed
        assert fixed is not None
        if not self._event_time:
            time = self._timers.current_processing_time()
        elif timestamp is None:
            raise no_timestamp(fixed)
        else:
            time = timestamp
        pane = (time - fixed.offset) // fixed.pane
        windows = self._known.get(pane)
        if windows is None:
            if len(self._known) >= _KNOWN_PANES:
                self._known.clear()
            windows = self._known[pane] = fixed.windows_at(time)
        return windows

    def _add(self, key: Any, value: Any, timestamp: int | None, windows: Iterable[Any]) -> Iterator[Any]:
        time = MIN_TIMESTAMP if timestamp is None else timestamp
        table, trigger, context, contents = self._table, self._trigger, self._trigger_context, self._contents
        watermark = self._timers.current_watermark()
        panes = table.get(key)
        if panes is None:
            panes = {}
        skipped = True
        for assigned in windows:
            # Merging comes before the check for lateness, as in Flink: a late record may belong to a window that is
            # still open.
            window = assigned if self._merger is None else self._merge(key, panes, assigned)
            if self._event_time and self._cleanup_time(window) <= watermark:
                if self._merger is not None:
                    self._close(key, panes, window)
                continue
            skipped = False
            content = panes.get(window, EMPTY)
            record = own(value) if self._shared else value
            if content is EMPTY:
                self._open(key, panes, window, contents.first(record, timestamp))
            else:
                panes[window] = contents.add(content, record, timestamp)
            table[key] = panes
            context.window = window
            result = trigger.on_element(value, time, window, context)
            if result is not TriggerResult.CONTINUE:
                yield from self._act(result, key, panes, window)
            if content is EMPTY or not self._keeps_timers:  # the trigger may have deleted the timer of an open window
                self._register_cleanup(window)
        self._keep(key, panes)
        if skipped and self._counts is not None:
            self._forget_count()
        if skipped and self._event_time and time + self._lateness <= watermark:
            self._stamp.value = timestamp
            yield from self._late(value)

    # --- timers ----------------------------------------------------------------------------------------------------

    def on_event_time(self, key: Any, window: Any, time: int) -> Iterator[Any]:
        """Called when an event-time timer of a window fires; yields the window's results."""
        yield from self._on_timer(key, window, time, event_time=True)

    def on_processing_time(self, key: Any, window: Any, time: int) -> Iterator[Any]:
        """Called when a processing-time timer of a window fires; yields the window's results."""
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

    def _open(self, key: Any, panes: dict[Any, Any], window: Any, content: Any) -> None:
        if self._order is not None and window not in panes:
            self._order.opened(key, window)
        panes[window] = content

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
        """Forget how many records the key had, when a count window is over.

        So a key whose windows are all over leaves nothing behind, as in Flink's Java API; its next windows are numbered
        from 0 again. A function that keeps state by window must not find the state of an earlier window under the same
        number, so once there is such state the numbers go on.
        """
        if self._counts is not None and not self._function_context.has_window_state:
            self._counts.forget(self._assigner_context)

    def _fire(self, key: Any, panes: dict[Any, Any], window: Any, *, goes_on: bool) -> Iterator[Any]:
        content = panes[window]
        self._stamp.value = window.max_timestamp()
        evictor = self._evictor
        if evictor is None:
            yield from self._evaluate(key, window, self._contents.elements(content, goes_on=goes_on))
            return
        evictor.evict_before(content, len(content), window, self._evictor_context)
        yield from self._evaluate(key, window, self._contents.elements(content, goes_on=goes_on))
        evictor.evict_after(content, len(content), window, self._evictor_context)
        if not content:
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

    def _merge(self, key: Any, panes: dict[Any, Any], assigned: Any) -> Any:
        """Merge the windows of the key that a new one brings together; returns the window that it is part of then."""
        assert self._merger is not None
        if not panes:
            return assigned
        if self._order is not None:
            # The same result as TimeWindow.merge_windows gives, without a look at all windows of the key.
            neighbours = self._order.touched(key, panes, assigned)
            into = assigned
            for window in neighbours:
                into = into.cover(window)
            if neighbours and (len(neighbours) > 1 or into != neighbours[0]):
                self._check_end(into)
                self._bring_together(key, panes, neighbours, into)
            return into
        merges = _Merges()
        self._merger.merge_windows([*panes, assigned], merges)
        into = assigned
        for result, merged in merges.decisions:
            if assigned in merged:
                into = result
            open_windows = [window for window in merged if window in panes]
            if open_windows and open_windows != [result]:
                self._check_end(result)
                self._bring_together(key, panes, open_windows, result)
        return into

    def _bring_together(self, key: Any, panes: dict[Any, Any], merged_windows: list[Any], result: Any) -> None:
        content = EMPTY
        for window in merged_windows:
            other_content = self._close(key, panes, window)
            if content is EMPTY:
                content = other_content
            elif other_content is not EMPTY:
                content = self._contents.merge(content, other_content)
        self._open(key, panes, result, content)
        context = self._trigger_context
        context.window, context.merged = result, merged_windows
        self._trigger.on_merge(result, context)
        # After on_merge, which still reads the trigger's state of the old windows.
        for window in merged_windows:
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
