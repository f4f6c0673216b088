"""The reader of partitions: records, positions, ends, pauses, offsets that are gone, poison, commits."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from firesteel.common.serialization import DeserializationSchema, SimpleStringSchema
from firesteel.common.typeinfo import Types
from firesteel.connectors.formats.json_rows import JsonRowDeserializationSchema
from firesteel.connectors.malformed import MalformedPolicy, MalformedRecord
from firesteel.core.errors import MalformedDataError, ProgramError
from firesteel.functions.source import END, SourceBatch, Wait
from firesteel.runtime.loop.metrics import MetricRegistry
from firesteel.testing.clock import ManualClock
from firesteel.testing.source_conformance import ReaderStub
from firesteel_kafka.deserialization import ConsumerRecords, KafkaRecordDeserializationSchema
from firesteel_kafka.offsets import KafkaOffsetResetStrategy
from firesteel_kafka.partitions import KafkaTopicPartition, Subscription, split_of
from firesteel_kafka.reader import ENDS_SECONDS, KafkaReader, ReaderPlan
from tests.unit.connectors.kafka.batches import ABORT, FakeConsumer, batch, marker

P0, P1 = KafkaTopicPartition("t", 0), KafkaTopicPartition("t", 1)
TEXT = KafkaRecordDeserializationSchema.value_only(SimpleStringSchema())
ROW = Types.ROW_NAMED(["id", "name"], [Types.LONG(), Types.STRING()])
JSON = KafkaRecordDeserializationSchema.value_only(JsonRowDeserializationSchema.builder().type_info(ROW).build())


class Driven:
    """A reader on a loop of the test's own."""

    def __init__(self, consumer: FakeConsumer, clock: ManualClock, schema: Any = TEXT, **plan: Any) -> None:
        settings: dict[str, Any] = {
            "malformed": MalformedPolicy.FAIL, "reset": KafkaOffsetResetStrategy.EARLIEST, "commits": True, **plan,
        }  # fmt: skip
        subscription = settings.pop("subscription", Subscription(topics=("t",)))
        self.consumer, self.clock = consumer, clock
        context = ReaderStub(0, 1, clock)
        self.metrics = MetricRegistry(clock)
        context.runtime_context = lambda: SimpleNamespace(get_metrics_group=lambda: self.metrics.group("source"))  # type: ignore[method-assign, assignment, return-value]
        self.reader = KafkaReader(
            context, ReaderPlan(subscription, schema, servers="broker:9092", **settings), lambda: consumer
        )
        self.runner = asyncio.Runner()
        self.reader.open()

    def poll(self, most: int = 1000) -> Any:
        return self.runner.run(self.reader.poll(most))

    def batches(self, count: int, most: int = 1000) -> list[SourceBatch[Any]]:
        batches = [self.poll(most) for _ in range(count)]
        assert all(isinstance(polled, SourceBatch) for polled in batches), batches
        return batches

    def add(
        self, partition: KafkaTopicPartition, start: int = 0, stop: int | None = None, at: int | None = None
    ) -> None:
        split = split_of(partition, start, stop)
        self.reader.add_splits([split if at is None else split.at(at)])

    def settle(self) -> None:
        async def turns() -> None:
            for _ in range(5):
                await asyncio.sleep(0)

        self.runner.run(turns())


@pytest.fixture
def drive() -> Iterator[Callable[..., Driven]]:
    readers: list[Driven] = []

    def make(logs: Any, schema: Any = TEXT, **plan: Any) -> Driven:
        consumer = logs if isinstance(logs, FakeConsumer) else FakeConsumer(logs)
        readers.append(Driven(consumer, ManualClock(), schema, **plan))
        return readers[-1]

    yield make
    for reader in readers:
        reader.runner.run(reader.reader.close())
        reader.runner.close()


def test_records_come_with_positions_and_timestamps(drive: Callable[..., Driven]) -> None:
    driven = drive({P0: [batch(0, [b"a", b"b"]), batch(2, [b"c"])]})
    driven.add(P0)
    first, second = driven.batches(2)
    assert (first.values, first.timestamps, first.position, first.split_id) == (["a", "b"], [1000, 1001], 2, "t-0")
    assert (second.values, second.position) == (["c"], 3)
    assert driven.reader.snapshot()[0].position == 3


