"""Operators without keys: map, flat map, filter, process, and the type check behind a source."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
from typing_extensions import override

from firesteel.expressions.schema import uncolumnar
from firesteel.functions.functions import FilterFunction, FlatMapFunction, MapFunction
from firesteel.graph.specs import OperatorSpec
from firesteel.runtime.operator_base.base import Transform, is_iterable, method_of, not_iterable
from firesteel.runtime.operator_base.context import OperatorContext, ProcessContext
from firesteel.runtime.operator_base.function_timers import TimeOnly
from firesteel.runtime.records.columns import StreamColumns


class MapOperator(Transform):
    """Runs a ``MapFunction``: one result for each record."""

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
    """Runs a ``FilterFunction``: passes the records for which it returns True."""

    def __init__(self, spec: OperatorSpec) -> None:
        super().__init__(spec)
        self._filter = method_of(spec.function, FilterFunction, "filter")

    def apply(self, records: Iterator[Any], input_index: int) -> Iterator[Any]:
        """Yield the records that pass, without fitting them to a type, as theirs does not change."""
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
    """An operator that emits any number of results for a record: it iterates over what the function returns."""

    expands = True

    @abstractmethod
    def function_of(self, input_index: int) -> tuple[str, Callable[[Any], Any]]:
        """The name of the user's method for this input, and the callable to call with each record."""

    @override
    def apply(self, records: Iterator[Any], input_index: int) -> Iterator[Any]:
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
    """Runs a ``FlatMapFunction``."""

    def __init__(self, spec: OperatorSpec) -> None:
        super().__init__(spec)
        self._flat_map = method_of(spec.function, FlatMapFunction, "flat_map")

    @override
    def function_of(self, input_index: int) -> tuple[str, Callable[[Any], Any]]:
        return "flat_map", self._flat_map


class ProcessOperator(Transform):
    """Runs a ``ProcessFunction``, in a loop of its own, which spares a call for each record."""

    expands = True
    may_tag = True

    def open(self, context: OperatorContext) -> None:
        """Create the context of the function, then open it."""
        self._context = ProcessContext(context.stamp, TimeOnly(context.stamp, context.clock, self.name))
        super().open(context)

    @override
    def apply(self, records: Iterator[Any], input_index: int) -> Iterator[Any]:
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
    """Fits the records of a source to their declared type, directly behind the reader."""

    one_to_one = True

    def __init__(self, spec: OperatorSpec) -> None:
        super().__init__(spec)
        declared = spec.output_type
        self._columns = None if declared is None or uncolumnar(declared) else StreamColumns(declared)

    def passes_columns(self, batch: pa.RecordBatch) -> bool:
        """Whether the columns have the declared type already, so that there is nothing to fit."""
        return self._columns is not None and self._columns.matches(batch)

    def apply(self, records: Iterator[Any], input_index: int) -> Iterator[Any]:
        coerce = self.coerce
        assert coerce is not None
        for value in records:
            yield coerce(value)
