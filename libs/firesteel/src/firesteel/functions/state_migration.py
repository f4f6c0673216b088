"""``StateMigration``: how a program converts state that an earlier version of it has written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["StateMigration"]


class StateMigration:
    """Converts state of earlier versions of a program; set on a descriptor with ``enable_state_migration``.

    ::

        descriptor = ValueStateDescriptor("order", Types.ROW_NAMED(["id", "cents"], [Types.LONG(), Types.LONG()]))
        descriptor.enable_state_migration(
            StateMigration(version=1).add_step(0, lambda old: Row(id=old.id, cents=round(old.price * 100)))
        )

    Each snapshot carries the version by which a state was written (0 without a migration). State of an older version
    goes through the steps from that version to the current one. Without any step the types are compared, as without a
    migration; ``add_default`` then sets fields that rows have gained.

    Args:
        version: version of the state in the current program, from 0.

    Raises:
        ValueError: the version is negative.
        TypeError: the version is not an int.

    Examples:
        ```python
        from firesteel.common import Types
        from firesteel.datastream.state import StateMigration, ValueStateDescriptor

        user = Types.ROW_NAMED(["name", "country"], [Types.STRING(), Types.STRING()])
        descriptor = ValueStateDescriptor("user", user)
        descriptor.enable_state_migration(StateMigration(2).add_default("country", "unknown"))
        ```
    """

    def __init__(self, version: int = 0) -> None:
        if not isinstance(version, int) or isinstance(version, bool):
            raise TypeError(f"the version of a state is an int, not {version!r}")
        if version < 0:
            raise ValueError(f"the version of a state must be at least 0, not {version}")
        self.version = version
        self.defaults: dict[str, Any] = {}
        self.steps: dict[int, Callable[[Any], Any]] = {}

    def add_default(self, field: str, value: Any) -> StateMigration:
        """Set the value of a field that rows have gained; without a default it is None.

        Args:
            field: path of the field: ``address.city`` for a row in a row, ``[].city`` for a row in a list.
            value: value of the field's type; it is not copied.

        Raises:
            TypeError: the field is not a str.
        """
        if not isinstance(field, str):
            raise TypeError(f"a field is named by a str, not {field!r}")
        self.defaults[field] = value
        return self

    def add_step(self, from_version: int, function: Callable[[Any], Any]) -> StateMigration:
        """Set the function that converts values of ``from_version`` to the next version.

        Args:
            from_version: 0 to ``version - 1``.
            function: takes the old value (list state: each element; map state: the whole dict; aggregating state: the
                accumulator) and returns the new one. Called once for each key, before the task runs, on a thread of the
                task's own; an exception fails the restore.

        Raises:
            ValueError: ``from_version`` is not an earlier version, or has a step already.
            TypeError: the function is not callable.
        """
        if not callable(function):
            raise TypeError(f"a step of a migration is a function of the old value, not {function!r}")
        if from_version not in range(self.version):
            raise ValueError(f"a step begins at a version from 0 to {self.version - 1}, not at {from_version!r}")
        if from_version in self.steps:
            raise ValueError(f"there is a step from version {from_version} already")
        self.steps[from_version] = function
        return self

    def __repr__(self) -> str:
        return f"StateMigration({self.version})"
