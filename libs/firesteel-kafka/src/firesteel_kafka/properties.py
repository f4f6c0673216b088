"""Properties of Kafka's clients: the names that people have, from Java and from librdkafka, as arguments of aiokafka.

Properties that change no result, and that aiokafka does not know, are left out with a warning that names them. All
others are refused by name: one that is silently without effect is found out in production.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from firesteel.core.errors import ProgramError
from firesteel.core.sensitive import MASK, is_sensitive
from firesteel_kafka.kerberos import prepare_kerberos
from firesteel_kafka.oauth import (
    CALLBACK,
    CLIENT_ID,
    CLIENT_SECRET,
    CONFIG,
    EXTENSIONS,
    OAUTH,
    SCOPE,
    UNSIGNED,
    oauth_settings,
    provider,
)
from firesteel_kafka.properties_without_effect import has_effect
from firesteel_kafka.tls import CHAIN, KEY, SECRET_TEXTS, TLS, check_tls, ssl_context

__all__ = [
    "client_arguments",
    "consumer_arguments",
    "effective_consumer_properties",
    "effective_producer_properties",
    "flag",
    "number",
    "producer_arguments",
    "shown",
]

logger = logging.getLogger(__name__)


def number(key: str, text: str) -> int:
    """The number that a property is.

    Raises:
        ProgramError: it is none.
    """
    try:
        return int(text)
    except ValueError:
        raise ProgramError(f"Kafka: {key} is a whole number, not {text!r}") from None


def flag(key: str, text: str) -> bool:
    """Whether a property is true.

    Raises:
        ProgramError: it is neither true nor false.
    """
    if text.lower() not in ("true", "false"):
        raise ProgramError(f"Kafka: {key} is true or false, not {text!r}")
    return text.lower() == "true"


def _acks(key: str, text: str) -> int:
    if text not in ("all", "-1", "0", "1"):
        raise ProgramError(f"Kafka: {key} is all, 1 or 0, not {text!r}")
    return -1 if text == "all" else int(text)


def _one_of(*known: str) -> Callable[[str, str], str]:
    def choose(key: str, text: str) -> str:
        if text not in known:
            raise ProgramError(f"Kafka: {key} is one of {', '.join(known)}, not {text!r}")
        return text

    return choose


def _compression(key: str, text: str) -> str | None:
    kind = _one_of("none", "gzip", "snappy", "lz4", "zstd")(key, text)
    return None if kind == "none" else kind


def _text(key: str, text: str) -> str:
    return text


_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI")
_Translation = tuple[str, Callable[[str, str], Any]]
_CLIENT: Final[dict[str, _Translation]] = {
    "bootstrap.servers": ("bootstrap_servers", _text),
    "client.id": ("client_id", _text),
    "metadata.max.age.ms": ("metadata_max_age_ms", number),
    "request.timeout.ms": ("request_timeout_ms", number),
    "retry.backoff.ms": ("retry_backoff_ms", number),
    "connections.max.idle.ms": ("connections_max_idle_ms", number),
    "security.protocol": ("security_protocol", _one_of("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")),
    "sasl.mechanism": ("sasl_mechanism", _one_of(*_MECHANISMS)),
    "sasl.username": ("sasl_plain_username", _text),
    "sasl.password": ("sasl_plain_password", _text),
    "sasl.kerberos.service.name": ("sasl_kerberos_service_name", _text),
    "sasl.kerberos.domain.name": ("sasl_kerberos_domain_name", _text),
}
_CONSUMER: Final[dict[str, _Translation]] = {
    "group.id": ("group_id", _text),
    "isolation.level": ("isolation_level", _one_of("read_committed", "read_uncommitted")),
    "fetch.min.bytes": ("fetch_min_bytes", number),
    "fetch.max.bytes": ("fetch_max_bytes", number),
    "fetch.max.wait.ms": ("fetch_max_wait_ms", number),
    "max.partition.fetch.bytes": ("max_partition_fetch_bytes", number),
    "max.poll.records": ("max_poll_records", number),
    "check.crcs": ("check_crcs", flag),
    "client.rack": ("client_rack", _text),
    "exclude.internal.topics": ("exclude_internal_topics", flag),
}
_PRODUCER: Final[dict[str, _Translation]] = {
    "acks": ("acks", _acks),
    "batch.size": ("max_batch_size", number),
    "compression.type": ("compression_type", _compression),
    "enable.idempotence": ("enable_idempotence", flag),
    "max.request.size": ("max_request_size", number),
    "transaction.timeout.ms": ("transaction_timeout_ms", number),
}
_OTHER_NAMES: Final = {
    "metadata.broker.list": "bootstrap.servers",
    "sasl.mechanisms": "sasl.mechanism",
    "topic.metadata.refresh.interval.ms": "metadata.max.age.ms",
    "socket.timeout.ms": "request.timeout.ms",
    "fetch.wait.max.ms": "fetch.max.wait.ms",
    "fetch.message.max.bytes": "max.partition.fetch.bytes",
    "compression.codec": "compression.type",
    "request.required.acks": "acks",
    "message.max.bytes": "max.request.size",
    "queue.buffering.max.ms": "linger.ms",
    "message.timeout.ms": "delivery.timeout.ms",
    "ssl.certificate.pem": CHAIN,
    "ssl.key.pem": KEY,
    "sasl.oauthbearer.client.id": CLIENT_ID,
    "sasl.oauthbearer.client.secret": CLIENT_SECRET,
    "sasl.oauthbearer.client.credentials.scope": SCOPE,
    "oauth_cb": CALLBACK,
}
"""What librdkafka calls them -> what Java's client calls them."""
_LOGIN_HANDLERS: Final = (
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler",
    "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerLoginCallbackHandler",
    "org.apache.kafka.common.security.oauthbearer.internals.unsecured.OAuthBearerUnsecuredLoginCallbackHandler",
)
"""What Java's client has to be told and ours does."""
_REFUSED: Final = {
    "key.serializer": "the sink's record serializer makes the bytes",
    "value.serializer": "the sink's record serializer makes the bytes",
    "key.deserializer": "the source's deserializer reads the bytes",
    "value.deserializer": "the source's deserializer reads the bytes",
    "transactional.id": "the sink makes such ids: set_transactional_id_prefix()",
    "partitioner.class": "set_partitioner() of the record serializer takes a function",
    "partitioner": "set_partitioner() of the record serializer takes a function",
    "partitioner.ignore.keys": "set_partitioner() of the record serializer takes a function",
    "transaction.two.phase.commit.enable": "exactly once is set_delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE)",
    "config.providers": "Java classes are not loaded; give the values themselves",
    "security.providers": "Java classes are not loaded",
    "ssl.truststore.password": "stores are PEM files (ssl.truststore.type=PEM), which have none",
    "ssl.keystore.password": "stores are PEM files (ssl.keystore.type=PEM); the key's password is ssl.key.password",
    "sasl.kerberos.kinit.cmd": "tickets are those of the host (kinit -kt ... beside it, or KRB5_CLIENT_KTNAME)",
    "sasl.kerberos.keytab": "tickets are those of the host (kinit -kt ... beside it, or KRB5_CLIENT_KTNAME)",
    "sasl.kerberos.principal": "tickets are those of the host (kinit -kt ... beside it, or KRB5_CLIENT_KTNAME)",
    "ssl.engine.factory.class": "Java classes are not loaded",
    "ssl.cipher.suites": "the ciphers are OpenSSL's, as the host configures them",
    "ssl.enabled.protocols": "TLS 1.2 and 1.3 are spoken, as the host configures OpenSSL",
    "ssl.protocol": "TLS 1.2 and 1.3 are spoken, as the host configures OpenSSL",
    "ssl.crl.location": "lists of revoked certificates are not read",
    "sasl.client.callback.handler.class": "Java classes are not loaded",
    "interceptor.classes": "Java classes are not loaded",
}
_JAAS: Final = re.compile(r"(\w+)\s*=\s*(?:\"((?:[^\"\\]|\\.)*)\"|'((?:[^'\\]|\\.)*)'|([^\s;]+))")


