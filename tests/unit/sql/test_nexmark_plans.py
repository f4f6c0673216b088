"""The queries of Nexmark: all are planned, with the operators that they need, in milliseconds."""

from __future__ import annotations

import re
import time
from collections import Counter
from pathlib import Path

import pytest

from firesteel_sql.plan.changes import changelog_mode, keeps_state
from firesteel_sql.plan.optimizer import optimised
from firesteel_sql.plan.relations import Relation
from firesteel_sql.plan.stateful_relations import GroupBy, Join, LookupJoin, Over, Rank, WindowKind, WindowTable
from tests.unit.sql.planning import bound, declared


def read_queries() -> dict[str, str]:
    text = (Path(__file__).parent / "nexmark.sql").read_text()
    _, *parts = re.split(r"^-- (\w+).*\n", text, flags=re.MULTILINE)
    return {name: sql.strip() for name, sql in zip(parts[::2], parts[1::2], strict=True)}


QUERIES = read_queries()
CATALOGS = declared(QUERIES.pop("tables"))

OPERATORS: dict[str, tuple[list[str], str]] = {
    **{f"q{number}": ([], "[I]") for number in (0, 1, 2, 10, 14, 21, 22)},
    "q3": (["Join"], "[I]"),
    "q4": (["GroupBy", "GroupBy", "Join"], "[I,UB,UA,D]"),
    "q5": (["Join window", "GroupBy window", "GroupBy window", "HOP"], "[I]"),
    "q6": (["Over", "Rank", "Join"], "[I,UB,UA,D]"),
    "q7": (["Join", "GroupBy window", "TUMBLE"], "[I]"),
    "q8": (["Join window", "GroupBy window", "GroupBy window", "TUMBLE", "TUMBLE"], "[I]"),
    "q9": (["Rank", "Join"], "[I,UB,UA,D]"),
    "q11": (["GroupBy window", "SESSION"], "[I]"),
    "q12": (["GroupBy window", "TUMBLE"], "[I]"),
    "q13": (["LookupJoin"], "[I]"),
    **{f"q{number}": (["GroupBy"], "[I,UB,UA]") for number in (15, 16, 17)},
    **{f"q{number}": (["Rank"], "[I,UB,UA,D]") for number in (18, 19)},
    "q20": (["Join"], "[I]"),
}


def operator_of(relation: Relation) -> str | None:
    match relation:
        case WindowTable():
            return relation.kind.value
        case GroupBy() | Join() | Rank() | Over() | LookupJoin():
            window = getattr(relation, "window", None)
            return type(relation).__name__ + ("" if window is None else " window")
    assert not keeps_state(relation)
    return None


@pytest.mark.parametrize("name", QUERIES)
def test_a_query_is_planned(name: str) -> None:
    relation = bound(QUERIES[name], CATALOGS)
    (better,) = optimised([relation])
    assert [(column.name, column.type) for column in better.columns] == [
        (column.name, column.type) for column in relation.columns
    ]
    distinct_parts = {id(part): part for part in better.walk()}.values()  # shared ones once
    operators = Counter(operator for part in distinct_parts if (operator := operator_of(part)))
    expected, mode = OPERATORS[name]
    assert (operators, str(changelog_mode(better))) == (Counter(expected), mode)


def test_planning_takes_milliseconds() -> None:
    def seconds(sql: str) -> float:
        start = time.process_time()
        optimised([bound(sql, CATALOGS)])
        return time.process_time() - start

    for sql in QUERIES.values():
        seconds(sql)  # imports and caches
    slowest = max((min(seconds(sql) for _ in range(3)), name) for name, sql in QUERIES.items())
    assert slowest[0] < 0.1, slowest  # about 0.01 on a quiet machine


def test_windows_have_their_lengths() -> None:
    (hop,) = [part for part in bound(QUERIES["q11"], CATALOGS).walk() if isinstance(part, WindowTable)]
    assert (hop.kind, hop.size, len(hop.partition)) == (WindowKind.SESSION, 10_000, 1)
