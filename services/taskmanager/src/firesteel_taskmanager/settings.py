"""What the TaskManager takes from the settings of the cluster, and of a job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from firesteel.config import Settings
from firesteel.config.options import (
    HEARTBEAT_INTERVAL,
    HEARTBEAT_TIMEOUT,
    REGISTRATION_ERROR_DELAY,
    REGISTRATION_INITIAL_TIMEOUT,
    REGISTRATION_MAX_TIMEOUT,
    REGISTRATION_REFUSED_DELAY,
    TASK_CANCELLATION_INTERVAL,
    TASK_CANCELLATION_TIMEOUT,
    TASKMANAGER_REGISTRATION_TIMEOUT,
    TASKMANAGER_SLOT_TIMEOUT,
)


@dataclass(frozen=True)
class Cancellation:
    """How a job's tasks are cancelled; seconds.

    Attributes:
        interval: ``task.cancellation.interval``.
        timeout: ``task.cancellation.timeout``; 0 = never kill.
    """

    interval: float = 30.0
    timeout: float = 180.0


@dataclass(frozen=True)
class RegistrationSettings:
    """Seconds throughout.

    Attributes:
        first_pause, longest_pause: ``cluster.registration.initial-timeout`` and ``max-timeout``: after no answer.
        error_pause: ``cluster.registration.error-delay``.
        refused_pause: ``cluster.registration.refused-registration-delay``.
        timeout: ``taskmanager.registration.timeout``.
        heartbeat_timeout: ``heartbeat.timeout``.
    """

    first_pause: float = 0.1
    longest_pause: float = 30.0
    error_pause: float = 10.0
    refused_pause: float = 30.0
    timeout: float = 300.0
    heartbeat_timeout: float = 50.0

    @classmethod
    def from_settings(cls, settings: Settings) -> RegistrationSettings:
        """Read the options.

        Raises:
            ConfigurationError: one has a bad value.
        """
        return cls(
            first_pause=settings.get(REGISTRATION_INITIAL_TIMEOUT).total_seconds(),
            longest_pause=settings.get(REGISTRATION_MAX_TIMEOUT).total_seconds(),
            error_pause=settings.get(REGISTRATION_ERROR_DELAY).total_seconds(),
            refused_pause=settings.get(REGISTRATION_REFUSED_DELAY).total_seconds(),
            timeout=settings.get(TASKMANAGER_REGISTRATION_TIMEOUT).total_seconds(),
            heartbeat_timeout=settings.get(HEARTBEAT_TIMEOUT).total_seconds(),
        )


@dataclass(frozen=True)
class TaskManagerSettings:
    """Seconds throughout.

    Attributes:
        heartbeat_interval, heartbeat_timeout: ``heartbeat.interval`` and ``heartbeat.timeout``.
        slot_timeout: ``taskmanager.slot.timeout``: an offered slot that its job did not accept by then is freed.
        start_timeout: an allocated slot whose process did not register by then is freed.
        release_grace: a process that was told to return and has not by then is killed.
        cancellation: for jobs that do not say.
        registration: at the ResourceManager.
    """

    heartbeat_interval: float = 10.0
    heartbeat_timeout: float = 50.0
    slot_timeout: float = 10.0
    start_timeout: float = 60.0
    release_grace: float = 2.0
    cancellation: Cancellation = Cancellation()
    registration: RegistrationSettings = RegistrationSettings()

    @classmethod
    def from_settings(cls, settings: Settings) -> TaskManagerSettings:
        """Read the options.

        Raises:
            ConfigurationError: one has a bad value.
        """
        return cls(
            heartbeat_interval=settings.get(HEARTBEAT_INTERVAL).total_seconds(),
            heartbeat_timeout=settings.get(HEARTBEAT_TIMEOUT).total_seconds(),
            slot_timeout=settings.get(TASKMANAGER_SLOT_TIMEOUT).total_seconds(),
            cancellation=_cancellation(settings),
            registration=RegistrationSettings.from_settings(settings),
        )


def cancellation_of(settings: Settings, job: Mapping[str, str]) -> Cancellation:
    """What the cluster says, with a job's own settings on top.

    Raises:
        ConfigurationError: one has a bad value.
    """
    return _cancellation(settings.with_layer("program", job))


def _cancellation(settings: Settings) -> Cancellation:
    interval, timeout = settings.get(TASK_CANCELLATION_INTERVAL), settings.get(TASK_CANCELLATION_TIMEOUT)
    return Cancellation(interval.total_seconds(), timeout.total_seconds())
