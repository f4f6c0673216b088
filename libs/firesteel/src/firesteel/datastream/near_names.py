"""Errors about methods that streams do not have, which name the method that was probably meant."""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING, Final, NoReturn

__all__ = ["NearNames", "near_name"]

_ELSEWHERE: Final = {
    "groupby": "key_by",
    "where": "filter",
    "foreach": "map",
    "collect": "execute_and_collect",
    "collectasync": "execute_and_collect",
    "sink": "sink_to",
    "write": "sink_to",
    "writeto": "sink_to",
    "fromelements": "from_collection",
    "fromiterable": "from_collection",
}
"""Names of other libraries and of earlier Flinks, without underscores, and the methods that do the same here."""
_LIKENESS: Final = 0.75
"""Cutoff for ``difflib``: ``windoww`` and ``windows`` are near ``window``, ``reduce`` is not near ``rescale``."""


def near_name(owner: type, name: str) -> str | None:
    """The public name of a class that was probably meant by this one; None if none is near.

    Java's names count as those in snake case: ``keyBy`` is ``key_by``, and so is ``keyby``.
    """
    public = [attribute for attribute in dir(owner) if not attribute.startswith("_")]
    meant = _ELSEWHERE.get(name.replace("_", "").lower())
    if meant in public:
        return meant
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
    return next(iter(difflib.get_close_matches(snake, public, 1, _LIKENESS)), None)


class NearNames:
    """A class whose errors about missing attributes name a near one."""

    if not TYPE_CHECKING:  # type checkers are to find what is not there

        def __getattr__(self, name: str) -> NoReturn:
            # obj is not this object: Python would append a guess of its own to the traceback
            raise AttributeError(self._no_attribute(name), name=name, obj=None)

    @classmethod
    def _no_attribute(cls, name: str) -> str:
        """The text of the ``AttributeError`` for a name."""
        near = None if name.startswith("_") else near_name(cls, name)
        hint = f"; did you mean {near}?" if near else ""
        return f"{cls.__name__!r} object has no attribute {name!r}{hint}"
