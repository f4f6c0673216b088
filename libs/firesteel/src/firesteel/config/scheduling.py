"""Whether a cluster is in reactive mode."""

from __future__ import annotations

from firesteel.config import options
from firesteel.config.settings import Settings
from firesteel.core.errors import ConfigurationError


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
