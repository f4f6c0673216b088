"""Properties of Kafka's clients under the names that people have."""

from __future__ import annotations

import asyncio
import base64
import http.client
import json
import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.errors import KafkaConnectionError, SaslAuthenticationFailed

from firesteel.core.errors import ProgramError
from firesteel_kafka import properties as properties_of_kafka
from firesteel_kafka.kerberos import translating_errors
from firesteel_kafka.oauth import OAuthSettings, Token, TokenRefusedError, fetch_token
from firesteel_kafka.properties import (
    client_arguments,
    consumer_arguments,
    effective_consumer_properties,
    effective_producer_properties,
    producer_arguments,
    shown,
)


def test_names_of_java_and_librdkafka_mean_the_same() -> None:
    java = {"bootstrap.servers": "a:1,b:2", "acks": "all", "compression.type": "none", "request.timeout.ms": "500"}
    librdkafka = {
        "metadata.broker.list": "a:1,b:2", "request.required.acks": "all", "compression.codec": "none",
        "socket.timeout.ms": "500",
    }  # fmt: skip
    expected = {"bootstrap_servers": "a:1,b:2", "acks": -1, "compression_type": None, "request_timeout_ms": 500}
    assert producer_arguments(java) == producer_arguments(librdkafka) == expected
    assert consumer_arguments({"fetch.wait.max.ms": "7", "check.crcs": "false"}) == {
        "fetch_max_wait_ms": 7, "check_crcs": False,
    }  # fmt: skip
    with pytest.raises(ProgramError, match=r"compression\.type are the same"):
        producer_arguments({"compression.type": "lz4", "compression.codec": "zstd"})


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"isolaton.level": "read_committed"}, r"'isolaton\.level' is not supported; leave it out"),
        ({"partitioner": "consistent_random"}, r"set_partitioner\(\)"),
        ({"partitioner.ignore.keys": "true"}, r"set_partitioner\(\)"),
        ({"transaction.two.phase.commit.enable": "true"}, "set_delivery_guarantee"),
        ({"value.serializer": "io.confluent.kafka.serializers.KafkaAvroSerializer"}, "record serializer makes"),
        ({"interceptor.classes": "com.example.Masking"}, "Java classes are not loaded"),
        ({"transactional.id": "x"}, "set_transactional_id_prefix"),
        ({"acks": "2"}, "all, 1 or 0"),
        ({"compression.type": "brotli"}, "none, gzip, snappy, lz4, zstd"),
        ({"batch.size": "16k"}, "whole number"),
        ({"enable.idempotence": "yes"}, "true or false"),
        ({"ssl.ca.location": "ca.pem"}, r"needs security\.protocol SSL"),
        ({"sasl.username": "u", "sasl.password": "p"}, r"needs security\.protocol SASL"),
        ({"security.protocol": "SASL_SSL"}, r"say sasl\.mechanism"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}, "username and password"),
        ({"security.protocol": "SSL", "ssl.truststore.location": "a.jks"}, "type JKS is for Java; convert it to PEM"),
        ({"security.protocol": "SSL", "ssl.keystore.password": "x"}, "PEM files"),
    ],
)
def test_what_has_no_effect_is_refused_by_name(properties: dict[str, str], message: str) -> None:
    with pytest.raises(ProgramError, match=message):
        effective_producer_properties(properties)


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"isolation.level": "serializable"}, "read_committed, read_uncommitted"),
        ({"value.deserializer": "com.example.MyDeserializer"}, "deserializer reads the bytes"),
        ({"interceptor.classes": "com.example.Masking"}, "Java classes are not loaded"),
        ({"fetch.min.byte": "1"}, "is not supported"),
    ],
)
def test_what_could_change_what_is_read_is_refused(properties: dict[str, str], message: str) -> None:
    with pytest.raises(ProgramError, match=message):
        effective_consumer_properties(properties)


SERIALIZATION = "org.apache.kafka.common.serialization"
OF_A_CONSUMER = {
    "group.id": "g", "auto.offset.reset": "earliest", "isolation.level": "read_committed", "fetch.min.bytes": "1",
    "max.poll.records": "9", "enable.auto.commit": "true", "session.timeout.ms": "10", "client.rack": "a",
    "key.deserializer": "com.example.MyDeserializer", "partition.discovery.interval.ms": "5",
}  # fmt: skip
OF_A_PRODUCER = {
    "acks": "1", "batch.size": "7", "retries": "3", "max.in.flight.requests.per.connection": "1", "linger.ms": "5",
    "transactional.id": "x", "enable.idempotence": "false", "transaction.timeout.ms": "5", "buffer.memory": "9",
    "value.serializer": "com.example.MySerializer",
}  # fmt: skip
OF_BOTH = {
    "client.dns.lookup": "use_all_dns_ips", "reconnect.backoff.ms": "50", "metrics.num.samples": "2",
    "receive.buffer.bytes": "-1", "statistics.interval.ms": "1000", "sasl.login.refresh.window.factor": "0.8",
}  # fmt: skip


