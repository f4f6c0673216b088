"""Jobs that read a real Kafka: columns, transactions, offsets of the group; and what dies and changes meanwhile."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions

from firesteel.common import Configuration, Types
from firesteel.common.watermark_strategy import WatermarkStrategy
from firesteel.core.errors import FiresteelError
from firesteel.core.process import myself
from firesteel.datastream import StreamExecutionEnvironment
from firesteel.datastream.connectors.file_system import MalformedPolicy
from firesteel.datastream.connectors.kafka import (
    KafkaOffsetResetStrategy,
    KafkaOffsetsInitializer,
    KafkaSource,
    KafkaSourceBuilder,
    KafkaTopicPartition,
)
from firesteel.datastream.formats.json import JsonRowDeserializationSchema
from firesteel_kafka.consumer import AioConsumer, KafkaSession
from firesteel_kafka.properties import consumer_arguments
from tests.integration.embedded.programs import new_environment, rest_of
from tests.integration.recovery import steps
from tests.integration.recovery.functions import Watched
from tests.integration.recovery.places import SLOT, Embedded, Place, embedded
from tests.integration.recovery.stepped_sink import SteppedSink
from tests.servers.kafka.server import KafkaCluster
from tests.waiting import PATIENCE, wait_until

ROW = Types.ROW_NAMED(["id", "name"], [Types.LONG(), Types.STRING()])


@pytest.fixture(scope="module")
def place() -> Iterator[Embedded]:
    with embedded() as place:
        yield place


def records(numbers: range) -> list[tuple[bytes | None, bytes | None]]:
    return [(None, json.dumps({"id": number, "name": f"n{number}"}).encode()) for number in numbers]


def source(kafka: KafkaCluster) -> KafkaSourceBuilder:
    schema = JsonRowDeserializationSchema.builder().type_info(ROW).build()
    return KafkaSource.builder().set_bootstrap_servers(kafka.bootstrap).set_value_only_deserializer(schema)


async def transactions(bootstrap: str, topic: str) -> None:
    """One that is aborted, then one that is committed."""
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=f"of-{topic}") as producer:
        for numbers in (range(1000, 1010), range(2000, 2010)):
            await producer.begin_transaction()
            for key, value in records(numbers):
                await producer.send(topic, value, key, partition=0)
            await producer.flush()
            await (producer.abort_transaction() if numbers[0] == 1000 else producer.commit_transaction())


def test_a_bounded_read_of_columns_leaves_out_what_was_aborted(kafka: KafkaCluster, place: Place) -> None:
    topic = kafka.create_topic(partitions=2)
    for partition in (0, 1):
        kafka.produce(topic, records(range(partition * 500, partition * 500 + 500)), partition)
    asyncio.run(transactions(kafka.bootstrap, topic))
    environment = new_environment(2)
    read = source(kafka).set_topics(topic).set_bounded(KafkaOffsetsInitializer.latest()).build()
    stream = environment.from_source(read, WatermarkStrategy.for_monotonous_timestamps(), "kafka")
    with stream.execute_and_collect() as results:
        ids = sorted(row.id for row in results)
    assert ids == [*range(1000), *range(2000, 2010)]


@pytest.mark.long
def test_topics_come_and_go(kafka: KafkaCluster, place: Place) -> None:
    prefix = kafka.create_topic()
    kafka.delete_topic(prefix)
    builder = source(kafka).set_topic_pattern(f"{prefix}-.*").set_property("partition.discovery.interval.ms", "200")
    stream = new_environment(1).from_source(builder.build(), WatermarkStrategy.no_watermarks(), "kafka")

    def come(topic: str, numbers: range) -> None:
        kafka.produce(topic, records(numbers), 0)
        assert sorted(next(results).id for _ in numbers) == list(numbers)

    with stream.execute_and_collect() as results:
        first, second = (kafka.create_topic(f"{prefix}-{name}") for name in ("one", "two"))
        come(first, range(10))
        come(second, range(10, 20))
        kafka.delete_topic(first)
        come(second, range(20, 30))
        wait_until(lambda: gone(kafka, first), "the topic is deleted")
        come(second, range(30, 40))
        kafka.create_topic(first)
        come(first, range(40, 43))  # it is shorter than it was: what is there is read from its beginning
        come(second, range(50, 60))


def gone(kafka: KafkaCluster, topic: str) -> bool:
    """No broker knows it."""
    with KafkaSession(lambda: consumer_arguments({"bootstrap.servers": kafka.bootstrap})) as session:
        return not session.topics([topic])


def test_poison_and_topics_that_are_not_there_say_where(kafka: KafkaCluster, place: Place) -> None:
    topic = kafka.create_topic()
    kafka.produce(topic, [*records(range(3)), (None, b"poison"), *records(range(4, 6))], 0)
    for policy, expected in ((MalformedPolicy.SKIP, [0, 1, 2, 4, 5]), (MalformedPolicy.FAIL, None)):
        bounded = source(kafka).set_topics(topic).set_bounded(KafkaOffsetsInitializer.latest()).on_malformed(policy)
        stream = new_environment(1).from_source(bounded.build(), WatermarkStrategy.no_watermarks(), "kafka")
        if expected is not None:
            with stream.execute_and_collect() as results:
                assert [row.id for row in results] == expected
        else:
            with pytest.raises(FiresteelError, match=rf"topic '{topic}', partition 0, offset 3: malformed JSON"):
                list(stream.execute_and_collect())
    missing = source(kafka).set_topics("not-there").set_bounded(KafkaOffsetsInitializer.latest()).build()
    stream = new_environment(1).from_source(missing, WatermarkStrategy.no_watermarks(), "kafka")
    with pytest.raises(FiresteelError, match=r"Kafka at .* has no topic 'not-there'"):
        list(stream.execute_and_collect())


class Noted(Watched):
    """Says in which process it is, so that it can be killed."""

    def initialize_state(self, context: Any) -> None:
        me = myself()
        steps.write(self._folder / f"slot-{me.pid}", str(me.start))


class Run:
    """A job that reads a topic to files, exactly once; its group is that of the topic.

    Args:
        kafka: has the topic.
        place: where it runs.
        folder: for files and checkpoints.
        parallelism: of the source.
    """

    def __init__(self, kafka: KafkaCluster, place: Place, folder: Path, parallelism: int = 2) -> None:
        self.kafka, self.place, self.folder = kafka, place, folder
        self.topic = kafka.create_topic(partitions=3)
        self.sent = 0
        self._chance = random.Random(5)
        environment = self._environment(parallelism)
        read = source(kafka).set_topics(self.topic).set_group_id(self.topic)
        read.set_property("partition.discovery.interval.ms", "500")
        stream = environment.from_source(read.build(), WatermarkStrategy.for_monotonous_timestamps(), "kafka")
        lines = stream.map(Noted(folder)).map(lambda row: str(row.id), Types.STRING())
        lines.sink_to(SteppedSink(folder, "ids"))
        self.job = environment.execute_async("kafka to files")

    def _environment(self, parallelism: int) -> StreamExecutionEnvironment:
        environment = new_environment(parallelism)
        settings = Configuration()
        for key, value in {
            "execution.checkpointing.dir": str(self.folder / "checkpoints"),
            "restart-strategy.type": "fixed-delay",
            "restart-strategy.fixed-delay.attempts": "1000",
            "restart-strategy.fixed-delay.delay": "20 ms",
        }.items():
            settings.set_string(key, value)
        environment.configure(settings)
        environment.enable_checkpointing(200)
        return environment

    def send(self, count: int, partition: int | None = None) -> None:
        self.kafka.produce(self.topic, records(range(self.sent, self.sent + count)), partition)
        self.sent += count

    def arrived(self) -> None:
        """All that was sent is in files, once."""
        wait_until(lambda: self._shown().total() >= self.sent, f"{self.sent} records are there", PATIENCE)
        lines, expected = self._shown(), Counter(str(number) for number in range(self.sent))
        assert lines == expected, f"{(expected - lines).total()} lost, {(lines - expected).total()} too many"

    def _shown(self) -> Counter[str]:
        """The lines of files that are committed."""
        files = [path for path in (self.folder / "out").rglob("*") if path.is_file() and path.name[0] != "."]
        return Counter(line for path in files for line in path.read_text().splitlines())

    def kill_slot(self) -> None:
        self.place.kill(SLOT, self.folder, self._chance)
        self.place.bring_back(SLOT)

    def ends(self) -> dict[int, int]:
        """Where the broker says that partitions end."""

        async def ask() -> dict[int, int]:
            async with AIOKafkaConsumer(bootstrap_servers=self.kafka.bootstrap) as consumer:
                ends = await consumer.end_offsets([TopicPartition(self.topic, number) for number in range(4)])
                return {partition.partition: offset for partition, offset in ends.items()}

        return asyncio.run(ask())

    def read_up_to(self) -> dict[int, int]:
        """Offsets of the partitions in which no record waits, and which the last checkpoint and the group know."""
        (source_info,) = rest_of(self.job, "/kafka")["sources"]
        rows = source_info["partitions"]
        assert {row["topic"] for row in rows} == {self.topic}
        return {
            row["partition"]: row["position"]
            for row in rows
            if row["lag"] == 0 and row["position"] == row["checkpointed"] == row["committed"]
        }

    def committed(self) -> int:
        """Sum of the group's offsets."""

        async def ask() -> int:
            async with AIOKafkaConsumer(bootstrap_servers=self.kafka.bootstrap, group_id=self.topic) as consumer:
                partitions = [TopicPartition(self.topic, number) for number in range(4)]
                return sum([await consumer.committed(partition) or 0 for partition in partitions])

        return asyncio.run(ask())


