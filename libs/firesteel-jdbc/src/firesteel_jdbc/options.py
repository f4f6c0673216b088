"""Which database, and how it is written to. PyFlink's names."""

from __future__ import annotations

from dataclasses import dataclass

from firesteel.config.option import Secret
from firesteel.core.errors import ProgramError
from firesteel_jdbc.databases import Database, database_of

__all__ = ["JdbcConnectionOptions", "JdbcExactlyOnceOptions", "JdbcExecutionOptions"]


@dataclass(frozen=True)
class JdbcConnectionOptions:
    """How a database is reached. The password shows itself as stars, and is pickled into the job's chains only."""

    url: str
    driver_name: str | None = None
    user_name: str | None = None
    secret: Secret | None = None

    def get_db_url(self) -> str:
        """The URL."""
        return self.url

    def get_driver_name(self) -> str | None:
        """The driver; None = the usual one."""
        return self.driver_name

    def get_user_name(self) -> str | None:
        """The user."""
        return self.user_name

    def get_password(self) -> str | None:
        """The password."""
        return None if self.secret is None else self.secret.reveal()

    def database(self) -> Database:
        """How it is talked to.

        Raises:
            ProgramError: nobody knows how.
        """
        return database_of(self.url, self.driver_name, self.user_name, self.get_password())

    class JdbcConnectionOptionsBuilder:
        """Builds ``JdbcConnectionOptions``."""

        def __init__(self) -> None:
            self._url = ""
            self._driver: str | None = None
            self._user: str | None = None
            self._password: Secret | None = None

        def with_url(self, url: str) -> JdbcConnectionOptions.JdbcConnectionOptionsBuilder:
            """Say where it is.

            ``jdbc:postgresql://host:5432/database``, ``jdbc:sqlite:/path``, ``jdbc:duckdb:/path``.
            """
            self._url = url
            return self

        def with_driver_name(self, driver_name: str) -> JdbcConnectionOptions.JdbcConnectionOptionsBuilder:
            """Choose a driver: ``adbc``, or a module of DB-API 2.0 such as ``psycopg``.

            Names of Java classes are taken, and mean the usual one.
            """
            self._driver = driver_name
            return self

        def with_user_name(self, user_name: str) -> JdbcConnectionOptions.JdbcConnectionOptionsBuilder:
            """Log in as this user."""
            self._user = user_name
            return self

        def with_password(self, password: str) -> JdbcConnectionOptions.JdbcConnectionOptionsBuilder:
            """Log in by this password."""
            self._password = Secret(password)
            return self

        def build(self) -> JdbcConnectionOptions:
            """The options.

            Raises:
                ProgramError: the URL is missing, or of no database that is known.
            """
            if not self._url:
                raise ProgramError("JdbcConnectionOptions: with_url() is missing")
            made = JdbcConnectionOptions(self._url, self._driver, self._user, self._password)
            made.database()
            return made


@dataclass(frozen=True)
class JdbcExecutionOptions:
    """How records are gathered, and what is tried again.

    Attributes:
        batch_interval_ms: what was gathered is written after this time at the latest; 0 = not by time.
        batch_size: so many records are written at once; 0 = not by number.
        max_retries: attempts behind the first one.
    """

    batch_interval_ms: int = 0
    batch_size: int = 5000
    max_retries: int = 3

    def get_batch_interval_ms(self) -> int:
        """Milliseconds."""
        return self.batch_interval_ms

    def get_batch_size(self) -> int:
        """Records."""
        return self.batch_size

    def get_max_retries(self) -> int:
        """Attempts behind the first one."""
        return self.max_retries

    @staticmethod
    def defaults() -> JdbcExecutionOptions:
        """5000 records at once, three more attempts."""
        return JdbcExecutionOptions()

    @staticmethod
    def builder() -> JdbcExecutionOptions.Builder:
        """A builder with the defaults."""
        return JdbcExecutionOptions.Builder()

    class Builder:
        """Builds ``JdbcExecutionOptions``."""

        def __init__(self) -> None:
            self._size, self._interval, self._retries = 5000, 0, 3

        def with_batch_size(self, size: int) -> JdbcExecutionOptions.Builder:
            """Write so many records at once."""
            self._size = _not_below_zero("with_batch_size()", size)
            return self

        def with_batch_interval_ms(self, interval_ms: int) -> JdbcExecutionOptions.Builder:
            """Write what was gathered after this time at the latest."""
            self._interval = _not_below_zero("with_batch_interval_ms()", interval_ms)
            return self

        def with_max_retries(self, max_retries: int) -> JdbcExecutionOptions.Builder:
            """Try again so often."""
            self._retries = _not_below_zero("with_max_retries()", max_retries)
            return self

        def build(self) -> JdbcExecutionOptions:
            """The options."""
            return JdbcExecutionOptions(self._interval, self._size, self._retries)


def _not_below_zero(what: str, value: int) -> int:
    if value < 0:
        raise ProgramError(f"JdbcExecutionOptions: {what} takes no number below 0, such as {value}")
    return value


@dataclass(frozen=True)
class JdbcExactlyOnceOptions:
    """Of a sink that writes each record once.

    Attributes:
        table: where it notes which transactions were committed; it is made if it is not there.
        keep_days: notes that are older are removed. No checkpoint that is older may be gone on from.
    """

    table: str = "firesteel_commits"
    keep_days: int = 30

    def __post_init__(self) -> None:
        if not self.table.replace("_", "").replace(".", "").isalnum() or self.keep_days < 1:
            raise ProgramError(
                f"JdbcExactlyOnceOptions: a name of letters, digits, _ and dots and at least one day are expected, not "
                f"{self.table!r} and {self.keep_days}"
            )
