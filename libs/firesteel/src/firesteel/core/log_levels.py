"""Levels of loggers, with the names of log4j, which Flink's options use."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from firesteel.core.errors import ConfigurationError

INHERIT: Final = "INHERIT"
ROOT: Final = "root"
_OFF: Final = logging.CRITICAL + 10
_NUMBERS: Final[Mapping[str, int]] = {
    "TRACE": logging.DEBUG, "DEBUG": logging.DEBUG, "INFO": logging.INFO, "WARN": logging.WARNING,
    "WARNING": logging.WARNING, "ERROR": logging.ERROR, "FATAL": logging.CRITICAL, "CRITICAL": logging.CRITICAL,
    "OFF": _OFF, INHERIT: logging.NOTSET,
}  # fmt: skip
LEVELS: Final = tuple(_NUMBERS)
"""Names of levels, in any case of letters."""
_NAMES: Final = {
    logging.DEBUG: "DEBUG", logging.INFO: "INFO", logging.WARNING: "WARN", logging.ERROR: "ERROR",
    logging.CRITICAL: "FATAL", _OFF: "OFF",
}  # fmt: skip


def level_number(name: str) -> int:
    """The level's number in ``logging``; 0 for ``INHERIT``.

    Raises:
        ConfigurationError: there is no such level.
    """
    number = _NUMBERS.get(name.upper())
    if number is None:
        raise ConfigurationError(f"{name!r:.40} is no level of logs: {', '.join(LEVELS)} are")
    return number


def set_level(logger: str, level: str) -> None:
    """Change the level of a logger in this process.

    Args:
        logger: its name; ``root`` or nothing: that of all that have none of their own.
        level: one of ``LEVELS``; ``INHERIT``: it goes by the logger above it, and ``root`` is INFO again.

    Raises:
        ConfigurationError: there is no such level.
    """
    number = level_number(level)
    is_root = logger in ("", ROOT)
    logging.getLogger(None if is_root else logger).setLevel(number or (logging.INFO if is_root else logging.NOTSET))


def levels() -> dict[str, str]:
    """Loggers of this process that have a level of their own, ``root`` first."""
    levels = {ROOT: _name(logging.getLogger().level)}
    for name, logger in sorted(logging.Logger.manager.loggerDict.items()):
        if isinstance(logger, logging.Logger) and logger.level != logging.NOTSET:
            levels[name] = _name(logger.level)
    return levels


def _name(level: int) -> str:
    return _NAMES.get(level, logging.getLevelName(level))
