"""``ExternalizedCheckpointRetention``, under PyFlink's name."""

from __future__ import annotations

from enum import Enum

__all__ = ["ExternalizedCheckpointCleanup", "ExternalizedCheckpointRetention"]


class ExternalizedCheckpointRetention(Enum):
    """What becomes of a job's last checkpoint when the job is cancelled."""

    DELETE_ON_CANCELLATION = "DELETE_ON_CANCELLATION"
    RETAIN_ON_CANCELLATION = "RETAIN_ON_CANCELLATION"
    NO_EXTERNALIZED_CHECKPOINTS = "NO_EXTERNALIZED_CHECKPOINTS"


ExternalizedCheckpointCleanup = ExternalizedCheckpointRetention
"""Its name in PyFlink 1.x."""
