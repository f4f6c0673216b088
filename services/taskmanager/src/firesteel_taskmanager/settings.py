"""The settings of a TaskManager, read from those of the cluster and of a job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from firesteel.config import Settings
from firesteel.config.options import (
    HEARTBEAT_INTERVAL,
    HEARTBEAT_TIMEOUT,
    TASK_CANCELLATION_INTERVAL,
    TASK_CANCELLATION_TIMEOUT,
    TASKMANAGER_REGISTRATION_TIMEOUT,
    TASKMANAGER_SLOT_TIMEOUT,
)
from firesteel.service.registration import RegistrationSettings


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
class TaskManagerSettings:
    """Seconds throughout.

    Attributes:
        heartbeat_interval, heartbeat_timeout: ``heartbeat.interval`` and ``heartbeat.timeout``.
        slot_timeout: ``taskmanager.slot.timeout``: an offered slot that its job did not accept by then is freed.
        start_timeout: an allocated slot whose process did not register by then is freed.
        release_grace: a process that was told to end and has not by then is killed.
        cancellation: of jobs that set no values of their own.
        registration: pauses and timeouts of the registration at the ResourceManager.
    """

    heartbeat_interval: float = 10.0
    heartbeat_timeout: float = 50.0
    slot_timeout: float = 10.0
    start_timeout: float = 60.0
    release_grace: float = 2.0
    cancellation: Cancellation = Cancellation()
    registration: RegistrationSettings = field(default_factory=RegistrationSettings)

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
            registration=RegistrationSettings.from_settings(
                settings, timeout=settings.get(TASKMANAGER_REGISTRATION_TIMEOUT).total_seconds()
            ),
        )


def cancellation_of(settings: Settings, job: Mapping[str, str]) -> Cancellation:
    """How tasks of a job are cancelled: by the cluster's settings, with the job's own on top.

    Raises:
        ConfigurationError: one has a bad value.
    """
    return _cancellation(settings.with_layer("program", job))


def _cancellation(settings: Settings) -> Cancellation:
    interval, timeout = settings.get(TASK_CANCELLATION_INTERVAL), settings.get(TASK_CANCELLATION_TIMEOUT)
    return Cancellation(interval.total_seconds(), timeout.total_seconds())