def test_a_reader_goes_on_at_a_position(drive: Callable[..., Driven]) -> None:
    driven = drive({P0: [batch(0, [b"a", b"b", b"c"])]})
    driven.add(P0, at=2)
    (only,) = driven.batches(1)
    assert (only.values, only.position) == (["c"], 3)


def test_bounded_partitions_end_at_their_offsets(drive: Callable[..., Driven]) -> None:
    driven = drive({P0: [batch(0, [b"a", b"b", b"c"])], P1: []})
    driven.add(P0, stop=2)
    driven.add(P1, stop=0)
    driven.reader.no_more_splits()
    batches = driven.batches(2)
    assert sorted((each.split_id, each.values, each.position, each.split_finished) for each in batches) == [
        ("t-0", ["a", "b"], 2, True),
        ("t-1", [], 0, True),
    ]
    assert driven.poll() is END


def test_a_bounded_partition_ends_behind_an_aborted_transaction(drive: Callable[..., Driven]) -> None:
    data = [batch(0, [b"a"]), batch(1, [b"x"], producer=5, transactional=True), marker(2, 5, ABORT)]
    driven = drive({P0: data})
    driven.add(P0, stop=3)
    values, ended = [], False
    while not ended:
        each = driven.poll()
        values += each.values
        ended = each.split_finished
    assert each.position == 3
    assert values[0] == "a"


def test_pieces_are_no_larger_than_asked_for_and_partitions_take_turns(drive: Callable[..., Driven]) -> None:
    driven = drive({P0: [batch(0, [b"a", b"b", b"c"])], P1: [batch(0, [b"d", b"e"])]})
    driven.add(P0)
    driven.add(P1)
    batches = driven.batches(3, most=2)
    assert [each.values for each in batches] == [["a", "b"], ["d", "e"], ["c"]]


def test_paused_partitions_keep_what_has_arrived(drive: Callable[..., Driven]) -> None:
    driven = drive({P0: [batch(0, [b"a", b"b"]), batch(2, [b"c"])], P1: [batch(0, [b"d"]), batch(1, [b"e"])]})
    driven.add(P0)
    driven.add(P1)
    assert driven.poll(1).values == ["a"]
    driven.reader.pause_splits(["t-0", "unknown"])
    assert [driven.poll().values for _ in range(2)] == [["d"], ["e"]]
    assert P0 in driven.consumer.paused
    driven.reader.pause_splits(["t-1"])
    assert isinstance(driven.poll(), Wait)
    driven.reader.resume_splits(["t-0"])
    assert [driven.poll().values for _ in range(2)] == [["b"], ["c"]]


def test_new_partitions_lose_nothing_of_the_others(drive: Callable[..., Driven]) -> None:
    driven = drive({P0: [batch(0, [b"a", b"b"]), batch(2, [b"c"])], P1: [batch(0, [b"d"])]})
    driven.add(P0)
    assert driven.poll(1).values == ["a"]
    driven.add(P1)
    assert sorted(driven.poll().values[0] for _ in range(3)) == ["b", "c", "d"]
    assert driven.consumer.started == 1


def test_partitions_that_are_not_subscribed_to_any_more_are_left_out(
    drive: Callable[..., Driven], caplog: pytest.LogCaptureFixture
) -> None:
    driven = drive({P0: [batch(0, [b"a"])]}, subscription=Subscription(topics=("other",)))
    driven.add(P0, at=1)
    left = driven.poll()
    assert (left.split_id, left.values, left.split_finished) == ("t-0", [], True)
    assert "partition t-0, read up to 1, is not subscribed to any more" in caplog.text
    assert not driven.consumer.started


# -- offsets that are gone


def deleted() -> FakeConsumer:
    consumer = FakeConsumer({P0: [batch(5, [b"f", b"g"])]})
    consumer.first[P0] = 5
    return consumer


def test_deleted_records_are_passed_over_with_a_warning_and_counted(
    drive: Callable[..., Driven], caplog: pytest.LogCaptureFixture
) -> None:
    driven = drive(deleted())
    driven.add(P0, at=2)
    jump, rest = driven.batches(2)
    assert (jump.values, jump.position) == ([], 5)
    assert rest.values == ["f", "g"]
    assert (
        "partition t-0 has no record at offset 2: it has those from 5 up to 7; older ones were deleted" in caplog.text
    )
    assert "3 offsets are passed over" in caplog.text
    assert (driven.reader._metrics.resets, driven.reader._metrics.passed_over) == (1, 3)


