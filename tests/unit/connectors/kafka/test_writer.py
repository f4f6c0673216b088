"""The exactly-once writer, with producers that start when the test says so: who is started when, and who waits."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from aiokafka.errors import KafkaConnectionError
from aiokafka.structs import RecordMetadata, TopicPartition

from firesteel.common import SimpleStringSchema
from firesteel.datastream.connectors.kafka import DeliveryGuarantee, KafkaRecordSerializationSchema
from firesteel.functions.two_phase import CommitOutcome, CommitResult, Committable, Committer, WriterState
from firesteel.testing.writing import Context
from firesteel_kafka import writer
from firesteel_kafka.sink import KafkaSink
from firesteel_kafka.transactional_ids import PoolState
from firesteel_kafka.transactions import Transaction
from firesteel_kafka.writer import TransactionalKafkaWriter

SECONDS = 20.0
"""For what takes none, if all is well."""
ATTEMPTS = itertools.count()


class Brokers:
    """What the producers of a test share.

    Attributes:
        log: what they did, in order.
        refuses: ids whose next start fails so often.
        most_records: of a transaction.
    """

    def __init__(self) -> None:
        self.log: list[str] = []
        self.refuses: dict[str, int] = defaultdict(int)
        self.epochs: dict[str, int] = defaultdict(int)
        self._gates: dict[str, threading.Event] = {}
        self._changed = threading.Condition()

    def say(self, text: str) -> None:
        with self._changed:
            self.log.append(text)
            self._changed.notify_all()

    def wait_for(self, text: str) -> None:
        """Until somebody has said so."""
        with self._changed:
            assert self._changed.wait_for(lambda: text in self.log, SECONDS), f"{text}: {self.log}"

    def hold(self, name: str) -> Callable[[], None]:
        """Starts of this id do not end before what is returned is called, or the test ends."""
        gate = self._gates[name] = threading.Event()
        return gate.set

    def go_on(self) -> None:
        for gate in self._gates.values():
            gate.set()

    async def initialize(self, name: str) -> int:
        self.say(f"asked {name}")
        gate = self._gates.get(name)
        if gate is not None:
            await asyncio.to_thread(gate.wait, SECONDS)
        if self.refuses[name]:
            self.refuses[name] -= 1
            raise KafkaConnectionError("away")
        self.epochs[name] += 1
        self.say(f"started {name}")
        return self.epochs[name]


class _Batch:
    def __init__(self) -> None:
        self._records = 0

    def append(self, **record: Any) -> object:
        self._records += 1
        return object()

    def close(self) -> None: ...

    def size(self) -> int:
        return 100

    def record_count(self) -> int:
        return self._records


class Producer:
    """Stands for aiokafka's."""

    def __init__(self, brokers: Brokers, name: str) -> None:
        self._brokers, self._name, self._empty = brokers, name, True
        self._message_accumulator = self._txn_manager = self.client = self
        self.producer_id, self.producer_epoch = 7, 0

    async def start(self) -> None:
        self.producer_epoch = await self._brokers.initialize(self._name)

    async def stop(self) -> None:
        self._brokers.say(f"stopped {self._name}")

    async def close(self) -> None: ...

    async def begin_transaction(self) -> None:
        self._empty = True
        self._brokers.say(f"begun {self._name}")

    async def abort_transaction(self) -> None:
        self._brokers.say(f"aborted {self._name}")

    def is_empty_transaction(self) -> bool:
        return self._empty

    async def partitions_for(self, topic: str) -> set[int]:
        return {0}

    def create_batch(self) -> _Batch:
        return _Batch()

    async def send_batch(self, batch: _Batch, topic: str, *, partition: int) -> asyncio.Future[RecordMetadata]:
        self._empty = False
        done: asyncio.Future[RecordMetadata] = asyncio.get_running_loop().create_future()
        done.set_result(RecordMetadata(topic, partition, TopicPartition(topic, partition), 5, 0, 0, 0))
        return done


class _Client:
    async def opened(self, seconds: float) -> list[str]:
        return []

    async def longest_timeout(self) -> int:
        return 900_000

    async def commit(self, transaction: Transaction, seconds: float, *, again: bool) -> CommitResult:
        return CommitResult(CommitOutcome.COMMITTED)

    async def close(self) -> None: ...


async def _not_refused(arguments: Any) -> str:
    return ""


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> Brokers:
    brokers = Brokers()
    monkeypatch.setattr(
        writer, "AIOKafkaProducer", lambda **arguments: Producer(brokers, arguments["transactional_id"])
    )
    monkeypatch.setattr(writer, "TransactionClient", lambda *arguments: _Client())
    monkeypatch.setattr(writer, "raise_if_refused", _not_refused)
    monkeypatch.setattr("firesteel_kafka.committer.TransactionClient", lambda *arguments: _Client())
    return brokers


def sink() -> KafkaSink:
    schema = KafkaRecordSerializationSchema.builder().set_topic("t")
    schema.set_value_serialization_schema(SimpleStringSchema())
    builder = KafkaSink.builder().set_bootstrap_servers("none:1").set_record_serializer(schema.build())
    builder.set_delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE).set_transactional_id_prefix("p")
    return builder.set_property("delivery.timeout.ms", "300").build()


