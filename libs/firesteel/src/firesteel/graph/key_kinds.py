"""What kind of value a key is: plain data that stands in checkpoints, so that a key of another kind is told apart.

A kind is a text (``number``, ``str``, ``Colour``) or a list: ``["tuple", kind, kind]``,
``["Row", names, kind, kind]``. Keys of different kinds are never equal; all numbers are of one kind. ``None`` goes with
every kind, since any key may be missing.
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
"""Of one operator; those with more have keys of all kinds."""
_NOTHING: Final = "None"
_DEEPEST: Final = 8


def kind_of(key: Any, depth: int = 0) -> Kind:
    """The kind of a key."""
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


def agree(one: Kind, other: Kind) -> bool:
    """Whether a key of one kind may be one of those among which the other was seen."""
    wild = (_NOTHING, ANYTHING)
    if (isinstance(one, str) and one in wild) or (isinstance(other, str) and other in wild):
        return True
    if isinstance(one, str) or isinstance(other, str):
        return bool(one == other)
    start = 2 if one[0] == "Row" else 1
    return (
        len(one) == len(other)
        and one[:start] == other[:start]
        and all(agree(*pair) for pair in zip(one[start:], other[start:], strict=True))
    )


def merged(kinds: Iterable[Kind]) -> list[Kind]:
    """Each kind once, in a fixed order; too many are ``ANYTHING``."""
    found: list[Kind] = []
    for kind in kinds:
        if kind not in found:
            found.append(kind)
    return sorted(found, key=str) if len(found) <= MOST_KINDS else [ANYTHING]


def kind_text(kind: Kind) -> str:
    """A kind as people read it."""
    if isinstance(kind, str):
        return kind
    if kind[0] == "Row":
        names, parts = kind[1], [kind_text(part) for part in kind[2:]]
        if names is not None:
            parts = [f"{name}: {part}" for name, part in zip(names, parts, strict=True)]
        return f"Row({', '.join(parts)})"
    return f"tuple({', '.join(map(kind_text, kind[1:]))})"


def kinds_text(kinds: Iterable[Kind]) -> str:
    """Kinds as people read them."""
    return " or ".join(map(kind_text, kinds))
