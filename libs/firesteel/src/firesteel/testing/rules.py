"""Assertions by which the conformance kits say which rule of a contract is broken."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


def require(holds: bool, rule: str) -> None:
    """Raise an ``AssertionError`` with the rule if it is broken, also if Python runs with ``-O``."""
    if not holds:
        raise AssertionError(rule)


def require_some(value: T | None, rule: str) -> T:
    """Return a value; None is an ``AssertionError`` with the rule."""
    if value is None:
        raise AssertionError(rule)
    return value


def require_raises(kind: type[BaseException], call: Callable[[], Any], rule: str) -> BaseException:
    """Return the error of a call that must raise it, with a message.

    Other errors are passed on.
    """
    try:
        call()
    except kind as error:
        require(bool(str(error)), f"{rule}: {kind.__name__} was raised without a message")
        return error
    raise AssertionError(f"{rule}: {kind.__name__} is to be raised")


def require_returns(call: Callable[[], T], rule: str) -> T:
    """Return the result of a call that must not raise."""
    try:
        return call()
    except Exception as error:
        raise AssertionError(f"{rule}: {type(error).__name__}: {error}") from error
