"""How far sources have come, as a TaskManager tells JobMasters."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from types import SimpleNamespace
from typing import Any

import pytest

from firesteel.protocol.alignment import GroupWatermark, ReportWatermark
from firesteel.protocol.gateways import JobMasterGateway
from firesteel.testing.clock import ManualClock
from firesteel_taskmanager.instructions import AskForAlignment, JobMasterRef
from firesteel_taskmanager.jobmasters import JobMasterLinks

REF = JobMasterRef("ab" * 16, "http://jm", "token")


class Owner:
    """A TaskManager that notes what sources are told."""

    client: Any = None
    taskmanager_id = "tm"

    def __init__(self) -> None:
        self.core: Any = SimpleNamespace(tasks=self)
        self.told: list[tuple[str, int]] = []

    def group_watermark(self, allocation_id: str, execution_id: str, watermark: int) -> list[Any]:
        self.told.append((execution_id, watermark))
        return []

    def perform(self, instructions: Iterable[Any]) -> None:
        assert list(instructions) == []

    def spawn(self, coroutine: Coroutine[Any, Any, Any], name: str) -> Any:
        return asyncio.get_running_loop().create_task(coroutine, name=name)


def test_a_slow_jobmaster_is_asked_once_at_a_time_and_then_told_the_latest(monkeypatch: pytest.MonkeyPatch) -> None:
    """A source reports every some milliseconds, whether the last report was answered or not."""
    reports: list[ReportWatermark] = []

    async def run() -> None:
        answers = asyncio.Event()

        async def report_watermark(self: JobMasterGateway, message: ReportWatermark) -> GroupWatermark:
            reports.append(message)
            await answers.wait()
            return GroupWatermark(message.watermark)

        monkeypatch.setattr(JobMasterGateway, "report_watermark", report_watermark)
        owner = Owner()
        settings: Any = SimpleNamespace(heartbeat_timeout=50.0)
        links = JobMasterLinks(owner, settings, ManualClock())  # type: ignore[arg-type] # as much as it needs
        for watermark in range(100):
            for source in ("one", "other"):
                links.ask_for_alignment(AskForAlignment(REF, "slot", ReportWatermark(source, "group", watermark)))
            await asyncio.sleep(0)
        assert [(report.execution_id, report.watermark) for report in reports] in (
            [("one", 0), ("other", 0)],
            [("one", 0)],
        )
        answers.set()
        while ("one", 99) not in owner.told or ("other", 99) not in owner.told:
            await asyncio.sleep(0)
        assert len(reports) <= 4
        links.forget(REF.job_id)

    asyncio.run(run())
