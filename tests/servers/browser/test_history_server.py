"""The history server in a real browser: a job that has ended on a cluster that is gone."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from firesteel.client import embedded
from tests.integration.client.history_server import history_server
from tests.integration.embedded.programs import ended, rest_of, until
from tests.servers.browser.chromium import Chromium
from tests.servers.browser.shop import NAME, shop
from tests.servers.browser.test_dashboard import figure, rows
from tests.servers.browser.test_wide import opened
from tests.servers.browser.walk import axe_faults

pytestmark = pytest.mark.may_skip(reason="Chromium can be installed by root on Debian only")


@dataclass
class Archived:
    """The job.

    Attributes:
        id: of it.
        details: what the Dispatcher said of it at the end.
        checkpoints: the same.
    """

    id: str
    details: Any
    checkpoints: Any


@pytest.fixture(scope="module")
def seen(program: str) -> Iterator[tuple[Chromium, Archived]]:
    """A browser with a history server, and the job that it shows."""
    with tempfile.TemporaryDirectory(prefix="firesteel-history-") as name:
        folder = Path(name)
        archives = folder / "archives"
        try:
            job: Any = shop(folder, jobmanager__archive__fs__dir=str(archives))
            until(lambda: rest_of(job, "/exceptions")["exceptionHistory"]["entries"], "the failure", 90)
            until(lambda: rest_of(job, "/checkpoints")["counts"]["completed"] > 2, "checkpoints", 90)
            job.cancel().result()
            assert ended(job) == "CANCELED"
            until(lambda: list(archives.glob("*.archive")), "the archive")
            archived = Archived(str(job.get_job_id()), rest_of(job), rest_of(job, "/checkpoints"))
        finally:
            embedded.stop_embedded_cluster()
        with history_server(archives, folder) as (url, _), opened(program, url) as browser:
            yield browser, archived


def test_jobs_that_have_ended_are_listed_and_nothing_of_a_cluster(seen: tuple[Chromium, Archived]) -> None:
    browser, job = seen
    browser.go("#/overview")
    (row,) = rows(browser, "ended")
    assert row[:2] == [NAME, "CANCELED"]
    assert browser.evaluate("[...document.querySelectorAll('aside nav a')].map((one) => one.innerText)") == [
        "Overview",
        "Jobs",
    ]
    assert browser.evaluate("[...document.querySelectorAll('[data-figure]')].map((one) => one.dataset.figure)") == [
        "finished",
        "cancelled",
        "failed",
    ], "no slots, no TaskManagers: there is no cluster"
    assert "history server" in browser.text("aside .foot")
    browser.shot("history-overview")
    browser.press("tr[data-row] a")
    browser.wait(f"location.hash.startsWith('#/jobs/{job.id}')")


def test_every_page_of_the_job_shows_what_was_archived(seen: tuple[Chromium, Archived], axe: Path) -> None:
    browser, job = seen
    price = next(vertex["id"] for vertex in job.details["vertices"] if vertex["name"].startswith("price"))
    number = job.checkpoints["latest"]["completed"]["id"]
    pages = {
        "overview": "[data-graph]",
        f"overview/{price}/subtasks": "table[data-name=subtasks] tr[data-row]",
        f"overview/{price}/backpressure": "table[data-name=pressure] tr[data-row]",
        f"overview/{price}/watermarks": "table[data-name=watermarks] tr[data-row]",
        f"overview/{price}/taskmanagers": "table[data-name=workers] tr[data-row]",
        f"overview/{price}/accumulators": "table[data-name=accumulators]",
        "exceptions": "[data-exception] [data-record]",
        "events": "[data-event=SAVEPOINT_COMPLETED], [data-event=CANCELED]",
        f"checkpoints/{number}": "[data-phases]",
        "state": "table[data-name=states] tr[data-row]",
        "kafka": "[data-card=kafka]",
        f"timeline/{price}": "[data-card=subtask-times] .gantt-bar",
        "configuration": "[data-card=cluster] dd",
    }
    for page, selector in pages.items():
        browser.go(f"#/jobs/{job.id}/{page}")
        browser.wait(f"document.querySelector({json.dumps(selector)})")
        assert browser.evaluate("[...document.querySelectorAll('.trouble')].map((one) => one.innerText)") == [], page
        if page in ("overview", "events", "configuration"):  # the walk through a cluster's pages checks the others
            assert axe_faults(browser, axe) == [], page
        browser.shot(f"history-{page.replace('/' + price, '').replace('/', '-')}")
    unexpected = [
        problem for problem in browser.problems if not problem.endswith("/jobmanager/log-url")
    ]  # a program has no such file
    assert unexpected == [], "nothing is asked for that an archive does not have"
    tabs = browser.evaluate("[...document.querySelectorAll('.tabs a')].map((one) => one.innerText)")
    assert not {"Charts", "Flame graph"} & set(tabs)
    assert browser.evaluate("[...document.querySelectorAll('.actions button')].map((one) => one.innerText)") == [
        "Run again …"
    ]
    browser.press("[data-action=again]")
    assert "runs no jobs" in browser.text("[data-dialog=outside] p"), "it shows the command instead"
    assert axe_faults(browser, axe, "dialog") == []
    browser.key("Escape")
    browser.go(f"#/jobs/{job.id}/checkpoints")
    assert figure(browser, "completed") == str(job.checkpoints["counts"]["completed"])
