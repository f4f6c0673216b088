"""``'type' = 'file'``: a catalog in a directory, which several processes and sessions share.

A database is a directory in it, and each table, view and function is a file with the statement that declares it. A file
is replaced as a whole, so a reader finds the old statement or the new one. Whoever changes something has the lock of
the directory meanwhile, and looks at what is there before: of two writers at once, one is refused.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

from typing_extensions import override

from firesteel.core.files import replace_file
from firesteel_sql.catalog.catalog import Catalog, CatalogError, ObjectKind
from firesteel_sql.catalog.catalogs import Catalogs
from firesteel_sql.catalog.ddl import create_database_text, create_text, quoted_name
from firesteel_sql.catalog.options import CatalogOptions
from firesteel_sql.catalog.tables import CatalogDatabase, CatalogFunction, CatalogObject, CatalogView
from firesteel_sql.execution.declarations import Declarations
from firesteel_sql.functions.signature import Session
from firesteel_sql.parse import statement_nodes as s
from firesteel_sql.parse.errors import SqlError
from firesteel_sql.parse.statements import parse_script

_DATABASE = "database.ddl"
"""File with the statement of a database, in its directory."""
_MODE = 0o660
"""Mode of the files: tables may have passwords among their options."""


class FileCatalog(Catalog):
    """A catalog in a directory; ``path`` is the directory, which is made if it is not there."""

    def __init__(self, name: str, options: Mapping[str, str]) -> None:
        super().__init__(name, options)
        chosen = CatalogOptions(name, options)
        path = chosen.required("path")
        self._default = chosen.text("default-database", "default") or "default"
        chosen.refuse_unknown()
        url = urlsplit(path)
        if url.scheme not in ("", "file"):
            raise CatalogError(f"catalog {name}: 'path' is {path}, and has to be a directory that hosts have mounted")
        self._root = Path(url.path if url.scheme else path).absolute()
        try:
            self._root.mkdir(parents=True, exist_ok=True)
            self.add_database(self._default, CatalogDatabase())
        except OSError as error:
            raise CatalogError(f"catalog {name}: {error.filename or self._root}: {error.strerror}") from error

    @property
    @override
    def default_database(self) -> str:
        return self._default

    # -- files

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """The lock of the directory: one thread of one process has it."""
        try:
            handle = os.open(self._root / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _MODE)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX)
                yield
            finally:
                os.close(handle)
        except OSError as error:
            raise CatalogError(f"catalog {self.name}: {error.filename or self._root}: {error.strerror}") from error

    def _folder(self, database: str) -> Path:
        return self._root / _file_name(database)

    def _file(self, database: str, kind: ObjectKind, name: str) -> Path:
        return self._folder(database) / f"{_file_name(name)}{_ENDINGS[kind]}"

    def _read(self, path: Path) -> tuple[str, list[s.Statement]] | None:
        """The text of a file, and its statements; None if there is no such file.

        Raises:
            CatalogError: it is not what was written, or can't be read.
        """
        try:
            text = path.read_text("utf-8")
        except FileNotFoundError:
            return None
        except OSError as error:
            raise CatalogError(f"catalog {self.name}: {path}: {error.strerror}") from error
        except UnicodeDecodeError:
            raise self._damaged(path, "it is no text in UTF-8") from None
        try:
            statements = parse_script(text)
        except SqlError as error:
            raise self._damaged(path, str(error)) from None
        if not text.rstrip().endswith(";") or not statements:
            raise self._damaged(path, "its end is missing")
        return text, statements

    def _damaged(self, path: Path, problem: str) -> CatalogError:
        return CatalogError(
            f"catalog {self.name}: the file {path} is damaged: write its statement again, or remove it: {problem}"
        )

    # -- databases

    @override
    def list_databases(self) -> list[str]:
        return sorted(unquote(path.name) for path in self._root.iterdir() if path.name[0] != "." and path.is_dir())

    @override
    def get_database(self, name: str) -> CatalogDatabase | None:
        if not self._folder(name).is_dir():
            return None
        content = self._read(self._folder(name) / _DATABASE)
        if content is None:
            return CatalogDatabase()
        statement = content[1][-1]
        if not isinstance(statement, s.CreateDatabase):
            raise self._damaged(self._folder(name) / _DATABASE, "CREATE DATABASE is missing")
        return CatalogDatabase(statement.comment, dict(statement.options))

    @override
    def add_database(self, name: str, database: CatalogDatabase) -> bool:
        with self._changing():
            try:
                self._folder(name).mkdir()
            except FileExistsError:
                return False
            self._write_database(name, database)
            return True

    def _write_database(self, name: str, database: CatalogDatabase) -> None:
        text = f"{create_database_text((name,), database)};\n"
        replace_file(self._folder(name) / _DATABASE, text.encode(), mode=_MODE)

    @override
    def change_database(self, name: str, old: CatalogDatabase, new: CatalogDatabase) -> bool:
        with self._changing():
            if self.get_database(name) != old:
                return False
            self._write_database(name, new)
            return True

    @override
    def drop_database(self, name: str, *, cascades: bool) -> bool:
        with self._changing():
            if not cascades and any(self.list_objects(name, kind) for kind in ObjectKind):
                return False
            dropped = self._root / f".dropped-{uuid.uuid4().hex}"
            os.rename(self._folder(name), dropped)  # others find all of it or nothing
            shutil.rmtree(dropped, ignore_errors=True)
            return True

    # -- tables, views and functions

    @override
    def list_objects(self, database: str, kind: ObjectKind) -> list[str]:
        ending = _ENDINGS[kind]
        names = []
        if self._folder(database).is_dir():
            for path in self._folder(database).iterdir():
                stem = path.name.removesuffix(ending)
                if path.name.endswith(ending) and stem and "." not in stem:
                    names.append(unquote(stem))
        return sorted(names)

    @override
    def get(self, database: str, kind: ObjectKind, name: str) -> CatalogObject | None:
        path = self._file(database, kind, name)
        content = self._read(path)
        return None if content is None else self._declared(path, *content, database, kind)

    def _declared(
        self, path: Path, text: str, statements: list[s.Statement], database: str, kind: ObjectKind
    ) -> CatalogObject:
        """What the statements of a file declare.

        Raises:
            CatalogError: nothing of this kind, or it is wrong.
        """
        current = Catalogs()
        current.register(self.name, self)
        current.use((self.name,), is_catalog=True)
        current.use_database(database)
        match statements[-1]:
            case s.CreateTable() as statement if kind is ObjectKind.RELATION:
                try:
                    return Declarations(current, Session(), text).table(statement, None)
                except SqlError as error:
                    raise self._damaged(path, str(error)) from None
            case s.CreateView() as statement if kind is ObjectKind.RELATION:
                catalog = self.name
                for before in statements[:-1]:
                    if isinstance(before, s.Use) and before.is_catalog:
                        catalog = before.path[0]
                    elif isinstance(before, s.Use):
                        database = before.path[-1]
                return CatalogView(statement.text, statement.columns, statement.comment, catalog, database)
            case s.CreateFunction() as statement if kind is ObjectKind.FUNCTION:
                return CatalogFunction(statement.target, statement.language)
        raise self._damaged(path, f"it does not declare a {kind.value}")

    @override
    def add(self, database: str, kind: ObjectKind, name: str, entry: CatalogObject) -> bool:
        with self._changing():
            path = self._file(database, kind, name)
            if path.exists():
                return False
            self._write(path, database, kind, name, entry)
            return True

    def _write(self, path: Path, database: str, kind: ObjectKind, name: str, entry: CatalogObject) -> None:
        text = f"{create_text((name,), entry, masks_secrets=False)};\n"
        if isinstance(entry, CatalogView):  # names in its query are looked up from where it was declared
            if entry.database != database:
                text = f"USE {quoted_name(entry.database)};\n{text}"
            if entry.catalog != self.name:
                text = f"USE CATALOG {quoted_name(entry.catalog)};\n{text}"
        try:
            is_kept = self._declared(path, text, parse_script(text), database, kind) == entry
        except (CatalogError, SqlError):
            is_kept = False
        if not is_kept:  # rather than to lose a part of it
            raise CatalogError(f"catalog {self.name}: {name} can't be written as a statement that declares it again")
        replace_file(path, text.encode(), mode=_MODE)

    @override
    def change(self, database: str, kind: ObjectKind, name: str, old: CatalogObject, new: CatalogObject | None) -> bool:
        with self._changing():
            path = self._file(database, kind, name)
            if self.get(database, kind, name) != old:
                return False
            if new is None:
                path.unlink()
            else:
                self._write(path, database, kind, name, new)
            return True


_ENDINGS = {ObjectKind.RELATION: ".sql", ObjectKind.FUNCTION: ".function.sql"}


def _file_name(name: str) -> str:
    """A name as the name of a file.

    Raises:
        CatalogError: it is too long.
    """
    file_name = quote(name, safe="").replace(".", "%2E")
    if len(file_name) > 200:
        raise CatalogError(f"the name {name[:40]}... is too long for a file: {len(file_name)} bytes, 200 at most")
    return file_name
