"""The sink on a real Kafka, attempt by attempt: what readers see is what complete checkpoints hold."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest
from aiokafka.partitioner import DefaultPartitioner

from firesteel.common import SimpleStringSchema
from firesteel.core.errors import ProgramError
from firesteel.datastream.connectors.kafka import DeliveryGuarantee, KafkaRecordSerializationSchema
from firesteel.functions.two_phase import CommitOutcome
from firesteel_kafka.transactions import Transaction
from tests.servers.kafka.attempts import Attempt, texts
from tests.servers.kafka.server import KafkaCluster
from tests.waiting import wait_until

pytestmark = pytest.mark.may_skip(reason="Kafka comes by Maven")

DONE = [CommitOutcome.COMMITTED]


@pytest.fixture
def attempts() -> Iterator[Callable[..., Attempt]]:
    """Makes attempts, which all end with the test."""
    attempts: list[Attempt] = []

    def make(*arguments: object, **more: object) -> Attempt:
        attempts.append(Attempt(*arguments, **more))  # type: ignore[arg-type]
        return attempts[-1]

    yield make
    for attempt_ in attempts:
        attempt_.die()


def committed_texts(kafka: KafkaCluster, topic: str) -> list[str]:
    """Texts that are visible to those who read committed ones; commit markers take a moment."""
    return [(record.value or b"").decode() for record in kafka.records(topic)]


def nothing_is_open(kafka: KafkaCluster, topic: str) -> bool:
    """No reader waits for the end of a transaction."""
    return kafka.end_offsets(topic, "read_committed") == kafka.end_offsets(topic)


def test_records_come_with_key_headers_and_time(kafka: KafkaCluster, attempts: Callable[..., Attempt]) -> None:
    topic, other = kafka.create_topic(partitions=4), kafka.create_topic(partitions=2)
    schema = (
        KafkaRecordSerializationSchema.builder()
        .set_topic_selector(lambda text: other if text.startswith("o") else topic)
        .set_key_serialization_schema(SimpleStringSchema())
        .set_value_serialization_schema(SimpleStringSchema())
        .set_header_provider(lambda text: [("length", b"%d" % len(text))])
    )
    builder = texts(kafka, topic).set_record_serializer(schema.build())
    builder.set_delivery_guarantee(DeliveryGuarantee.AT_LEAST_ONCE).set_property("compression.codec", "lz4")
    attempt = attempts(builder.build())
    written = [f"k{number}" for number in range(50)]
    attempt.writer.write(written, list(range(1000, 1050)))
    attempt.write("other")
    assert attempt.barrier() == ([], [])
    records = kafka.records(topic)
    assert sorted((r.value, r.key, r.timestamp, r.headers) for r in records) == sorted(
        (text.encode(), text.encode(), 1000 + number, (("length", b"%d" % len(text)),))
        for number, text in enumerate(written)
    )
    choose, partitions = DefaultPartitioner(), list(range(4))
    assert all(record.partition == choose(record.key, partitions, partitions) for record in records)
    (record,) = kafka.records(other)
    assert record.value == b"other"
    assert abs(record.timestamp - time.time() * 1000) < 600_000, "without a time it has that of its writing"


def test_a_transaction_for_each_checkpoint(kafka: KafkaCluster, attempts: Callable[..., Attempt]) -> None:
    topic = kafka.create_topic(partitions=2)
    attempt = attempts(texts(kafka, topic).build())
    assert attempt.barrier()[0] == [], "nothing was written"
    attempt.write("a", "b")
    first, _ = attempt.barrier()
    attempt.write("c")
    assert committed_texts(kafka, topic) == []
    assert attempt.commit(first) == DONE
    wait_until(lambda: sorted(committed_texts(kafka, topic)) == ["a", "b"], "the first is visible")
    assert attempt.commit(first) == DONE, "once more is the same"
    second, _ = attempt.barrier()
    assert attempt.commit(second) == DONE
    wait_until(lambda: sorted(committed_texts(kafka, topic)) == ["a", "b", "c"], "the second is visible")
    names = set()
    for number in range(6):
        attempt.write(str(number))
        prepared, _ = attempt.barrier()
        names |= {Transaction.of(data).name for data in prepared}
        assert attempt.commit(prepared) == DONE
    assert len(names) <= 3, "ids are used again"
    wait_until(lambda: len(committed_texts(kafka, topic)) == 9, "all are visible")
    attempt.write("aborted")
    attempt.end()
    wait_until(lambda: nothing_is_open(kafka, topic), "an attempt that ends in order leaves nothing open")


def test_an_attempt_that_goes_on_commits_first_and_aborts_the_rest(
    kafka: KafkaCluster, attempts: Callable[..., Attempt]
) -> None:
    topic = kafka.create_topic(partitions=2)
    sink = texts(kafka, topic).build()
    died = attempts(sink)
    died.write("in the checkpoint")
    prepared, states = died.barrier()
    died.write("behind it")
    died.writer.flush()
    died.die()
    assert kafka.end_offsets(topic, "read_committed") != kafka.end_offsets(topic)
    after = attempts(sink, 1, states=states, committables=prepared)
    assert after.recommitted == DONE
    wait_until(lambda: nothing_is_open(kafka, topic), "what was behind the checkpoint is aborted")
    assert committed_texts(kafka, topic) == ["in the checkpoint"]
    first_name = Transaction.of(prepared[0]).name
    for number in range(4):  # as long as it lives it starts no id of the checkpoint
        after.write(str(number))
        again, _ = after.barrier()
        assert Transaction.of(again[0]).name != first_name
        after.commit(again)
    assert attempts(sink, 2, states=states, committables=prepared, opens=False).recommitted == DONE


def test_an_older_checkpoint_holds_what_was_committed_since(
    kafka: KafkaCluster, attempts: Callable[..., Attempt]
) -> None:
    topic = kafka.create_topic(partitions=2)
    sink = texts(kafka, topic).build()
    attempt = attempts(sink)
    attempt.write("first")
    prepared, states = attempt.barrier()
    attempt.commit(prepared)
    for number in range(6):
        attempt.write(str(number))
        attempt.commit(attempt.barrier()[0])
    attempt.die()
    after = attempts(sink, 1, states=states, committables=prepared)
    assert after.recommitted == [CommitOutcome.ALREADY_COMMITTED], "its id was started again since"
    wait_until(lambda: len(committed_texts(kafka, topic)) == 7, "nothing has changed")


def test_an_older_checkpoint_ends_what_is_open_with_its_ids(
    kafka: KafkaCluster, attempts: Callable[..., Attempt]
) -> None:
    topic = kafka.create_topic(partitions=1)
    sink = texts(kafka, topic).set_property("transaction.timeout.ms", "600000").build()
    died = attempts(sink)
    died.write("first")
    prepared, states = died.barrier()
    died.commit(prepared)
    reserved = Transaction.of(prepared[0]).name
    for number in range(9):  # until the id that the checkpoint holds is started again
        died.write(f"later {number}")
        if died.writer._name == reserved:  # type: ignore[attr-defined]
            break
        died.commit(died.barrier()[0])
    assert died.writer._name == reserved  # type: ignore[attr-defined]
    died.writer.flush()
    died.die()
    assert not nothing_is_open(kafka, topic)
    after = attempts(sink, 1, states=states, committables=prepared)
    assert after.recommitted == [CommitOutcome.ALREADY_COMMITTED]
    after.write("new")
    assert after.commit(after.barrier()[0]) == DONE
    wait_until(lambda: "new" in committed_texts(kafka, topic), "committed readers get what is written since")
    wait_until(lambda: nothing_is_open(kafka, topic), "and nothing is open")
    assert committed_texts(kafka, topic) == ["first", *(f"later {n}" for n in range(number)), "new"]


def test_another_parallelism_aborts_what_all_have_left(kafka: KafkaCluster, attempts: Callable[..., Attempt]) -> None:
    topic = kafka.create_topic(partitions=2)
    sink = texts(kafka, topic).build()
    states: list[bytes] = []
    prepared: list[bytes] = []
    for subtask in range(3):
        died = attempts(sink, 0, subtask, 3)
        died.write(f"kept {subtask}")
        committables, state = died.barrier()
        prepared, states = prepared + committables, states + state
        died.write(f"lost {subtask}")
        died.writer.flush()
        died.die()
    second = attempts(sink, 1, 1, 2, states, prepared[:1])  # it aborts before the other one has committed
    first = attempts(sink, 1, 0, 2, states, prepared[1:])
    assert first.recommitted + second.recommitted == DONE * 3
    wait_until(lambda: nothing_is_open(kafka, topic), "all that is not in the checkpoint is aborted")
    assert sorted(committed_texts(kafka, topic)) == ["kept 0", "kept 1", "kept 2"]


def test_a_transaction_that_ran_out_is_an_error(kafka: KafkaCluster, attempts: Callable[..., Attempt]) -> None:
    topic = kafka.create_topic()
    sink = texts(kafka, topic).set_property("transaction.timeout.ms", "1000").build()
    attempt = attempts(sink)
    attempt.write("away for too long")
    prepared, states = attempt.barrier()
    attempt.die()
    wait_until(lambda: nothing_is_open(kafka, topic), "the brokers abort it")
    after = attempts(sink, 1, states=states, committables=prepared, opens=False)
    assert after.recommitted == [CommitOutcome.FAILED]
    assert "ran out" in after.reasons[0]
    assert "transaction.timeout.ms is 1 s" in after.reasons[0]


def test_a_time_out_beyond_what_the_brokers_allow_is_refused(
    kafka: KafkaCluster, attempts: Callable[..., Attempt]
) -> None:
    builder = texts(kafka, kafka.create_topic()).set_property("transaction.timeout.ms", "3600000")
    with pytest.raises(ProgramError, match="is 3,600,000, and the brokers allow 900,000"):
        attempts(builder.build())


def test_brokers_that_are_away_are_waited_for(kafka: KafkaCluster, attempts: Callable[..., Attempt]) -> None:
    topic = kafka.create_topic(partitions=2)
    sink = texts(kafka, topic).set_property("request.timeout.ms", "2000").build()
    attempt = attempts(sink)
    attempt.write("before")
    first, _ = attempt.barrier()
    prepared: list[bytes] = []

    def go_on() -> None:
        assert attempt.commit(first) == DONE
        attempt.write("meanwhile")
        prepared.extend(attempt.barrier()[0])

    thread = threading.Thread(target=go_on)
    with kafka.away():
        thread.start()
        thread.join(1)
        assert thread.is_alive(), "it waits"
    thread.join()
    assert attempt.commit(prepared) == DONE
    wait_until(lambda: sorted(committed_texts(kafka, topic)) == ["before", "meanwhile"], "all is there, once")
