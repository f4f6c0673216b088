"""``'type' = 'generic_in_memory'``: a catalog that lives as long as its session."""

from __future__ import annotations

from collections.abc import Mapping
from threading import Lock

from typing_extensions import override

from firesteel_sql.catalog.catalog import Catalog, ObjectKind
from firesteel_sql.catalog.options import CatalogOptions
from firesteel_sql.catalog.tables import CatalogDatabase, CatalogObject

_Key = tuple[str, ObjectKind, str]


class GenericInMemoryCatalog(Catalog):
    """A catalog in memory; it has its default database from the beginning."""

    def __init__(self, name: str, options: Mapping[str, str]) -> None:
        super().__init__(name, options)
        chosen = CatalogOptions(name, options)
        self._default = chosen.text("default-database", "default") or "default"
        chosen.refuse_unknown()
        self._lock = Lock()
        self._databases: dict[str, CatalogDatabase] = {self._default: CatalogDatabase()}
        self._objects: dict[_Key, CatalogObject] = {}

    @property
    @override
    def default_database(self) -> str:
        return self._default

    @override
    def list_databases(self) -> list[str]:
        return sorted(self._databases)

    @override
    def get_database(self, name: str) -> CatalogDatabase | None:
        return self._databases.get(name)

    @override
    def add_database(self, name: str, database: CatalogDatabase) -> bool:
        with self._lock:
            if name in self._databases:
                return False
            self._databases[name] = database
            return True

    @override
    def change_database(self, name: str, old: CatalogDatabase, new: CatalogDatabase) -> bool:
        with self._lock:
            if self._databases.get(name) != old:
                return False
            self._databases[name] = new
            return True

    @override
    def drop_database(self, name: str, *, cascades: bool) -> bool:
        with self._lock:
            rest = {key: entry for key, entry in self._objects.items() if key[0] != name}
            if len(rest) < len(self._objects) and not cascades:
                return False
            self._objects = rest
            self._databases.pop(name, None)
            return True

    @override
    def list_objects(self, database: str, kind: ObjectKind) -> list[str]:
        with self._lock:
            return sorted(key[2] for key in self._objects if key[:2] == (database, kind))

    @override
    def get(self, database: str, kind: ObjectKind, name: str) -> CatalogObject | None:
        return self._objects.get((database, kind, name))

    @override
    def add(self, database: str, kind: ObjectKind, name: str, entry: CatalogObject) -> bool:
        with self._lock:
            key = (database, kind, name)
            if key in self._objects:
                return False
            self._objects[key] = entry
            return True

    @override
    def change(self, database: str, kind: ObjectKind, name: str, old: CatalogObject, new: CatalogObject | None) -> bool:
        with self._lock:
            if self._objects.get((database, kind, name)) != old:
                return False
            if new is None:
                del self._objects[(database, kind, name)]
            else:
                self._objects[(database, kind, name)] = new
            return True
