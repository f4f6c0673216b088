"""Programs in the style in which people write them, run in both modes; they lie in tests/corpus.

What is in them on purpose: dicts from JSON, ``None`` and a filter behind it, names of PyFlink 1.x, ``if __name__`` and
none, argparse and bare ``sys.argv``, globals of the module, logging, records of enums, UUIDs, named tuples, dataclasses
that hold themselves, decimals and arrays. They are texts of PyFlink: one word of their imports is changed.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.conftest import RunProgram
from tests.docs.test_pyflink_programs import IMPORT

CORPUS = Path(__file__).parents[1] / "corpus"
MODES = ("STREAMING", "BATCH")
EXPECTED = {
    "orders_from_json": """
        sum> ('ann', 1300)
        sum> ('bob', 300)
        sum> ('cleo', 725)
        tag> (ann,app)
        tag> (ann,new)
    """,
    "visits_with_timers": """
        {'user': 'ann', 'pages': ['/', '/pay', '/cart', '/']}
        {'user': 'bob', 'pages': ['/', '/help']}
    """,
    "deduplicated_events": """
        (0, 'CLOSED', True, True, 0)
        (1, 'OPEN', True, True, 1)
        (2, 'CLOSED', True, True, 2)
        (3, 'OPEN', True, True, 3)
    """,
    "rules_by_broadcast": """
        {"amount": 11, "user": "bob"}
        {"amount": 25, "user": "ann"}
        {"amount": 9, "user": "cleo"}
    """,
    "top_products": """
        0: a x4
        0: c x3
        5000: b x3
        5000: c x4
    """,
    "late_readings": """
        broken> '': VALUEERROR
        broken> 'A,X,3': VALUEERROR
        mean> ('a', 0, 2.0)
        mean> ('a', 8000, 1.0)
        mean> ('b', 0, 2.0)
        mean> ('b', 2000, 4.0)
    """,
    "accounts_from_csv": """
        ('DE1', '2024-01', '10.10')
        ('DE1', '2024-02', '0.20')
        ('DE1', '2024-02', '1.205')
        ('DE2', '2024-01', '-3.33')
    """,
    "scores_of_a_model": """
        ('n1', 9.0)
        ('n2', 10.5)
    """,
    "matched_payments": """
        (i1,2)
        (i2,4)
        (i3,6)
        due> ('Invoice', 'i0', 'even')
        due> ('Invoice', 'i1', 'odd')
        due> ('Invoice', 'i2', 'even')
        due> ('Invoice', 'i3', 'odd')
    """,
}
COUNTS = {
    "STREAMING": ["dog=1", "fox=1", "fox=2", "lazy=1", "quick=1"],
    "BATCH": ["dog=1", "fox=2", "lazy=1", "quick=1"],
}
"""Of ``word_count_of_old``: a stream gives each step of a count."""


def texts(output: str) -> list[str]:
    """Lines without the numbers of subtasks, in an order of their own."""
    rows = []
    for line in output.strip().splitlines():
        head, arrow, rest = line.strip().partition("> ")
        name = head.partition(":")[0]
        rows.append(line.strip() if not arrow else rest if name.isdecimal() else f"{name}> {rest}")
    return sorted(rows)


def ported(name: str, folder: Path) -> Path:
    """The program with the other word in its imports, and nothing else changed."""
    program = folder / f"{name}.py"
    program.write_text(IMPORT.sub(r"\1firesteel", (CORPUS / f"{name}.py.txt").read_text()))
    return program


def test_all_are_run() -> None:
    assert {path.name.removesuffix(".py.txt") for path in CORPUS.iterdir()} == {*EXPECTED, "word_count_of_old"}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", EXPECTED)
def test_programs_give_what_their_authors_expect(
    name: str, mode: str, tmp_path: Path, run_together: RunProgram
) -> None:
    process = run_together(ported(name, tmp_path), "--mode", mode)
    assert process.returncode == 0, process.stderr
    assert texts(process.stdout) == texts(EXPECTED[name])


@pytest.mark.smoke
@pytest.mark.parametrize("mode", MODES)
def test_words_are_printed_and_written(mode: str, tmp_path: Path, run_together: RunProgram) -> None:
    process = run_together(ported("word_count_of_old", tmp_path), "--mode", mode)
    assert process.returncode == 0, process.stderr
    assert texts(process.stdout) == COUNTS[mode]
    parts = [path for path in (tmp_path / "counts").rglob("words-*") if path.is_file()]
    assert sorted(line for path in parts for line in path.read_text().split()) == COUNTS[mode]
