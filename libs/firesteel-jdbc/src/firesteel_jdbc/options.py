"""Options of JDBC connections and sinks, with PyFlink's names."""

from __future__ import annotations

from dataclasses import dataclass

from firesteel.config.option import Secret
from firesteel.core.errors import ProgramError
from firesteel_jdbc.databases import Database, database_of

__all__ = ["JdbcConnectionOptions", "JdbcExactlyOnceOptions", "JdbcExecutionOptions"]


@dataclass(frozen=True)
class JdbcConnectionOptions:
    """Address of a database, and the login. ``repr`` masks the password; only the job's chains hold it, pickled.

    Examples:
        ```python
        from firesteel.datastream.connectors.jdbc import JdbcConnectionOptions

        options = JdbcConnectionOptions.JdbcConnectionOptionsBuilder().with_url("jdbc:sqlite:shop.db").build()
        print(options.get_db_url())
        ```

        ```text
        jdbc:sqlite:shop.db
        ```
    """

    url: str
    driver_name: str | None = None
    user_name: str | None = None
    secret: Secret | None = None

    def get_db_url(self) -> str:
        """The URL as it was set."""
        return self.url

    def get_driver_name(self) -> str | None:
        """The driver; None = the usual one of this database."""
        return self.driver_name

    def get_user_name(self) -> str | None:
        """The user to log in as."""
        return self.user_name

    def get_password(self) -> str | None:
        """The password as plain text."""
        return None if self.secret is None else self.secret.reveal()

    def database(self) -> Database:
        """The database that the URL and the driver stand for.

        Raises:
            ProgramError: neither URL nor driver says how to connect.
        """
        return database_of(self.url, self.driver_name, self.user_name, self.get_password())

    class JdbcConnectionOptionsBuilder:
        """Builds ``JdbcConnectionOptions``; only the URL is needed."""

        def __init__(self) -> None:
            self._url = ""
            self._driver: str | None = None
            self._user: str | None = None
            self._password: Secret | None = None

        def with_url(self, url: str) -> JdbcConnectionOptions.JdbcConnectionOptionsBuilder:
            """Set the URL of the database.

            Examples: ``jdbc:postgresql://host:5432/database``, ``jdbc:sqlite:/path``, ``jdbc:duckdb:/path``.
            """
            self._url = url
            return self

        def with_driver_name(self, driver_name: str) -> JdbcConnectionOptions.JdbcConnectionOptionsBuilder:
            """Set the driver: ``adbc``, or a module of DB-API 2.0 such as ``psycopg``.

            Names of Java classes are accepted, and stand for the usual driver.
            """
            self._driver = driver_name
            return self

        def with_user_name(self, user_name: str) -> JdbcConnectionOptions.JdbcConnectionOptionsBuilder:
            """Set the user to log in as."""
            self._user = user_name
            return self

        def with_password(self, password: str) -> JdbcConnectionOptions.JdbcConnectionOptionsBuilder:
            """Set the password to log in with."""
            self._password = Secret(password)
            return self

        def build(self) -> JdbcConnectionOptions:
            """Check the settings and make the options.

            Raises:
                ProgramError: the URL is missing, or is of no known database.
            """
            if not self._url:
                raise ProgramError("JdbcConnectionOptions: with_url() is missing")
            options = JdbcConnectionOptions(self._url, self._driver, self._user, self._password)
            options.database()
            return options


@dataclass(frozen=True)
class JdbcExecutionOptions:
    """How records are buffered, and how often a failed write is repeated.

    Attributes:
        batch_interval_ms: longest time for which records are buffered; 0 = no limit.
        batch_size: number of records that are written at once; 0 = no limit.
        max_retries: attempts after the first one.

    Examples:
        ```python
        from firesteel.datastream.connectors.jdbc import JdbcExecutionOptions

        options = JdbcExecutionOptions.builder().with_batch_size(500).with_batch_interval_ms(1000).build()
        print(options.get_batch_size())
        ```

        ```text
        500
        ```
    """

    batch_interval_ms: int = 0
    batch_size: int = 5000
    max_retries: int = 3

    def get_batch_interval_ms(self) -> int:
        """Longest time for which records are buffered, in milliseconds."""
        return self.batch_interval_ms

    def get_batch_size(self) -> int:
        """Number of records that are written at once."""
        return self.batch_size

    def get_max_retries(self) -> int:
        """Attempts after the first one."""
        return self.max_retries

    @staticmethod
    def defaults() -> JdbcExecutionOptions:
        """Options of 5000 records at once and three retries."""
        return JdbcExecutionOptions()

    @staticmethod
    def builder() -> JdbcExecutionOptions.Builder:
        """A builder with the default options."""
        return JdbcExecutionOptions.Builder()

    class Builder:
        """Builds ``JdbcExecutionOptions``, beginning with those of ``defaults()``."""

        def __init__(self) -> None:
            self._size, self._interval, self._retries = 5000, 0, 3

        def with_batch_size(self, size: int) -> JdbcExecutionOptions.Builder:
            """Set the number of records that are written at once; 0 = no limit."""
            self._size = _not_below_zero("with_batch_size()", size)
            return self

        def with_batch_interval_ms(self, interval_ms: int) -> JdbcExecutionOptions.Builder:
            """Set the longest time for which records are buffered, in milliseconds; 0 = no limit."""
            self._interval = _not_below_zero("with_batch_interval_ms()", interval_ms)
            return self

        def with_max_retries(self, max_retries: int) -> JdbcExecutionOptions.Builder:
            """Set the number of attempts after the first one."""
            self._retries = _not_below_zero("with_max_retries()", max_retries)
            return self

        def build(self) -> JdbcExecutionOptions:
            """Make the options; the builder can be used again."""
            return JdbcExecutionOptions(self._interval, self._size, self._retries)


def _not_below_zero(method: str, value: int) -> int:
    if value < 0:
        raise ProgramError(f"JdbcExecutionOptions: {method} takes no number below 0, such as {value}")
    return value


@dataclass(frozen=True)
class JdbcExactlyOnceOptions:
    """Options of a sink that writes each record exactly once.

    Attributes:
        table: table in which the sink notes the transactions that were committed; the sink creates it if needed.
        keep_days: age at which notes are removed. The job must not be restored from an older checkpoint.

    Examples:
        ```python
        from firesteel.datastream.connectors.jdbc import JdbcExactlyOnceOptions

        options = JdbcExactlyOnceOptions()
        print(options.table, options.keep_days)
        ```

        ```text
        firesteel_commits 30
        ```
    """

    table: str = "firesteel_commits"
    keep_days: int = 30

    def __post_init__(self) -> None:
        if not self.table.replace("_", "").replace(".", "").isalnum() or self.keep_days < 1:
            raise ProgramError(
                f"JdbcExactlyOnceOptions: a name of letters, digits, _ and dots and at least one day are expected, not "
                f"{self.table!r} and {self.keep_days}"
            )
