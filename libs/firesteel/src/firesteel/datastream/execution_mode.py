"""``RuntimeExecutionMode``: how a program with bounded input is run."""

from __future__ import annotations

from enum import Enum

__all__ = ["RuntimeExecutionMode"]


class RuntimeExecutionMode(Enum):
    """How a program is run; ``AUTOMATIC`` runs as ``STREAMING`` in this version, ``BATCH`` is refused.

    Examples:
        ```python
        from firesteel.datastream import RuntimeExecutionMode, StreamExecutionEnvironment

        env = StreamExecutionEnvironment.get_execution_environment()
        env.set_runtime_mode(RuntimeExecutionMode.BATCH)  # stages of Spark; the input has to end
        ```
    """

    STREAMING = "STREAMING"
    BATCH = "BATCH"
    AUTOMATIC = "AUTOMATIC"
