"""Values that follow from several options together, or from an option and this process."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Final

from firesteel.config import options
from firesteel.config.settings import Settings
from firesteel.core.errors import ConfigurationError

KEYTAB_VARIABLE: Final = "KRB5_CLIENT_KTNAME"
"""MIT's own, of processes that have been given a keytab: ``FILE:/path``."""


def aligned_timeout(settings: Settings) -> timedelta:
    """Returns how long a checkpoint is tried aligned.

    Who enables unaligned ones, and says no more, gets them at once.
    """
    if settings.is_set(options.CHECKPOINTING_UNALIGNED) and not settings.is_set(options.CHECKPOINTING_ALIGNED_TIMEOUT):
        return timedelta(0)
    return settings.get(options.CHECKPOINTING_ALIGNED_TIMEOUT)


def restart_strategy_type(settings: Settings) -> str:
    """The strategy's type: ``none``, ``fixed-delay``, ``failure-rate`` or ``exponential-delay``.

    Args:
        settings: of the job on top of the cluster's.

    Raises:
        ConfigurationError: a value is not valid.
    """
    kind = settings.get(options.RESTART_STRATEGY)
    if kind is None:
        interval = settings.get(options.CHECKPOINTING_INTERVAL)
        return "exponential-delay" if interval is not None and interval > timedelta(0) else "none"
    return kind


def is_reactive(settings: Settings) -> bool:
    """Whether jobs take all slots that there are.

    Raises:
        ConfigurationError: ``scheduler-mode`` says so, and this is no standalone cluster in application mode.
    """
    if settings.get(options.SCHEDULER_MODE) is None:
        return False
    driver = settings.get(options.RESOURCEMANAGER_DRIVER)
    if settings.get(options.APPLICATION_PROGRAM) is None or driver != "standalone":
        raise ConfigurationError(
            f"{options.SCHEDULER_MODE.key}: reactive is for standalone clusters in application mode, whose "
            "TaskManagers are started and stopped by others (standalone-job.sh, or the chart with mode: application): "
            + (
                f"{options.RESOURCEMANAGER_DRIVER.key} is {driver}"
                if driver != "standalone"
                else "this cluster has no program"
            )
        )
    return True


def login_keytab(settings: Settings) -> str | None:
    """``security.kerberos.login.keytab``; rather the one that this process was given, as in containers."""
    named = settings.get(options.KERBEROS_KEYTAB)
    process_keytab = os.environ.get(KEYTAB_VARIABLE, "").removeprefix("FILE:")
    if named is not None and process_keytab and os.path.exists(process_keytab):
        return process_keytab
    return named
