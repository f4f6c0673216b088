"""Operators of windows; the decisions are made by the cores in ``firesteel.windowing``, which know no operators."""

from __future__ import annotations

from abc import abstractmethod
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, repeat
from operator import le
from types import GeneratorType
from typing import Any, ClassVar, Final

from typing_extensions import override

from firesteel.common.own_copies import own_copies, own_copy
from firesteel.core.errors import ProgramError
from firesteel.functions.functions import Function, ReduceFunction
from firesteel.graph.specs import OperatorSpec
from firesteel.runtime.operator_base.base import is_iterable, method_of, not_iterable
from firesteel.runtime.operator_base.context import OperatorContext, TaskRuntimeContext
from firesteel.runtime.operator_base.timed import TIMER_DONE, TimedTransform
from firesteel.runtime.operators.late_records import LateRecords
from firesteel.state.backend import Timer
from firesteel.windowing.aligned import AlignedWindows, PaneTables, Tables
from firesteel.windowing.assigners import no_timestamp
from firesteel.windowing.contents import contents_of
from firesteel.windowing.contexts import FunctionContext
from firesteel.windowing.core import WindowCore, WindowHost
from firesteel.windowing.evaluation import clearer_of, evaluator_of
from firesteel.windowing.spec import WindowGathering, WindowSpec
from firesteel.windowing.windows import TimeWindow

CONTENTS: Final = "window-contents"
_ITERABLE: Final = frozenset({list, tuple, GeneratorType})
"""Types that window functions mostly return, for a quick check."""
_MANY: Final = 64
"""Records from which on it pays to check whether they are in the order of time."""
_MISSING: Final = object()
_NO_PANE: Final = PaneTables(0, 0, (), (), ())


class WindowTransform(TimedTransform):
    """The base of window operators: functions, late records and side outputs.

    Attributes:
        windows: assigner, trigger, evictor and functions, as the program declares them.
        late_records: counts the records that came too late and were dropped.
    """

    may_tag: ClassVar[bool] = True

    def __init__(self, spec: OperatorSpec) -> None:
        super().__init__(spec)
        self.windows: WindowSpec = spec.function
        self.tagged = False  # turns True with the first side output
        functions = self.windows.gather_function, self.windows.window_function
        self._helpers.extend(function for function in functions if isinstance(function, Function))

    @property
    def blocking(self) -> bool:
        """Whether one of the functions may wait for long."""
        functions = self.windows.gather_function, self.windows.window_function
        return any(bool(getattr(function, "blocking", False)) for function in functions)

    def open(self, context: OperatorContext) -> None:
        """Open the functions, then create the core, which needs timers and state."""
        super().open(context)
        if self.windows.late_tag is not None:
            self.enable_tags()
        runtime_context = self.runtime_context(context)
        self.late_records = LateRecords(self.name, context, runtime_context)
        self.make(runtime_context)

    @abstractmethod
    def make(self, runtime_context: TaskRuntimeContext) -> None:
        """Create the core that assigns records to windows and evaluates these."""

    def results(self, method: str, returned: Any) -> Iterable[Any]:
        """Fit what a window function returned to the declared type; raises ``ProgramError`` if it is no iterable."""
        if self.coerce is None and returned.__class__ in _ITERABLE:
            return returned  # the stage looks for pairs of tag and value, so they need no check here
        return self._fitted(method, returned)

    def _fitted(self, method: str, returned: Any) -> Iterator[Any]:
        if returned is None:
            return
        if not is_iterable(returned):
            raise not_iterable(method, returned)
        for result in returned:
            coerce = self.coerce  # read for each result, as the first side output replaces it
            if coerce is None:
                yield result
            else:
                yield coerce(result) if result is not None else self.pass_null()

    def late(self, value: Any) -> Iterable[Any]:
        """Send a record that came too late to the side output, or count and drop it if there is none."""
        tag = self.windows.late_tag
        if tag is not None:
            return (self.side_record((tag, value)),)
        timestamp = self.stamp.value
        assert timestamp is not None
        self.late_records.drop(timestamp, self.timers.current_watermark())
        return ()