def test_deleted_records_go_on_at_the_end_if_told_so(drive: Callable[..., Driven]) -> None:
    driven = drive(deleted(), reset=KafkaOffsetResetStrategy.LATEST)
    driven.add(P0, at=2)
    assert driven.poll().position == 7


def test_deleted_records_fail_the_job_without_a_strategy(drive: Callable[..., Driven]) -> None:
    driven = drive(deleted(), reset=KafkaOffsetResetStrategy.NONE)
    driven.add(P0, at=2)
    with pytest.raises(ProgramError, match=r"partition t-0 has no record at offset 2: .* older ones were deleted"):
        driven.poll()


def test_a_partition_that_ends_before_the_offset_was_cut_off(drive: Callable[..., Driven]) -> None:
    driven = drive({P0: [batch(0, [b"a"])]}, reset=KafkaOffsetResetStrategy.NONE)
    driven.add(P0, at=9)
    with pytest.raises(ProgramError, match="from 0 up to 1; it was cut off, or the topic was created again"):
        driven.poll()


# -- records


class Poisonous(DeserializationSchema):
    def deserialize(self, message: bytes) -> Any:
        if message == b"poison":
            raise KeyError("boom")
        if message == b"refused":
            raise ProgramError("the registry refuses schema 1: 401")
        return None if message == b"nothing" else message.decode()


POISON = {P0: [batch(3, [b"a", b"poison", None, b"nothing", b"b"])]}


def test_poison_fails_with_its_place(drive: Callable[..., Driven]) -> None:
    driven = drive(POISON, KafkaRecordDeserializationSchema.value_only(Poisonous()))
    driven.add(P0, at=3)
    with pytest.raises(MalformedDataError, match="topic 't', partition 0, offset 4: KeyError: 'boom' in 'poison'"):
        driven.poll()


def test_poison_is_skipped_and_counted(drive: Callable[..., Driven], caplog: pytest.LogCaptureFixture) -> None:
    driven = drive(POISON, KafkaRecordDeserializationSchema.value_only(Poisonous()), malformed=MalformedPolicy.SKIP)
    driven.add(P0, at=3)
    polled = driven.poll()
    assert (polled.values, polled.timestamps, polled.position) == (["a", "b"], [1000, 1004], 8)
    assert driven.reader._malformed.count == 1
    assert "1 so far in this subtask: topic 't', partition 0, offset 4: KeyError" in caplog.text


def test_records_are_not_skipped_because_a_registry_refuses_the_credentials(drive: Callable[..., Driven]) -> None:
    schema = KafkaRecordDeserializationSchema.value_only(Poisonous())
    driven = drive({P0: [batch(0, [b"refused", b"a"])]}, schema, malformed=MalformedPolicy.SKIP)
    driven.add(P0)
    with pytest.raises(ProgramError, match="401"):
        driven.poll()
    assert driven.reader._malformed.count == 0


def test_poison_is_given_as_a_record(drive: Callable[..., Driven]) -> None:
    driven = drive(POISON, KafkaRecordDeserializationSchema.value_only(Poisonous()), malformed=MalformedPolicy.EMIT)
    driven.add(P0, at=3)
    polled = driven.poll()
    assert polled.values[1] == MalformedRecord("topic 't', partition 0", 4, "KeyError: 'boom'", b"poison")
    assert polled.timestamps == [1000, 1001, 1004]


class Whole(KafkaRecordDeserializationSchema):
    def deserialize(self, record: Any) -> Any:
        if record.key == b"many":
            return (number for number in range(2))
        if record.value is None:
            return None
        return record


def test_whole_records_have_key_headers_and_place(drive: Callable[..., Driven]) -> None:
    keys = [b"k", b"many", None]
    driven = drive({P0: [batch(7, [b"v", b"w", None], keys=keys, headers=[("h", b"1")])]}, Whole())
    driven.add(P0, at=7)
    polled = driven.poll()
    record, *many = polled.values
    assert (record.topic, record.partition, record.offset, record.timestamp, record.timestamp_type) == (
        "t",
        0,
        7,
        1000,
        0,
    )
    assert (record.key, record.value, record.headers) == (b"k", b"v", (("h", b"1"),))
    assert many == [0, 1]
    assert polled.timestamps == [1000, 1001, 1001]


