"""What the ResourceManager takes from the cluster's settings."""

from __future__ import annotations

from dataclasses import dataclass

from firesteel.config import Settings
from firesteel.config.options import HEARTBEAT_INTERVAL, HEARTBEAT_TIMEOUT, SLOT_REQUEST_TIMEOUT


@dataclass(frozen=True)
class ResourceManagerSettings:
    """Seconds throughout.

    Attributes:
        heartbeat_interval, heartbeat_timeout: ``heartbeat.interval`` and ``heartbeat.timeout``.
        slot_request_timeout: ``slot.request.timeout``.
        start_up_time: how long after the start a job may need more slots than there are without being told so; while no
            TaskManager at all has registered, ``slot_request_timeout`` holds instead.
    """

    heartbeat_interval: float = 10.0
    heartbeat_timeout: float = 50.0
    slot_request_timeout: float = 300.0
    start_up_time: float = 0.0

    @classmethod
    def from_settings(cls, settings: Settings) -> ResourceManagerSettings:
        """Read the options.

        Raises:
            ConfigurationError: one has a bad value.
        """
        return cls(
            heartbeat_interval=settings.get(HEARTBEAT_INTERVAL).total_seconds(),
            heartbeat_timeout=settings.get(HEARTBEAT_TIMEOUT).total_seconds(),
            slot_request_timeout=settings.get(SLOT_REQUEST_TIMEOUT).total_seconds(),
        )
