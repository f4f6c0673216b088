"""Environment variables of a slot: those that say how other slots reach it, and those that user code must not see."""

from __future__ import annotations

import json
import os
from collections.abc import MutableMapping
from typing import Final

from firesteel.config.addresses import is_loopback
from firesteel.core.errors import ConfigurationError

NETWORK_VARIABLE: Final = "FIRESTEEL_SLOT_NETWORK"
"""Environment variable of a hosted executor with a JSON object: ``bind_host``, ``host`` and ``transport`` of slots.
Without it slots listen on Unix sockets only."""
_WIRING: Final = ("FIRESTEEL_", "SPARK_", "_SPARK_", "PYSPARK_", "_PYSPARK_", "PYTHON_WORKER_FACTORY_")
"""Prefixes of the variables by which the parts of the cluster find each other."""


def remove_wiring(environ: MutableMapping[str, str] = os.environ) -> None:
    """Remove variables of the cluster, before user code or a child of it sees the environment."""
    for name in [name for name in environ if name.startswith(_WIRING)]:
        del environ[name]


def listen_addresses(socket_path: str, environ: MutableMapping[str, str] = os.environ) -> list[str]:
    """The addresses on which the exchange of a slot listens, as `firesteel.runtime.exchange.Exchange` takes them.

    Args:
        socket_path: path of the Unix socket.
        environ: environment, which may contain `NETWORK_VARIABLE`.

    Raises:
        ConfigurationError: the variable is malformed.
    """
    text, unix = environ.get(NETWORK_VARIABLE), f"unix:{socket_path}"
    if text is None:
        return [unix]
    try:
        network = json.loads(text)
        bind_host, host, transport = str(network["bind_host"]), str(network["host"]), str(network["transport"])
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigurationError(f"{NETWORK_VARIABLE} = {text!r:.200} is malformed: {error!r}") from error
    tcp = f"tcp:{bind_host}={host}"
    if transport == "TCP":
        return [tcp]
    return [unix] if is_loopback(bind_host) else [unix, tcp]
