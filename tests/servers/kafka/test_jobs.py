"""Jobs that write to a real Kafka while slots, TaskManagers, JobMasters and brokers are killed: who reads what is
committed finds each result once."""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from examples import kafka_orders

from firesteel.common import Configuration, SimpleStringSchema, Types, WatermarkStrategy
from firesteel.core.errors import JobFailedError
from firesteel.datastream import DataStream
from firesteel.datastream.connectors.kafka import (
    DeliveryGuarantee,
    KafkaRecordSerializationSchema,
    KafkaSink,
    KafkaSource,
)
from firesteel.functions.sink import WriterContext
from firesteel.functions.two_phase import (
    CommitResult,
    Committable,
    Committer,
    TwoPhaseCommitSink,
    TwoPhaseWriter,
    WriterState,
)
from tests.integration.embedded.programs import ended, new_environment, rest_of, submitted_to
from tests.integration.processes.cluster import PATIENCE
from tests.integration.recovery import functions, steps
from tests.integration.recovery.places import JOBMASTER, SLOT, TASKMANAGER, Embedded, Processes, embedded, processes
from tests.integration.recovery.programs import PROGRAMS, World, expected
from tests.integration.recovery.stepped_storage import plugin
from tests.integration.recovery.trials import ANY_MOMENT, Death, Trial
from tests.servers.kafka.counting import Count
from tests.servers.kafka.security import PASSWORD, USER
from tests.servers.kafka.server import KafkaCluster
from tests.servers.kafka.test_source import Noted
from tests.waiting import wait_until

pytestmark = [pytest.mark.may_skip(reason="Kafka comes by Maven"), pytest.mark.timeout(550)]

BEFORE_FLUSH, PREPARED = "before the flush", "behind the pre-commit"


def kafka_sink(bootstrap: str, topic: str, **properties: str) -> KafkaSink:
    schema = KafkaRecordSerializationSchema.builder().set_topic(topic)
    builder = (
        KafkaSink.builder()
        .set_bootstrap_servers(bootstrap)
        .set_record_serializer(schema.set_value_serialization_schema(SimpleStringSchema()).build())
        .set_delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE)
        .set_transactional_id_prefix(topic)
        .set_property("request.timeout.ms", "5000")
    )
    for name, value in properties.items():
        builder.set_property(name.replace("_", "."), value)
    return builder.build()


class SteppedKafkaSink(TwoPhaseCommitSink[Any]):
    """The sink, with the steps of a checkpoint at which somebody dies.

    Args:
        sink: it.
        folder: of the orders.
    """

    needs_all_states = True

    def __init__(self, sink: KafkaSink, folder: Path) -> None:
        self._sink, self._folder = sink, folder

    def create_writer(self, context: WriterContext) -> TwoPhaseWriter[Any]:
        return _SteppedWriter(self._sink.create_writer(context), self._folder)

    def create_committer(self, context: WriterContext) -> Committer:
        return _SteppedCommitter(self._sink.create_committer(context), self._folder)


class _SteppedWriter(TwoPhaseWriter[Any]):
    blocking = True

    def __init__(self, writer: TwoPhaseWriter[Any], folder: Path) -> None:
        self._writer, self._folder = writer, folder
        self.open, self.write, self.abort, self.close = writer.open, writer.write, writer.abort, writer.close  # type: ignore[method-assign]

    def write(self, values: Sequence[Any], timestamps: Sequence[int] | None) -> None:
        raise AssertionError("it is the writer's")

    def prepare_commit(self, *, end_of_input: bool) -> Sequence[bytes]:
        steps.at(self._folder, BEFORE_FLUSH)
        prepared = self._writer.prepare_commit(end_of_input=end_of_input)
        steps.at(self._folder, PREPARED)
        return prepared

    def snapshot_state(self) -> Sequence[bytes]:
        return self._writer.snapshot_state()

    def restore_state(self, states: Sequence[WriterState]) -> None:
        self._writer.restore_state(states)


