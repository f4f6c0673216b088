"""The contexts that ``CheckpointedFunction`` gets when it is initialised, and at each checkpoint."""

from __future__ import annotations

from typing_extensions import override

from firesteel.functions.checkpointed import FunctionInitializationContext, FunctionSnapshotContext
from firesteel.functions.functions import KeyedStateStore
from firesteel.functions.state import OperatorStateStore
from firesteel.runtime.operator_base.context import need_keyed
from firesteel.state.backend import KeyedStateBackend
from firesteel.state.operator_state import HeapOperatorState


class InitializationContext(FunctionInitializationContext):
    """The context of ``initialize_state``.

    Args:
        operator: name of the operator.
        operator_state: operator state of the operator.
        keyed: its keyed state, if it has some.
        restored: whether the job goes on from a checkpoint.
    """

    def __init__(
        self, operator: str, operator_state: HeapOperatorState, keyed: KeyedStateBackend | None, *, restored: bool
    ) -> None:
        self._operator, self._operator_state, self._keyed = operator, operator_state, keyed
        self._restored = restored

    @override
    def is_restored(self) -> bool:
        return self._restored

    def get_operator_state_store(self) -> OperatorStateStore:
        return self._operator_state

    def get_keyed_state_store(self) -> KeyedStateStore:
        return need_keyed(self._operator, self._keyed)


class SnapshotContext(FunctionSnapshotContext):
    """The context of ``snapshot_state``.

    Attributes:
        checkpoint_id: id of the checkpoint.
        timestamp: when it was triggered, epoch milliseconds.
    """

    def __init__(self, checkpoint_id: int, timestamp: int) -> None:
        self.checkpoint_id, self.timestamp = checkpoint_id, timestamp

    @override
    def get_checkpoint_id(self) -> int:
        return self.checkpoint_id

    @override
    def get_checkpoint_timestamp(self) -> int:
        return self.timestamp
