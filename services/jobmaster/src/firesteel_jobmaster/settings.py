"""What the JobMaster takes from the configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from firesteel.config import Settings, options

_READ_IN_SLOTS: Final = (
    options.BATCH_MAX_RECORDS,
    options.EXCHANGE_CHANNEL_WINDOW,
    options.EXCHANGE_MAX_CHUNK,
    options.PIPELINE_GLOBAL_JOB_PARAMETERS,
)


@dataclass(frozen=True)
class JobMasterSettings:
    """Seconds throughout.

    Attributes:
        heartbeat_interval, heartbeat_timeout, heartbeat_failures: ``heartbeat.interval``, ``heartbeat.timeout``,
            ``heartbeat.rpc-failure-threshold`` (0 = failed calls do not count).
        slot_request_timeout: ``slot.request.timeout``: a job that has not got all its slots by then fails.
        slot_idle_timeout: ``slot.idle.timeout``: a slot all of whose tasks have finished goes back after so long.
        cancellation_timeout: ``task.cancellation.timeout``; 0 = wait for ever.
        splits_interval: how often a subtask that found no split, but may later, is offered some.
        registration_initial, registration_max, error_delay, refused_delay: ``cluster.registration.*``: until the next
            try of a registration that did not arrive (doubling), in which its service failed, or which it refused.
        for_slots: what the cluster says about options that slots read; a job's own settings come on top.
    """

    heartbeat_interval: float = 10.0
    heartbeat_timeout: float = 50.0
    heartbeat_failures: int = 2
    slot_request_timeout: float = 300.0
    slot_idle_timeout: float = 50.0
    cancellation_timeout: float = 180.0
    splits_interval: float = 1.0
    registration_initial: float = 0.1
    registration_max: float = 30.0
    error_delay: float = 10.0
    refused_delay: float = 30.0
    for_slots: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, settings: Settings, job: Mapping[str, str] | None = None) -> JobMasterSettings:
        """From the cluster's settings, with those of a job on top.

        Raises:
            ConfigurationError: a value is not valid.
        """
        all_of_them = settings.with_layer("program", job) if job else settings
        return cls(
            heartbeat_interval=settings.get(options.HEARTBEAT_INTERVAL).total_seconds(),
            heartbeat_timeout=settings.get(options.HEARTBEAT_TIMEOUT).total_seconds(),
            heartbeat_failures=max(0, settings.get(options.HEARTBEAT_RPC_FAILURE_THRESHOLD)),
            slot_request_timeout=all_of_them.get(options.SLOT_REQUEST_TIMEOUT).total_seconds(),
            slot_idle_timeout=all_of_them.get(options.SLOT_IDLE_TIMEOUT).total_seconds(),
            registration_initial=settings.get(options.REGISTRATION_INITIAL_TIMEOUT).total_seconds(),
            registration_max=settings.get(options.REGISTRATION_MAX_TIMEOUT).total_seconds(),
            error_delay=settings.get(options.REGISTRATION_ERROR_DELAY).total_seconds(),
            refused_delay=settings.get(options.REGISTRATION_REFUSED_DELAY).total_seconds(),
            cancellation_timeout=all_of_them.get(options.TASK_CANCELLATION_TIMEOUT).total_seconds(),
            for_slots=settings.slice(_READ_IN_SLOTS).to_plain(),
        )