def canonical(properties: Mapping[str, str]) -> dict[str, str]:
    """The same with the names of Java's client.

    Raises:
        ProgramError: one was given by both names.
    """
    found: dict[str, str] = {}
    for key, value in properties.items():
        name = _OTHER_NAMES.get(key, key)
        if name in found and found[name] != value:
            raise ProgramError(f"Kafka: {key} and {name} are the same, and say different things")
        found[name] = value
    return found


def shown(properties: Mapping[str, str]) -> dict[str, str]:
    """The same for plans and logs: what is secret is masked."""
    return {
        key: MASK if is_sensitive(key) or _OTHER_NAMES.get(key, key) in SECRET_TEXTS | {CONFIG} else value
        for key, value in properties.items()
    }


def client_arguments(properties: Mapping[str, str]) -> dict[str, Any]:
    """Arguments of any client, for those properties that are not of consumers or producers only; reads certificates.

    Raises:
        ProgramError: a property is not valid, or a file can't be read.
    """
    known = canonical(properties)
    return _Arguments({key: known[key] for key in known if key in _CLIENT or _is_security(key)}, {}).made()


def consumer_arguments(properties: Mapping[str, str]) -> dict[str, Any]:
    """Arguments of ``AIOKafkaConsumer``; reads certificates, so it is called where the client is.

    Raises:
        ProgramError: a property is not known or not valid, or a file can't be read.
    """
    return _Arguments(properties, _CONSUMER).made()


