"""A real Apache Kafka for tests, of one broker or of three, with faults: brokers killed, stopped, away."""

from __future__ import annotations

import asyncio
import base64
import shutil
import signal
import tempfile
import time
import uuid
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic, RecordsToDelete
from aiokafka.errors import KafkaError, for_code

from tests.ports import free_ports
from tests.servers.java_server import JavaServer
from tests.servers.kafka.security import Certificates, broker_properties, storage_options
from tests.servers.proxy import Proxy
from tests.waiting import PATIENCE

ENSURE = Path(__file__).parent / "ensure-kafka.sh"
STARTED = b"Kafka Server started"
_T = TypeVar("_T")


@dataclass(frozen=True)
class Record:
    """A record as a consumer sees it."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...] = ()


class Broker(JavaServer):
    """One broker, which is a controller as well.

    Args:
        libs: folder with Kafka's jars.
        folder: where it keeps what it has.
        properties: of its configuration.
        cluster_id: of its cluster.
        formatting: options of the tool that formats its storage.
        flags: of its JVM.
    """

    def __init__(
        self,
        libs: Path,
        folder: Path,
        properties: Mapping[str, object],
        cluster_id: str,
        formatting: Sequence[str] = (),
        flags: Sequence[str] = (),
    ) -> None:
        self._configuration, self._cluster_id = str(folder / "server.properties"), cluster_id
        self._formatting = formatting
        words = [*flags, "kafka.Kafka", self._configuration]
        super().__init__(libs.name, folder, words, [f"{libs}/*"], heap_mb=384, archive=True)
        Path(self._configuration).write_text("".join(f"{key}={value}\n" for key, value in properties.items()))

    def begin(self) -> None:
        """Start it; `await_start` waits for it."""
        if not (self.folder / "data" / "meta.properties").exists():
            words = ["-t", self._cluster_id, "-c", self._configuration, *self._formatting]
            self.run("kafka.tools.StorageTool", "format", *words)
        super().begin()

    def serves(self) -> bool:
        """Whether it takes requests."""
        return STARTED in self.said()


class KafkaCluster:
    """Brokers on free ports of the loopback interface (KRaft, each one controller and broker).

    Args:
        libs: folder with Kafka's jars (`ENSURE` prints it).
        brokers: how many: 1 or 3.
        properties: more of the brokers' configuration, or other values.
        secured: each has two more listeners, as ``tests.servers.kafka.security`` says.
        proxied: each has one more listener, which can be cut off.
        flags: of the brokers' JVMs.

    Attributes:
        brokers: by number, from 0.
        bootstrap: ``bootstrap.servers``.
        certificates: of those that are secured.
        sasl, tls, far: ``bootstrap.servers`` of their other listeners.
    """

    certificates: Certificates

    def __init__(
        self,
        libs: str,
        brokers: int = 1,
        properties: Mapping[str, object] | None = None,
        *,
        secured: bool = False,
        proxied: bool = False,
        flags: Sequence[str] = (),
    ) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="kafka"))
        names = ("SASL", "TLS") * secured + ("FAR",) * proxied
        free = iter(free_ports((2 + len(names)) * brokers))
        self.ports, controllers, *others = ([next(free) for _ in range(brokers)] for _ in range(2 + len(names)))
        more = dict(zip(names, others, strict=True))
        self._proxies = [Proxy(port) for port in more.get("FAR", ())]
        listeners = more | ({"FAR": [proxy.port for proxy in self._proxies]} if proxied else {})
        self.sasl, self.tls, self.far = (
            ",".join(f"127.0.0.1:{port}" for port in listeners.get(name, ())) for name in ("SASL", "TLS", "FAR")
        )
        properties = dict(properties or {})
        if secured:
            self.certificates = Certificates(self.folder / "certificates")
            properties = broker_properties(self.certificates) | properties
        self.bootstrap = ",".join(f"127.0.0.1:{port}" for port in self.ports)
        number = bytes(1) + uuid.uuid4().bytes[1:]  # so it begins with no hyphen, which would be an option
        cluster_id = base64.urlsafe_b64encode(number).decode().rstrip("=")
        voters = ",".join(f"{number}@127.0.0.1:{port}" for number, port in enumerate(controllers, 1))
        replicas = min(3, brokers)
        self.brokers: list[Broker] = []
        for node, (port, controller) in enumerate(zip(self.ports, controllers, strict=True), 1):
            folder = self.folder / str(node)
            own_ports, told_ports = (
                [f"PLAINTEXT://127.0.0.1:{port}", *(f"{name}://127.0.0.1:{of[node - 1]}" for name, of in ports.items())]
                for ports in (more, listeners)
            )
            own = {
                "process.roles": "broker,controller",
                "node.id": node,
                "controller.quorum.voters": voters,
                "controller.listener.names": "CONTROLLER",
                "listeners": ",".join([*own_ports, f"CONTROLLER://127.0.0.1:{controller}"]),
                "advertised.listeners": ",".join(told_ports),
                "inter.broker.listener.name": "PLAINTEXT",
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,"
                "CONTROLLER:PLAINTEXT,SASL:SASL_SSL,TLS:SSL,FAR:PLAINTEXT",
                "log.dirs": folder / "data",
                "auto.create.topics.enable": "false",
                "offsets.topic.num.partitions": 3,
                "offsets.topic.replication.factor": replicas,
                "transaction.state.log.num.partitions": 3,
                "transaction.state.log.replication.factor": replicas,
                "transaction.state.log.min.isr": min(2, replicas),
                "group.initial.rebalance.delay.ms": 0,
                # One that was killed comes back under its own number only when its session has run out.
                "broker.session.timeout.ms": 1500,
                "broker.heartbeat.interval.ms": 300,
                "transaction.abort.timed.out.transaction.cleanup.interval.ms": 500,
            }
            formatting = storage_options() if secured else ()
            self.brokers.append(Broker(Path(libs), folder, own | properties, cluster_id, formatting, flags))

    @classmethod
    def at(cls, bootstrap: str) -> KafkaCluster:
        """One that somebody else has started, with one broker; only its topics are ours."""
        cluster = cls.__new__(cls)
        cluster.bootstrap, cluster.brokers, cluster._proxies = bootstrap, [], []
        cluster.folder = Path(tempfile.mkdtemp(prefix="kafka"))
        return cluster

    def start(self) -> None:
        """Start those that do not run; they take requests at the return."""
        begun = [broker for broker in self.brokers if not broker.is_alive()]
        for broker in begun:
            broker.begin()
        for broker in begun:
            broker.await_start()

    def kill(self, *numbers: int) -> None:
        """Brokers are gone at once; without numbers, all."""
        for broker in self._chosen(numbers):
            broker.kill()

    @contextmanager
    def away(self, *numbers: int) -> Iterator[None]:
        """Brokers are killed, and start again at the end; without numbers, all."""
        self.kill(*numbers)
        try:
            yield
        finally:
            self.start()

    @contextmanager
    def stopped(self, *numbers: int) -> Iterator[None]:
        """Brokers stand still, and their connections stay; without numbers, all."""
        chosen = self._chosen(numbers)
        with ExitStack() as stack:
            for broker in chosen:
                stack.enter_context(broker.stopped())
            yield

    @contextmanager
    def cut_off(self, *numbers: int) -> Iterator[None]:
        """Nothing comes to those who are connected by ``far``, nor from them; without numbers, from no broker."""
        with ExitStack() as cut:
            for number, proxy in enumerate(self._proxies):
                if not numbers or number in numbers:
                    cut.enter_context(proxy.cut())
            yield

    def _chosen(self, numbers: tuple[int, ...]) -> list[Broker]:
        return [self.brokers[number] for number in numbers] if numbers else self.brokers

    def close(self) -> None:
        """Nothing is left of it."""
        for broker in self.brokers:
            if broker.is_alive():
                broker.signal(signal.SIGCONT)
                broker.close()
        for proxy in self._proxies:
            proxy.close()
        shutil.rmtree(self.folder)

    # ---- what tests do with topics

    def create_topic(
        self, name: str | None = None, partitions: int = 1, replication: int | None = None, **configs: object
    ) -> str:
        """Make a topic; its leaders are there at the return.

        Args:
            name: of the topic; None = a new one.
            partitions: how many.
            replication: copies of each; None = one for each broker.
            configs: of the topic; ``__`` in their names stands for a dot.

        Returns:
            Its name.
        """
        name = name or f"topic-{uuid.uuid4().hex[:8]}"
        topic_configs = {key.replace("__", "."): str(value) for key, value in configs.items()}
        topic = NewTopic(name, partitions, replication or max(1, len(self.brokers)), topic_configs=topic_configs)

        async def create() -> None:
            async with _Admin(self.bootstrap) as admin:
                response = await admin.create_topics([topic], timeout_ms=30_000)
                for _, code, *rest in response.topic_errors:
                    if code:
                        raise for_code(code)(*rest)
                while True:
                    (described,) = await admin.describe_topics([name])
                    partition_rows = described["partitions"]
                    if len(partition_rows) == partitions and all(row["leader"] >= 0 for row in partition_rows):
                        return
                    await asyncio.sleep(0.02)

        _run(create())
        return name

    def delete_records(self, topic: str, offsets: Mapping[int, int]) -> None:
        """Remove the records of partitions that are before offsets."""

        async def delete() -> None:
            before = {TopicPartition(topic, number): RecordsToDelete(offset) for number, offset in offsets.items()}
            async with _Admin(self.bootstrap) as admin:
                await admin.delete_records(before)

        _run(delete())

    def delete_topic(self, name: str) -> None:
        """Remove a topic with its records."""

        async def delete() -> None:
            async with _Admin(self.bootstrap) as admin:
                for _, code in (await admin.delete_topics([name])).topic_error_codes:
                    if code:
                        raise for_code(code)()

        _run(delete())

    def produce(
        self,
        topic: str,
        records: list[tuple[bytes | None, bytes | None]],
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: list[tuple[str, bytes]] | None = None,
        **options: Any,
    ) -> None:
        """Write keys and values in order; all are acknowledged at the return."""

        async def produce() -> None:
            async with AIOKafkaProducer(bootstrap_servers=self.bootstrap, **options) as producer:
                for key, value in records:
                    await producer.send(
                        topic, value, key, partition=partition, timestamp_ms=timestamp_ms, headers=headers or []
                    )
                await producer.flush()

        _run(produce())

    def records(self, topic: str, isolation_level: str = "read_committed", **options: Any) -> list[Record]:
        """All records of a topic that a new consumer sees now, by partition and offset.

        With ``read_committed`` these are the records before the first transaction that is still open.
        """

        async def read() -> list[Record]:
            records: list[Record] = []
            consumer = AIOKafkaConsumer(
                bootstrap_servers=self.bootstrap, isolation_level=isolation_level, enable_auto_commit=False,
                auto_offset_reset="earliest", **options,
            )  # fmt: skip
            async with consumer:
                numbers: set[int] = set()
                while not numbers:
                    await consumer._client.force_metadata_update()
                    numbers = consumer.partitions_for_topic(topic) or set()
                    await consumer._client.set_topics([topic])
                partitions = [TopicPartition(topic, number) for number in sorted(numbers)]
                consumer.assign(partitions)
                ends = await consumer.end_offsets(partitions)
                await consumer.seek_to_beginning(*partitions)
                while True:
                    behind = [
                        partition for partition in partitions if await consumer.position(partition) < ends[partition]
                    ]
                    if not behind:
                        break
                    for batch in (await consumer.getmany(*behind, timeout_ms=100)).values():
                        records += [
                            Record(
                                record.topic,
                                record.partition,
                                record.offset,
                                record.timestamp,
                                record.key,
                                record.value,
                                tuple(record.headers),
                            )
                            for record in batch
                            if record.offset < ends[TopicPartition(record.topic, record.partition)]
                        ]
            return sorted(records, key=lambda record: (record.partition, record.offset))

        return _run(read())

    def end_offsets(self, topic: str, isolation_level: str = "read_uncommitted") -> dict[int, int]:
        """Offset behind each partition's last record; with ``read_committed``, that of the first open transaction."""

        async def ask() -> dict[int, int]:
            async with AIOKafkaConsumer(
                topic, bootstrap_servers=self.bootstrap, isolation_level=isolation_level, group_id=None
            ) as consumer:
                partitions = list(consumer.assignment())
                ends = await consumer.end_offsets(partitions)
                return {partition.partition: offset for partition, offset in sorted(ends.items())}

        return _run(ask())


class _Admin:
    """An administrator that is closed at the end."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    async def __aenter__(self) -> AIOKafkaAdminClient:
        deadline = time.monotonic() + PATIENCE
        while True:
            self._client = AIOKafkaAdminClient(bootstrap_servers=self._bootstrap)
            try:
                await self._client.start()
                return self._client
            except KafkaError:
                await self._client.close()
                if time.monotonic() > deadline:
                    raise
                await asyncio.sleep(0.1)

    async def __aexit__(self, *_: object) -> None:
        await self._client.close()


def _run(coroutine: Coroutine[Any, Any, _T]) -> _T:
    """Carry it out on a loop of its own, within the tests' patience."""

    async def bounded() -> _T:
        async with asyncio.timeout(PATIENCE):
            return await coroutine

    return asyncio.run(bounded())
