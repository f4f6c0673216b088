"""A job of a thousand subtasks in each vertex, as a JobMaster tells of it: pages show it, and ask few questions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from firesteel.core.clock import SystemClock
from firesteel.core.ids import AllocationId
from firesteel.graph.execution_graph import ExecutionGraph, LogicalSlot
from firesteel.graph.execution_states import ExecutionState
from firesteel.graph.job_archive import archive_of
from tests.integration.services.dispatcher_world import JOB, run, world
from tests.servers.browser.chromium import Chromium
from tests.servers.browser.test_dashboard import ROWS, cut, rows
from tests.unit.jobmaster.jobs import job, vertex, vertex_id

pytestmark = pytest.mark.may_skip(reason="Chromium can be installed by root on Debian only")
WIDE, SLOTS_OF_EACH = 1000, 10
SLOW = 617
"""The subtask that holds up the others."""


def wide() -> dict[str, Any]:
    """What a JobMaster says: the second of three vertices has a slow subtask."""
    graph = ExecutionGraph(replace(job(*(vertex(number, WIDE) for number in (1, 2, 3))), job_id=JOB), SystemClock())
    graph.place(
        [
            LogicalSlot(AllocationId(f"a{i}"), f"tm-{i // SLOTS_OF_EACH}", f"http://tm-{i // SLOTS_OF_EACH}:80",
                 i % SLOTS_OF_EACH, {"unix": f"/run/{i}"}, i)
            for i in range(WIDE)
        ]
    )  # fmt: skip
    now = graph.clock.epoch_ms()
    for execution in graph.executions():
        for state in (ExecutionState.SCHEDULED, ExecutionState.DEPLOYING):
            execution.machine.move(state, "test")
        for state in (ExecutionState.INITIALIZING, ExecutionState.RUNNING):
            execution.report(state, "test")
        number, at = int(execution.vertex.id, 16), execution.subtask
        slow = number == 2 and at == SLOW
        busy = 990 if slow else (at * 37) % 400
        back_pressured = 900 if number == 1 else 0
        execution.update_metrics(
            {
                "numRecordsIn": 40_000 if slow else 1_000 + at % 50, "numRecordsOut": 1_000, "numBytesIn": 10_000,
                "numBytesOut": 10_000, "busyTimeMs": busy, "idleTimeMs": 10, "backPressuredTimeMs": back_pressured,
                "numRecordsInPerSecond": 100, "numRecordsOutPerSecond": 100, "busyTimeMsPerSecond": busy,
                "backPressuredTimeMsPerSecond": back_pressured, "idleTimeMsPerSecond": 1000 - max(busy, back_pressured),
                "buffers.inPoolUsage": 1.0 if slow else 0.05, "buffers.outPoolUsage": 0.97 if number == 1 else 0.0,
                "currentInputWatermark": now - (90_000 if slow else 1_000),
            }
        )  # fmt: skip
    return {**archive_of(graph), "state": "RUNNING"}


@contextmanager
def opened(program: str, url: str) -> Iterator[Chromium]:
    browser = Chromium(program)
    try:
        browser.open(url)
        browser.text("main h1")
        yield browser
    finally:
        browser.close()


def looked(program: str, look: Callable[[Chromium], None]) -> None:
    """Open the page of that job."""

    def in_browser(url: str) -> None:
        with opened(program, f"{url}/#/jobs/{JOB}/overview") as browser:
            look(browser)

    async def scenario() -> None:
        async with world() as w:
            details = wide()
            w.host.details = lambda: details
            await w.submit()
            await asyncio.to_thread(in_browser, w.service.rest.address)

    run(scenario())


def test_a_thousand_subtasks_of_each_vertex_are_shown_with_few_questions(program: str) -> None:
    def look(browser: Chromium) -> None:
        middle = vertex_id(2)
        where = browser.wait(f"document.querySelector('.node[data-vertex=\"{middle}\"] .node-bar-where').innerText")
        assert where == f"{SLOW + 1}/{WIDE}", "the busiest of a thousand"
        edges = browser.wait("[...document.querySelectorAll('[data-edge]')].map((one) => one.innerText)")
        assert "100 % full" in edges[0], "what is in front of the slow one"
        assert f"subtask {SLOW + 1}/{WIDE} is 99 % busy" in browser.text("main")
        rows(browser, "vertices", 3)
        assert cut(browser, "vertices") == []
        browser.shot("wide-graph")
        browser.press(f".node[data-vertex='{middle}']")
        browser.wait("document.querySelector('[data-card=vertex]')?.getBoundingClientRect().top < innerHeight / 2")
        browser.go(f"#/jobs/{JOB}/overview/{middle}/subtasks?subtasks-sort=-busy")
        browser.wait("document.querySelector('table[data-name=subtasks]')?.ariaRowCount === '1000'")
        first = rows(browser, "subtasks", 10)
        assert first[0][0] == f"{SLOW + 1}/{WIDE}"
        assert len(first) < 60, "only rows that can be seen are in the page"
        assert cut(browser, "subtasks") == []
        browser.shot("wide-subtasks")
        for page, selector in (
            (f"overview/{middle}/backpressure", "table[data-name=pressure] tr[data-row]"),
            (f"overview/{middle}/watermarks", "table[data-name=watermarks] tr[data-row]"),
            (f"overview/{middle}/taskmanagers", "table[data-name=workers] tr[data-row]"),
            (f"timeline/{middle}", "[data-card=subtask-times] .gantt-bar"),
        ):
            browser.go(f"#/jobs/{JOB}/{page}")
            browser.wait(f"document.querySelector({selector!r})")
            browser.shot(f"wide-{page.split('/')[-1] if 'overview' in page else 'timeline'}")
        browser.go(f"#/jobs/{JOB}/overview/{middle}/subtasks?subtasks-sort=subtask")
        assert rows(browser, "subtasks", 10)[0][0] == f"1/{WIDE}"
        browser.evaluate("(document.querySelector('table[data-name=subtasks]').parentNode.scrollTop = 1e6, 0)")
        browser.wait(f"{ROWS.format(name='subtasks')}.at(-1).cells[0].innerText === '{WIDE}/{WIDE}'")
        paths = [url.partition("/jobs/")[2] for url in browser.asked if f"/jobs/{JOB}" in url]
        assert paths
        assert not [url for url in paths if "/subtasks/" in url.partition("?")[0]], "nothing is asked for each subtask"
        assert browser.problems == []

    looked(program, look)
