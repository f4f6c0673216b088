"""Kerberos to brokers: errors of tickets become errors that aiokafka's clients expect."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from firesteel.core.errors import ProgramError
from firesteel_kafka.aiokafka_internals import kerberos_principal, wrap_kerberos_step

__all__ = ["prepare_kerberos", "translating_errors"]

_CENTRE_IS_AWAY: Final = 0x96C73A9C
"""``KRB5_KDC_UNREACH`` as 32 bits: no key distribution centre answers, which passes by itself."""


def prepare_kerberos() -> None:
    """Prepare the clients of this process for the mechanism GSSAPI. Idempotent.

    aiokafka lets errors of GSSAPI through into its loops, which do not expect them: a loop would end, and callers that
    wait for it would wait for ever.

    Raises:
        ProgramError: the package gssapi is not installed here.
    """
    try:
        from gssapi.exceptions import GSSError
    except ImportError as error:
        raise ProgramError(
            f"Kafka: sasl.mechanism GSSAPI needs the package gssapi: pip install 'firesteel[kafka-gssapi]' ({error})"
        ) from error
    wrap_kerberos_step(lambda step: translating_errors(step, GSSError))


def translating_errors(step: Callable[[Any, Any], Any], error_type: type[Exception]) -> Callable[[Any, Any], Any]:
    """Wrap a step of the exchange so that it raises aiokafka's errors.

    Args:
        step: takes the authenticator and the bytes that the broker has sent.
        error_type: of GSSAPI; has the attribute ``min_code``.
    """
    from aiokafka import errors

    def wrapped(authenticator: Any, payload: Any) -> Any:
        try:
            return step(authenticator, payload)
        except error_type as error:
            if getattr(error, "min_code", 0) & 0xFFFFFFFF == _CENTRE_IS_AWAY:
                raise errors.KafkaConnectionError(f"Kerberos: {error}") from error
            raise errors.SaslAuthenticationFailed(
                f"Kerberos gives no ticket for {kerberos_principal(authenticator)}: {error}; kinit beside the process, "
                "or name a keytab by KRB5_CLIENT_KTNAME"
            ) from error

    return wrapped
