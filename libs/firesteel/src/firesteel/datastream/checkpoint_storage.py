"""Where checkpoints go. PyFlink's names; what they say are options of the job."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Final, NoReturn

from firesteel.config import Option, Settings
from firesteel.config import options as opt
from firesteel.core.errors import UnsupportedFeatureError
from firesteel.datastream.checks import some_text, whole_number

__all__ = [
    "CheckpointStorage",
    "CustomCheckpointStorage",
    "FileSystemCheckpointStorage",
    "JobManagerCheckpointStorage",
]


class CheckpointStorage(ABC):
    """Root class of the places that a job's checkpoints are written to.

    Examples:
        ```python
        from firesteel.datastream import CheckpointStorage, FileSystemCheckpointStorage

        print(isinstance(FileSystemCheckpointStorage("file:///data/checkpoints"), CheckpointStorage))
        ```

        ```text
        True
        ```
    """

    @abstractmethod
    def to_options(self) -> dict[str, str]:
        """Returns the options that say the same."""


class JobManagerCheckpointStorage(CheckpointStorage):
    """The memory of the JobMaster; for small state.

    Args:
        checkpoint_path: directory of the metadata of checkpoints; None = memory too.
        max_state_size: bytes of one piece of state, at most.

    Examples:
        ```python
        from firesteel.datastream import JobManagerCheckpointStorage

        storage = JobManagerCheckpointStorage(max_state_size=1024 * 1024)
        print(storage.get_max_state_size())
        ```

        ```text
        1048576
        ```
    """

    DEFAULT_MAX_STATE_SIZE: Final = 5 * 1024 * 1024

    def __init__(self, checkpoint_path: str | None = None, max_state_size: int | None = None) -> None:
        self._path = None if checkpoint_path is None else some_text("checkpoint_path", checkpoint_path)
        self._given_most = max_state_size
        most = self.DEFAULT_MAX_STATE_SIZE if max_state_size is None else max_state_size
        self._most = whole_number("max_state_size", most, 1)

    def get_checkpoint_path(self) -> str | None:
        """Returns the directory, if there is one."""
        return self._path

    def get_max_state_size(self) -> int:
        """Returns the bytes of one piece of state, at most."""
        return self._most

    def get_savepoint_path(self) -> str | None:
        """Returns None: savepoints have an option of their own."""
        return None

    def to_options(self) -> dict[str, str]:
        """Options that choose the storage ``jobmanager``."""
        return {
            opt.CHECKPOINTING_STORAGE.key: "jobmanager",
            **_option(opt.CHECKPOINTING_DIRECTORY, self._path),
            **_option(opt.CHECKPOINTING_MAX_MEMORY_STATE, self._given_most),
        }

    def __str__(self) -> str:
        return f"JobManagerCheckpointStorage{{maxStateSize={self._most}}}"


class FileSystemCheckpointStorage(CheckpointStorage):
    """A directory that all hosts see.

    Args:
        checkpoint_path: the directory; None = ``execution.checkpointing.dir``.
        file_state_size_threshold: smaller files are written into the metadata; bytes, at most 1 MiB. None = the option.
        write_buffer_size: bytes; -1 = the option.

    Examples:
        ```python
        from firesteel.datastream import FileSystemCheckpointStorage, StreamExecutionEnvironment

        config = StreamExecutionEnvironment.get_execution_environment().get_checkpoint_config()
        config.set_checkpoint_storage(FileSystemCheckpointStorage("file:///var/checkpoints"))
        ```
    """

    MAX_FILE_STATE_THRESHOLD: Final = 1024 * 1024

    def __init__(
        self,
        checkpoint_path: str | None = None,
        file_state_size_threshold: int | None = None,
        write_buffer_size: int = -1,
    ) -> None:
        self._path = None if checkpoint_path is None else some_text("checkpoint_path", checkpoint_path)
        self._threshold, self._buffer = file_state_size_threshold, write_buffer_size
        if file_state_size_threshold is not None:
            most = self.MAX_FILE_STATE_THRESHOLD
            whole_number("file_state_size_threshold", file_state_size_threshold, 0, most)
        whole_number("write_buffer_size", write_buffer_size, -1)

    def get_checkpoint_path(self) -> str | None:
        """Returns the directory of checkpoints."""
        return self._path

    def get_savepoint_path(self) -> str | None:
        """Returns None: savepoints have an option of their own."""
        return None

    def get_min_file_size_threshold(self) -> int:
        """Returns below which size files go into the metadata, in bytes."""
        return opt.CHECKPOINTING_INLINE_THRESHOLD.default if self._threshold is None else self._threshold

    def get_write_buffer_size(self) -> int:
        """Returns the buffer of files that are written, in bytes."""
        return opt.CHECKPOINTING_WRITE_BUFFER.default if self._buffer < 0 else self._buffer

    def to_options(self) -> dict[str, str]:
        """Options that choose the storage ``filesystem``."""
        return {
            opt.CHECKPOINTING_STORAGE.key: "filesystem",
            **_option(opt.CHECKPOINTING_DIRECTORY, self._path),
            **_option(opt.CHECKPOINTING_INLINE_THRESHOLD, self._threshold),
            **_option(opt.CHECKPOINTING_WRITE_BUFFER, None if self._buffer < 0 else self._buffer),
        }

    def __str__(self) -> str:
        return f"FileSystemCheckpointStorage{{checkpointPath={self._path}}}"


class CustomCheckpointStorage(CheckpointStorage):
    """Refused: it wraps a Java object.

    Examples:
        ```python
        from firesteel.common import Configuration
        from firesteel.datastream import StreamExecutionEnvironment

        config = Configuration()  # in its place: the name of a storage
        config.set_string("execution.checkpointing.storage", "filesystem")
        config.set_string("execution.checkpointing.dir", "file:///data/checkpoints")
        env = StreamExecutionEnvironment.get_execution_environment(config)
        ```
    """

    def __init__(self, *arguments: Any) -> None:
        self.to_options()

    def to_options(self) -> NoReturn:
        """Refused, as a storage of Java can't be used: UnsupportedFeatureError."""
        raise UnsupportedFeatureError(
            "CustomCheckpointStorage wraps a Java object, and there is no JVM: name a storage with "
            "execution.checkpointing.storage"
        )


def storage_of(settings: Settings) -> CheckpointStorage | None:
    """The storage that options say; None if they say nothing, or name a plug-in."""
    if not (settings.is_set(opt.CHECKPOINTING_STORAGE) or settings.is_set(opt.CHECKPOINTING_DIRECTORY)):
        return None
    path = settings.get(opt.CHECKPOINTING_DIRECTORY)
    named = settings.get(opt.CHECKPOINTING_STORAGE) or "filesystem"
    if named == "filesystem":
        threshold, buffer = opt.CHECKPOINTING_INLINE_THRESHOLD, opt.CHECKPOINTING_WRITE_BUFFER
        return FileSystemCheckpointStorage(
            path,
            settings.get(threshold) if settings.is_set(threshold) else None,
            settings.get(buffer) if settings.is_set(buffer) else -1,
        )
    most = opt.CHECKPOINTING_MAX_MEMORY_STATE
    if named == "jobmanager":
        return JobManagerCheckpointStorage(path, settings.get(most) if settings.is_set(most) else None)
    return None


def _option(option: Option[Any], value: Any) -> dict[str, str]:
    return {} if value is None else {option.key: option.type.show(value)}
