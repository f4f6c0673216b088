"""Python functions that tests call from SQL."""

from __future__ import annotations


def unquoted(text: str | None) -> str:
    """A text; "none" for NULL."""
    return "none" if text is None else text
