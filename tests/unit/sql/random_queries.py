"""Random queries that mean the same in Flink's dialect and in DuckDB's, over three tables."""

from __future__ import annotations

import random
from collections.abc import Callable

TABLES = {
    "a": "id INT, k INT, v INT, s STRING",
    "b": "id INT, k INT, w BIGINT, s STRING",
    "c": "id INT, k INT, x DOUBLE",
}
NUMBERS = {"a": ("k", "v"), "b": ("k", "w"), "c": ("k", "x")}
TEXTS = {"a": ("s",), "b": ("s",), "c": ()}


class RandomQueries:
    """Makes queries.

    Args:
        random_numbers: decides.
    """

    def __init__(self, random_numbers: random.Random) -> None:
        self._random = random_numbers

    def query(self) -> str:
        """A query whose result is determined by the contents of its tables."""
        forms: list[Callable[[], str]] = [
            self._selection,
            self._grouped,
            self._grouped,
            self._joined,
            self._joined,
            self._joined_groups,
            self._grouped_twice,
            self._top,
            self._semi_joined,
            self._scalar,
            self._set_operation,
            self._distinct,
            self._global,
            self._nested_keys,
            self._quantified,
        ]
        return self._random.choice(forms)()

    def _table(self) -> str:
        return self._random.choice(list(TABLES))

    def _number(self, table: str, alias: str) -> str:
        return f"{alias}.{self._random.choice(NUMBERS[table])}"

    def _value(self, table: str, alias: str) -> str:
        return f"{alias}.{self._random.choice((*NUMBERS[table], *TEXTS[table], 'id'))}"

    def _condition(self, table: str, alias: str) -> str:
        pick = self._random.choice
        number = self._number(table, alias)
        conditions = [
            f"{number} {pick(('<', '<=', '>', '>=', '=', '<>'))} {pick((0, 1, 2, 5))}",
            f"{number} IS {pick(('', 'NOT '))}NULL",
            f"{number} BETWEEN 0 AND {pick((1, 3))}",
            f"{number} IN (0, 2, 4)",
            f"COALESCE({number}, 0) > 1",
        ]
        if TEXTS[table]:
            conditions += [f"{alias}.s LIKE 't%'", f"{alias}.s = 'tea'"]
        one = pick(conditions)
        roll = self._random.random()
        if roll < 0.2:
            return f"NOT ({one})"
        return f"({one} {pick(('AND', 'OR'))} {pick(conditions)})" if roll < 0.5 else one

    def _where(self, table: str, alias: str) -> str:
        return f" WHERE {self._condition(table, alias)}" if self._random.random() < 0.5 else ""

    def _aggregate(self, table: str, alias: str) -> str:
        pick = self._random.choice
        value, number = self._value(table, alias), self._number(table, alias)
        call = pick(
            (
                "COUNT(*)",
                f"COUNT({value})",
                f"SUM({number})",
                f"MIN({value})",
                f"MAX({value})",
                f"COUNT(DISTINCT {value})",
                f"SUM(DISTINCT {number})",
                f"AVG(CAST({number} AS DOUBLE))",
            )
        )
        if self._random.random() < 0.2:
            return f"{call} FILTER (WHERE {self._condition(table, alias)})"
        return call

    # -- forms

    def _selection(self) -> str:
        table = self._table()
        items = (
            f"t.id, {self._value(table, 't')} AS one, CASE WHEN {self._condition(table, 't')} THEN 1 ELSE 0 END AS two"
        )
        return f"SELECT {items} FROM {table} AS t{self._where(table, 't')}"

    def _distinct(self) -> str:
        table = self._table()
        return f"SELECT DISTINCT {self._value(table, 't')} AS one, t.k FROM {table} AS t{self._where(table, 't')}"

    def _grouped(self) -> str:
        table = self._table()
        group = self._random.choice(("t.k", f"{self._value(table, 't')}", "t.k, t.id"))
        having = " HAVING COUNT(*) > 1" if self._random.random() < 0.3 else ""
        calls = ", ".join(f"{self._aggregate(table, 't')} AS c{place}" for place in range(self._random.randint(1, 3)))
        return f"SELECT {group}, {calls} FROM {table} AS t{self._where(table, 't')} GROUP BY {group}{having}"

    def _global(self) -> str:
        table = self._table()
        calls = ", ".join(f"{self._aggregate(table, 't')} AS c{place}" for place in range(self._random.randint(1, 3)))
        return f"SELECT {calls} FROM {table} AS t{self._where(table, 't')}"

    def _quantified(self) -> str:
        left, right = self._table(), self._table()
        pick = self._random.choice
        inner = f"SELECT r.{pick(NUMBERS[right])} FROM {right} AS r"
        if self._random.random() < 0.5:
            inner += f" WHERE {pick(('r.k = l.k', self._condition(right, 'r')))}"
        sign, quantifier = pick(("<", "<=", ">", ">=", "=", "<>")), pick(("ALL", "ANY"))
        test = f"{self._number(left, 'l')} {sign} {quantifier} ({inner})"
        if self._random.random() < 0.5:
            return f"SELECT l.id FROM {left} AS l WHERE {test}"
        return f"SELECT l.id, {test} AS q FROM {left} AS l"

    def _nested_keys(self) -> str:
        """Arrays and rows as keys; a part of one that is NULL is equal to NULL."""
        left, right = self._table(), self._table()
        pair = f"ARRAY[t.k, CAST({self._number(left, 't')} AS BIGINT)] AS g"
        rows = f"SELECT t.id, t.k, {pair}, ROW(t.k, {self._value(left, 't')}) AS r FROM {left} AS t"
        return self._random.choice(
            (
                f"SELECT g[1] AS one, g[2] AS two, COUNT(*) AS c, MAX(id) AS m FROM ({rows}) AS n GROUP BY g",
                f"SELECT k, COUNT(DISTINCT r) AS c, COUNT(DISTINCT g) AS d FROM ({rows}) AS n GROUP BY k",
                f"SELECT g[2] AS one, COUNT(*) AS c FROM (SELECT DISTINCT g, r FROM ({rows}) AS n) AS o GROUP BY g[2]",
                f"SELECT id FROM (SELECT id, ROW_NUMBER() OVER (PARTITION BY r ORDER BY id DESC) AS rn "
                f"FROM ({rows}) AS n) AS o WHERE rn <= 2",
                f"SELECT n.id, u.id AS other FROM ({rows}) AS n {self._random.choice(('JOIN', 'LEFT JOIN'))} "
                f"{right} AS u ON n.g = ARRAY[u.k, CAST(u.id AS BIGINT)]",
                f"SELECT g[1] AS one, g[2] AS two FROM (SELECT g FROM ({rows}) AS n "
                f"{self._random.choice(('UNION', 'EXCEPT', 'INTERSECT'))} "
                f"SELECT ARRAY[u.k, CAST({self._number(right, 'u')} AS BIGINT)] FROM {right} AS u) AS o",
            )
        )

    def _join(self) -> tuple[str, str, str]:
        """FROM of two tables, and their names."""
        left, right = self._table(), self._table()
        kind = self._random.choice(("JOIN", "JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"))
        on = "l.k = r.k"
        if kind != "FULL JOIN" and self._random.random() < 0.4:
            on += f" AND {self._number(left, 'l')} {self._random.choice(('<', '>='))} {self._number(right, 'r')}"
        return f"{left} AS l {kind} {right} AS r ON {on}", left, right

    def _joined(self) -> str:
        source, left, right = self._join()
        items = f"l.id, r.id AS other, {self._value(left, 'l')} AS one, {self._value(right, 'r')} AS two"
        return f"SELECT {items} FROM {source}{self._where(left, 'l')}"

    def _joined_groups(self) -> str:
        source, left, right = self._join()
        calls = f"COUNT(*) AS c, {self._aggregate(right, 'r')} AS d, {self._aggregate(left, 'l')} AS e"
        return f"SELECT l.k, {calls} FROM {source} GROUP BY l.k"

    def _grouped_twice(self) -> str:
        table = self._table()
        inner = f"SELECT t.k, {self._aggregate(table, 't')} AS n, COUNT(*) AS m FROM {table} AS t GROUP BY t.k"
        return f"SELECT n, COUNT(*) AS c, MAX(k) AS best, SUM(m) AS total FROM ({inner}) AS g GROUP BY n"

    def _top(self) -> str:
        table = self._table()
        order = f"{self._number(table, 't')} {self._random.choice(('ASC NULLS FIRST', 'DESC NULLS LAST'))}, t.id"
        rank = f"ROW_NUMBER() OVER (PARTITION BY t.k ORDER BY {order})"
        shown = ", rn" if self._random.random() < 0.4 else ""
        limit = self._random.choice(("rn <= 2", "rn = 1", "rn BETWEEN 2 AND 3"))
        return f"SELECT id, k{shown} FROM (SELECT *, {rank} AS rn FROM {table} AS t) AS ranked WHERE {limit}"

    def _semi_joined(self) -> str:
        left, right = self._table(), self._table()
        inner = f"SELECT r.k FROM {right} AS r{self._where(right, 'r')}"
        linked = f"SELECT 1 FROM {right} AS r WHERE r.k = l.k AND {self._condition(right, 'r')}"
        word = self._random.choice(("", "NOT "))
        condition = self._random.choice((f"l.k {word}IN ({inner})", f"{word}EXISTS ({linked})"))
        return f"SELECT l.id, l.k FROM {left} AS l WHERE {condition}"

    def _scalar(self) -> str:
        left, right = self._table(), self._table()
        number = self._random.choice(NUMBERS[right])
        inner = self._random.choice(
            (
                f"SELECT MAX(r.{number}) FROM {right} AS r",
                f"SELECT COUNT(*) FROM {right} AS r WHERE r.k = l.k",
                f"SELECT SUM(r.{number}) FROM {right} AS r WHERE r.k = l.k",
            )
        )
        if self._random.random() < 0.5:
            return f"SELECT l.id, ({inner}) AS q FROM {left} AS l"
        return f"SELECT l.id FROM {left} AS l WHERE {self._number(left, 'l')} < ({inner})"

    def _set_operation(self) -> str:
        left, right = self._table(), self._table()
        word = self._random.choice(("UNION ALL", "UNION", "INTERSECT", "EXCEPT", "INTERSECT ALL", "EXCEPT ALL"))
        first = f"SELECT t.k FROM {left} AS t{self._where(left, 't')}"
        second = f"SELECT u.k FROM {right} AS u{self._where(right, 'u')}"
        return f"{first} {word} {second}"
