"""Checks the keys of records as they enter a keyed operator."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum
from typing import Any, Final

from firesteel.common.nan_keys import WHOLE, with_one_nan
from firesteel.common.types import Row
from firesteel.core.errors import StateRestoreError
from firesteel.core.short_repr import short_repr
from firesteel.graph.key_hash import TOO_DEEP, key_type_error, stable_hash
from firesteel.graph.key_kinds import Kind, agree, kind_of, kind_text, kinds_text, merged

_MOST_SHAPES: Final = 1000
IGNORE_UNCLAIMED: Final = "execution.state-recovery.ignore-unclaimed-state"
_ROW: Final = "row"
"""First element of the shape of a row, which tells it from the shape of a tuple; that contains only types."""


class KeyCheck:
    """Checks keys and returns the key to use in their place. Keys of one shape (types) are checked in full only once.

    It is called for each key whose class is not in ``seen``. Partitioners have hashed every key before. This check
    finds a key selector that returns another key the second time, and one that returns keys of another kind than those
    in the checkpoint from which the job goes on.

    Attributes:
        seen: classes of keys that were checked, and that are used unchanged.
        proved: whether a key has come that agrees with the restored ones, or no keys were restored.
    """

    def __init__(self) -> None:
        self.seen: set[type] = set()
        self.proved = True
        self._shapes: dict[Any, bool] = {}  # shape -> whether keys of it may contain NaN
        self._kinds: list[Kind] = []
        self._restored: list[Kind] = []
        self._states: Sequence[str] = ()
        self._operator = ""

    def __call__(self, key: Any) -> Any:
        """Check a key; returns it with every NaN in it replaced by one object, which a dict finds by identity.

        Raises:
            KeyTypeError: a value of this type can't be a key.
            StateRestoreError: it is of another kind than the restored keys.
        """
        cls = key.__class__
        shape: Any = cls
        if cls is tuple:
            shape = tuple(map(type, key))
        elif cls is Row:
            shape = (_ROW, key._fields, *map(type, key))
        may_be_nan = self._shapes.get(shape)
        try:
            if may_be_nan is None:
                return self._first_of(shape, key)
            return with_one_nan(key) if may_be_nan else key
        except RecursionError:
            raise key_type_error(cls, TOO_DEEP) from None

    def _first_of(self, shape: Any, key: Any) -> Any:
        stable_hash(key)
        hash(key)
        kind = kind_of(key)
        if not self.proved:
            self._prove(kind, key)
        self._kinds = merged([*self._kinds, kind])
        if shape.__class__ is tuple:
            whole = WHOLE.issuperset(shape[2:] if shape[:1] == (_ROW,) else shape)
        else:
            whole = shape in WHOLE or issubclass(shape, Enum)
            if whole:
                self.seen.add(shape)
        if len(self._shapes) >= _MOST_SHAPES:
            self._shapes.clear()
        self._shapes[shape] = not whole
        return with_one_nan(key)

    # -- what checkpoints say about keys

    @property
    def kinds(self) -> list[Kind]:
        """The kinds of all keys that came or were restored."""
        return merged([*self._restored, *self._kinds])

    def restore(self, operator: str, kinds: Iterable[Kind], states: Sequence[str], *, proved: bool) -> None:
        """Note the kinds of keys that have state in the checkpoint.

        Args:
            operator: name of the operator, for errors.
            kinds: kinds of the keys.
            states: names of the states, for errors.
            proved: whether the same program has made them, or keys that came since agree with them.
        """
        self._operator, self._restored, self._states = operator, merged(kinds), states
        self.proved = proved or not self._restored

    def _prove(self, kind: Kind, key: Any) -> None:
        if not any(agree(kind, other) for other in self._restored):
            names = ", ".join(map(repr, self._states)) or "timers"
            raise StateRestoreError(
                f"operator {self._operator!r}: the keys of its state ({names}) in the checkpoint are "
                f"{kinds_text(self._restored)}, and the key selector gives {kind_text(kind)} now "
                f"({short_repr(key, 80)}): no record would ever find that state again. Give keys of the same type as "
                "before, or another uid to the operator to begin anew, or leave that state behind with "
                f"{IGNORE_UNCLAIMED} = true (-n on the command line)"
            )
        self.proved = kind != "None"
