"""How a file sink would join small files. PyFlink's names; this version of firesteel does not compact."""

from __future__ import annotations

from dataclasses import dataclass

from firesteel.core.errors import ProgramError

__all__ = ["FileCompactStrategy", "FileCompactor"]


@dataclass(frozen=True)
class FileCompactStrategy:
    """When files are joined. Made by ``FileCompactStrategy.builder()``.

    Attributes:
        size_threshold: bytes; None = not by size.
        num_checkpoints_before_compaction: None = not by checkpoints.
        num_compact_threads: at once.
    """

    size_threshold: int | None = None
    num_checkpoints_before_compaction: int | None = None
    num_compact_threads: int = 1

    @staticmethod
    def builder() -> FileCompactStrategy.Builder:
        """A builder."""
        return FileCompactStrategy.Builder()

    class Builder:
        """Builds a ``FileCompactStrategy``."""

        def __init__(self) -> None:
            self._size: int | None = None
            self._checkpoints: int | None = None
            self._threads = 1

        def set_size_threshold(self, size_threshold: int) -> FileCompactStrategy.Builder:
            """Join files when there are so many bytes of them."""
            self._size = _at_least_one("the size threshold", size_threshold)
            return self

        def enable_compaction_on_checkpoint(
            self, num_checkpoints_before_compaction: int
        ) -> FileCompactStrategy.Builder:
            """Join files after so many checkpoints."""
            count = _at_least_one("the number of checkpoints", num_checkpoints_before_compaction)
            self._checkpoints = count
            return self

        def set_num_compact_threads(self, num_compact_threads: int) -> FileCompactStrategy.Builder:
            """Join so many at once."""
            self._threads = _at_least_one("the number of threads", num_compact_threads)
            return self

        def build(self) -> FileCompactStrategy:
            """The strategy.

            Raises:
                ProgramError: it says neither size nor checkpoints.
            """
            if self._size is None and self._checkpoints is None:
                raise ProgramError(
                    "file compaction: say when, with set_size_threshold() or enable_compaction_on_checkpoint()"
                )
            return FileCompactStrategy(self._size, self._checkpoints, self._threads)


def _at_least_one(what: str, value: int) -> int:
    if value < 1:
        raise ProgramError(f"file compaction: {what} is at least 1, not {value}")
    return value


@dataclass(frozen=True)
class FileCompactor:
    """How files are joined. Made by its factory methods.

    Attributes:
        file_delimiter: between files; None = files are left as they are.
    """

    file_delimiter: bytes | None

    @staticmethod
    def concat_file_compactor(file_delimiter: bytes | None = None) -> FileCompactor:
        """One after the other, with this between them."""
        return FileCompactor(file_delimiter or b"")

    @staticmethod
    def identical_file_compactor() -> FileCompactor:
        """Each file stays as it is."""
        return FileCompactor(None)
