"""The enumerator of a source, as users write it: it finds the splits, and assigns them to readers.

It runs in a slot, in a task of parallelism 1 of its own, beside the source's readers. One thread calls all its methods,
one after the other, so none needs a lock, and a method that waits delays nothing but the enumerator. Work that takes
long is best done by ``SplitEnumeratorContext.call_async``.

Its state is part of the checkpoint, and is taken once all readers have passed the barrier. At that moment each split is
with a reader, or in the enumerator's state, or was assigned but did not reach its reader before the barrier. The last
ones are handed to ``add_splits_back`` when the job resumes from the checkpoint. So a split belongs in the state until
it is assigned, and no longer: every assigned split is read exactly once.

If the enumerator or a reader of the source fails, or its process dies, all of them restart from the last checkpoint,
together with the tasks that exchange records with them.
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
    """A reader to which splits can be assigned.

    Attributes:
        subtask_id: index of the source's subtask, from 0.
        location: host of its TaskManager.

    Examples:
        ```python
        from firesteel.datastream.connectors.base import ReaderInfo

        # registered_readers() of an enumerator's context
        readers = {0: ReaderInfo(0, "node-1"), 1: ReaderInfo(1, "node-2")}
        print([reader.subtask_id for reader in readers.values() if reader.location == "node-2"])
        ```

        ```text
        [1]
        ```
    """

    subtask_id: int
    location: str


class SplitEnumeratorContext(ABC):
    """Access of an enumerator to its readers. Only ``run_in_coordinator_thread`` may be called from other threads.

    Examples:
        ```python
        from firesteel.datastream.connectors.base import Split, SplitEnumeratorContext


        def share_out(files: list[str], context: SplitEnumeratorContext):
            for number, path in enumerate(files):  # in start() of a SplitEnumerator
                readers = sorted(context.registered_readers())
                context.assign_split(Split(path, {"path": path}), readers[number % len(readers)])
        ```
    """

    @abstractmethod
    def current_parallelism(self) -> int:
        """Return the number of the source's subtasks."""

    @abstractmethod
    def registered_readers(self) -> Mapping[int, ReaderInfo]:
        """Return the running readers, by subtask."""

    @abstractmethod
    def assign_split(self, split: Split, subtask_id: int) -> None:
        """Assign a split to a reader.

        Raises:
            ProgramError: there is no such reader, or ``signal_no_more_splits`` was called for it; the split is not a
                ``Split``, or is not plain data and the source has no serializer; or this is called within
                ``snapshot_state``.
        """

    def assign_splits(self, assignment: Mapping[int, Sequence[Split]]) -> None:
        """Assign splits to several readers.

        Args:
            assignment: splits by subtask.

        Raises:
            ProgramError: as for ``assign_split``.
        """
        for subtask_id, splits in assignment.items():
            for split in splits:
                self.assign_split(split, subtask_id)

    @abstractmethod
    def signal_no_more_splits(self, subtask_id: int) -> None:
        """Tell a reader that no further splits will be assigned to it. Repeated calls change nothing.

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
        """Call a function on another thread, and handle its result on the enumerator's own thread.

        Args:
            callable: the function; it may block, and must not touch any state that the enumerator's methods use.
            handler: called with the result, or with the exception; an exception of the handler fails the task.
            initial_delay_ms: pause before the first call.
            period_ms: repeat the call, with this pause after the handler of the call before. None = one call only.
        """

    @abstractmethod
    def run_in_coordinator_thread(self, runnable: Callable[[], None]) -> None:
        """Call a function on the enumerator's thread; may be called from any thread. Its exception fails the task."""

    @property
    def settings(self) -> Settings:
        """Options of the job that slots read, such as those of object stores; the defaults where no task runs."""
        return Settings()

    def runtime_context(self) -> RuntimeContext | None:
        """Return the context that functions are opened with (metrics, job parameters); None if no task runs."""
        return None


class SplitEnumerator(ABC):
    """Finds the splits of a source, and assigns them to readers; the module says how.

    Calls come in this order: ``start``; then readers, requests and checkpoints in any order; ``close``. After a restart
    all readers are added again.

    Examples:
        ```python
        from firesteel.datastream.connectors import Split, SplitEnumerator


        class TwoSplits(SplitEnumerator):
            def __init__(self, context):
                self.context, self.left = context, [Split("a", {}), Split("b", {})]

            def handle_split_request(self, subtask_id, requester_hostname):
                if self.left:
                    self.context.assign_split(self.left.pop(), subtask_id)
                else:
                    self.context.signal_no_more_splits(subtask_id)

            def add_splits_back(self, splits, subtask_id):
                self.left += splits

            def add_reader(self, subtask_id):
                pass

            def snapshot_state(self, checkpoint_id):
                return [split.to_plain() for split in self.left]
        ```
    """

    def start(self) -> None:  # noqa: B027 - most have nothing to do
        """Prepare for requests. Called once, before all other methods."""

    @abstractmethod
    def handle_split_request(self, subtask_id: int, requester_hostname: str | None) -> None:
        """Answer a reader that has read all its splits: assign it one or signal that there are no more, now or later.

        The reader does not request again before it has got an answer.

        Args:
            subtask_id: subtask of the reader, which is registered.
            requester_hostname: host of its TaskManager; None = not known.
        """

    @abstractmethod
    def add_splits_back(self, splits: Sequence[Split], subtask_id: int) -> None:
        """Take back splits that were assigned but are not in the checkpoint that the job resumes from.

        They have to be assigned again. Called after ``start``, before any reader is added.

        Args:
            splits: the splits as they were assigned.
            subtask_id: subtask that they were assigned to; after a rescaling it may no longer exist.
        """

    def add_reader(self, subtask_id: int) -> None:  # noqa: B027 - those that only answer requests need nothing
        """Called when a reader runs, so that splits can be assigned to it."""

    @abstractmethod
    def snapshot_state(self, checkpoint_id: int) -> Any:
        """Return all that ``Source.restore_enumerator`` needs, such as the splits that are not assigned yet.

        It must be JSON-able, or what ``Source.get_enumerator_checkpoint_serializer`` takes. An exception fails the
        checkpoint, not the task.
        """

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:  # noqa: B027 - most have nothing to do
        """Called when a checkpoint is complete; some calls may be missing. An exception fails the task."""

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:  # noqa: B027 - most have nothing to do
        """Called when a checkpoint was aborted; some calls may be missing."""

    def close(self) -> None:  # noqa: B027 - most have nothing to do
        """Release everything; called exactly once, last, also after a failure."""
