"""The dashboard in a real browser, on a real cluster: pages show what the server says, actions do what they say."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from tests.integration.embedded.programs import ended, rest_of, until
from tests.servers.browser.chromium import Chromium
from tests.servers.browser.conftest import Shop
from tests.servers.browser.shop import NAME, PARALLELISM, shop
from tests.servers.browser.shop import examples as shop_examples
from tests.servers.browser.walk import DESK, PHONE, Walk, axe_faults

pytestmark = pytest.mark.may_skip(reason="Chromium can be installed by root on Debian only")
ROWS = "[...document.querySelectorAll('table[data-name={name}] tbody tr[data-row]')]"


def rows(browser: Chromium, name: str, least: int = 1) -> list[list[str]]:
    """The cells of a table, as soon as it has so many rows."""
    cells: list[list[str]] = browser.wait(
        f"(({ROWS.format(name=name)}).length >= {least}) && "
        f"{ROWS.format(name=name)}.map((row) => [...row.cells].map((cell) => cell.innerText))"
    )
    return cells


def cut(browser: Chromium, name: str) -> list[str]:
    """Figures, states and titles of a table that have no room, or all of it where it is wider than the page."""
    table = f"document.querySelector('table[data-name={name}]')"
    texts: list[str] = browser.evaluate(
        f"{ROWS.format(name=name)}.flatMap((row) => [...row.querySelectorAll('td.number, td:has(.badge)')])"
        f".concat([...{table}.querySelectorAll('th button')], [{table}.parentNode])"
        ".filter((cell) => cell.scrollWidth > cell.clientWidth).map((cell) => cell.innerText)"
    )
    return texts


def figure(browser: Chromium, name: str) -> str:
    """A figure in large letters."""
    return browser.text(f"[data-figure={name}] .figure-value")


def test_the_overview_shows_what_the_server_says(browser: Chromium, watched: Shop) -> None:
    with urlopen(f"{watched.url}/overview") as answer:
        said = json.load(answer)
    browser.go("#/overview")
    used = said["slots-total"] - said["slots-available"]
    assert figure(browser, "slots") == f"{used} of {said['slots-total']}"
    assert (figure(browser, "taskmanagers"), figure(browser, "running")) == ("1", str(said["jobs-running"]))
    (row,) = rows(browser, "running")
    tasks = watched.ask()["vertices"]
    assert row[:3] == [NAME, "RUNNING", "{0}/{0}".format(sum(vertex["parallelism"] for vertex in tasks))]
    assert row[3].startswith("Failed "), "the worst finding"
    assert "no price for customer c2" in browser.evaluate("document.querySelector('[data-health=bad]').title")
    browser.wait("document.querySelector('table[data-name=running] .spark polyline')")
    assert row[8] == "1", "restarts"
    assert cut(browser, "running") == []
    browser.press("tr[data-row] a")
    browser.wait(f"location.hash.startsWith('#/jobs/{watched.id}')")


def test_the_graph_has_all_vertices_and_names_the_worst_subtask(browser: Chromium, watched: Shop) -> None:
    browser.go(f"#/jobs/{watched.id}/overview")
    said = watched.ask()
    names = {vertex["id"]: vertex["name"] for vertex in said["vertices"]}
    browser.wait(f"document.querySelectorAll('.node').length === {len(names)}")
    shown = browser.evaluate(
        "Object.fromEntries([...document.querySelectorAll('.node')].map((one) => "
        "[one.dataset.vertex, one.querySelector('.node-name').innerText]))"
    )
    assert shown == names
    edges = browser.evaluate(
        "[...document.querySelectorAll('[data-edge]')].map((one) => [one.dataset.edge, one.innerText])"
    )
    nodes = said["plan"]["nodes"]
    expected = {f"{i['id']}-{node['id']}": i["ship_strategy"] for node in nodes for i in node.get("inputs", ())}
    assert {edge: text.split("\n")[0] for edge, text in edges} == expected
    busiest = next(v for v in said["vertices"] if v["name"].startswith("price"))
    number = f"document.querySelector('.node[data-vertex=\"{busiest['id']}\"] .node-bar-where').innerText"
    worst = browser.wait(f"{number}.match(/^[12]\\/2$/)")
    assert worst, "the busiest subtask has its number"


def test_subtasks_are_sorted_and_filtered_and_the_link_says_so(browser: Chromium, watched: Shop) -> None:
    vertex = watched.ask()["vertices"][1]["id"]
    browser.go(f"#/jobs/{watched.id}/overview")
    browser.press(f".node[data-vertex='{vertex}']")
    assert [row[0] for row in rows(browser, "subtasks", PARALLELISM)] == ["1/2", "2/2"]
    browser.press("table[data-name=subtasks] th button")
    browser.wait("location.hash.includes('subtasks-sort=-subtask')")
    assert [row[0] for row in rows(browser, "subtasks", PARALLELISM)] == ["2/2", "1/2"]
    link = browser.evaluate("location.href")
    browser.open(link)
    assert [row[0] for row in rows(browser, "subtasks", PARALLELISM)] == ["2/2", "1/2"], (
        "the link brings the order along"
    )
    said = watched.ask(f"/vertices/{vertex}")["subtasks"]
    assert {row[1] for row in rows(browser, "subtasks", PARALLELISM)} == {subtask["status"] for subtask in said}
    browser.type(".find", "no such subtask")
    browser.wait("document.querySelector('.empty')?.innerText.startsWith('Nothing matches')")
    browser.go(f"#/jobs/{watched.id}/overview/{vertex}/backpressure")
    browser.text("[data-level]")
    browser.go(f"#/jobs/{watched.id}/overview/{vertex}/watermarks")
    said_watermarks = watched.ask(f"/vertices/{vertex}/watermarks")
    assert len(rows(browser, "watermarks", len(said_watermarks))) == len(said_watermarks)
    browser.go(f"#/jobs/{watched.id}/overview/{vertex}/operators")
    said_operators = watched.ask(f"/vertices/{vertex}/operators")["operators"]
    shown_operators = [row[0] for row in rows(browser, "operators", len(said_operators))]
    assert shown_operators == [operator["name"] for operator in said_operators]
    browser.go(f"#/jobs/{watched.id}/overview/{vertex}/hotkeys")
    assert {row[0] for row in rows(browser, "hotkeys", 7)} == {f"'c{number}'" for number in range(7)}


def test_an_exception_has_its_traceback_its_place_and_its_record(browser: Chromium, watched: Shop) -> None:
    browser.go(f"#/jobs/{watched.id}/exceptions")
    (said,) = watched.ask("/exceptions")["exceptionHistory"]["entries"]
    entry = f"[data-exception='{said['exceptionName']}']"
    assert "no price for customer c2" in browser.text(f"{entry} .exception-message")
    assert "in price" in browser.text(f"{entry} .trace pre")
    assert "'order': 100" in browser.text(f"{entry} [data-record]")
    assert said["taskManagerId"] in browser.text(f"{entry} .facts")


def test_checkpoints_are_those_of_the_server_with_the_time_of_each_subtask(browser: Chromium, watched: Shop) -> None:
    browser.go(f"#/jobs/{watched.id}/checkpoints")
    completed = int(figure(browser, "completed").replace(" k", "000"))
    assert 0 < completed <= watched.ask("/checkpoints")["counts"]["completed"]
    assert figure(browser, "restored") == str(watched.ask("/checkpoints")["counts"]["restored"])
    browser.press("table[data-name=checkpoints] tbody tr[data-row]")
    chosen = browser.wait("location.hash.match(/checkpoints.(\\d+)/)?.[1]")
    assert browser.text("[data-card=checkpoint] h2") == f"Checkpoint {chosen}"
    assert len(rows(browser, "of-checkpoint", 2)) == len(watched.ask()["vertices"])
    browser.wait("document.querySelectorAll('[data-phases]').length > 0")
    assert browser.evaluate("document.querySelector('[data-strip]').dataset.strip") != "0"
    assert len(rows(browser, "summary", 5)) == 5
    assert cut(browser, "summary") == []
    assert cut(browser, "bars") == []


def test_charts_are_there_again_after_a_reload(browser: Chromium, watched: Shop) -> None:
    vertex = watched.ask()["vertices"][1]["id"]
    browser.go(f"#/jobs/{watched.id}/overview/{vertex}/charts")
    points = "Number(document.querySelector('[data-chart=Records]')?.dataset.points) >= 8"
    browser.wait(points)
    browser.reload()
    began = time.monotonic()
    browser.wait(points)
    assert time.monotonic() - began < 8 * 3, "eight points of a chart of this page alone would take 24 s"
    said = watched.ask(f"/metrics/history?vertex={vertex}")
    assert len(said["times"]) >= 8
    assert any(value for value in said["series"]["numRecordsInPerSecond"])
    legend = browser.text("[data-chart=Records] .u-legend")
    assert re.search(r"\d\d:\d\d:\d\d\s*read\s*[\d.]+", legend), f"the last values: {legend!r}"
    browser.type("[data-find=metrics]", "0.numRecordsInPerSecond")
    browser.press("[data-metric='0.numRecordsInPerSecond']")
    browser.wait("document.querySelector('[data-chart=\"0.numRecordsInPerSecond\"] canvas')")


@pytest.fixture
def examples(watched: Shop) -> Iterator[dict[str, str]]:
    """Id of each of four jobs -> what it is an example of; those beside the shop end with the test."""
    jobs = shop_examples(watched.folder)
    try:
        until(lambda: rest_of(jobs["ended"])["end-time"] >= 0, "a job has ended", 60)
        until(lambda: rest_of(jobs["failing"], "/exceptions")["exceptionHistory"]["entries"], "a job fails", 60)
        until(lambda: any(v["status"] == "FINISHED" for v in rest_of(jobs["batch"])["vertices"]), "a stage is done", 90)
        yield {watched.id: "running", **{str(job.get_job_id()): name for name, job in jobs.items()}}
    finally:
        for name in ("failing", "batch"):
            jobs[name].cancel().result()
        for name in ("failing", "batch"):
            ended(jobs[name])


@pytest.mark.timeout(600)  # 30 seconds on a machine that has nothing else to do
@pytest.mark.parametrize(
    "in_turn",
    [pytest.param(True, id="light and dark in turn"), pytest.param(False, id="light and dark", marks=pytest.mark.long)],
)
def test_all_pages_are_free_of_errors_fit_a_phone_and_can_be_used_by_all(
    browser: Chromium, watched: Shop, axe: Path, examples: dict[str, str], in_turn: bool
) -> None:
    walk = Walk(browser, axe, examples, in_turn)
    patterns = walk.go()
    assert walk.faults == []
    assert len(patterns) > 30, patterns
    some = {"overview", "submit", "jobs/running/logs", "taskmanagers/x/threads", "jobs/job/checkpoints/x"}
    assert some | {"jobs/running/events", "jobs/running/latency"} <= set(patterns)
    for page in ("#/nowhere", "#/jobs/" + "0" * 32):
        browser.go(page)
        browser.wait("document.querySelector('main h1') && document.title !== 'Firesteel'")
    assert {url.split("/")[2] for url in browser.asked if url.startswith("http")} == {watched.url.split("/")[2]}


def test_a_keyboard_is_enough(browser: Chromium, watched: Shop) -> None:
    browser.open(f"{watched.url}/#/jobs/{watched.id}/overview")
    browser.wait("document.querySelector('[data-action=checkpoint]')")
    browser.key("Tab")
    browser.wait(
        "document.activeElement.className === 'skip' && document.activeElement.getBoundingClientRect().left >= 0"
    )
    browser.key("Enter")
    assert browser.evaluate("document.activeElement.tagName") == "MAIN"
    browser.wait("document.querySelector('.node')")
    browser.evaluate("document.querySelector('[data-action=log-in]').focus()")
    browser.key("Enter")
    browser.wait("document.querySelector('dialog[open]')")
    for _ in range(6):
        browser.key("Tab")
        inside = "document.activeElement === document.body || document.activeElement.closest('dialog') !== null"
        assert browser.evaluate(inside), "the focus stays in the dialog, or goes to the browser itself"
    browser.key("Escape")
    browser.wait("!document.querySelector('dialog')")
    assert browser.evaluate("document.activeElement.dataset.action") == "log-in", "the focus is given back"
    outline = "getComputedStyle(document.activeElement).outlineStyle"
    assert browser.evaluate(outline) == "solid", "the focus can be seen"
    browser.size(*PHONE)
    browser.press("[data-action=menu]")
    browser.wait("sees(document.querySelector('aside nav a'))")
    browser.key("Escape")
    browser.wait("!sees(document.querySelector('aside nav a'))")
    assert browser.evaluate("document.querySelector('aside').clientHeight") < 60, "one line"
    browser.wait("document.querySelectorAll('.graph-list .node').length === 3")
    browser.size(*DESK)


def test_charts_have_their_values_as_tables(browser: Chromium, watched: Shop) -> None:
    browser.go(f"#/jobs/{watched.id}/charts")
    browser.press(".chart-values summary")
    table = browser.text(".chart-numbers table")
    assert re.search(r"^Time\s.+\n\d\d:\d\d:\d\d\s+[\d.]+", table), table[:200]


def test_logs_of_a_job_come_from_all_processes_in_one_order(browser: Chromium, watched: Shop) -> None:
    lines = "[...document.querySelectorAll('.log-line')].map((one) => one.innerText)"
    browser.go(f"#/jobs/{watched.id}/exceptions")
    browser.press("[data-action=moment]")
    failure = browser.wait(f"document.querySelector('.log-line.current') && {lines}")
    assert "at=" in browser.evaluate("location.hash")
    assert any(
        re.search(r" INFO +shop \[embedded, price \([12]/2\)#0\]: order \d+ has a price$", line) for line in failure
    )
    assert failure == sorted(failure, key=lambda line: line[:23]), "in order of time"
    browser.go(f"#/jobs/{watched.id}/logs")
    followed = f"document.querySelector('[data-toggle=follow]').checked && {lines}.length > 1 && {lines}.at(-1)"
    last = browser.wait(followed)
    browser.wait(f"{lines}.at(-1) > {json.dumps(last)}")
    browser.type(".log .find", "HAS A PRICE")
    browser.press("[data-toggle=only]")
    browser.wait("location.hash.includes('text=HAS') && document.querySelector('.log-line mark')")
    browser.go(f"#/jobs/{watched.id}/logs?level=ERROR")
    browser.wait(f"document.querySelector('[data-log]') && {lines}.every((one) => !one.includes(' INFO '))")


def test_a_flame_graph_is_drawn_of_all_subtasks_and_of_one(browser: Chromium, watched: Shop) -> None:
    vertex = next(
        vertex_row["id"] for vertex_row in watched.ask()["vertices"] if vertex_row["name"].startswith("price")
    )
    browser.go(f"#/jobs/{watched.id}/overview/{vertex}/flamegraph")
    drawn = "[...document.querySelectorAll('.flame')].map((one) => one.title)"
    stacks = browser.wait(f"{drawn}.some((one) => /\\.price:/.test(one)) && {drawn}")
    assert not any(".daemon." in stack.split("\n")[0] for stack in stacks[:1]), "what leads nowhere else is folded"
    of_all = int(browser.evaluate("document.querySelector('[data-flames]').dataset.flames"))
    browser.press("[data-fold=folded]")
    browser.wait("document.querySelector('.flame').title.startsWith('root')")
    browser.evaluate(
        "(() => { const list = document.querySelector('[data-choice=subtask]'); list.value = '1';"
        " list.dispatchEvent(new Event('change', { bubbles: true })); })()"
    )
    browser.wait("location.hash.includes('subtask=1')")
    of_one = browser.wait(
        f"Number(document.querySelector('[data-flames]')?.dataset.flames) < {of_all} && "
        "document.querySelector('[data-flames]').dataset.flames"
    )
    assert 0 < int(of_one) < of_all
    browser.wait(
        "(() => { const boxes = [...document.querySelectorAll('.flame')]; boxes.at(-1)?.click(); return true; })()"
    )
    browser.wait("[...document.querySelectorAll('.choices button')].some((one) => one.innerText === 'All of it')")


def test_a_log_is_shown_searched_and_followed(browser: Chromium, watched: Shop) -> None:
    browser.go("#/taskmanagers/embedded/logs")
    browser.wait("document.querySelectorAll('.log-line').length > 1")
    browser.type(".log .find", "RUNNING")
    browser.wait("Number(document.querySelector('[data-hits]')?.dataset.hits) > 0")
    browser.press(".log [title=Previous]")  # the log may have grown beyond what is in view
    browser.wait("document.querySelector('.log-line mark')")
    assert "find=RUNNING" in browser.evaluate("location.hash"), "the link brings the search along"
    short = browser.evaluate("document.querySelector('.log-inner').innerText")
    assert watched.id not in short, "ids are short"
    browser.type(".log .find", "")
    browser.press("[data-toggle=follow]")  # who looks at a line that was found follows no more, until told to


def test_a_log_that_is_followed_grows_and_scrolling_up_stops_that(browser: Chromium, watched: Shop) -> None:
    browser.go("#/taskmanagers/embedded/logs/slot-0.log")
    last = "[...document.querySelectorAll('.log-line')].at(-1).innerText"
    box = "document.querySelector('.log-box')"
    at_end = f"({box}.scrollHeight - {box}.scrollTop - {box}.clientHeight < 2)"
    following = "document.querySelector('[data-toggle=follow]').checked"
    browser.wait(last)
    before = browser.evaluate(last)
    browser.wait(f"{last} !== {json.dumps(before)}")
    browser.wait(f"{box}.scrollHeight > {box}.clientHeight + 100")
    browser.wait(f"{following} && {at_end}")
    browser.evaluate(f"{box}.scrollTop = 0")
    browser.wait(f"!{following}")
    height = browser.evaluate(f"{box}.scrollHeight")
    browser.press("[data-toggle=follow]")
    browser.wait(f"{following} && {at_end} && {box}.scrollHeight > {height}")


def test_a_profile_is_taken_where_it_is_allowed(browser: Chromium, watched: Shop) -> None:
    browser.go("#/jobmanager/threads")
    browser.press("[data-action=profile]")
    browser.wait("document.querySelector('[data-dialog=login]')")
    browser.key("Escape")
    browser.wait("!document.querySelector('dialog')")


def test_a_thousand_subtasks_are_no_burden(browser: Chromium, watched: Shop) -> None:
    vertex = watched.ask()["vertices"][1]["id"]
    browser.go("#/jobs")
    browser.evaluate(
        """(() => {
            const real = window.fetch;
            window.fetch = async (path, init) => {
                const answer = await real(path, init);
                if (!String(path).match(/vertices.[0-9a-f]{32}$/)) return answer;
                const found = await answer.json();
                const row = found.subtasks[0];
                found.subtasks = Array.from({ length: 1000 }, (_, index) => ({ ...row, subtask: index,
                    "firesteel-now": { ...row["firesteel-now"], busyTimeMsPerSecond: (index * 37) % 1000 } }));
                return new Response(JSON.stringify(found));
            };
        })()"""
    )
    browser.go(f"#/jobs/{watched.id}/overview/{vertex}/subtasks?subtasks-sort=-busy")
    browser.wait("document.querySelector('table[data-name=subtasks]')?.ariaRowCount === '1000'")
    assert len(rows(browser, "subtasks", 10)) < 60, "only rows that can be seen are in the page"
    assert rows(browser, "subtasks")[0][0] == "28/2", "the busiest of the thousand, counted from one: 27 * 37 = 999"
    began = time.monotonic()
    browser.evaluate("(document.querySelector('.table-box table[data-name=subtasks]').parentNode.scrollTop = 1e6, 0)")
    browser.wait(f"{ROWS.format(name='subtasks')}.at(-1).cells[2].innerText === '0 %'")
    assert time.monotonic() - began < 3
    browser.reload()


def test_a_visitor_without_a_token_only_looks(browser: Chromium, watched: Shop) -> None:
    browser.open(f"{watched.url}/#/jobs/{watched.id}/overview")
    browser.press("[data-action=checkpoint]")
    browser.type("[data-dialog=login] input", "a wrong token")
    browser.press("[data-confirm=log-in]")
    assert browser.text("[data-dialog=login] .trouble") == "The cluster does not know this token."
    browser.key("Escape")
    browser.wait("!document.querySelector('dialog')")


@pytest.fixture
def logged_in(browser: Chromium, watched: Shop) -> Chromium:
    """The browser, with the token."""
    if browser.evaluate("document.querySelector('[data-action=log-in]')?.innerText") != "Log out":
        browser.open(f"{watched.url}/#/jobs/{watched.id}/overview")
        browser.press("[data-action=log-in]")
        browser.type("[data-dialog=login] input", watched.token)
        browser.press("[data-confirm=log-in]")
        browser.wait("document.querySelector('[data-action=log-in]').innerText === 'Log out'")
    browser.go(f"#/jobs/{watched.id}/overview")
    return browser


def test_dialogs_are_accessible(logged_in: Chromium, axe: Path) -> None:
    for kind in ("checkpoint", "savepoint", "stop", "cancel"):
        logged_in.press(f"[data-action={kind}]")
        logged_in.wait(f"document.querySelector('[data-dialog={kind}][open]')")
        assert axe_faults(logged_in, axe, "dialog") == [], kind
        logged_in.key("Escape")
        logged_in.wait("!document.querySelector('dialog')")


def test_a_checkpoint_is_taken_when_it_is_confirmed(logged_in: Chromium, watched: Shop) -> None:
    storage: Any = logged_in.evaluate(
        "JSON.stringify([{...localStorage}, {...sessionStorage}, document.cookie, location.href])"
    )
    assert watched.token not in storage
    assert not [url for url in logged_in.asked if watched.token in url]
    logged_in.press("[data-action=checkpoint]")
    logged_in.press("[data-confirm=checkpoint]")
    text = logged_in.text("[data-note=good] b")
    number = int(text.removeprefix("Checkpoint ").removesuffix(" is complete."))
    assert watched.ask(f"/checkpoints/details/{number}")["status"] == "COMPLETED"


def test_a_savepoint_goes_where_it_is_told(logged_in: Chromium, watched: Shop) -> None:
    logged_in.press("[data-action=savepoint]")
    target = watched.folder / "savepoints"
    logged_in.type("[data-dialog=savepoint] input[name=directory]", f"file://{target}")
    logged_in.press("[data-confirm=savepoint]")
    place = logged_in.text("[data-note=good] pre").strip()
    assert str(target) in place
    assert list(target.glob("*/_metadata"))
    assert watched.ask()["state"] == "RUNNING"


def test_stopping_takes_a_savepoint_and_ends_the_job(logged_in: Chromium, watched: Shop) -> None:
    logged_in.press("[data-action=stop]")
    target = watched.folder / "stopped"
    logged_in.type("[data-dialog=stop] input[name=directory]", f"file://{target}")
    logged_in.press("[data-confirm=stop]")
    logged_in.wait(
        "[...document.querySelectorAll('[data-note=good]')].some((one) => one.innerText.includes('stopped'))"
    )
    assert list(target.glob("*/_metadata"))
    assert ended(watched.job) == "FINISHED"
    logged_in.wait("document.querySelector('.job-head .badge').innerText === 'FINISHED'")
    logged_in.go(f"#/jobs/{watched.id}/charts")
    assert logged_in.wait("document.querySelector('[data-chart]')"), "what was remembered stays"


PROGRAM = """
import sys

