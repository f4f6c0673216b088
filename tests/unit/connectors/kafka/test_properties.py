"""Properties of Kafka's clients under the names that people have."""

from __future__ import annotations

from pathlib import Path

import pytest

from firesteel.connectors.kafka.properties import (
    check_consumer_properties,
    check_producer_properties,
    client_arguments,
    consumer_arguments,
    producer_arguments,
    shown,
)
from firesteel.core.errors import ProgramError


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
    ("properties", "told"),
    [
        ({"max.in.flight.requests.per.connection": "1"}, r"'max\.in\.flight.*' is not supported; leave it out"),
        ({"transactional.id": "x"}, "set_transactional_id_prefix"),
        ({"fetch.min.bytes": "1"}, "one of consumers"),
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
def test_what_has_no_effect_is_refused_by_name(properties: dict[str, str], told: str) -> None:
    with pytest.raises(ProgramError, match=told):
        check_producer_properties(properties)


def test_a_jaas_configuration_is_read() -> None:
    properties = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required\n"
        ' username="alice" password="a \\"quoted\\"; one";',
    }
    found = client_arguments({**properties, "acks": "all"})
    assert (found["sasl_plain_username"], found["sasl_plain_password"]) == ("alice", 'a "quoted"; one')
    assert "acks" not in found
    assert "alice" not in str(shown(properties))
    with pytest.raises(ProgramError, match="Kerberos"):
        check_consumer_properties({**properties, "sasl.jaas.config": "com.sun.security.auth.module.Krb5LoginModule x;"})


def test_certificates_are_read_where_the_client_is(tmp_path: Path) -> None:
    properties = {"security.protocol": "SSL", "ssl.ca.location": str(tmp_path / "missing.pem")}
    check_producer_properties(properties)
    with pytest.raises(ProgramError, match="can't be read"):
        producer_arguments(properties)
    lax = {"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": ""}
    assert not producer_arguments(lax)["ssl_context"].check_hostname


def test_secrets_are_not_shown() -> None:
    assert shown({"sasl.password": "p", "ssl.key.password": "p", "acks": "all"}) == {
        "sasl.password": "******", "ssl.key.password": "******", "acks": "all",
    }  # fmt: skip
