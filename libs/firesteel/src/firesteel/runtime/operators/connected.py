"""Operators over two connected streams; ``input_index`` tells which side the records come from."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from typing_extensions import override

from firesteel.functions import timerservice
from firesteel.functions.functions import CoProcessFunction
from firesteel.runtime.operator_base.base import Transform
from firesteel.runtime.operator_base.context import (
    CoProcessContext,
    KeyedCoOnTimerContext,
    KeyedCoProcessContext,
    OperatorContext,
)
from firesteel.runtime.operator_base.function_timers import KeyTimers, TimeOnly
from firesteel.runtime.operator_base.keyed_base import KeyedTransform
from firesteel.runtime.operator_base.timed import TimedFunction
from firesteel.runtime.operators.stateless import ExpandingOperator


class CoMapOperator(Transform):
    """Runs a ``CoMapFunction``; a result of None is no result, as in PyFlink."""

    def apply(self, records: Iterator[Any], input_index: int) -> Iterator[Any]:
        function, coerce = (self.function.map2 if input_index else self.function.map1), self.coerce
        for value in records:
            result = function(value)
            if result is not None:
                yield result if coerce is None else coerce(result)


class KeyedCoMapOperator(KeyedTransform, CoMapOperator):
    """Runs a ``CoMapFunction`` on keyed streams."""

    inputs = 2


class CoFlatMapOperator(ExpandingOperator):
    """Runs a ``CoFlatMapFunction``."""

    @override
    def function_of(self, input_index: int) -> tuple[str, Callable[[Any], Any]]:
        function = self.function.flat_map2 if input_index else self.function.flat_map1
        return function.__name__, function


class KeyedCoFlatMapOperator(KeyedTransform, CoFlatMapOperator):
    """Runs a ``CoFlatMapFunction`` on keyed streams."""

    inputs = 2


class CoProcessOperator(ExpandingOperator):
    """Runs a ``CoProcessFunction``."""

    may_tag = True

    def open(self, context: OperatorContext) -> None:
        """Create the context of the function, then open it."""
        self._context: Any = self.make_context(context)
        super().open(context)

    def make_context(self, context: OperatorContext) -> Any:
        """Create the context that the function gets with each record."""
        return CoProcessContext(context.stamp, TimeOnly(context.stamp, context.clock, self.name))

    @override
    def function_of(self, input_index: int) -> tuple[str, Callable[[Any], Any]]:
        process = self.function.process_element2 if input_index else self.function.process_element1
        context = self._context
        return process.__name__, lambda value: process(value, context)


class KeyedCoProcessOperator(TimedFunction, CoProcessOperator):
    """Runs a ``KeyedCoProcessFunction``; records of one key from both inputs share its state and timers."""

    inputs = 2

    def make_context(self, context: OperatorContext) -> Any:
        """Create a context with the current key, and with timers if the class of the function has ``on_timer``."""
        timers: timerservice.TimerService = KeyTimers(self.timers)
        if isinstance(self.function, CoProcessFunction):
            timers = TimeOnly(context.stamp, context.clock, self.name)
        return KeyedCoProcessContext(context.stamp, self.keyed, timers)

    @override
    def make_timer_context(self) -> KeyedCoOnTimerContext:
        return KeyedCoOnTimerContext(self.stamp, self.keyed, KeyTimers(self.timers))
