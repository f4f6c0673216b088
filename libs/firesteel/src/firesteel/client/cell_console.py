"""What a job has to say in a notebook's cell: one line that is updated in place, and notes below it."""

from __future__ import annotations

import html
import sys
import uuid
from typing import Final

from typing_extensions import override

from firesteel.client.console import Console
from firesteel.core import html_cards, notebook
from firesteel.core.text_output import write_text

_LINE_LIMIT: Final = 500


class CellConsole(Console):
    """The console of a job that a cell waits for.

    Args:
        dashboard_url: page of the job; empty = no link.
    """

    quiet_seconds = 1.0
    """Cells of a moment, as most are, stay without a line."""
    keeps_last_line = True

    def __init__(self, dashboard_url: str = "") -> None:
        super().__init__()
        self._dashboard_url = dashboard_url
        self._display_id = f"firesteel-{uuid.uuid4().hex}"
        self._is_shown = False

    @property
    @override
    def has_live_line(self) -> bool:
        return True

    @property
    @override
    def can_ask(self) -> bool:
        """False: while a cell is interrupted its kernel can't be asked anything."""
        return False

    @override
    def note(self, text: str) -> None:
        # Standard error has a red ground in a notebook: it is for what went wrong.
        write_text(sys.stdout, text + "\n")
        sys.stdout.flush()

    @override
    def live(self, text: str) -> None:
        shown = html_cards.text(text, _LINE_LIMIT)
        page = f" &nbsp;{html_cards.link(self._dashboard_url, 'dashboard')}" if self._dashboard_url else ""
        line = f'<div style="font-family:monospace;white-space:pre-wrap">{shown}{page}</div>'
        bundle = {"text/plain": html.unescape(shown), "text/html": line}
        notebook.show(bundle, self._display_id, update=self._is_shown)
        self._is_shown = True

    @override
    def clear(self) -> None:
        """Leaves the line: it says how the job ended."""

    @override
    def how_to_cancel(self, job_id: str) -> str:
        return "`env.cancel_jobs()`"
