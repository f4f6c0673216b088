"""Runs of bounded stages between JobMasters and the fleet."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Collection
from typing import Any

from firesteel.core.clock import SystemClock
from firesteel.protocol import messages as m
from firesteel.protocol.stages import Places, RunLook, Stage, StageProgress, StageRun, StageTaskInput, TaskProgress
from firesteel_resourcemanager.stage_runs import StageRuns

JOB, RUN = "ab" * 16, "ab" * 16 + "-0-1"


class Fleet:
    """As ``FleetDriver``; notes its calls."""

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.results = [b"x" * (3 << 20), b"y" * (3 << 20), b"z"]

    async def start_stages(self, run: StageRun) -> None:
        self.calls.append(run)

    async def look_at_stages(self, run_id: str, places: Places | None, known: Collection[str]) -> RunLook:
        self.calls.append((run_id, places, known))
        return RunLook("running", "", {"v": StageProgress(2, 1, 0, 0, 7, (TaskProgress(1, "RUNNING", 5),))})

    async def stage_results(self, run_id: str) -> list[bytes]:
        self.calls.append(("results", run_id))
        return self.results

    async def drop_stages_of(self, owner: str) -> None:
        self.calls.append(("drop", owner))


def test_runs_are_where_the_job_has_slots_now_and_go_with_the_job() -> None:
    fleet, places = Fleet(), {"1": (1, 2)}
    runs = StageRuns(fleet, lambda job: dict(places), _no_session, "secret", SystemClock())  # type: ignore[arg-type]
    stage = Stage("v", "V", (), (StageTaskInput("[]"),), 1)

    async def story() -> None:
        await runs.run(m.RunStages(JOB, RUN, "a job", 2, (stage.to_plain(),), (), "http://nowhere"))
        run = fleet.calls.pop()
        assert (run.owner, run.places, run.cores, run.stages) == (JOB, {"1": (1, 2)}, 2, (stage,))
        places["2"] = (1, 2)
        look = await runs.look(m.StageRunRef(JOB, RUN, known=("u",)))
        assert fleet.calls.pop() == (RUN, {"1": (1, 2), "2": (1, 2)}, ("u",))
        assert StageProgress.from_plain(look.progress["v"]).subtasks == (TaskProgress(1, "RUNNING", 5),)
        texts: list[str] = []
        while True:
            some = await runs.results(RUN, len(texts))
            texts += some.results
            if some.end:
                break
        assert [base64.b64decode(text) for text in texts] == fleet.results
        assert fleet.calls == [("results", RUN)], "asked for once"
        await runs.job_left(JOB)
        await runs.results(RUN, 0)
        assert fleet.calls == [("results", RUN), ("drop", JOB), ("results", RUN)], "nothing is kept of a job that left"

    asyncio.run(story())


def _no_session() -> Any:
    raise AssertionError("there are no blobs")
