"""TLS to brokers: certificates and keys as files or as texts, all PEM."""

from __future__ import annotations

import os
import ssl
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from firesteel.core.errors import ProgramError

__all__ = ["SECRET_TEXTS", "TLS", "check_tls", "ssl_context"]

CHAIN: Final = "ssl.keystore.certificate.chain"
KEY: Final = "ssl.keystore.key"
_VERIFIES: Final = "enable.ssl.certificate.verification"
_NAMES: Final = "ssl.endpoint.identification.algorithm"
TLS: Final = frozenset(
    {
        "ssl.ca.location", "ssl.ca.pem", "ssl.certificate.location", "ssl.key.location", "ssl.key.password",
        "ssl.truststore.type", "ssl.truststore.location", "ssl.truststore.certificates",
        "ssl.keystore.type", "ssl.keystore.location", CHAIN, KEY, _NAMES, _VERIFIES,
    }
)  # fmt: skip
"""Properties by their names in Java's client, or in librdkafka where Java's client has none."""
SECRET_TEXTS: Final = frozenset({KEY, CHAIN, "ssl.ca.pem", "ssl.truststore.certificates"})
"""Properties that are whole PEM texts, which plans and logs do not show."""


def check_tls(properties: Mapping[str, str]) -> None:
    """Check that the properties of TLS fit together; no file is read.

    Raises:
        ProgramError: a property has no valid value, or two of them contradict each other, or one needs another.
    """
    for kind in ("truststore", "keystore"):
        store_type = properties.get(f"ssl.{kind}.type", "JKS")
        if f"ssl.{kind}.location" in properties and store_type != "PEM":
            raise ProgramError(
                f"Kafka: a {kind} of type {store_type} is for Java; convert it to PEM, and say ssl.{kind}.type=PEM"
            )
    if KEY in properties and CHAIN not in properties:
        raise ProgramError(f"Kafka: {KEY} needs {CHAIN}, too")
    if "ssl.key.location" in properties and "ssl.certificate.location" not in properties:
        raise ProgramError("Kafka: ssl.key.location needs ssl.certificate.location, too")
    identities = [key for key in (CHAIN, "ssl.keystore.location", "ssl.certificate.location") if key in properties]
    if len(identities) > 1:
        raise ProgramError(f"Kafka: {' and '.join(identities)} both say who the client is; leave one of them out")
    if properties.get(_VERIFIES, "true").lower() not in ("true", "false"):
        raise ProgramError(f"Kafka: {_VERIFIES} is true or false, not {properties[_VERIFIES]!r}")
    if properties.get(_NAMES, "https").lower() not in ("", "none", "https"):
        raise ProgramError(f"Kafka: {_NAMES} is https, or none, or empty, not {properties[_NAMES]!r}")


def ssl_context(properties: Mapping[str, str]) -> ssl.SSLContext:
    """Make the context of connections to brokers. Reads files, so it is called on the host of the client.

    Raises:
        ProgramError: a certificate or a key can't be read.
    """
    check_tls(properties)
    context = ssl.create_default_context()
    try:
        for key in ("ssl.ca.location", "ssl.truststore.location"):
            if key in properties:
                path = Path(properties[key])
                context.load_verify_locations(**{"capath" if path.is_dir() else "cafile": str(path)})
        for key in ("ssl.ca.pem", "ssl.truststore.certificates"):
            if key in properties:
                context.load_verify_locations(cadata=properties[key])
        _load_client(context, properties)
    except (OSError, ssl.SSLError, ValueError) as error:
        raise ProgramError(f"Kafka: certificates or keys can't be read: {error}") from error
    if properties.get(_NAMES, "https").lower() != "https":
        context.check_hostname = False
    if properties.get(_VERIFIES, "true").lower() == "false":
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _load_client(context: ssl.SSLContext, properties: Mapping[str, str]) -> None:
    # Without a callback OpenSSL would ask at the terminal.
    password = properties.get("ssl.key.password", "")
    if CHAIN in properties:
        # OpenSSL reads files only. mkstemp makes one that only this user can read; it is removed as soon as it is read.
        number, name = tempfile.mkstemp(prefix="kafka-", suffix=".pem")
        try:
            with os.fdopen(number, "w") as file:
                file.write(f"{properties.get(KEY, '')}\n{properties[CHAIN]}\n")
            context.load_cert_chain(name, password=lambda: password)
        finally:
            os.unlink(name)
        return
    chain = properties.get("ssl.certificate.location", properties.get("ssl.keystore.location"))
    if chain is not None:
        context.load_cert_chain(chain, properties.get("ssl.key.location"), lambda: password)
