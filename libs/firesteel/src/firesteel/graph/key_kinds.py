"""Kinds of keys: plain data that checkpoints carry, so that a restored job notices if its keys have another kind.

A kind is a text (``number``, ``str``, ``Colour``) or a list: ``["tuple", kind, kind]``,
``["Row", names, kind, kind]``. Keys of different kinds are never equal; all numbers have one kind. ``None`` agrees
with every kind, since any key may be missing.
"""

from __future__ import annotations

import numbers
from collections.abc import Iterable
from decimal import Decimal
from enum import Enum
from typing import Any, Final

from firesteel.common.types import Row

__all__ = ["ANYTHING", "MOST_KINDS", "Kind", "agree", "kind_of", "kind_text", "kinds_text", "merged"]

Kind = Any
ANYTHING: Final = "anything"
MOST_KINDS: Final = 16
"""Number of kinds recorded for one operator; more are recorded as ``ANYTHING``."""
_NOTHING: Final = "None"
_DEEPEST: Final = 8


def kind_of(key: Any, depth: int = 0) -> Kind:
    """Return the kind of a key; what is nested too deep inside of it counts as ``ANYTHING``."""
    if key is None:
        return _NOTHING
    if depth > _DEEPEST:
        return ANYTHING
    if isinstance(key, Enum) and not isinstance(key, int | str):
        return type(key).__qualname__
    if isinstance(key, numbers.Number | Decimal) or (type(key).__module__ == "numpy" and hasattr(key, "__float__")):
        return "number"
    if isinstance(key, tuple):
        return ["tuple", *(kind_of(part, depth + 1) for part in key)]
    if isinstance(key, Row):
        names = None if key._fields is None else sorted(key._fields)
        values = key if names is None else key.get_fields_by_names(names)
        return ["Row", names, *(kind_of(part, depth + 1) for part in values)]
    for base in (str, bytes):
        if isinstance(key, base):
            return base.__name__
    return type(key).__qualname__


def agree(first: Kind, second: Kind) -> bool:
    """Whether keys of these two kinds may be equal."""
    wild = (_NOTHING, ANYTHING)
    if (isinstance(first, str) and first in wild) or (isinstance(second, str) and second in wild):
        return True
    if isinstance(first, str) or isinstance(second, str):
        return bool(first == second)
    start = 2 if first[0] == "Row" else 1
    return (
        len(first) == len(second)
        and first[:start] == second[:start]
        and all(agree(*pair) for pair in zip(first[start:], second[start:], strict=True))
    )


def merged(kinds: Iterable[Kind]) -> list[Kind]:
    """Return each kind once, in a fixed order; ``ANYTHING`` if there are more than ``MOST_KINDS``."""
    distinct: list[Kind] = []
    for kind in kinds:
        if kind not in distinct:
            distinct.append(kind)
    return sorted(distinct, key=str) if len(distinct) <= MOST_KINDS else [ANYTHING]


def kind_text(kind: Kind) -> str:
    """Return a kind as messages show it."""
    if isinstance(kind, str):
        return kind
    if kind[0] == "Row":
        names, parts = kind[1], [kind_text(part) for part in kind[2:]]
        if names is not None:
            parts = [f"{name}: {part}" for name, part in zip(names, parts, strict=True)]
        return f"Row({', '.join(parts)})"
    return f"tuple({', '.join(map(kind_text, kind[1:]))})"


def kinds_text(kinds: Iterable[Kind]) -> str:
    """Return kinds as messages show them."""
    return " or ".join(map(kind_text, kinds))
