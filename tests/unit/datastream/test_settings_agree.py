"""A setting counts alike, whether a ``Configuration`` says it when the environment is made, later, or a setter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from firesteel.common import Configuration, ExecutionConfig, RestartStrategies
from firesteel.common.restart_strategy import RestartStrategyConfiguration
from firesteel.common.time import Duration
from firesteel.datastream import (
    CheckpointConfig,
    CheckpointingMode,
    EmbeddedRocksDBStateBackend,
    ExternalizedCheckpointRetention,
    RuntimeExecutionMode,
    StreamExecutionEnvironment,
)
from tests.unit.datastream.fakes import FakeExecutor

RETAINED = ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION
Set = Callable[[Any], Any]


class Setting(NamedTuple):
    """A setting, and what says it.

    Attributes:
        owner: class of the object that has the setter.
        setters: names of the methods that the case covers.
        options: what a ``Configuration`` says.
        set: calls the setter.
        get: gives what is to be the same.
    """

    owner: type
    setters: str
    options: dict[str, Any]
    set: Set
    get: Set


def _plain(value: Any) -> Any:
    """Strategies are compared by what they hold."""
    return (type(value), {**vars(value)}) if isinstance(value, RestartStrategyConfiguration) else value


def checkpoints(setters: str, key: str, value: Any, set_it: Set, get: Set) -> Setting:
    return Setting(CheckpointConfig, setters, {f"execution.checkpointing.{key}": value}, set_it, get)


def program(setters: str, options: dict[str, Any], set_it: Set, get: Set) -> Setting:
    return Setting(StreamExecutionEnvironment, setters, options, set_it, get)


def execution(setters: str, key: str, value: Any, set_it: Set, get: Set) -> Setting:
    return Setting(ExecutionConfig, setters, {key: value}, set_it, get)


SETTINGS = [
    checkpoints("set_checkpoint_interval", "interval", "7 s",
                lambda c: c.set_checkpoint_interval(7000), lambda c: c.get_checkpoint_interval()),
    checkpoints("set_checkpointing_mode", "mode", "AT_LEAST_ONCE",
                lambda c: c.set_checkpointing_mode(CheckpointingMode.AT_LEAST_ONCE),
                lambda c: c.get_checkpointing_mode()),
    checkpoints("set_checkpoint_timeout", "timeout", "7 s",
                lambda c: c.set_checkpoint_timeout(7000), lambda c: c.get_checkpoint_timeout()),
    checkpoints("set_checkpoint_timeout", "timeout", 7000,
                lambda c: c.set_checkpoint_timeout(7000), lambda c: c.get_checkpoint_timeout()),
    checkpoints("set_min_pause_between_checkpoints", "min-pause", "7 s",
                lambda c: c.set_min_pause_between_checkpoints(7000), lambda c: c.get_min_pause_between_checkpoints()),
    checkpoints("set_max_concurrent_checkpoints", "max-concurrent-checkpoints", 3,
                lambda c: c.set_max_concurrent_checkpoints(3), lambda c: c.get_max_concurrent_checkpoints()),
    checkpoints("set_tolerable_checkpoint_failure_number set_fail_on_checkpointing_errors",
                "tolerable-failed-checkpoints", 2**31 - 1, lambda c: c.set_fail_on_checkpointing_errors(False),
                lambda c: c.get_tolerable_checkpoint_failure_number()),
    checkpoints("set_externalized_checkpoint_retention enable_externalized_checkpoints "
                "set_externalized_checkpoint_cleanup", "externalized-checkpoint-retention", "RETAIN_ON_CANCELLATION",
                lambda c: c.set_externalized_checkpoint_retention(RETAINED),
                lambda c: c.get_externalized_checkpoint_retention()),
    checkpoints("enable_unaligned_checkpoints disable_unaligned_checkpoints", "unaligned.enabled", False,
                lambda c: c.disable_unaligned_checkpoints(), lambda c: c.is_unaligned_checkpoints_enabled()),
    checkpoints("enable_unaligned_checkpoints", "unaligned", "false",
                lambda c: c.enable_unaligned_checkpoints(False), lambda c: c.is_unaligned_checkpoints_enabled()),
    checkpoints("set_aligned_checkpoint_timeout set_alignment_timeout", "aligned-checkpoint-timeout", "3 s",
                lambda c: c.set_aligned_checkpoint_timeout(Duration.of_seconds(3)),
                lambda c: c.get_aligned_checkpoint_timeout()),
    checkpoints("set_alignment_timeout", "alignment-timeout", "3 s",
                lambda c: c.set_alignment_timeout(Duration.of_seconds(3)), lambda c: c.get_alignment_timeout()),
    checkpoints("set_force_unaligned_checkpoints", "unaligned.forced", True,
                lambda c: c.set_force_unaligned_checkpoints(), lambda c: c.is_force_unaligned_checkpoints()),
    checkpoints("set_checkpoint_storage set_checkpoint_storage_dir", "dir", "file:///tmp/x",
                lambda c: c.set_checkpoint_storage_dir("file:///tmp/x"),
                lambda c: c.get_checkpoint_storage().get_checkpoint_path()),
    program("enable_checkpointing", {"execution.checkpointing.interval": "7 s"},
            lambda e: e.enable_checkpointing(7000), lambda e: e.get_checkpoint_interval()),
    program("set_parallelism", {"parallelism.default": 5},
            lambda e: e.set_parallelism(5), lambda e: e.get_parallelism()),
    program("set_max_parallelism", {"pipeline.max-parallelism": 77},
            lambda e: e.set_max_parallelism(77), lambda e: e.get_max_parallelism()),
    program("set_buffer_timeout", {"execution.buffer-timeout.interval": "7 ms"},
            lambda e: e.set_buffer_timeout(7), lambda e: e.get_buffer_timeout()),
    program("set_buffer_timeout", {"execution.buffer-timeout": "7 ms"},
            lambda e: e.set_buffer_timeout(7), lambda e: e.get_buffer_timeout()),
    program("set_buffer_timeout", {"execution.buffer-timeout.enabled": False},
            lambda e: e.set_buffer_timeout(-1), lambda e: e.get_buffer_timeout()),
    program("disable_operator_chaining", {"pipeline.operator-chaining.enabled": False},
            lambda e: e.disable_operator_chaining(), lambda e: e.is_chaining_enabled()),
    program("set_runtime_mode", {"execution.runtime-mode": "BATCH"},
            lambda e: e.set_runtime_mode(RuntimeExecutionMode.BATCH),
            lambda e: e._configuration.get_string("execution.runtime-mode", None)),
    program("set_state_backend", {"state.backend.type": "rocksdb"},
            lambda e: e.set_state_backend(EmbeddedRocksDBStateBackend()), lambda e: type(e.get_state_backend())),
    program("enable_changelog_state_backend", {"state.changelog.enabled": True},
            lambda e: e.enable_changelog_state_backend(True), lambda e: e.is_changelog_state_backend_enabled()),
    program("set_default_savepoint_directory", {"execution.checkpointing.savepoint-dir": "file:///tmp/x"},
            lambda e: e.set_default_savepoint_directory("file:///tmp/x"),
            lambda e: e.get_default_savepoint_directory()),
    program("set_restart_strategy", {"restart-strategy.type": "none"},
            lambda e: e.set_restart_strategy(RestartStrategies.no_restart()), lambda e: e.get_restart_strategy()),
    program("set_restart_strategy", {
        "restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.attempts": 3,
        "restart-strategy.fixed-delay.delay": "7 s",
    }, lambda e: e.set_restart_strategy(RestartStrategies.fixed_delay_restart(3, 7000)),
            lambda e: e.get_restart_strategy()),
    execution("set_parallelism", "parallelism.default", 5,
              lambda c: c.set_parallelism(5), lambda c: c.get_parallelism()),
    execution("set_max_parallelism", "pipeline.max-parallelism", 77,
              lambda c: c.set_max_parallelism(77), lambda c: c.get_max_parallelism()),
    execution("set_auto_watermark_interval", "pipeline.auto-watermark-interval", "77 ms",
              lambda c: c.set_auto_watermark_interval(77), lambda c: c.get_auto_watermark_interval()),
    execution("enable_object_reuse disable_object_reuse", "pipeline.object-reuse", True,
              lambda c: c.enable_object_reuse(), lambda c: c.is_object_reuse_enabled()),
    execution("disable_auto_generated_uids enable_auto_generated_uids", "pipeline.auto-generate-uids", False,
              lambda c: c.disable_auto_generated_uids(), lambda c: c.has_auto_generated_uids_enabled()),
    execution("set_global_job_parameters", "pipeline.global-job-parameters", "a:1,b:2",
              lambda c: c.set_global_job_parameters({"a": "1", "b": "2"}), lambda c: c.get_global_job_parameters()),
    execution("set_task_cancellation_interval", "task.cancellation.interval", "77 ms",
              lambda c: c.set_task_cancellation_interval(77), lambda c: c.get_task_cancellation_interval()),
    execution("set_task_cancellation_timeout", "task.cancellation.timeout", "77 ms",
              lambda c: c.set_task_cancellation_timeout(77), lambda c: c.get_task_cancellation_timeout()),
    execution("set_latency_tracking_interval", "metrics.latency.interval", "77 ms",
              lambda c: c.set_latency_tracking_interval(77), lambda c: c.get_latency_tracking_interval()),
    execution("set_use_snapshot_compression", "execution.checkpointing.snapshot-compression", True,
              lambda c: c.set_use_snapshot_compression(True), lambda c: c.is_use_snapshot_compression()),
]  # fmt: skip
NO_OPTION = {
    StreamExecutionEnvironment: {
        "set_default_local_parallelism",  # of the process, not of the program
        "set_python_executable", "set_python_requirements",  # refused or handed on; there is no getter
        "set_stream_time_characteristic",  # Flink has no option since 2.0
    },
    CheckpointConfig: set(),
    ExecutionConfig: {
        # choices among Java's serialisers; whoever sets the options is told so
        "disable_closure_cleaner", "disable_force_avro", "disable_force_kryo", "disable_generic_types",
        "enable_closure_cleaner", "enable_force_avro", "enable_force_kryo", "enable_generic_types",
    },
}  # fmt: skip


def _owner(setting: Setting, environment: StreamExecutionEnvironment) -> Any:
    if setting.owner is CheckpointConfig:
        return environment.get_checkpoint_config()
    return environment.get_config() if setting.owner is ExecutionConfig else environment


def _job(environment: StreamExecutionEnvironment, executor: FakeExecutor) -> dict[str, str]:
    """The settings that reach the job."""
    environment.from_collection([1]).print()
    environment.execute()
    plain: dict[str, str] = executor.configurations[-1].to_dict()
    return plain


@pytest.mark.parametrize(
    "setting", SETTINGS, ids=lambda setting: f"{setting.owner.__name__} {'+'.join(setting.options)}"
)
def test_a_configuration_says_what_a_setter_says(setting: Setting) -> None:
    configuration = Configuration.from_dict(setting.options)
    made_with = StreamExecutionEnvironment(configuration, executor=FakeExecutor())
    configured = StreamExecutionEnvironment(executor=FakeExecutor())
    before = _plain(setting.get(_owner(setting, configured))) if "dir" not in setting.setters else None
    configured.configure(configuration)
    by_setter = StreamExecutionEnvironment(executor=FakeExecutor())
    setting.set(_owner(setting, by_setter))
    values = [_plain(setting.get(_owner(setting, config))) for config in (made_with, configured, by_setter)]
    assert values[0] == values[1] == values[2]
    assert before != values[0], "the case would pass if nothing counted"


@pytest.mark.parametrize("owner", [StreamExecutionEnvironment, CheckpointConfig, ExecutionConfig])
def test_no_setter_is_left_out(owner: type) -> None:
    setters = {name for name in dir(owner) if name.startswith(("set_", "enable_", "disable_"))}
    covered = {name for setting in SETTINGS if setting.owner is owner for name in setting.setters.split()}
    assert setters == covered | NO_OPTION[owner]


def test_the_job_gets_what_the_environment_was_made_with() -> None:
    """What a program says arrives as it was said; old names are translated where options are read."""
    options = {
        key: value for setting in SETTINGS for key, value in setting.options.items() if "runtime-mode" not in key
    }
    executor = FakeExecutor()
    job = _job(StreamExecutionEnvironment(Configuration.from_dict(options), executor=executor), executor)
    assert {key: job.get(key) for key in options} == {
        key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in options.items()
    }


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        (None, []), ("", []), ("a", ["a"]), ("a;b", ["a", "b"]), ("[a, b]", ["a", "b"]), ("[]", []),
        ("['a,b', \"c\"]", ["a,b", "c"]), (" [ a ,b ] ", ["a", "b"]), ("file:///a.jar;file:///b.jar", ["file:///a.jar", "file:///b.jar"]),
        ("[http://a:1/x, 2]", ["http://a:1/x", "2"]), ("- a\n- b", ["a", "b"]),
    ],
)  # fmt: skip
def test_lists_are_read_as_pyflink_reads_them(text: str | None, parsed: list[str]) -> None:
    assert Configuration.parse_list_value(text) == parsed
