"""Random queries within queries: joins, conditions on outer columns, sets and groups, some levels deep."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

_DEEPEST = 2
"""Levels of queries at which conditions and sources get simple."""


class NestedQueries:
    """Makes queries whose results are determined by the contents of their tables.

    Args:
        random_numbers: decides.
        tables: names of columns that hold whole numbers, by table.
    """

    def __init__(self, random_numbers: random.Random, tables: Mapping[str, Sequence[str]]) -> None:
        self._random = random_numbers
        self._tables = {table: list(columns) for table, columns in tables.items()}
        self._aliases = 0

    def query(self) -> str:
        """A query."""
        self._aliases = 0
        return self._select(0, (), 2)

    def _happens(self, probability: float) -> bool:
        return self._random.random() < probability

    def _alias(self) -> str:
        self._aliases += 1
        return f"t{self._aliases}"

    def _table(self) -> tuple[str, list[str]]:
        """A table under a name of its own, and its columns."""
        table, alias = self._random.choice(list(self._tables)), self._alias()
        return f"{table} {alias}", [f"{alias}.{column}" for column in self._tables[table]]

    def _value(self, columns: Sequence[str], depth: int = 0) -> str:
        pick, chance = self._random.choice, self._random.random()
        if chance < 0.6 or depth > 1:
            return pick(columns)
        if chance < 0.75:
            return str(pick(range(5)))
        if chance < 0.9:
            return f"({self._value(columns, depth + 1)} {pick('+-*')} {self._value(columns, depth + 1)})"
        return f"COALESCE({pick(columns)}, {pick(range(5))})"

    def _condition(
        self, columns: Sequence[str], depth: int, outer: Sequence[str] = (), *, has_queries: bool = True
    ) -> str:
        """A condition over columns and those of the query around."""
        pick, chance = self._random.choice, self._random.random()
        word = pick(("", "NOT "))
        if chance < 0.4:
            sign = pick(("=", "<", ">", "<>", ">=", "<="))
            return f"{self._value(columns)} {sign} {self._value([*columns, *outer])}"
        if chance < 0.5:
            return f"{pick(columns)} IS {word}NULL"
        if chance < 0.58:
            return f"{pick(columns)} {word}IN ({pick(range(5))}, {pick(range(5))}{pick(('', ', NULL'))})"
        if depth >= _DEEPEST:
            return f"{pick(columns)} = {pick(range(5))}"
        if chance < 0.75:
            left, right = (self._condition(columns, depth + 1, outer, has_queries=has_queries) for _ in range(2))
            return f"({left} {pick(('AND', 'AND', 'OR'))} {right})"
        if chance < 0.8 or not has_queries:
            return f"NOT ({self._condition(columns, depth + 1, outer, has_queries=has_queries)})"
        chance = self._random.random()
        if chance < 0.25:
            return f"{self._value(columns)} {pick(('=', '<', '>'))} ({self._scalar(columns)})"
        query = self._select(depth + 2, columns, 1)
        return f"{word}EXISTS ({query})" if chance < 0.5 else f"{self._value(columns)} {word}IN ({query})"

    def _scalar(self, outer: Sequence[str]) -> str:
        """A query of one row."""
        source, columns = self._table()
        column = self._random.choice(columns)
        results = ("COUNT(*)", f"SUM({column})", f"MAX({column})", "COUNT(*) + 1", f"MIN({column}) - COUNT(*)")
        condition = self._condition(columns, _DEEPEST, outer)
        having = " HAVING COUNT(*) > 1" if self._happens(0.15) else ""
        return f"SELECT {self._random.choice(results)} FROM {source} WHERE {condition}{having}"

    def _source(self, depth: int) -> tuple[str, list[str]]:
        if depth >= _DEEPEST or not self._happens(0.25):
            return self._table()
        width = self._random.choice((2, 3))
        query, alias = self._select(depth + 1, (), width), self._alias()
        return f"({query}) {alias}", [f"{alias}.c{place}" for place in range(width)]

    def _joined(self, depth: int) -> tuple[str, list[str]]:
        pick = self._random.choice
        source, columns = self._source(depth)
        for _ in range(pick((0, 0, 1, 1, 2) if depth < _DEEPEST else (0, 0, 1))):
            other, other_columns = self._source(depth + 1)
            kind = pick(("", "", "LEFT ", "LEFT ", "RIGHT ", "FULL "))
            condition = f"{pick(columns)} = {pick(other_columns)}"
            columns = [*columns, *other_columns]
            if kind != "FULL " and self._happens(0.4):  # DuckDB has no other conditions there
                condition += f" AND {self._condition(columns, 1, has_queries=False)}"
            source = f"{source} {kind}JOIN {other} ON {condition}"
        return source, columns

    def _select(self, depth: int, outer: Sequence[str], width: int) -> str:
        """A query with columns ``c0``, ``c1`` and so on."""
        pick = self._random.choice
        if depth < _DEEPEST and self._happens(0.1):
            operator = pick(("UNION", "UNION ALL") if outer else ("UNION ALL", "INTERSECT", "EXCEPT", "EXCEPT ALL"))
            return f"({self._select(depth + 1, outer, width)}) {operator} ({self._select(depth + 1, outer, width)})"
        source, columns = self._joined(depth)
        where = ""
        if outer or self._happens(0.7):
            where = f" WHERE {self._condition(columns, max(depth, 1) if outer else depth, outer)}"
        names = [f"c{place}" for place in range(width)]
        suffix = ""
        if self._happens(0.2):
            keys = [pick(columns) for _ in range(width - 1)]
            column = pick(columns)
            results = ("COUNT(*)", f"SUM({column})", f"MIN({column})", f"COUNT(DISTINCT {column})")
            items = [*keys, pick(results)]
            if keys:
                suffix = f" GROUP BY {', '.join(keys)}" + (" HAVING COUNT(*) > 1" if self._happens(0.3) else "")
        else:
            items = [self._value(columns) for _ in range(width)]
            if depth == 0 and self._happens(0.3):
                items[-1] = f"({self._scalar(columns)})"
            if depth == 0 and self._happens(0.1):
                items[0] = f"CASE WHEN {self._condition(columns, 1)} THEN 1 ELSE 0 END"
        word = "DISTINCT " if not suffix and self._happens(0.15) else ""
        shown = ", ".join(f"{item} AS {name}" for item, name in zip(items, names, strict=True))
        return f"SELECT {word}{shown} FROM {source}{where}{suffix}"
