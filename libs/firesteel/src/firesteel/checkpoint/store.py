"""The contract of stores of completed checkpoints, from which a job's next JobMaster recovers.

A store belongs to one job. It holds a short list of completed checkpoints, and a counter of their ids. Its methods may
block, and are called on one thread at a time.

* When ``add`` has returned, the entry outlives the process (if the store is persistent). The same checkpoint may be
  added again; another checkpoint with the same id is refused.
* ``all`` returns the checkpoints in the order of their ids. A damaged entry is left out and named in ``damaged``,
  without any effect on other entries. If an entry can't be read for now, ``all`` raises.
* ``next_id`` returns each id once, in rising order and above its argument, even if the process dies between two calls.
* ``remove`` is harmless to repeat. ``clear`` removes all entries and the counter, because the job has ended for good.
* A failed call raises ``CheckpointStorageError``: it may have had its effect or not, until ``add`` or ``remove`` is
  repeated and returns. ``FencedError`` means that another JobMaster leads the job, and the call had no effect.
* ``renewed`` is for calls that hang: when it returns they may have had their effect or not, but have none afterwards.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any

from firesteel.checkpoint.reading import member, whole_number
from firesteel.core.errors import CheckpointStorageError


@dataclass(frozen=True)
class StoredCheckpoint:
    """An entry of a store of completed checkpoints.

    Attributes:
        checkpoint_id: id of the checkpoint.
        location: location of its metadata in the checkpoint storage.
        metadata: the metadata themselves, if the storage does not keep them.
        savepoint: whether it belongs to the user, so that its files stay when the job ends. Plain data of other entries
            do not have this field.
    """

    checkpoint_id: int
    location: str
    metadata: str | None = field(default=None, repr=False)
    savepoint: bool = False

    def to_plain(self) -> dict[str, Any]:
        plain = {"checkpoint_id": self.checkpoint_id, "location": self.location, "metadata": self.metadata}
        return {**plain, "savepoint": True} if self.savepoint else plain

    @classmethod
    def from_plain(cls, plain: Any) -> StoredCheckpoint:
        """The inverse of ``to_plain``.

        Raises:
            CheckpointFormatError: it is malformed.
        """
        fields: dict[str, Any] = member(plain, dict, "entry")
        metadata = fields.get("metadata")
        return cls(
            whole_number(fields.get("checkpoint_id"), "entry.checkpoint_id"),
            member(fields.get("location"), str, "entry.location"),
            None if metadata is None else member(metadata, str, "entry.metadata"),
            member(fields.get("savepoint", False), bool, "entry.savepoint"),
        )


class CompletedCheckpointStore(ABC):
    """The completed checkpoints of one job; the contract is at the head of this module."""

    @abstractmethod
    def next_id(self, above: int = 0) -> int:
        """Return the id of the next checkpoint, from 1."""

    @abstractmethod
    def add(self, checkpoint: StoredCheckpoint) -> None:
        """Add a completed checkpoint."""

    @abstractmethod
    def remove(self, checkpoint_id: int) -> None: ...

    @abstractmethod
    def all(self) -> list[StoredCheckpoint]:
        """Return the checkpoints, in the order of their ids."""

    @property
    @abstractmethod
    def damaged(self) -> tuple[str, ...]:
        """Entries that the last call of ``all`` could not read, and why."""

    @abstractmethod
    def clear(self) -> None: ...

    def renewed(self) -> CompletedCheckpointStore | None:
        """Return a new object for the same store; calls of this object that hang have no effect from now on.

        None if the store can't do that: then the caller has to wait for a call that hangs.
        """
        return None


class MemoryCheckpointStore(CompletedCheckpointStore):
    """A store in memory, for a job that is not recovered when its JobMaster has died."""

    def __init__(self) -> None:
        self._checkpoints: dict[int, StoredCheckpoint] = {}
        self._last = 0

    def next_id(self, above: int = 0) -> int:
        self._last = max(self._last, above) + 1
        return self._last

    def add(self, checkpoint: StoredCheckpoint) -> None:
        if self._checkpoints.setdefault(checkpoint.checkpoint_id, checkpoint) != checkpoint:
            raise CheckpointStorageError(f"another checkpoint {checkpoint.checkpoint_id} is in the store already")

    def remove(self, checkpoint_id: int) -> None:
        self._checkpoints.pop(checkpoint_id, None)

    def all(self) -> list[StoredCheckpoint]:
        return [checkpoint for _, checkpoint in sorted(self._checkpoints.items())]

    @property
    def damaged(self) -> tuple[str, ...]:
        return ()

    def clear(self) -> None:
        self._checkpoints.clear()
        self._last = 0
