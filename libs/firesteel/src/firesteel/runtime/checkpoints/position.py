"""The position of a source reader, or of an enumerator, at a barrier."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class SourcePosition:
    """The position of a source reader, or of an enumerator, as it is written to a checkpoint.

    Attributes:
        operator_id: id of the source, or of the enumerator.
        splits: unfinished splits as plain data, with their positions.
        serial: number of the last assignment of splits that the reader got, or of the last message of the enumerator;
            0 = none yet. By it the coordinator knows which splits are in this checkpoint.
    """

    operator_id: str
    splits: tuple[Mapping[str, Any], ...]
    serial: int
