"""Marks the classes that run user code, so that the report of a failure can name the operator."""

from __future__ import annotations


class UserCode:
    """Base of classes that run user code; reports find their instances in tracebacks as the local ``self``.

    Attributes:
        name: name of the operator, as shown to people.
    """

    name: str
