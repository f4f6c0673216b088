"""The operator as a service: one leads, follows the objects, and hands over when it stops."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import pytest

from firesteel.config import Settings
from firesteel.core.clock import SystemClock
from firesteel_operator import shell
from firesteel_operator.app import create_service
from firesteel_operator.shell import OperatorService
from firesteel_operator.specs import GROUP, VERSION
from tests.kubernetes_stand_in import StandIn

API: Final = f"{GROUP}/{VERSION}"
OURS: Final = f"/apis/{API}/namespaces/streams/firesteeldeployments"
DEPLOYMENTS: Final = "/apis/apps/v1/namespaces/streams/deployments"
SETTINGS: Final = {
    "kubernetes.namespace": "operators",
    "firesteel.operator.namespaces": "streams",
    "firesteel.operator.interval": "200 ms",
}


def session(name: str) -> dict[str, Any]:
    return {
        "apiVersion": API, "kind": "FiresteelDeployment", "metadata": {"name": name, "namespace": "streams"},
        "spec": {"image": "firesteel:1"},
    }  # fmt: skip


async def until(condition: Any, what: str) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.02)
    assert condition(), what


def test_one_leads_and_the_other_follows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shell, "CAMPAIGN_SECONDS", 0.1)

    async def run() -> None:
        api = StandIn()
        made: list[OperatorService] = []
        for _ in range(2):
            service = create_service(settings=Settings(SETTINGS), clock=SystemClock(), api=api)  # type: ignore[arg-type]
            await service.start()
            made.append(service)
            await until(lambda: made[0].leads, "the first one leads")
        first, second = made
        api.ask("POST", OURS, session("one"))
        await until(lambda: f"{DEPLOYMENTS}/one" in api.objects, "it has seen the object")
        assert not second.leads
        assert "/apis/coordination.k8s.io/v1/namespaces/operators/leases/firesteel-operator-leader" in api.objects

        await first.stop()
        await until(lambda: second.leads, "the other one leads")
        api.ask("POST", OURS, session("two"))
        await until(lambda: f"{DEPLOYMENTS}/two" in api.objects, "it looks after the objects")
        second._cells.depose(shell.COMPONENT)
        await until(lambda: second.failure is not None, "one that does not lead any more ends")
        await second.stop()

    asyncio.run(run())