def producer_arguments(properties: Mapping[str, str]) -> dict[str, Any]:
    """Arguments of ``AIOKafkaProducer``; reads certificates, so it is called where the client is.

    Raises:
        ProgramError: a property is not known or not valid, or a file can't be read.
    """
    return _Arguments(properties, _PRODUCER).made()


def effective_consumer_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Properties of a source that have an effect; the others are named in one warning.

    Refuses what ``consumer_arguments`` would, but for files: these may be on the cluster's hosts only.

    Raises:
        ProgramError: a property is not known or not valid.
    """
    effective = _effective(properties, _PRODUCER.keys() - _CONSUMER.keys(), "source")
    _Arguments(effective, _CONSUMER).plain()
    return effective


def effective_producer_properties(properties: Mapping[str, str], unused: Collection[str] = ()) -> dict[str, str]:
    """Properties of a sink that have an effect; the others are named in one warning.

    Refuses what ``producer_arguments`` would, but for files: these may be on the cluster's hosts only.

    Args:
        properties: by any name.
        unused: properties that a sink of this guarantee has no use for.

    Raises:
        ProgramError: a property is not known or not valid.
    """
    effective = _effective(properties, {*(_CONSUMER.keys() - _PRODUCER.keys()), *unused}, "sink")
    _Arguments(effective, _PRODUCER).plain()
    return effective


def _effective(properties: Mapping[str, str], unused: Collection[str], kind: str) -> dict[str, str]:
    named = canonical(properties)
    effective = {
        key: value
        for key, value in named.items()
        if key not in unused and has_effect(key, value, consumer=kind == "source")
    }
    without = sorted(named.keys() - effective.keys())
    if without:
        logger.warning("Kafka %s: properties without effect are left out: %s", kind, ", ".join(without))
    return effective


def _is_security(key: str) -> bool:
    return key in TLS or key in OAUTH or key == "sasl.jaas.config"


@dataclass
class _Arguments:
    """Translates.

    Attributes:
        properties: as they were given.
        special: those that are known besides every client's.
    """

    properties: Mapping[str, str]
    special: Mapping[str, _Translation]

    def made(self) -> dict[str, Any]:
        """The arguments, with an SSL context."""
        found = self.plain()
        if found.get("security_protocol", "").endswith("SSL"):
            found["ssl_context"] = ssl_context(self._named())
        if found.get("sasl_mechanism") == "OAUTHBEARER":
            found["sasl_oauth_token_provider"] = provider(oauth_settings(self._named()))
        if found.get("sasl_mechanism") == "GSSAPI":
            prepare_kerberos()
        return found

    def _named(self) -> dict[str, str]:
        """The properties by Java's names, with what the JAAS configuration says."""
        properties = canonical(self.properties)
        if properties.get(CALLBACK) in _LOGIN_HANDLERS:
            del properties[CALLBACK]
        if "sasl.jaas.config" in properties:
            for key, value in _of_jaas(properties.pop("sasl.jaas.config")).items():
                properties.setdefault(key, value)
        return properties

    def plain(self) -> dict[str, Any]:
        """Those that are plain values."""
        properties = self._named()
        found: dict[str, Any] = {}
        for key, text in properties.items():
            if not isinstance(text, str):
                raise TypeError(f"Kafka: properties are texts, and {key} is {type(text).__name__}")
            if _is_security(key):
                continue
            translation = _CLIENT.get(key) or self.special.get(key)
            if translation is None:
                raise ProgramError(f"Kafka: the property {key!r} is not supported{self._hint(key)}")
            name, translate = translation
            found[name] = translate(key, text)
        protocol = found.get("security_protocol", "PLAINTEXT")
        given = sorted(key for key in properties if key in TLS)
        if "SSL" in protocol:
            check_tls(properties)
        elif given:
            raise ProgramError(f"Kafka: {given[0]} needs security.protocol SSL or SASL_SSL, not {protocol}")
        given = sorted(key for key in properties if key.startswith("sasl.") or key in OAUTH)
        if protocol.startswith("SASL"):
            self._check_sasl(found, properties)
        elif given:
            raise ProgramError(f"Kafka: {given[0]} needs security.protocol SASL_SSL or SASL_PLAINTEXT, not {protocol}")
        return found

    def _check_sasl(self, found: Mapping[str, Any], properties: Mapping[str, str]) -> None:
        mechanism = found.get("sasl_mechanism")
        if mechanism is None:
            raise ProgramError("Kafka: security.protocol says SASL; say sasl.mechanism, too")
        named = "sasl_plain_username" in found and "sasl_plain_password" in found
        if mechanism == "OAUTHBEARER":
            oauth_settings(properties)
            return
        given = sorted(key for key in properties if key in OAUTH)
        if given:
            raise ProgramError(f"Kafka: {given[0]} is for sasl.mechanism OAUTHBEARER, not {mechanism}")
        if mechanism != "GSSAPI" and not named:
            raise ProgramError(
                f"Kafka: {mechanism} needs sasl.jaas.config with username and password, or sasl.username and "
                "sasl.password"
            )

    def _hint(self, key: str) -> str:
        if key in _REFUSED:
            return f": {_REFUSED[key]}"
        return "; leave it out (docs/kafka.md lists those that are)"


