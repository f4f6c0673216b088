"""How many examples property tests take."""

from __future__ import annotations

import os

CI = os.environ.get("CI") == "true"
"""Whether each run takes the same examples, so that no change is refused by chance."""


def examples(count: int) -> int:
    """Number of examples of a property test: all by default, fewer in CI, where each run takes the same ones.

    Args:
        count: examples of a run that has others each time. CI takes a third of many and half of few.
    """
    return max(1, count // 3 if count >= 30 else count // 2) if CI else count
