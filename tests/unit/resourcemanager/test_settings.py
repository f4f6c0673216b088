"""What the ResourceManager reads from the settings, and which provider it gets."""

from __future__ import annotations

from pathlib import Path

import pytest

from firesteel.config import Settings
from firesteel.core import plugins
from firesteel.core.errors import ConfigurationError, FleetError
from firesteel.protocol.provider import ProviderContext, WorkerError, WorkerSpec
from firesteel.runtime.slot.slot_main import slot_main
from firesteel.spark.hosted_provider import HostedProvider
from firesteel.testing import ManualClock
from firesteel_resourcemanager.app import PROVIDERS, create_service, load_provider
from firesteel_resourcemanager.settings import ResourceManagerSettings


def read(embedded: bool = False, **values: str) -> ResourceManagerSettings:
    settings = Settings({key.replace("__", "-").replace("_", "."): value for key, value in values.items()})
    return ResourceManagerSettings.from_settings(settings, embedded=embedded)


def test_the_start_up_time_is_that_of_slot_requests_unless_it_is_set() -> None:
    settings = read(slot_request_timeout="40 s")
    assert (settings.start_up_time, settings.empty_start_up_time) == (40.0, 40.0)
    settings = read(resourcemanager_standalone_start__up__time="7 s")
    assert (settings.start_up_time, settings.empty_start_up_time) == (7.0, 7.0)


def test_in_embedded_mode_all_taskmanagers_are_there_once_one_is() -> None:
    settings = read(embedded=True)
    assert (settings.start_up_time, settings.empty_start_up_time) == (0.0, 300.0)


def test_defaults_are_flinks() -> None:
    settings = read()
    assert (settings.job_timeout, settings.max_slots, settings.failure_threshold) == (300.0, 2**31 - 1, 2)
    workers = settings.workers
    assert (workers.idle_timeout, workers.registration_timeout, workers.min_slots) == (30.0, 300.0, 0)
    assert (workers.max_failures, workers.retry_interval, workers.slots) == (10.0, 3.0, 1)


def context(directory: Path, name: str) -> ProviderContext:
    settings = Settings({"firesteel.resourcemanager.driver": name})
    return ProviderContext(settings, "a secret", ManualClock(), directory, slot_main)


def test_providers_are_found_by_name_and_an_unknown_name_is_answered_with_the_known_ones(tmp_path: Path) -> None:
    local, standalone = (load_provider(context(tmp_path, name)) for name in ("local-process", "standalone"))
    assert local.is_active
    assert not standalone.is_active
    for settings in (local, standalone):
        assert not settings.is_embedded
        assert settings.fleet.slots_outlive_driver
    assert "a secret" not in repr(context(tmp_path, "standalone"))
    with pytest.raises(ConfigurationError, match="kubernetes, local-process, standalone"):
        load_provider(context(tmp_path, "mesos"))
    assert not list(tmp_path.iterdir())


def test_a_plug_in_that_is_no_provider_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(plugins.BUILT_IN, PROVIDERS, {"mine": "builtins:repr"})
    with pytest.raises(ConfigurationError, match=r"resourcemanager.driver: 'mine' is str, which is not derived from"):
        load_provider(context(tmp_path, "mine"))


def test_a_provider_is_one_class(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(plugins.BUILT_IN, PROVIDERS, {"mine": f"{__name__}:Mine"})
    provider = load_provider(context(tmp_path, "mine"))
    service = create_service(settings=Settings(), secret="a secret", clock=ManualClock(), provider=provider)
    assert service.core.workers.is_active
    assert provider.recover("http://127.0.0.1:8082") == []
    with pytest.raises(WorkerError, match="no JVM to ask"):
        provider.start_worker(WorkerSpec("one", 2))


class Mine(HostedProvider):
    """Asks for workers through the JVM of its fleet."""

    is_active = True

    def start_worker(self, spec: WorkerSpec) -> None:
        try:
            self.fleet.in_jvm(lambda jvm: jvm.org.example.Cluster.start(spec.worker_id, spec.slots))
        except FleetError as error:
            raise WorkerError(str(error)) from error
