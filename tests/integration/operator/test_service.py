"""The operator as a service: one leads, follows the objects, and hands over when it stops."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any, Final
from urllib.parse import urlsplit

import aiohttp
import pytest

from firesteel.config import Settings
from firesteel.core.clock import SystemClock
from firesteel.core.run_directory import RunDirectory
from firesteel.service.process import ServiceContext
from firesteel_operator import __main__, shell
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


def test_one_operator_leads_and_the_other_follows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shell, "CAMPAIGN_SECONDS", 0.1)

    async def run() -> None:
        api = StandIn()
        services: list[OperatorService] = []
        for _ in range(2):
            service = create_service(settings=Settings(SETTINGS), clock=SystemClock(), api=api)  # type: ignore[arg-type]
            await service.start()
            services.append(service)
            await until(lambda: services[0].leads, "the first one leads")
        first, second = services
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


def test_the_operator_listens_on_all_addresses_of_its_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the chart has it: probes ask by the pod's address, and nobody else looks for it."""
    monkeypatch.setattr(__main__, "create_service", partial(create_service, api=StandIn()))  # type: ignore[arg-type]
    settings = Settings({**SETTINGS, "firesteel.operator.address": "0.0.0.0", "firesteel.operator.port": "0"})

    async def run() -> None:
        plan = __main__.build(ServiceContext(settings, "s" * 32, SystemClock(), directory, None))
        await plan.service.start(plan.bind_host, plan.port, plan.advertised_host)
        try:
            url = f"http://127.0.0.1:{urlsplit(plan.service.address).port}/health"
            async with (
                aiohttp.ClientSession() as session,
                session.get(url, headers={"Host": "10.1.2.3:8085"}) as answer,
            ):
                assert answer.status == 200, await answer.text()
        finally:
            await plan.service.stop()

    directory = RunDirectory.create()
    try:
        asyncio.run(run())
    finally:
        directory.remove()
