"""``StateMigration``: what a program does to state that an earlier version of it has written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["StateMigration"]


class StateMigration:
    """How state of earlier versions becomes that of now; given to a descriptor with ``enable_state_migration``.

    ::

        descriptor = ValueStateDescriptor("order", Types.ROW_NAMED(["id", "cents"], [Types.LONG(), Types.LONG()]))
        descriptor.enable_state_migration(
            StateMigration(version=1).add_step(0, lambda old: Row(id=old.id, cents=round(old.price * 100)))
        )

    Each snapshot says by which version a state was written (0 where nobody said one). What an older version has written
    goes through the steps from that version to the one of now. Without any step the types decide, as without a
    migration; defaults are for fields of rows that were added.

    Args:
        version: of the state, as the program has it now; from 0.

    Raises:
        ValueError: the version is negative.
        TypeError: it is no int.
    """

    def __init__(self, version: int = 0) -> None:
        if not isinstance(version, int) or isinstance(version, bool):
            raise TypeError(f"the version of a state is an int, not {version!r}")
        if version < 0:
            raise ValueError(f"the version of a state is not negative, as {version} is")
        self.version = version
        self.defaults: dict[str, Any] = {}
        self.steps: dict[int, Callable[[Any], Any]] = {}

    def add_default(self, field: str, value: Any) -> StateMigration:
        """What a field of a row gets that was not there before; without one it is None.

        Args:
            field: its path: ``address.city`` of a row in a row, ``[].city`` of a row in a list.
            value: of the field's type. Not copied.

        Raises:
            TypeError: the field is no str.
        """
        if not isinstance(field, str):
            raise TypeError(f"a field is named by a str, not {field!r}")
        self.defaults[field] = value
        return self

    def add_step(self, from_version: int, function: Callable[[Any], Any]) -> StateMigration:
        """What makes a value of the next version of one of ``from_version``.

        Args:
            from_version: 0 to ``version - 1``.
            function: gets the value (of a list each element, of a map the whole dict, of aggregating state the
                accumulator) as it was written, and gives the new one. Called once for each key, before the task runs,
                by a thread of the task's own; what it raises fails the restore.

        Raises:
            ValueError: there is no such version before the one of now, or it has a step already.
            TypeError: the function can't be called.
        """
        if not callable(function):
            raise TypeError(f"a step of a migration is a function of the old value, not {function!r}")
        if from_version not in range(self.version):
            raise ValueError(f"steps begin at versions 0 to {self.version - 1}, and not at {from_version!r}")
        if from_version in self.steps:
            raise ValueError(f"there is a step from version {from_version} already")
        self.steps[from_version] = function
        return self

    def __repr__(self) -> str:
        return f"StateMigration({self.version})"
