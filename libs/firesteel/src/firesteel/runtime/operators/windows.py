"""Operators of windows: thin shells around the cores of ``firesteel.windowing``."""

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
"""What window functions return, mostly."""
_MANY: Final = 64
"""Records; of fewer, the look whether they are in order costs too much."""
_MISSING: Final = object()
_NO_PANE: Final = PaneTables(0, 0, (), (), ())


class WindowTransform(TimedTransform):
    """What operators of windows have in common.

    Attributes:
        windows: what the program said.
        late_records: that came and went nowhere.
    """

    may_tag: ClassVar[bool] = True

    def __init__(self, spec: OperatorSpec) -> None:
        super().__init__(spec)
        self.windows: WindowSpec = spec.function
        self.tagged = False  # until there are tags
        functions = self.windows.gather_function, self.windows.window_function
        self._helpers.extend(function for function in functions if isinstance(function, Function))

    @property
    def blocking(self) -> bool:
        """One of the functions may wait for long."""
        functions = self.windows.gather_function, self.windows.window_function
        return any(bool(getattr(function, "blocking", False)) for function in functions)

    def open(self, context: OperatorContext) -> None:
        """Open the functions, then make what stands on timers and state."""
        super().open(context)
        if self.windows.late_tag is not None:
            self.enable_tags()
        runtime_context = self.runtime_context(context)
        self.late_records = LateRecords(self.name, context, runtime_context)
        self.make(runtime_context)

    @abstractmethod
    def make(self, runtime_context: TaskRuntimeContext) -> None: ...

    def results(self, method: str, returned: Any) -> Iterable[Any]:
        """What a window function returned, fitted to the declared type."""
        if self.coerce is None and returned.__class__ in _ITERABLE:
            return returned  # pairs of tag and value are found later, too
        return self._fitted(method, returned)

    def _fitted(self, method: str, returned: Any) -> Iterator[Any]:
        if returned is None:
            return
        if not is_iterable(returned):
            raise not_iterable(method, returned)
        for result in returned:
            coerce = self.coerce  # another one as soon as there are side outputs
            if coerce is None:
                yield result
            else:
                yield coerce(result) if result is not None else self.pass_null()

    def late(self, value: Any) -> Iterable[Any]:
        """What becomes of a record that came too late."""
        tag = self.windows.late_tag
        if tag is not None:
            return (self.side_record((tag, value)),)
        timestamp = self.stamp.value
        assert timestamp is not None
        self.late_records.drop(timestamp, self.timers.current_watermark())
        return ()


class WindowOperator(WindowTransform):
    """Windows of any kind."""

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
        """Results of windows that fire by a record."""
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

    def on_event_time(self, timer: Timer) -> Iterator[Any]:
        """Results of windows whose event-time timer fired."""
        return self._core.on_event_time(timer.key, timer.namespace, timer.timestamp)

    def on_processing_time(self, timer: Timer) -> Iterator[Any]:
        """Results of windows whose processing-time timer fired."""
        return self._core.on_processing_time(timer.key, timer.namespace, timer.timestamp)


