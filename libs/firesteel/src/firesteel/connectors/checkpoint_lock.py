"""The lock under which a source function emits a record and changes its state."""

from __future__ import annotations

import threading
from collections.abc import Callable


class CheckpointLock:
    """Held by the function while several changes are one step, or claimed by a checkpoint. Reentrant.

    A function that takes the lock again and again leaves no gap for another thread. So a claim keeps it from taking the
    lock once more.

    Args:
        on_free: called by the function's thread when it releases a lock that is claimed.
    """

    def __init__(self, on_free: Callable[[], None]) -> None:
        self._on_free = on_free
        self._change = threading.Condition()
        self._owner: int | None = None
        self._depth = 0
        self._claimed = self._broken = False

    def __enter__(self) -> CheckpointLock:
        me = threading.get_ident()
        with self._change:
            if self._owner != me:
                while (self._owner is not None or self._claimed) and not self._broken:
                    self._change.wait()
                self._owner = me
            self._depth += 1
        return self

    def __exit__(self, *exception: object) -> None:
        with self._change:
            self._depth -= 1
            if self._depth:
                return
            self._owner = None
            claimed = self._claimed
            self._change.notify_all()
        if claimed:
            self._on_free()

    def claim(self) -> bool:
        """Let nobody take the lock from now on; returns whether it is free."""
        with self._change:
            self._claimed = True
            return self._owner is None

    def give_back(self) -> None:
        """End the claim, so that others can take the lock again."""
        with self._change:
            self._claimed = False
            self._change.notify_all()

    def break_up(self) -> None:
        """Let nobody wait for the lock any more, because the function is cancelled."""
        with self._change:
            self._broken = True
            self._change.notify_all()
