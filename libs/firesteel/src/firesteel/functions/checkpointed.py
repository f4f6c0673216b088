"""Functions that take part in checkpoints. Flink's names in snake case; PyFlink has no such classes."""

from __future__ import annotations

from abc import ABC, abstractmethod

from firesteel.functions.functions import KeyedStateStore
from firesteel.functions.state import OperatorStateStore

__all__ = ["CheckpointListener", "CheckpointedFunction", "FunctionInitializationContext", "FunctionSnapshotContext"]


class FunctionInitializationContext(ABC):
    """What ``initialize_state`` may ask."""

    @abstractmethod
    def is_restored(self) -> bool:
        """Returns whether the operator goes on from a checkpoint; True also if it had no state there."""

    @abstractmethod
    def get_operator_state_store(self) -> OperatorStateStore:
        """Returns where operator state comes from."""

    @abstractmethod
    def get_keyed_state_store(self) -> KeyedStateStore:
        """Returns where keyed state comes from.

        Raises:
            ProgramError: the operator is not on a keyed stream.
        """


class FunctionSnapshotContext(ABC):
    """What ``snapshot_state`` may ask."""

    @abstractmethod
    def get_checkpoint_id(self) -> int:
        """Returns the number of the checkpoint."""

    @abstractmethod
    def get_checkpoint_timestamp(self) -> int:
        """Returns when it was triggered, ms since 1970-01-01 UTC."""


class CheckpointedFunction(ABC):
    """Derive a function from this class as well to give it operator state.

    Example: ``class Buffering(MapFunction, CheckpointedFunction)``.
    """

    @abstractmethod
    def initialize_state(self, context: FunctionInitializationContext) -> None:
        """Called once in each subtask, before ``open``: asks for the state, and takes over what was restored."""

    @abstractmethod
    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        """Brings the state up to date before a checkpoint, between two records. It should be quick: the task waits.

        What it raises makes the checkpoint fail, not the task.
        """


class CheckpointListener(ABC):
    """Derive a function from this class as well to hear how checkpoints end. Both calls come between two records."""

    @abstractmethod
    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """The checkpoint is complete, and with it all before it. Calls may be missing: it may be called for 5 after 3.

        What it raises fails the task.
        """

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:  # noqa: B027 - most have nothing to do
        """The checkpoint was given up: what belongs to it belongs to the next one. Calls may be missing."""
