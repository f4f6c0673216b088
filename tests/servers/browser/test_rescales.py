"""The rescales of a job in reactive mode, as its JobMaster tells of them: a tab shows them, other jobs have none."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from tests.archives import job_archive
from tests.integration.services.dispatcher_world import JOB, archive, run, world
from tests.servers.browser.chromium import Chromium
from tests.servers.browser.test_dashboard import figure, rows
from tests.servers.browser.test_wide import opened
from tests.unit.jobmaster.test_reactive import begun

pytestmark = pytest.mark.may_skip(reason="Chromium can be installed by root on Debian only")
TABS = "[...document.querySelectorAll('.tabs a')].map((one) => one.innerText)"


def rescaled() -> dict[str, Any]:
    """What a JobMaster says of a job that began with two slots, got two more, lost them, and is offered another one."""
    d = begun()
    d.clock.advance(300.0)
    d.offer(0, tm="c")
    d.did(d.core.taskmanager_lost("c", "gone"))
    d.clock.advance(100.0)
    d.offer(0, 1, tm="b")
    d.fire("rescale", 60.0)
    d.cancelled()
    d.submitted()
    d.clock.advance(1.5)
    d.run()
    d.clock.advance(600.0)
    d.did(d.core.taskmanager_lost("b", "its node has no power"))
    d.cancelled()
    d.fire("restart", 1.0)
    d.fire("settle", 2.0)
    d.submitted()
    d.clock.advance(1.0)
    d.run()
    d.clock.advance(30.0)
    d.offer(0, tm="e")
    return {**job_archive(d.core), "jid": JOB}


def looked(program: str, details: Mapping[str, Any], look: Callable[[Chromium], None]) -> None:
    """Open the page of that job."""

    def in_browser(url: str) -> None:
        with opened(program, f"{url}/#/jobs/{JOB}/overview") as browser:
            look(browser)

    async def scenario() -> None:
        async with world() as w:
            w.host.details = lambda: details
            await w.submit()
            await asyncio.to_thread(in_browser, w.service.rest.address)

    run(scenario())


def test_rescales_are_those_of_the_job_with_what_the_scheduler_did(program: str) -> None:
    def look(browser: Chromium) -> None:
        browser.wait(f"({TABS}).at(-1) === 'Rescales'")
        browser.press(".tabs a[href$='/rescales']")
        shown = rows(browser, "rescales", 5)
        assert [row[:5] for row in shown] == [
            ["5", "IN_PROGRESS", "more slots", "2", "2"],
            ["4", "COMPLETED", "a failure", "4 → 2", "4 → 2"],
            ["3", "COMPLETED", "more slots", "2 → 4", "2 → 4"],
            ["2", "IGNORED", "more slots", "2", "2"],
            ["1", "COMPLETED", "the job begins", "– → 2", "– → 2"],
        ]
        assert [row[6] for row in shown] == ["–", "4 s", "1 min 1 s", "0 ms", "2 s"]
        assert [row[7] for row in shown][:4] == ["–", "all tasks run", "all tasks run", "the slots were gone again"]
        names = ("completed", "in-progress", "ignored", "failed")
        assert [figure(browser, f"rescales-{name}") for name in names] == ["3", "1", "1", "0"]
        assert figure(browser, "parallelism") == "2"
        browser.shot("rescales")
        browser.press("table[data-name=rescales] tbody tr[data-row]:nth-child(2)")
        browser.wait("document.querySelector('[data-card=rescale] h2')?.innerText === 'Rescale 4'")
        assert [row[2:] for row in rows(browser, "rescaled", 2)] == [["4", "2", "1", "128"]] * 2
        states = rows(browser, "scheduler-states", 3)
        assert [row[0] for row in states] == ["Restarting", "WaitingForResources", "CreatingExecutionGraph"]
        assert "its node has no power" in states[0][3]
        rows(browser, "rescale-summary", 4)
        assert "reactive" in browser.text("main")
        browser.shot("rescale-details")
        browser.key("d")
        browser.wait("document.documentElement.dataset.theme === 'dark'")
        browser.shot("rescale-details-dark")
        browser.go(f"#/jobs/{JOB}/rescales/{'0' * 32}")
        assert "No rescale" in browser.text("[data-card=rescale] .trouble")
        assert [problem for problem in browser.problems if "404" not in problem] == []

    looked(program, rescaled(), look)


def test_a_job_whose_parallelism_is_fixed_has_no_such_tab(program: str) -> None:
    def look(browser: Chromium) -> None:
        browser.wait("document.querySelectorAll('.tabs a').length > 3")
        assert "Rescales" not in browser.evaluate(TABS)
        browser.go(f"#/jobs/{JOB}/rescales")
        assert browser.wait("document.querySelector('.tabs a.now')?.innerText") == "Graph"

    looked(program, archive(), look)