def test_what_changes_no_result_of_a_sink_is_named_in_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    known = {"bootstrap.servers": "a:1", "acks": "all", "compression.type": "lz4", "request.timeout.ms": "500"}
    unused = {
        **OF_A_CONSUMER, **OF_BOTH, "retries": "3", "max.in.flight.requests.per.connection": "1",
        "value.serializer": f"{SERIALIZATION}.ByteArraySerializer", "key.serializer": "StringSerializer",
    }  # fmt: skip
    assert effective_producer_properties({**known, **unused}) == known
    (record,) = caplog.records
    expected = f"Kafka sink: properties without effect are left out: {', '.join(sorted(unused))}"
    assert (record.levelname, record.getMessage()) == ("WARNING", expected)


def test_what_changes_no_result_of_a_source_is_named_in_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    known = {"bootstrap.servers": "a:1", "group.id": "g", "isolation.level": "read_uncommitted", "client.rack": "a"}
    unused = {
        **OF_A_PRODUCER, **OF_BOTH, "session.timeout.ms": "10", "register.consumer.metrics": "true",
        "value.deserializer": f"{SERIALIZATION}.StringDeserializer",
    }  # fmt: skip
    assert effective_consumer_properties({**known, **unused}) == known
    (record,) = caplog.records
    expected = f"Kafka source: properties without effect are left out: {', '.join(sorted(unused))}"
    assert (record.levelname, record.getMessage()) == ("WARNING", expected)
    caplog.clear()
    effective_consumer_properties(known)
    assert not caplog.records
    assert consumer_arguments(known)["client_rack"] == "a"


def test_a_jaas_configuration_is_read() -> None:
    properties = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required\n"
        ' username="alice" password="a \\"quoted\\"; one";',
    }
    arguments = client_arguments({**properties, "acks": "all"})
    assert (arguments["sasl_plain_username"], arguments["sasl_plain_password"]) == ("alice", 'a "quoted"; one')
    assert "acks" not in arguments
    assert "alice" not in str(shown(properties))
    with pytest.raises(ProgramError, match=r"of sasl\.jaas\.config PlainLoginModule"):
        effective_consumer_properties({**properties, "sasl.jaas.config": "com.example.MyLoginModule required x=y;"})


def test_kerberos_takes_the_tickets_of_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    module = "com.sun.security.auth.module.Krb5LoginModule required"
    properties = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "GSSAPI"}
    jaas = {"sasl.jaas.config": f'{module} useTicketCache=true serviceName="brokers";'}
    effective_producer_properties({**properties, **jaas})
    monkeypatch.setattr(f"{properties_of_kafka.__name__}.prepare_kerberos", lambda: None)
    assert client_arguments({**properties, **jaas})["sasl_kerberos_service_name"] == "brokers"
    for odd in (
        {"sasl.jaas.config": f'{module} useKeyTab=true keyTab="/etc/k.keytab";'},
        {"sasl.kerberos.keytab": "/etc/k.keytab"},
    ):
        with pytest.raises(ProgramError, match="tickets are those of the host"):
            effective_consumer_properties({**properties, **odd})


