"""A Dispatcher that comes to lead while what its jobs are stored in is away."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest

from firesteel.core.clock import SystemClock
from firesteel.core.errors import ConfigurationError
from firesteel.ha.jobs import JobsUnreadableError, StoreContents
from firesteel.ha.memory import MemoryServices
from firesteel.ha.services import DISPATCHER
from firesteel_dispatcher import leadership
from firesteel_dispatcher.rest_server import RestListener


class Store:
    """Of jobs; it can't be read at first."""

    def __init__(self, errors: list[Exception], seen: Callable[[], object]) -> None:
        self.errors, self.seen = errors, seen

    def open(self, _: int) -> StoreContents:
        self.seen()
        if self.errors:
            raise self.errors.pop(0)
        return StoreContents((), ())

    def close(self) -> None:
        pass


def lead(errors: list[Exception], monkeypatch: pytest.MonkeyPatch) -> tuple[MemoryServices, list[int]]:
    monkeypatch.setattr(leadership, "pauses", lambda *_: iter([0.0] * 10))
    services, epochs = MemoryServices(), []

    def note_epoch() -> None:
        leader = services.leader(DISPATCHER)
        assert leader is not None
        epochs.append(leader.epoch)

    store = Store(errors, note_epoch)
    monkeypatch.setattr(services, "job_store", lambda _: store)

    async def scenario() -> None:
        dispatcher = leadership.DispatcherLeadership(services, SystemClock())
        assert await dispatcher.lead(RestListener()) == StoreContents((), ())
        opened: Any = dispatcher.store
        assert opened is store
        await dispatcher.close()

    asyncio.run(scenario())
    return services, epochs


def test_jobs_that_can_not_be_read_are_waited_for_and_others_may_lead_meanwhile(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    away = "/mnt/ha does not hold the marker of this cluster's store"
    with caplog.at_level(logging.ERROR):
        services, epochs = lead([JobsUnreadableError(away), JobsUnreadableError(away)], monkeypatch)
    assert epochs == [1, 2, 3], "the leadership is given back before each wait"
    assert services.leader(DISPATCHER) is not None
    assert away in caplog.text


def test_jobs_of_another_version_end_the_dispatcher_with_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigurationError, match="another version"):
        lead([ConfigurationError("The jobs were stored by another version of Firesteel")], monkeypatch)
