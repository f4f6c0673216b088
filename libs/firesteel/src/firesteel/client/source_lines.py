"""Adds source lines to tracebacks of slots: a notebook's cells are no files, so only this process has their text.

It also names the cell: ``Cell In[3], line 2`` instead of the path that the kernel has made up.
"""

from __future__ import annotations

import linecache
import re

from firesteel.core.notebook import cell_of_file

_FRAME = re.compile(r'  File "(?P<file>.+)", line (?P<line>\d+), in (?P<function>.+)')


def with_source_lines(traceback_text: str) -> str:
    """Add the source line to each frame that has none, and name cells, where this process knows them."""
    lines = traceback_text.splitlines()
    completed: list[str] = []
    for line, following in zip(lines, [*lines, ""][1:], strict=True):
        completed.append(line)
        frame = _FRAME.fullmatch(line)
        cell = None if frame is None else cell_of_file(frame["file"])
        if frame is not None and cell is not None:
            completed[-1] = f"  {cell}, line {frame['line']}, in {frame['function']}"
        if frame is not None and not following.startswith("    "):
            source = linecache.getline(frame["file"], int(frame["line"])).strip()
            if source:
                completed.append(f"    {source}")
    return "\n".join(completed) + ("\n" if traceback_text.endswith("\n") else "")
