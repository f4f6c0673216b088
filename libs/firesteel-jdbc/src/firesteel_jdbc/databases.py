"""Databases and their drivers: how to connect, placeholders of statements, and which drivers take columns."""

from __future__ import annotations

import importlib
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, ClassVar, Final
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

import pyarrow as pa

from firesteel.common.time import Instant
from firesteel.core.errors import ProgramError

_TOKEN: Final = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|--[^\n]*|/\*.*?\*/|\?", re.DOTALL)
"""Parts of a statement in which a question mark is no placeholder, and a placeholder."""
_JAVA: Final = re.compile(r"([a-z][a-z0-9_]*\.)+[A-Z]\w*$")
"""Names of Java's drivers, as ``org.postgresql.Driver``."""
_EXTRAS: Final = {"duckdb": "duckdb", "adbc_driver_postgresql": "adbc", "adbc_driver_sqlite": "adbc"}


def statement(sql: str, paramstyle: str) -> tuple[str, int]:
    """Translate a statement to the placeholders of a driver, and count them.

    Args:
        sql: statement in which each ``?`` outside of texts, quoted names and comments is a placeholder, as in JDBC.
        paramstyle: style of PEP 249, or ``dollar`` (``$1``).

    Raises:
        ProgramError: the driver has placeholders with names only.
    """
    count = 0

    def replaced(match: re.Match[str]) -> str:
        nonlocal count
        if match[0] != "?":
            return match[0].replace("%", "%%") if paramstyle in ("format", "pyformat") else match[0]
        count += 1
        match paramstyle:
            case "qmark":
                return "?"
            case "format" | "pyformat":
                return "%s"
            case "numeric":
                return f":{count}"
            case "dollar":
                return f"${count}"
        raise ProgramError(f"JDBC: a driver whose placeholders are of the style {paramstyle!r} can't be used")

    if paramstyle not in ("format", "pyformat"):
        return _TOKEN.sub(replaced, sql), count
    # In these styles a percent sign of the statement itself is doubled.
    pieces, end = [], 0
    for match in _TOKEN.finditer(sql):
        pieces += [sql[end : match.start()].replace("%", "%%"), replaced(match)]
        end = match.end()
    return "".join([*pieces, sql[end:].replace("%", "%%")]), count


