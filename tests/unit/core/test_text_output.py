"""Text of users on streams that lack some of its characters."""

from __future__ import annotations

import io
import json
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from firesteel.client.console import Console
from firesteel.core.text_output import write_text
from firesteel.service.logs import setup_logging
from firesteel.service.process_logs import TextRing


@pytest.mark.parametrize(
    ("encoding", "text", "shown"),
    [
        ("ascii", "5 € é", b"5 \\u20ac \\xe9"),
        ("latin-1", "5 € é", b"5 \\u20ac \xe9"),
        ("utf-8", "5 € \udc80", b"5 \xe2\x82\xac \\udc80"),
    ],
)
def test_characters_that_an_encoding_lacks_are_escaped(encoding: str, text: str, shown: bytes) -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding=encoding)
    write_text(stream, text)
    stream.flush()
    assert raw.getvalue() == shown


def test_the_command_shows_all_text() -> None:
    out, err = io.BytesIO(), io.BytesIO()
    ascii_out, ascii_err = io.TextIOWrapper(out, encoding="ascii"), io.TextIOWrapper(err, encoding="ascii")
    console = Console(ascii_out, ascii_err)
    console.say("Zürich")
    console.note("Genève")
    console.live("Łódź")
    assert out.getvalue() == b"Z\\xfcrich\n"
    assert b"Gen\\xe8ve\n" in err.getvalue()
    assert b"\\u0141\\xf3d\\u017a" in err.getvalue()


def test_standard_streams_of_our_processes_escape() -> None:
    code = (
        "import sys; from firesteel.core.text_output import escape_missing_characters as escape; escape();"
        "print('5 €'); print('6 €', file=sys.stderr)"
    )
    environment = {**os.environ, "PYTHONIOENCODING": "ascii:strict"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, env=environment)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"5 \\u20ac\n", b"6 \\u20ac\n")


def test_a_program_that_the_dispatcher_runs_may_print_anything(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("print('5 €')\n", encoding="utf-8")
    order = {
        "parent": os.getpid(), "answer": str(tmp_path / "answer"), "program": str(program), "plan_only": False,
        "is_application": False, "job_id": None, "is_restarted": False, "settings": {}, "entry": None, "arguments": [],
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-m", "firesteel.client.program_process"],
        input=json.dumps(order).encode() + b"\n",
        capture_output=True,
        env={**os.environ, "PYTHONIOENCODING": "ascii:strict"},
    )
    assert (done.returncode, done.stdout) == (0, b"5 \\u20ac\n")
    assert not (tmp_path / "answer").exists()  # no failure


def test_logs_hold_all_text(tmp_path: Path) -> None:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    handler = setup_logging(file=tmp_path / "a.log")
    try:
        handler.handle(logging.LogRecord("user", 20, __file__, 1, "name %s", ("\udc80 €",), None))
    finally:
        root.removeHandler(handler)
        handler.close()
        root.handlers[:] = handlers
        root.setLevel(level)
    assert "name \\udc80 €\n" in (tmp_path / "a.log").read_text(encoding="utf-8")
    ring = TextRing()
    ring.write("\udc80 €")
    assert ring.read(0, 100).data == "\\udc80 €".encode()
