"""Python functions that tests call from SQL."""

from __future__ import annotations

import os
import signal


def unquoted(text: str | None) -> str:
    """A text; "none" for NULL."""
    return "none" if text is None else text


def passed(number: int, marker: str) -> int:
    """The number; the first time that it is 12,000 the slot is killed."""
    if number == 12_000 and not os.path.exists(marker):
        with open(marker, "w"):
            os.kill(os.getpid(), signal.SIGKILL)
    return number
