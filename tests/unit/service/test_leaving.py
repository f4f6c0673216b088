"""What becomes of what a service looks after when it stops."""

from __future__ import annotations

import asyncio

import pytest

from firesteel.core.errors import FencedError
from firesteel.service.base import Service
from firesteel.service.leaving import Leaving, way_out

HAND_OVER, END_ALL = Leaving.HAND_OVER, Leaving.END_ALL


@pytest.mark.parametrize(
    ("intended", "failure", "leaves"),
    [
        (HAND_OVER, None, HAND_OVER),
        (END_ALL, None, END_ALL),
        (HAND_OVER, RuntimeError("a mistake of ours"), HAND_OVER),
        (END_ALL, RuntimeError("a mistake of ours"), END_ALL),
        (END_ALL, FencedError("another one leads"), HAND_OVER),
    ],
)
def test_only_who_leads_and_is_told_to_ends_the_cluster(
    intended: Leaving, failure: BaseException | None, leaves: Leaving
) -> None:
    assert way_out(intended, failure) is leaves


class Looks(Service):
    """Writes down how it leaves."""

    def __init__(self) -> None:
        super().__init__("looks")
        self.seen: list[Leaving] = []

    async def on_drain(self) -> None:
        self.seen.append(self.leaving)
        await asyncio.sleep(0)  # somebody may say something meanwhile

    async def on_stop(self) -> None:
        self.seen.append(self.leaving)


def test_a_service_hands_over_unless_it_is_told_to_end_the_cluster() -> None:
    async def scenario(*ways: Leaving) -> list[Leaving]:
        service = Looks()
        for way in ways:
            service.request_stop(way)
        await service.stop()
        return service.seen

    assert asyncio.run(scenario()) == [HAND_OVER] * 2
    assert asyncio.run(scenario(HAND_OVER)) == [HAND_OVER] * 2
    assert asyncio.run(scenario(END_ALL, HAND_OVER)) == [END_ALL] * 2


def test_the_end_of_the_cluster_is_still_heard_while_a_service_hands_over() -> None:
    async def scenario() -> list[Leaving]:
        service = Looks()
        stopping = asyncio.create_task(service.stop())
        await asyncio.sleep(0)
        assert service.seen == [HAND_OVER]
        service.request_stop(END_ALL)
        await stopping
        return service.seen

    assert asyncio.run(scenario()) == [HAND_OVER, END_ALL]
