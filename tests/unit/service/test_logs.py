from __future__ import annotations

import io
import logging

import pytest

from firesteel.service.logs import FieldsFilter, log_fields, setup_logging


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
