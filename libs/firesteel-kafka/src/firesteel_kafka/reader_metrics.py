"""What a reader of Kafka measures, by Flink's names."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from firesteel.functions.functions import RuntimeContext
from firesteel_kafka.partitions import KafkaTopicPartition

__all__ = ["ReaderMetrics"]


class ReaderMetrics:
    """Plain numbers, which one thread changes and gauges show.

    Args:
        context: of the subtask; None = nobody looks.

    Attributes:
        pending: gives the number of records that wait.
        committed: partition -> the offset that the group has.
        commits_succeeded, commits_failed: times.
        failed_connections: attempts to reach a broker at the beginning.
        silences: how often brokers went silent for long.
        resets: how often an offset was not there any more.
        passed_over: offsets that resets have left out.
        fetch_lag, emit_lag: milliseconds from a record's timestamp until it was fetched, until it was handed on; of the
            last record.
    """

    def __init__(self, context: RuntimeContext | None) -> None:
        self.pending: Callable[[], int] = lambda: 0
        self.current: dict[KafkaTopicPartition, int] = {}
        self.committed: dict[KafkaTopicPartition, int] = {}
        self.commits_succeeded = self.commits_failed = 0
        self.failed_connections = self.silences = self.resets = self.passed_over = 0
        self.fetch_lag = self.emit_lag = 0
        self._group = None if context is None else context.get_metrics_group()
        if self._group is None:
            return
        self._group.gauge("pendingRecords", lambda: self.pending())
        self._group.gauge("currentFetchEventTimeLag", lambda: self.fetch_lag)
        self._group.gauge("currentEmitEventTimeLag", lambda: self.emit_lag)
        own = self._group.add_group("KafkaSourceReader")
        own.gauge("commitsSucceeded", lambda: self.commits_succeeded)
        own.gauge("commitsFailed", lambda: self.commits_failed)
        own.gauge("failedConnections", lambda: self.failed_connections)
        own.gauge("brokerSilences", lambda: self.silences)
        own.gauge("offsetResets", lambda: self.resets)
        own.gauge("offsetsPassedOver", lambda: self.passed_over)
        self._own = own

    def reads(self, partition: KafkaTopicPartition, offset: int) -> None:
        """A partition is read from now on."""
        known = partition in self.current
        self.current[partition] = offset
        if self._group is None or known:
            return
        group = self._own.add_group("topic", partition.topic).add_group("partition", str(partition.partition))
        group.gauge("currentOffset", lambda: self.current[partition])
        group.gauge("committedOffset", lambda: self.committed.get(partition, -1))

    def at(self, partition: KafkaTopicPartition, offset: int) -> None:
        """It was read up to here."""
        self.current[partition] = offset

    def passed(self, stamps: npt.NDArray[np.int64], arrived: int, now: int) -> None:
        """Records are handed on.

        Args:
            stamps: their timestamps; all times are epoch milliseconds.
            arrived: when they were fetched.
            now: the time.
        """
        if len(stamps):
            last = int(stamps[-1])
            self.fetch_lag, self.emit_lag = arrived - last, now - last

    def reset(self, passed_over: int) -> None:
        """An offset was not there."""
        self.resets += 1
        self.passed_over += passed_over
