"""ARCHITECTURE.md and docs/internals speak of the code as it is: the files and names that they name are there."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tools.site_pages import linked_in_docs

ROOT = Path(__file__).resolve().parents[2]
ARCHITECTURE = ROOT / "ARCHITECTURE.md"
INTERNALS = sorted((ROOT / "docs" / "internals").glob("*.md"))
ROOMS = [page for page in INTERNALS if page.name != "index.md"]
MOST_WORDS = {ARCHITECTURE: 2500, **dict.fromkeys(INTERNALS, 800)}
"""A page that needs more is two pages, or says what the code says."""

SOURCES = (".py", ".java", ".sh", ".ts", ".tsx", ".toml", ".yml", ".yaml")
FILE = re.compile(r"[\w./-]*\w\.(?:py|java|md|sh|svg)\b")
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`([^`\n]+)`")
METHOD = re.compile(r"\b([A-Z]\w+)\.(\w+)\b")
PRIVATE = re.compile(r"(?<![\w.])(_[a-z]\w+)\b(?!\.)")


@cache
def files() -> tuple[str, ...]:
    process = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if process.returncode == 0:
        return tuple(name for name in process.stdout.splitlines() if (ROOT / name).is_file())
    return tuple(path.relative_to(ROOT).as_posix() for path in ROOT.rglob("*.*") if ".venv" not in path.parts)


def named(path: str) -> list[str]:
    """The files, or files in folders, that a path may mean; it may leave out where the path begins."""
    end = f"/{path.removeprefix('../').strip('/')}"
    return [name for name in files() if f"/{name}".endswith(end) or f"{end}/" in f"/{name}"]


@cache
def words() -> frozenset[str]:
    """All words of the code, and of the pages for users: options are named there."""
    texts = [name for name in files() if name.endswith(SOURCES) or re.fullmatch(r"docs/[\w-]+\.md", name)]
    names: set[str] = set()
    for name in texts:
        if name != Path(__file__).relative_to(ROOT).as_posix():
            names.update(re.findall(r"[A-Za-z_]\w*", (ROOT / name).read_text(encoding="utf-8")))
    return frozenset(names)


def missing_names(text: str) -> Iterator[str]:
    """What a text has in backticks that the code does not have."""
    for code in dict.fromkeys(CODE.findall(FENCE.sub("", text))):
        if FILE.fullmatch(code) or re.fullmatch(r"[\w.-]+(?:/[\w.-]+)+/?", code):
            if not named(code) and not named(f"{code}.py"):
                yield code
        elif unknown := [word for word in re.findall(r"[A-Za-z_]\w*", code) if word not in words()]:
            yield f"{code} ({', '.join(unknown)})"


def missing_frames(text: str) -> Iterator[str]:
    """Methods in drawings that the file on their line does not have."""
    for line in (line for fence in FENCE.findall(text) for line in fence.splitlines()):
        for path in FILE.findall(line):
            if not named(path):
                yield path
        sources = [ROOT / name for path in FILE.findall(line) for name in named(path)]
        code = "\n".join(source.read_text(encoding="utf-8") for source in sources if source.suffix == ".py")
        if not code:
            continue
        for owner, method in METHOD.findall(line):
            if not (re.search(rf"^class {owner}\b", code, re.MULTILINE) and re.search(rf"\bdef {method}\b", code)):
                yield f"{owner}.{method}: {line.strip()}"
        for function in PRIVATE.findall(line):
            if not re.search(rf"\bdef {function}\b", code):
                yield f"{function}: {line.strip()}"


@pytest.mark.parametrize("page", MOST_WORDS, ids=lambda page: page.stem)
def test_what_a_page_names_is_there(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert not [*missing_names(text), *missing_frames(text)], "renamed or removed: say what is there now"


@pytest.mark.parametrize("page", MOST_WORDS, ids=lambda page: page.stem)
def test_pages_are_short(page: Path) -> None:
    assert len(page.read_text(encoding="utf-8").split()) <= MOST_WORDS[page]


@pytest.mark.parametrize("page", ROOMS, ids=lambda page: page.stem)
def test_a_room_says_where_to_begin_what_holds_and_why(page: Path) -> None:
    headings = re.findall(r"^## (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert {"Start reading", "Invariants", "Why not otherwise"} <= set(headings)
    assert f"]({page.name})" in (page.parent / "index.md").read_text(encoding="utf-8")


def test_files_that_contributing_names_are_there() -> None:
    codes = CODE.findall(FENCE.sub("", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")))
    paths = [code for code in codes if "/" in code and FILE.fullmatch(code)]
    assert len(paths) > 6
    assert not [path for path in paths if not named(path)]


def test_names_that_are_gone_are_found() -> None:
    assert list(missing_names("`runtime/loop/loop.py`, `TaskLoop`, `core.py`, `tests/house`")) == []
    assert list(missing_names("`runtime/loop/lopo.py` and `StreamTask.stand" + "_stiller`")) == [
        "runtime/loop/lopo.py",
        "StreamTask.stand" + "_stiller (stand" + "_stiller)",
    ]
    drawn = "```\n TaskLoop.run_once  loop/loop.py\n TaskLoop.run_{}  loop/loop.py\n _{}   loop/loop.py\n```"
    assert [frame.partition(":")[0] for frame in missing_frames(drawn.format("twice", "nothing"))] == [
        "TaskLoop.run_twice",
        "_nothing",
    ]


def test_links_between_the_root_and_the_docs_hold_on_the_site() -> None:
    text = "[a](docs/internals/ha.md) ![b](docs/images/m.svg) [c](CHANGELOG.md#x) [d](benchmarks/README.md) [e](#here)"
    assert linked_in_docs(text, "ARCHITECTURE.md") == (
        "[a](internals/ha.md) ![b](images/m.svg) [c](changelog.md#x) [d](benchmarks.md) [e](#here)"
    )
    assert linked_in_docs("[a](../../ARCHITECTURE.md#b) [c](ha.md)", "docs/internals/state.md") == (
        "[a](../architecture.md#b) [c](ha.md)"
    )
    assert linked_in_docs("[`w1`](results/w1.json)", "benchmarks/README.md") == "`w1`", "files are not on the site"
