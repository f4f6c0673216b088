"""Logs that say which job, vertex, subtask and attempt a line is about."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any, TextIO

FIELDS = ("job", "vertex", "subtask", "attempt")
FORMAT = "%(asctime)s %(levelname)-5s %(name)s%(where)s: %(message)s"
LOG_BYTES = 100_000_000
OLD_LOGS = 10
_context: ContextVar[Mapping[str, Any]] = ContextVar("firesteel_log_fields", default={})  # noqa: B039 # never changed


@contextmanager
def log_fields(**fields: Any) -> Iterator[None]:
    """All lines logged inside carry these fields; inner calls add to outer ones."""
    token = _context.set({**_context.get(), **fields})
    try:
        yield
    finally:
        _context.reset(token)


class FieldsFilter(logging.Filter):
    """Puts the fields into each record: as attributes, and as the text ``where``."""

    def filter(self, record: logging.LogRecord) -> bool:
        fields = {**_context.get(), **{f: record.__dict__[f] for f in FIELDS if f in record.__dict__}}
        for name in FIELDS:
            record.__dict__.setdefault(name, fields.get(name))
        text = " ".join(f"{name}={fields[name]}" for name in FIELDS if fields.get(name) is not None)
        record.where = f" [{text}]" if text else ""
        return True


def setup_logging(level: str = "INFO", stream: TextIO | None = None, file: Path | None = None) -> logging.Handler:
    """Send all logs to a stream (default: stderr) or a rotated file; for service processes, not for libraries.

    Args:
        level: smallest level that is logged.
        stream: where to, if no file is given.
        file: rotated when it has 100 MB; ten old ones are kept, as Flink does.

    Returns:
        The handler, so that it can be removed.

    Raises:
        OSError: the file can't be written.
    """
    handler: logging.Handler
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        handler = RotatingFileHandler(file, maxBytes=LOG_BYTES, backupCount=OLD_LOGS, encoding="utf-8")
    else:
        handler = logging.StreamHandler(stream)
    handler.setFormatter(logging.Formatter(FORMAT))
    handler.addFilter(FieldsFilter())
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(level)
    return handler
