"""``ExternalizedCheckpointRetention``, under PyFlink's name."""

from __future__ import annotations

from enum import Enum

__all__ = ["ExternalizedCheckpointCleanup", "ExternalizedCheckpointRetention"]


class ExternalizedCheckpointRetention(Enum):
    """What becomes of a job's last checkpoint when the job is cancelled.

    Examples:
        ```python
        from firesteel.datastream import ExternalizedCheckpointRetention, StreamExecutionEnvironment

        config = StreamExecutionEnvironment.get_execution_environment().get_checkpoint_config()
        config.set_externalized_checkpoint_retention(ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION)
        ```
    """

    DELETE_ON_CANCELLATION = "DELETE_ON_CANCELLATION"
    RETAIN_ON_CANCELLATION = "RETAIN_ON_CANCELLATION"
    NO_EXTERNALIZED_CHECKPOINTS = "NO_EXTERNALIZED_CHECKPOINTS"


ExternalizedCheckpointCleanup = ExternalizedCheckpointRetention
"""Its name in PyFlink 1.x."""
