"""What the Dispatcher takes from the cluster's settings."""

from __future__ import annotations

from dataclasses import dataclass

from firesteel.config import Settings
from firesteel.config.options import HEARTBEAT_INTERVAL, HEARTBEAT_TIMEOUT, REST_MAX_CONTENT_LENGTH


@dataclass(frozen=True)
class DispatcherSettings:
    """Seconds and bytes.

    Attributes:
        heartbeat_interval, heartbeat_timeout: ``heartbeat.interval`` and ``heartbeat.timeout``.
        max_content_length: ``rest.server.max-content-length``.
        details_age: details of a running job may be so old.
        kept_jobs: so many ended jobs can still be asked for; older ones are forgotten.
    """

    heartbeat_interval: float = 10.0
    heartbeat_timeout: float = 50.0
    max_content_length: int = 100 << 20
    details_age: float = 0.05
    kept_jobs: int = 100

    @classmethod
    def from_settings(cls, settings: Settings) -> DispatcherSettings:
        """Read the options.

        Raises:
            ConfigurationError: one has a bad value.
        """
        return cls(
            heartbeat_interval=settings.get(HEARTBEAT_INTERVAL).total_seconds(),
            heartbeat_timeout=settings.get(HEARTBEAT_TIMEOUT).total_seconds(),
            max_content_length=settings.get(REST_MAX_CONTENT_LENGTH),
        )
