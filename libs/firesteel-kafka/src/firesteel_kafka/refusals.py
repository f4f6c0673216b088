"""Why brokers refuse a connection, which aiokafka only logs: it says that none can be reached."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from typing import Any, Final

from aiokafka import errors
from aiokafka.conn import collect_hosts, create_conn

from firesteel.core.errors import ProgramError

__all__ = ["REFUSALS", "raise_if_refused"]

REFUSALS: Final = (
    errors.AuthenticationFailedError,
    errors.AuthenticationMethodNotSupported,
    errors.SaslAuthenticationFailed,
    errors.UnsupportedSaslMechanismError,
    errors.TopicAuthorizationFailedError,
    errors.GroupAuthorizationFailedError,
    errors.ClusterAuthorizationFailedError,
    errors.TransactionalIdAuthorizationFailed,
    errors.UnsupportedVersionError,
    errors.UnsupportedCodecError,
)
"""Errors of brokers that do not pass by themselves."""
_CUT_OFF: Final = (ssl.SSLEOFError, ssl.SSLZeroReturnError)
"""A broker that dies while greetings are exchanged looks like this."""
_GOODBYE_SECONDS: Final = 0.1
"""What was refused is being closed, which TLS takes a moment for; the caller may end its loop."""
_GREETING_SECONDS: Final = 10.0
_OBJECTION_SECONDS: Final = 0.5
_NAMES: Final = ("client_id", "request_timeout_ms", "ssl_context", "security_protocol")


async def raise_if_refused(arguments: Mapping[str, Any]) -> str:
    """Connect once more, and see whether it is for another reason than lack of an answer.

    Args:
        arguments: of any client of aiokafka.

    Returns:
        Why one of them gave no connection: it is away, or who gives tokens or tickets for it is. Empty: all gave one
        this time.

    Raises:
        ProgramError: a broker refuses credentials or protocol, or its certificate is not trusted, or ours.
    """
    kept = {name: value for name, value in arguments.items() if name in _NAMES or name.startswith("sasl_")}
    why = ""
    for host, port, _ in collect_hosts(arguments["bootstrap_servers"]):
        try:
            await _greet(host, port, kept.get("ssl_context"))
            connection = await create_conn(host, port, **kept)
        except (*REFUSALS, ssl.SSLError) as error:
            if isinstance(error, _CUT_OFF):
                why = f"{type(error).__name__}: {error}"
                continue
            await asyncio.sleep(_GOODBYE_SECONDS)
            raise ProgramError(f"Kafka at {host}:{port} refuses: {type(error).__name__}: {error}") from error
        except (errors.KafkaError, OSError, TimeoutError) as error:
            why = f"{type(error).__name__}: {error}"
            continue
        connection.close()
    return why


async def _greet(host: str, port: int, context: ssl.SSLContext | None) -> None:
    """Raises ``ssl.SSLError`` if the broker does not take our certificate, which TLS 1.3 tells behind its greetings."""
    if context is None:
        return
    async with asyncio.timeout(_OBJECTION_SECONDS + _GREETING_SECONDS):
        reader, writer = await asyncio.open_connection(host, port, ssl=context)
    try:
        async with asyncio.timeout(_OBJECTION_SECONDS):
            await reader.read(1)
    except TimeoutError:
        pass  # it waits for what we say
    finally:
        writer.transport.abort()
