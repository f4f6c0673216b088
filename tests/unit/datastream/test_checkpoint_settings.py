"""What a program says about checkpoints, state backends and restarts is checked, kept, and reaches the job."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from firesteel.common import Configuration, RestartStrategies
from firesteel.common.time import Duration
from firesteel.core.errors import ConfigurationError, UnsupportedFeatureError
from firesteel.datastream import (
    CheckpointingMode,
    CustomCheckpointStorage,
    CustomStateBackend,
    EmbeddedRocksDBStateBackend,
    ExternalizedCheckpointRetention,
    FileSystemCheckpointStorage,
    HashMapStateBackend,
    JobManagerCheckpointStorage,
    PredefinedOptions,
    StreamExecutionEnvironment,
)
from tests.unit.datastream.fakes import FakeExecutor


def test_barriers_overtake_by_default_after_a_while(env: StreamExecutionEnvironment) -> None:
    config = env.get_checkpoint_config()
    assert config.is_unaligned_checkpoints_enabled(), "Flink's default is no"
    assert config.get_aligned_checkpoint_timeout() == Duration.of_seconds(30)
    config.enable_unaligned_checkpoints()
    assert config.get_aligned_checkpoint_timeout() == Duration.of_millis(0), "as in Flink"
    config.disable_unaligned_checkpoints()
    assert not config.is_unaligned_checkpoints_enabled()


def test_the_defaults_are_flinks(env: StreamExecutionEnvironment) -> None:
    config = env.get_checkpoint_config()
    assert not config.is_checkpointing_enabled()
    assert config.get_checkpoint_interval() == env.get_checkpoint_interval() == -1
    assert config.get_checkpoint_timeout() == 600_000
    assert config.get_min_pause_between_checkpoints() == 0
    assert config.get_max_concurrent_checkpoints() == 1
    assert config.get_tolerable_checkpoint_failure_number() == 0
    assert config.is_fail_on_checkpointing_errors()
    assert not config.is_externalized_checkpoints_enabled()
    assert config.get_checkpointing_mode() is CheckpointingMode.EXACTLY_ONCE
    assert env.is_changelog_state_backend_enabled() is None
    assert env.get_default_savepoint_directory() is None
    assert env.get_state_backend() is None


def test_enable_checkpointing_sets_interval_and_mode(env: StreamExecutionEnvironment) -> None:
    assert env.enable_checkpointing(5_000) is env
    env.enable_checkpointing(6_000, CheckpointingMode.AT_LEAST_ONCE)
    assert env.get_checkpoint_interval() == 6_000
    assert env.get_checkpointing_mode() is env.get_checkpointing_consistency_mode() is CheckpointingMode.AT_LEAST_ONCE


def test_what_is_set_is_read_again_and_reaches_the_job(env: StreamExecutionEnvironment, executor: FakeExecutor) -> None:
    config = env.get_checkpoint_config()
    same = (
        config.set_checkpoint_interval(10_000)
        .set_checkpoint_timeout(20_000)
        .set_min_pause_between_checkpoints(30_000)
        .set_max_concurrent_checkpoints(4)
        .set_tolerable_checkpoint_failure_number(5)
        .set_externalized_checkpoint_retention(ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION)
        .enable_unaligned_checkpoints()
        .set_aligned_checkpoint_timeout(Duration.of_seconds(6))
        .set_force_unaligned_checkpoints()
    )
    assert same is config
    again = env.get_checkpoint_config()
    assert again.is_checkpointing_enabled()
    assert again.get_checkpoint_timeout() == 20_000
    assert again.get_min_pause_between_checkpoints() == 30_000
    assert again.get_max_concurrent_checkpoints() == 4
    assert again.get_tolerable_checkpoint_failure_number() == 5
    assert not again.is_fail_on_checkpointing_errors()
    assert again.get_externalized_checkpoint_retention() is ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION
    assert again.is_unaligned_checkpoints_enabled()
    assert env.is_unaligned_checkpoints_enabled()
    assert again.get_alignment_timeout() == Duration.of_seconds(6)
    assert again.is_force_unaligned_checkpoints()
    assert env.is_force_unaligned_checkpoints()
    env.from_collection([1]).print()
    env.execute()
    job = executor.configurations[-1]
    assert job.get_string("execution.checkpointing.interval", None) == "10 s"
    assert job.get_string("execution.checkpointing.unaligned.enabled", None) == "true"


def test_options_are_what_the_getters_read(env: StreamExecutionEnvironment) -> None:
    env.configure(Configuration.from_dict({"execution.checkpointing.interval": "1 min"}))
    assert env.get_checkpoint_interval() == 60_000


@pytest.mark.parametrize(
    ("method", "argument", "error"),
    [
        ("set_checkpoint_interval", 9, ValueError),
        ("set_checkpoint_interval", "5 s", TypeError),
        ("set_checkpoint_timeout", 0, ValueError),
        ("set_min_pause_between_checkpoints", -1, ValueError),
        ("set_max_concurrent_checkpoints", 0, ValueError),
        ("set_tolerable_checkpoint_failure_number", -1, ValueError),
        ("set_checkpointing_mode", "EXACTLY_ONCE", TypeError),
        ("set_externalized_checkpoint_retention", True, TypeError),
        ("set_aligned_checkpoint_timeout", 5, TypeError),
        ("set_checkpoint_storage", "file:///x", TypeError),
    ],
)
def test_bad_values_are_refused_at_once(
    env: StreamExecutionEnvironment, method: str, argument: Any, error: type[Exception]
) -> None:
    with pytest.raises(error):
        getattr(env.get_checkpoint_config(), method)(argument)


def test_a_bad_option_is_refused_by_name(env: StreamExecutionEnvironment) -> None:
    env.configure(Configuration.from_dict({"execution.checkpointing.max-concurrent-checkpoints": "0"}))
    with pytest.raises(ConfigurationError, match="max-concurrent-checkpoints"):
        env.get_checkpoint_config().get_max_concurrent_checkpoints()


@pytest.mark.parametrize(
    "strategy",
    [
        RestartStrategies.no_restart(),
        RestartStrategies.fall_back_restart(),
        RestartStrategies.fixed_delay_restart(3, timedelta(seconds=2)),
        RestartStrategies.failure_rate_restart(4, timedelta(minutes=5), 250),
    ],
)
def test_restart_strategies_are_kept(env: StreamExecutionEnvironment, strategy: Any) -> None:
    assert env.set_restart_strategy(strategy).get_restart_strategy() == strategy


def test_bad_restart_strategies_are_refused(env: StreamExecutionEnvironment) -> None:
    with pytest.raises(TypeError, match="RestartStrategies"):
        env.set_restart_strategy("fixed-delay")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="at least"):
        env.set_restart_strategy(RestartStrategies.fixed_delay_restart(-1, 5))


def test_state_backends_are_kept(env: StreamExecutionEnvironment, caplog: pytest.LogCaptureFixture) -> None:
    env.set_state_backend(HashMapStateBackend())
    assert isinstance(env.get_state_backend(), HashMapStateBackend)
    assert not caplog.records
    rocks = EmbeddedRocksDBStateBackend(True)
    rocks.set_db_storage_paths("/a", "/b")
    rocks.set_predefined_options(PredefinedOptions.FLASH_SSD_OPTIMIZED)
    rocks.set_number_of_transfer_threads(2)
    env.set_state_backend(rocks)
    again = env.get_state_backend()
    assert isinstance(again, EmbeddedRocksDBStateBackend)
    assert again.to_options() == rocks.to_options()
    assert not caplog.records, "the submission says that there is none"
    assert rocks.get_db_storage_paths() == ["/a", "/b"]
    assert rocks.is_incremental_checkpoints_enabled()
    assert rocks.to_options()["state.backend.rocksdb.localdir"] == "/a,/b"
    assert rocks.to_options()["state.backend.rocksdb.predefined-options"] == "FLASH_SSD_OPTIMIZED"
    with pytest.raises(TypeError, match="StateBackend"):
        env.set_state_backend("rocksdb")  # type: ignore[arg-type]
    with pytest.raises(UnsupportedFeatureError, match="Java class"):
        rocks.set_options("x.Y")
    for wrapped in (CustomStateBackend, CustomCheckpointStorage):
        with pytest.raises(UnsupportedFeatureError, match="Java object"):
            wrapped(object())


@pytest.mark.parametrize(
    "path", ["/data/checkpoints", "/data//checkpoints/", "file:///data/checkpoints", "file:/a b/%41"]
)
def test_paths_are_given_back_as_they_were_set(env: StreamExecutionEnvironment, path: str) -> None:
    config = env.get_checkpoint_config()
    assert config.get_checkpoint_storage() is None
    for storage in (FileSystemCheckpointStorage(path, 1024, 8192), JobManagerCheckpointStorage(path, 4096)):
        assert storage.get_checkpoint_path() == path
        read_back = config.set_checkpoint_storage(storage).get_checkpoint_storage()
        assert type(read_back) is type(storage)
        assert read_back.get_checkpoint_path() == path
        assert read_back.to_options() == storage.to_options()
    read_back = config.set_checkpoint_storage_dir(path).get_checkpoint_storage()
    assert isinstance(read_back, FileSystemCheckpointStorage)
    assert read_back.get_checkpoint_path() == path
    rocks = EmbeddedRocksDBStateBackend()
    rocks.set_db_storage_paths(path, "/b/")
    assert rocks.get_db_storage_paths() == [path, "/b/"]
    backend = env.set_state_backend(rocks).get_state_backend()
    assert isinstance(backend, EmbeddedRocksDBStateBackend)
    assert backend.get_db_storage_paths() == [path, "/b/"]


@pytest.mark.parametrize("key", ["pipeline.operator-chaining.enabled", "pipeline.operator-chaining"])
@pytest.mark.parametrize("value", [False, "false"])
def test_chaining_that_is_configured_is_told(env: StreamExecutionEnvironment, key: str, value: Any) -> None:
    assert env.is_chaining_enabled()
    env.configure(Configuration.from_dict({key: value}))
    assert not env.is_chaining_enabled()


def test_checkpoint_storages_are_kept(env: StreamExecutionEnvironment, executor: FakeExecutor) -> None:
    env.get_checkpoint_config().set_checkpoint_storage(FileSystemCheckpointStorage("/data/checkpoints", 1024, 8192))
    env.from_collection([1]).print()
    env.execute()
    job = executor.configurations[-1]
    assert job.get_string("execution.checkpointing.storage", None) == "filesystem"
    assert job.get_string("execution.checkpointing.dir", None) == "/data/checkpoints"
    assert job.get_string("execution.checkpointing.data-inline-threshold", None) == "1 kb"
    assert JobManagerCheckpointStorage().get_max_state_size() == JobManagerCheckpointStorage.DEFAULT_MAX_STATE_SIZE
    assert JobManagerCheckpointStorage().to_options() == {"execution.checkpointing.storage": "jobmanager"}
    with pytest.raises(ValueError, match="file_state_size_threshold"):
        FileSystemCheckpointStorage("/x", 2 << 20)


def test_savepoint_directory_and_changelog_are_kept(env: StreamExecutionEnvironment) -> None:
    assert env.set_default_savepoint_directory("/s").get_default_savepoint_directory() == "/s"
    assert env.enable_changelog_state_backend(True).is_changelog_state_backend_enabled() is True


def test_settings_that_this_version_has_not_are_warned_about_once(
    env: StreamExecutionEnvironment, caplog: pytest.LogCaptureFixture
) -> None:
    env.enable_checkpointing(1000)
    env.get_checkpoint_config().set_force_unaligned_checkpoints()
    env.set_state_backend(HashMapStateBackend())
    env.from_sequence(1, 2).print()
    env.execute()
    said = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert said == [
        "execution.checkpointing.unaligned.forced = true has no effect in this version: all partitioners take part",
    ]


def test_settings_that_are_usual_are_not_warned_about(
    env: StreamExecutionEnvironment, caplog: pytest.LogCaptureFixture
) -> None:
    env.enable_checkpointing(1000)
    env.from_sequence(1, 2).print()
    env.execute()
    assert caplog.records == []
