"""Adds source lines to tracebacks of slots: a notebook's cells are no files, so only this process has their text."""

from __future__ import annotations

import linecache
import re

_FRAME = re.compile(r'  File "(?P<file>.+)", line (?P<line>\d+), in .+')


def with_source_lines(traceback_text: str) -> str:
    """Add the source line to each frame that has none, where this process knows it."""
    lines = traceback_text.splitlines()
    completed: list[str] = []
    for line, following in zip(lines, [*lines, ""][1:], strict=True):
        completed.append(line)
        frame = _FRAME.fullmatch(line)
        if frame is not None and not following.startswith("    "):
            source = linecache.getline(frame["file"], int(frame["line"])).strip()
            if source:
                completed.append(f"    {source}")
    return "\n".join(completed) + ("\n" if traceback_text.endswith("\n") else "")
