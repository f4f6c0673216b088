"""A store of completed checkpoints that only the leader of the job writes to."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

from firesteel.checkpoint.store import CompletedCheckpointStore, StoredCheckpoint

Guard = Callable[[], AbstractContextManager[None]]
"""Entered for each write; raises ``FencedError`` where the writer leads no more, and keeps others from leading
meanwhile."""


class FencedCheckpointStore(CompletedCheckpointStore):
    """Lets writes through that are made under a guard.

    Args:
        store: where they go.
        guard: see ``Guard``.
    """

    def __init__(self, store: CompletedCheckpointStore, guard: Guard) -> None:
        self._store, self._guard = store, guard

    def next_id(self, above: int = 0) -> int:
        """See ``CompletedCheckpointStore``."""
        with self._guard():
            return self._store.next_id(above)

    def add(self, checkpoint: StoredCheckpoint) -> None:
        """See ``CompletedCheckpointStore``."""
        with self._guard():
            self._store.add(checkpoint)

    def remove(self, checkpoint_id: int) -> None:
        """See ``CompletedCheckpointStore``."""
        with self._guard():
            self._store.remove(checkpoint_id)

    def all(self) -> list[StoredCheckpoint]:
        """See ``CompletedCheckpointStore``."""
        return self._store.all()

    @property
    def damaged(self) -> tuple[str, ...]:
        """See ``CompletedCheckpointStore``."""
        return self._store.damaged

    def clear(self) -> None:
        """See ``CompletedCheckpointStore``."""
        with self._guard():
            self._store.clear()
