"""Walks all pages of a dashboard: whatever navigation, links and rows lead to, light, dark and on a phone.

No page is listed here, so none can be forgotten: a page is reached from another one, or nobody would see it.
"""

from __future__ import annotations

import json
import os
import re
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.servers.browser.chromium import Chromium

PHONE: Final = (390, 844)
DESK: Final = (1280, 900)
_ALL_RULES: Final = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"], "resultTypes": ["violations"]}
_CONTRAST: Final = {"runOnly": {"type": "rule", "values": ["color-contrast"]}, "resultTypes": ["violations"]}
_SOME: Final = {"overview", "exceptions", "timeline", "logs"}
"""Pages of a job that are looked at for an example of each kind; the others for the running one."""
_LOADED: Final = (
    "document.querySelector('main h1') && ![...document.querySelectorAll('main .empty')]"
    ".some((one) => one.innerText.startsWith('Loading'))"
)
_DRAWN: Final = "new Promise((done) => requestAnimationFrame(() => setTimeout(() => done(true), 60)))"
_LINKS: Final = '[...document.querySelectorAll(\'nav a[href^="#/"], main a[href^="#/"]\')].map((one) => one.hash)'
_TABLES: Final = "document.querySelectorAll('main table tbody tr.opens:first-of-type, main [data-opens]').length"
_OPEN: Final = (
    "[...document.querySelectorAll('main table tbody tr.opens:first-of-type, main [data-opens]')][{}]?.click()"
)
_SIDEWAYS: Final = """[...document.querySelectorAll('*')].filter((one) => one.scrollWidth > one.clientWidth + 1
    && (one === document.documentElement || ['auto', 'scroll'].includes(getComputedStyle(one).overflowX))
    && one.checkVisibility()).map((one) => `${one.tagName}.${one.className} ${one.scrollWidth} > ${one.clientWidth}`)"""
# Pictures whose proportions are what they say may have targets of any size (WCAG 2.5.8, "essential").
_AXE: Final = """axe.run(document, %s).then(({ violations }) => violations.flatMap((rule) => {
    const isPicture = (node) => document.querySelector(node.target[0])?.closest('.flames, .strip');
    const nodes = rule.nodes.filter((node) => rule.id !== 'target-size' || !isPicture(node));
    const why = (node) => node.any.concat(node.all, node.none).map((check) => check.message).join('; ').slice(0, 200);
    const shown = nodes.slice(0, 3).map((node) => `${node.html.slice(0, 160)} ${why(node)}`).join(' | ');
    return nodes.length ? [`${rule.id}: ${shown} (${nodes.length})`] : [];
}))"""


