"""Operators on keyed streams. The operator sets the current key of the backend; states read it there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from typing_extensions import override

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
    """Runs a ``KeyedProcessFunction``."""

    def open(self, context: OperatorContext) -> None:
        """Open the function, then create its context."""
        super().open(context)
        self._context = KeyedProcessContext(context.stamp, self.keyed, KeyTimers(self.timers))

    @override
    def make_timer_context(self) -> KeyedOnTimerContext:
        return KeyedOnTimerContext(self.stamp, self.keyed, KeyTimers(self.timers))

    def apply(self, records: Iterator[Any], input_index: int) -> Iterator[Any]:
        """Call the function for each record; its results are pulled one at a time and fitted to the declared type."""
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
    """Running reduce: emits the first record of a key as it is, then each combination.

    Emitted results are copies: nobody can change the state through them.
    """

    gives_away = True
    one_to_one = True
    takes_changes = False

    def __init__(self, spec: OperatorSpec) -> None:
        super().__init__(spec)
        self.function_of_two = method_of(spec.function, ReduceFunction, "reduce")

    def apply(self, records: Iterator[Any], input_index: int) -> Iterator[Any]:
        """Yield the result so far for each record, fitted to the declared type."""
        function, coerce, keyed = self.function_of_two, self.coerce, self.keyed
        key_of, check, seen = self.key_selectors[0], self.check, self.check.seen
        table, reuse = keyed.table(REDUCE_STATE), self.spec.object_reuse
        get = table.get
        for value in records:
            keyed.key = key = key_of(value)
            if key.__class__ not in seen:
                keyed.key = key = check(key)
            former = get(key, _MISSING)
            result = value if former is _MISSING else function(former, value)
            if coerce is not None:
                result = coerce(result)
            table[key] = result
            yield result if reuse else own_copy(result)
