"""``CheckpointingMode``, under PyFlink's name."""

from __future__ import annotations

from enum import Enum

__all__ = ["CheckpointingMode"]


class CheckpointingMode(Enum):
    """What a job's state may hold after it went on from a checkpoint.

    Examples:
        ```python
        from firesteel.datastream import CheckpointingMode, StreamExecutionEnvironment

        env = StreamExecutionEnvironment.get_execution_environment()
        env.enable_checkpointing(10_000, CheckpointingMode.AT_LEAST_ONCE)
        ```
    """

    EXACTLY_ONCE = "EXACTLY_ONCE"
    """Each record counts once."""
    AT_LEAST_ONCE = "AT_LEAST_ONCE"
    """A record may count twice; barriers are not aligned."""
