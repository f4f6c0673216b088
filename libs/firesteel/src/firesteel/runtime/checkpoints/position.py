"""Where a source reader, or an enumerator, is at a barrier."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class SourcePosition:
    """Where a source reader, or an enumerator, is.

    Attributes:
        operator_id: of the source, or of the enumerator.
        splits: plain splits that are not finished, with their positions.
        serial: of the last splits that the reader got; of what the enumerator has said last; 0 = none yet.
    """

    operator_id: str
    splits: tuple[Mapping[str, Any], ...]
    serial: int
