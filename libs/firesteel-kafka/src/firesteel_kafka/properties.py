"""Translates properties of Kafka's clients, by the names of Java's client or librdkafka's, to arguments of aiokafka.

Properties that aiokafka does not know are left out if they change no result, with a warning that names them. All others
are refused by name: a property that silently has no effect would be discovered in production.
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
    "SERVERS",
    "client_arguments",
    "client_properties",
    "consumer_arguments",
    "effective_consumer_properties",
    "effective_producer_properties",
    "flag",
    "number",
    "producer_arguments",
    "shown",
]

logger = logging.getLogger(__name__)

SERVERS: Final = "bootstrap.servers"


def number(key: str, text: str) -> int:
    """Parse a property that is a whole number.

    Raises:
        ProgramError: the text is no whole number.
    """
    try:
        return int(text)
    except ValueError:
        raise ProgramError(f"Kafka: {key} is a whole number, not {text!r}") from None


def flag(key: str, text: str) -> bool:
    """Parse a property that is true or false.

    Raises:
        ProgramError: the text is neither true nor false.
    """
    if text.lower() not in ("true", "false"):
        raise ProgramError(f"Kafka: {key} is true or false, not {text!r}")
    return text.lower() == "true"


def _acks(key: str, text: str) -> int:
    if text not in ("all", "-1", "0", "1"):
        raise ProgramError(f"Kafka: {key} is all, 1 or 0, not {text!r}")
    return -1 if text == "all" else int(text)


def _one_of(*choices: str) -> Callable[[str, str], str]:
    def choose(key: str, text: str) -> str:
        if text not in choices:
            raise ProgramError(f"Kafka: {key} is one of {', '.join(choices)}, not {text!r}")
        return text

    return choose


def _compression(key: str, text: str) -> str | None:
    kind = _one_of("none", "gzip", "snappy", "lz4", "zstd")(key, text)
    return None if kind == "none" else kind


def _text(key: str, text: str) -> str:
    return text


_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI")
_Translation = tuple[str, Callable[[str, str], Any]]
"""Name of aiokafka's argument, and a function of key and text that gives its value."""
_CLIENT: Final[dict[str, _Translation]] = {
    SERVERS: ("bootstrap_servers", _text),
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
    "metadata.broker.list": SERVERS,
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
"""Name of a property in librdkafka -> its name in Java's client."""
_LOGIN_HANDLERS: Final = (
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler",
    "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerLoginCallbackHandler",
    "org.apache.kafka.common.security.oauthbearer.internals.unsecured.OAuthBearerUnsecuredLoginCallbackHandler",
)
"""Classes of Java that fetch tokens as ``firesteel_kafka.oauth`` does anyway, so naming one of them changes nothing."""
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
"""Property that is never taken -> what the user can do instead."""
_JAAS: Final = re.compile(r"(\w+)\s*=\s*(?:\"((?:[^\"\\]|\\.)*)\"|'((?:[^'\\]|\\.)*)'|([^\s;]+))")


def canonical(properties: Mapping[str, str]) -> dict[str, str]:
    """Name each property as Java's client does.

    Raises:
        ProgramError: a property is there by both of its names, with different values.
    """
    canonical_properties: dict[str, str] = {}
    for key, value in properties.items():
        name = _OTHER_NAMES.get(key, key)
        if name in canonical_properties and canonical_properties[name] != value:
            raise ProgramError(f"Kafka: {key} and {name} are the same, and say different things")
        canonical_properties[name] = value
    return canonical_properties


def client_properties(properties: Mapping[str, str], kind: str) -> dict[str, str]:
    """Properties of a builder by the names of Java's client, which say where brokers are.

    Args:
        properties: by any name.
        kind: ``source`` or ``sink``, for messages.

    Raises:
        ProgramError: brokers are missing, or a property is there by both of its names, with different values.
    """
    properties = canonical(properties)
    if not properties.get(SERVERS):
        raise ProgramError(f"Kafka {kind}: give the brokers with set_bootstrap_servers()")
    return properties


def shown(properties: Mapping[str, str]) -> dict[str, str]:
    """Mask secrets, for plans and logs."""
    return {
        key: MASK if is_sensitive(key) or _OTHER_NAMES.get(key, key) in SECRET_TEXTS | {CONFIG} else value
        for key, value in properties.items()
    }


def client_arguments(properties: Mapping[str, str]) -> dict[str, Any]:
    """Arguments of any client; properties of consumers or producers only are left out. Reads certificates.

    Raises:
        ProgramError: a property is not valid, or a file can't be read.
    """
    common = {key: value for key, value in canonical(properties).items() if key in _CLIENT or _is_security(key)}
    return _Arguments(common, {}).with_security()


def consumer_arguments(properties: Mapping[str, str]) -> dict[str, Any]:
    """Arguments of ``AIOKafkaConsumer``. Reads certificates, so it is called on the host of the client.

    Raises:
        ProgramError: a property is not known or not valid, or a file can't be read.
    """
    return _Arguments(properties, _CONSUMER).with_security()


def producer_arguments(properties: Mapping[str, str]) -> dict[str, Any]:
    """Arguments of ``AIOKafkaProducer``. Reads certificates, so it is called on the host of the client.

    Raises:
        ProgramError: a property is not known or not valid, or a file can't be read.
    """
    return _Arguments(properties, _PRODUCER).with_security()


def effective_consumer_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Properties of a source that have an effect; the others are named in one warning.

    Refuses what ``consumer_arguments`` would, except files that are missing: they may be on the cluster's hosts only.

    Raises:
        ProgramError: a property is not known or not valid.
    """
    effective = _effective(properties, _PRODUCER.keys() - _CONSUMER.keys(), "source")
    _Arguments(effective, _CONSUMER).plain()
    return effective


def effective_producer_properties(properties: Mapping[str, str], unused: Collection[str] = ()) -> dict[str, str]:
    """Properties of a sink that have an effect; the others are named in one warning.

    Refuses what ``producer_arguments`` would, except files that are missing: they may be on the cluster's hosts only.

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
    properties = canonical(properties)
    effective = {
        key: value
        for key, value in properties.items()
        if key not in unused and has_effect(key, value, consumer=kind == "source")
    }
    ineffective = sorted(properties.keys() - effective.keys())
    if ineffective:
        logger.warning("Kafka %s: properties without effect are left out: %s", kind, ", ".join(ineffective))
    return effective


def _is_security(key: str) -> bool:
    return key in TLS or key in OAUTH or key == "sasl.jaas.config"


@dataclass
class _Arguments:
    """Translates properties to arguments of one kind of client.

    Attributes:
        properties: by any name.
        special: translations that this kind of client has besides those of every client.
    """

    properties: Mapping[str, str]
    special: Mapping[str, _Translation]

    def with_security(self) -> dict[str, Any]:
        """All arguments; certificates are read, and tokens and tickets are prepared."""
        arguments = self.plain()
        if arguments.get("security_protocol", "").endswith("SSL"):
            arguments["ssl_context"] = ssl_context(self._named())
        if arguments.get("sasl_mechanism") == "OAUTHBEARER":
            arguments["sasl_oauth_token_provider"] = provider(oauth_settings(self._named()))
        if arguments.get("sasl_mechanism") == "GSSAPI":
            prepare_kerberos()
        return arguments

    def _named(self) -> dict[str, str]:
        """Properties by the names of Java's client, with what the JAAS configuration says."""
        properties = canonical(self.properties)
        if properties.get(CALLBACK) in _LOGIN_HANDLERS:
            del properties[CALLBACK]
        if "sasl.jaas.config" in properties:
            for key, value in _of_jaas(properties.pop("sasl.jaas.config")).items():
                properties.setdefault(key, value)
        return properties

    def plain(self) -> dict[str, Any]:
        """Arguments that are plain values; no file is read."""
        properties = self._named()
        arguments: dict[str, Any] = {}
        for key, text in properties.items():
            if not isinstance(text, str):
                raise TypeError(f"Kafka: properties are texts, and {key} is {type(text).__name__}")
            if _is_security(key):
                continue
            translation = _CLIENT.get(key) or self.special.get(key)
            if translation is None:
                raise ProgramError(f"Kafka: the property {key!r} is not supported{self._hint(key)}")
            name, translate = translation
            arguments[name] = translate(key, text)
        protocol = arguments.get("security_protocol", "PLAINTEXT")
        misplaced = sorted(key for key in properties if key in TLS)
        if "SSL" in protocol:
            check_tls(properties)
        elif misplaced:
            raise ProgramError(f"Kafka: {misplaced[0]} needs security.protocol SSL or SASL_SSL, not {protocol}")
        misplaced = sorted(key for key in properties if key.startswith("sasl.") or key in OAUTH)
        if protocol.startswith("SASL"):
            self._check_sasl(arguments, properties)
        elif misplaced:
            raise ProgramError(
                f"Kafka: {misplaced[0]} needs security.protocol SASL_SSL or SASL_PLAINTEXT, not {protocol}"
            )
        return arguments

    def _check_sasl(self, arguments: Mapping[str, Any], properties: Mapping[str, str]) -> None:
        mechanism = arguments.get("sasl_mechanism")
        if mechanism is None:
            raise ProgramError("Kafka: security.protocol says SASL; say sasl.mechanism, too")
        has_password = "sasl_plain_username" in arguments and "sasl_plain_password" in arguments
        if mechanism == "OAUTHBEARER":
            oauth_settings(properties)
            return
        misplaced = sorted(key for key in properties if key in OAUTH)
        if misplaced:
            raise ProgramError(f"Kafka: {misplaced[0]} is for sasl.mechanism OAUTHBEARER, not {mechanism}")
        if mechanism != "GSSAPI" and not has_password:
            raise ProgramError(
                f"Kafka: {mechanism} needs sasl.jaas.config with username and password, or sasl.username and "
                "sasl.password"
            )

    def _hint(self, key: str) -> str:
        if key in _REFUSED:
            return f": {_REFUSED[key]}"
        return "; leave it out (docs/kafka.md lists those that are)"


def _of_jaas(config: str) -> dict[str, str]:
    """Properties that stand for a JAAS configuration: the class of a login module, and its options."""
    module, _, options_text = config.strip().partition(" ")
    options = {
        key: re.sub(r"\\(.)", r"\1", double or single or bare)
        for key, double, single, bare in _JAAS.findall(options_text)
    }
    if module.endswith((".PlainLoginModule", ".ScramLoginModule")) and "username" in options and "password" in options:
        return {"sasl.username": options["username"], "sasl.password": options["password"]}
    if module.endswith(".OAuthBearerLoginModule"):
        return _of_oauth_jaas(options)
    if module.endswith(".Krb5LoginModule"):
        service = options.get("serviceName")
        if "keyTab" in options:
            raise ProgramError(f"Kafka: a keyTab in sasl.jaas.config: {_REFUSED['sasl.kerberos.keytab']}")
        return {} if service is None else {"sasl.kerberos.service.name": service}
    raise ProgramError(
        "Kafka: of sasl.jaas.config PlainLoginModule and ScramLoginModule with username and password, "
        "OAuthBearerLoginModule and Krb5LoginModule are read"
    )


def _of_oauth_jaas(options: Mapping[str, str]) -> dict[str, str]:
    names = {"clientId": CLIENT_ID, "clientSecret": CLIENT_SECRET, "scope": SCOPE}
    properties = {names[key]: value for key, value in options.items() if key in names}
    extensions = [
        f"{key.removeprefix('extension_')}={value}" for key, value in options.items() if key.startswith("extension_")
    ]
    if extensions:
        properties[EXTENSIONS] = ",".join(extensions)
    subject = options.get("unsecuredLoginStringClaim_sub")
    if subject is not None:
        properties |= {UNSIGNED: "true", CONFIG: f"principal={subject}"}
    return properties
