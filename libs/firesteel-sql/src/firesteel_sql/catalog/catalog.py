"""The contract of catalogs, what they have in common, and how they are found."""

from __future__ import annotations

import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from enum import Enum

from firesteel.core.errors import ProgramError
from firesteel_sql.catalog.tables import CatalogDatabase, CatalogObject

GROUP = "firesteel.sql_catalogs"
"""Entry points of catalogs, by the value of the option ``type``."""


class CatalogError(ProgramError):
    """There is no such table, view, function, database or catalog, or there is one already."""


class ObjectKind(Enum):
    """Tables and views share their names; functions have names of their own."""

    RELATION = "table"
    FUNCTION = "function"


class Catalog(ABC):
    """Databases, with tables, views and functions in them.

    A catalog of your own derives from this class, takes its name and its options, and is named by an entry point of the
    group ``firesteel.sql_catalogs``. Its methods may be called by several threads at once.

    Args:
        name: under which the session knows it.
        options: of ``CREATE CATALOG ... WITH``, without ``type``.
    """

    def __init__(self, name: str, options: Mapping[str, str]) -> None:
        self.name, self.options = name, dict(options)

    @property
    def default_database(self) -> str:
        """The database that USE CATALOG makes the current one."""
        return "default"

    # -- databases

    @abstractmethod
    def list_databases(self) -> list[str]:
        """Names of the databases."""

    @abstractmethod
    def get_database(self, name: str) -> CatalogDatabase | None:
        """The database of a name; None if there is none."""

    @abstractmethod
    def add_database(self, name: str, database: CatalogDatabase) -> bool:
        """Add a database, unless there is one of the name; returns whether it was added."""

    @abstractmethod
    def change_database(self, name: str, old: CatalogDatabase, new: CatalogDatabase) -> bool:
        """Put another declaration in place of one.

        Returns False, and changes nothing, if the present declaration is not ``old`` (any more).
        """

    @abstractmethod
    def drop_database(self, name: str, *, cascades: bool) -> bool:
        """Remove a database with all that is in it.

        Returns False, and changes nothing, if something is in it and ``cascades`` is false.
        """

    # -- tables, views and functions

    @abstractmethod
    def list_objects(self, database: str, kind: ObjectKind) -> list[str]:
        """Names of what is in a database; of a database that is not there, none."""

    @abstractmethod
    def get(self, database: str, kind: ObjectKind, name: str) -> CatalogObject | None:
        """What a name stands for; None if there is nothing."""

    @abstractmethod
    def add(self, database: str, kind: ObjectKind, name: str, entry: CatalogObject) -> bool:
        """Add a declaration, unless there is one of the name; returns whether it was added."""

    @abstractmethod
    def change(self, database: str, kind: ObjectKind, name: str, old: CatalogObject, new: CatalogObject | None) -> bool:
        """Put another declaration in place of one, or remove it.

        Returns False, and changes nothing, if the present declaration is not ``old`` (any more).
        """


def near(name: str, names: Iterable[str]) -> str:
    """A hint with the name that was perhaps meant."""
    known = {candidate.lower(): candidate for candidate in names}
    alike = get_close_matches(name.lower(), known, 1, 0.6)
    if alike:
        meant = known[alike[0]]
        strange = next((char for char in name if not char.isascii()), "") if meant.isascii() else ""
        seen = f" ({strange} is {unicodedata.name(strange, 'another character')})" if strange else ""
        return f"; did you mean {meant}?{seen}"
    if not 0 < len(known) <= _LISTED:
        return ""
    return f"; there {'is' if len(known) == 1 else 'are'} {', '.join(sorted(known.values()))}"


_LISTED = 10
"""Names that are told at most when none is near."""
