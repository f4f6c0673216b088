"""Programs as they are written for PyFlink: one word of their imports is changed, and they give what Flink gives.

They lie beside this file under a name that hides them from the checks of this repository's own code.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.conftest import RunProgram

PROGRAMS = Path(__file__).with_name("pyflink_programs")
IMPORT = re.compile(r"^((?:from|import) )pyflink\b", re.MULTILINE)
EXPECTED = {
    "process_json_data": """
        (2, '{"name": "hello", "tel": 136, "addr": {"country": "China", "city": "Shanghai"}}')
        (4, '{"name": "PyFlink", "tel": 33, "addr": {"country": "China", "city": "Hangzhou"}}')
    """,
    "basic_operations": """
        (1, '{"name": "Flink", "tel": 124, "addr": {"country": "Germany", "city": "Berlin"}}')
        (2, '{"name": "hello", "tel": 136, "addr": {"country": "China", "city": "Shanghai"}}')
        (3, '{"name": "world", "tel": 125, "addr": {"country": "USA", "city": "NewYork"}}')
        (4, '{"name": "PyFlink", "tel": 33, "addr": {"country": "China", "city": "Hangzhou"}}')
        (1, '{"name": "Flink", "tel": 123, "addr": {"country": "Germany", "city": "Berlin"}}')
        ('Germany', 123)
        ('China', 135)
        ('USA', 124)
        ('China', 167)
    """,
    "event_time_timer": """
        ('Bob', 102, 67000)
        ('Alice', 163, 140000)
    """,
    "tumbling_count_window": """
        Printing result to stdout. Use --output to specify output path.
        (hi,4)
        (hello,6)
        (hello,12)
    """,
    "tumbling_time_window": """
        (hi,0,5,4)
        (hi,5,10,3)
        (hi,15,20,1)
    """,
    "sliding_time_window": """
        (hi,-2,3,2)
        (hi,0,5,4)
        (hi,2,7,4)
        (hi,4,9,3)
        (hi,6,11,2)
        (hi,8,13,2)
        (hi,12,17,1)
        (hi,14,19,1)
    """,
    "session_with_gap_window": """
        (hi,1,13,6)
        (hi,15,20,1)
    """,
    "session_with_dynamic_gap_window": """
        (hi,1,18,6)
        (hi,33,66,1)
    """,
    "broadcast_and_connect": """
        broadcast ('rule', 'a')
        broadcast ('rule', 'a')
        broadcast ('rule', 'c')
        broadcast ('rule', 'c')
        co-map ('a', 'x_flink')
        co-map ('a', 2)
        co-map ('a', 4)
        co-map ('b', 3)
        co-map ('c', 'y_flink')
        keyed ('a', 1)
        keyed ('a', 2)
        keyed ('a', 3)
        keyed ('b', 1)
        keyed ('c', 1)
    """,
}


def ported(name: str, folder: Path) -> Path:
    """The program with the other word in its imports, and nothing else changed."""
    text = (PROGRAMS / f"{name}.py.txt").read_text(encoding="utf-8")
    program = folder / f"{name}.py"
    program.write_text(IMPORT.sub(r"\1firesteel", text), encoding="utf-8")
    return program


def lines(text: str) -> list[str]:
    return [line.strip() for line in text.strip().splitlines()]


def test_all_are_run() -> None:
    others = {"word_count", "state_access", "side_output_and_async"}
    assert {path.name.removesuffix(".py.txt") for path in PROGRAMS.iterdir()} == EXPECTED.keys() | others


@pytest.mark.parametrize("name", EXPECTED)
def test_prints_what_flink_prints(name: str, tmp_path: Path, run_together: RunProgram) -> None:
    process = run_together(ported(name, tmp_path))
    assert process.returncode == 0, process.stderr
    assert lines(process.stdout) == lines(EXPECTED[name])


def test_word_count_from_file_to_file(tmp_path: Path, run_together: RunProgram) -> None:
    (tmp_path / "text.txt").write_text("to be or not\nto be\n")
    program = ported("word_count", tmp_path)
    process = run_together(program, "--input", str(tmp_path / "text.txt"), "--output", str(tmp_path / "out"))
    assert process.returncode == 0, process.stderr
    parts = [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
    assert [(path.name[:6], path.suffix) for path in parts] == [("prefix", ".ext")]
    assert parts[0].read_text().split() == ["(to,1)", "(be,1)", "(or,1)", "(not,1)", "(to,2)", "(be,2)"]


def test_floats_of_state_are_those_of_java(tmp_path: Path, run_together: RunProgram) -> None:
    process = run_together(ported("state_access", tmp_path))
    assert process.returncode == 0, process.stderr
    found = [line.partition("> ")[2] or line for line in process.stdout.splitlines()]
    assert sorted(found) == [
        "('Alice', 110.0999984741211)",
        "('Alice', 130.19999885559082)",
        "('Alice', 143.2999973297119)",
        "('Alice', 163.40000343322754)",
        "('Bob', 102.50000190734863)",
        "('Bob', 30.200000762939453)",
        "('Bob', 83.29999923706055)",
        "('Bob', 86.40000295639038)",
    ]


def test_side_output_and_async(tmp_path: Path, run_together: RunProgram) -> None:
    process = run_together(ported("side_output_and_async", tmp_path))
    assert process.returncode == 0, process.stderr
    found = process.stdout.splitlines()
    assert [line for line in found if line.startswith("main")] == ["main> a", "main> b", "main> c"]
    assert [line for line in found if line.startswith("side")] == ["side> 10", "side> 20", "side> 30"]
