"""``JobID``: 16 random bytes, shown as 32 hex digits."""

from __future__ import annotations

import re

from firesteel.core.ids import new_job_id

__all__ = ["JobID"]

_HEX = re.compile(r"[0-9a-f]{32}")


class JobID:
    """Identifies one submission of a program.

    Raises:
        ValueError: the text is not 32 hex digits.

    Examples:
        ```python
        from firesteel.common import JobID

        print(JobID.from_hex_string("00000000000000000000000000000abc").to_hex_string()[-3:])
        ```

        ```text
        abc
        ```
    """

    __slots__ = ("_text",)

    def __init__(self, text: str | None = None) -> None:
        value = new_job_id() if text is None else text.lower()
        if not _HEX.fullmatch(value):
            raise ValueError(f"A job id is 32 hex digits, not {text!r}.")
        self._text: str = value

    @staticmethod
    def from_hex_string(text: str) -> JobID:
        """Reads an id from 32 hex digits."""
        return JobID(text)

    def to_hex_string(self) -> str:
        """Returns 32 lower-case hex digits."""
        return self._text

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"JobID({self._text})"

    def __eq__(self, other: object) -> bool:
        return self._text == other._text if isinstance(other, JobID) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._text)