class _SteppedCommitter(Committer):
    def __init__(self, committer: Committer, folder: Path) -> None:
        self._committer, self._folder = committer, folder

    def commit(self, committables: Sequence[Committable]) -> Sequence[CommitResult]:
        steps.at(self._folder, steps.BEFORE_COMMIT)
        results = list(self._committer.commit(committables[:1]))
        steps.at(self._folder, steps.WITHIN_COMMIT)
        results += self._committer.commit(committables[1:])
        steps.at(self._folder, steps.AFTER_COMMIT)
        return results

    def recommit(self, committables: Sequence[Committable]) -> Sequence[CommitResult]:
        return self._committer.recommit(committables)

    def close(self) -> None:
        self._committer.close()


class KafkaWorld(World):
    """What programs are made of, with a topic at their end."""

    bootstrap: str
    topics: dict[str, str]

    def sink(self, stream: DataStream, name: str) -> None:
        texts = stream.map(functions.Watched(self.folder), Types.STRING())
        texts.sink_to(SteppedKafkaSink(kafka_sink(self.bootstrap, self.topics[name]), self.folder))


@dataclass
class KafkaTrial(Trial):
    """A trial whose results go to topics.

    Args:
        kafka: the brokers.
        far: the job reaches them by connections that can be cut.
    """

    kafka: KafkaCluster = None  # type: ignore[assignment] # behind arguments with defaults
    far: bool = False

    def run_through(self, deaths: Sequence[Death | Callable[[], None]], at_the_end: Death | None = None) -> None:
        """Run the programs with these deaths and faults, each when checkpoints have gone on since the one before."""
        topics = {name: self.kafka.create_topic(partitions=3) for name in self.programs}
        with submitted_to(self.place.settings()):
            environment = self.environment()
            world = KafkaWorld(environment, self.folder, self.rate)
            world.bootstrap, world.topics = self.kafka.far if self.far else self.kafka.bootstrap, topics
            for name in self.programs:
                world.sink(PROGRAMS[name].build(world), name)
            job = environment.execute_async("to Kafka")
            try:
                for death in deaths:
                    if isinstance(death, Death):
                        self.die([death])
                    else:
                        self._progress()
                        death()
                self._progress()
                self.stop(at_the_end, world.splits)
                state = ended(job, PATIENCE)
            except BaseException:
                self._tell(job)
                job.cancel().result()
                raise
            if state != "FINISHED":
                self._tell(job)
            assert state == "FINISHED"
        for name, topic in topics.items():
            expected_total = expected(PROGRAMS[name], self.folder).total()
            wait_until(partial(nothing_is_open, self.kafka, topic), "no transaction is left open")
            lines = Counter((record.value or b"").decode() for record in self.kafka.records(topic))
            print(f"{topic}: {lines.total()} of {expected_total}")
            self._compare(name, lines)


def nothing_is_open(kafka: KafkaCluster, topic: str) -> bool:
    """No reader waits for the end of a transaction."""
    return kafka.end_offsets(topic, "read_committed") == kafka.end_offsets(topic)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """For a trial; what stands still at a step goes on when it is gone."""
    yield tmp_path
    (tmp_path / steps.ORDER).unlink(missing_ok=True)


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Embedded]:
    with plugin(tmp_path_factory.mktemp("plugin")), embedded() as place:
        yield place


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    """A cluster of processes."""
    with plugin(tmp_path_factory.mktemp("plugin")) as path, processes(path) as place:
        yield place


def test_slots_die_at_each_step(here: Embedded, kafka: KafkaCluster, folder: Path) -> None:
    trial = KafkaTrial(here, folder, ["keyed"], rate=500, kafka=kafka)
    mine = (BEFORE_FLUSH, PREPARED, steps.WITHIN_COMMIT, steps.AFTER_COMMIT)
    trial.run_through([Death(step) for step in mine], at_the_end=Death(steps.BEFORE_COMMIT))


@pytest.mark.long
@pytest.mark.parametrize("victim", [SLOT, TASKMANAGER, JOBMASTER])
def test_all_parts_of_a_cluster_die_at_each_step(
    victim: str, place: Processes, kafka: KafkaCluster, folder: Path
) -> None:
    trial = KafkaTrial(place, folder, ["keyed", "chain"], rate=200, kafka=kafka)
    steps_of_deaths = (
        BEFORE_FLUSH, PREPARED, steps.ACKNOWLEDGED, steps.AFTER_METADATA, steps.BEFORE_COMMIT, steps.WITHIN_COMMIT,
        steps.AFTER_COMMIT, ANY_MOMENT, ANY_MOMENT,
    )  # fmt: skip
    trial.run_through([Death(step, victim) for step in steps_of_deaths], at_the_end=Death(steps.WITHIN_COMMIT, victim))