class AlignedWindowOperator(WindowTransform):
    """Tumbling and sliding event-time windows that fire at their end. It sets no timers."""

    takes_slices = True

    def make(self, runtime_context: TaskRuntimeContext) -> None:
        """The core of such windows."""
        spec, keyed = self.windows, self.keyed
        tables = Tables(keyed.table, keyed.drop_table, keyed.table_names)
        self._aligned = AlignedWindows(spec.assigner, spec.allowed_lateness, tables)  # type: ignore[arg-type]
        self._contents = contents_of(spec)
        function = spec.gather_function
        self._function: Any = None
        self._create: Any = None
        if spec.gathering is WindowGathering.REDUCE:
            self._into, self._function = self._reduce, method_of(function, ReduceFunction, "reduce")
        elif spec.gathering is WindowGathering.AGGREGATE:
            self._into, self._function, self._create = self._aggregate, function.add, function.create_accumulator
        else:
            self._into = self._collect
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
        """Gathers the records; results only of windows that have ended and are kept for late records."""
        keys = self.keys_of(values, input_index)
        if stamps and None not in stamps:
            pane = self._aligned.pane(min(stamps))
            if max(stamps) < pane.high and pane.tables and not pane.past:
                self._gather(pane, keys, values)
                return
            if len(stamps) >= _MANY and all(map(le, stamps, islice(stamps, 1, None))):
                yield from self._in_runs(keys, values, stamps)
                return
        yield from self._divide(keys, values, stamps or repeat(None, len(values)))

    def _in_runs(self, keys: Sequence[Any], values: Sequence[Any], stamps: Sequence[Any]) -> Iterator[Any]:
        """The same for records in the order of time, as they are where input is bounded: pane by pane."""
        start, count = 0, len(values)
        while start < count:
            pane = self._aligned.pane(stamps[start])
            end = bisect_left(stamps, pane.high, start)
            if pane.tables and not pane.past:
                self._gather(pane, keys[start:end], values[start:end])
            else:
                yield from self._divide(keys[start:end], values[start:end], stamps[start:end])
            start = end

    def _divide(self, keys: Sequence[Any], values: Sequence[Any], stamps: Iterable[Any]) -> Iterator[Any]:
        """The same for records of several panes. Those of a window are gathered in the order in which they came."""
        keyed, stamp, slides = self.keyed, self.stamp, not self.windows.one_window
        pane, its_keys, its_values = _NO_PANE, list[Any](), list[Any]()
        parts: dict[int, tuple[PaneTables, list[Any], list[Any]]] = {}
        for key, value, timestamp in zip(keys, values, stamps, strict=True):
            if timestamp is None or not pane.low <= timestamp < pane.high:
                pane = self._pane(timestamp)
                if slides:  # panes share windows
                    self._gather_all(parts)
                _, its_keys, its_values = parts.setdefault(pane.low, (pane, [], []))
            if pane.tables and not pane.past:
                its_keys.append(key)
                its_values.append(value)
            else:
                keyed.key, stamp.value = key, timestamp
                yield from self._rarely(key, value, timestamp, pane)
        self._gather_all(parts)

    def _gather_all(self, parts: dict[int, tuple[PaneTables, list[Any], list[Any]]]) -> None:
        for pane, keys, values in parts.values():
            if values:
                self._gather(pane, keys, values)
        parts.clear()

    def _gather(self, pane: PaneTables, keys: Sequence[Any], values: Sequence[Any]) -> None:
        """Records of one pane, whose windows have not ended."""
        last = pane.tables[-1]
        for table in pane.tables:
            self._into(table, keys, values if table is last or not self._contents.changes else own_copies(list(values)))

    # Three loops that differ in a line: this is where such jobs spend their time.

    def _reduce(self, table: Any, keys: Sequence[Any], values: Sequence[Any]) -> None:
        keyed, get, reduce = self.keyed, table.get, self._function
        for key, value in zip(keys, values, strict=True):
            keyed.key = key
            before = get(key, _MISSING)
            table[key] = value if before is _MISSING else reduce(before, value)

    def _aggregate(self, table: Any, keys: Sequence[Any], values: Sequence[Any]) -> None:
        keyed, get, add, create = self.keyed, table.get, self._function, self._create
        for key, value in zip(keys, values, strict=True):
            keyed.key = key
            before = get(key, _MISSING)
            table[key] = add(value, create() if before is _MISSING else before)

    def _collect(self, table: Any, keys: Sequence[Any], values: Sequence[Any]) -> None:
        keyed, get = self.keyed, table.get
        for key, value in zip(keys, values, strict=True):
            keyed.key = key
            before = get(key)
            if before is None:
                table[key] = [value]
            else:
                before.append(value)
                table[key] = before

    def _pane(self, timestamp: int | None) -> PaneTables:
        if timestamp is None:
            raise no_timestamp(self.windows.assigner)
        return self._aligned.pane(timestamp)

    def _rarely(self, key: Any, value: Any, timestamp: Any, pane: PaneTables) -> Iterator[Any]:
        """A record that is late, or of which a window has ended."""
        if not pane.tables:
            if self._aligned.is_late(timestamp):
                yield from self.late(value)
            return
        contents, size, stamp = self._contents, self._aligned.size, self.stamp
        for start, table in zip(pane.starts, pane.tables, strict=True):
            before, mine = table.get(key, _MISSING), own_copy(value) if contents.changes else value
            table[key] = held = (
                contents.first(mine, timestamp) if before is _MISSING else contents.add(before, mine, timestamp)
            )
            if start in pane.past:
                stamp.value = start + size - 1
                yield from self._evaluate(key, TimeWindow(start, start + size), contents.elements(held, goes_on=True))

    def advance_watermark(self, watermark: int) -> Iterator[Any]:
        """Event time has come so far: results of the windows that end, window by window."""
        self.heap_timers.watermark = watermark
        keyed, stamp, clear, size = self.keyed, self.stamp, self._clear, self._aligned.size
        evaluate, elements = self._evaluate, self._contents.elements
        for due in self._aligned.advance(watermark):
            window, table, kept = TimeWindow(due.start, due.start + size), due.table, due.kept
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
                elif kept is not None:
                    kept[key] = table.pop(key)
                yield TIMER_DONE

    def on_event_time(self, timer: Timer) -> Iterator[Any]:
        """There are no timers."""
        raise ProgramError(f"operator {self.name!r} has no timers")

    def on_processing_time(self, timer: Timer) -> Iterator[Any]:
        """There are no timers."""
        raise ProgramError(f"operator {self.name!r} has no timers")
