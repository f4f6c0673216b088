"""Where keyed state lives. PyFlink's names; what they say are options of the job."""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import Enum
from typing import TYPE_CHECKING, Any, NoReturn

from firesteel.config import Settings
from firesteel.config import options as opt
from firesteel.core.errors import UnsupportedFeatureError
from firesteel.core.pyflink_names import missing_names
from firesteel.datastream.checks import some_text, whole_number

__all__ = [
    "CustomStateBackend",
    "EmbeddedRocksDBStateBackend",
    "HashMapStateBackend",
    "PredefinedOptions",
    "StateBackend",
]


class StateBackend(ABC):
    """Where keyed state lives.

    Examples:
        ```python
        from firesteel.datastream import HashMapStateBackend, StateBackend

        print(isinstance(HashMapStateBackend(), StateBackend))
        ```

        ```text
        True
        ```
    """

    @abstractmethod
    def to_options(self) -> dict[str, str]:
        """Returns the options that say the same."""


class HashMapStateBackend(StateBackend):
    """Objects in the memory of the slot.

    Examples:
        ```python
        from firesteel.datastream import HashMapStateBackend, StreamExecutionEnvironment

        env = StreamExecutionEnvironment.get_execution_environment()
        env.set_state_backend(HashMapStateBackend())
        ```
    """

    def to_options(self) -> dict[str, str]:
        """Options that choose the backend ``hashmap``."""
        return {opt.STATE_BACKEND.key: "hashmap"}

    def __str__(self) -> str:
        return "HashMapStateBackend"


class PredefinedOptions(Enum):
    """Sets of settings of RocksDB.

    Examples:
        ```python
        from firesteel.datastream import EmbeddedRocksDBStateBackend, PredefinedOptions

        backend = EmbeddedRocksDBStateBackend()
        backend.set_predefined_options(PredefinedOptions.SPINNING_DISK_OPTIMIZED)
        print(backend.get_predefined_options().name)
        ```

        ```text
        SPINNING_DISK_OPTIMIZED
        ```
    """

    DEFAULT = "DEFAULT"
    SPINNING_DISK_OPTIMIZED = "SPINNING_DISK_OPTIMIZED"
    SPINNING_DISK_OPTIMIZED_HIGH_MEM = "SPINNING_DISK_OPTIMIZED_HIGH_MEM"
    FLASH_SSD_OPTIMIZED = "FLASH_SSD_OPTIMIZED"


