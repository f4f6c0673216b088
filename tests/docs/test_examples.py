"""The Python blocks of README.md and docs/: those marked to run are run, and print what the page shows.

In a page, the line `<!-- run -->` before a Python block makes it a program that must end with code 0. If the next block
is introduced by `<!-- output -->`, the program's stdout must be that text; `<!-- output: unordered -->` compares lines
whatever their order. `<!-- file: name -->` before a block of any language puts it beside the programs of its page; a
`pyproject.toml` among these files has their entry points declared as installing them would. Every other Python block
must at least compile.
"""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.distributions import files_of, install
from tests.docs.conftest import RunProgram

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(path for path in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")] if path.exists())
BLOCK = re.compile(
    r"(?:^<!-- (?P<mark>run|output|output: unordered) -->\n+)?^```(?P<language>\w*)[^\n]*\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


@dataclasses.dataclass
class Example:
    """A Python block of a page."""

    place: str
    code: str
    runs: bool
    output: str | None = None
    ordered: bool = True
    files: dict[str, str] = dataclasses.field(default_factory=dict)
    """Beside the program: all files of the page."""


def examples_of(place: str, text: str) -> Iterator[Example]:
    """The Python blocks of a page with the output that follows each."""
    current: Example | None = None
    files = files_of(text)
    for match in BLOCK.finditer(text):
        mark = match["mark"] or ""
        line = text.count("\n", 0, match.start("language")) + 1
        if mark.startswith("output"):
            if current is None or not current.runs:
                raise ValueError(f"{place}:{line}: output of no program")
            current.output, current.ordered = match["text"], mark == "output"
        if current is not None:
            yield current
            current = None
        if match["language"] == "python":
            current = Example(f"{place}:{line}", match["text"], runs=mark == "run", files=files)
        elif mark == "run":
            raise ValueError(f"{place}:{line}: only Python blocks are run")
    if current is not None:
        yield current


EXAMPLES = [
    example for page in PAGES for example in examples_of(str(page.relative_to(ROOT)), page.read_text(encoding="utf-8"))
]


def check(example: Example, folder: Path, run: Callable[[Path], subprocess.CompletedProcess[str]]) -> None:
    for name, text in example.files.items():
        (folder / name).write_text(text, encoding="utf-8")
    if "pyproject.toml" in example.files:
        install(folder, folder)
    program = folder / "program.py"
    program.write_text(example.code, encoding="utf-8")
    process = run(program)
    assert process.returncode == 0, f"{example.place} failed:\n{process.stderr}"
    if example.output is not None:
        printed, shown = process.stdout.splitlines(), example.output.splitlines()
        assert (printed if example.ordered else sorted(printed)) == (shown if example.ordered else sorted(shown))


def test_the_first_example_runs_by_itself(tmp_path: Path) -> None:
    first = next(example for example in EXAMPLES if example.runs and example.output is not None)

    def run(path: Path) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, path.name]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, stdin=subprocess.DEVNULL)

    check(first, tmp_path, run)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("example", [one for one in EXAMPLES if one.runs], ids=lambda example: example.place)
def test_example_does_what_the_page_shows(example: Example, tmp_path: Path, run_together: RunProgram) -> None:
    check(example, tmp_path, run_together)


@pytest.mark.parametrize("example", [one for one in EXAMPLES if not one.runs], ids=lambda example: example.place)
def test_other_blocks_are_python(example: Example) -> None:
    compile(example.code, example.place, "exec")


def test_blocks_are_found() -> None:
    page = "<!-- run -->\n```python\nprint(1)\n```\ntext\n\n<!-- output -->\n```text\n1\n```\n\n```python\nx = 1\n```\n"
    first, second = examples_of("page", page)
    assert (first.place, first.code, first.runs, first.output, first.ordered) == (
        "page:2",
        "print(1)\n",
        True,
        "1\n",
        True,
    )
    assert (second.code, second.runs, second.output) == ("x = 1\n", False, None)
    with pytest.raises(ValueError, match="page:2: output of no program"):
        list(examples_of("page", "<!-- output: unordered -->\n```text\n1\n```\n"))


def test_files_of_a_page_lie_beside_its_programs() -> None:
    page = "<!-- run -->\n```python\nimport a\n```\n\n<!-- file: a.py -->\n```python\nx = 1\n```\n"
    program, module = examples_of("page", page)
    assert (program.runs, module.runs, program.files) == (True, False, {"a.py": "x = 1\n"})
