"""Functions of the user's in Python, called once for each row, in slots."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from importlib import import_module
from itertools import repeat
from traceback import extract_tb
from typing import Any

import pyarrow as pa

from firesteel.core.errors import ProgramError
from firesteel.expressions.registry import Kernel
from firesteel_sql.kernels.definition import KernelCall, kernel


class UnusableFunctionError(ProgramError):
    """The code of a function is not there, or is none that SQL can call."""


def callable_of(target: str) -> Callable[..., Any]:
    """The Python function that ``module.name`` names; an object with ``eval`` is called by that, as in PyFlink.

    Raises:
        UserFunctionError: there is none.
    """
    module, dot, name = target.rpartition(".")
    if not dot or not module or not name:
        raise UnusableFunctionError(f"'{target}' names no Python function: write 'module.function'")
    try:
        found = getattr(import_module(module), name)
    except ModuleNotFoundError as error:
        raise UnusableFunctionError(
            f"there is no Python module {error.name}: ship it with python.files (--pyFiles), or install it"
        ) from None
    except AttributeError:
        raise UnusableFunctionError(f"the Python module {module} has no {name}") from None
    except Exception as error:
        raise UnusableFunctionError(
            f"the Python module {module} can't be imported: {type(error).__name__}: {error}"
        ) from error
    if inspect.isclass(found) and hasattr(found, "eval"):
        found = found()
    if hasattr(found, "eval"):
        found = found.eval
    if not callable(found):
        raise UnusableFunctionError(f"{target} is no function, but {type(found).__name__}")
    function: Callable[..., Any] = found
    return function


@kernel
def python_function(call: KernelCall) -> Kernel:
    """The results of a Python function for each row; it gets None for NULL.

    The module is imported with the first batch, so a process that only plans does not import it for this.
    """
    function = _Called(call)

    def compute(*columns: Any) -> Any:
        count = next((len(column) for column in columns if not isinstance(column, pa.Scalar)), None)
        lists = [
            [column.as_py(maps_as_pydicts="strict")] * (1 if count is None else count)
            if isinstance(column, pa.Scalar)
            else column.to_pylist(maps_as_pydicts="strict")
            for column in columns
        ]
        array = function.results(zip(*lists, strict=True))
        return array[0] if count is None else array

    return compute


@kernel
def python_function_for_rows(call: KernelCall) -> Kernel:
    """The results of a Python function without operands, called once for each row of a column."""
    function = _Called(call)

    def compute(rows: Any) -> Any:
        is_scalar = isinstance(rows, pa.Scalar)
        array = function.results(repeat((), 1 if is_scalar else len(rows)))
        return array[0] if is_scalar else array

    return compute


class _Called:
    """A function of the user's, imported when it is called first.

    Args:
        call: the use of its kernel.
    """

    def __init__(self, call: KernelCall) -> None:
        self._target: str = call.options["target"]
        self._result = call.result
        self._function: Callable[..., Any] | None = None

    def results(self, rows: Iterable[tuple[Any, ...]]) -> pa.Array:
        """The results for rows of operands.

        Raises:
            pa.ArrowInvalid: the function has raised, or has returned something of another type.
        """
        function = self._function
        if function is None:
            function = self._function = callable_of(self._target)
        try:
            values = [function(*row) for row in rows]
        except Exception as error:
            frame = extract_tb(error.__traceback__)[-1]
            raise pa.ArrowInvalid(
                f"{self._target} has failed: {type(error).__name__}: {error} ({frame.filename}, line {frame.lineno})"
            ) from error
        if pa.types.is_nested(self._result):
            values = [_pairs(value) for value in values]
        try:
            return pa.array(values, self._result)
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
            raise pa.ArrowInvalid(f"{self._target} has returned what is no {self._result}: {error}") from None


def _pairs(value: Any) -> Any:
    """A value in which dicts are lists of pairs, as Arrow takes maps."""
    if isinstance(value, dict):
        return [(key, _pairs(item)) for key, item in value.items()]
    return [_pairs(item) for item in value] if isinstance(value, list) else value
