"""Commits the transactions that a Kafka sink has prepared."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Final

from typing_extensions import override

from firesteel.core.clock import SystemClock
from firesteel.functions.sink import WriterContext
from firesteel.functions.two_phase import CommitOutcome, CommitResult, Committable, Committer
from firesteel_kafka.loop_thread import KafkaLoopThread
from firesteel_kafka.properties import client_arguments
from firesteel_kafka.sink_settings import KafkaSinkSettings
from firesteel_kafka.transactional_ids import IdPool
from firesteel_kafka.transactions import Transaction, TransactionClient

__all__ = ["KafkaCommitter", "pool_of"]

_STEPS: Final = 10
"""Number of attempts that the runtime makes before the task fails; each gets this part of ``delivery.timeout.ms``."""


class KafkaCommitter(Committer):
    """Commits transactions by id, producer and epoch; the producers that flushed them need not be alive.

    Args:
        settings: settings of the sink.
        context: context of the subtask.
    """

    def __init__(self, settings: KafkaSinkSettings, context: WriterContext) -> None:
        self._settings = settings
        self._pool = pool_of(settings, context)
        self._thread: KafkaLoopThread | None = None
        self._client = TransactionClient(lambda: client_arguments(settings.properties), SystemClock().epoch_ms)

    def commit(self, committables: Sequence[Committable]) -> Sequence[CommitResult]:
        """Commit transactions in their order."""
        return self._commit(committables, again=False)

    def restore_committables(self, committables: Sequence[Committable]) -> None:
        """Keep their transactional ids in each checkpoint until they are committed."""
        self._pool.uncommitted.update(
            Transaction.of(committable.data).name for committable in committables if committable.version == 1
        )

    def recommit(self, committables: Sequence[Committable]) -> Sequence[CommitResult]:
        """Commit transactions of the restored checkpoint, which may have been committed before."""
        return self._commit(committables, again=True)

    @override
    def close(self) -> None:
        thread, self._thread = self._thread, None
        if thread is not None:
            try:
                thread.call(self._client.close())
            finally:
                thread.close()

    def _commit(self, committables: Sequence[Committable], *, again: bool) -> list[CommitResult]:
        if not committables:
            return []
        if self._thread is None:
            self._thread = KafkaLoopThread("kafka-commits")
        seconds = self._settings.delivery_ms / 1000 / _STEPS
        results = []
        for committable in committables:
            if committable.version != 1:
                reason = f"a transaction was written in version {committable.version} by a later release"
                results.append(CommitResult(CommitOutcome.FAILED, reason))
                continue
            transaction = Transaction.of(committable.data)
            result = self._thread.call(self._client.commit(transaction, seconds, again=again))
            if result.outcome in (CommitOutcome.COMMITTED, CommitOutcome.ALREADY_COMMITTED):
                self._pool.is_committed(transaction.name)
            results.append(result)
        return results


_POOLS: Final[weakref.WeakValueDictionary[tuple[str, str, int, int, str], IdPool]] = weakref.WeakValueDictionary()
"""Pools by job, operator, subtask, attempt and prefix: writer and committer of an attempt share one."""


def pool_of(settings: KafkaSinkSettings, context: WriterContext) -> IdPool:
    """The pool of transactional ids of a subtask's attempt."""
    key = context.job_id, context.operator_id, context.subtask_index, context.attempt, settings.prefix
    pool = _POOLS.get(key)
    if pool is None:
        pool = _POOLS[key] = IdPool(settings.prefix, context.subtask_index)
    return pool
