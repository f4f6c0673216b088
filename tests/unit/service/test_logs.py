from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from firesteel.config import Settings
from firesteel.core.errors import ConfigurationError
from firesteel.core.log_levels import levels, set_level
from firesteel.service.logs import FieldsFilter, configure_logging, log_fields, setup_logging


@pytest.fixture
def lines() -> io.StringIO:
    return io.StringIO()


def test_lines_say_what_they_are_about(lines: io.StringIO) -> None:
    root = logging.getLogger()
    level = root.level
    handler = setup_logging("INFO", lines)
    try:
        logging.getLogger("firesteel.test").info("bare")
        with log_fields(job="j1"):
            with log_fields(vertex="Map", subtask=2):
                logging.getLogger("firesteel.test").info("full", extra={"attempt": 0})
            logging.getLogger("firesteel.test").info("outer")
    finally:
        root.removeHandler(handler)
        root.setLevel(level)
    bare, full, outer = lines.getvalue().splitlines()
    assert bare.endswith("firesteel.test: bare")
    assert full.endswith("firesteel.test [job=j1 vertex=Map subtask=2 attempt=0]: full")
    assert outer.endswith("firesteel.test [job=j1]: outer")


def test_fields_are_attributes_of_the_record() -> None:
    record = logging.makeLogRecord({"msg": "x", "job": "own"})
    with log_fields(job="context", vertex="v"):
        assert FieldsFilter().filter(record)
    assert (record.__dict__["job"], record.__dict__["vertex"], record.__dict__["subtask"]) == ("own", "v", None)


@pytest.fixture
def root() -> Iterator[logging.Logger]:
    logger = logging.getLogger()
    level, handlers = logger.level, list(logger.handlers)
    yield logger
    logger.setLevel(level)
    for handler in logger.handlers:
        if handler not in handlers:
            handler.close()
    logger.handlers[:] = handlers


def test_lines_are_json_where_the_settings_say_so(root: logging.Logger, lines: io.StringIO) -> None:
    setup_logging("INFO", lines)
    configure_logging(Settings({"firesteel.log.format": "json", "env.log.level": "DEBUG"}))
    with log_fields(job="j1", vertex="v", subtask=0):
        logging.getLogger("firesteel.test").debug("two\nlines %d", 7, extra={"attempt": 3})
    try:
        raise ValueError("boom")
    except ValueError:
        logging.getLogger("firesteel.test").exception("failed")
    first, second = map(json.loads, lines.getvalue().splitlines())
    assert first.pop("time").endswith("+00:00")
    assert first == {
        "level": "DEBUG", "logger": "firesteel.test", "message": "two\nlines 7", "thread": "MainThread", "job": "j1",
        "vertex": "v", "subtask": 0, "attempt": 3,
    }  # fmt: skip
    assert second["message"] == "failed"
    assert second["exception"].startswith("Traceback")
    assert second["exception"].endswith("ValueError: boom")
    assert "job" not in second


def test_files_are_rotated_by_the_settings(root: logging.Logger, tmp_path: Path) -> None:
    setup_logging("INFO", file=tmp_path / "service.log")
    configure_logging(Settings({"firesteel.log.max-size": "64 kb", "env.log.max": "2"}))
    for _ in range(400):
        logging.getLogger("firesteel.test").info("x" * 1000)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["service.log", "service.log.1", "service.log.2"]
    assert all(path.stat().st_size <= 65_536 for path in tmp_path.iterdir())


def test_handlers_of_others_stay_as_they_are(root: logging.Logger) -> None:
    theirs = logging.StreamHandler(io.StringIO())
    root.addHandler(theirs)
    configure_logging(Settings({"firesteel.log.format": "json"}))
    assert theirs.formatter is None


def test_levels_are_changed_shown_and_taken_back(root: logging.Logger) -> None:
    set_level("root", "warn")
    set_level("firesteel.test.levels", "debug")
    try:
        shown_levels = levels()
        assert next(iter(shown_levels.items())) == ("root", "WARN")
        assert shown_levels["firesteel.test.levels"] == "DEBUG"
        assert logging.getLogger("firesteel.test.levels.below").isEnabledFor(logging.DEBUG)
    finally:
        set_level("firesteel.test.levels", "INHERIT")
    assert "firesteel.test.levels" not in levels()
    assert not logging.getLogger("firesteel.test.levels.below").isEnabledFor(logging.INFO)
    set_level("root", "OFF")
    assert not logging.getLogger("firesteel.test").isEnabledFor(logging.CRITICAL)
    with pytest.raises(ConfigurationError, match="'LOUD' is no level of logs"):
        set_level("root", "LOUD")
    with pytest.raises(ConfigurationError, match="'LOUD' is no level"):
        configure_logging(Settings({"env.log.level": "LOUD"}))
