"""Why there is no connection to a broker."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.errors import KafkaConnectionError, SaslAuthenticationFailed

from firesteel.core.errors import ProgramError
from firesteel_kafka import refusals

SERVERS = {"bootstrap_servers": "a:1,b:2,c:3"}


def answers(monkeypatch: pytest.MonkeyPatch, **errors: Exception) -> list[str]:
    """Brokers raise these when somebody connects; the hosts whose connections were closed."""
    closed: list[str] = []

    async def connect(host: str, port: int, **arguments: Any) -> Any:
        if host in errors:
            raise errors[host]
        return SimpleNamespace(close=lambda: closed.append(host))

    monkeypatch.setattr(refusals, "create_conn", connect)
    return closed


def test_the_reason_is_given_whoever_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = answers(monkeypatch, c=ConnectionError("the token endpoint answers 503"))
    assert asyncio.run(refusals.raise_if_refused(SERVERS)) == "ConnectionError: the token endpoint answers 503"
    assert sorted(closed) == ["a", "b"]
    answers(monkeypatch, b=KafkaConnectionError("Kerberos: cannot contact any KDC"))
    assert "cannot contact any KDC" in asyncio.run(refusals.raise_if_refused(SERVERS))


def test_brokers_that_accept_this_time_give_no_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = answers(monkeypatch)
    assert asyncio.run(refusals.raise_if_refused(SERVERS)) == ""
    assert sorted(closed) == ["a", "b", "c"]


def test_one_broker_that_refuses_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    answers(monkeypatch, a=ConnectionRefusedError("no listener"), b=SaslAuthenticationFailed("no such user"))
    with pytest.raises(ProgramError, match=r"Kafka at b:2 refuses: SaslAuthenticationFailed: .*no such user"):
        asyncio.run(refusals.raise_if_refused(SERVERS))
