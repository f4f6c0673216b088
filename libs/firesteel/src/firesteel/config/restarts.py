"""The restart strategy that settings choose, also where they name none."""

from __future__ import annotations

from datetime import timedelta

from firesteel.config.checkpoint_options import CHECKPOINTING_INTERVAL
from firesteel.config.recovery_options import RESTART_STRATEGY
from firesteel.config.settings import Settings


def restart_strategy_type(settings: Settings) -> str:
    """The strategy's type: ``none``, ``fixed-delay``, ``failure-rate`` or ``exponential-delay``.

    Args:
        settings: of the job on top of the cluster's.

    Raises:
        ConfigurationError: a value is not valid.
    """
    kind = settings.get(RESTART_STRATEGY)
    if kind is None:
        interval = settings.get(CHECKPOINTING_INTERVAL)
        return "exponential-delay" if interval is not None and interval > timedelta(0) else "none"
    return kind
