"""Writes the records of one subtask of a Kafka sink."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaConnectionError, KafkaError, for_code
from typing_extensions import override

from firesteel.connectors.delivery import DeliveryGuarantee
from firesteel.core.clock import SystemClock
from firesteel.functions.sink import WriterContext
from firesteel.functions.two_phase import TwoPhaseWriter, WriterState
from firesteel_kafka.aiokafka_internals import keep_batches, open_transaction
from firesteel_kafka.committer import pool_of
from firesteel_kafka.loop_thread import KafkaLoopThread
from firesteel_kafka.properties import SERVERS, client_arguments, producer_arguments
from firesteel_kafka.refusals import raise_if_refused
from firesteel_kafka.sending import KafkaSendError, Sending
from firesteel_kafka.serialization import KafkaProducerRecord
from firesteel_kafka.sink_settings import KafkaSinkSettings
from firesteel_kafka.transactional_ids import PoolState, ids_to_abort, transaction_timeout
from firesteel_kafka.transactions import Transaction, TransactionClient, timeout_refused

__all__ = ["KafkaWriter", "TransactionalKafkaWriter"]

logger = logging.getLogger(__name__)

_CLOSING_SECONDS: Final = 5.0
_TIMEOUT_REFUSED: Final = for_code(50)


class KafkaWriter(TwoPhaseWriter[Any]):
    """Sends records; at a barrier it waits for their acknowledgements, unless the guarantee is ``NONE``.

    Args:
        settings: settings of the sink.
        context: context of the subtask.
    """

    blocking = True

    def __init__(self, settings: KafkaSinkSettings, context: WriterContext) -> None:
        self._settings, self._context = settings, context
        self.takes_columns = settings.schema.takes_columns
        self._arguments = producer_arguments(settings.properties)
        self._thread = KafkaLoopThread(f"kafka-sink-{context.subtask_index}")
        self._sending = Sending(
            self._thread,
            settings.delivery_ms / 1000,
            settings.linger_ms / 1000,
            settings.memory,
            self._arguments["max_request_size"],
        )

    def open(self) -> None:
        """Connect a producer, and open the user's schema.

        Raises:
            KafkaSendError: no broker answers within ``delivery.timeout.ms``.
        """
        self._open_metrics()
        self._begin()
        self._settings.schema.open(self._sending.partitions_for)

    def _begin(self) -> None:
        self._sending.use(self._thread.call(self._start_producer({})))

    def write(self, values: Sequence[Any], timestamps: Sequence[int] | None) -> None:
        """Send records; blocks while ``buffer.memory`` is full."""
        self._send(self._settings.schema.serialize_all(values, timestamps))

    @override
    def write_columns(self, batch: pa.RecordBatch, timestamps: Any) -> None:
        self._send(self._settings.schema.serialize_columns(batch))

    def _send(self, records: Iterable[KafkaProducerRecord | None]) -> None:
        self._sending.write(records)

    @override
    def flush(self) -> None:
        self._sending.flush()

    def prepare_commit(self, *, end_of_input: bool) -> Sequence[bytes]:
        """Wait for acknowledgements as the guarantee asks; nothing is left to commit."""
        self._sending.flush(waits=end_of_input or self._settings.guarantee is not DeliveryGuarantee.NONE)
        return ()

    def abort(self) -> None:
        """Do nothing: what was sent can't be taken back."""

    def close(self) -> None:
        """Give up records that are not sent, and stop the producer."""
        try:
            producer = self._sending.producer
            if producer is not None:
                self._thread.call(_stop(producer))
        finally:
            self._thread.close()

    def _open_metrics(self) -> None:
        group = self._context.metric_group()
        if group is None:
            return
        sent = self._sending.sent
        group.gauge("numRecordsSend", lambda: sent.records)
        group.gauge("numBytesSend", lambda: sent.bytes)
        group.gauge("numRecordsSendErrors", lambda: sent.errors)
        group.gauge("currentSendTime", lambda: sent.last_ms)

    async def _start_producer(self, transactional: Mapping[str, Any]) -> Any:
        """Start a producer; tries again while brokers are away, for ``delivery.timeout.ms``.

        Args:
            transactional: its transactional id and time-out; empty = no transactions.
        """
        deadline = time.monotonic() + self._settings.delivery_ms / 1000
        while True:
            producer = AIOKafkaProducer(**self._arguments, **transactional)
            keep_batches(producer, self._settings.delivery_ms / 1000)
            try:
                async with asyncio.timeout(max(0.1, deadline - time.monotonic())):
                    await producer.start()
                return producer
            except asyncio.CancelledError:
                await _stop(producer)
                raise
            except (KafkaError, TimeoutError, OSError, AssertionError) as error:
                await _stop(producer)
                words = f"{type(error).__name__}: {error}"
                if isinstance(error, KafkaConnectionError):
                    words = await raise_if_refused(self._arguments) or words
                if isinstance(error, _TIMEOUT_REFUSED):
                    raise timeout_refused(transactional["transaction_timeout_ms"]) from error
                if time.monotonic() + 0.2 > deadline or not _passes(error):
                    raise KafkaSendError(
                        f"the brokers {self._settings.properties[SERVERS]} give no producer: {words}"
                    ) from error
                await asyncio.sleep(0.2)


