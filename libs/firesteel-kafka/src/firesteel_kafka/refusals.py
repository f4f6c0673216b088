"""Finds out why brokers refuse a connection. aiokafka only logs it, and raises that no broker can be reached."""

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
"""Errors of brokers that last until somebody changes something."""
_CUT_OFF: Final = (ssl.SSLEOFError, ssl.SSLZeroReturnError)
"""Errors of TLS that a broker causes which dies during the handshake."""
_GOODBYE_SECONDS: Final = 0.1
"""TLS takes a moment to close a refused connection, and the caller may end its loop right after the error."""
_HANDSHAKE_SECONDS: Final = 10.0
_OBJECTION_SECONDS: Final = 0.5
"""Wait for a broker's objection to our certificate. A broker without objections waits for our request."""
_NAMES: Final = ("client_id", "request_timeout_ms", "ssl_context", "security_protocol")


async def raise_if_refused(arguments: Mapping[str, Any]) -> str:
    """Connect to each broker once more, to find out why a client could not.

    Args:
        arguments: arguments of any client of aiokafka.

    Returns:
        Why a broker can't be reached now: the broker is away, or the server of its tokens or tickets. Empty if all
        brokers can be reached this time.

    Raises:
        ProgramError: a broker refuses credentials, protocol or our certificate, or we do not trust its certificate.
    """
    connection_arguments = {
        name: value for name, value in arguments.items() if name in _NAMES or name.startswith("sasl_")
    }
    cause = ""
    for host, port, _ in collect_hosts(arguments["bootstrap_servers"]):
        try:
            await _check_certificates(host, port, connection_arguments.get("ssl_context"))
            connection = await create_conn(host, port, **connection_arguments)
        except (*REFUSALS, ssl.SSLError) as error:
            if isinstance(error, _CUT_OFF):
                cause = f"{type(error).__name__}: {error}"
                continue
            await asyncio.sleep(_GOODBYE_SECONDS)
            raise ProgramError(f"Kafka at {host}:{port} refuses: {type(error).__name__}: {error}") from error
        except (errors.KafkaError, OSError, TimeoutError) as error:
            cause = f"{type(error).__name__}: {error}"
            continue
        connection.close()
    return cause


async def _check_certificates(host: str, port: int, context: ssl.SSLContext | None) -> None:
    """Raise ``ssl.SSLError`` if a certificate is refused; with TLS 1.3 the broker says so only after the handshake."""
    if context is None:
        return
    async with asyncio.timeout(_OBJECTION_SECONDS + _HANDSHAKE_SECONDS):
        reader, writer = await asyncio.open_connection(host, port, ssl=context)
    try:
        async with asyncio.timeout(_OBJECTION_SECONDS):
            await reader.read(1)
    except TimeoutError:
        pass  # no objection: the broker waits for a request
    finally:
        writer.transport.abort()
