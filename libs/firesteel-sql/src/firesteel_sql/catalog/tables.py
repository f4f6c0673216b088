"""Declarations of tables, views and functions, as a catalog keeps them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from firesteel.table.types import DataType
from firesteel_sql.parse.nodes import ValueExpression


@dataclass(frozen=True)
class InlineView:
    """A table of a program under a name, from ``create_temporary_view``.

    Attributes:
        relation: what it stands for.
    """

    relation: Any


Identifier = tuple[str, str, str]
"""Catalog, database and name."""


@dataclass(frozen=True)
class TableColumn:
    """A column of a table.

    Attributes:
        name: its name.
        type: None if it is computed.
        computed: the expression of a computed column.
        text: the statement in which that expression stands, for errors.
        written: the expression as it was written.
        metadata_key: what the connector calls the metadata that the column holds.
        is_virtual: the column is not written.
        comment: for people.
    """

    name: str
    type: DataType | None
    computed: ValueExpression | None = None
    text: str = field(default="", compare=False)
    metadata_key: str | None = None
    is_virtual: bool = False
    comment: str | None = None
    written: str = field(default="", compare=False)

    @property
    def is_physical(self) -> bool:
        """Whether the connector's rows have this column."""
        return self.computed is None and self.metadata_key is None

    @property
    def is_written(self) -> bool:
        """Whether rows that are written into the table have this column."""
        return self.computed is None and not self.is_virtual


@dataclass(frozen=True)
class WatermarkDeclaration:
    """``WATERMARK FOR column AS expression``.

    Attributes:
        column: with the event time.
        expression: gives the watermark for a row.
        text: the statement in which the expression stands, for errors.
        written: the expression as it was written.
    """

    column: str
    expression: ValueExpression
    text: str = field(compare=False)
    written: str = field(default="", compare=False)


@dataclass(frozen=True)
class CatalogTable:
    """A table: columns, and the options of the connector that has its rows.

    Attributes:
        columns: in their order.
        options: behind WITH.
        watermark: event time, if it has some.
        primary_key: columns that tell rows apart; empty = none.
        constraint: name of the primary key, if it has one.
        partitioned_by: columns by which the connector keeps rows apart.
        comment: for people.
    """

    columns: tuple[TableColumn, ...]
    options: dict[str, str]
    watermark: WatermarkDeclaration | None = None
    primary_key: tuple[str, ...] = ()
    partitioned_by: tuple[str, ...] = ()
    comment: str | None = None
    constraint: str | None = None


@dataclass(frozen=True)
class CatalogView:
    """A view: a query under a name.

    Attributes:
        text: of the query.
        columns: names of its columns; empty = those of the query.
        comment: for people.
        catalog: the catalog in which names of the query are looked up.
        database: the database in which names of the query are looked up.
    """

    text: str
    columns: tuple[str, ...]
    comment: str | None
    catalog: str
    database: str


@dataclass(frozen=True)
class CatalogFunction:
    """A function of the user's: where its code is.

    Attributes:
        target: ``module.name`` of a Python callable.
        language: PYTHON.
    """

    target: str
    language: str = "PYTHON"


@dataclass(frozen=True)
class CatalogDatabase:
    """A database: what is said of it; its tables are asked of its catalog.

    Attributes:
        comment: for people.
        options: behind WITH.
    """

    comment: str | None = None
    options: dict[str, str] = field(default_factory=dict)


CatalogObject = CatalogTable | CatalogView | CatalogFunction
"""What a catalog keeps."""
Entry = CatalogTable | CatalogView | InlineView
"""What stands behind FROM."""
