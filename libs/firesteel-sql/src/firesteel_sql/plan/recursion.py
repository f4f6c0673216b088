"""WITH RECURSIVE as relations."""

from __future__ import annotations

from dataclasses import dataclass

from typing_extensions import override

from firesteel_sql.plan.relations import Relation


@dataclass(frozen=True)
class WorkingTable(Relation):
    """The rows that are new since the last step of a recursion.

    Attributes:
        name: of the common table.
        number: tells apart those of one name.
    """

    name: str
    number: int

    @override
    def text(self) -> str:
        return f"WorkingTable(table=[{self.name}])"


@dataclass(frozen=True)
class Recursion(Relation):
    """The rows of a first query, and of a step that is computed of the new rows again and again, until there are none.

    Attributes:
        first: the rows before the first step.
        step: reads ``working``.
        working: the rows that are new.
        keeps_duplicates: UNION ALL; else a row that is there already is not new.
    """

    first: Relation
    step: Relation
    working: WorkingTable
    keeps_duplicates: bool

    @property
    @override
    def inputs(self) -> tuple[Relation, ...]:
        return (self.first, self.step)

    @override
    def text(self) -> str:
        kind = "true" if self.keeps_duplicates else "false"
        return f"RecursiveUnion(table=[{self.working.name}], all=[{kind}])"
