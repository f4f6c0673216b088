"""Where user code runs: what tells people of a failure which operator it was."""

from __future__ import annotations


class UserCode:
    """Whatever runs user code; found in tracebacks by the local name ``self``.

    Attributes:
        name: of the operator, as shown to people.
    """

    name: str
