"""The queries of TPC-H: all are planned, and no join compares all rows with all others but with a single one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from firesteel_sql.plan.optimizer import optimised
from firesteel_sql.plan.relations import Filter, Projection, Relation
from firesteel_sql.plan.stateful_relations import GroupBy, Join
from tests.unit.sql.planning import bound, declared


def read_queries() -> dict[str, str]:
    text = (Path(__file__).parent / "tpch.sql").read_text()
    _, *parts = re.split(r"^-- (\w+)\n", text, flags=re.MULTILINE)
    return {name: sql.strip() for name, sql in zip(parts[::2], parts[1::2], strict=True)}


QUERIES = read_queries()
CATALOGS = declared(QUERIES.pop("tables"))


def has_one_row(relation: Relation) -> bool:
    while isinstance(relation, (Projection, Filter)):
        relation = relation.input
    return isinstance(relation, GroupBy) and not relation.groups


@pytest.mark.parametrize("name", QUERIES)
def test_a_query_is_planned_with_keys_for_its_joins(name: str) -> None:
    relation = bound(QUERIES[name], CATALOGS)
    (better,) = optimised([relation])
    assert [(column.name, column.type) for column in better.columns] == [
        (column.name, column.type) for column in relation.columns
    ]
    joins = {id(part): part for part in better.walk() if isinstance(part, Join)}.values()
    assert [join.text() for join in joins if not join.keys and not has_one_row(join.right)] == []
