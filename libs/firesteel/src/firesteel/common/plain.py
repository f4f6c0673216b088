"""Conversion of dataclasses to plain data (which JSON can represent) and back, for messages and files, by msgspec."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import msgspec

T = TypeVar("T")
_MISSING: Final = re.compile(r"Object missing required field `(\w+)`")


def to_plain(value: Any) -> Any:
    """Convert a dataclass and its content to dicts, lists or tuples, texts, numbers, booleans and None.

    Bytes stay bytes, which JSON refuses, so that they are never converted to text by mistake.
    """
    return msgspec.to_builtins(value, builtin_types=(bytes, bytearray), enc_hook=_as_dict)


def read_plain(kind: type[T], plain: Any, name: str, error: Callable[[str, str], Exception]) -> T:
    """Make an object of a dataclass from plain data.

    Types are checked strictly (an integer counts as a float, nothing else is converted). Fields that the class does not
    have are ignored, so that a newer writer may add some.

    Args:
        kind: the dataclass, or another type that ``msgspec.convert`` reads.
        plain: data from a peer or a file.
        name: name of the whole object, the first part of the path in errors.
        error: makes the exception from a path (``Heartbeat.slots[0].id``) and a reason.

    Raises:
        Exception: made by ``error``: a field is missing or has a wrong type.
    """
    try:
        return msgspec.convert(plain, kind)
    except msgspec.ValidationError as malformed:
        reason, _, path = str(malformed).partition(" - at `")
        reason = _MISSING.sub(r"field '\1' is missing", reason)
        raise error(name + path.rstrip("`").removeprefix("$"), reason[:1].lower() + reason[1:]) from None


def _as_dict(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is not plain data")