def test_ends_are_asked_for_where_nothing_is_fetched(kafka: KafkaCluster) -> None:
    topic = kafka.create_topic(partitions=2)
    kafka.produce(topic, records(range(5)), 1)
    partitions = [KafkaTopicPartition(topic, number) for number in range(2)]

    async def look() -> list[int | None]:
        consumer = AioConsumer(consumer_arguments({"bootstrap.servers": kafka.bootstrap}))
        await consumer.start()
        try:
            consumer.assign(dict.fromkeys(partitions, 0))
            for partition in partitions:
                consumer.pause(partition)
            await consumer.look_up_ends(partitions)
            return [consumer.end(partition) for partition in partitions]
        finally:
            await consumer.stop()

    assert asyncio.run(look()) == [0, 5]


async def add_partition(bootstrap: str, topic: str) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        await admin.create_partitions({topic: NewPartitions(total_count=4)})
    finally:
        await admin.close()


async def join_group(bootstrap: str, topic: str) -> None:
    """A stranger in the job's group: comes, is given partitions, and goes."""
    async with AIOKafkaConsumer(topic, bootstrap_servers=bootstrap, group_id=topic) as stranger:
        await stranger.getmany(timeout_ms=300)


def metric(run: Run, name: str) -> Any:
    vertices = rest_of(run.job)["vertices"]
    values = []
    for vertex in vertices:
        known = rest_of(run.job, f"/vertices/{vertex['id']}/subtasks/metrics")
        for metric_id in (metric["id"] for metric in known):
            if metric_id.endswith(name):
                values += rest_of(run.job, f"/vertices/{vertex['id']}/subtasks/metrics?get={metric_id}")
    return values


