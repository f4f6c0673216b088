"""Commits, aborts and lists transactions from outside their producer.

Any process may commit what a producer has flushed: it needs the transactional id, the producer's id and its epoch.
Brokers answer a repeated commit as they have answered the first.
"""

from __future__ import annotations

import asyncio
import json
import logging
import struct
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import astuple, dataclass
from typing import Any, Final, TypeAlias

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.client import AIOKafkaClient, ConnectionGroup, CoordinationType
from aiokafka.errors import IncompatibleBrokerVersion, KafkaConnectionError, KafkaError, for_code
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.fetch import FetchRequest_v4
from aiokafka.protocol.transaction import EndTxnRequest, InitProducerIdRequest
from aiokafka.protocol.types import CompactArray, CompactString, Int16, Int32, Int64, Schema, TaggedFields
from aiokafka.structs import TopicPartition

from firesteel.core.errors import ProgramError
from firesteel.functions.two_phase import ALREADY_COMMITTED, COMMITTED, CommitOutcome, CommitResult
from firesteel_kafka.aiokafka_internals import client_of, know_leader
from firesteel_kafka.refusals import raise_if_refused

__all__ = ["Transaction", "TransactionClient", "verdict"]

logger = logging.getLogger(__name__)

_PAUSE_SECONDS: Final = 0.1
_NO_ERROR: Final = 0
_COMING_BACK: Final = frozenset({7, 13, 14, 15, 16, 51})
"""Codes of errors that pass: request timed out, network; the coordinator loads, is not available, or is another broker;
an earlier transaction is still being completed."""
_FORGOTTEN: Final = 49
"""INVALID_PRODUCER_ID_MAPPING: the coordinator does not know the transactional id any more."""
_GONE: Final = frozenset({47, 48, _FORGOTTEN, 90})
"""Codes that say that the transaction is not open: another epoch has begun, or none is open with this epoch."""
_FORBIDDEN: Final = 53
"""TRANSACTIONAL_ID_AUTHORIZATION_FAILED."""
_ABORT_TIMEOUT_MS: Final = 60_000
_FETCHED_BYTES: Final = 4096
_READ_COMMITTED: Final = 1
_BATCH_HEADER: Final = struct.Struct(">qiibIhiqqqh")
"""Header of a batch in Kafka's format 2: base offset, ..., producer id, producer epoch."""


@dataclass(frozen=True)
class Transaction:
    """A transaction that is flushed and can be committed.

    Attributes:
        name: transactional id.
        producer: id of the producer.
        epoch: epoch of the producer.
        began: when the transaction was begun, in milliseconds since 1970.
        timeout_ms: time for which brokers keep the transaction open.
        topic, partition, offset: place of its first record in one of its partitions, where the log tells whether the
            transaction was committed.
    """

    name: str
    producer: int
    epoch: int
    began: int
    timeout_ms: int
    topic: str = ""
    partition: int = -1
    offset: int = -1

    def data(self) -> bytes:
        """Serialize the transaction for a checkpoint."""
        return json.dumps(astuple(self)).encode()

    @classmethod
    def of(cls, data: bytes) -> Transaction:
        """Deserialize a transaction of a checkpoint."""
        return cls(*json.loads(data))


