"""The settings of a program. Those that ``ExecutionConfig`` has methods for too are kept in step with it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, NamedTuple

from firesteel.common.configuration import Configuration
from firesteel.common.execution_config import ExecutionConfig
from firesteel.config import ConfigOption, Settings, load_settings
from firesteel.config import options as opt
from firesteel.config.definitions import handed_on

_MILLISECOND = timedelta(milliseconds=1)


class _Shared(NamedTuple):
    option: ConfigOption[Any]
    read: Callable[[ExecutionConfig], Any]
    write: Callable[[ExecutionConfig, Any], object]
    unset: Any = None
    """Value that says that the program did not set it."""


def _set_uids(config: ExecutionConfig, value: bool) -> None:
    (config.enable_auto_generated_uids if value else config.disable_auto_generated_uids)()


def _set_reuse(config: ExecutionConfig, value: bool) -> None:
    (config.enable_object_reuse if value else config.disable_object_reuse)()


def _set_max_parallelism(config: ExecutionConfig, value: int) -> None:
    if value > 0:
        config.set_max_parallelism(value)


_SHARED = (
    _Shared(opt.PARALLELISM_DEFAULT, ExecutionConfig.get_parallelism, ExecutionConfig.set_parallelism, -1),
    _Shared(opt.PIPELINE_MAX_PARALLELISM, ExecutionConfig.get_max_parallelism, _set_max_parallelism, -1),
    _Shared(opt.PIPELINE_AUTO_GENERATE_UIDS, ExecutionConfig.has_auto_generated_uids_enabled, _set_uids),
    _Shared(opt.PIPELINE_OBJECT_REUSE, ExecutionConfig.is_object_reuse_enabled, _set_reuse),
    _Shared(
        opt.PIPELINE_GLOBAL_JOB_PARAMETERS,
        ExecutionConfig.get_global_job_parameters,
        ExecutionConfig.set_global_job_parameters,
    ),
    _Shared(
        opt.PIPELINE_AUTO_WATERMARK_INTERVAL,
        lambda config: timedelta(milliseconds=config.get_auto_watermark_interval()),
        lambda config, value: config.set_auto_watermark_interval(value // _MILLISECOND),
    ),
    _Shared(
        opt.TASK_CANCELLATION_INTERVAL,
        lambda config: timedelta(milliseconds=config.get_task_cancellation_interval()),
        lambda config, value: config.set_task_cancellation_interval(value // _MILLISECOND),
    ),
    _Shared(
        opt.CHECKPOINTING_COMPRESSION,
        ExecutionConfig.is_use_snapshot_compression,
        ExecutionConfig.set_use_snapshot_compression,
    ),
    _Shared(
        opt.TASK_CANCELLATION_TIMEOUT,
        lambda config: timedelta(milliseconds=config.get_task_cancellation_timeout()),
        lambda config, value: config.set_task_cancellation_timeout(value // _MILLISECOND),
    ),
)


def program_settings(configuration: Configuration) -> Settings:
    """All layers, with the program's own on top.

    Raises:
        ConfigurationError: a layer can't be read.
    """
    return load_settings(definitions=handed_on(), program=configuration.to_dict())


def apply_settings(settings: Settings, config: ExecutionConfig) -> None:
    """Bring what was set into the program's ``ExecutionConfig``.

    Raises:
        ConfigurationError: a value is not valid.
    """
    for shared in _SHARED:
        if settings.is_set(shared.option):
            shared.write(config, settings.get(shared.option))


def with_execution_config(configuration: Configuration, config: ExecutionConfig) -> Configuration:
    """The configuration with what the program's ``ExecutionConfig`` says, where the two differ."""
    made = Configuration(configuration)
    settings = program_settings(configuration)
    for shared in _SHARED:
        value = shared.read(config)
        if value != shared.unset and value != settings.get(shared.option):
            made.set_string(shared.option.key, shared.option.type.show(value))
    return made
