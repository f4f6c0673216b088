"""How a file sink lays out its files: buckets, names of parts, and when a part is full."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, tzinfo
from typing import Any, ClassVar, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from firesteel.core.errors import ProgramError

_PATTERN: Final = {"yyyy": "%Y", "MM": "%m", "dd": "%d", "HH": "%H", "mm": "%M", "ss": "%S"}
_TOKEN: Final = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|[^A-Za-z']+")


@dataclass(frozen=True)
class OutputFileConfig:
    """Names of part files: ``<prefix>-<writer>-<number><suffix>``.

    Raises:
        ProgramError: prefix or suffix holds a path separator, or the prefix begins with a dot, as of hidden files.

    Examples:
        ```python
        from firesteel.datastream.connectors.file_system import OutputFileConfig

        config = OutputFileConfig.builder().with_part_prefix("orders").with_part_suffix(".csv").build()
        print(config.get_part_prefix(), config.get_part_suffix())
        ```

        ```text
        orders .csv
        ```
    """

    prefix: str = "part"
    suffix: str = ""

    def __post_init__(self) -> None:
        _checked(self.prefix, "prefix")
        _checked(self.suffix, "suffix")
        if self.prefix.startswith("."):
            raise ProgramError(f"part prefix {self.prefix!r} begins with a dot: such files are not visible")

    @staticmethod
    def builder() -> OutputFileConfigBuilder:
        """A builder with the default names."""
        return OutputFileConfigBuilder()

    def get_part_prefix(self) -> str:
        """Beginning of the names."""
        return self.prefix

    def get_part_suffix(self) -> str:
        """End of the names."""
        return self.suffix


class OutputFileConfigBuilder:
    """Builds an ``OutputFileConfig``; by default names begin with ``part`` and have no suffix.

    Examples:
        ```python
        from firesteel.datastream.connectors.file_system import OutputFileConfig

        config = OutputFileConfig.builder().with_part_prefix("day").build()
        print(config.get_part_prefix())
        ```

        ```text
        day
        ```
    """

    def __init__(self) -> None:
        self._prefix, self._suffix = "part", ""

    def with_part_prefix(self, prefix: str) -> OutputFileConfigBuilder:
        """Set how names begin.

        Raises:
            ProgramError: the prefix holds a path separator, or begins with a dot, as of hidden files.
        """
        self._prefix = OutputFileConfig(prefix).prefix
        return self

    def with_part_suffix(self, suffix: str) -> OutputFileConfigBuilder:
        """Set how names end, for example ``.txt``."""
        self._suffix = _checked(suffix, "suffix")
        return self

    def build(self) -> OutputFileConfig:
        """Make the configuration of prefix and suffix."""
        return OutputFileConfig(self._prefix, self._suffix)


def _checked(text: str, role: str) -> str:
    if os.sep in text or "\0" in text:
        raise ProgramError(f"part {role} {text!r} holds a path separator")
    return text


@dataclass(frozen=True)
class RollingPolicy:
    """When a part file is full and the next one begins.

    Attributes:
        part_size: size in bytes at which a part is full; None = size does not count.
        rollover_interval_ms: age at which a part is full; None = age does not count.
        inactivity_interval_ms: time without records after which a part is full; None = it does not count.

    Examples:
        ```python
        from firesteel.common import Duration
        from firesteel.datastream.connectors.file_system import RollingPolicy

        policy = RollingPolicy.default_rolling_policy(part_size=64 * 1024 * 1024, rollover_interval=15 * 60 * 1000)
        ```
    """

    part_size: int | None = None
    rollover_interval_ms: int | None = None
    inactivity_interval_ms: int | None = None

    @staticmethod
    def default_rolling_policy(
        part_size: int = 1024 * 1024 * 128, rollover_interval: int = 60_000, inactivity_interval: int = 60_000
    ) -> RollingPolicy:
        """Roll by size (bytes), age and inactivity (milliseconds).

        Raises:
            ProgramError: a bound is not above 0.
        """
        for name, bound in (
            ("part_size", part_size),
            ("rollover_interval", rollover_interval),
            ("inactivity_interval", inactivity_interval),
        ):
            if bound <= 0:
                raise ProgramError(f"rolling policy: {name} must be above 0, not {bound}")
        return DefaultRollingPolicy(part_size, rollover_interval, inactivity_interval)

    @staticmethod
    def on_checkpoint_rolling_policy() -> RollingPolicy:
        """Roll when results become visible, never in between."""
        return OnCheckpointRollingPolicy()

    at_checkpoints: ClassVar[bool] = False
    """Whether parts end at each checkpoint, whatever their size."""

    def is_full(self, size: int, age_ms: float, idle_ms: float) -> bool:
        """Whether a part is full, so that the next record begins a new part."""
        return (
            (self.part_size is not None and size >= self.part_size)
            or (self.rollover_interval_ms is not None and age_ms >= self.rollover_interval_ms)
            or (self.inactivity_interval_ms is not None and idle_ms >= self.inactivity_interval_ms)
        )


class DefaultRollingPolicy(RollingPolicy):
    """Rolls by size, age and inactivity; made by ``RollingPolicy.default_rolling_policy()``.

    Examples:
        ```python
        from firesteel.datastream.connectors.file_system import RollingPolicy

        policy = RollingPolicy.default_rolling_policy(1024, rollover_interval=60_000, inactivity_interval=10_000)
        print(policy.is_full(size=2048, age_ms=0, idle_ms=0))
        ```

        ```text
        True
        ```
    """


class OnCheckpointRollingPolicy(RollingPolicy):
    """Rolls when results become visible; made by ``RollingPolicy.on_checkpoint_rolling_policy()``.

    Examples:
        ```python
        from firesteel.datastream.connectors.file_system import RollingPolicy

        policy = RollingPolicy.on_checkpoint_rolling_policy()  # a new file at each checkpoint; bulk formats need it
        ```
    """

    at_checkpoints = True


class BucketAssigner:
    """Chooses the folder below the base path that a record goes to.

    Args:
        bucket: function of record and wall clock (epoch ms) that gives a relative path; empty = the base path itself.

    Examples:
        ```python
        from firesteel.datastream.connectors.file_system import BucketAssigner

        hourly = BucketAssigner.date_time_bucket_assigner("yyyy-MM-dd--HH", "UTC")
        print(hourly.bucket_of("a record", 0))
        ```

        ```text
        1970-01-01--00
        ```
    """

    def __init__(self, bucket: Callable[[Any, int], str]) -> None:
        self._bucket = bucket

    @staticmethod
    def base_path_bucket_assigner() -> BucketAssigner:
        """Write all records into the base path."""
        return BucketAssigner(_base_path)

    @staticmethod
    def date_time_bucket_assigner(format_str: str = "yyyy-MM-dd--HH", timezone_id: str | None = None) -> BucketAssigner:
        """Write records into a folder for each hour of the wall clock, or as the pattern says.

        Args:
            format_str: pattern of yyyy, MM, dd, HH, mm, ss; text in single quotes stands for itself.
            timezone_id: time zone such as ``Europe/Berlin``; None = that of the machine.

        Raises:
            ProgramError: the pattern or the time zone is not known.
        """
        try:
            zone = None if timezone_id is None else ZoneInfo(timezone_id)
        except (ZoneInfoNotFoundError, ValueError) as error:
            raise ProgramError(f"date-time buckets: unknown time zone {timezone_id!r}") from error
        return BucketAssigner(_DateTime(_translate(format_str), zone))

    @property
    def looks_at_records(self) -> bool:
        """Whether two records of the same moment may go to different folders."""
        return not (self._bucket is _base_path or isinstance(self._bucket, _DateTime))

    def rows_of_buckets(self, batch: Any, now_ms: int) -> dict[str, Any] | None:
        """Positions of the rows of a record batch by their folder; None = ``bucket_of`` is asked for each row."""
        return None

    def bucket_of(self, record: Any, now_ms: int) -> str:
        """Relative path for a record.

        Raises:
            ProgramError: the path leads out of the base path.
        """
        bucket = self._bucket(record, now_ms)
        if os.path.isabs(bucket) or ".." in bucket.split(os.sep):
            raise ProgramError(f"bucket {bucket!r} leads out of the sink's base path")
        return bucket


def _base_path(record: Any, now_ms: int) -> str:
    return ""


@dataclass(frozen=True)
class _DateTime:
    """Buckets by the wall clock; ``pattern`` is one of ``strftime``, ``zone`` None = that of the machine."""

    pattern: str
    zone: tzinfo | None

    def __call__(self, record: Any, now_ms: int) -> str:
        return datetime.fromtimestamp(now_ms / 1000, self.zone).strftime(self.pattern)


def _translate(pattern: str) -> str:
    """The pattern of Java's dates as one of ``strftime``. In Java ``''`` is a quote, also within quoted text."""
    if pattern.count("'") % 2:
        raise ProgramError(f"date-time buckets: a quote in {pattern!r} has no end")
    directives = []
    for match in _TOKEN.finditer(pattern):
        text = match.group()
        if match.group(1) is not None:
            directives.append(match.group(1).replace("''", "'").replace("%", "%%") or "'")
        elif match.group(2) is None:
            directives.append(text.replace("%", "%%"))
        elif text in _PATTERN:
            directives.append(_PATTERN[text])
        else:
            raise ProgramError(f"date-time buckets: {text!r} in {pattern!r} is not one of {', '.join(_PATTERN)}")
    return "".join(directives)