def test_json_comes_as_columns(drive: Callable[..., Driven]) -> None:
    driven = drive({P0: [batch(0, [b'{"id": 1, "name": "a"}', None, b'{"id": 2}'])]}, JSON)
    driven.add(P0)
    polled = driven.poll()
    assert isinstance(polled.values, pa.RecordBatch)
    assert polled.values.to_pylist() == [{"id": 1, "name": "a"}, {"id": 2, "name": None}]
    assert polled.timestamps.tolist() == [1000, 1002]


class PlacesOfTexts(KafkaRecordDeserializationSchema):
    """Each record twice, with its place; records without a value not at all."""

    gives_columns = True

    def deserialize(self, record: Any) -> Any:
        raise AssertionError("columns are made")

    def deserialize_columns(self, records: ConsumerRecords) -> Any:
        texts = [None if value is None else value.decode() for value in records.values()]
        origins = np.array([place for place, text in enumerate(texts) for _ in range(2 if text else 0)])
        places = [f"{records.topic}-{records.partition}@{offset}" for offset in records.offsets()]
        columns = [pa.array(texts), pa.array(places)]
        return pa.RecordBatch.from_arrays(columns, ["text", "place"]).take(pa.array(origins)), origins


def test_a_schema_of_whole_records_gives_columns(drive: Callable[..., Driven]) -> None:
    driven = drive({P0: [batch(5, [b"a", None, b"c"])]}, PlacesOfTexts())
    driven.add(P0, 5)
    polled = driven.poll()
    assert [(row["text"], row["place"]) for row in polled.values.to_pylist()] == [
        ("a", "t-0@5"), ("a", "t-0@5"), ("c", "t-0@7"), ("c", "t-0@7"),
    ]  # fmt: skip
    assert polled.timestamps.tolist() == [1000, 1000, 1002, 1002]


def test_columns_with_poison_are_read_one_by_one(drive: Callable[..., Driven]) -> None:
    log = {P0: [batch(0, [b'{"id": 1}', b'{"id": "x"}', b'{"id": 3}'])]}
    driven = drive(log, JSON, malformed=MalformedPolicy.SKIP)
    driven.add(P0)
    polled = driven.poll()
    assert [row.id for row in polled.values] == [1, 3]
    assert (list(polled.timestamps), polled.position) == ([1000, 1002], 3)
    two = drive(log, JSON)
    two.add(P0)
    with pytest.raises(MalformedDataError, match=r"topic 't', partition 0, offset 1: malformed JSON .*field 'id'"):
        two.poll()


# -- checkpoints and brokers


def test_offsets_are_committed_when_their_checkpoint_is_complete(drive: Callable[..., Driven]) -> None:
    driven = drive({P0: [batch(0, [b"a"]), batch(1, [b"b"])]})
    driven.add(P0)
    driven.batches(2)
    checkpoints: list[tuple[int, int | None]] = [(1, 1), (2, 2), (3, None)]
    for number, position in checkpoints:
        driven.reader.positions_in_checkpoint(number, {"t-0": position, "gone": 5})
    driven.runner.run(call(lambda: driven.reader.notify_checkpoint_complete(2)))
    driven.settle()
    assert driven.consumer.commits == [{P0: 2}]
    assert driven.reader._metrics.committed == {P0: 2}
    driven.runner.run(call(lambda: driven.reader.positions_in_checkpoint(4, {"t-0": 2})))
    driven.runner.run(call(lambda: driven.reader.notify_checkpoint_complete(4)))
    driven.settle()
    assert driven.consumer.commits == [{P0: 2}], "nothing has changed"


def test_commits_that_fail_are_counted_and_nothing_else(
    drive: Callable[..., Driven], caplog: pytest.LogCaptureFixture
) -> None:
    driven = drive({P0: [batch(0, [b"a"]), batch(1, [b"b"])]})
    driven.consumer.refuses_commits = True
    driven.add(P0)
    driven.poll()
    driven.runner.run(call(lambda: driven.reader.positions_in_checkpoint(1, {"t-0": 1})))
    driven.runner.run(call(lambda: driven.reader.notify_checkpoint_complete(1)))
    driven.settle()
    assert driven.reader._metrics.commits_failed == 1
    assert "offsets can't be committed, 1 times so far: a stranger owns the group" in caplog.text
    assert driven.poll().values == ["b"]


