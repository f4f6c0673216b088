"""Functions with operator state. Flink's names in snake case; PyFlink has no such class.

This version takes no checkpoints: ``initialize_state`` is called before ``open`` with nothing restored, and nobody
calls ``snapshot_state``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from firesteel.functions.functions import KeyedStateStore
from firesteel.functions.state import OperatorStateStore

__all__ = ["CheckpointedFunction", "FunctionInitializationContext", "FunctionSnapshotContext"]


class FunctionInitializationContext(ABC):
    """What ``initialize_state`` may ask."""

    @abstractmethod
    def is_restored(self) -> bool:
        """Returns whether state was restored; False in this version, which has no checkpoints."""

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
        """Brings the state up to date before a checkpoint. Not called in this version, which has no checkpoints."""