class Subtask:
    """A subtask of a sink."""

    def __init__(self, states: Sequence[bytes] = (), *, checkpointing: bool = True) -> None:
        context = Context(0, 1, next(ATTEMPTS), checkpointing=checkpointing)  # ids are those of an attempt
        sink_writer = sink().create_writer(context)
        assert isinstance(sink_writer, TransactionalKafkaWriter)
        self.writer: TransactionalKafkaWriter = sink_writer
        self.committer: Committer = sink().create_committer(context)
        if states:
            self.writer.restore_state([WriterState(state) for state in states])
        self.writer.open()

    def barrier(self) -> str:
        """Name of the transaction that is prepared."""
        self.prepared = list(self.writer.prepare_commit(end_of_input=False))
        return Transaction.of(self.prepared[0]).name

    def commit(self) -> None:
        assert [result.outcome for result in self.committer.commit([Committable(data) for data in self.prepared])] == [
            CommitOutcome.COMMITTED
        ]

    def close(self) -> None:
        self.writer.close()
        self.committer.close()


@pytest.fixture
def subtask(brokers: Brokers) -> Iterator[Subtask]:
    subtask = Subtask()
    yield subtask
    brokers.go_on()
    subtask.close()


@contextmanager
def beside(work: Callable[[], Any]) -> Iterator[None]:
    """Done by another thread; it is at its end behind the block."""
    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        thread.join(SECONDS)
        assert not thread.is_alive()


def test_the_next_transaction_is_started_while_records_go_into_this_one(brokers: Brokers, subtask: Subtask) -> None:
    assert "asked p-0-1" not in brokers.log, "nothing is written yet"
    subtask.writer.write(["a"], None)
    brokers.wait_for("started p-0-1")
    assert subtask.barrier() == "p-0-0"
    brokers.hold("p-0-2")
    subtask.writer.write(["b"], None)  # p-0-2 waits for its brokers, and nobody for it
    brokers.wait_for("asked p-0-2")
    assert brokers.log.index("begun p-0-1") < brokers.log.index("asked p-0-2")
    assert subtask.barrier() == "p-0-1"
    assert "started p-0-2" not in brokers.log


def test_a_writer_that_needs_the_next_producer_before_it_is_started_waits_for_it(
    brokers: Brokers, subtask: Subtask
) -> None:
    go_on = brokers.hold("p-0-1")
    subtask.writer.write(["a"], None)
    brokers.wait_for("asked p-0-1")
    subtask.barrier()
    with beside(lambda: subtask.writer.write(["b"], None)):
        assert "begun p-0-1" not in brokers.log
        go_on()
    assert brokers.log.index("started p-0-1") < brokers.log.index("begun p-0-1")
    assert brokers.log.count("asked p-0-1") == 1


def test_a_start_that_has_failed_meanwhile_is_made_once_more(brokers: Brokers, subtask: Subtask) -> None:
    brokers.refuses["p-0-1"] = 100  # more than there is time for
    subtask.writer.write(["a"], None)
    assert subtask.writer._ahead is not None
    assert "away" in str(subtask.writer._ahead.starting.exception(SECONDS))
    subtask.barrier()
    brokers.refuses["p-0-1"] = 0
    subtask.writer.write(["b"], None)
    assert subtask.barrier() == "p-0-1"


def test_as_few_ids_are_used_as_before(brokers: Brokers, subtask: Subtask) -> None:
    names = set()
    for number in range(9):
        subtask.writer.write([str(number)], None)
        names.add(subtask.barrier())
        subtask.commit()
    assert names == {"p-0-0", "p-0-1", "p-0-2"}


def test_no_id_of_a_checkpoint_is_started(brokers: Brokers) -> None:
    subtask = Subtask([PoolState("p", 0, ("p-0-0", "p-0-2")).data()])
    try:
        subtask.writer.write(["a"], None)
        assert subtask.barrier() == "p-0-1"
        assert PoolState.of(subtask.writer.snapshot_state()[0], 1).prepared == ("p-0-1",), "no more than is prepared"
        subtask.writer.write(["b"], None)
        brokers.wait_for("started p-0-4")
        assert not {"asked p-0-0", "asked p-0-2"} & set(brokers.log)
    finally:
        subtask.close()


def test_without_checkpoints_there_is_no_next_one(brokers: Brokers) -> None:
    subtask = Subtask(checkpointing=False)
    subtask.writer.write(["a"], None)
    subtask.close()
    assert "asked p-0-1" not in brokers.log


def test_an_end_leaves_no_producer_and_no_start_under_way(brokers: Brokers) -> None:
    subtask = Subtask()
    go_on = brokers.hold("p-0-1")
    subtask.writer.write(["a"], None)
    brokers.wait_for("asked p-0-1")
    subtask.writer.abort()
    assert "aborted p-0-0" in brokers.log
    with beside(subtask.close):
        go_on()
    assert brokers.log.index("started p-0-1") < brokers.log.index("stopped p-0-1"), "the brokers have answered"
    assert "stopped p-0-0" in brokers.log