def verdict(transaction: Transaction, code: int, now_ms: int) -> CommitResult:
    """Result of a commit, by the coordinator's answer.

    Args:
        transaction: transaction to commit.
        code: error code of the answer.
        now_ms: current time in milliseconds since 1970.
    """
    if code == _NO_ERROR:
        return COMMITTED
    name, answer = transaction.name, for_code(code).__name__
    if code in _COMING_BACK:
        return CommitResult(CommitOutcome.RETRY, f"the coordinator of {name!r} answers {answer}")
    age = (now_ms - transaction.began) / 1000
    if code in _GONE:
        allowed = transaction.timeout_ms / 1000
        if code == _FORGOTTEN:
            cause = "the brokers have forgotten the id (transactional.id.expiration.ms)"
        elif age > allowed:
            cause = f"it ran out: it was begun {age:,.0f} s ago, and transaction.timeout.ms is {allowed:,.0f} s"
        else:
            cause = (
                "somebody has started the id since: another job of this prefix, or this one behind a later checkpoint "
                f"(it was begun {age:,.0f} s ago, and may stay open for {allowed:,.0f} s)"
            )
        reason = f"the transaction {name!r} is not open any more ({answer}), so its records may be lost: {cause}"
        return CommitResult(CommitOutcome.FAILED, reason)
    if code == _FORBIDDEN:
        reason = f"the brokers do not allow to use the transactional id {name!r} (Write on TransactionalId)"
        return CommitResult(CommitOutcome.FAILED, reason)
    return CommitResult(CommitOutcome.UNKNOWN, f"the coordinator of {name!r} answers {answer}")


def evidence(
    transaction: Transaction, code: int, last_stable: int, aborted: Collection[tuple[int, int]], messages: bytes
) -> bool | None:
    """Whether a transaction was committed, by the log at its first record; None = the log can't tell (any more).

    Args:
        transaction: transaction that is over, because its id has been started again.
        code: error code of the answer to a fetch of committed records from that record on.
        last_stable: offset of the first transaction in the partition that is not over.
        aborted: producer id and first offset of aborted transactions.
        messages: batches from that record on.
    """
    if code or last_stable <= transaction.offset:
        return None
    if (transaction.producer, transaction.offset) in {tuple(pair) for pair in aborted}:
        return False
    if len(messages) < _BATCH_HEADER.size:
        return None
    base, *_, producer, epoch = _BATCH_HEADER.unpack_from(messages)
    return True if (base, producer, epoch) == (transaction.offset, transaction.producer, transaction.epoch) else None


class _Fetch(Request[FetchRequest_v4]):  # type: ignore[misc] # aiokafka has no types
    API_KEY = 1

    def __init__(self, transaction: Transaction) -> None:
        self._place = transaction.topic, [(transaction.partition, transaction.offset, _FETCHED_BYTES)]

    def build(self, request_struct_class: type[FetchRequest_v4]) -> FetchRequest_v4:
        return request_struct_class(-1, 0, 0, _FETCHED_BYTES, _READ_COMMITTED, [self._place])


class _ListTransactionsResponse(Response):  # type: ignore[misc] # aiokafka has no types
    API_KEY = 66
    API_VERSION = 0
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        ("error_code", Int16),
        ("unknown_state_filters", CompactArray(CompactString("utf-8"))),
        (
            "transaction_states",
            CompactArray(
                ("transactional_id", CompactString("utf-8")),
                ("producer_id", Int64),
                ("transaction_state", CompactString("utf-8")),
                ("tags", TaggedFields),
            ),
        ),
        ("tags", TaggedFields),
    )


class _ListTransactionsRequestV0(RequestStruct):  # type: ignore[misc] # aiokafka has no types
    API_KEY = 66
    API_VERSION = 0
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = _ListTransactionsResponse
    SCHEMA = Schema(
        ("state_filters", CompactArray(CompactString("utf-8"))),
        ("producer_id_filters", CompactArray(Int64)),
        ("tags", TaggedFields),
    )


_ListTransactionsStruct: TypeAlias = _ListTransactionsRequestV0


class _ListTransactionsRequest(Request[_ListTransactionsStruct]):  # type: ignore[misc] # aiokafka has no types
    """Request of KIP-664, which brokers know from 3.0 on."""

    API_KEY = 66

    def build(self, request_struct_class: type[_ListTransactionsStruct]) -> _ListTransactionsStruct:
        return request_struct_class(["Ongoing"], [], {})


