"""The catalogs of a session: in memory, with temporary tables that hide others of their name."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from difflib import get_close_matches

from firesteel.core.errors import ProgramError
from firesteel_sql.catalog.tables import CatalogTable, CatalogView, Identifier, InlineView

DEFAULT_CATALOG = "default_catalog"
DEFAULT_DATABASE = "default_database"
Entry = CatalogTable | CatalogView | InlineView


class CatalogError(ProgramError):
    """There is no such table, view or database, or there is one already."""


@dataclass
class CatalogDatabase:
    """A database: tables and views by their names."""

    entries: dict[str, Entry] = field(default_factory=dict)
    comment: str | None = None
    options: dict[str, str] = field(default_factory=dict)


class Catalogs:
    """All catalogs of a session, and which of them is used where a name does not say.

    Attributes:
        catalogs: databases by catalog and name.
        temporary: temporary tables and views, which hide others of their name.
        current_catalog: that of names without one.
        current_database: that of names without one.
    """

    def __init__(self) -> None:
        self.catalogs: dict[str, dict[str, CatalogDatabase]] = {DEFAULT_CATALOG: {DEFAULT_DATABASE: CatalogDatabase()}}
        self.temporary: dict[Identifier, Entry] = {}
        self.current_catalog, self.current_database = DEFAULT_CATALOG, DEFAULT_DATABASE

    # -- names

    def identifier(self, path: tuple[str, ...]) -> Identifier:
        """The full name of a table.

        Raises:
            CatalogError: the name has more than three parts.
        """
        if len(path) == 1:
            return (self.current_catalog, self.current_database, path[0])
        if len(path) == 2:
            return (self.current_catalog, path[0], path[1])
        if len(path) == 3:
            return (path[0], path[1], path[2])
        raise CatalogError(f"{'.'.join(path)} has too many parts: a table is called catalog.database.name")

    def find(self, path: tuple[str, ...]) -> tuple[Identifier, Entry]:
        """The table or view of a name.

        Raises:
            CatalogError: there is none; near names are told.
        """
        identifier = self.identifier(path)
        entry = self.temporary.get(identifier)
        if entry is None:
            databases = self.catalogs.get(identifier[0], {})
            entry = databases[identifier[1]].entries.get(identifier[2]) if identifier[1] in databases else None
        if entry is None:
            raise CatalogError(f"there is no table {'.'.join(path)}{self._near(identifier)}")
        return identifier, entry

    def _near(self, identifier: Identifier) -> str:
        if identifier[0] not in self.catalogs:
            return f": there is no catalog {identifier[0]}{near(identifier[0], self.catalogs)}"
        databases = self.catalogs[identifier[0]]
        if identifier[1] not in databases:
            return f": there is no database {identifier[1]}{near(identifier[1], databases)}"
        return near(identifier[2], self.names(identifier[0], identifier[1]))

    def names(self, catalog: str, database: str) -> list[str]:
        """The names of all tables and views of a database."""
        temporary = {
            name
            for (in_catalog, in_database, name) in self.temporary
            if (in_catalog, in_database) == (catalog, database)
        }
        return sorted(temporary | set(self.database(catalog, database).entries))

    def database(self, catalog: str, name: str) -> CatalogDatabase:
        """The database of a name.

        Raises:
            CatalogError: there is none.
        """
        databases = self.catalogs.get(catalog)
        if databases is None:
            raise CatalogError(f"there is no catalog {catalog}{near(catalog, self.catalogs)}")
        found = databases.get(name)
        if found is None:
            raise CatalogError(f"there is no database {catalog}.{name}{near(name, databases)}")
        return found

    # -- changes

    def create(
        self,
        path: tuple[str, ...],
        entry: Entry,
        *,
        is_temporary: bool,
        if_not_exists: bool,
        is_replacing: bool = False,
    ) -> bool:
        """Add a table or view; returns whether it was added.

        Raises:
            CatalogError: there is one of this name, or no such database.
        """
        identifier = self.identifier(path)
        entries = self.database(identifier[0], identifier[1]).entries
        is_there = identifier in self.temporary if is_temporary else identifier[2] in entries
        if is_there and not is_replacing:
            if if_not_exists:
                return False
            kind = "view" if isinstance(entry, CatalogView) else "table"
            raise CatalogError(
                f"there is a {kind} {'.'.join(path)} already: CREATE ... IF NOT EXISTS, or DROP it before"
            )
        if is_temporary:
            self.temporary[identifier] = entry
        else:
            entries[identifier[2]] = entry
        return True

    def drop(self, path: tuple[str, ...], kind: type[Entry], *, is_temporary: bool, if_exists: bool) -> None:
        """Remove a table or view.

        Raises:
            CatalogError: there is none, or it is of the other kind.
        """
        identifier = self.identifier(path)
        word, other = ("view", "TABLE") if kind is CatalogView else ("table", "VIEW")
        if identifier in self.temporary and not is_temporary:
            raise CatalogError(f"{'.'.join(path)} is temporary: DROP TEMPORARY {word.upper()} {'.'.join(path)}")
        databases = self.catalogs.get(identifier[0], {})
        entries: dict[str, Entry] = databases[identifier[1]].entries if identifier[1] in databases else {}
        found = self.temporary.get(identifier) if is_temporary else entries.get(identifier[2])
        if found is None:
            if if_exists:
                return
            names = [name for (_, _, name) in self.temporary] if is_temporary else list(entries)
            raise CatalogError(f"there is no {word} {'.'.join(path)}{near(identifier[2], names)}")
        if not isinstance(found, kind) and not (kind is CatalogView and isinstance(found, InlineView)):
            raise CatalogError(f"{'.'.join(path)} is no {word}: DROP {other} {'.'.join(path)}")
        if is_temporary:
            del self.temporary[identifier]
        else:
            del entries[identifier[2]]

    def replace(self, identifier: Identifier, entry: Entry) -> None:
        """Put another declaration in the place of a table or view."""
        if identifier in self.temporary:
            self.temporary[identifier] = entry
        else:
            self.database(identifier[0], identifier[1]).entries[identifier[2]] = entry

    # -- databases

    def database_path(self, path: tuple[str, ...]) -> tuple[str, str]:
        """The catalog and the name of a database; of none the current ones.

        Raises:
            CatalogError: the name has more than two parts.
        """
        if not path:
            return self.current_catalog, self.current_database
        if len(path) == 1:
            return self.current_catalog, path[0]
        if len(path) == 2:
            return path[0], path[1]
        raise CatalogError(f"{'.'.join(path)} has too many parts: a database is called catalog.name")

    def create_database(self, path: tuple[str, ...], database: CatalogDatabase, *, if_not_exists: bool) -> None:
        """Add a database.

        Raises:
            CatalogError: there is one of this name, or no such catalog.
        """
        catalog, name = self.database_path(path)
        databases = self.catalogs.get(catalog)
        if databases is None:
            raise CatalogError(f"there is no catalog {catalog}{near(catalog, self.catalogs)}")
        if name in databases:
            if if_not_exists:
                return
            raise CatalogError(f"there is a database {catalog}.{name} already")
        databases[name] = database

    def drop_database(self, path: tuple[str, ...], *, if_exists: bool, cascades: bool) -> None:
        """Remove a database.

        Raises:
            CatalogError: there is none, it is in use, or tables are in it.
        """
        catalog, name = self.database_path(path)
        databases = self.catalogs.get(catalog, {})
        if name not in databases:
            if if_exists:
                return
            raise CatalogError(f"there is no database {catalog}.{name}{near(name, databases)}")
        if (catalog, name) == (self.current_catalog, self.current_database):
            raise CatalogError(f"the database {catalog}.{name} is the current one: USE another one before")
        if databases[name].entries and not cascades:
            raise CatalogError(f"there are tables in {catalog}.{name}: DROP DATABASE {name} CASCADE drops them, too")
        del databases[name]

    def use(self, path: tuple[str, ...], *, is_catalog: bool) -> None:
        """Use a catalog or a database where a name does not say.

        Raises:
            CatalogError: there is none.
        """
        if is_catalog:
            if path[0] not in self.catalogs:
                raise CatalogError(f"there is no catalog {path[0]}{near(path[0], self.catalogs)}")
            self.current_catalog = path[0]
            self.current_database = next(iter(self.catalogs[path[0]]))
            return
        catalog, name = self.database_path(path)
        self.database(catalog, name)
        self.current_catalog, self.current_database = catalog, name


def near(name: str, names: Iterable[str]) -> str:
    """A hint with the name that was perhaps meant."""
    known = list(names)
    found = get_close_matches(name, known, 1, 0.6) or [one for one in known if one.lower() == name.lower()]
    if found:
        return f"; did you mean {found[0]}?"
    return f"; there {'is' if len(known) == 1 else 'are'} {', '.join(sorted(known)[:10])}" if known else ""