class Feed:
    """Orders of seven users, a hundred at a time, until it is closed.

    Args:
        kafka: has the topic.
        topic: where they go.

    Attributes:
        sent: how many of each user.
    """

    def __init__(self, kafka: KafkaCluster, topic: str) -> None:
        self.sent: Counter[str] = Counter()
        self._kafka, self._topic, self._over = kafka, topic, threading.Event()
        self._thread = threading.Thread(target=self._send, name="feed")
        self._thread.start()

    def _send(self) -> None:
        while not self._over.is_set():
            users = [f"user {number}" for number in range(7)] * 15
            self._kafka.produce(self._topic, [(user.encode(), user.encode()) for user in users])
            self.sent.update(users)
            self._over.wait(0.1)

    def close(self) -> None:
        """All of it is acknowledged."""
        self._over.set()
        self._thread.join()


@pytest.mark.long
@pytest.mark.exact
def test_from_kafka_to_kafka_while_all_parts_die(place: Processes, kafka: KafkaCluster, folder: Path) -> None:
    orders, counts = kafka.create_topic(partitions=3), kafka.create_topic(partitions=3)
    trial = KafkaTrial(place, folder, [], kafka=kafka)
    deaths = [
        Death(BEFORE_FLUSH, TASKMANAGER), Death(PREPARED, JOBMASTER), Death(steps.AFTER_METADATA, SLOT),
        Death(steps.BEFORE_COMMIT, JOBMASTER), Death(steps.WITHIN_COMMIT, TASKMANAGER), Death(ANY_MOMENT, SLOT),
        Death(ANY_MOMENT, TASKMANAGER), Death(ANY_MOMENT, JOBMASTER),
    ]  # fmt: skip
    with submitted_to(place.settings()):
        environment = trial.environment()
        read = KafkaSource.builder().set_bootstrap_servers(kafka.bootstrap).set_topics(orders).set_group_id(orders)
        read.set_value_only_deserializer(SimpleStringSchema())
        stream = environment.from_source(read.build(), WatermarkStrategy.no_watermarks(), "orders")
        counted = stream.key_by(lambda user: user, Types.STRING()).process(Count(), Types.STRING())
        noted = counted.map(Noted(folder), Types.STRING())
        noted.sink_to(SteppedKafkaSink(kafka_sink(kafka.bootstrap, counts), folder))
        job = environment.execute_async("from Kafka to Kafka")
        feed = Feed(kafka, orders)
        try:
            trial.die(deaths)
            feed.close()
            expected_lines = Counter(f"{user}: {n}" for user, most in feed.sent.items() for n in range(1, most + 1))
            wait_until(
                lambda: (
                    sum(kafka.end_offsets(counts, "read_committed").values()) >= expected_lines.total()
                    and nothing_is_open(kafka, counts)
                    and len(kafka.records(counts)) >= expected_lines.total()
                ),
                "all results are committed",
                PATIENCE,
            )
        except BaseException:
            trial._tell(job)
            raise
        finally:
            feed.close()
            job.cancel().result()
    lines = Counter((record.value or b"").decode() for record in kafka.records(counts))
    print(f"{expected_lines.total()} records, {trial.kills} kills")
    assert lines == expected_lines, (
        f"{(expected_lines - lines).total()} lost, {(lines - expected_lines).total()} too many"
    )


@pytest.mark.long
def test_brokers_die(here: Embedded, kafka_of_three: KafkaCluster, folder: Path) -> None:
    trial = KafkaTrial(here, folder, ["keyed"], rate=100, kafka=kafka_of_three)

    def away(*numbers: int, seconds: float = 0) -> Callable[[], None]:
        def happens() -> None:
            with kafka_of_three.away(*numbers):
                time.sleep(seconds)  # a fault of this length is what is tested
            trial.kills += len(numbers) or 3

        return happens

    def still() -> None:
        with kafka_of_three.stopped(1):
            time.sleep(3)

    trial.run_through(
        [away(0, seconds=1), still, away(1), Death(steps.BEFORE_COMMIT), away(2, seconds=2), away(seconds=5)]
    )


