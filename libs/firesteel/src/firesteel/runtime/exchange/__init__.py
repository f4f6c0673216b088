"""The data plane of a slot: it moves batches between subtasks.

One multiplexed connection for each pair of slot processes carries all their channels; each channel has credits of its
own, in bytes. Channels within a slot pass batches by reference under the same limits.

Flink has one connection for each pair of TaskManagers, whose slots are threads. Here slots are processes: going through
their TaskManagers would add two hops and copies to every record and put a further Python process on its path. Only
slots that share an edge are connected, so what grows with the square of the slots is file descriptors, nothing else.
"""

from __future__ import annotations

from firesteel.runtime.exchange.channels import ChannelId, InputChannel, OutputChannel
from firesteel.runtime.exchange.exchange import Exchange, ExchangeStatistics

__all__ = ["ChannelId", "Exchange", "ExchangeStatistics", "InputChannel", "OutputChannel"]
