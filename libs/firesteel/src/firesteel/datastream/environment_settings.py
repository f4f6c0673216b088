"""The settings of a program, and what is refused or warned of when they ask for what this version can't give.

Settings that ``ExecutionConfig`` has methods for too are kept in step with it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Any, NamedTuple

from firesteel.common.configuration import Configuration
from firesteel.common.execution_config import ExecutionConfig
from firesteel.common.restart_strategy import RestartStrategies, RestartStrategyConfiguration
from firesteel.config import Option, Settings, load_settings
from firesteel.config import options as opt
from firesteel.config.definitions import handed_on
from firesteel.config.options import ALL_OPTIONS
from firesteel.functions.source import Source
from firesteel.graph.stream_graph import DEFAULT_JOB_NAME, GraphSettings, StreamGraph

logger = logging.getLogger(__name__)

_MILLISECOND = timedelta(milliseconds=1)


class _Shared(NamedTuple):
    """A setting that ``ExecutionConfig`` has methods for too."""

    option: Option[Any]
    read: Callable[[ExecutionConfig], Any]
    write: Callable[[ExecutionConfig, Any], object]
    unset: Any = None
    """Value of the ``ExecutionConfig`` that means that the program did not set it."""


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
        opt.METRICS_LATENCY_INTERVAL,
        lambda config: timedelta(milliseconds=config.get_latency_tracking_interval()),
        lambda config, value: config.set_latency_tracking_interval(value // _MILLISECOND),
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
    """Settings of all layers (file, environment, command line), with the program's own on top.

    Raises:
        ConfigurationError: a layer can't be read.
    """
    return load_settings(definitions=handed_on(), program=configuration.to_dict())


def apply_settings(settings: Settings, config: ExecutionConfig) -> None:
    """Copy settings that were set into the program's ``ExecutionConfig``.

    Raises:
        ConfigurationError: a value is not valid.
    """
    for shared in _SHARED:
        if settings.is_set(shared.option):
            shared.write(config, settings.get(shared.option))


def with_execution_config(configuration: Configuration, config: ExecutionConfig) -> Configuration:
    """The configuration, with the values of the program's ``ExecutionConfig`` where the two differ."""
    extended = Configuration(configuration)
    settings = program_settings(configuration)
    for shared in _SHARED:
        value = shared.read(config)
        if value != shared.unset and value != settings.get(shared.option):
            extended.set_string(shared.option.key, shared.option.type.show(value))
    return extended


def graph_settings(settings: Settings, parallelism: int, job_name: str | None = None) -> GraphSettings:
    """The settings that graphs are built with.

    Raises:
        ConfigurationError: a value is not valid.
    """
    settings.get(opt.EXECUTION_RUNTIME_MODE)  # read for its check: a bad value is refused where the program sets it
    return GraphSettings(
        parallelism=parallelism,
        job_name=job_name or settings.get(opt.PIPELINE_NAME) or DEFAULT_JOB_NAME,
        max_parallelism=settings.get(opt.PIPELINE_MAX_PARALLELISM),
        buffer_timeout_ms=buffer_timeout_ms(settings),
        chaining=settings.get(opt.PIPELINE_OPERATOR_CHAINING),
        chain_different_max_parallelism=settings.get(opt.PIPELINE_CHAIN_DIFFERENT_MAX_PARALLELISM),
        auto_generate_uids=settings.get(opt.PIPELINE_AUTO_GENERATE_UIDS),
        strict_integers=settings.get(opt.TYPES_STRICT_INTEGERS),
        object_reuse=settings.get(opt.PIPELINE_OBJECT_REUSE),
    )


def buffer_timeout_ms(settings: Settings) -> int:
    """Time in ms that results may wait for their batch to fill; -1 = until it is full."""
    if not settings.get(opt.EXECUTION_BUFFER_TIMEOUT_ENABLED):
        return -1
    interval = settings.get(opt.EXECUTION_BUFFER_TIMEOUT_INTERVAL)
    return -(-interval // _MILLISECOND)  # rounded up: a timeout below 1 ms is not none


def restart_options(strategy: RestartStrategyConfiguration) -> list[tuple[Option[Any], Any]]:
    """Options, and their values, that mean the same as a restart strategy."""
    if isinstance(strategy, RestartStrategies.NoRestartStrategyConfiguration):
        return [(opt.RESTART_STRATEGY, "none")]
    if isinstance(strategy, RestartStrategies.FixedDelayRestartStrategyConfiguration):
        return [
            (opt.RESTART_STRATEGY, "fixed-delay"),
            (opt.RESTART_FIXED_ATTEMPTS, strategy.get_restart_attempts()),
            (opt.RESTART_FIXED_DELAY, strategy.get_delay_between_attempts_interval()),
        ]
    if isinstance(strategy, RestartStrategies.FailureRateRestartStrategyConfiguration):
        return [
            (opt.RESTART_STRATEGY, "failure-rate"),
            (opt.RESTART_RATE_FAILURES, strategy.get_max_failure_rate()),
            (opt.RESTART_RATE_INTERVAL, strategy.get_failure_interval()),
            (opt.RESTART_RATE_DELAY, strategy.get_delay_between_attempts_interval()),
        ]
    return []


def restart_strategy_of(settings: Settings) -> RestartStrategyConfiguration:
    """The restart strategy that the options mean, as far as ``RestartStrategies`` has a name for it."""
    match settings.get(opt.RESTART_STRATEGY):
        case "none":
            return RestartStrategies.no_restart()
        case "fixed-delay":
            return RestartStrategies.fixed_delay_restart(
                settings.get(opt.RESTART_FIXED_ATTEMPTS), settings.get(opt.RESTART_FIXED_DELAY)
            )
        case "failure-rate":
            return RestartStrategies.failure_rate_restart(
                settings.get(opt.RESTART_RATE_FAILURES),
                settings.get(opt.RESTART_RATE_INTERVAL),
                settings.get(opt.RESTART_RATE_DELAY),
            )
        case _:
            return RestartStrategies.fall_back_restart()


def warn_of_settings(settings: Settings) -> None:
    """Warn of settings that have no effect in this version, as their options say."""
    for option in ALL_OPTIONS:
        if option.instead and (configured := settings.get(option)) != option.default:
            shown = option.type.show(configured)
            logger.warning("%s = %s has no effect in this version: %s", option.key, shown, option.instead)


def warn_of_losses(graph: StreamGraph, settings: Settings) -> None:
    """Warn of sources that lose records at a restart although checkpoints are to be taken exactly once."""
    interval = settings.get(opt.CHECKPOINTING_INTERVAL)
    if interval is None or interval <= timedelta(0) or settings.get(opt.CHECKPOINTING_MODE) != "EXACTLY_ONCE":
        return
    for node in graph.nodes.values():
        source = node.operator.function
        if node.is_source and isinstance(source, Source) and not source.replayable:
            logger.warning(
                "%s can't be replayed: when the job restarts, what it gave since the last checkpoint is lost (at most "
                "once), although exactly once is asked for (%s)",
                node.name,
                opt.CHECKPOINTING_MODE.key,
            )
