"""How the ``-D`` definitions of ``firesteel run`` reach the program that it runs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final

__all__ = ["hand_on", "handed_on"]

_VARIABLE: Final = "FIRESTEEL_DEFINITIONS"
_SEPARATOR: Final = "\x1f"


def hand_on(definitions: Sequence[str]) -> None:
    """Keep ``key=value`` definitions for programs of this process."""
    os.environ[_VARIABLE] = _SEPARATOR.join(definitions)


def handed_on() -> list[str]:
    text = os.environ.get(_VARIABLE, "")
    return text.split(_SEPARATOR) if text else []
