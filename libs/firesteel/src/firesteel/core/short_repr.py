"""The user's values in messages: short, and never a second error."""

from __future__ import annotations

import reprlib
from typing import Any, Final

from firesteel.core.errors import TaskInterrupt

LIMIT: Final = 200


def short_repr(value: Any, limit: int = LIMIT) -> str:
    """A ``repr`` of at most ``limit`` characters that never raises; large containers are not written out."""
    try:
        text = _repr.repr(value)
    except TaskInterrupt:
        raise
    except BaseException as error:  # the user's __repr__
        text = f"<{type(value).__name__} whose repr raises {type(error).__name__}>"
    return text if len(text) <= limit else text[: limit - 1] + "…"


class _Repr(reprlib.Repr):
    def __init__(self) -> None:
        super().__init__()
        self.maxlevel = 6
        self.maxtuple = self.maxlist = self.maxdict = self.maxset = self.maxfrozenset = self.maxarray = 40
        self.maxstring = self.maxother = LIMIT
        self.maxlong = 60

    def repr_bytes(self, value: bytes, level: int) -> str:
        """The beginning of long bytes only."""
        return repr(value[:LIMIT])

    repr_bytearray = repr_bytes


_repr = _Repr()