def _of_jaas(config: str) -> dict[str, str]:
    module, _, rest = config.strip().partition(" ")
    found = {
        key: re.sub(r"\\(.)", r"\1", double or single or bare) for key, double, single, bare in _JAAS.findall(rest)
    }
    if module.endswith((".PlainLoginModule", ".ScramLoginModule")) and "username" in found and "password" in found:
        return {"sasl.username": found["username"], "sasl.password": found["password"]}
    if module.endswith(".OAuthBearerLoginModule"):
        return _of_oauth_jaas(found)
    if module.endswith(".Krb5LoginModule"):
        service = found.get("serviceName")
        if "keyTab" in found:
            raise ProgramError(f"Kafka: a keyTab in sasl.jaas.config: {_REFUSED['sasl.kerberos.keytab']}")
        return {} if service is None else {"sasl.kerberos.service.name": service}
    raise ProgramError(
        "Kafka: of sasl.jaas.config PlainLoginModule and ScramLoginModule with username and password, "
        "OAuthBearerLoginModule and Krb5LoginModule are read"
    )


def _of_oauth_jaas(found: Mapping[str, str]) -> dict[str, str]:
    names = {"clientId": CLIENT_ID, "clientSecret": CLIENT_SECRET, "scope": SCOPE}
    properties = {names[key]: value for key, value in found.items() if key in names}
    extensions = [
        f"{key.removeprefix('extension_')}={value}" for key, value in found.items() if key.startswith("extension_")
    ]
    if extensions:
        properties[EXTENSIONS] = ",".join(extensions)
    subject = found.get("unsecuredLoginStringClaim_sub")
    if subject is not None:
        properties |= {UNSIGNED: "true", CONFIG: f"principal={subject}"}
    return properties
