"""``firesteel open``: the address of the dashboard or of a job's page, and a browser where there is a desktop."""

from __future__ import annotations

import json
import sys
import webbrowser
from types import SimpleNamespace
from typing import Any, cast

import pytest

from firesteel.client.cli import show
from firesteel.client.cli.main import main
from firesteel.client.rest_client import RestClient

URL = "http://127.0.0.1:8081"
JOB = "ab" * 16


class Loop:
    """Answers ``GET /jobs/overview``."""

    def start(self, coroutine: Any) -> Any:
        coroutine.close()
        jobs = [{"jid": JOB, "name": "orders", "state": "FINISHED", "start-time": 1}]
        return SimpleNamespace(result=lambda timeout: {"jobs": jobs}, cancel=lambda: None)


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Addresses that the browser was sent to, on a desktop."""
    addresses: list[str] = []
    for name in ("FIRESTEEL_DEFINITIONS", "FIRESTEEL_CONF_DIR", "WAYLAND_DISPLAY"):
        monkeypatch.setenv(name, "")
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setattr("firesteel.client.cli.local_cluster.running_clusters", list)
    connection = SimpleNamespace(rest=RestClient(URL, None), loop=Loop())
    monkeypatch.setattr(show, "connect", lambda settings: cast(Any, connection))

    def open_browser(url: str) -> bool:
        addresses.append(url)
        return True

    monkeypatch.setattr(webbrowser, "open", open_browser)
    return addresses


@pytest.mark.parametrize(
    ("words", "page"),
    [([], f"{URL}/"), (["orders"], f"{URL}/#/jobs/{JOB}"), (["abab"], f"{URL}/#/jobs/{JOB}")],
    ids=["dashboard", "name", "beginning of an id"],
)
def test_a_page_is_named_and_opened(
    words: list[str], page: str, opened: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["open", *words]) == 0
    assert capsys.readouterr().out == page + "\n"
    assert opened == [page]


def test_programs_get_the_address_alone(opened: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["open", "--json", "orders"]) == 0
    assert json.loads(capsys.readouterr().out) == {"dashboard": f"{URL}/#/jobs/{JOB}"}
    assert opened == []


def test_without_a_desktop_nothing_is_started(
    opened: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DISPLAY", "")
    monkeypatch.setattr(sys, "platform", "linux")
    assert main(["open"]) == 0
    assert opened == []
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setattr(webbrowser, "open", lambda url: False)
    assert main(["open"]) == 0
    assert "no browser can be started here" in capsys.readouterr().err


def test_a_job_that_is_not_there_is_one_sentence(opened: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["open", "nothing"]) == 1
    assert capsys.readouterr().err == (
        "firesteel open: no job has the name 'nothing', or an id that begins with it; `firesteel list -a` shows them\n"
    )
    assert opened == []
