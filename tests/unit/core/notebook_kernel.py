"""A stand-in for the kernel of a notebook, which notes what its cells show."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest


class Shell:
    """As much of IPython's shell as Firesteel uses.

    Args:
        place: the id of the cell that runs; empty = the front end does not tell it.
    """

    kernel = object()

    def __init__(self, place: str = "") -> None:
        self.place = place
        self.shown: list[tuple[str, str, str, bool]] = []
        """Plain text, HTML, display id, and whether it replaced what was there."""
        self.history_manager = SimpleNamespace(input_hist_parsed=["", "first cell"])
        self.display_pub = SimpleNamespace(publish=self._publish)
        self.compile = SimpleNamespace(
            format_code_name=lambda name: ("Cell", "In[1]") if name.startswith("/tmp/ipykernel_") else None
        )
        self.InteractiveTB = SimpleNamespace(structured_traceback=self._structured)
        self.rendered: list[list[str]] = []
        self.causes: list[BaseException | None] = []

    def get_parent(self) -> dict[str, Any]:
        return {"metadata": {"cellId": self.place} if self.place else {}}

    def next_cell(self) -> None:
        self.history_manager.input_hist_parsed.append("another cell")

    def _publish(self, data: dict[str, str], metadata: Any, transient: dict[str, str], update: bool) -> None:
        self.shown.append((data["text/plain"], data["text/html"], transient["display_id"], update))

    def _structured(self, kind: type, error: BaseException, trace: Any) -> list[str]:
        names = []
        while trace is not None:
            names.append(trace.tb_frame.f_code.co_name)
            trace = trace.tb_next
        self.rendered.append(names)
        self.causes.append(error.__cause__)
        return ["head", *names, f"{kind.__name__}: {error}"]


def in_notebook(monkeypatch: pytest.MonkeyPatch, place: str = "") -> Shell:
    """From here to the end of the test the program runs in a cell."""
    shell = Shell(place)
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    return shell
