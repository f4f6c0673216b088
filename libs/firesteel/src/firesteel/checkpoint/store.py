"""The contract of stores of completed checkpoints: what the next JobMaster of a job knows of its checkpoints.

A store belongs to one job. It holds a short list of completed checkpoints, and a counter of their ids. Its methods may
block, and are called on one thread at a time.

* ``add`` has happened when it returns, and outlives the process (if the store is persistent). The same checkpoint may
  be added again; another one of the same id is refused.
* ``all`` gives the checkpoints in the order of their ids. An entry that is not what was written is left out and named
  in ``damaged``; it hides no other. One that can't be read for now raises.
* ``next_id`` gives each id once, in rising order and above the number that it is given, whatever happens between two
  calls.
* ``remove`` is harmless to repeat. ``clear`` forgets checkpoints and counter: the job has ended for good.
* Whatever can't be done raises ``CheckpointStorageError``: then nobody knows whether it has happened, until ``add`` or
  ``remove`` is repeated and returns. ``FencedError`` says that another JobMaster leads the job: nothing has happened.
* ``renewed`` is for calls that hang: they may have had their effect when it returns, or not, but have none afterwards.
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
        """The id of the next checkpoint, from 1."""

    @abstractmethod
    def add(self, checkpoint: StoredCheckpoint) -> None:
        """Remember a completed checkpoint."""

    @abstractmethod
    def remove(self, checkpoint_id: int) -> None: ...

    @abstractmethod
    def all(self) -> list[StoredCheckpoint]:
        """The checkpoints, in the order of their ids."""

    @property
    @abstractmethod
    def damaged(self) -> tuple[str, ...]:
        """Entries that the last call of ``all`` could not read, and why."""

    @abstractmethod
    def clear(self) -> None: ...

    def renewed(self) -> CompletedCheckpointStore | None:
        """A new object for the same store. Calls of this object that have not returned change nothing from now on.

        None if the store can't do that: then a call that was given up has to be waited for.
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
