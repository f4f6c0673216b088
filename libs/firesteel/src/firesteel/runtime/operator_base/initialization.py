"""What functions with operator state are initialised with, and what they get at a checkpoint."""

from __future__ import annotations

from firesteel.functions.checkpointed import FunctionInitializationContext, FunctionSnapshotContext
from firesteel.functions.functions import KeyedStateStore
from firesteel.functions.state import OperatorStateStore
from firesteel.runtime.operator_base.context import need_keyed
from firesteel.state.backend import KeyedStateBackend
from firesteel.state.operator_state import HeapOperatorState


class InitializationContext(FunctionInitializationContext):
    """Of one operator of one subtask.

    Args:
        operator: its name.
        operator_state: of the operator.
        keyed: its keyed state, if it has some.
        restored: the job goes on from a checkpoint.
    """

    def __init__(
        self, operator: str, operator_state: HeapOperatorState, keyed: KeyedStateBackend | None, *, restored: bool
    ) -> None:
        self._operator, self._operator_state, self._keyed = operator, operator_state, keyed
        self._restored = restored

    def is_restored(self) -> bool:
        """Whether the operator goes on from a checkpoint."""
        return self._restored

    def get_operator_state_store(self) -> OperatorStateStore:
        return self._operator_state

    def get_keyed_state_store(self) -> KeyedStateStore:
        return need_keyed(self._operator, self._keyed)


class SnapshotContext(FunctionSnapshotContext):
    """Of one checkpoint.

    Attributes:
        checkpoint_id: its number.
        timestamp: when it was triggered, epoch milliseconds.
    """

    def __init__(self, checkpoint_id: int, timestamp: int) -> None:
        self.checkpoint_id, self.timestamp = checkpoint_id, timestamp

    def get_checkpoint_id(self) -> int:
        """The number of the checkpoint."""
        return self.checkpoint_id

    def get_checkpoint_timestamp(self) -> int:
        """When it was triggered."""
        return self.timestamp
