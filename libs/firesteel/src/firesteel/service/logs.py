"""Set-up of logs, whose lines name the job and the task that they are about."""

from __future__ import annotations

import json
import logging
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any, TextIO

from firesteel.config import Settings, options
from firesteel.core.log_levels import ROOT, set_level
from firesteel.core.text_output import ESCAPED

FIELDS = ("job", "task", "vertex", "subtask", "attempt")
"""Fields of a record. ``task`` is Flink's name of a task for people, with its subtask from 1 on (``Map (1/2)#0``); the
number ``subtask`` is the one in ids of metrics, and counts from 0."""
FORMAT = "%(asctime)s %(levelname)-5s %(name)s%(where)s: %(message)s"
LOG_BYTES = 100_000_000
OLD_LOGS = 10
_context: ContextVar[Mapping[str, Any]] = ContextVar("firesteel_log_fields", default={})  # noqa: B039 # never changed


@contextmanager
def log_fields(**fields: Any) -> Iterator[None]:
    """Add fields to all lines that are logged within the context; inner contexts add to outer ones."""
    token = _context.set({**_context.get(), **fields})
    try:
        yield
    finally:
        _context.reset(token)


class FieldsFilter(logging.Filter):
    """Puts the fields of ``log_fields`` into each record: as attributes, and as the text ``where``."""

    def filter(self, record: logging.LogRecord) -> bool:
        fields = {**_context.get(), **{f: record.__dict__[f] for f in FIELDS if f in record.__dict__}}
        for name in FIELDS:
            record.__dict__.setdefault(name, fields.get(name))
        shown = FIELDS if fields.get("task") is None else ("job", "task")  # a task says the others
        text = " ".join(f"{name}={fields[name]}" for name in shown if fields.get(name) is not None)
        record.where = f" [{text}]" if text else ""
        return True


class JsonFormatter(logging.Formatter):
    """One JSON object on each line: ``time`` (UTC, ISO 8601), ``level``, ``logger``, ``message``, ``thread``,
    the fields that are known; ``exception`` with a traceback.
    """

    def format(self, record: logging.LogRecord) -> str:
        plain: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            "thread": record.threadName,
        }
        for name in FIELDS:
            value = record.__dict__.get(name)
            if value is not None:
                plain[name] = value
        if record.exc_info and record.exc_info[1] is not None:
            plain["exception"] = "".join(traceback.format_exception(record.exc_info[1])).rstrip()
        if record.stack_info:
            plain["stack"] = record.stack_info
        return json.dumps(plain, default=str)


def configure_logging(settings: Settings) -> None:
    """Configure the handlers of ``setup_logging`` by the settings: level, format, size and number of files.

    Raises:
        ConfigurationError: an option has a bad value.
    """
    set_level(ROOT, settings.get(options.LOG_LEVEL))
    as_json = settings.get(options.LOG_FORMAT) == "json"
    for handler in logging.getLogger().handlers:
        formatter = handler.formatter
        if not isinstance(formatter, JsonFormatter) and (formatter is None or formatter._fmt != FORMAT):
            continue  # a handler of the user's program
        handler.setFormatter(JsonFormatter() if as_json else logging.Formatter(FORMAT))
        if isinstance(handler, RotatingFileHandler):
            handler.maxBytes, handler.backupCount = settings.get(options.LOG_SIZE), settings.get(options.LOG_MAX)


def setup_logging(level: str = "INFO", stream: TextIO | None = None, file: Path | None = None) -> logging.Handler:
    """Send all logs to a stream (default: stderr) or a rotated file; for service processes, not for libraries.

    Args:
        level: smallest level that is logged.
        stream: used if there is no ``file``.
        file: rotated when it has 100 MB; ten old files are kept, as in Flink.

    Returns:
        The handler, so that it can be removed.

    Raises:
        OSError: the file can't be written.
    """
    handler: logging.Handler
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        handler = RotatingFileHandler(file, maxBytes=LOG_BYTES, backupCount=OLD_LOGS, encoding="utf-8", errors=ESCAPED)
    else:
        handler = logging.StreamHandler(stream)
    handler.setFormatter(logging.Formatter(FORMAT))
    handler.addFilter(FieldsFilter())
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(level)
    return handler
