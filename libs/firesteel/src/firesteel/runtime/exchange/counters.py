"""Running totals of an exchange."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Counters:
    """See ``ExchangeStatistics``."""

    bytes_sent: int = 0
    bytes_received: int = 0
    frames_dropped: int = 0
    connections_refused: int = 0