@pytest.mark.exact
def test_each_record_comes_once_whatever_happens(kafka: KafkaCluster, place: Place, tmp_path: Path) -> None:
    run = Run(kafka, place, tmp_path)
    try:
        run.send(3000)
        run.arrived()
        wait_until(lambda: run.committed() == run.sent, "the group knows what was read", PATIENCE)
        run.send(1000)
        run.kill_slot()
        run.send(1000)
        asyncio.run(add_partition(kafka.bootstrap, run.topic))
        run.send(500, partition=3)
        run.arrived()
        with kafka.away():
            pass
        asyncio.run(join_group(kafka.bootstrap, run.topic))
        run.send(1000)
        run.arrived()
        assert metric(run, "commitsSucceeded"), "metrics are there"
        assert metric(run, "pendingRecords")
        wait_until(lambda: run.read_up_to() == run.ends(), "partitions are read up to their ends, and no record waits")
    finally:
        run.job.cancel().result()
    run.arrived()


@pytest.mark.long
@pytest.mark.exact
@pytest.mark.parametrize("parallelism", [1, 3])
def test_many_deaths_lose_and_double_nothing(
    kafka: KafkaCluster, place: Place, tmp_path: Path, parallelism: int
) -> None:
    run = Run(kafka, place, tmp_path, parallelism)
    try:
        for number in range(8):
            run.send(2000)
            run.kill_slot()
            if number % 3 == 1:
                with kafka.away():
                    pass
            if number % 3 == 2:
                asyncio.run(join_group(kafka.bootstrap, run.topic))
        run.arrived()
    finally:
        run.job.cancel().result()
    run.arrived()


