"""Tables of a real PostgreSQL: each record once, whoever dies in a commit, and what is there comes as it is."""

from __future__ import annotations

import datetime
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

from firesteel.common import Row, Types, WatermarkStrategy
from firesteel.datastream import DataStream
from firesteel.datastream.connectors.jdbc import (
    JdbcExecutionOptions,
    JdbcNumericBetweenParametersProvider,
    JdbcSink,
    JdbcSource,
)
from firesteel.testing import check_source, check_two_phase_sink
from tests.integration.embedded.programs import new_environment, submitted_to
from tests.integration.recovery import steps
from tests.integration.recovery.places import SLOT, Embedded
from tests.integration.recovery.stepped_sink import Stepped
from tests.integration.recovery.trials import ANY_MOMENT, Death, Trial
from tests.servers.postgresql.server import PostgresServer

pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.may_skip(reason="a machine where no PostgreSQL is, and none can be installed"),
]
ROWS = Types.ROW_NAMED(["id", "name"], [Types.LONG(), Types.STRING()])
TEXT = Types.ROW_NAMED(["text"], [Types.STRING()])
DRIVERS = [pytest.param(None, id="adbc"), "psycopg"]


def rows(count: int) -> list[Row]:
    return [Row(id=number, name=f"name {number}") for number in range(count)]


@pytest.mark.parametrize("driver", DRIVERS)
def test_the_contracts_are_kept(postgres: PostgresServer, driver: str | None) -> None:
    for table in ("contract", "source", "firesteel_commits"):
        postgres.run(f"DROP TABLE IF EXISTS {table}")
    postgres.run("CREATE TABLE contract (id BIGINT, name TEXT)")
    options = postgres.options(driver)

    def sink() -> JdbcSink:
        return JdbcSink.exactly_once_sink("INSERT INTO contract VALUES (?, ?)", ROWS, options)

    def visible() -> list[Row]:
        return [Row(id=id_, name=text) for id_, text in postgres.run("SELECT id, name FROM contract")]

    check_two_phase_sink(sink, rows(50), visible)
    postgres.run("CREATE TABLE source AS SELECT n AS id, 'name ' || n AS name FROM generate_series(0, 299) AS n")

    def source() -> JdbcSource:
        return (
            JdbcSource.builder()
            .set_connection_options(options)
            .set_sql("SELECT id, name FROM source WHERE id BETWEEN ? AND ? ORDER BY id")
            .set_type_information(ROWS)
            .set_jdbc_parameter_values_provider(JdbcNumericBetweenParametersProvider(0, 299).of_batch_num(3))
            .build()
        )

    check_source(source, rows(300))


@pytest.mark.parametrize("driver", DRIVERS)
def test_values_of_all_types_go_there_and_come_back(
    here: Embedded, postgres: PostgresServer, driver: str | None
) -> None:
    postgres.run("DROP TABLE IF EXISTS kinds")
    postgres.run(
        "CREATE TABLE kinds (i INTEGER, l BIGINT, x DOUBLE PRECISION, b BOOLEAN, t TEXT, d DATE, at TIMESTAMP, y BYTEA)"
    )
    names = ["i", "l", "x", "b", "t", "d", "at", "y"]
    kinds = Types.ROW_NAMED(
        names,
        [
            Types.INT(), Types.LONG(), Types.DOUBLE(), Types.BOOLEAN(), Types.STRING(), Types.SQL_DATE(),
            Types.SQL_TIMESTAMP(), Types.PRIMITIVE_ARRAY(Types.BYTE()),
        ],
    )  # fmt: skip
    at = datetime.datetime(2026, 2, 3, 4, 5, 6, 789000)
    rows = [
        Row(i=1, l=1 << 40, x=0.5, b=True, t="é ?", d=datetime.date(2026, 1, 2), at=at, y=b"\0\xff"),
        Row(i=None, l=None, x=None, b=None, t=None, d=None, at=None, y=None),
    ]
    options = postgres.options(driver)
    with submitted_to(here.settings()):
        environment = new_environment(2)
        written = environment.from_collection(rows, kinds)
        written.add_sink(JdbcSink.sink("INSERT INTO kinds VALUES (?, ?, ?, ?, ?, ?, ?, ?)", kinds, options))
        environment.execute("write")
        source = (
            JdbcSource.builder()
            .set_connection_options(options)
            .set_sql("SELECT * FROM kinds")
            .set_type_information(kinds)
            .build()
        )
        read = environment.from_source(source, WatermarkStrategy.no_watermarks(), "kinds")
        rows_read = list(read.execute_and_collect())
    assert sorted(rows_read, key=repr) == sorted(rows, key=repr)


@dataclass
class TableTrial(Trial):
    """A trial whose results are in tables."""

    postgres: PostgresServer = None  # type: ignore[assignment] # behind arguments with defaults

    def __post_init__(self) -> None:
        super().__post_init__()
        folder, options = self.folder, self.postgres.options()
        for name in self.programs:
            self.postgres.run(f'CREATE TABLE "{name}" (text TEXT)')

        def out(texts: DataStream, name: str) -> None:
            execution = JdbcExecutionOptions.builder().with_max_retries(10).build()
            sink = JdbcSink.exactly_once_sink(f'INSERT INTO "{name}" VALUES (?)', TEXT, options, execution)
            texts.map(lambda text: Row(text=text), TEXT).sink_to(Stepped(folder, sink))

        self.out = out

    def written(self, name: str) -> Counter[str]:
        return Counter(text for (text,) in self.postgres.run(f'SELECT text FROM "{name}"'))


def test_deaths_in_commits_and_of_the_server(here: Embedded, postgres: PostgresServer, tmp_path: Path) -> None:
    trial = TableTrial(here, tmp_path, ["chain", "keyed"], rate=500, postgres=postgres)

    def server_dies() -> None:
        postgres.kill()
        postgres.start()
        trial._progress()

    mine = (steps.BEFORE_COMMIT, steps.WITHIN_COMMIT, steps.AFTER_COMMIT)
    trial.run([*(Death(step) for step in mine), Death(ANY_MOMENT, SLOT)], Death(steps.WITHIN_COMMIT), server_dies)
    assert postgres.run("SELECT count(*) FROM firesteel_commits")[0][0] > 0