@pytest.mark.long
def test_the_network_is_cut(here: Embedded, kafka_of_three: KafkaCluster, folder: Path) -> None:
    trial = KafkaTrial(here, folder, ["keyed"], rate=100, kafka=kafka_of_three, far=True)

    def cut(*numbers: int, seconds: float) -> Callable[[], None]:
        def happens() -> None:
            with kafka_of_three.cut_off(*numbers):
                time.sleep(seconds)  # a fault of this length is what is tested

        return happens

    def with_a_death() -> None:
        with kafka_of_three.cut_off(1, 2):
            time.sleep(0.3)
            here.kill(SLOT, folder, random.Random(1))
            trial.kills += 1
            time.sleep(2)

    trial.run_through(
        # 5 s is after what a request is given up (request.timeout.ms).
        [cut(0, seconds=2), cut(seconds=2), Death(steps.BEFORE_COMMIT), cut(seconds=8), with_a_death, cut(2, seconds=8)]
    )


@pytest.mark.long
def test_a_transaction_that_ran_out_fails_the_job_and_names_the_checkpoint(
    here: Embedded, kafka: KafkaCluster, folder: Path
) -> None:
    topic = kafka.create_topic()
    with submitted_to(here.settings()):
        environment = new_environment(1)
        no_restarts = Configuration()
        no_restarts.set_string("restart-strategy.type", "none")
        environment.enable_checkpointing(100)
        environment.configure(no_restarts)
        sink = kafka_sink(kafka.bootstrap, topic, transaction_timeout_ms="1000")
        environment.from_sequence(0, 10).map(str, Types.STRING()).sink_to(_Late(sink))
        with pytest.raises(JobFailedError, match=r"of checkpoint .* can't be committed: the transaction .* ran out"):
            environment.execute("late")
    assert kafka.records(topic) == []


class _Late(TwoPhaseCommitSink[Any]):
    """Commits when it is too late."""

    needs_all_states = True

    def __init__(self, sink: KafkaSink) -> None:
        self._sink = sink

    def create_writer(self, context: WriterContext) -> TwoPhaseWriter[Any]:
        return self._sink.create_writer(context)

    def create_committer(self, context: WriterContext) -> Committer:
        return _LateCommitter(self._sink.create_committer(context))


class _LateCommitter(Committer):
    def __init__(self, committer: Committer) -> None:
        self._committer = committer

    def commit(self, committables: Sequence[Committable]) -> Sequence[CommitResult]:
        time.sleep(3)
        return self._committer.commit(committables)

    def close(self) -> None:
        self._committer.close()


def test_from_kafka_to_kafka(here: Embedded, kafka: KafkaCluster) -> None:
    orders, totals = kafka.create_topic(partitions=2), kafka.create_topic(partitions=2)
    users = [f"user {number % 7}" for number in range(500)]
    kafka.produce(orders, [(None, json.dumps({"user": user, "amount": 2.5}).encode()) for user in users])
    with submitted_to(here.settings()):
        environment = new_environment(2)
        environment.enable_checkpointing(200)
        secured = {
            "bootstrap.servers": kafka.sasl, "security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.username": USER, "sasl.password": PASSWORD, "ssl.ca.location": str(kafka.certificates.authority),
        }  # fmt: skip
        kafka_orders.build(environment, orders, totals, secured, until_now=True)
        job = environment.execute_async("orders")
        assert ended(job, PATIENCE) == "FINISHED"
        for path in ("", "/plan", "/config", "/exceptions"):
            assert "hidden" not in json.dumps(rest_of(job, path)), "passwords are for the program only"
    wait_until(partial(nothing_is_open, kafka, totals), "no transaction is left open")
    lines = Counter((record.value or b"").decode() for record in kafka.records(totals))
    counts: Counter[str] = Counter()
    expected_lines: Counter[str] = Counter()
    for user in users:
        counts[user] += 1
        expected_lines[json.dumps({"user": user, "orders": counts[user], "total": 2.5 * counts[user]})] += 1
    assert lines == expected_lines