def test_kerberos_without_its_package_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gssapi.exceptions", None)
    with pytest.raises(ProgramError, match=r"pip install 'firesteel\[kafka-gssapi\]'"):
        consumer_arguments({"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "GSSAPI"})


class OfTickets(Exception):
    """As GSSAPI's errors are."""

    def __init__(self, code: int) -> None:
        super().__init__("why")
        self.min_code = code


@pytest.mark.parametrize(
    ("code", "error", "text"),
    [
        (0x96C73A9C, KafkaConnectionError, "Kerberos: why"),
        (0x96C73A9C - (1 << 32), KafkaConnectionError, "Kerberos: why"),
        (7, SaslAuthenticationFailed, "no ticket for kafka@broker: why; kinit"),
    ],
)
def test_trouble_with_tickets_is_told_as_clients_expect_it(code: int, error: type[Exception], text: str) -> None:
    def step(authenticator: Any, payload: bytes) -> bytes:
        if payload == b"bad":
            raise OfTickets(code)
        return payload

    wrapped, authenticator = translating_errors(step, OfTickets), SimpleNamespace(_principal="kafka@broker")
    assert wrapped(authenticator, b"good") == b"good"
    with pytest.raises(error, match=text):
        wrapped(authenticator, b"bad")


OAUTH = {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}
MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
JAVA = {
    **OAUTH,
    "sasl.login.callback.handler.class": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler",
    "sasl.oauthbearer.token.endpoint.url": "https://idp/token",
    "sasl.jaas.config": f'{MODULE} clientId="me" clientSecret="hidden" scope="s" extension_pool="p";',
}
LIBRDKAFKA = {
    **OAUTH, "sasl.oauthbearer.method": "oidc", "sasl.oauthbearer.token.endpoint.url": "https://idp/token",
    "sasl.oauthbearer.client.id": "me", "sasl.oauthbearer.client.secret": "hidden", "sasl.oauthbearer.scope": "s",
    "sasl.oauthbearer.extensions": "pool=p",
}  # fmt: skip


def test_where_tokens_come_from_is_said_in_two_ways() -> None:
    providers = [client_arguments(properties)["sasl_oauth_token_provider"] for properties in (JAVA, LIBRDKAFKA)]
    assert providers[0] is providers[1]
    assert providers[0].extensions() == {"pool": "p"}
    assert "hidden" not in str([shown(JAVA), shown(LIBRDKAFKA)])


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({}, "OAUTHBEARER needs sasl.oauthbearer.token.endpoint.url"),
        ({"sasl.oauthbearer.token.endpoint.url": "idp/token"}, "begins with https://"),
        ({"sasl.oauthbearer.token.endpoint.url": "https://u:hidden/x@idp"}, "begins with https://"),
        ({"sasl.oauthbearer.token.endpoint.url": "https://idp/a token"}, "begins with https://"),
        ({"sasl.oauthbearer.token.endpoint.url": "https://u:hidden@idp/"}, "holds no credentials"),
        ({"sasl.oauthbearer.token.endpoint.url": "https://idp/"}, r"need sasl\.oauthbearer\.client\.credentials"),
        ({"enable.sasl.oauthbearer.unsecure.jwt": "true"}, "principal=<name>"),
        ({"sasl.oauthbearer.extensions": "a"}, "is a list of name=value"),
        ({"sasl.oauthbearer.method": "azure"}, "default or oidc"),
        ({"sasl.oauthbearer.jwks.endpoint.url": "https://idp/"}, "is not supported"),
        ({"sasl.login.callback.handler.class": "com.example.Mine"}, "Java classes are not loaded"),
        ({"oauth_cb": "__main__:token"}, "put it into a module"),
        ({"oauth_cb": "a:b", "sasl.oauthbearer.token.endpoint.url": "https://idp/"}, "both say where tokens come from"),
        ({"sasl.mechanism": "PLAIN", "sasl.oauthbearer.scope": "s"}, "is for sasl.mechanism OAUTHBEARER"),
        ({"security.protocol": "SSL"}, "needs security.protocol SASL_SSL"),
    ],
)
def test_tokens_that_can_not_be_had(more: dict[str, str], message: str) -> None:
    with pytest.raises(ProgramError, match=message) as caught:
        effective_producer_properties(OAUTH | more)
    assert "hidden" not in str(caught.value)


def test_tokens_of_files_and_those_that_are_not_signed(tmp_path: Path) -> None:
    file = tmp_path / "a token"
    settings = OAuthSettings(file.as_uri())
    with pytest.raises(TokenRefusedError, match="can't be read"):
        fetch_token(settings, lambda: 0)
    file.write_text("\n")
    with pytest.raises(TokenRefusedError, match="there is no token"):
        fetch_token(settings, lambda: 0)
    file.write_text("abc\n")
    assert fetch_token(settings, lambda: 0) == Token("abc", 0.0)
    token = fetch_token(OAuthSettings("", subject="me", scope="a,b"), lambda: 5000)
    claims = token.text.split(".")[1]
    assert json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4))) == {
        "sub": "me", "iat": 5, "exp": 3605, "scope": ["a", "b"],
    }  # fmt: skip
    assert 0 < token.seconds < 3600


def test_an_answer_of_the_endpoint_that_breaks_off_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def read() -> bytes:
        raise http.client.IncompleteRead(b"{")

    answer = SimpleNamespace(read=read)
    opener = SimpleNamespace(open=lambda request, timeout: nullcontext(answer))
    monkeypatch.setattr("firesteel_kafka.oauth.opener_for", lambda url, context: opener)
    settings = OAuthSettings("http://idp/token", "me", "hidden")
    with pytest.raises(ConnectionError, match="does not answer: IncompleteRead"):
        fetch_token(settings, lambda: 0)
    answer.read = lambda: b'{"access_token": "abc", "expires_in": 100}'
    assert fetch_token(settings, lambda: 0) == Token("abc", 80.0)


