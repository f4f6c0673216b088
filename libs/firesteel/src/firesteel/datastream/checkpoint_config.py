"""``CheckpointConfig``: how checkpoints are taken. PyFlink's names; the values are options of the job."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar

from firesteel.common.configuration import Configuration
from firesteel.common.time import Duration, Span, whole_millis
from firesteel.config import Option, Settings
from firesteel.config import options as opt
from firesteel.config.derived import aligned_timeout
from firesteel.datastream.checkpoint_storage import CheckpointStorage, FileSystemCheckpointStorage, storage_of
from firesteel.datastream.checkpointing_mode import CheckpointingMode
from firesteel.datastream.checks import whole_number
from firesteel.datastream.externalized_checkpoint_retention import (
    ExternalizedCheckpointCleanup,
    ExternalizedCheckpointRetention,
)

__all__ = ["CheckpointConfig", "ExternalizedCheckpointCleanup"]

T = TypeVar("T")
_MILLISECOND = timedelta(milliseconds=1)


class CheckpointConfig:
    """Settings of checkpoints; times are in milliseconds. Setters check at once and return the object itself.

    What is set is kept with the job.

    Examples:
        ```python
        from firesteel.datastream import StreamExecutionEnvironment

        env = StreamExecutionEnvironment.get_execution_environment()
        env.enable_checkpointing(10_000)
        config = env.get_checkpoint_config()
        config.set_checkpoint_timeout(60_000)
        print(config.get_checkpoint_interval(), config.get_checkpoint_timeout())
        ```

        ```text
        10000 60000
        ```
    """

    def __init__(self, configuration: Callable[[], Configuration], settings: Callable[[], Settings]) -> None:
        self._configuration, self._settings = configuration, settings

    def _get(self, option: Option[T]) -> T:
        return self._settings().get(option)

    def _set(self, option: Option[Any], value: Any) -> CheckpointConfig:
        text = option.type.show(value)
        option.parse(text)
        self._configuration().set_string(option.key, text)
        return self

    def _set_ms(self, option: Option[Any], name: str, value: int, least: int) -> CheckpointConfig:
        return self._set(option, timedelta(milliseconds=whole_number(name, value, least)))

    def is_checkpointing_enabled(self) -> bool:
        """Returns whether an interval was set."""
        return self.get_checkpoint_interval() > 0

    def get_checkpointing_mode(self) -> CheckpointingMode:
        """Returns whether barriers are aligned (EXACTLY_ONCE) or not."""
        return CheckpointingMode(self._get(opt.CHECKPOINTING_MODE))

    def set_checkpointing_mode(self, checkpointing_mode: CheckpointingMode) -> CheckpointConfig:
        """Sets whether barriers are aligned (EXACTLY_ONCE) or not."""
        if not isinstance(checkpointing_mode, CheckpointingMode):
            raise TypeError(f"the mode is a CheckpointingMode, not {type(checkpointing_mode).__name__}")
        return self._set(opt.CHECKPOINTING_MODE, checkpointing_mode.value)

    def get_checkpoint_interval(self) -> int:
        """Returns the time between the starts of checkpoints; -1 if there are none."""
        interval = self._get(opt.CHECKPOINTING_INTERVAL)
        return -1 if not interval else interval // _MILLISECOND

    def set_checkpoint_interval(self, checkpoint_interval: int) -> CheckpointConfig:
        """Sets the time between the starts of checkpoints.

        Raises:
            ValueError: less than 10 ms, which is Flink's least.
        """
        return self._set_ms(opt.CHECKPOINTING_INTERVAL, "the checkpoint interval", checkpoint_interval, 10)

    def get_checkpoint_timeout(self) -> int:
        """Returns after which time a checkpoint is given up."""
        return self._get(opt.CHECKPOINTING_TIMEOUT) // _MILLISECOND

    def set_checkpoint_timeout(self, checkpoint_timeout: int) -> CheckpointConfig:
        """Sets after which time a checkpoint is given up.

        Raises:
            ValueError: less than 10 ms, which is Flink's least.
        """
        return self._set_ms(opt.CHECKPOINTING_TIMEOUT, "the checkpoint timeout", checkpoint_timeout, 10)

    def get_min_pause_between_checkpoints(self) -> int:
        """Returns the least pause between two checkpoints."""
        return self._get(opt.CHECKPOINTING_MIN_PAUSE) // _MILLISECOND

    def set_min_pause_between_checkpoints(self, min_pause_between_checkpoints: int) -> CheckpointConfig:
        """Sets the least pause between the end of a checkpoint and the start of the next."""
        return self._set_ms(opt.CHECKPOINTING_MIN_PAUSE, "the pause", min_pause_between_checkpoints, 0)

    def get_max_concurrent_checkpoints(self) -> int:
        """Returns how many checkpoints may be under way."""
        return self._get(opt.CHECKPOINTING_MAX_CONCURRENT)

    def set_max_concurrent_checkpoints(self, max_concurrent_checkpoints: int) -> CheckpointConfig:
        """Sets how many checkpoints may be under way."""
        most = whole_number("the number of concurrent checkpoints", max_concurrent_checkpoints, 1)
        return self._set(opt.CHECKPOINTING_MAX_CONCURRENT, most)

    def is_fail_on_checkpointing_errors(self) -> bool:
        """Returns whether no failed checkpoint is tolerated."""
        return self.get_tolerable_checkpoint_failure_number() == 0

    def set_fail_on_checkpointing_errors(self, fail_on_checkpointing_errors: bool) -> CheckpointConfig:
        """Tolerates no failed checkpoint, or any number."""
        return self.set_tolerable_checkpoint_failure_number(0 if fail_on_checkpointing_errors else 2**31 - 1)

    def get_tolerable_checkpoint_failure_number(self) -> int:
        """Returns how many checkpoints in a row may fail."""
        return self._get(opt.CHECKPOINTING_TOLERABLE_FAILURES)

    def set_tolerable_checkpoint_failure_number(self, tolerable_checkpoint_failure_number: int) -> CheckpointConfig:
        """Sets how many checkpoints in a row may fail."""
        number = whole_number("the number of failures", tolerable_checkpoint_failure_number, 0)
        return self._set(opt.CHECKPOINTING_TOLERABLE_FAILURES, number)

    def is_externalized_checkpoints_enabled(self) -> bool:
        """Returns whether the last checkpoint stays where a new job can find it."""
        none = ExternalizedCheckpointRetention.NO_EXTERNALIZED_CHECKPOINTS
        return self.get_externalized_checkpoint_retention() is not none

    def get_externalized_checkpoint_retention(self) -> ExternalizedCheckpointRetention:
        """Returns what becomes of the last checkpoints when the job is cancelled or fails."""
        return ExternalizedCheckpointRetention(self._get(opt.CHECKPOINTING_RETENTION))

    def set_externalized_checkpoint_retention(
        self, retention_mode: ExternalizedCheckpointRetention
    ) -> CheckpointConfig:
        """Sets what becomes of the last checkpoints when the job is cancelled or fails."""
        if not isinstance(retention_mode, ExternalizedCheckpointRetention):
            raise TypeError(
                f"retention_mode is an ExternalizedCheckpointRetention, not {type(retention_mode).__name__}"
            )
        return self._set(opt.CHECKPOINTING_RETENTION, retention_mode.value)

    def enable_externalized_checkpoints(self, cleanup_mode: ExternalizedCheckpointCleanup) -> CheckpointConfig:
        """Sets what becomes of the last checkpoints when the job is cancelled or fails (PyFlink 1.x)."""
        return self.set_externalized_checkpoint_retention(cleanup_mode)

    def set_externalized_checkpoint_cleanup(self, cleanup_mode: ExternalizedCheckpointCleanup) -> CheckpointConfig:
        """Sets what becomes of the last checkpoints when the job is cancelled or fails (PyFlink 1.x)."""
        return self.set_externalized_checkpoint_retention(cleanup_mode)

    def get_externalized_checkpoint_cleanup(self) -> ExternalizedCheckpointCleanup:
        """Returns what becomes of the last checkpoints when the job is cancelled or fails (PyFlink 1.x)."""
        return self.get_externalized_checkpoint_retention()

    def is_unaligned_checkpoints_enabled(self) -> bool:
        """Returns whether checkpoints overtake records in flight."""
        return self._get(opt.CHECKPOINTING_UNALIGNED)

    def enable_unaligned_checkpoints(self, enabled: bool = True) -> CheckpointConfig:
        """Lets checkpoints overtake records in flight."""
        return self._set(opt.CHECKPOINTING_UNALIGNED, bool(enabled))

    def disable_unaligned_checkpoints(self) -> CheckpointConfig:
        """Keeps checkpoints behind the records before them."""
        return self.enable_unaligned_checkpoints(False)

    def get_aligned_checkpoint_timeout(self) -> Duration:
        """Returns how long a checkpoint is tried aligned before it overtakes."""
        return Duration.of_millis(aligned_timeout(self._settings()) // _MILLISECOND)

    def set_aligned_checkpoint_timeout(self, alignment_timeout: Span) -> CheckpointConfig:
        """Sets how long a checkpoint is tried aligned before it overtakes."""
        millis = whole_millis("the alignment timeout", alignment_timeout)
        return self._set_ms(opt.CHECKPOINTING_ALIGNED_TIMEOUT, "the alignment timeout", millis, 0)

    def get_alignment_timeout(self) -> Duration:
        """The older name of ``get_aligned_checkpoint_timeout``."""
        return self.get_aligned_checkpoint_timeout()

    def set_alignment_timeout(self, alignment_timeout: Span) -> CheckpointConfig:
        """The older name of ``set_aligned_checkpoint_timeout``."""
        return self.set_aligned_checkpoint_timeout(alignment_timeout)

    def is_force_unaligned_checkpoints(self) -> bool:
        """Returns whether checkpoints overtake even where partitioners do not allow it."""
        return self._get(opt.CHECKPOINTING_FORCE_UNALIGNED)

    def set_force_unaligned_checkpoints(self, force_unaligned_checkpoints: bool = True) -> CheckpointConfig:
        """Lets checkpoints overtake even where partitioners do not allow it."""
        return self._set(opt.CHECKPOINTING_FORCE_UNALIGNED, bool(force_unaligned_checkpoints))

    def set_checkpoint_storage(self, storage: CheckpointStorage) -> CheckpointConfig:
        """Sets where checkpoints go (PyFlink 1.x; later versions use ``execution.checkpointing.storage``)."""
        if not isinstance(storage, CheckpointStorage):
            raise TypeError(f"storage is a CheckpointStorage, not {type(storage).__name__}")
        for key, text in storage.to_options().items():
            self._configuration().set_string(key, text)
        return self

    def get_checkpoint_storage(self) -> CheckpointStorage | None:
        """Returns where checkpoints go, the path as it was written; None if nothing was set, or a plug-in."""
        return storage_of(self._settings())

    def set_checkpoint_storage_dir(self, checkpoint_path: str) -> CheckpointConfig:
        """Sets a directory for checkpoints (PyFlink 1.x)."""
        return self.set_checkpoint_storage(FileSystemCheckpointStorage(checkpoint_path))