class DatabaseConnection:
    """An open connection, for one thread.

    Args:
        raw: connection of the driver.
        paramstyle: style of the driver's placeholders.
        columns: the driver takes and gives columns (ADBC).
    """

    def __init__(self, raw: Any, paramstyle: str, *, columns: bool = False) -> None:
        self._raw, self._paramstyle, self.columns = raw, paramstyle, columns

    def run(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Execute a statement; returns its rows."""
        text, _ = statement(sql, self._paramstyle)
        cursor = self._raw.cursor()
        try:
            if parameters:
                cursor.execute(text, tuple(parameters))
            else:
                cursor.execute(text)
            return list(cursor.fetchall()) if cursor.description else []
        finally:
            cursor.close()

    def run_many(self, sql: str, rows: Sequence[Sequence[Any]] | pa.RecordBatch) -> None:
        """Execute a statement for each row; a batch may be given if ``columns`` is set."""
        text, _ = statement(sql, self._paramstyle)
        cursor = self._raw.cursor()
        try:
            cursor.executemany(text, rows)
        finally:
            cursor.close()

    def read(self, sql: str, parameters: Sequence[Any], at_once: int) -> Iterator[pa.RecordBatch | list[Any]]:
        """Execute a query, and yield its rows as they are fetched: batches of columns, or lists of tuples."""
        text, _ = statement(sql, self._paramstyle)
        cursor = self._raw.cursor()
        try:
            if parameters:
                cursor.execute(text, tuple(parameters))
            else:
                cursor.execute(text)
            if self.columns:
                yield from cursor.fetch_record_batch()  # the driver says how many rows are in a batch
                return
            while rows := cursor.fetchmany(at_once):
                yield rows
        finally:
            cursor.close()

    def commit(self) -> None:
        """Commit the transaction; the next statement begins another one."""
        self._raw.commit()

    def rollback(self) -> None:
        """Undo the statements since the last commit."""
        self._raw.rollback()

    def close(self) -> None:
        """Close the connection; what is not committed is undone."""
        self._raw.close()


def plain_value(value: Any) -> Any:
    """A value as drivers take it: a point in time as a ``datetime`` with a zone."""
    if isinstance(value, Instant):
        return datetime.fromtimestamp(0, UTC) + timedelta(seconds=value.seconds, microseconds=value.nanos // 1000)
    return value


def sqlite_value(value: Any) -> Any:
    """A value as SQLite stores it: decimal numbers and times as texts."""
    value = plain_value(value)
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, datetime):
        return value.isoformat(" ")
    return value.isoformat() if isinstance(value, (date, time)) else value


class Database(ABC):
    """Opens connections to one database.

    Args:
        module: module of the driver.
        name: address without user and password, for messages.

    Attributes:
        columns: connections take columns.
    """

    columns: ClassVar[bool] = False
    value_of: Callable[[Any], Any] = staticmethod(plain_value)
    """Converts a value of a row to one that the driver takes."""

    def __init__(self, module: str, name: str) -> None:
        self._module, self.name = module, name

    def check(self) -> None:
        """Check that the driver is installed.

        Raises:
            ProgramError: the driver is missing.
        """
        self._driver()

    @abstractmethod
    def connect(self) -> DatabaseConnection:
        """Open a connection whose statements run in transactions.

        Raises:
            Exception: the driver can't connect.
        """

    def _driver(self) -> Any:
        try:
            return importlib.import_module(self._module)
        except ModuleNotFoundError as error:
            if error.name != self._module:
                raise
            package = f"firesteel[{_EXTRAS[self._module]}]" if self._module in _EXTRAS else self._module
            raise ProgramError(f"JDBC: the driver {self._module} is not installed: pip install {package}") from None


class _Sqlite(Database):
    value_of = staticmethod(sqlite_value)

    def __init__(self, path: str) -> None:
        super().__init__("sqlite3", f"sqlite:{path}")
        self._path = path

    def connect(self) -> DatabaseConnection:
        return DatabaseConnection(self._driver().connect(self._path, timeout=30.0, check_same_thread=False), "qmark")


class _DuckDb(Database):
    def __init__(self, path: str) -> None:
        super().__init__("duckdb", f"duckdb:{path}")
        self._path = path

    def connect(self) -> DatabaseConnection:
        connection = self._driver().connect(self._path)
        connection.begin()
        return _DuckConnection(connection, "qmark")


class _DuckConnection(DatabaseConnection):
    """A connection of DuckDB, which has no transaction until one is begun."""

    def run(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        self._raw.execute(statement(sql, "qmark")[0], list(parameters) or None)
        return list(self._raw.fetchall()) if self._raw.description else []

    def run_many(self, sql: str, rows: Sequence[Sequence[Any]] | pa.RecordBatch) -> None:
        self._raw.executemany(statement(sql, "qmark")[0], rows)

    def read(self, sql: str, parameters: Sequence[Any], at_once: int) -> Iterator[pa.RecordBatch | list[Any]]:
        self._raw.execute(statement(sql, "qmark")[0], list(parameters) or None)
        # fetch_record_batch is the former name of the method.
        reader = getattr(self._raw, "to_arrow_reader", None) or self._raw.fetch_record_batch
        yield from reader(at_once)

    def commit(self) -> None:
        self._raw.commit()
        self._raw.begin()

    def rollback(self) -> None:
        self._raw.rollback()
        self._raw.begin()


class _Adbc(Database):
    columns = True

    def __init__(self, module: str, address: str, name: str, paramstyle: str) -> None:
        super().__init__(module, name)
        self._address, self._paramstyle = address, paramstyle

    def connect(self) -> DatabaseConnection:
        module = importlib.import_module(f"{self._driver().__name__}.dbapi")
        return DatabaseConnection(module.connect(self._address), self._paramstyle, columns=True)


class _DbApi(Database):
    """Any module of DB-API 2.0 whose ``connect`` takes an address, ``user`` and ``password``."""

    def __init__(self, module: str, address: str, name: str, user: str | None, password: str | None) -> None:
        super().__init__(module, name)
        self._address = address
        self._log_in = {key: value for key, value in (("user", user), ("password", password)) if value is not None}

    def connect(self) -> DatabaseConnection:
        module = self._driver()
        return DatabaseConnection(module.connect(self._address, **self._log_in), module.paramstyle)

    def _driver(self) -> Any:
        module = super()._driver()
        if not hasattr(module, "paramstyle"):
            raise ProgramError(f"JDBC: the module {self._module!r} is no driver of DB-API 2.0")
        return module


def database_of(url: str, driver: str | None, user: str | None, password: str | None) -> Database:
    """The database that a URL and a driver stand for; does no I/O.

    Args:
        url: URL, with or without ``jdbc:`` in front.
        driver: driver, as of ``JdbcConnectionOptions``.
        user: user to log in as, for databases that have users.
        password: password of the user.

    Raises:
        ProgramError: neither URL nor driver says how to connect.
    """
    address = url.removeprefix("jdbc:")
    scheme, _, target = address.partition(":")
    kind = {"postgres": "postgresql"}.get(scheme.lower(), scheme.lower())
    if driver is not None and _JAVA.match(driver):
        driver = None  # the usual driver of this database
    if kind in ("sqlite", "duckdb"):
        path = target.removeprefix("//") if target.startswith("///") else target
        if driver in (None, kind, "sqlite3"):
            return _Sqlite(path) if kind == "sqlite" else _DuckDb(path)
        if driver == "adbc" and kind == "sqlite":
            return _Adbc("adbc_driver_sqlite", path, f"sqlite:{path}", "qmark")
    elif kind == "postgresql":
        whole, shown = _with_log_in(f"postgresql:{target}", user, password)
        if driver in (None, "adbc"):
            return _Adbc("adbc_driver_postgresql", whole, shown, "dollar")
        return _DbApi(driver, whole, shown, None, None)
    if driver in (None, "adbc"):
        raise ProgramError(
            f"JDBC: {_shown(url)!r} is of no database that is known (postgresql, sqlite, duckdb); others need "
            "with_driver_name(), a module of DB-API 2.0 whose connect() takes the address"
        )
    return _DbApi(driver, address, _shown(address), user, password)


def _with_log_in(address: str, user: str | None, password: str | None) -> tuple[str, str]:
    """An address with user and password, and the same without them for messages."""
    parts = urlsplit(address)
    options = dict(parse_qsl(parts.query))
    user = user or options.pop("user", None)
    password = password or options.pop("password", None)
    host = parts.netloc.rpartition("@")[2]
    log_in = parts.netloc.rpartition("@")[0]
    if user:
        log_in = quote(user, safe="") + (f":{quote(password, safe='')}" if password else "")
    netloc = f"{log_in}@{host}" if log_in else host
    whole = urlunsplit((parts.scheme, netloc, parts.path, urlencode(options), ""))
    return whole, f"postgresql://{host}{parts.path}"


def _shown(url: str) -> str:
    """A URL without user, password and query, which may be secret."""
    return re.sub(r"//[^/@]*@", "//", url.partition("?")[0])
