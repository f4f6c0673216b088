"""Evaluation of a window: turns its contents into results, by the program's window function if there is one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from firesteel.functions.window_functions import (
    AllWindowFunction,
    ProcessAllWindowFunction,
    ProcessWindowFunction,
    WindowFunction,
    uses_window_state,
)
from firesteel.windowing.contexts import FunctionContext

Results = Callable[[str, Any], Iterable[Any]]
"""Makes records of (name of a method, its result): None means no records; each is fitted to the declared type."""


def evaluator_of(
    function: Any, context: FunctionContext, results: Results
) -> Callable[[Any, Any, list[Any]], Iterable[Any]]:
    """Make the function that evaluates a window: it gets (key, window, elements) and gives the records.

    Args:
        function: the program's window function; None = the elements are the results.
        context: the context that process functions are called with.
        results: makes records of what the function returned.

    Raises:
        TypeError: the function is not a window function.
    """
    if function is None:
        return lambda key, window, elements: results("", elements)
    if isinstance(function, WindowFunction):
        return lambda key, window, elements: results("apply", function.apply(key, window, elements))
    if isinstance(function, AllWindowFunction):
        return lambda key, window, elements: results("apply", function.apply(window, elements))
    if isinstance(function, ProcessWindowFunction):

        def of_key(key: Any, window: Any, elements: list[Any]) -> Iterable[Any]:
            context.at = window
            return results("process", function.process(key, context, elements))

        return of_key
    if isinstance(function, ProcessAllWindowFunction):

        def of_all(key: Any, window: Any, elements: list[Any]) -> Iterable[Any]:
            context.at = window
            return results("process", function.process(context, elements))

        return of_all
    raise TypeError(f"{type(function).__name__} is not a window function")


def clearer_of(function: Any, context: FunctionContext) -> Callable[[Any], None] | None:
    """Make the function that calls ``clear`` of the window function; None if that does not override ``clear``."""
    if not uses_window_state(function):
        return None

    def clear(window: Any) -> None:
        context.at = window
        function.clear(context)

    return clear
