"""What the ResourceManager takes from the cluster's settings."""

from __future__ import annotations

from dataclasses import dataclass

from firesteel.config import Settings
from firesteel.config.options import (
    HEARTBEAT_INTERVAL,
    HEARTBEAT_RPC_FAILURE_THRESHOLD,
    HEARTBEAT_TIMEOUT,
    RESOURCEMANAGER_JOB_TIMEOUT,
    RESOURCEMANAGER_REGISTRATION_TIMEOUT,
    RESOURCEMANAGER_START_UP_TIME,
    RESOURCEMANAGER_TASKMANAGER_TIMEOUT,
    SLOT_REQUEST_TIMEOUT,
    SLOTMANAGER_MAX_SLOTS,
    SLOTMANAGER_MIN_SLOTS,
    SPARK_SPARE_CORES,
    START_WORKER_MAX_FAILURE_RATE,
    START_WORKER_RETRY_INTERVAL,
    TASKMANAGER_SLOTS,
)


@dataclass(frozen=True)
class WorkerSettings:
    """How workers are started and stopped; seconds.

    Attributes:
        slots: of each worker: ``taskmanager.numberOfTaskSlots``.
        idle_timeout: ``resourcemanager.taskmanager-timeout``.
        registration_timeout: ``resourcemanager.taskmanager-registration.timeout``.
        max_failures: failed starts in a minute: ``resourcemanager.start-worker.max-failure-rate``.
        retry_interval: ``resourcemanager.start-worker.retry-interval``.
        min_slots: ``slotmanager.number-of-slots.min``.
    """

    slots: int = 1
    idle_timeout: float = 30.0
    registration_timeout: float = 300.0
    max_failures: float = 10.0
    retry_interval: float = 3.0
    min_slots: int = 0


@dataclass(frozen=True)
class ResourceManagerSettings:
    """Seconds throughout.

    Attributes:
        heartbeat_interval, heartbeat_timeout: ``heartbeat.interval`` and ``heartbeat.timeout``.
        failure_threshold: ``heartbeat.rpc-failure-threshold``; 0 = failed calls do not count.
        slot_request_timeout: ``slot.request.timeout``.
        start_up_time: how long after the start a job may need more slots than there are without being told so.
        empty_start_up_time: the same while no TaskManager at all has registered.
        job_timeout: ``resourcemanager.job.timeout``.
        max_slots: ``slotmanager.number-of-slots.max``.
        spare_cores: of each executor, beside those of slots.
        workers: for providers that start them.
    """

    heartbeat_interval: float = 10.0
    heartbeat_timeout: float = 50.0
    failure_threshold: int = 2
    slot_request_timeout: float = 300.0
    start_up_time: float = 0.0
    empty_start_up_time: float = 300.0
    job_timeout: float = 300.0
    max_slots: int = 2**31 - 1
    spare_cores: int = 1
    workers: WorkerSettings = WorkerSettings()

    @classmethod
    def from_settings(cls, settings: Settings, *, embedded: bool) -> ResourceManagerSettings:
        """Read the options.

        Args:
            settings: of the cluster.
            embedded: all TaskManagers are there from the start: a job that needs more than they have is told at once.

        Raises:
            ConfigurationError: one has a bad value.
        """
        slot_request_timeout = settings.get(SLOT_REQUEST_TIMEOUT).total_seconds()
        configured = settings.get(RESOURCEMANAGER_START_UP_TIME)
        start_up_time = slot_request_timeout if configured is None else configured.total_seconds()
        return cls(
            heartbeat_interval=settings.get(HEARTBEAT_INTERVAL).total_seconds(),
            heartbeat_timeout=settings.get(HEARTBEAT_TIMEOUT).total_seconds(),
            failure_threshold=max(0, settings.get(HEARTBEAT_RPC_FAILURE_THRESHOLD)),
            slot_request_timeout=slot_request_timeout,
            start_up_time=0.0 if embedded and configured is None else start_up_time,
            empty_start_up_time=start_up_time,
            job_timeout=settings.get(RESOURCEMANAGER_JOB_TIMEOUT).total_seconds(),
            max_slots=settings.get(SLOTMANAGER_MAX_SLOTS),
            spare_cores=settings.get(SPARK_SPARE_CORES),
            workers=WorkerSettings(
                slots=settings.get(TASKMANAGER_SLOTS),
                idle_timeout=settings.get(RESOURCEMANAGER_TASKMANAGER_TIMEOUT).total_seconds(),
                registration_timeout=settings.get(RESOURCEMANAGER_REGISTRATION_TIMEOUT).total_seconds(),
                max_failures=settings.get(START_WORKER_MAX_FAILURE_RATE),
                retry_interval=settings.get(START_WORKER_RETRY_INTERVAL).total_seconds(),
                min_slots=settings.get(SLOTMANAGER_MIN_SLOTS),
            ),
        )