def test_certificates_of_the_endpoint_that_can_not_be_read_are_no_silence(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("")
    for name in ("missing", "empty"):
        settings = OAuthSettings("https://idp.invalid/token", "me", "hidden", ca_file=str(tmp_path / name))
        with pytest.raises(TokenRefusedError, match=rf"https\.ca\.location: .*{name} can't be read"):
            fetch_token(settings, lambda: 0)


def given_token(config: str) -> Any:
    """As people write it for confluent-kafka."""
    match config:
        case "away":
            raise TimeoutError("no answer")
        case "raises":
            raise KeyError("user")
        case "old":
            return "hidden", 900.0
        case "other":
            return None
        case "bytes":
            return b"hidden", 2000.0
    return f"hidden for {config}", 1100.0, "me", {"pool": "p"}


HERE = f"{__name__}:{given_token.__name__}"


def test_a_function_of_the_user_gives_tokens() -> None:
    properties = {
        **OAUTH, "oauth_cb": HERE, "sasl.oauthbearer.config": "user=me hidden", "sasl.oauthbearer.extensions": "a=b",
    }  # fmt: skip
    effective_consumer_properties(properties)
    assert "hidden" not in str(shown(properties))
    settings = OAuthSettings("", callback=HERE, config="user=me hidden", extensions=(("a", "b"),))
    token = fetch_token(settings, lambda: 1_000_000)
    assert token == Token("hidden for user=me hidden", 80.0, (("pool", "p"),)), "four fifths of its life"
    assert "hidden" not in f"{token}{settings}"
    provider = client_arguments({**properties, "sasl.oauthbearer.config": "later"})["sasl_oauth_token_provider"]
    with pytest.raises(SaslAuthenticationFailed, match="has run out"):
        asyncio.run(provider.token())  # it is long after 1970


@pytest.mark.parametrize(
    ("config", "error", "message"),
    [
        ("away", ConnectionError, "raised TimeoutError: no answer"),
        ("raises", TokenRefusedError, "raised KeyError: 'user'"),
        ("old", TokenRefusedError, "has run out 100 s ago"),
        ("other", TokenRefusedError, "not NoneType"),
        ("bytes", TokenRefusedError, "returns bytes where a token's text is expected"),
    ],
)
def test_functions_that_give_no_token(config: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message) as caught:
        fetch_token(OAuthSettings("", callback=HERE, config=config), lambda: 1_000_000)
    assert "hidden" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no_such_module_at_all:f", "can't be imported here: ModuleNotFoundError"),
        (f"{__name__}:not_there", "has no 'not_there'"),
        (f"{__name__}:HERE", "is str, not a function"),
    ],
)
def test_functions_that_are_not_there_are_told_where_the_client_is(name: str, message: str) -> None:
    properties = {**OAUTH, "sasl.login.callback.handler.class": name}
    effective_consumer_properties(properties)
    with pytest.raises(ProgramError, match=message):
        client_arguments(properties)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"ssl.keystore.key": "hidden"}, r"needs ssl\.keystore\.certificate\.chain"),
        ({"ssl.key.location": "k.pem"}, r"needs ssl\.certificate\.location"),
        ({"ssl.certificate.location": "c.pem", "ssl.certificate.pem": "hidden"}, "both say who the client is"),
        ({"ssl.endpoint.identification.algorithm": "ldaps"}, "is https, or none"),
        ({"enable.ssl.certificate.verification": "no"}, "is true or false"),
        ({"ssl.cipher.suites": "x"}, "ciphers are OpenSSL's"),
    ],
)
def test_tls_that_does_not_fit(more: dict[str, str], message: str) -> None:
    with pytest.raises(ProgramError, match=message) as caught:
        effective_producer_properties({"security.protocol": "SSL"} | more)
    assert "hidden" not in str(caught.value)


def test_certificates_are_read_where_the_client_is(tmp_path: Path) -> None:
    properties = {"security.protocol": "SSL", "ssl.ca.location": str(tmp_path / "missing.pem")}
    effective_producer_properties(properties)
    with pytest.raises(ProgramError, match="can't be read"):
        producer_arguments(properties)
    lax = {"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": ""}
    assert not producer_arguments(lax)["ssl_context"].check_hostname


def test_secrets_are_not_shown() -> None:
    secret = (
        "sasl.password",
        "ssl.key.password",
        "ssl.key.pem",
        "ssl.keystore.key",
        "ssl.certificate.pem",
        "ssl.ca.pem",
    )
    assert shown({**dict.fromkeys(secret, "p"), "acks": "all"}) == {**dict.fromkeys(secret, "******"), "acks": "all"}
