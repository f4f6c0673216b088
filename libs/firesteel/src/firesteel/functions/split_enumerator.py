"""The enumerator of a source, as users write it: which splits there are, and who reads them.

It runs in a slot, in a task of parallelism 1 of its own, beside the source's readers. All its methods are called by one
thread, one after the other; none has to be safe against the others, and one that waits holds up nobody but the
enumerator. What takes long is best done by ``SplitEnumeratorContext.call_async``.

Its state is part of the checkpoint. It is asked for it when all readers have passed the barrier: then each split is
with a reader, in the enumerator's state, or was given out and had not arrived in time. The last ones come back by
``add_splits_back`` when the job goes on from the checkpoint. So a split belongs into the state until it is assigned,
and not any longer: whatever is assigned will be read, once.

If the enumerator fails, or its process dies, or a reader of the source does, all of them are started again from the
last checkpoint, with what exchanges records with them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from firesteel.config import Settings
from firesteel.functions.functions import RuntimeContext
from firesteel.functions.splits import Split

__all__ = ["ReaderInfo", "SplitEnumerator", "SplitEnumeratorContext"]

T = TypeVar("T")


@dataclass(frozen=True)
class ReaderInfo:
    """A reader that can be given splits.

    Attributes:
        subtask_id: of the source, from 0.
        location: host of its TaskManager.
    """

    subtask_id: int
    location: str


class SplitEnumeratorContext(ABC):
    """What an enumerator may do and ask. Only ``run_in_coordinator_thread`` may be called from other threads."""

    @abstractmethod
    def current_parallelism(self) -> int:
        """Number of the source's subtasks."""

    @abstractmethod
    def registered_readers(self) -> Mapping[int, ReaderInfo]:
        """The readers that run, by subtask."""

    @abstractmethod
    def assign_split(self, split: Split, subtask_id: int) -> None:
        """Give a split to a reader.

        Raises:
            ProgramError: there is no such reader, or it was told that no more splits come; the split is no ``Split``,
                or not plain data and the source has no serializer; the enumerator is asked for its state right now.
        """

    def assign_splits(self, assignment: Mapping[int, Sequence[Split]]) -> None:
        """Give several readers splits.

        Args:
            assignment: by subtask.

        Raises:
            ProgramError: as for ``assign_split``.
        """
        for subtask_id, splits in assignment.items():
            for split in splits:
                self.assign_split(split, subtask_id)

    @abstractmethod
    def signal_no_more_splits(self, subtask_id: int) -> None:
        """After what it was given so far, nothing will come for this reader; said again, it changes nothing.

        Raises:
            ProgramError: there is no such reader.
        """

    @abstractmethod
    def call_async(
        self,
        callable: Callable[[], T],
        handler: Callable[[T | None, BaseException | None], None],
        initial_delay_ms: int = 0,
        period_ms: int | None = None,
    ) -> None:
        """Have something done by another thread, and its result handed to the enumerator's own.

        Args:
            callable: may block. It must not touch what the enumerator's methods use.
            handler: called with the result, or with what was raised; what it raises itself fails the task.
            initial_delay_ms: wait so long before.
            period_ms: do it again and again, so long after one another; a call that takes longer delays the next one.
                None = once.
        """

    @abstractmethod
    def run_in_coordinator_thread(self, runnable: Callable[[], None]) -> None:
        """Have something done by the enumerator's thread; from any thread. What it raises fails the task."""

    @property
    def settings(self) -> Settings:
        """Options of the job that slots read, as those of object stores; the defaults where no task runs."""
        return Settings()

    def runtime_context(self) -> RuntimeContext | None:
        """What functions are opened with: metrics, job parameters; None where there is no task, as in tests."""
        return None


class SplitEnumerator(ABC):
    """Hands out splits; see the module.

    Life: ``start``; then readers, requests, and checkpoints in any order; ``close``. After a restart all readers are
    added anew.
    """

    def start(self) -> None:  # noqa: B027 - most have nothing to do
        """Called once, before anything else."""

    @abstractmethod
    def handle_split_request(self, subtask_id: int, requester_hostname: str | None) -> None:
        """A reader has nothing left to read. Give it a split, tell it that there is none, or do so later.

        It does not ask again before it has got something.

        Args:
            subtask_id: of the reader, which is registered.
            requester_hostname: host of its TaskManager; None = not known.
        """

    @abstractmethod
    def add_splits_back(self, splits: Sequence[Split], subtask_id: int) -> None:
        """These were assigned, and did not get into the checkpoint that the job goes on from: assign them again.

        Called behind ``start``, before any reader is added.

        Args:
            splits: as they were assigned.
            subtask_id: of the reader that they were assigned to; after a rescaling there may be no such one.
        """

    def add_reader(self, subtask_id: int) -> None:  # noqa: B027 - those that only answer requests need nothing
        """A reader runs now, and can be given splits."""

    @abstractmethod
    def snapshot_state(self, checkpoint_id: int) -> Any:
        """All that ``Source.restore_enumerator`` needs, such as the splits that are not assigned yet.

        JSON-able, or whatever ``Source.get_enumerator_checkpoint_serializer`` takes. What it raises makes the
        checkpoint fail, not the task.
        """

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:  # noqa: B027 - most have nothing to do
        """A checkpoint is complete, and with it all before it; calls may be missing. What it raises fails the task."""

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:  # noqa: B027 - most have nothing to do
        """A checkpoint was given up; calls may be missing."""

    def close(self) -> None:  # noqa: B027 - most have nothing to do
        """Release everything; called exactly once, last, also after a failure."""