class TransactionClient:
    """Client of transaction coordinators, for one loop.

    Args:
        arguments: makes the arguments of an aiokafka client.
        now_ms: clock, in milliseconds since 1970.
    """

    def __init__(self, arguments: Callable[[], Mapping[str, Any]], now_ms: Callable[[], int]) -> None:
        self._arguments, self._now_ms = arguments, now_ms
        self._client: AIOKafkaClient | None = None

    async def commit(self, transaction: Transaction, seconds: float, *, again: bool = False) -> CommitResult:
        """Commit a transaction. Idempotent.

        Args:
            transaction: a transaction whose records have all been flushed.
            seconds: how long to wait for brokers that are away; then the result is ``RETRY`` or ``UNKNOWN``.
            again: the transaction may have been committed before, and its id been started again since. What is open
                with the id now is in no checkpoint that the job goes on from, and is aborted: writers leave the ids of
                the restored checkpoint alone, so committed readers would wait for its time-out.
        """
        request = EndTxnRequest(transaction.name, transaction.producer, transaction.epoch, True)
        deadline = time.monotonic() + seconds
        while True:
            try:
                response = await self._ask_coordinator(transaction.name, request)
                result = verdict(transaction, response.error_code, self._now_ms())
                restarted = again and response.error_code in _GONE
            except KafkaError as error:
                if isinstance(error, IncompatibleBrokerVersion):
                    raise
                code, restarted = getattr(error, "errno", -1), False
                result = verdict(transaction, code, self._now_ms())
                if result.outcome is not CommitOutcome.FAILED:
                    result = _not_reached(transaction, "its coordinator can't be reached", error)
            if restarted:
                result = await self._fate(transaction, deadline) or result
            if result.outcome is not CommitOutcome.RETRY or time.monotonic() + _PAUSE_SECONDS > deadline:
                return result
            await asyncio.sleep(_PAUSE_SECONDS)

    async def _fate(self, transaction: Transaction, deadline: float) -> CommitResult | None:
        """What the log says of a transaction whose id was started again; None = not that it was committed.

        If the transaction was committed, what is open with its id now is aborted.
        """
        try:
            committed = await self._was_committed(transaction)
        except _Undecided:
            words = "an older transaction is open in its partition, so the log can't tell yet whether it was committed"
            return CommitResult(CommitOutcome.RETRY, f"transaction {transaction.name!r}: {words}")
        except KafkaError as error:
            if isinstance(error, IncompatibleBrokerVersion):
                raise
            return _not_reached(transaction, "its log can't be read", error)
        if not committed:
            return None
        try:
            await self.abort(transaction.name, max(0.0, deadline - time.monotonic()))
        except KafkaError as error:
            return _not_reached(transaction, "what is open with its id since can't be aborted", error)
        return ALREADY_COMMITTED

    async def _was_committed(self, transaction: Transaction) -> bool:
        """Whether the log says that a transaction was committed.

        Raises:
            _Undecided: the log can tell only later.
        """
        if transaction.offset < 0:
            return False
        client = await self._connected()
        await know_leader(client, transaction.topic)
        place = TopicPartition(transaction.topic, transaction.partition)
        response = await client.send(client.cluster.leader_for_partition(place), _Fetch(transaction))
        ((_, ((_, code, _, last_stable, aborted, messages),)),) = response.topics
        if not code and last_stable <= transaction.offset:
            raise _Undecided
        return evidence(transaction, code, last_stable, aborted or (), messages or b"") is True

    async def abort(self, name: str, seconds: float) -> None:
        """Abort the transaction that is open with an id, and fence off its producer.

        Raises:
            KafkaError: brokers have not answered in time, or refuse.
        """
        request = InitProducerIdRequest(name, _ABORT_TIMEOUT_MS)
        deadline = time.monotonic() + seconds
        while True:
            error: KafkaError
            try:
                response = await self._ask_coordinator(name, request, ConnectionGroup.DEFAULT)
                if response.error_code == _NO_ERROR:
                    return
                error = for_code(response.error_code)()
                passes = response.error_code in _COMING_BACK
            except KafkaError as raised:
                error, passes = raised, raised.retriable or isinstance(raised, KafkaConnectionError)
            if not passes or time.monotonic() + _PAUSE_SECONDS > deadline:
                raise error
            await asyncio.sleep(_PAUSE_SECONDS)

    async def opened(self, seconds: float) -> list[str] | None:
        """Transactional ids whose transaction is open, and not yet being completed; None = the brokers can't tell.

        Args:
            seconds: how long to wait for brokers that are away.
        """
        deadline = time.monotonic() + seconds
        while True:
            try:
                client = await self._connected()
                await client.force_metadata_update()
                names: list[str] = []
                for broker in client.cluster.brokers():
                    response = await client.send(broker.nodeId, _ListTransactionsRequest())
                    if response.error_code:
                        raise for_code(response.error_code)()
                    names += [name for name, *_ in response.transaction_states]
                return names
            except IncompatibleBrokerVersion:
                return None
            except KafkaError as error:
                if time.monotonic() + _PAUSE_SECONDS > deadline:
                    logger.warning("open transactions can't be listed: %s: %s", type(error).__name__, error)
                    return None
            await asyncio.sleep(_PAUSE_SECONDS)

    async def longest_timeout(self) -> int | None:
        """The lowest ``transaction.max.timeout.ms`` of all brokers; None = they do not tell."""
        admin = AIOKafkaAdminClient(**self._arguments())
        name = "transaction.max.timeout.ms"
        try:
            await admin.start()
            nodes = [broker.nodeId for broker in client_of(admin).cluster.brokers()]
            resources = [ConfigResource(ConfigResourceType.BROKER, str(node), {name: None}) for node in nodes]
            timeouts = []
            for response in await admin.describe_configs(resources):
                for code, _, _, _, entries in response.resources:
                    timeouts += [int(entry[1]) for entry in entries if not code and entry[0] == name and entry[1]]
            return min(timeouts, default=None)
        except KafkaError as error:
            logger.info("the brokers do not tell %s: %s: %s", name, type(error).__name__, error)
            return None
        finally:
            await admin.close()

    async def close(self) -> None:
        """Disconnect from all brokers; a later call connects again."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    async def _ask_coordinator(
        self, name: str, request: Any, group: ConnectionGroup = ConnectionGroup.COORDINATION
    ) -> Any:
        client = await self._connected()
        try:
            if client.get_random_node() is None:  # a broker that has just started knows none, not even itself
                raise KafkaConnectionError("the brokers know of no brokers yet")
            node = await client.coordinator_lookup(CoordinationType.TRANSACTION, name)
            return await client.send(node, request, group=group)
        except KafkaError:
            await client.force_metadata_update()  # so that the next look-up may ask another broker
            raise

    async def _connected(self) -> AIOKafkaClient:
        if self._client is None:
            arguments = self._arguments()
            client = AIOKafkaClient(**arguments)
            try:
                await client.bootstrap()
            except BaseException as error:
                await client.close()
                if isinstance(error, KafkaConnectionError):
                    cause = await raise_if_refused(arguments)
                    if cause:
                        raise KafkaConnectionError(cause) from error
                raise
            self._client = client
        return self._client


class _Undecided(Exception):
    """An older transaction is open in the partition: the log does not tell yet what became of those behind it."""


def _not_reached(transaction: Transaction, obstacle: str, error: KafkaError) -> CommitResult:
    reason = f"transaction {transaction.name!r}: {obstacle}: {type(error).__name__}: {error}"
    return CommitResult(CommitOutcome.RETRY, reason)


def timeout_refused(refused_ms: int) -> ProgramError:
    """Error for brokers that refuse a transaction's time-out, and do not tell the longest one they allow."""
    return ProgramError(
        f"Kafka sink: the brokers do not allow transactions of {refused_ms:,} ms; set transaction.timeout.ms to at "
        "most their transaction.max.timeout.ms"
    )
