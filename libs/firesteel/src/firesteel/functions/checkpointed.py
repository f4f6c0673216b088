"""Functions that take part in checkpoints. Flink's names in snake case; PyFlink has no such classes."""

from __future__ import annotations

from abc import ABC, abstractmethod

from firesteel.functions.functions import KeyedStateStore
from firesteel.functions.state import OperatorStateStore

__all__ = ["CheckpointListener", "CheckpointedFunction", "FunctionInitializationContext", "FunctionSnapshotContext"]


class FunctionInitializationContext(ABC):
    """Access to state, and whether it was restored, for ``initialize_state``.

    Examples:
        ```python
        from firesteel.datastream import CheckpointedFunction, MapFunction


        class Greeting(MapFunction, CheckpointedFunction):
            def initialize_state(self, context):
                self.begin = "again" if context.is_restored() else "first"

            def snapshot_state(self, context):
                pass

            def map(self, value):
                return self.begin, value
        ```
    """

    @abstractmethod
    def is_restored(self) -> bool:
        """Returns whether the operator resumes from a checkpoint, even if it has no state there."""

    @abstractmethod
    def get_operator_state_store(self) -> OperatorStateStore:
        """Returns the store of operator state."""

    @abstractmethod
    def get_keyed_state_store(self) -> KeyedStateStore:
        """Returns the store of keyed state.

        Raises:
            ProgramError: the operator is not on a keyed stream.
        """


class FunctionSnapshotContext(ABC):
    """Information about the checkpoint, for ``snapshot_state``.

    Examples:
        ```python
        from firesteel.datastream import CheckpointedFunction, MapFunction


        class Noted(MapFunction, CheckpointedFunction):
            def initialize_state(self, context):
                self.last_checkpoint = None

            def snapshot_state(self, context):
                self.last_checkpoint = context.get_checkpoint_id()

            def map(self, value):
                return value, self.last_checkpoint
        ```
    """

    @abstractmethod
    def get_checkpoint_id(self) -> int:
        """Returns the id of the checkpoint; ids rise from checkpoint to checkpoint."""

    @abstractmethod
    def get_checkpoint_timestamp(self) -> int:
        """Returns when the checkpoint was triggered, in ms since 1970-01-01 UTC."""


class CheckpointedFunction(ABC):
    """Gives a function operator state: derive the function from this class as well.

    Examples:
        ```python
        from firesteel.common import Types
        from firesteel.datastream import CheckpointedFunction, MapFunction, StreamExecutionEnvironment
        from firesteel.datastream.state import ListStateDescriptor


        class Counted(MapFunction, CheckpointedFunction):
            def initialize_state(self, context):
                store = context.get_operator_state_store()
                self.counts = store.get_list_state(ListStateDescriptor("counts", Types.LONG()))
                self.count = sum(self.counts.get() or ())

            def snapshot_state(self, context):
                self.counts.update([self.count])

            def map(self, value):
                self.count += 1
                return self.count


        env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
        print(list(env.from_collection(["a", "b"]).map(Counted()).execute_and_collect()))
        ```

        ```text
        [1, 2]
        ```
    """

    @abstractmethod
    def initialize_state(self, context: FunctionInitializationContext) -> None:
        """Gets the state from its stores, and reads what was restored. Called once in each subtask, before ``open``."""

    @abstractmethod
    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        """Brings the state up to date before a checkpoint, between two records. Be quick: the task waits meanwhile.

        An exception fails the checkpoint, not the task.
        """


class CheckpointListener(ABC):
    """Notifies a function of the end of checkpoints: derive the function from this class as well.

    Both methods are called between two records.

    Examples:
        ```python
        from firesteel.datastream import CheckpointListener, MapFunction


        class Confirm(MapFunction, CheckpointListener):
            def map(self, value):
                return value

            def notify_checkpoint_complete(self, checkpoint_id):
                print("checkpoint", checkpoint_id, "is complete")
        ```
    """

    @abstractmethod
    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """Called when a checkpoint is complete, and with it all earlier ones. Some calls may be missing.

        An exception fails the task.
        """

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:  # noqa: B027 - most have nothing to do
        """Called when a checkpoint was aborted: its changes become part of the next one. Some calls may be missing."""
