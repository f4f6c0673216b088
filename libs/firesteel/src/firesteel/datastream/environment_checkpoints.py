"""What an environment says about checkpoints, state backends and restarts. Kept with the job, checked at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from firesteel.common.configuration import Configuration
from firesteel.common.restart_strategy import RestartStrategies, RestartStrategyConfiguration
from firesteel.config import ConfigOption, Settings
from firesteel.config import options as opt
from firesteel.datastream.checkpoint_config import CheckpointConfig
from firesteel.datastream.checkpointing_mode import CheckpointingMode
from firesteel.datastream.checks import some_text
from firesteel.datastream.state_backend import EmbeddedRocksDBStateBackend, HashMapStateBackend, StateBackend

__all__ = ["EnvironmentCheckpoints"]


class EnvironmentCheckpoints:
    """Part of ``StreamExecutionEnvironment``."""

    _configuration: Configuration

    if TYPE_CHECKING:

        def _settings(self) -> Settings: ...

    def get_checkpoint_config(self) -> CheckpointConfig:
        """Returns the settings of checkpoints; changes to them count."""
        return CheckpointConfig(lambda: self._configuration, self._settings)

    def enable_checkpointing(self, interval: int, mode: CheckpointingMode | None = None) -> Self:
        """Sets the time between two checkpoints, in ms, and their mode.

        With checkpoints a job that fails goes on from the last one (docs: Checkpoints).

        Raises:
            ValueError: less than 10 ms.
        """
        config = self.get_checkpoint_config().set_checkpoint_interval(interval)
        if mode is not None:
            config.set_checkpointing_mode(mode)
        return self

    def get_checkpoint_interval(self) -> int:
        """Returns the time between two checkpoints in ms; -1 if none are wanted."""
        return self.get_checkpoint_config().get_checkpoint_interval()

    def get_checkpointing_mode(self) -> CheckpointingMode:
        """Returns the mode of checkpoints."""
        return self.get_checkpoint_config().get_checkpointing_mode()

    def get_checkpointing_consistency_mode(self) -> CheckpointingMode:
        """Returns the mode of checkpoints (the name since Flink 1.20)."""
        return self.get_checkpointing_mode()

    def is_unaligned_checkpoints_enabled(self) -> bool:
        """Returns whether checkpoints overtake records in flight."""
        return self.get_checkpoint_config().is_unaligned_checkpoints_enabled()

    def is_force_unaligned_checkpoints(self) -> bool:
        """Returns whether they do so even where partitioners do not allow it."""
        return self.get_checkpoint_config().is_force_unaligned_checkpoints()

    def enable_changelog_state_backend(self, enabled: bool) -> Self:
        """Asks for changes of state to be written continuously; kept with the job, there is no such backend."""
        self._configuration.set_boolean(opt.STATE_CHANGELOG.key, bool(enabled))
        return self

    def is_changelog_state_backend_enabled(self) -> bool | None:
        """Returns what was set; None if nothing was."""
        settings = self._settings()
        return settings.get(opt.STATE_CHANGELOG) if settings.is_set(opt.STATE_CHANGELOG) else None

    def set_default_savepoint_directory(self, directory: str) -> Self:
        """Sets where savepoints go that name no directory."""
        self._configuration.set_string(opt.SAVEPOINT_DIRECTORY.key, some_text("the savepoint directory", directory))
        return self

    def get_default_savepoint_directory(self) -> str | None:
        """Returns where savepoints go that name no directory; None if it was not set."""
        return self._settings().get(opt.SAVEPOINT_DIRECTORY)

    def set_state_backend(self, state_backend: StateBackend) -> Self:
        """Sets where keyed state lives (PyFlink 1.x; later versions use ``state.backend.type``).

        One that this version does not have is named in a warning when the program is submitted.
        """
        if not isinstance(state_backend, StateBackend):
            raise TypeError(
                f"set_state_backend() takes a StateBackend such as HashMapStateBackend(), not "
                f"{type(state_backend).__name__}"
            )
        for key, text in state_backend.to_options().items():
            self._configuration.set_string(key, text)
        return self

    def get_state_backend(self) -> StateBackend | None:
        """Returns where keyed state lives, with its settings; None if nothing was set, or a plug-in."""
        settings = self._settings()
        if not settings.is_set(opt.STATE_BACKEND):
            return None
        match settings.get(opt.STATE_BACKEND):
            case "hashmap":
                return HashMapStateBackend()
            case "rocksdb":
                return EmbeddedRocksDBStateBackend.of_options(settings)
            case _:
                return None

    def set_restart_strategy(self, restart_strategy_configuration: RestartStrategyConfiguration) -> Self:
        """Sets what happens when a job fails (PyFlink 1.x; later versions use ``restart-strategy.type``)."""
        if not isinstance(restart_strategy_configuration, RestartStrategyConfiguration):
            raise TypeError(
                "set_restart_strategy() takes RestartStrategies.fixed_delay_restart(...) or the like, not "
                f"{type(restart_strategy_configuration).__name__}"
            )
        for option, value in _restart_options(restart_strategy_configuration):
            text = option.type.show(value)
            option.parse(text)
            self._configuration.set_string(option.key, text)
        return self

    def get_restart_strategy(self) -> RestartStrategyConfiguration:
        """Returns what happens when a job fails, as far as ``RestartStrategies`` has a name for it."""
        settings = self._settings()
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


def _restart_options(strategy: RestartStrategyConfiguration) -> list[tuple[ConfigOption[Any], Any]]:
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
