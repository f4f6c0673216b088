"""The log of refused peers: one line for each, however often it comes back."""

from __future__ import annotations

import logging
from collections import OrderedDict

KEPT_PEERS = 1024


class RefusalLog:
    """Logs the first refusal of a peer for a kind of reason, then only at 10, 100, 1000, ... refusals.

    Args:
        logger: gets the lines, as warnings.
        door: what was knocked at, such as ``the dispatcher``.
    """

    def __init__(self, logger: logging.Logger, door: str) -> None:
        self._logger, self._door = logger, door
        self._counts: OrderedDict[tuple[str, str], int] = OrderedDict()

    def refused(self, peer: str, reason: str, kind: str = "") -> None:
        """Note a refusal.

        Args:
            peer: host of the peer, or a name for it, without a port that changes with every connection.
            reason: for people; may differ from one refusal to the next.
            kind: refusals of one kind are counted together; by default the reason.
        """
        key = (peer, kind or reason)
        count = self._counts.pop(key, 0) + 1
        self._counts[key] = count
        if len(self._counts) > KEPT_PEERS:
            self._counts.popitem(last=False)
        if count == 1:
            self._logger.warning("%s refused %s: %s", self._door, peer, reason)
        elif count >= 10 and str(count).strip("0") == "1":
            self._logger.warning("%s refused %s %d times so far: %s", self._door, peer, count, reason)

    def count(self, peer: str, kind: str) -> int:
        """How often a peer was refused for a kind of reason."""
        return self._counts.get((peer, kind), 0)