def test_a_reader_that_commits_nothing_keeps_no_positions(drive: Callable[..., Driven]) -> None:
    driven = drive({P0: [batch(0, [b"a"])]}, commits=False)
    driven.add(P0)
    driven.poll()
    driven.runner.run(call(lambda: driven.reader.positions_in_checkpoint(1, {"t-0": 1})))
    assert not driven.reader._commits


async def call(function: Callable[[], None]) -> None:
    function()


def test_brokers_that_are_away_are_waited_for(
    drive: Callable[..., Driven], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    driven = drive({P0: [batch(0, [b"a"])]})
    driven.consumer.away = True
    waits = []

    async def pass_by(seconds: float) -> None:
        waits.append(seconds)
        driven.consumer.away = len(waits) < 3

    monkeypatch.setattr("firesteel_kafka.reader.asyncio.sleep", pass_by)
    driven.add(P0)
    assert driven.poll().values == ["a"]
    assert waits == [0.25, 0.5, 1.0]
    assert driven.reader._metrics.failed_connections == driven.consumer.stopped == 3
    assert "Kafka at broker:9092, again in 0.25 s: nobody there" in caplog.text


def test_silent_brokers_are_reported_once_and_when_they_answer_again(
    drive: Callable[..., Driven], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    driven = drive({P0: [batch(0, [b"a"]), batch(1, [b"b"])]})
    driven.add(P0)
    driven.poll()
    part = [driven.reader._assigned["t-0"]]
    driven.consumer.silent[P0] = 100.0
    driven.reader._look_for_silence(driven.consumer, part)
    assert "no broker" not in caplog.text, "it has waited for no time itself"
    driven.clock.advance(16)
    for _ in range(2):
        driven.reader._look_for_silence(driven.consumer, part)
    assert caplog.text.count("no broker of Kafka at broker:9092 has answered for 15 s about t-0") == 1
    assert driven.reader._metrics.silences == 1
    driven.consumer.silent[P0] = 0.0
    driven.reader._look_for_silence(driven.consumer, part)
    assert "answers again" in caplog.text


def values_of(driven: Driven) -> dict[str, Any]:
    return {name.removeprefix("source."): value for name, value in driven.metrics.values().items()}


def test_the_lag_is_what_is_behind_the_records_that_were_given(drive: Callable[..., Driven]) -> None:
    driven = drive({P0: [batch(0, [b"a"]), batch(1, [b"b", b"c"])], P1: [batch(0, [b"x"] * 7)]})
    driven.add(P0)
    driven.add(P1, stop=3)
    partition = "KafkaSourceReader.topic.t.partition"
    gauges = values_of(driven)
    assert (gauges["pendingRecords"], gauges["KafkaSourceReader.KafkaConsumer.records-lag-max"]) == (0, 0)
    assert gauges[f"{partition}.0.records-lag"] == -1, "nobody has connected"
    driven.poll(1)
    gauges = values_of(driven)
    assert (gauges[f"{partition}.0.records-lag"], gauges[f"{partition}.1.records-lag"]) == (2, 3)
    assert (gauges["pendingRecords"], gauges["KafkaSourceReader.KafkaConsumer.records-lag-max"]) == (5, 3)
    driven.batches(2)
    assert values_of(driven)["pendingRecords"] == 0, "what is behind the end of a bounded source waits for nobody"
    assert values_of(driven)[f"{partition}.1.records-lag"] == 0


def test_a_reader_that_fetches_nothing_asks_where_partitions_end(drive: Callable[..., Driven]) -> None:
    driven = drive({P0: [batch(0, [b"a", b"b"])], P1: [batch(0, [b"x"])]})
    driven.add(P0)
    driven.add(P1)
    driven.runner.run(driven.reader.look_at_ends())
    driven.poll(1)
    driven.consumer.grown = {P0: 1000, P1: 1000}
    driven.consumer.silent[P0] = ENDS_SECONDS - 1
    driven.runner.run(driven.reader.look_at_ends())
    assert driven.consumer.known_ends == {}, "an answer has told it not long ago"
    driven.consumer.silent[P0] = ENDS_SECONDS
    driven.consumer.away = True
    driven.runner.run(driven.reader.look_at_ends())
    driven.consumer.away = False
    driven.runner.run(driven.reader.look_at_ends())
    assert driven.consumer.known_ends == {P0: 1000}
    assert values_of(driven)["KafkaSourceReader.topic.t.partition.0.records-lag"] == 999
