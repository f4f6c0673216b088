"""Logs of a cluster of processes in the dashboard: the end, the lines that come, search."""

from __future__ import annotations

import urllib.parse

import pytest

from tests.integration.processes.cluster import running_cluster
from tests.servers.browser.chromium import Chromium

pytestmark = [pytest.mark.may_skip(reason="Chromium can be installed by root on Debian only"), pytest.mark.long]


def test_logs_are_followed_and_searched(program: str) -> None:
    with running_cluster(taskmanagers=1) as cluster:
        browser = Chromium(program)
        try:
            browser.open(f"{cluster.rest_url}/#/taskmanagers")
            taskmanager = browser.wait(
                "document.querySelector('table[data-name=taskmanagers] tr[data-row]').dataset.row"
            )
            browser.go(f"#/taskmanagers/{urllib.parse.quote(taskmanager, safe='')}/logs")
            name = browser.wait("document.querySelector('[data-log]')?.dataset.log")
            browser.wait("document.querySelectorAll('.log-line').length > 1")
            assert name in browser.text("[data-row]") or name
            browser.go("#/jobmanager/logs")
            browser.wait("document.querySelector('[data-log] .log-line')?.innerText.length > 5")
            browser.type("[data-log] input[type=search]", "dispatcher")
            hits = int(browser.wait("document.querySelector('[data-hits]').dataset.hits"))
            assert hits > 0
            browser.wait("document.querySelectorAll('.log-line mark').length > 0")
            assert not browser.problems
        finally:
            browser.close()
