"""What runs in Spark's tasks, by name: nobody who starts tasks needs what is imported there."""

from __future__ import annotations

from typing import Any, Final

from firesteel.core.plugins import import_target


class ByName:
    """A function of a module that is imported by whoever calls it, and by nobody else.

    Args:
        target: ``module:function``.
    """

    def __init__(self, target: str) -> None:
        self._target = target
        self.__module__ = target.partition(":")[0]

    def __call__(self, *arguments: Any) -> Any:
        """What the function returns.

        Raises:
            ImportError: the module can't be imported here, or has no such function.
        """
        return import_target(self._target)(*arguments)


SLOT_MAIN: Final = ByName("firesteel.runtime.slot.slot_main:slot_main")
"""Main function of a slot."""
STAGE_MAIN: Final = ByName("firesteel.runtime.bounded.stage_main:stage_main")
"""Main function of a task of bounded stages."""
