"""The Python blocks of README.md, docs/ and docstrings: those marked to run are run, and print what is shown.

In a page, the line `<!-- run -->` before a Python block makes it a program that must end with code 0. If the next block
is introduced by `<!-- output -->`, the program's stdout must be that text; `<!-- output: unordered -->` compares lines
whatever their order. `<!-- file: name -->` before a block of any language puts it beside the programs of its page; a
`pyproject.toml` among these files has their entry points declared as installing them would. Every other Python block
must at least compile.

In a docstring of the public packages each Python block below ``Examples:`` is such a program, and the text block behind
it is what it prints; without one it prints nothing.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
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


def examples_of_docstrings(place: str, code: str) -> Iterator[Example]:
    """The programs in the docstrings of a module."""
    for node in ast.walk(ast.parse(code)):
        if not isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        section = re.search(r"^Examples:\n((?: {4}.*\n?|\n)+)", ast.get_docstring(node) or "", re.MULTILINE)
        if section is None:
            continue
        text = inspect.cleandoc(section[1]) + "\n"
        text = re.sub(r"^```python$", "<!-- run -->\n```python", text, flags=re.MULTILINE)
        text = re.sub(r"^```text$", "<!-- output -->\n```text", text, flags=re.MULTILINE)
        for example in examples_of(place, text):
            name = getattr(node, "name", "")
            yield dataclasses.replace(example, place=f"{place}::{name}", output=example.output or "")


PUBLIC = [
    *(f"libs/firesteel/src/firesteel/{package}" for package in ("common", "connectors", "datastream", "functions")),
    *(f"libs/firesteel/src/firesteel/{package}" for package in ("testing", "windowing")),
    *(f"libs/firesteel-{name}/src" for name in ("formats", "jdbc", "kafka")),
]
DOCSTRINGS = [
    example
    for folder in PUBLIC
    for path in sorted((ROOT / folder).rglob("*.py"))
    for example in examples_of_docstrings(str(path.relative_to(ROOT)), path.read_text(encoding="utf-8"))
]
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


@pytest.mark.long  # with others: below; programs by themselves: embedded/test_places.py and client/test_wheels.py
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


@pytest.mark.parametrize("example", DOCSTRINGS, ids=lambda example: example.place)
def test_example_of_a_docstring_does_what_it_shows(example: Example, tmp_path: Path, run_together: RunProgram) -> None:
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


def test_examples_of_docstrings_are_programs_with_their_output() -> None:
    code = '''class Thing:
    """A thing.

    Examples:
        ```python
        print(1)
        ```

        ```text
        1
        ```
    """

    def method(self):
        """Prints nothing.

        Examples:
            ```python
            x = 1
            ```
        """
'''
    first, second = examples_of_docstrings("module.py", code)
    assert (first.place, first.code, first.runs, first.output) == ("module.py::Thing", "print(1)\n", True, "1\n")
    assert (second.place, second.code, second.runs, second.output) == ("module.py::method", "x = 1\n", True, "")
