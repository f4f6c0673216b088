"""``/metrics`` of a service: who may read it, and where."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest
from prometheus_client.parser import text_string_to_metric_families

from firesteel.config import Settings
from firesteel.service.base import Service
from firesteel.service.measured import TASKMANAGER, Measured
from firesteel.service.reporting import report_metrics


class Measuring(Service):
    """Has one value."""

    asked = 0

    async def measured(self) -> list[Measured]:
        self.asked += 1
        return [Measured(TASKMANAGER, "answer", 42, {"host": self.host})]


async def status_of(service: Service, address: str, token: str = "") -> tuple[int, str]:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with service.session.get(f"{address}/metrics", headers=headers) as answer:
        return answer.status, await answer.text()


def serve(settings: Mapping[str, str], *, others: bool = False) -> tuple[tuple[int, str], tuple[int, str]]:
    """What strangers get, and what those get who know the token."""

    async def main() -> tuple[tuple[int, str], tuple[int, str]]:
        service = Measuring("taskmanager")
        report_metrics(service, Settings(settings), ("t0ken",))
        await service.start("0.0.0.0" if others else "127.0.0.1", 0, "127.0.0.1")
        try:
            return await status_of(service, service.address), await status_of(service, service.address, "t0ken")
        finally:
            await service.stop()

    return asyncio.run(main())


ON = {"metrics.reporters": "prom"}


def test_on_loopback_everybody_may_read() -> None:
    (status, text), known = serve(ON)
    assert status == 200
    (sample,) = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    assert (sample.name, sample.labels, sample.value) == ("flink_taskmanager_answer", {"host": "127_0_0_1"}, 42)
    assert known == (200, text)


def test_off_there_is_no_such_path() -> None:
    strangers, known = serve({})
    assert (strangers[0], known[0]) == (404, 404)


def test_other_hosts_need_the_token_unless_all_may_read() -> None:
    strangers, known = serve(ON, others=True)
    assert (strangers[0], known[0]) == (401, 200)
    assert "token is missing" in strangers[1]
    strangers, known = serve({**ON, "firesteel.rest.allow-unauthenticated": "true"}, others=True)
    assert (strangers[0], known[0]) == (200, 200)


def test_with_a_token_file_all_need_it() -> None:
    strangers, known = serve({**ON, "firesteel.rest.token-file": "somewhere"})
    assert (strangers[0], known[0]) == (401, 200)


def test_a_reporter_may_have_ports_of_its_own() -> None:
    async def main() -> None:
        first, second = Measuring("taskmanager"), Measuring("taskmanager")
        address = await first.start()
        used_port = int(address.rpartition(":")[2])
        settings = Settings({**ON, "metrics.reporter.prom.port": f"{used_port}-{used_port + 20}"})
        report_metrics(second, settings, ())
        await second.start()
        try:
            more = second._listeners[-1].address()
            assert used_port < int(more.rpartition(":")[2]) <= used_port + 20
            assert (await status_of(second, more))[0] == 200
        finally:
            await second.stop()
            third = Measuring("taskmanager")
            report_metrics(third, Settings({**ON, "metrics.reporter.prom.port": str(used_port)}), ())
            with pytest.raises(OSError, match=r"no port of metrics.reporter.prom.port is free"):
                await third.start()
            await first.stop()

    asyncio.run(main())


def test_what_is_off_is_never_measured() -> None:
    async def main() -> None:
        service = Measuring("taskmanager")
        report_metrics(service, Settings(), ())
        await service.start()
        async with service.session.get(f"{service.address}/health"):
            pass
        await service.stop()
        assert service.asked == 0

    asyncio.run(main())