@dataclass(frozen=True)
class _StartingProducer:
    """A producer that is started before it is needed.

    Attributes:
        name: transactional id of the producer.
        starting: future of the producer.
    """

    name: str
    starting: Future[Any]


class TransactionalKafkaWriter(KafkaWriter):
    """Sends records in transactions, one between two barriers; ``transactional_ids`` explains their ids.

    A producer has to ask for its brokers, for the coordinator of its transactional id and for an epoch. It does that
    while records go into the transaction of the producer before it, so that no record waits for it behind a barrier.

    Args:
        settings: settings of the sink.
        context: context of the subtask.
    """

    def __init__(self, settings: KafkaSinkSettings, context: WriterContext) -> None:
        super().__init__(settings, context)
        self._pool = pool_of(settings, context)
        self._prefixes = {settings.prefix}
        self._name: str | None = None
        """Transactional id of the producer in use; None = the next write takes another producer."""
        self._ahead: _StartingProducer | None = None
        self._stopping: list[Future[None]] = []
        self._began = 0
        """When the transaction was begun, epoch milliseconds."""
        self._written = False
        """Whether a transaction is begun."""
        self._timeout_ms = 0
        self._clock = SystemClock()

    def restore_state(self, states: Sequence[WriterState]) -> None:
        """Keep away from the transactional ids that the checkpoint holds, of all subtasks."""
        pool_states = [PoolState.of(state.data, state.version) for state in states]
        self._pool.restored(pool_states)
        self._prefixes |= {state.prefix for state in pool_states}

    def _begin(self) -> None:
        """Abort transactions that former attempts left open, and start a producer.

        Transactions that the checkpoint holds are not aborted: the committer has committed them, or still does so.
        """
        self._thread.call(self._clean_up())
        self._next()

    async def _clean_up(self) -> None:
        seconds = self._settings.delivery_ms / 1000
        context = self._context
        client = TransactionClient(lambda: client_arguments(self._settings.properties), self._clock.epoch_ms)
        try:
            opened = await client.opened(seconds)
            timeout_ms = self._arguments.get("transaction_timeout_ms")
            self._timeout_ms = transaction_timeout(timeout_ms, await client.longest_timeout())
            if opened is None:
                logger.warning(
                    "transactions that former attempts left open are not aborted at once: the brokers do not list them"
                )
            for name in ids_to_abort(
                opened or (), self._prefixes, context.subtask_index, context.parallelism, self._pool.reserved
            ):
                logger.info("transaction %s was left open by a former attempt: it is aborted", name)
                await client.abort(name, seconds)
        except KafkaError as error:
            raise KafkaSendError(f"transactions can't be aborted: {type(error).__name__}: {error}") from error
        finally:
            await client.close()
        logger.info(
            "transactions with prefix %s may stay open for %d s: a job that is away for longer loses what was not "
            "committed, and fails",
            self._settings.prefix, self._timeout_ms // 1000,
        )  # fmt: skip

    def _start_ahead(self, name: str) -> _StartingProducer:
        self._arguments.pop("transaction_timeout_ms", None)
        transactional = {"transactional_id": name, "transaction_timeout_ms": self._timeout_ms}
        return _StartingProducer(name, self._thread.begin(self._start_producer(transactional)))

    def _next(self) -> None:
        """Take the next producer, which may have been started already."""
        ahead, self._ahead = self._ahead, None
        if ahead is None:
            ahead = self._start_ahead(self._pool.take())
        elif ahead.starting.done() and ahead.starting.exception() is not None:
            ahead = self._start_ahead(ahead.name)  # brokers were away for delivery.timeout.ms; they may be back
        self._sending.use(ahead.starting.result())
        self._name, self._written = ahead.name, False

    @override
    def _send(self, records: Iterable[KafkaProducerRecord | None]) -> None:
        """Send records in the open transaction, or begin one; blocks while ``buffer.memory`` is full."""
        if self._name is None:
            self._next()
        if not self._written:
            producer = self._sending.producer
            assert producer is not None
            self._thread.call(producer.begin_transaction())
            self._began, self._written = self._clock.epoch_ms(), True
            # The next transaction needs another id, see `transactional_ids`. Without checkpoints there is none.
            if self._context.checkpointing and self._ahead is None:
                self._ahead = self._start_ahead(self._pool.take())
        super()._send(records)

    def prepare_commit(self, *, end_of_input: bool) -> Sequence[bytes]:
        """Wait for acknowledgements; the transaction stays open until the committer commits it."""
        if not self._written:
            self._pool.reached_barrier(None)
            return ()
        self._sending.flush()
        name, producer = self._name, self._sending.producer
        assert name is not None
        assert producer is not None
        opened = open_transaction(producer)
        if opened is None:  # the schema has made no record, so the brokers know of no transaction
            self._pool.reached_barrier(None)
            return ()
        prepared = Transaction(
            name,
            opened.producer_id,
            opened.producer_epoch,
            self._began,
            self._timeout_ms,
            *(self._sending.first or ()),
        )
        self._pool.reached_barrier(name)
        self._sending.use(None)
        self._name, self._written = None, False
        self._stopping = [stop for stop in self._stopping if not stop.done()]
        self._stopping.append(self._thread.begin(_stop(producer)))
        return [prepared.data()]

    def snapshot_state(self) -> Sequence[bytes]:
        """The transactional ids that the checkpoint holds."""
        return [self._pool.snapshot().data()]

    def abort(self) -> None:
        """Abort the open transaction, so that committed readers do not wait for its time-out; prepared ones stay."""
        producer, self._name = self._sending.producer, None
        if producer is not None and self._written:
            self._written = False
            with suppress(Exception):
                self._thread.call(asyncio.wait_for(producer.abort_transaction(), _CLOSING_SECONDS))

    def close(self) -> None:
        """Stop all producers, and wait for the one that is starting.

        Its request for an epoch could reach the brokers after that of the next attempt, whose transaction with the same
        id it would abort. So it is answered before this attempt ends.
        """
        ahead, self._ahead = self._ahead, None
        try:
            self._thread.call(_stop_all(None if ahead is None else ahead.starting, self._stopping))
        finally:
            super().close()


def _passes(error: BaseException) -> bool:
    """Whether another start may succeed."""
    if isinstance(error, KafkaConnectionError | TimeoutError | OSError):
        return True
    # aiokafka asserts that it knows a broker; one that has just started names none, not even itself.
    return isinstance(error, AssertionError) or bool(getattr(error, "retriable", False))


async def _stop_all(starting: Future[Any] | None, stopping: Sequence[Future[None]]) -> None:
    """Wait for producers that are stopping, and for the one that is starting, which is then stopped."""
    for stop in stopping:
        await asyncio.wrap_future(stop)
    if starting is None:
        return
    # A start that takes longer is cancelled when the loop ends, and stops its producer itself.
    await asyncio.wait([asyncio.wrap_future(starting)], timeout=_CLOSING_SECONDS)
    if starting.done() and starting.exception() is None:
        await _stop(starting.result())


async def _stop(producer: Any) -> None:
    """Stop a producer; its transaction stays open."""
    with suppress(Exception):
        await asyncio.wait_for(producer.stop(), _CLOSING_SECONDS)
    with suppress(Exception):
        await producer.client.close()
