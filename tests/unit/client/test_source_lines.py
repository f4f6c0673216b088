"""Tracebacks of slots get the lines that only the program's process knows."""

from __future__ import annotations

import linecache

import pytest

from firesteel.client.source_lines import with_source_lines

CELL = "/tmp/ipykernel_1/2.py"
ALL = f"""Traceback (most recent call last):
  File "{CELL}", line 2, in share
    return 12 // i
  File "/opt/known.py", line 7, in known
    something()
    ^^^^^^^^^^^
  File "/nowhere/unknown.py", line 1, in unknown
ZeroDivisionError: integer division or modulo by zero
"""


@pytest.mark.parametrize("end", ["", "\n"])
def test_only_what_is_missing_is_added(monkeypatch: pytest.MonkeyPatch, end: str) -> None:
    cell = ["def share(i):\n", "    return 12 // i\n"]
    monkeypatch.setitem(linecache.cache, CELL, (0, None, cell, CELL))
    monkeypatch.setitem(linecache.cache, "/opt/known.py", (0, None, ["another version\n"] * 9, "/opt/known.py"))
    complete = ALL.rstrip("\n") + end
    assert with_source_lines(complete.replace("    return 12 // i\n", "")) == complete
    assert with_source_lines(complete) == complete
    assert with_source_lines("") == ""