class WindowOperator(WindowTransform):
    """Windows of any kind, with any trigger and evictor: those that the two faster operators do not cover."""

    def make(self, runtime_context: TaskRuntimeContext) -> None:
        host = WindowHost(
            timers=self.timers,
            table=self.keyed.table(CONTENTS),
            stores=self.keyed.store,
            merge_namespaces=self.keyed.merge_namespaces,
            stamp=self.stamp,
            results=self.results,
            late=self.late,
            runtime_context=runtime_context,
        )
        self._core = WindowCore(self.windows, host)

    def apply(self, records: Iterator[Any], input_index: int) -> Iterator[Any]:
        """Add records to their windows; yields results of windows that a record makes fire."""
        keyed, stamp, add = self.keyed, self.stamp, self._core.add
        key_of, check, seen = self.key_selectors[0], self.check, self.check.seen
        for value in records:
            timestamp = stamp.value
            keyed.key = key = key_of(value)
            if key.__class__ not in seen:
                keyed.key = key = check(key)
            results = add(key, value, timestamp)
            if results:
                yield from results

    @override
    def on_event_time(self, timer: Timer) -> Iterator[Any]:
        return self._core.on_event_time(timer.key, timer.namespace, timer.timestamp)

    @override
    def on_processing_time(self, timer: Timer) -> Iterator[Any]:
        return self._core.on_processing_time(timer.key, timer.namespace, timer.timestamp)


