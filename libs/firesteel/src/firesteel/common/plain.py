"""Plain data, which is what JSON can carry, into dataclasses and back: how peers and files are read, by msgspec."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import msgspec

T = TypeVar("T")
_MISSING: Final = re.compile(r"Object missing required field `(\w+)`")


def to_plain(value: Any) -> Any:
    """A dataclass, and all that is in it, as dicts, lists or tuples, texts, numbers, truth values and None.

    Bytes stay bytes, which JSON refuses, so that none become text unseen.
    """
    return msgspec.to_builtins(value, builtin_types=(bytes, bytearray), enc_hook=_as_dict)


def read_plain(kind: type[T], plain: Any, name: str, error: Callable[[str, str], Exception]) -> T:
    """An object of a dataclass, from plain data.

    Types are taken strictly (an integer counts as a float, nothing else is converted). Fields that the class does not
    have are ignored, so that a newer writer may add some.

    Args:
        kind: the dataclass, or what else ``msgspec.convert`` reads.
        plain: what a peer or a file said.
        name: of the whole, the first part of the path in errors.
        error: makes the exception of a path (``Heartbeat.slots[0].id``) and a reason.

    Raises:
        Exception: as ``error`` made it: a field is missing or of a wrong type.
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
    raise TypeError(f"{type(value).__name__} is no plain data")
