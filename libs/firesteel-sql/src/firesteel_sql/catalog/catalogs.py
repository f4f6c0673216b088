"""The catalogs of a session, with temporary objects that hide others of their name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from threading import RLock
from typing import TypeVar

from firesteel.core.plugins import known_names, load
from firesteel_sql.catalog.catalog import GROUP, Catalog, CatalogError, ObjectKind, near
from firesteel_sql.catalog.memory import GenericInMemoryCatalog
from firesteel_sql.catalog.tables import (
    CatalogDatabase,
    CatalogFunction,
    CatalogObject,
    CatalogTable,
    CatalogView,
    Entry,
    Identifier,
    InlineView,
)

__all__ = ["DEFAULT_CATALOG", "DEFAULT_DATABASE", "CatalogDescription", "CatalogError", "Catalogs", "near"]

DEFAULT_CATALOG = "default_catalog"
DEFAULT_DATABASE = "default_database"
_T = TypeVar("_T", CatalogTable, CatalogView)


@dataclass(frozen=True)
class CatalogDescription:
    """What CREATE CATALOG said of a catalog.

    Attributes:
        options: behind WITH.
        comment: for people.
    """

    options: dict[str, str]
    comment: str | None = None


class Catalogs:
    """All catalogs of a session, and which of them is used where a name does not say.

    Several threads may run statements of one session at once.

    Attributes:
        temporary: temporary tables and views, which hide others of their name.
        temporary_functions: temporary functions, likewise.
        system_functions: temporary functions without catalog and database, which hide built-in ones.
    """

    def __init__(self) -> None:
        self._lock = RLock()
        default = GenericInMemoryCatalog(DEFAULT_CATALOG, {"default-database": DEFAULT_DATABASE})
        self._catalogs: dict[str, Catalog] = {DEFAULT_CATALOG: default}
        self._descriptions: dict[str, CatalogDescription] = {
            DEFAULT_CATALOG: CatalogDescription({"type": "generic_in_memory", "default-database": DEFAULT_DATABASE})
        }
        self.temporary: dict[Identifier, Entry] = {}
        self.temporary_functions: dict[Identifier, CatalogFunction] = {}
        self.system_functions: dict[str, CatalogFunction] = {}
        self._current: tuple[str, str] = (DEFAULT_CATALOG, DEFAULT_DATABASE)

    # -- the current catalog and database

    @property
    def current_catalog(self) -> str:
        """The catalog of names without one; empty if it was dropped."""
        return self._current[0]

    @property
    def current_database(self) -> str:
        """The database of names without one; empty if there is none."""
        return self._current[1]

    def within(self, catalog: str, database: str) -> Catalogs:
        """The same catalogs, seen from another database: names in a view are looked up from where it was declared."""
        there = copy(self)
        there._current = (catalog, database)
        return there

    def use(self, path: tuple[str, ...], *, is_catalog: bool) -> None:
        """Use a catalog or a database where a name does not say.

        Raises:
            CatalogError: there is none.
        """
        if is_catalog:
            catalog = self.catalog(path[0])
            self._current = (path[0], catalog.default_database)
            return
        catalog_name, name = self.database_path(path)
        self.database(catalog_name, name)
        self._current = (catalog_name, name)

    def use_database(self, name: str) -> None:
        """Use a database of the current catalog; it is not looked for."""
        self._current = (self.current_catalog, name)

    # -- catalogs

    def list_catalogs(self) -> list[str]:
        """Names of the catalogs."""
        return sorted(self._catalogs)

    def catalog(self, name: str) -> Catalog:
        """The catalog of a name.

        Raises:
            CatalogError: there is none.
        """
        catalog = self._catalogs.get(name)
        if catalog is None:
            if not name:
                raise CatalogError("there is no current catalog: USE CATALOG one before")
            raise CatalogError(f"there is no catalog {name}{near(name, self._catalogs)}")
        return catalog

    def describe_catalog(self, name: str) -> CatalogDescription:
        """What CREATE CATALOG said; of a catalog that a program has made, nothing.

        Raises:
            CatalogError: there is none.
        """
        self.catalog(name)
        return self._descriptions.get(name, CatalogDescription({}))

    def create_catalog(
        self, name: str, options: Mapping[str, str], comment: str | None, *, if_not_exists: bool
    ) -> None:
        """Add the catalog of CREATE CATALOG.

        Raises:
            CatalogError: there is one of this name, or an option is wrong.
        """
        with self._lock:
            if name in self._catalogs:
                if if_not_exists:
                    return
                raise CatalogError(f"there is a catalog {name} already: CREATE CATALOG IF NOT EXISTS")
            self._catalogs[name] = _opened(name, options)
            self._descriptions[name] = CatalogDescription(dict(options), comment)

    def alter_catalog(self, name: str, options: Mapping[str, str], reset: Sequence[str], comment: str | None) -> None:
        """Change options or the comment of a catalog, which is opened again with them.

        Raises:
            CatalogError: there is none, it was made by a program, or an option is wrong.
        """
        with self._lock:
            old = self.describe_catalog(name)
            if not old.options or name == DEFAULT_CATALOG:
                raise CatalogError(f"the catalog {name} was made by a program, not by CREATE CATALOG")
            if comment is not None:
                self._descriptions[name] = CatalogDescription(old.options, comment)
                return
            if "type" in options or "type" in reset:
                raise CatalogError(f"the type of the catalog {name} stays: DROP it, and CREATE another one")
            if isinstance(self._catalogs[name], GenericInMemoryCatalog):
                raise CatalogError(f"the catalog {name} is in memory: another one would be empty")
            for key in reset:
                if key not in old.options:
                    raise CatalogError(f"the catalog {name} has no option '{key}'{near(key, old.options)}")
            merged = {key: value for key, value in {**old.options, **options}.items() if key not in reset}
            self._catalogs[name] = _opened(name, merged)
            self._descriptions[name] = CatalogDescription(merged, old.comment)

    def register(self, name: str, catalog: Catalog) -> None:
        """Add a catalog that a program has made.

        Raises:
            CatalogError: there is one of this name.
        """
        with self._lock:
            if name in self._catalogs:
                raise CatalogError(f"there is a catalog {name} already")
            self._catalogs[name] = catalog

    def drop_catalog(self, name: str, *, if_exists: bool) -> None:
        """Forget a catalog; what it keeps in files stays there.

        Raises:
            CatalogError: there is none, or it is the current one.
        """
        with self._lock:
            if name not in self._catalogs and if_exists:
                return
            self.catalog(name)
            if name == self.current_catalog:
                raise CatalogError(f"the catalog {name} is the current one: USE CATALOG another one before")
            del self._catalogs[name]
            self._descriptions.pop(name, None)

    # -- databases

    def database_path(self, path: tuple[str, ...]) -> tuple[str, str]:
        """The catalog and the name of a database; of none the current ones.

        Raises:
            CatalogError: the name has more than two parts.
        """
        if not path:
            return self._current
        if len(path) == 1:
            return self.current_catalog, path[0]
        if len(path) == 2:
            return path[0], path[1]
        raise CatalogError(f"{'.'.join(path)} has too many parts: a database is called catalog.name")

    def database(self, catalog: str, name: str) -> CatalogDatabase:
        """The database of a name.

        Raises:
            CatalogError: there is none.
        """
        owner = self.catalog(catalog)
        database = owner.get_database(name)
        if database is None:
            raise CatalogError(f"there is no database {catalog}.{name}{near(name, owner.list_databases())}")
        return database

    def create_database(self, path: tuple[str, ...], database: CatalogDatabase, *, if_not_exists: bool) -> None:
        """Add a database.

        Raises:
            CatalogError: there is one of this name, or no such catalog.
        """
        catalog, name = self.database_path(path)
        if not self.catalog(catalog).add_database(name, database) and not if_not_exists:
            raise CatalogError(f"there is a database {catalog}.{name} already: CREATE DATABASE IF NOT EXISTS")

    def alter_database(self, path: tuple[str, ...], options: Mapping[str, str]) -> None:
        """Set options of a database.

        Raises:
            CatalogError: there is none.
        """
        catalog, name = self.database_path(path)
        old = self.database(catalog, name)
        new = CatalogDatabase(old.comment, {**old.options, **options})
        if not self.catalog(catalog).change_database(name, old, new):
            raise _changed_meanwhile(f"the database {catalog}.{name}")

    def drop_database(self, path: tuple[str, ...], *, if_exists: bool, cascades: bool) -> None:
        """Remove a database.

        Raises:
            CatalogError: there is none, it is in use, or tables are in it.
        """
        catalog, name = self.database_path(path)
        if if_exists and (catalog not in self._catalogs or self._catalogs[catalog].get_database(name) is None):
            return
        self.database(catalog, name)
        if (catalog, name) == self._current:
            raise CatalogError(f"the database {catalog}.{name} is the current one: USE another one before")
        if not self.catalog(catalog).drop_database(name, cascades=cascades):
            raise CatalogError(f"there are tables in {catalog}.{name}: DROP DATABASE {name} CASCADE drops them, too")

    # -- names of tables, views and functions

    def identifier(self, path: tuple[str, ...]) -> Identifier:
        """The full name of a table.

        Raises:
            CatalogError: the name has more than three parts.
        """
        if len(path) == 1:
            return (*self._current, path[0])
        if len(path) == 2:
            return (self.current_catalog, path[0], path[1])
        if len(path) == 3:
            return (path[0], path[1], path[2])
        raise CatalogError(f"{'.'.join(path)} has too many parts: a table is called catalog.database.name")

    def _permanent(self, identifier: Identifier, kind: ObjectKind) -> CatalogObject | None:
        catalog = self._catalogs.get(identifier[0])
        return None if catalog is None else catalog.get(identifier[1], kind, identifier[2])

    def find(self, path: tuple[str, ...]) -> tuple[Identifier, Entry]:
        """The table or view of a name.

        Raises:
            CatalogError: there is none; near names are told.
        """
        identifier = self.identifier(path)
        entry = self.temporary.get(identifier) or self._permanent(identifier, ObjectKind.RELATION)
        if entry is None or isinstance(entry, CatalogFunction):
            raise CatalogError(f"there is no table {'.'.join(path)}{self._near(identifier)}")
        return identifier, entry

    def _near(self, identifier: Identifier) -> str:
        catalog, database, name = identifier
        if catalog not in self._catalogs:
            return f": there is no catalog {catalog}{near(catalog, self._catalogs)}" if catalog else ""
        databases = self._catalogs[catalog].list_databases()
        if database not in databases:
            return f": there is no database {database}{near(database, databases)}"
        return near(name, self.names(catalog, database))

    def names(self, catalog: str, database: str) -> list[str]:
        """The names of all tables and views of a database.

        Raises:
            CatalogError: there is no such database.
        """
        self.database(catalog, database)
        permanent = self.catalog(catalog).list_objects(database, ObjectKind.RELATION)
        return sorted({*permanent, *_names_in(self.temporary, catalog, database)})

    # -- tables and views

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
        word = "table" if isinstance(entry, CatalogTable) else "view"
        with self._lock:
            if is_temporary or isinstance(entry, InlineView):
                self.database(*identifier[:2])
                old: Entry | None = self.temporary.get(identifier)
                if old is None or is_replacing:
                    self.temporary[identifier] = entry
                    return True
            else:
                self.database(*identifier[:2])
                catalog = self.catalog(identifier[0])
                if catalog.add(identifier[1], ObjectKind.RELATION, identifier[2], entry):
                    return True
                present = catalog.get(identifier[1], ObjectKind.RELATION, identifier[2])
                old = None if isinstance(present, CatalogFunction) else present
                if is_replacing and old is not None:
                    self._refuse_other_kind(path, old, type(entry))
                    self.replace(identifier, old, entry)
                    return True
        if if_not_exists:
            return False
        there = "table" if isinstance(old, CatalogTable) else "view"
        hint = f"CREATE {word.upper()} IF NOT EXISTS, or DROP {there.upper()} {'.'.join(path)} before"
        raise CatalogError(f"there is a {there} {'.'.join(path)} already: {hint}")

    def _refuse_other_kind(self, path: tuple[str, ...], entry: Entry, kind: type[Entry]) -> None:
        is_table = isinstance(entry, CatalogTable)
        if is_table != (kind is CatalogTable):
            there, word = ("a table", "TABLE") if is_table else ("a view", "VIEW")
            raise CatalogError(f"{'.'.join(path)} is {there}: write {word}")

    def drop(self, path: tuple[str, ...], kind: type[Entry], *, is_temporary: bool, if_exists: bool) -> None:
        """Remove a table or view.

        Raises:
            CatalogError: there is none, or it is of the other kind.
        """
        identifier = self.identifier(path)
        word, other = ("view", "TABLE") if kind is CatalogView else ("table", "VIEW")
        with self._lock:
            if identifier in self.temporary and not is_temporary:
                raise CatalogError(f"{'.'.join(path)} is temporary: DROP TEMPORARY {word.upper()} {'.'.join(path)}")
            entry = self.temporary.get(identifier) if is_temporary else self._permanent(identifier, ObjectKind.RELATION)
            if entry is None:
                if if_exists:
                    return
                temporary = "temporary " if is_temporary else ""
                hint = (
                    near(identifier[2], _names_in(self.temporary, *identifier[:2]))
                    if is_temporary
                    else self._near(identifier)
                )
                raise CatalogError(f"there is no {temporary}{word} {'.'.join(path)}{hint}")
            if isinstance(entry, CatalogTable) != (kind is CatalogTable):
                raise CatalogError(f"{'.'.join(path)} is no {word}: DROP {other} {'.'.join(path)}")
            if is_temporary:
                del self.temporary[identifier]
            else:
                self._change(identifier, ObjectKind.RELATION, entry, None)

    def relation(self, path: tuple[str, ...], kind: type[_T], *, if_exists: bool) -> tuple[Identifier, _T] | None:
        """The table or the view that ALTER changes; None if there is none and that is allowed.

        Raises:
            CatalogError: there is none, or it is of the other kind.
        """
        try:
            identifier, entry = self.find(path)
        except CatalogError as error:
            if if_exists:
                return None
            if kind is CatalogView:
                raise CatalogError(str(error).replace("there is no table", "there is no view", 1)) from None
            raise
        if not isinstance(entry, kind):
            there, word = ("a table", "TABLE") if isinstance(entry, CatalogTable) else ("a view", "VIEW")
            raise CatalogError(f"{'.'.join(path)} is {there}: ALTER {word}")
        return identifier, entry

    def replace(self, identifier: Identifier, old: Entry, new: Entry) -> None:
        """Put another declaration in the place of a table or view.

        Raises:
            CatalogError: somebody else has changed it meanwhile.
        """
        with self._lock:
            if identifier in self.temporary:
                self.temporary[identifier] = new
            else:
                self._change(identifier, ObjectKind.RELATION, old, new)

    def rename(self, identifier: Identifier, entry: CatalogTable | CatalogView, path: tuple[str, ...]) -> None:
        """Give a table or view another name, in the same database if the new name does not say.

        Raises:
            CatalogError: the name is taken, or is one of another database.
        """
        renamed = (*identifier[:2], path[0]) if len(path) == 1 else self.identifier(path)
        if renamed[:2] != identifier[:2]:
            raise CatalogError(f"{'.'.join(path)}: a table stays in its database, {'.'.join(identifier[:2])}")
        with self._lock:
            is_temporary = identifier in self.temporary
            self.create(renamed, entry, is_temporary=is_temporary, if_not_exists=False)
            if is_temporary:
                del self.temporary[identifier]
            else:
                self._change(identifier, ObjectKind.RELATION, entry, None)

    def _change(self, identifier: Identifier, kind: ObjectKind, old: object, new: object) -> None:
        """Change what a catalog keeps.

        Raises:
            CatalogError: it is not what was found there before.
        """
        catalog, database, name = identifier
        if not self.catalog(catalog).change(database, kind, name, old, new):  # type: ignore[arg-type]
            raise _changed_meanwhile(f"{'.'.join(identifier)}")

    # -- functions

    def find_function(self, path: tuple[str, ...]) -> CatalogFunction | None:
        """The user's function of a name; None if there is none. Names of functions do not tell cases apart."""
        lower = tuple(part.lower() if place == len(path) - 1 else part for place, part in enumerate(path))
        identifier = self.identifier(lower)
        found = self.temporary_functions.get(identifier) or self._permanent(identifier, ObjectKind.FUNCTION)
        return found if isinstance(found, CatalogFunction) else None

    def function_names(self, catalog: str, database: str) -> list[str]:
        """Names of the user's functions that are seen from a database."""
        names = {*self.system_functions, *_names_in(self.temporary_functions, catalog, database)}
        if catalog in self._catalogs:
            names.update(self._catalogs[catalog].list_objects(database, ObjectKind.FUNCTION))
        return sorted(names)

    def create_function(
        self,
        path: tuple[str, ...],
        function: CatalogFunction,
        *,
        is_temporary: bool,
        is_system: bool,
        if_not_exists: bool,
        is_replacing: bool = False,
    ) -> None:
        """Add a function.

        Raises:
            CatalogError: there is one of this name, or no such database.
        """
        name = path[-1].lower()
        with self._lock:
            if is_system:
                if len(path) > 1:
                    raise CatalogError(f"{'.'.join(path)}: a system function is in no database, write {path[-1]}")
                if name not in self.system_functions or is_replacing:
                    self.system_functions[name] = function
                    return
            else:
                identifier = self.identifier((*path[:-1], name))
                self.database(*identifier[:2])
                if is_temporary:
                    if identifier not in self.temporary_functions or is_replacing:
                        self.temporary_functions[identifier] = function
                        return
                else:
                    if self.catalog(identifier[0]).add(identifier[1], ObjectKind.FUNCTION, name, function):
                        return
                    old = self._permanent(identifier, ObjectKind.FUNCTION)
                    if is_replacing and old is not None:
                        self._change(identifier, ObjectKind.FUNCTION, old, function)
                        return
        if not if_not_exists:
            raise CatalogError(
                f"there is a function {'.'.join(path)} already: CREATE FUNCTION IF NOT EXISTS, or DROP it before"
            )

    def alter_function(
        self, path: tuple[str, ...], function: CatalogFunction, *, is_temporary: bool, is_system: bool, if_exists: bool
    ) -> None:
        """Put another function in the place of one.

        Raises:
            CatalogError: there is none.
        """
        with self._lock:
            if self._has_function(path, is_temporary=is_temporary, is_system=is_system):
                self.create_function(
                    path, function, is_temporary=is_temporary, is_system=is_system, if_not_exists=False,
                    is_replacing=True,
                )  # fmt: skip
            elif not if_exists:
                raise self._no_function(path)

    def _has_function(self, path: tuple[str, ...], *, is_temporary: bool, is_system: bool) -> bool:
        name = path[-1].lower()
        if is_system:
            return name in self.system_functions
        identifier = self.identifier((*path[:-1], name))
        if is_temporary:
            return identifier in self.temporary_functions
        return self._permanent(identifier, ObjectKind.FUNCTION) is not None

    def _no_function(self, path: tuple[str, ...]) -> CatalogError:
        catalog, database, name = self.identifier(path)
        return CatalogError(
            f"there is no function {'.'.join(path)}{near(name, self.function_names(catalog, database))}"
        )

    def drop_function(self, path: tuple[str, ...], *, is_temporary: bool, is_system: bool, if_exists: bool) -> None:
        """Remove a function.

        Raises:
            CatalogError: there is none.
        """
        name = path[-1].lower()
        with self._lock:
            if not self._has_function(path, is_temporary=is_temporary, is_system=is_system):
                if not is_temporary and self._has_function(path, is_temporary=True, is_system=False):
                    raise CatalogError(f"{'.'.join(path)} is temporary: DROP TEMPORARY FUNCTION {'.'.join(path)}")
                if if_exists:
                    return
                raise self._no_function(path)
            if is_system:
                del self.system_functions[name]
                return
            identifier = self.identifier((*path[:-1], name))
            if is_temporary:
                del self.temporary_functions[identifier]
            else:
                self._change(identifier, ObjectKind.FUNCTION, self._permanent(identifier, ObjectKind.FUNCTION), None)


def _opened(name: str, options: Mapping[str, str]) -> Catalog:
    """The catalog of these options.

    Raises:
        CatalogError: the type is missing or unknown, or an option is wrong.
    """
    kind = options.get("type")
    types = sorted(known_names(GROUP))
    if kind is None:
        raise CatalogError(f"catalog {name}: WITH ('type' = '...') is missing; there are {', '.join(types)}")
    if kind not in types:
        raise CatalogError(f"catalog {name}: there is no type '{kind}'{near(kind, types)}")
    catalog: Catalog = load(GROUP, kind)(name, {key: value for key, value in options.items() if key != "type"})
    return catalog


def _names_in(identifiers: Iterable[Identifier], catalog: str, database: str) -> list[str]:
    return [
        name
        for (in_catalog, in_database, name) in list(identifiers)
        if (in_catalog, in_database) == (catalog, database)
    ]


def _changed_meanwhile(what: str) -> CatalogError:
    return CatalogError(
        f"{what} was changed by somebody else at the same time: look at it, and run the statement again"
    )
