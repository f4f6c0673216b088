"""The current key, and its substitute where there is none."""

from __future__ import annotations

from typing import Any, Final

from firesteel.core.errors import ProgramError

_OUTSIDE: Final = (
    "keyed state was used while no record was being processed: use it in the function's own methods, "
    "not in open() or close()"
)


class NoKey:
    """The key while no record is being processed.

    Args:
        reason: text of the error when keyed state is used meanwhile.
    """

    def __init__(self, reason: str = _OUTSIDE) -> None:
        self._reason = reason

    def __repr__(self) -> str:
        return "no key"

    def __hash__(self) -> int:
        raise ProgramError(self._reason)


NO_KEY: Final = NoKey()


class NamespacedKey:
    """A pair of current key and namespace, for states that look for the current key."""

    __slots__ = ("_holder", "_namespace")

    def __init__(self, holder: Any, namespace: Any) -> None:
        self._holder, self._namespace = holder, namespace

    @property
    def key(self) -> Any:
        """Key of entries in tables with namespaces."""
        return self._holder.key, self._namespace
