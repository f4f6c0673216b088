"""What a program says of an operator that computes a changing table from one or two others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["ChangelogComputation"]


@dataclass(frozen=True)
class ChangelogComputation:
    """Names the class that computes a table's changes in slots (``runtime/operators/changelog.py``).

    The program does not import the class, so it is planned without what the class needs.

    Attributes:
        implementation: the class as ``module:Class``; made with the parameters, the columns of the inputs, and those of
            the results.
        parameters: anything that pickles.
        input_names: for each input names of its first columns that say what these hold, unlike names in the program,
            which may change: state is found again by them. Empty = the names in the program.
    """

    implementation: str
    parameters: Any
    input_names: tuple[tuple[str, ...], ...] = ()