from firesteel.datastream import StreamExecutionEnvironment

env = StreamExecutionEnvironment.get_execution_environment()
env.from_sequence(1, int(sys.argv[1])).map(lambda i: i).name("uploaded").print()
env.execute(" ".join(sys.argv[2:]))
"""


def test_a_program_is_uploaded_looked_at_run_and_run_again(
    logged_in: Chromium, watched: Shop, axe: Path, tmp_path: Path
) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    logged_in.go("#/submit")
    logged_in.choose_file("[data-upload]", tmp_path / "program.py")
    logged_in.press("table[data-name=programs] tbody tr[data-row]")
    logged_in.type("[data-card=run] input[name=arguments]", '10 "by hand"')
    logged_in.press("[data-action=plan]")
    assert "uploaded" in logged_in.text("[data-card=run] .graph")
    logged_in.press("[data-action=run]")
    assert axe_faults(logged_in, axe, "dialog") == []
    logged_in.press("[data-confirm=run]")
    job = logged_in.wait("location.hash.match(/jobs.([0-9a-f]{32})/)?.[1]")
    assert logged_in.text(".job-head h1").startswith("by hand")
    logged_in.wait("document.querySelector('.job-head .badge').innerText === 'FINISHED'", 60)
    with urlopen(f"{watched.url}/jobs/{job}") as answer:
        assert json.load(answer)["name"] == "by hand"
    logged_in.press("[data-action=again]")
    assert "10 by hand" in logged_in.text("[data-dialog=again] p")
    assert axe_faults(logged_in, axe, "dialog") == []
    logged_in.press("[data-confirm=again]")
    logged_in.wait(f"location.hash.includes('jobs') && !location.hash.includes('{job}')", 60)
    assert logged_in.text(".job-head h1").startswith("by hand"), "with the same arguments"


def test_cancelling_asks_first(browser: Chromium, watched: Shop) -> None:
    other: Any = shop(watched.folder)
    browser.go(f"#/jobs/{other.get_job_id()}/overview")
    browser.press("[data-action=cancel]")
    browser.wait("document.querySelector('dialog[open]')")
    browser.key("Escape")
    browser.wait("!document.querySelector('dialog')")
    assert not other.get_job_status().result().is_terminal_state()
    browser.press("[data-action=cancel]")
    browser.press("[data-confirm=cancel]")
    assert ended(other) == "CANCELED"
    browser.wait("document.querySelector('.job-head .badge').innerText === 'CANCELED'")
    until(lambda: rows(browser, "vertices"), "vertices of a job that has ended")
