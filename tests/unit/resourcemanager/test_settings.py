"""What the ResourceManager reads from the settings, and which driver of workers it gets."""

from __future__ import annotations

from pathlib import Path

import pytest

from firesteel.config import Settings
from firesteel.core import plugins
from firesteel.core.errors import ConfigurationError
from firesteel.protocol.worker_driver import WorkerDriverContext
from firesteel.testing import ManualClock
from firesteel_resourcemanager.app import DRIVERS
from firesteel_resourcemanager.settings import ResourceManagerSettings


def read(embedded: bool = False, **values: str) -> ResourceManagerSettings:
    settings = Settings({key.replace("__", "-").replace("_", "."): value for key, value in values.items()})
    return ResourceManagerSettings.from_settings(settings, embedded=embedded)


def test_the_start_up_time_is_that_of_slot_requests_unless_it_is_set() -> None:
    found = read(slot_request_timeout="40 s")
    assert (found.start_up_time, found.empty_start_up_time) == (40.0, 40.0)
    found = read(resourcemanager_standalone_start__up__time="7 s")
    assert (found.start_up_time, found.empty_start_up_time) == (7.0, 7.0)


def test_in_embedded_mode_all_taskmanagers_are_there_once_one_is() -> None:
    found = read(embedded=True)
    assert (found.start_up_time, found.empty_start_up_time) == (0.0, 300.0)


def test_defaults_are_flinks() -> None:
    found = read()
    assert (found.job_timeout, found.max_slots, found.failure_threshold) == (300.0, 2**31 - 1, 2)
    workers = found.workers
    assert (workers.idle_timeout, workers.registration_timeout, workers.min_slots) == (30.0, 300.0, 0)
    assert (workers.max_failures, workers.retry_interval, workers.slots) == (10.0, 3.0, 1)


def test_drivers_are_found_by_name_and_an_unknown_name_is_answered_with_the_known_ones(tmp_path: Path) -> None:
    context = WorkerDriverContext(Settings(), "a secret", ManualClock(), tmp_path)
    assert plugins.load(DRIVERS, "local-process")(context).is_active
    assert not plugins.load(DRIVERS, "standalone")(context).is_active
    assert "a secret" not in repr(context)
    with pytest.raises(ConfigurationError, match="local-process, standalone"):
        plugins.load(DRIVERS, "kubernetes")