def read_from(kafka: KafkaCluster, topic: str, reset: KafkaOffsetResetStrategy) -> list[int]:
    """What a bounded job gives that begins at the very first record, whether it is there or not."""
    start = KafkaOffsetsInitializer.offsets({KafkaTopicPartition(topic, 0): 0}, reset)
    read = source(kafka).set_topics(topic).set_starting_offsets(start).set_bounded(KafkaOffsetsInitializer.latest())
    stream = new_environment(1).from_source(read.build(), WatermarkStrategy.no_watermarks(), "kafka")
    with stream.execute_and_collect() as results:
        return [row.id for row in results]


def test_records_that_were_deleted_are_an_error_or_passed_over(kafka: KafkaCluster, place: Place) -> None:
    topic = kafka.create_topic()
    kafka.produce(topic, records(range(100)), 0)
    kafka.delete_records(topic, {0: 60})
    with pytest.raises(FiresteelError, match=rf"{topic}.* has no record at offset 0: it has those from 60 up to 100"):
        read_from(kafka, topic, KafkaOffsetResetStrategy.NONE)
    assert read_from(kafka, topic, KafkaOffsetResetStrategy.EARLIEST) == list(range(60, 100))


@pytest.mark.long
def test_a_compacted_topic_gives_what_is_left(kafka: KafkaCluster, place: Place) -> None:
    topic = kafka.create_topic(
        cleanup__policy="compact", segment__bytes=1 << 20, segment__ms=100, min__cleanable__dirty__ratio=0.001
    )
    rows = [json.dumps({"id": number, "name": "n"}).encode() for number in range(300)]
    kafka.produce(topic, [(b"%d" % (number % 10), row) for number, row in enumerate(rows)], 0)
    wait_until(lambda: compacted(kafka, topic), "the log is compacted", PATIENCE)
    numbers = [number for number in read_from(kafka, topic, KafkaOffsetResetStrategy.NONE) if number < 1000]
    assert numbers == sorted(set(numbers)), "each once, in order"
    assert numbers[-10:] == list(range(290, 300)), "the last record of each key is there"
    assert len(numbers) < 100


def compacted(kafka: KafkaCluster, topic: str) -> bool:
    """Another segment is begun by another record; the cleaner comes then."""
    kafka.produce(topic, [(b"more", b'{"id": 1000, "name": "n"}')], 0)
    return len(kafka.records(topic)) < 100
