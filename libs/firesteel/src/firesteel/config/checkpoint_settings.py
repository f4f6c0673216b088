"""What several options of checkpoints mean together."""

from __future__ import annotations

from datetime import timedelta

from firesteel.config import options
from firesteel.config.settings import Settings


def aligned_timeout(settings: Settings) -> timedelta:
    """Returns how long a checkpoint is tried aligned.

    Who enables unaligned ones, and says no more, gets them at once.
    """
    if settings.is_set(options.CHECKPOINTING_UNALIGNED) and not settings.is_set(options.CHECKPOINTING_ALIGNED_TIMEOUT):
        return timedelta(0)
    return settings.get(options.CHECKPOINTING_ALIGNED_TIMEOUT)
