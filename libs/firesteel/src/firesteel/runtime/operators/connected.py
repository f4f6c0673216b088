"""Operators over two connected streams; ``input_index`` tells which side the records come from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from firesteel.runtime.context import CoProcessContext, KeyedCoProcessContext, OperatorContext
from firesteel.runtime.operators.base import Transform, is_iterable, not_iterable
from firesteel.runtime.operators.keyed import KeyedTransform


class CoMapOperator(Transform):
    """``CoMapFunction``: a result of None is no result, as in PyFlink."""

    def apply(self, records: Iterator[Any], input_index: int) -> Iterator[Any]:
        """Results, coerced."""
        function, coerce = (self.function.map2 if input_index else self.function.map1), self.coerce
        for value in records:
            result = function(value)
            if result is not None:
                yield result if coerce is None else coerce(result)


class KeyedCoMapOperator(KeyedTransform):
    """``CoMapFunction`` on keyed streams."""

    inputs = 2

    def apply(self, records: Iterator[Any], input_index: int) -> Iterator[Any]:
        """Results, coerced."""
        function, coerce = (self.function.map2 if input_index else self.function.map1), self.coerce
        keyed, key_of, check, seen = self.keyed, self.key_selectors[input_index], self.check, self.check.seen
        for value in records:
            keyed.key = key = key_of(value)
            if key.__class__ not in seen:
                check(key)
            result = function(value)
            if result is not None:
                yield result if coerce is None else coerce(result)


class CoFlatMapOperator(Transform):
    """``CoFlatMapFunction``."""

    expands = True

    def apply(self, records: Iterator[Any], input_index: int) -> Iterator[Any]:
        """Results, coerced, pulled one at a time."""
        function, coerce = (self.function.flat_map2 if input_index else self.function.flat_map1), self.coerce
        for value in records:
            results = function(value)
            if results is None:
                continue
            try:
                for result in results:
                    yield result if coerce is None else coerce(result)
            except TypeError:
                if not is_iterable(results):
                    raise not_iterable(function.__name__, results) from None
                raise


class KeyedCoFlatMapOperator(KeyedTransform):
    """``CoFlatMapFunction`` on keyed streams."""

    expands = True
    inputs = 2

    def apply(self, records: Iterator[Any], input_index: int) -> Iterator[Any]:
        """Results, coerced, pulled one at a time."""
        function, coerce = (self.function.flat_map2 if input_index else self.function.flat_map1), self.coerce
        keyed, key_of, check, seen = self.keyed, self.key_selectors[input_index], self.check, self.check.seen
        for value in records:
            keyed.key = key = key_of(value)
            if key.__class__ not in seen:
                check(key)
            results = function(value)
            if results is None:
                continue
            try:
                for result in results:
                    yield result if coerce is None else coerce(result)
            except TypeError:
                if not is_iterable(results):
                    raise not_iterable(function.__name__, results) from None
                raise


class CoProcessOperator(Transform):
    """``CoProcessFunction``."""

    expands = True

    def open(self, context: OperatorContext) -> None:
        """Make the function's context, then open it."""
        self._context = CoProcessContext(context.stamp)
        super().open(context)

    def apply(self, records: Iterator[Any], input_index: int) -> Iterator[Any]:
        """Results, coerced, pulled one at a time."""
        user, coerce, context = self.function, self.coerce, self._context
        function = user.process_element2 if input_index else user.process_element1
        for value in records:
            results = function(value, context)
            if results is None:
                continue
            try:
                for result in results:
                    yield result if coerce is None else coerce(result)
            except TypeError:
                if not is_iterable(results):
                    raise not_iterable(function.__name__, results) from None
                raise


class KeyedCoProcessOperator(KeyedTransform):
    """``KeyedCoProcessFunction``; both sides of a key share its state."""

    expands = True
    inputs = 2

    def open(self, context: OperatorContext) -> None:
        """Make the function's context, then open it."""
        self._context = KeyedCoProcessContext(context.stamp, self.keyed)
        super().open(context)

    def apply(self, records: Iterator[Any], input_index: int) -> Iterator[Any]:
        """Results, coerced, pulled one at a time."""
        user, coerce, context = self.function, self.coerce, self._context
        function = user.process_element2 if input_index else user.process_element1
        keyed, key_of, check, seen = self.keyed, self.key_selectors[input_index], self.check, self.check.seen
        for value in records:
            keyed.key = key = key_of(value)
            if key.__class__ not in seen:
                check(key)
            results = function(value, context)
            if results is None:
                continue
            try:
                for result in results:
                    yield result if coerce is None else coerce(result)
            except TypeError:
                if not is_iterable(results):
                    raise not_iterable(function.__name__, results) from None
                raise