class EmbeddedRocksDBStateBackend(StateBackend):
    """RocksDB beside the slot, for state that is larger than memory: the state backend ``rocksdb``.

    Args:
        enable_incremental_checkpointing: checkpoints hold what has changed; None = the option.

    Examples:
        ```python
        from firesteel.datastream import EmbeddedRocksDBStateBackend, PredefinedOptions

        backend = EmbeddedRocksDBStateBackend(enable_incremental_checkpointing=True)
        backend.set_predefined_options(PredefinedOptions.FLASH_SSD_OPTIMIZED)
        print(backend.is_incremental_checkpoints_enabled())
        ```

        ```text
        True
        ```
    """

    def __init__(self, enable_incremental_checkpointing: bool | None = None) -> None:
        self._incremental = enable_incremental_checkpointing
        self._paths: tuple[str, ...] | None = None
        self._predefined = PredefinedOptions.DEFAULT
        self._threads = opt.ROCKSDB_TRANSFER_THREADS.default

    def set_db_storage_paths(self, *paths: str) -> None:
        """Sets the directories of its files; none: the slot's own."""
        checked = tuple(some_text("a path", path) for path in paths)
        if any("," in path for path in checked):
            raise ValueError("a path can't hold a comma")
        self._paths = checked or None

    def get_db_storage_paths(self) -> list[str] | None:
        """Returns the directories, None if they were not set."""
        return None if self._paths is None else list(self._paths)

    def is_incremental_checkpoints_enabled(self) -> bool:
        """Returns whether checkpoints hold what has changed."""
        return opt.CHECKPOINTING_INCREMENTAL.default if self._incremental is None else self._incremental

    def set_predefined_options(self, options: PredefinedOptions) -> None:
        """Chooses a set of settings."""
        if not isinstance(options, PredefinedOptions):
            raise TypeError(f"options are PredefinedOptions, not {type(options).__name__}")
        self._predefined = options

    def get_predefined_options(self) -> PredefinedOptions:
        """Returns the set of settings."""
        return self._predefined

    def set_options(self, options_factory_class_name: str) -> NoReturn:
        """Refused: a factory is a Java class."""
        raise UnsupportedFeatureError(
            f"the options factory {options_factory_class_name} is a Java class, and there is no JVM: use "
            "set_predefined_options() or state.backend.rocksdb.* options"
        )

    def get_options(self) -> str | None:
        """Returns None: there are no factories."""
        return None

    def get_number_of_transfer_threads(self) -> int:
        """Returns how many threads move files."""
        return self._threads

    def set_number_of_transfer_threads(self, number_of_transfering_threads: int) -> None:
        """Sets how many threads move files."""
        self._threads = whole_number("the number of threads", number_of_transfering_threads, 1)

    def to_options(self) -> dict[str, str]:
        """Options of the backend ``rocksdb``; those that were left at their default are not among them."""
        backend_options = {opt.STATE_BACKEND.key: "rocksdb"}
        if self._incremental is not None:
            backend_options[opt.CHECKPOINTING_INCREMENTAL.key] = opt.CHECKPOINTING_INCREMENTAL.type.show(
                self._incremental
            )
        if self._paths is not None:
            backend_options[opt.ROCKSDB_LOCAL_DIRECTORIES.key] = ",".join(self._paths)
        if self._predefined is not PredefinedOptions.DEFAULT:
            backend_options[opt.ROCKSDB_PREDEFINED_OPTIONS.key] = self._predefined.value
        if self._threads != opt.ROCKSDB_TRANSFER_THREADS.default:
            backend_options[opt.ROCKSDB_TRANSFER_THREADS.key] = str(self._threads)
        return backend_options

    @staticmethod
    def of_options(settings: Settings) -> EmbeddedRocksDBStateBackend:
        """The backend that these options say; paths as they were written."""
        incremental = opt.CHECKPOINTING_INCREMENTAL
        backend = EmbeddedRocksDBStateBackend(settings.get(incremental) if settings.is_set(incremental) else None)
        paths = settings.get(opt.ROCKSDB_LOCAL_DIRECTORIES)
        if paths:
            backend.set_db_storage_paths(*paths.split(","))
        backend.set_predefined_options(PredefinedOptions(settings.get(opt.ROCKSDB_PREDEFINED_OPTIONS)))
        backend.set_number_of_transfer_threads(settings.get(opt.ROCKSDB_TRANSFER_THREADS))
        return backend

    def __str__(self) -> str:
        return "EmbeddedRocksDBStateBackend"


class CustomStateBackend(StateBackend):
    """Refused: it wraps a Java object.

    Examples:
        ```python
        from firesteel.common import Configuration
        from firesteel.datastream import StreamExecutionEnvironment

        config = Configuration()  # in its place: the name of a state backend
        config.set_string("state.backend.type", "rocksdb")
        env = StreamExecutionEnvironment.get_execution_environment(config)
        ```
    """

    def __init__(self, *arguments: Any) -> None:
        self.to_options()

    def to_options(self) -> NoReturn:
        """Refused, as a backend of Java can't be used: UnsupportedFeatureError."""
        raise UnsupportedFeatureError(
            "CustomStateBackend wraps a Java object, and there is no JVM: name a state backend with state.backend.type"
        )


def state_backend_of(settings: Settings) -> StateBackend | None:
    """The state backend that options say, with its settings; None if they say nothing, or name a plug-in."""
    if not settings.is_set(opt.STATE_BACKEND):
        return None
    match settings.get(opt.STATE_BACKEND):
        case "hashmap":
            return HashMapStateBackend()
        case "rocksdb":
            return EmbeddedRocksDBStateBackend.of_options(settings)
        case _:
            return None


if not TYPE_CHECKING:
    __getattr__ = missing_names(__name__)
