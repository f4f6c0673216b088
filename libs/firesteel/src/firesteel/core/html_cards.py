"""HTML that notebooks show for objects: escaped, bounded in size, legible on light and dark ground."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from typing import Final

MAX_TEXT: Final = 120
"""Characters of a name or value that are shown."""
MAX_ROWS: Final = 20
MAX_COLUMNS: Final = 20
# Colours come from the notebook's theme: text in its own colour, lines in a grey that is seen on white and on black.
_LINE: Final = "1px solid rgba(128,128,128,.4)"
_CARD: Final = f"border:{_LINE};border-radius:4px;padding:.5em .8em;margin:.3em 0;max-width:60em;overflow-x:auto"
_CELL: Final = f"text-align:left;vertical-align:top;padding:.15em .6em;border-bottom:{_LINE};white-space:pre-wrap"


def text(value: str, limit: int = MAX_TEXT) -> str:
    """A text as HTML, cut to ``limit`` characters."""
    shortened = value if len(value) <= limit else value[: limit - 1] + "…"
    # Half of a surrogate pair can't be sent to the browser.
    return html.escape(shortened.encode("utf-8", "backslashreplace").decode("utf-8"))


def link(url: str, label: str) -> str:
    """A link that opens beside the notebook; only to a web address, else the label alone."""
    if not url.startswith(("http://", "https://")):
        return text(label)
    return f'<a href="{html.escape(url)}" style="color:inherit" target="_blank" rel="noopener">{text(label)}</a>'


def card(title: str, facts: Iterable[tuple[str, str]], *bodies: str) -> str:
    """A box with a title and facts.

    Args:
        title: plain text.
        facts: label as plain text and value as HTML.
        bodies: further HTML below.
    """
    rows = "".join(
        f'<tr><td style="text-align:left;padding:.1em 1em .1em 0;opacity:.7;white-space:nowrap">{text(label)}</td>'
        f'<td style="text-align:left;padding:.1em 0">{value}</td></tr>'
        for label, value in facts
    )
    facts_table = f'<table style="border-collapse:collapse;margin:.3em 0">{rows}</table>' if rows else ""
    return f'<div style="{_CARD}"><b>{text(title)}</b>{facts_table}{"".join(bodies)}</div>'


def more(count: int, noun: str) -> str:
    """How many things are not shown; empty if there are none."""
    return f'<div style="opacity:.7">and {count:,} more {text(noun)}</div>' if count > 0 else ""


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of plain texts, at most ``MAX_ROWS`` rows and ``MAX_COLUMNS`` columns of it."""
    dropped = max(0, max([len(header), *map(len, rows[:MAX_ROWS])]) - MAX_COLUMNS)
    head = "".join(f'<th style="{_CELL}">{text(name)}</th>' for name in header[:MAX_COLUMNS])
    body = "".join(
        "<tr>" + "".join(f'<td style="{_CELL}">{text(value)}</td>' for value in row[:MAX_COLUMNS]) + "</tr>"
        for row in rows[:MAX_ROWS]
    )
    return (
        f'<table style="border-collapse:collapse;margin:.3em 0">{f"<tr>{head}</tr>" if head else ""}{body}</table>'
        + more(dropped, "columns")
    )
