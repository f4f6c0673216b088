"""Pickling values of users, whose ``__reduce__`` and ``__getstate__`` raise what they like."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import cloudpickle

from firesteel.core.errors import SerializationError, TaskInterrupt


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
        return bytes(cloudpickle.dumps(value, protocol=5))
    except TaskInterrupt:
        raise
    except BaseException as error:
        raise SerializationError(explanation(f"{type(error).__name__}: {error}")) from error
