"""Operators on keyed streams. The operator sets the current key; the states look it up."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from firesteel.core.errors import ProgramError
from firesteel.functions.functions import KeySelector, ReduceFunction
from firesteel.graph.specs import OperatorSpec
from firesteel.runtime.context import KeyedProcessContext, OperatorContext
from firesteel.runtime.operators.base import KeyCheck, Transform, is_iterable, method_of, not_iterable
from firesteel.runtime.operators.stateless import FilterOperator, FlatMapOperator, MapOperator
from firesteel.state.heap import NO_KEY, HeapKeyedState

REDUCE_STATE: Final = "_reduce_state"
_MISSING: Final = object()


class KeyedTransform(Transform):
    """An operator with keyed state; in front of an operator class without keys it gives that one keys.

    The operators that most keyed jobs spend their time in have a loop of their own instead: a record costs less there.

    Attributes:
        keyed: its state.
        key_selectors: one callable for each input.
    """

    inputs = 1

    def __init__(self, spec: OperatorSpec) -> None:
        super().__init__(spec)
        if len(spec.key_selectors) != self.inputs:
            raise ProgramError(
                f"operator {spec.name!r} has {self.inputs} keyed inputs but {len(spec.key_selectors)} key selectors"
            )
        self.key_selectors: list[Callable[[Any], Any]] = [
            method_of(selector, KeySelector, "get_key") for selector in spec.key_selectors
        ]
        self.keyed: HeapKeyedState = HeapKeyedState(strict_integers=spec.strict_integers)
        self.check = KeyCheck()

    def apply(self, records: Iterator[Any], input_index: int) -> Iterator[Any]:
        """What the operator without keys gives, with the current key set for each record."""
        return super().apply(self.with_keys(records, input_index), input_index)  # type: ignore[safe-super]

    def with_keys(self, records: Iterator[Any], input_index: int) -> Iterator[Any]:
        """The records; each one's key is the current one while it is processed."""
        keyed, key_of, check, seen = self.keyed, self.key_selectors[input_index], self.check, self.check.seen
        for value in records:
            keyed.key = key = key_of(value)
            if key.__class__ not in seen:
                check(key)
            yield value

    def close(self) -> None:
        """Close the function, then forget the state."""
        self.keyed.key = NO_KEY
        try:
            super().close()
        finally:
            self.keyed.close()


class KeyedMapOperator(KeyedTransform, MapOperator):
    """A map that may use keyed state."""


class KeyedFilterOperator(KeyedTransform, FilterOperator):
    """A filter that may use keyed state."""


class KeyedFlatMapOperator(KeyedTransform, FlatMapOperator):
    """A flat map that may use keyed state."""


class KeyedProcessOperator(KeyedTransform):
    """``KeyedProcessFunction``."""

    expands = True

    def open(self, context: OperatorContext) -> None:
        """Make the function's context, then open it."""
        self._context = KeyedProcessContext(context.stamp, self.keyed)
        super().open(context)

    def apply(self, records: Iterator[Any], input_index: int) -> Iterator[Any]:
        """Results, coerced, pulled one at a time."""
        function, context, coerce, keyed = self.function.process_element, self._context, self.coerce, self.keyed
        key_of, check, seen = self.key_selectors[0], self.check, self.check.seen
        for value in records:
            keyed.key = key = key_of(value)
            if key.__class__ not in seen:
                check(key)
            results = function(value, context)
            if results is None:
                continue
            try:
                if coerce is None:
                    yield from results
                else:
                    for result in results:
                        yield coerce(result)
            except TypeError:
                if not is_iterable(results):
                    raise not_iterable("process_element", results) from None
                raise


class ReduceOperator(KeyedTransform):
    """Running reduce: the first record of a key as it is, then each combination."""

    def __init__(self, spec: OperatorSpec) -> None:
        super().__init__(spec)
        self._reduce = method_of(spec.function, ReduceFunction, "reduce")

    def apply(self, records: Iterator[Any], input_index: int) -> Iterator[Any]:
        """The result so far for each record, coerced."""
        function, coerce, keyed = self._reduce, self.coerce, self.keyed
        key_of, check, seen = self.key_selectors[0], self.check, self.check.seen
        table = keyed.table(REDUCE_STATE)
        get = table.get
        for value in records:
            keyed.key = key = key_of(value)
            if key.__class__ not in seen:
                check(key)
            before = get(key, _MISSING)
            result = value if before is _MISSING else function(before, value)
            if coerce is not None:
                result = coerce(result)
            table[key] = result
            yield result
