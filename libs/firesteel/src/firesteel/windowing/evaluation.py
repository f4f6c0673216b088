"""Evaluating a window: what its contents give, through the program's window function if there is one."""

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
"""Makes records of what the method of this name returned: None is none; they are fitted to the declared type."""


def evaluator_of(
    function: Any, context: FunctionContext, results: Results
) -> Callable[[Any, Any, list[Any]], Iterable[Any]]:
    """What gives the records for (key, window, elements).

    Args:
        function: the program's window function; None = the elements are the results.
        context: of process functions.
        results: makes records of what the function returned.
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
    raise TypeError(f"{type(function).__name__} is no window function")


def clearer_of(function: Any, context: FunctionContext) -> Callable[[Any], None] | None:
    """What calls the window function's ``clear`` for a window; None if it has none of its own."""
    if not uses_window_state(function):
        return None

    def clear(window: Any) -> None:
        context.at = window
        function.clear(context)

    return clear
