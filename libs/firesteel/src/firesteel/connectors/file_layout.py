"""How a file sink lays out its files: buckets, part names, when a part is full."""

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
_TOKEN: Final = re.compile(r"'([^']*)'|([A-Za-z])\2*|[^A-Za-z']+")


@dataclass(frozen=True)
class OutputFileConfig:
    """Names of part files: ``<prefix>-<writer>-<number><suffix>``.

    Raises:
        ProgramError: one holds a path separator, or the prefix begins with a dot (such files count as hidden).
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
        """A builder with the defaults."""
        return OutputFileConfigBuilder()

    def get_part_prefix(self) -> str:
        """The prefix."""
        return self.prefix

    def get_part_suffix(self) -> str:
        """The suffix."""
        return self.suffix


class OutputFileConfigBuilder:
    """Builds an ``OutputFileConfig``."""

    def __init__(self) -> None:
        self._prefix, self._suffix = "part", ""

    def with_part_prefix(self, prefix: str) -> OutputFileConfigBuilder:
        """Begin file names with this.

        Raises:
            ProgramError: it holds a path separator, or begins with a dot (such files count as hidden).
        """
        self._prefix = OutputFileConfig(prefix).prefix
        return self

    def with_part_suffix(self, suffix: str) -> OutputFileConfigBuilder:
        """End file names with this, for instance ``.txt``."""
        self._suffix = _checked(suffix, "suffix")
        return self

    def build(self) -> OutputFileConfig:
        """The configuration."""
        return OutputFileConfig(self._prefix, self._suffix)


def _checked(text: str, what: str) -> str:
    if os.sep in text or "\0" in text:
        raise ProgramError(f"part {what} {text!r} holds a path separator")
    return text


@dataclass(frozen=True)
class RollingPolicy:
    """When a part file is full and the next one begins.

    Attributes:
        part_size: bytes.
        rollover_interval_ms: age.
        inactivity_interval_ms: time without a record.
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
    """A part ends at each checkpoint, whatever its size."""

    def is_full(self, size: int, age_ms: float, idle_ms: float) -> bool:
        """Whether the next record begins a new part."""
        return (
            (self.part_size is not None and size >= self.part_size)
            or (self.rollover_interval_ms is not None and age_ms >= self.rollover_interval_ms)
            or (self.inactivity_interval_ms is not None and idle_ms >= self.inactivity_interval_ms)
        )


class DefaultRollingPolicy(RollingPolicy):
    """Rolls by size, age and inactivity; made by ``RollingPolicy.default_rolling_policy()``."""


class OnCheckpointRollingPolicy(RollingPolicy):
    """Rolls when results become visible; made by ``RollingPolicy.on_checkpoint_rolling_policy()``."""

    at_checkpoints = True


class BucketAssigner:
    """Which folder below the base path a record goes to.

    Args:
        bucket: (record, wall clock in epoch ms) -> relative path; empty = the base path itself.
    """

    def __init__(self, bucket: Callable[[Any, int], str]) -> None:
        self._bucket = bucket

    @staticmethod
    def base_path_bucket_assigner() -> BucketAssigner:
        """All into the base path."""
        return BucketAssigner(_base_path)

    @staticmethod
    def date_time_bucket_assigner(format_str: str = "yyyy-MM-dd--HH", timezone_id: str | None = None) -> BucketAssigner:
        """A folder for each date and hour of the wall clock.

        Args:
            format_str: of yyyy, MM, dd, HH, mm, ss; text in single quotes stands for itself.
            timezone_id: such as ``Europe/Berlin``; None = the machine's.

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
        """Whether two records of one moment may go to different folders."""
        return not (self._bucket is _base_path or isinstance(self._bucket, _DateTime))

    def bucket_of(self, record: Any, now_ms: int) -> str:
        """The relative path for a record.

        Raises:
            ProgramError: it leads out of the base path.
        """
        bucket = self._bucket(record, now_ms)
        if os.path.isabs(bucket) or ".." in bucket.split(os.sep):
            raise ProgramError(f"bucket {bucket!r} leads out of the sink's base path")
        return bucket


def _base_path(record: Any, now_ms: int) -> str:
    return ""


@dataclass(frozen=True)
class _DateTime:
    pattern: str
    zone: tzinfo | None

    def __call__(self, record: Any, now_ms: int) -> str:
        return datetime.fromtimestamp(now_ms / 1000, self.zone).strftime(self.pattern)


def _translate(pattern: str) -> str:
    made = []
    for match in _TOKEN.finditer(pattern):
        text = match.group()
        if match.group(1) is not None:
            made.append(match.group(1).replace("%", "%%") or "'")
        elif match.group(2) is None:
            made.append(text.replace("%", "%%"))
        elif text in _PATTERN:
            made.append(_PATTERN[text])
        else:
            raise ProgramError(f"date-time buckets: {text!r} in {pattern!r} is not one of {', '.join(_PATTERN)}")
    return "".join(made)
