"""A broker that knows its clients by Kerberos: tickets of a cache or by a keytab, and what is told without them."""

from __future__ import annotations

import importlib
from collections.abc import Iterator

import pytest

from firesteel.core.errors import ProgramError
from firesteel_kafka.consumer import KafkaSession
from firesteel_kafka.properties import consumer_arguments
from tests.servers.kafka.attempts import Attempt
from tests.servers.kafka.server import KafkaCluster
from tests.servers.kafka.test_security import get_through, secured_sink
from tests.servers.kerberos.realm import REALM, Realm, ensure_gssapi

pytestmark = [pytest.mark.may_skip(reason="Kafka comes by Maven"), pytest.mark.timeout(300), pytest.mark.long]


@pytest.fixture(scope="module")
def kerberized(kafka_libs: str, realm: Realm) -> Iterator[KafkaCluster]:
    """One broker, called ``brokers/localhost``."""
    keytab = realm.keytab("brokers", "brokers/localhost")
    module = "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true"
    properties = {
        "listener.name.sasl.sasl.enabled.mechanisms": "GSSAPI",
        "listener.name.sasl.sasl.kerberos.service.name": "brokers",
        "listener.name.sasl.gssapi.sasl.jaas.config": (
            f'{module} keyTab="{keytab}" principal="brokers/localhost@{REALM}";'
        ),
    }
    cluster = KafkaCluster(kafka_libs, properties=properties, secured=True, flags=realm.java_flags)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.close()


@pytest.fixture
def properties(kerberized: KafkaCluster, realm: Realm, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Of a client; nobody is logged in, and aiokafka has gssapi, which our environment has not."""
    monkeypatch.syspath_prepend(ensure_gssapi())
    monkeypatch.setattr("aiokafka.conn.gssapi", importlib.import_module("gssapi"))
    monkeypatch.setenv("KRB5_CONFIG", str(realm.krb5_conf))
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{realm.folder}/none.cache")
    monkeypatch.delenv("KRB5_CLIENT_KTNAME", raising=False)
    return {
        "bootstrap.servers": kerberized.sasl, "security.protocol": "SASL_SSL", "sasl.mechanism": "GSSAPI",
        "ssl.ca.location": str(kerberized.certificates.authority),
        "sasl.kerberos.service.name": "brokers", "sasl.kerberos.domain.name": "localhost",
    }  # fmt: skip


def test_a_ticket_cache(
    kerberized: KafkaCluster, realm: Realm, properties: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = realm.ticket_cache(realm.keytab("alice", "alice"), "alice")
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{cache}")
    get_through(kerberized, properties)


def test_a_keytab(
    kerberized: KafkaCluster, realm: Realm, properties: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KRB5_CLIENT_KTNAME", str(realm.keytab("bob", "bob")))
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{realm.folder}/bob.cache")
    get_through(kerberized, properties)


@pytest.mark.parametrize("odd", [{}, {"sasl.kerberos.service.name": "others"}], ids=["no ticket", "no such service"])
def test_a_client_that_gets_no_ticket_is_told(
    kerberized: KafkaCluster,
    realm: Realm,
    properties: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    odd: dict[str, str],
) -> None:
    if odd:
        cache = realm.ticket_cache(realm.keytab("carol", "carol"), "carol")
        monkeypatch.setenv("KRB5CCNAME", f"FILE:{cache}")
    message = r"refuses: SaslAuthenticationFailed: .*Kerberos gives no ticket for (brokers|others)@localhost"
    with pytest.raises(ProgramError, match=message), KafkaSession(lambda: consumer_arguments(properties | odd)):
        pass
    with pytest.raises(ProgramError, match=message):
        Attempt(secured_sink(kerberized, kerberized.create_topic(), properties | odd))


def test_a_centre_that_is_away_is_waited_for(
    kerberized: KafkaCluster, realm: Realm, properties: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KRB5_CLIENT_KTNAME", str(realm.keytab("dave", "dave")))
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{realm.folder}/dave.cache")
    realm.stop()
    try:
        with (
            pytest.raises(ConnectionError, match="Cannot contact any KDC"),
            KafkaSession(lambda: consumer_arguments(properties)),
        ):
            pass
    finally:
        realm.start()
    get_through(kerberized, properties)
