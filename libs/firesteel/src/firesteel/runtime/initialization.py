"""What functions with operator state are initialised with."""

from __future__ import annotations

from firesteel.core.errors import ProgramError
from firesteel.functions.checkpointed import FunctionInitializationContext
from firesteel.functions.functions import KeyedStateStore
from firesteel.functions.state import OperatorStateStore
from firesteel.state.backend import KeyedStateBackend
from firesteel.state.operator_state import HeapOperatorState


class InitializationContext(FunctionInitializationContext):
    """Of one operator of one subtask. Nothing is ever restored: there are no checkpoints."""

    def __init__(self, operator: str, operator_state: HeapOperatorState, keyed: KeyedStateBackend | None) -> None:
        self._operator, self._operator_state, self._keyed = operator, operator_state, keyed

    def is_restored(self) -> bool:
        """False."""
        return False

    def get_operator_state_store(self) -> OperatorStateStore:
        """The operator's."""
        return self._operator_state

    def get_keyed_state_store(self) -> KeyedStateStore:
        """The operator's."""
        if self._keyed is None:
            raise ProgramError(
                f"operator {self._operator!r} asks for keyed state but is not on a keyed stream: "
                "call key_by() before it"
            )
        return self._keyed
