"""Pickling values of users, whose ``__reduce__`` and ``__getstate__`` raise what they like."""

from __future__ import annotations

import importlib
import io
import pickle
import sys
from collections import ChainMap
from collections.abc import Callable
from contextlib import suppress
from types import FunctionType
from typing import Any, ClassVar

import cloudpickle

from firesteel.core.errors import SerializationError, TaskInterrupt


def _view_of(data: bytes | bytearray, kind: Any, shape: tuple[int, ...]) -> Any:
    """A view of these bytes, as ``reduce_view`` has written them."""
    if shape == (0,):  # a view of no bytes can't be cast
        return memoryview(type(data)(8)).cast(kind)[:0]
    return memoryview(data).cast(kind, shape)


def reduce_view(view: memoryview) -> tuple[Any, ...]:
    """A memoryview with its format, where cloudpickle writes ``bytes``, whose elements are others than the view's.

    Raises:
        PicklingError: it has a format that can't be restored.
    """
    data = view.tobytes()
    shape = view.shape or ()
    arguments = (data if view.readonly else bytearray(data)), view.format, shape
    try:
        _view_of(*arguments)
    except (TypeError, ValueError) as error:
        raise pickle.PicklingError(
            f"a memoryview of format {view.format!r} and shape {shape} can't be pickled ({error}): "
            "use the object that it is a view of, or its tobytes()"
        ) from None
    return _view_of, arguments


def _reduce_file(file: io.TextIOWrapper) -> tuple[Any, ...]:
    """Standard streams by their name; of other files cloudpickle would read all there is, into a ``StringIO``."""
    for name in ("stdout", "stderr"):
        if file is getattr(sys, name):
            return getattr, (sys, name)
    raise pickle.PicklingError("an open file can't be pickled: use its path, or what was read from it")


class ValuePickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Takes what cloudpickle does, but writes no value as one of another type."""

    dispatch_table: ClassVar[Any] = ChainMap(
        {memoryview: reduce_view, io.TextIOWrapper: _reduce_file}, cloudpickle.Pickler.dispatch_table
    )

    def reducer_override(self, obj: Any) -> Any:
        """Import the module of a class or function first, as pickle does.

        cloudpickle looks among the modules that are loaded only, and writes a class of another one by value: it would
        be a second class of this name where it is read. Such is ``numpy.recarray``, of ``numpy.rec``.
        """
        if isinstance(obj, type | FunctionType):
            module = obj.__module__
            if isinstance(module, str) and module not in sys.modules:
                with suppress(Exception):  # a module that only another process has, or whose code raises
                    importlib.import_module(module)
        return super().reducer_override(obj)


def dumps_any(value: Any, buffer_callback: Callable[[pickle.PickleBuffer], Any] | None = None) -> bytes:
    """Pickle a value that pickle does not take, with functions and classes that can't be imported.

    Raises:
        Exception: it can't be pickled; or whatever its own code raises.
    """
    with io.BytesIO() as file:
        ValuePickler(file, 5, buffer_callback).dump(value)
        return file.getvalue()


def dumps(value: Any, explanation: Callable[[str], str]) -> bytes:
    """Pickle a value with protocol 5; with cloudpickle if pickle does not take it.

    Args:
        value: what to pickle.
        explanation: makes the message of the error, from the class and text of what was raised.

    Raises:
        SerializationError: neither of them takes it, or the value's own code raised, ``SystemExit`` included.
    """
    try:
        return pickle.dumps(value, protocol=5)
    except TaskInterrupt:
        raise
    except BaseException:  # cloudpickle takes more, or raises the same again
        pass
    try:
        return dumps_any(value)
    except TaskInterrupt:
        raise
    except BaseException as error:
        raise SerializationError(explanation(f"{type(error).__name__}: {error}")) from error
