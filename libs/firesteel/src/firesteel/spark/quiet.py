"""py4j's own log, held back where the loss of the JVM is expected or told in other words."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_py4j_log() -> Iterator[None]:
    """Drop what py4j logs meanwhile; part of it goes to the root logger. The errors themselves are raised as ever."""
    root, py4j_logger = logging.getLogger(), logging.getLogger("py4j")
    level = py4j_logger.level
    py4j_logger.setLevel(logging.CRITICAL + 1)
    root.addFilter(_is_not_from_py4j)
    try:
        yield
    finally:
        root.removeFilter(_is_not_from_py4j)
        py4j_logger.setLevel(level)


def _is_not_from_py4j(record: logging.LogRecord) -> bool:
    return "/py4j/" not in record.pathname
