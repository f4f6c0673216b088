"""Operators without keys: map, flat map, filter, process, and a source's types."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

from firesteel.expressions.schema import uncolumnar
from firesteel.functions.functions import FilterFunction, FlatMapFunction, MapFunction
from firesteel.graph.specs import OperatorSpec
from firesteel.runtime.operator_base.base import Transform, is_iterable, method_of, not_iterable
from firesteel.runtime.operator_base.context import OperatorContext, ProcessContext
from firesteel.runtime.operator_base.function_timers import TimeOnly
from firesteel.runtime.records.columns import StreamColumns


class MapOperator(Transform):
    """One record in, one out."""

    one_to_one = True

    def __init__(self, spec: OperatorSpec) -> None:
        super().__init__(spec)
        self._map = method_of(spec.function, MapFunction, "map")

    def apply(self, records: Iterator[Any], input_index: int) -> Iterator[Any]:
        function, coerce = self._map, self.coerce
        if coerce is None:
            for value in records:
                yield function(value)
        else:
            for value in records:
                result = function(value)
                yield coerce(result) if result is not None else self.pass_null()


class FilterOperator(Transform):
    """Keeps some records."""

    def __init__(self, spec: OperatorSpec) -> None:
        super().__init__(spec)
        self._filter = method_of(spec.function, FilterFunction, "filter")

    def apply(self, records: Iterator[Any], input_index: int) -> Iterator[Any]:
        """The records that stay, as they are: their type does not change."""
        function, dropped = self._filter, 0
        if not self.counts:
            for value in records:
                if function(value):
                    yield value
            return
        try:
            for value in records:
                if function(value):
                    yield value
                else:
                    dropped += 1
        finally:
            self.fewer += dropped


class ExpandingOperator(Transform):
    """One record in, any number out: what a function returns is iterated, unless it is None."""

    expands = True

    @abstractmethod
    def function_of(self, input_index: int) -> tuple[str, Callable[[Any], Any]]:
        """Name of the user's method for this input, and what to call with each record."""

    def apply(self, records: Iterator[Any], input_index: int) -> Iterator[Any]:
        """Results, coerced, pulled one at a time."""
        coerce = self.coerce
        method, function = self.function_of(input_index)
        for value in records:
            results = function(value)
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
                    raise not_iterable(method, results) from None
                raise


class FlatMapOperator(ExpandingOperator):
    """``FlatMapFunction``."""

    def __init__(self, spec: OperatorSpec) -> None:
        super().__init__(spec)
        self._flat_map = method_of(spec.function, FlatMapFunction, "flat_map")

    def function_of(self, input_index: int) -> tuple[str, Callable[[Any], Any]]:
        """``flat_map``."""
        return "flat_map", self._flat_map


class ProcessOperator(Transform):
    """``ProcessFunction``; a loop of its own spares a call for each record."""

    expands = True
    may_tag = True

    def open(self, context: OperatorContext) -> None:
        """Make the function's context, then open it."""
        self._context = ProcessContext(context.stamp, TimeOnly(context.stamp, context.clock, self.name))
        super().open(context)

    def apply(self, records: Iterator[Any], input_index: int) -> Iterator[Any]:
        """Results, coerced, pulled one at a time."""
        function, context, coerce = self.function.process_element, self._context, self.coerce
        for value in records:
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


class CoerceOperator(Transform):
    """Fits the records of a source to their declared type."""

    one_to_one = True

    def __init__(self, spec: OperatorSpec) -> None:
        super().__init__(spec)
        declared = spec.output_type
        self._columns = None if declared is None or uncolumnar(declared) else StreamColumns(declared)

    def passes_columns(self, batch: pa.RecordBatch) -> bool:
        """If they are of the declared type already."""
        return self._columns is not None and self._columns.matches(batch)

    def apply(self, records: Iterator[Any], input_index: int) -> Iterator[Any]:
        coerce = self.coerce
        assert coerce is not None
        for value in records:
            yield coerce(value)
