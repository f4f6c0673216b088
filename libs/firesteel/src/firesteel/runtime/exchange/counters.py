"""Running totals of an exchange, which its links, its acceptor and the exchange itself count up."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Counters:
    """The exchange's running totals, of which ``ExchangeStatistics`` is a snapshot."""

    bytes_sent: int = 0
    bytes_received: int = 0
    frames_dropped: int = 0
    connections_refused: int = 0
