"""A broker that asks who its clients are: source, sink and committer get through by each mechanism, and say why not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from firesteel.core.errors import ProgramError
from firesteel.functions.two_phase import CommitOutcome
from firesteel_kafka.consumer import AioConsumer, KafkaSession
from firesteel_kafka.partitions import KafkaTopicPartition
from firesteel_kafka.properties import consumer_arguments
from tests.servers.kafka.attempts import Attempt, texts
from tests.servers.kafka.security import CLIENT, CLIENT_SECRET, PASSWORD, USER, TokenEndpoint, given_token, token
from tests.servers.kafka.server import KafkaCluster
from tests.waiting import wait_until

pytestmark = pytest.mark.may_skip(reason="Kafka comes by Maven")


@pytest.fixture(scope="module")
def tokens() -> Iterator[TokenEndpoint]:
    with TokenEndpoint().serving() as endpoint:
        yield endpoint


def sasl(kafka: KafkaCluster, mechanism: str) -> dict[str, str]:
    return {
        "bootstrap.servers": kafka.sasl, "security.protocol": "SASL_SSL", "sasl.mechanism": mechanism,
        "ssl.ca.location": str(kafka.certificates.authority),
    }  # fmt: skip


def scram(kafka: KafkaCluster, tokens: TokenEndpoint, folder: Path) -> dict[str, str]:
    return {**sasl(kafka, "SCRAM-SHA-512"), "sasl.username": USER, "sasl.password": PASSWORD}


def scram_256_by_jaas(kafka: KafkaCluster, tokens: TokenEndpoint, folder: Path) -> dict[str, str]:
    quoted = PASSWORD.replace('"', '\\"')
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    return {
        **sasl(kafka, "SCRAM-SHA-256"),
        "sasl.jaas.config": f'{module} required username="{USER}" password="{quoted}";',
    }


def plain(kafka: KafkaCluster, tokens: TokenEndpoint, folder: Path) -> dict[str, str]:
    return {**sasl(kafka, "PLAIN"), "sasl.username": USER, "sasl.password": PASSWORD}


def token_endpoint(kafka: KafkaCluster, tokens: TokenEndpoint, folder: Path) -> dict[str, str]:
    return {
        **sasl(kafka, "OAUTHBEARER"),
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.token.endpoint.url": tokens.url,
        "sasl.oauthbearer.client.id": CLIENT,
        "sasl.oauthbearer.client.secret": CLIENT_SECRET,
        "sasl.oauthbearer.scope": "kafka",
    }


def token_file(kafka: KafkaCluster, tokens: TokenEndpoint, folder: Path) -> dict[str, str]:
    (folder / "token").write_text(token("someone") + "\n")
    return {**sasl(kafka, "OAUTHBEARER"), "sasl.oauthbearer.token.endpoint.url": (folder / "token").as_uri()}


def unsigned_token(kafka: KafkaCluster, tokens: TokenEndpoint, folder: Path) -> dict[str, str]:
    module = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
    return {
        **sasl(kafka, "OAUTHBEARER"),
        "sasl.jaas.config": f'{module} required unsecuredLoginStringClaim_sub="someone";',
    }


def function(kafka: KafkaCluster, tokens: TokenEndpoint, folder: Path) -> dict[str, str]:
    name = f"{given_token.__module__}:{given_token.__name__}"
    return {**sasl(kafka, "OAUTHBEARER"), "oauth_cb": name, "sasl.oauthbearer.config": "hidden, of someone"}


def certificate(kafka: KafkaCluster, tokens: TokenEndpoint, folder: Path) -> dict[str, str]:
    certificates = kafka.certificates
    return {
        "bootstrap.servers": kafka.tls, "security.protocol": "SSL",
        "ssl.ca.location": str(certificates.authority), "ssl.certificate.location": str(certificates.client),
        "ssl.key.location": str(certificates.client_key), "ssl.key.password": certificates.client_password,
    }  # fmt: skip


def certificate_texts(kafka: KafkaCluster, tokens: TokenEndpoint, folder: Path) -> dict[str, str]:
    certificates = kafka.certificates
    return {
        "bootstrap.servers": kafka.tls, "security.protocol": "SSL", "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": certificates.authority.read_text(), "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": certificates.client.read_text(),
        "ssl.keystore.key": certificates.client_key.read_text(), "ssl.key.password": certificates.client_password,
    }  # fmt: skip


WAYS = [
    scram,
    certificate,
    *(
        pytest.param(way, marks=pytest.mark.long)
        for way in (scram_256_by_jaas, plain, token_endpoint, token_file, function, unsigned_token, certificate_texts)
    ),
]
Properties = Callable[[KafkaCluster, TokenEndpoint, Path], dict[str, str]]


def secured_sink(kafka: KafkaCluster, topic: str, properties: dict[str, str]) -> Any:
    builder = texts(kafka, topic).set_property("delivery.timeout.ms", "20000")
    for key, value in properties.items():
        builder.set_property(key, value)
    return builder.build()


async def values(properties: dict[str, str], topic: str, count: int) -> list[bytes | None]:
    """What a reader of the source sees."""
    partition = KafkaTopicPartition(topic, 0)
    consumer = AioConsumer(consumer_arguments({**properties, "isolation.level": "read_committed", "group.id": topic}))
    await consumer.start()
    values_read: list[bytes | None] = []
    try:
        consumer.assign({partition: 0})
        while len(values_read) < count:
            for _, fetched in await consumer.fetch([partition], 1, asyncio.Event()):
                while not fetched.over:
                    values_read += [record.value for record in fetched.take(100).records]
        while True:
            try:
                await consumer.commit({partition: count})
                break
            except ConnectionError:  # the broker makes the topic of offsets when the first group comes
                await asyncio.sleep(0.05)
    finally:
        await consumer.stop()
    return values_read


@pytest.mark.parametrize("way", WAYS)
def test_source_sink_and_committer_get_through(
    kafka: KafkaCluster, tokens: TokenEndpoint, tmp_path: Path, way: Properties
) -> None:
    get_through(kafka, way(kafka, tokens, tmp_path))


def get_through(kafka: KafkaCluster, properties: dict[str, str]) -> None:
    """A sink writes, its follower commits, a source reads and commits offsets, and nobody shows a secret."""
    topic = kafka.create_topic()
    sink = secured_sink(kafka, topic, properties)
    attempt = Attempt(sink)
    try:
        attempt.write("a", "b")
        prepared, states = attempt.barrier()
        attempt.write("behind the checkpoint")
        attempt.writer.flush()
    finally:
        attempt.die()
    after = Attempt(sink, 1, states=states, committables=prepared)
    try:
        assert after.recommitted == [CommitOutcome.COMMITTED], after.reasons
        wait_until(lambda: kafka.end_offsets(topic, "read_committed") == kafka.end_offsets(topic), "nothing is open")
    finally:
        after.die()
    assert asyncio.run(values(properties, topic, 2)) == [b"a", b"b"]
    with KafkaSession(lambda: consumer_arguments(properties)) as session:
        assert session.topics([topic]) == {topic: 1}
    shown = str(sink.describe()) + repr(sink._settings)
    assert "hidden" not in shown
    assert "PRIVATE" not in shown


@pytest.mark.long
def test_tokens_are_used_again(kafka: KafkaCluster, tokens: TokenEndpoint, tmp_path: Path) -> None:
    properties = token_endpoint(kafka, tokens, tmp_path) | {"sasl.oauthbearer.scope": "once"}
    for _ in range(2):
        with KafkaSession(lambda: consumer_arguments(properties)) as session:
            session.topics(None)
    assert tokens.scopes.count("once") == 1


REFUSED: dict[str, tuple[Properties, dict[str, str], str]] = {
    "password": (scram, {"sasl.password": "hidden, wrong"}, "SaslAuthenticationFailed"),
    "secret": (
        token_endpoint,
        {"sasl.oauthbearer.client.secret": "hidden, wrong"},
        "gives no token to client 'reports'",
    ),
    "authority": (scram, {"ssl.ca.location": "/etc/ssl/certs/ca-certificates.crt"}, "CERTIFICATE_VERIFY_FAILED"),
}


@pytest.mark.parametrize(
    "what", [pytest.param(what, marks=() if what == "password" else pytest.mark.long) for what in REFUSED]
)
def test_a_client_that_is_refused_is_told_why(
    kafka: KafkaCluster, tokens: TokenEndpoint, tmp_path: Path, what: str
) -> None:
    way, wrong, message = REFUSED[what]
    properties = {**way(kafka, tokens, tmp_path), **wrong}
    if what == "authority":
        properties.pop("ssl.ca.location")
    with pytest.raises(ProgramError, match=message) as caught, KafkaSession(lambda: consumer_arguments(properties)):
        pass
    assert "hidden" not in str(caught.value)
    with pytest.raises(ProgramError, match=message) as caught:
        Attempt(secured_sink(kafka, kafka.create_topic(), properties))
    assert "hidden" not in str(caught.value)


def test_a_client_without_a_certificate_is_told(kafka: KafkaCluster, tokens: TokenEndpoint, tmp_path: Path) -> None:
    properties = certificate(kafka, tokens, tmp_path)
    for key in ("ssl.certificate.location", "ssl.key.location", "ssl.key.password"):
        del properties[key]
    with (
        pytest.raises(ProgramError, match=r"(?i)bad.certificate|certificate.required"),
        KafkaSession(lambda: consumer_arguments(properties)),
    ):
        pass
