"""Writes the records of one subtask of a Kafka sink."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

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
from firesteel_kafka.sink_settings import KafkaSinkSettings
from firesteel_kafka.transactional_ids import PoolState, ids_to_abort, transaction_timeout
from firesteel_kafka.transactions import Transaction, TransactionClient, timeout_refused

__all__ = ["KafkaWriter", "TransactionalKafkaWriter"]

logger = logging.getLogger(__name__)

_CLOSING_SECONDS: Final = 5.0
_TIMEOUT_REFUSED: Final = for_code(50)


class KafkaWriter(TwoPhaseWriter[Any]):
    """Sends records; at a barrier waits for what is not acknowledged, unless nothing is promised.

    Args:
        settings: of the sink.
        context: of the subtask.
    """

    blocking = True

    def __init__(self, settings: KafkaSinkSettings, context: WriterContext) -> None:
        self._settings, self._context = settings, context
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
        """Find the brokers.

        Raises:
            KafkaSendError: there are none within ``delivery.timeout.ms``.
        """
        self._open_metrics()
        self._begin()
        self._settings.schema.open(self._sending.partitions_for)

    def _begin(self) -> None:
        self._sending.use(self._thread.call(self._started({})))

    def write(self, values: Sequence[Any], timestamps: Sequence[int] | None) -> None:
        """Take a batch; waits while ``buffer.memory`` is full."""
        self._sending.write(self._settings.schema.serialize_all(values, timestamps))

    @override
    def flush(self) -> None:
        self._sending.flush()

    def prepare_commit(self, *, end_of_input: bool) -> Sequence[bytes]:
        """Nothing is left to do."""
        self._sending.flush(waits=end_of_input or self._settings.guarantee is not DeliveryGuarantee.NONE)
        return ()

    def abort(self) -> None:
        """What was sent is there."""

    def close(self) -> None:
        """Give up what is under way."""
        try:
            producer = self._sending.producer
            if producer is not None:
                self._thread.call(_stopped(producer))
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

    async def _started(self, more: Mapping[str, Any]) -> Any:
        """A producer; waits for brokers that are away."""
        deadline = time.monotonic() + self._settings.delivery_ms / 1000
        while True:
            producer = AIOKafkaProducer(**self._arguments, **more)
            keep_batches(producer, self._settings.delivery_ms / 1000)
            try:
                async with asyncio.timeout(max(0.1, deadline - time.monotonic())):
                    await producer.start()
                return producer
            except asyncio.CancelledError:
                await _stopped(producer)
                raise
            except (KafkaError, TimeoutError, OSError, AssertionError) as error:
                await _stopped(producer)
                words = f"{type(error).__name__}: {error}"
                if isinstance(error, KafkaConnectionError):
                    words = await raise_if_refused(self._arguments) or words
                if isinstance(error, _TIMEOUT_REFUSED):
                    raise timeout_refused(more["transaction_timeout_ms"]) from error
                if time.monotonic() + 0.2 > deadline or not _passes(error):
                    raise KafkaSendError(
                        f"the brokers {self._settings.properties[SERVERS]} give no producer: {words}"
                    ) from error
                await asyncio.sleep(0.2)


@dataclass(frozen=True)
class _Ahead:
    """A producer that is started before it is needed.

    Attributes:
        name: its transactional id.
        starting: gives it.
    """

    name: str
    starting: Future[Any]


class TransactionalKafkaWriter(KafkaWriter):
    """Sends records in transactions, one between two barriers; see the module.

    A producer has to ask for its brokers, for the coordinator of its transactional id and for an epoch. The next one
    does so while records go into the transaction of the one before: nobody waits for it behind a barrier.

    Args:
        settings: of the sink.
        context: of the subtask.
    """

    def __init__(self, settings: KafkaSinkSettings, context: WriterContext) -> None:
        super().__init__(settings, context)
        self._pool = pool_of(settings, context)
        self._prefixes = {settings.prefix}
        self._name: str | None = None
        self._ahead: _Ahead | None = None
        self._stopping: list[Future[None]] = []
        self._began = 0
        self._written = False
        self._timeout_ms = 0
        self._clock = SystemClock()

    def restore_state(self, states: Sequence[WriterState]) -> None:
        """Keep off what the checkpoint holds, whichever subtask's it was."""
        known = [PoolState.of(state.data, state.version) for state in states]
        self._pool.restored(known)
        self._prefixes |= {state.prefix for state in known}

    def _begin(self) -> None:
        """What the checkpoint holds was committed by now, or is being so: abort the rest, and begin."""
        self._thread.call(self._clean_up())
        self._next()

    async def _clean_up(self) -> None:
        seconds = self._settings.delivery_ms / 1000
        context = self._context
        client = TransactionClient(lambda: client_arguments(self._settings.properties), self._clock.epoch_ms)
        try:
            opened = await client.opened(seconds)
            asked = self._arguments.get("transaction_timeout_ms")
            self._timeout_ms = transaction_timeout(asked, await client.longest_timeout())
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

    def _start_ahead(self, name: str) -> _Ahead:
        more = {"transactional_id": name, "transaction_timeout_ms": self._timeout_ms}
        self._arguments.pop("transaction_timeout_ms", None)
        return _Ahead(name, self._thread.begin(self._started(more)))

    def _next(self) -> None:
        """Write by the next producer, which may have been started already."""
        ahead, self._ahead = self._ahead, None
        if ahead is None:
            ahead = self._start_ahead(self._pool.take())
        elif ahead.starting.done() and ahead.starting.exception() is not None:
            ahead = self._start_ahead(ahead.name)  # the brokers were away for long; perhaps they are back
        self._sending.use(ahead.starting.result())
        self._name, self._written = ahead.name, False

    def write(self, values: Sequence[Any], timestamps: Sequence[int] | None) -> None:
        """Take a batch; waits while ``buffer.memory`` is full."""
        if self._name is None:
            self._next()
        if not self._written:
            producer = self._sending.producer
            assert producer is not None
            self._thread.call(producer.begin_transaction())
            self._began, self._written = self._clock.epoch_ms(), True
            if self._context.checkpointing and self._ahead is None:
                self._ahead = self._start_ahead(self._pool.take())
        super().write(values, timestamps)

    def prepare_commit(self, *, end_of_input: bool) -> Sequence[bytes]:
        """Have all acknowledged; the transaction stays open until it is committed."""
        if not self._written:
            self._pool.reached_barrier(None)
            return ()
        self._sending.flush()
        name, producer = self._name, self._sending.producer
        assert name is not None
        assert producer is not None
        opened = open_transaction(producer)
        if opened is None:  # the schema gave nothing
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
        self._stopping = [one for one in self._stopping if not one.done()]
        self._stopping.append(self._thread.begin(_stopped(producer)))
        return [prepared.data()]

    def snapshot_state(self) -> Sequence[bytes]:
        """Which transactions the checkpoint holds."""
        return [self._pool.snapshot().data()]

    def abort(self) -> None:
        """Abort what is open, so that nobody waits for its end; what was prepared stays."""
        producer, self._name = self._sending.producer, None
        if producer is not None and self._written:
            self._written = False
            with suppress(Exception):
                self._thread.call(asyncio.wait_for(producer.abort_transaction(), _CLOSING_SECONDS))

    def close(self) -> None:
        """Give up what is under way.

        A start that has reached the brokers has its answer then: it would abort what the next attempt writes with
        this id, if it came behind that one's.
        """
        ahead, self._ahead = self._ahead, None
        try:
            self._thread.call(_over(None if ahead is None else ahead.starting, self._stopping))
        finally:
            super().close()


def _passes(error: BaseException) -> bool:
    if isinstance(error, KafkaConnectionError | TimeoutError | OSError):
        return True
    # aiokafka asserts that it knows a broker; one that has just started names none, not even itself.
    return isinstance(error, AssertionError) or bool(getattr(error, "retriable", False))


async def _over(starting: Future[Any] | None, stopping: Sequence[Future[None]]) -> None:
    """Wait for these, and stop the producer that is started."""
    for one in stopping:
        await asyncio.wrap_future(one)
    if starting is None:
        return
    # What is not started by then is cancelled with the loop, and stops itself.
    await asyncio.wait([asyncio.wrap_future(starting)], timeout=_CLOSING_SECONDS)
    if starting.done() and starting.exception() is None:
        await _stopped(starting.result())


async def _stopped(producer: Any) -> None:
    """Stop a producer, whose transaction stays as it is."""
    with suppress(Exception):
        await asyncio.wait_for(producer.stop(), _CLOSING_SECONDS)
    with suppress(Exception):
        await producer.client.close()
