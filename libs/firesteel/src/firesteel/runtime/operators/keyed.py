"""Operators on keyed streams. The operator sets the current key; the states look it up."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from firesteel.common.own_copies import own_copy
from firesteel.functions.functions import ReduceFunction
from firesteel.graph.specs import OperatorSpec
from firesteel.runtime.operator_base.base import is_iterable, method_of, not_iterable
from firesteel.runtime.operator_base.context import KeyedOnTimerContext, KeyedProcessContext, OperatorContext
from firesteel.runtime.operator_base.function_timers import KeyTimers
from firesteel.runtime.operator_base.keyed_base import KeyedTransform
from firesteel.runtime.operator_base.timed import TimedFunction
from firesteel.runtime.operators.stateless import FilterOperator, FlatMapOperator, MapOperator

REDUCE_STATE: Final = "_reduce_state"
_MISSING: Final = object()


class KeyedMapOperator(KeyedTransform, MapOperator):
    """A map that may use keyed state."""


class KeyedFilterOperator(KeyedTransform, FilterOperator):
    """A filter that may use keyed state."""


class KeyedFlatMapOperator(KeyedTransform, FlatMapOperator):
    """A flat map that may use keyed state."""


class KeyedProcessOperator(TimedFunction):
    """``KeyedProcessFunction``."""

    def open(self, context: OperatorContext) -> None:
        """Open the function, then make its context."""
        super().open(context)
        self._context = KeyedProcessContext(context.stamp, self.keyed, KeyTimers(self.timers))

    def make_timer_context(self) -> KeyedOnTimerContext:
        """Of ``KeyedProcessFunction``."""
        return KeyedOnTimerContext(self.stamp, self.keyed, KeyTimers(self.timers))

    def apply(self, records: Iterator[Any], input_index: int) -> Iterator[Any]:
        """Results, coerced, pulled one at a time."""
        function, context, coerce, keyed = self.function.process_element, self._context, self.coerce, self.keyed
        key_of, check, seen = self.key_selectors[0], self.check, self.check.seen
        for value in records:
            keyed.key = key = key_of(value)
            if key.__class__ not in seen:
                keyed.key = key = check(key)
            results = function(value, context)
            if results is None:
                continue
            try:
                if coerce is None:
                    yield from results
                else:
                    for result in results:
                        yield coerce(result) if result is not None else self.pass_null()
            except TypeError:
                if not is_iterable(results):
                    raise not_iterable("process_element", results) from None
                raise


class ReduceOperator(KeyedTransform):
    """Running reduce: the first record of a key as it is, then each combination; its state is never given away."""

    gives_away = True
    one_to_one = True
    takes_changes = False

    def __init__(self, spec: OperatorSpec) -> None:
        super().__init__(spec)
        self.function_of_two = method_of(spec.function, ReduceFunction, "reduce")

    def apply(self, records: Iterator[Any], input_index: int) -> Iterator[Any]:
        """The result so far for each record, coerced."""
        function, coerce, keyed = self.function_of_two, self.coerce, self.keyed
        key_of, check, seen = self.key_selectors[0], self.check, self.check.seen
        table, reuse = keyed.table(REDUCE_STATE), self.spec.object_reuse
        get = table.get
        for value in records:
            keyed.key = key = key_of(value)
            if key.__class__ not in seen:
                keyed.key = key = check(key)
            before = get(key, _MISSING)
            result = value if before is _MISSING else function(before, value)
            if coerce is not None:
                result = coerce(result)
            table[key] = result
            yield result if reuse else own_copy(result)