@dataclass
class Walk:
    """A walk through the pages of a dashboard.

    Args:
        browser: shows it.
        axe: the program that checks a page for accessibility.
        jobs: id of each job -> what it is an example of: ``running``, ``failing``, ...
        in_turn: whether axe checks a page in one theme, light and dark in turn, instead of both. Half of the walk's
            processor time is axe's, and colours come from variables that all pages share.
    """

    browser: Chromium
    axe: Path
    jobs: Mapping[str, str]
    in_turn: bool = False
    faults: list[str] = field(default_factory=list)
    """What is wrong, each with the page where it was seen."""
    titles: dict[str, str] = field(default_factory=dict)
    """What the tab of the browser says on each page."""

    def pattern(self, route: str) -> str:
        """A route without what differs between pages of one kind."""
        path = route.partition("?")[0].strip("#/")
        for job_id, kind in self.jobs.items():
            path = path.replace(job_id, kind)
        pieces = re.sub(r"(?<=/)(\d+|[0-9a-f]{32})(?=/|$)", "x", path).split("/")
        if pieces[0] == "taskmanagers" and len(pieces) > 1:
            pieces[1] = "x"
        if "logs" in pieces[1:] and pieces[-1] != "logs":
            pieces[-1] = "x"
        if len(pieces) == 2 and pieces[0] == "jobs" and pieces[1] in self.jobs.values():
            pieces.append("overview")
        if pieces == ["jobmanager"]:
            pieces.append("configuration")
        if pieces == ["taskmanagers", "x"]:
            pieces.append("slots")
        if pieces[0] == "jobs" and len(pieces) > 3:
            pieces[1] = "batch" if pieces[1] == "batch" else "job"  # panels of a stage differ from those of a task
        return "/".join(pieces)

    def go(self) -> list[str]:
        """Visit all pages; returns their patterns."""
        self.browser.evaluate(self.axe.read_text() + ";0")
        queue = deque(["#/overview", *(f"#/jobs/{job}/overview" for job in self.jobs)])
        patterns = [self.pattern(route) for route in queue]
        while queue:
            route = queue.popleft()
            for link in self._visit(route, self.pattern(route)):
                pattern = self.pattern(link)
                if pattern not in patterns and not self._is_like_another(pattern):
                    patterns.append(pattern)
                    queue.append(link)
        same = {title for title in self.titles.values() if list(self.titles.values()).count(title) > 1}
        self.faults += [
            f"{pattern}: another page is called {title!r}, too"
            for pattern, title in self.titles.items()
            if title in same
        ]
        return patterns

    def _is_like_another(self, pattern: str) -> bool:
        section, job, *rest = [*pattern.split("/"), "", ""]
        is_other_job = section == "jobs" and job == "x"  # of a test that came before
        return is_other_job or (job in self.jobs.values() and job != "running" and rest[0] not in _SOME)

    def _visit(self, route: str, pattern: str) -> list[str]:
        browser = self.browser
        seen = len(browser.problems)
        browser.go(route.removeprefix("#"))
        browser.wait(_LOADED)
        browser.wait(_DRAWN)
        title, heads = browser.evaluate("[document.title, document.querySelectorAll('h1').length]")
        self.titles[pattern] = title
        self._expect(pattern, heads == 1, f"{heads} titles of first order")
        if self.in_turn:
            self._look(pattern, ("light", "dark")[len(self.titles) % 2], _ALL_RULES)
        else:
            self._look(pattern, "light", _ALL_RULES)
            self._look(pattern, "dark", _CONTRAST)
        self._theme("light")
        browser.size(*PHONE)
        browser.wait(_DRAWN)
        sideways = browser.evaluate(_SIDEWAYS)
        self._expect(f"{pattern}, phone", not sideways, f"scrolls sideways: {sideways}")
        self._shot(pattern, "phone")
        browser.size(*DESK)
        routes = browser.evaluate(_LINKS)
        for index in range(browser.evaluate(_TABLES)):
            browser.evaluate(_OPEN.format(index))
            opened = browser.evaluate("location.hash")
            if opened != route:
                routes.append(opened)
                browser.go(route.removeprefix("#"))
                browser.wait(_LOADED)
        errors = [problem for problem in browser.problems[seen:] if "404" not in problem]
        self._expect(pattern, not errors, str(errors))
        return list(dict.fromkeys(routes))

    def _look(self, pattern: str, theme: str, rules: Any) -> None:
        """Have axe check the page in a theme."""
        self._theme(theme)
        faults = self.browser.evaluate(_AXE % json.dumps(rules))
        self.faults += [f"{pattern}, {theme}: {fault}" for fault in faults]
        self._shot(pattern, theme)

    def _theme(self, theme: str) -> None:
        self.browser.media(theme)
        self.browser.wait(f"document.documentElement.dataset.theme === '{theme}'")

    def _expect(self, where: str, is_so: bool, fault: str) -> None:
        if not is_so:
            self.faults.append(f"{where}: {fault}")

    def _shot(self, pattern: str, kind: str) -> None:
        if folder := os.environ.get("FIRESTEEL_TEST_SCREENSHOTS"):
            self.browser.screenshot(Path(folder) / f"page-{pattern.replace('/', '-')}-{kind}.png", whole=True)


def axe_faults(browser: Chromium, axe: Path, within: str = "body") -> list[str]:
    """What axe finds in a part of what is shown now, such as an open dialog; ``within``: selects it."""
    if not browser.evaluate("'axe' in window"):
        browser.evaluate(axe.read_text() + ";0")
    browser.wait(_DRAWN)
    check = (_AXE % json.dumps(_ALL_RULES)).replace("axe.run(document", f"axe.run({json.dumps(within)}", 1)
    return [str(fault) for fault in browser.evaluate(check)]
