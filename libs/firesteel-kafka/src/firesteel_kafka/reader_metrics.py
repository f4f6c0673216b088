"""Metrics of a reader of Kafka, with Flink's names."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from firesteel.functions.functions import RuntimeContext
from firesteel_kafka.partitions import KafkaTopicPartition

__all__ = ["ReaderMetrics"]


class ReaderMetrics:
    """Plain numbers that the reader's thread changes and gauges show.

    Args:
        context: gives the group of metrics; None = no metrics are shown.

    Attributes:
        lag: function that gives the number of records that wait in a partition; None = not known.
        current: partition -> offset of the next record.
        committed: partition -> offset that was committed for the group.
        commits_succeeded, commits_failed: number of commits.
        failed_connections: attempts to connect that no broker answered.
        silences: how often brokers went silent for long.
        resets: how often the next offset did not exist any more.
        passed_over: offsets that were skipped by resets.
        fetch_lag, emit_lag: milliseconds from the timestamp of the last record until it was fetched, and until it was
            emitted.
    """

    def __init__(self, context: RuntimeContext | None) -> None:
        self.lag: Callable[[KafkaTopicPartition], int | None] = lambda partition: None
        self.current: dict[KafkaTopicPartition, int] = {}
        self.committed: dict[KafkaTopicPartition, int] = {}
        self.commits_succeeded = self.commits_failed = 0
        self.failed_connections = self.silences = self.resets = self.passed_over = 0
        self.fetch_lag = self.emit_lag = 0
        self._group = None if context is None else context.get_metrics_group()
        if self._group is None:
            return
        self._group.gauge("pendingRecords", lambda: sum(self._lags()))
        self._group.gauge("currentFetchEventTimeLag", lambda: self.fetch_lag)
        self._group.gauge("currentEmitEventTimeLag", lambda: self.emit_lag)
        reader_group = self._group.add_group("KafkaSourceReader")
        reader_group.gauge("commitsSucceeded", lambda: self.commits_succeeded)
        reader_group.gauge("commitsFailed", lambda: self.commits_failed)
        reader_group.gauge("failedConnections", lambda: self.failed_connections)
        reader_group.gauge("brokerSilences", lambda: self.silences)
        reader_group.gauge("offsetResets", lambda: self.resets)
        reader_group.gauge("offsetsPassedOver", lambda: self.passed_over)
        reader_group.add_group("KafkaConsumer").gauge("records-lag-max", lambda: max(self._lags(), default=0))
        self._reader_group = reader_group

    def reads(self, partition: KafkaTopicPartition, offset: int) -> None:
        """Show the offsets of a partition, which is read from now on."""
        has_gauges = partition in self.current
        self.current[partition] = offset
        if self._group is None or has_gauges:
            return
        group = self._reader_group.add_group("topic", partition.topic).add_group("partition", str(partition.partition))
        group.gauge("currentOffset", lambda: self.current[partition])
        group.gauge("committedOffset", lambda: self.committed.get(partition, -1))
        group.gauge("records-lag", lambda: -1 if (lag := self.lag(partition)) is None else lag)

    def _lags(self) -> list[int]:
        """The lags that are known. Called by the thread that reports metrics."""
        return [lag for partition in list(self.current) if (lag := self.lag(partition)) is not None]

    def at(self, partition: KafkaTopicPartition, offset: int) -> None:
        """Note the next offset of a partition."""
        self.current[partition] = offset

    def passed(self, timestamps: npt.NDArray[np.int64], arrived: int, now: int) -> None:
        """Note the lags of records that are emitted; all times are epoch milliseconds.

        Args:
            timestamps: timestamps of the records.
            arrived: when the records were fetched.
            now: the current time.
        """
        if len(timestamps):
            last = int(timestamps[-1])
            self.fetch_lag, self.emit_lag = arrived - last, now - last

    def reset(self, passed_over: int) -> None:
        """Count a reset, and the offsets that it has skipped."""
        self.resets += 1
        self.passed_over += passed_over
