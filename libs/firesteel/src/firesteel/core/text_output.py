"""Text of users on streams whose encoding may lack some of its characters: what is missing is escaped, never lost."""

from __future__ import annotations

import io
import sys
from typing import Final, TextIO

ESCAPED: Final = "backslashreplace"
"""How text is encoded and decoded wherever it is shown: ``\\u20ac``, ``\\xff``. Nothing is raised, nothing left out."""


def write_text(stream: TextIO, text: str) -> None:
    """Write to a stream that somebody else has opened; characters that its encoding lacks become escapes."""
    try:
        stream.write(text)
    except UnicodeEncodeError:  # raised before anything was written: a text stream encodes first
        encoding = getattr(stream, "encoding", None) or "ascii"
        stream.write(text.encode(encoding, ESCAPED).decode(encoding))


def escape_missing_characters() -> None:
    """Have this process's standard streams escape what their encoding lacks, whoever writes to them.

    For processes of our own. A stream that somebody has put in their place is left as it is.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors in ("strict", "surrogateescape"):
            stream.reconfigure(errors=ESCAPED)