class AlignedWindowOperator(WindowTransform):
    """Tumbling and sliding event-time windows that fire at their end, without custom trigger or evictor.

    Windows of all keys begin and end together, so the operator needs no timers: it keeps one table of contents by key
    for each window, and a watermark evaluates and drops whole tables. The time axis is cut into panes, stretches
    between two starts or ends of windows, within which all records belong to the same windows. So a slice of records is
    divided by panes, and each pane is added to its tables in one tight loop.
    """

    takes_slices = True

    def make(self, runtime_context: TaskRuntimeContext) -> None:
        spec, keyed = self.windows, self.keyed
        tables = Tables(keyed.table, keyed.drop_table, keyed.table_names)
        self._aligned = AlignedWindows(spec.assigner, spec.allowed_lateness, tables)  # type: ignore[arg-type]
        self._contents = contents_of(spec)
        function = spec.gather_function
        self._function: Any = None
        self._create: Any = None
        if spec.gathering is WindowGathering.REDUCE:
            self._add_to, self._function = self._reduce, method_of(function, ReduceFunction, "reduce")
        elif spec.gathering is WindowGathering.AGGREGATE:
            self._add_to, self._function, self._create = self._aggregate, function.add, function.create_accumulator
        else:
            self._add_to = self._collect
        context = FunctionContext(self.timers, keyed.store, merging=False)
        self._evaluate = evaluator_of(spec.window_function, context, self.results)
        self._clear = clearer_of(spec.window_function, context)

    @override
    def apply(self, records: Iterator[Any], input_index: int) -> Iterator[Any]:
        stamp, values, stamps = self.stamp, [], []
        for value in records:
            values.append(value)
            stamps.append(stamp.value)
        yield from self.apply_slice(values, stamps, input_index)

    def apply_slice(self, values: Sequence[Any], stamps: Sequence[Any] | None, input_index: int) -> Iterator[Any]:
        """Add records to their windows; yields results only of ended windows that are kept for late records."""
        keys = self.keys_of(values, input_index)
        if stamps and None not in stamps:
            # The usual case in live streams: all records of the slice lie in one pane, none of whose windows has ended.
            pane = self._aligned.pane(min(stamps))
            if max(stamps) < pane.high and pane.tables and not pane.ended:
                self._gather(pane, keys, values)
                return
            # The usual case of bounded input: records are in the order of time, so panes are contiguous.
            if len(stamps) >= _MANY and all(map(le, stamps, islice(stamps, 1, None))):
                yield from self._in_runs(keys, values, stamps)
                return
        yield from self._divide(keys, values, stamps or repeat(None, len(values)))

    def _in_runs(self, keys: Sequence[Any], values: Sequence[Any], stamps: Sequence[Any]) -> Iterator[Any]:
        """Add records that are in the order of time, pane by pane."""
        start, count = 0, len(values)
        while start < count:
            pane = self._aligned.pane(stamps[start])
            end = bisect_left(stamps, pane.high, start)
            if pane.tables and not pane.ended:
                self._gather(pane, keys[start:end], values[start:end])
            else:
                yield from self._divide(keys[start:end], values[start:end], stamps[start:end])
            start = end

    def _divide(self, keys: Sequence[Any], values: Sequence[Any], stamps: Iterable[Any]) -> Iterator[Any]:
        """Add records of several panes in any order; the records of one window are added in the order of the input."""
        keyed, stamp, slides = self.keyed, self.stamp, not self.windows.one_window
        pane, pane_keys, pane_values = _NO_PANE, list[Any](), list[Any]()
        parts: dict[int, tuple[PaneTables, list[Any], list[Any]]] = {}
        for key, value, timestamp in zip(keys, values, stamps, strict=True):
            if timestamp is None or not pane.low <= timestamp < pane.high:
                pane = self._pane(timestamp)
                if slides:
                    # Panes of sliding windows share windows: adding a later pane first would change their order.
                    self._gather_all(parts)
                _, pane_keys, pane_values = parts.setdefault(pane.low, (pane, [], []))
            if pane.tables and not pane.ended:
                pane_keys.append(key)
                pane_values.append(value)
            else:
                keyed.key, stamp.value = key, timestamp
                yield from self._add_late(key, value, timestamp, pane)
        self._gather_all(parts)

    def _gather_all(self, parts: dict[int, tuple[PaneTables, list[Any], list[Any]]]) -> None:
        for pane, keys, values in parts.values():
            if values:
                self._gather(pane, keys, values)
        parts.clear()

    def _gather(self, pane: PaneTables, keys: Sequence[Any], values: Sequence[Any]) -> None:
        """Add records of one pane, none of whose windows has ended, to all of its windows."""
        last = pane.tables[-1]
        for table in pane.tables:
            # If contents may change a record in place, each window but the last needs copies of its own.
            shared = table is last or not self._contents.changes
            self._add_to(table, keys, values if shared else own_copies(list(values)))

    # Three loops that differ in one line. They are not one, because jobs with windows spend most of their time here.

    def _reduce(self, table: Any, keys: Sequence[Any], values: Sequence[Any]) -> None:
        keyed, get, reduce = self.keyed, table.get, self._function
        for key, value in zip(keys, values, strict=True):
            keyed.key = key
            former = get(key, _MISSING)
            table[key] = value if former is _MISSING else reduce(former, value)

    def _aggregate(self, table: Any, keys: Sequence[Any], values: Sequence[Any]) -> None:
        keyed, get, add, create = self.keyed, table.get, self._function, self._create
        for key, value in zip(keys, values, strict=True):
            keyed.key = key
            former = get(key, _MISSING)
            table[key] = add(value, create() if former is _MISSING else former)

    def _collect(self, table: Any, keys: Sequence[Any], values: Sequence[Any]) -> None:
        keyed, get = self.keyed, table.get
        for key, value in zip(keys, values, strict=True):
            keyed.key = key
            former = get(key)
            if former is None:
                table[key] = [value]
            else:
                former.append(value)
                table[key] = former

    def _pane(self, timestamp: int | None) -> PaneTables:
        if timestamp is None:
            raise no_timestamp(self.windows.assigner)
        return self._aligned.pane(timestamp)

    def _add_late(self, key: Any, value: Any, timestamp: Any, pane: PaneTables) -> Iterator[Any]:
        """Handle a record some or all of whose windows have ended; rare, so it may be slow.

        Windows that are kept for late records (allowed lateness) are evaluated again with it.
        """
        if not pane.tables:
            if self._aligned.is_late(timestamp):
                yield from self.late(value)
            return
        contents, size, stamp = self._contents, self._aligned.size, self.stamp
        for start, table in zip(pane.starts, pane.tables, strict=True):
            former, record = table.get(key, _MISSING), own_copy(value) if contents.changes else value
            table[key] = content = (
                contents.first(record, timestamp) if former is _MISSING else contents.add(former, record, timestamp)
            )
            if start in pane.ended:
                stamp.value = start + size - 1
                elements = contents.elements(content, goes_on=True)
                yield from self._evaluate(key, TimeWindow(start, start + size), elements)

    def advance_watermark(self, watermark: int) -> Iterator[Any]:
        """Take a new watermark (epoch ms); yields results of the windows that it ends, window by window."""
        self.heap_timers.watermark = watermark
        keyed, stamp, clear, size = self.keyed, self.stamp, self._clear, self._aligned.size
        evaluate, elements = self._evaluate, self._contents.elements
        for due in self._aligned.advance(watermark):
            window, table, table_for_late = TimeWindow(due.start, due.start + size), due.table, due.table_for_late
            last, fires, ends = window.max_timestamp(), due.fires, due.ends
            for key in list(table):
                keyed.key = key
                if fires:
                    stamp.value = last
                    yield from evaluate(key, window, elements(table[key], goes_on=not ends))
                if ends:
                    if clear is not None:
                        clear(window)
                    del table[key]
                elif table_for_late is not None:
                    table_for_late[key] = table.pop(key)
                yield TIMER_DONE

    @override
    def on_event_time(self, timer: Timer) -> Iterator[Any]:
        raise ProgramError(f"operator {self.name!r} has no timers")

    @override
    def on_processing_time(self, timer: Timer) -> Iterator[Any]:
        raise ProgramError(f"operator {self.name!r} has no timers")
