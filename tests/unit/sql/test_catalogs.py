"""Catalogs, databases, temporary objects, and what SHOW and DESCRIBE tell of them."""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from firesteel.core.errors import ProgramError
from firesteel_sql import TableEnvironment
from firesteel_sql.catalog.catalog import CatalogError, ObjectKind
from firesteel_sql.catalog.tables import CatalogFunction
from firesteel_sql.execution.file_catalog import FileCatalog


@pytest.fixture
def tables() -> TableEnvironment:
    return TableEnvironment.create()


def rows(tables: TableEnvironment, sql: str) -> list[Sequence[Any]]:
    return [tuple(row) for row in tables.execute_sql(sql).collect()]


def names(tables: TableEnvironment, sql: str) -> list[str]:
    return [row[0] for row in rows(tables, sql)]


def run(tables: TableEnvironment, *statements: str) -> None:
    for statement in statements:
        tables.execute_sql(statement)


def refused(tables: TableEnvironment, sql: str) -> str:
    with pytest.raises(ProgramError) as caught:
        tables.execute_sql(sql)
    return str(caught.value)


def use_files(tables: TableEnvironment, path: Path) -> None:
    run(tables, f"CREATE CATALOG files WITH ('type' = 'file', 'path' = '{path}')", "USE CATALOG files")


EVENTS = """
CREATE TABLE events (
  id BIGINT COMMENT 'it''s the key',
  `a b` ROW<`x y` INT, z ARRAY<MAP<STRING, DECIMAL(10, 2)>>>,
  at TIMESTAMP(3),
  part STRING METADATA FROM 'partition' VIRTUAL,
  twice AS id * 2 COMMENT 'computed',
  WATERMARK FOR at AS at - INTERVAL '5' SECOND,
  CONSTRAINT k PRIMARY KEY (id) NOT ENFORCED
) COMMENT 'of customers' PARTITIONED BY (`a b`) WITH ('connector' = 'datagen', 'password' = 'x''y')
"""


def test_temporary_tables_hide_permanent_ones(tables: TableEnvironment) -> None:
    run(tables, "CREATE TABLE t (a INT)", "CREATE TEMPORARY TABLE t (b INT)")
    assert names(tables, "DESCRIBE t") == ["b"]
    assert names(tables, "SHOW TABLES") == ["t"]
    assert names(tables, "SHOW CREATE TABLE t")[0].startswith("CREATE TEMPORARY TABLE")
    assert "DROP TEMPORARY TABLE t" in refused(tables, "DROP TABLE t")
    run(tables, "DROP TEMPORARY TABLE t")
    assert names(tables, "DESCRIBE t") == ["a"]
    assert "there is no temporary table t" in refused(tables, "DROP TEMPORARY TABLE t")


def test_catalogs_and_databases(tables: TableEnvironment) -> None:
    run(
        tables,
        "CREATE CATALOG other COMMENT 'mine' WITH ('type' = 'generic_in_memory', 'default-database' = 'd')",
        "USE CATALOG other",
        "CREATE DATABASE IF NOT EXISTS e COMMENT 'for e' WITH ('a' = 'b')",
        "ALTER DATABASE e SET ('a' = 'c', 'password' = 'x')",
        "USE e",
        "CREATE TABLE t (a INT)",
    )
    assert names(tables, "SHOW CATALOGS") == ["default_catalog", "other"]
    assert names(tables, "SHOW CATALOGS LIKE 'def%'") == ["default_catalog"]
    assert names(tables, "SHOW DATABASES FROM other NOT LIKE 'd'") == ["e"]
    assert names(tables, "SHOW TABLES IN other.e ILIKE 'T'") == ["t"]
    assert names(tables, "SHOW CURRENT CATALOG") == ["other"]
    assert rows(tables, "DESCRIBE DATABASE EXTENDED e")[2:] == [
        ("comment", "for e"), ("option:a", "c"), ("option:password", "******"),
    ]  # fmt: skip
    assert rows(tables, "DESC CATALOG other") == [
        ("name", "other"), ("type", "generic_in_memory"), ("comment", "mine"),
    ]  # fmt: skip
    assert names(tables, "SHOW CREATE CATALOG other") == [
        "CREATE CATALOG `other`\nCOMMENT 'mine'\nWITH (\n  'type' = 'generic_in_memory',\n  'default-database' = 'd'\n)"
    ]
    assert "is the current one" in refused(tables, "DROP CATALOG other")
    assert "is the current one" in refused(tables, "DROP DATABASE e")
    run(tables, "USE CATALOG default_catalog", "ALTER CATALOG other COMMENT 'theirs'")
    assert rows(tables, "DESCRIBE CATALOG other")[2] == ("comment", "theirs")
    assert "did you mean other?" in refused(tables, "DROP CATALOG othr")
    run(tables, "DROP CATALOG other", "DROP CATALOG IF EXISTS other")
    assert "there is no type 'generic_memory'; did you mean generic_in_memory?" in refused(
        tables, "CREATE CATALOG x WITH ('type' = 'generic_memory')"
    )
    assert "there is no option 'default_database'; did you mean default-database?" in refused(
        tables, "CREATE CATALOG x WITH ('type' = 'generic_in_memory', 'default_database' = 'd')"
    )


def test_show_create_can_be_run_again(tables: TableEnvironment) -> None:
    run(tables, EVENTS)
    (text,) = names(tables, "SHOW CREATE TABLE events")
    assert "x'y" not in text
    described = rows(tables, "DESCRIBE events")
    assert described[4] == ("twice", "BIGINT", False, None, "AS id * 2", None, "computed")
    assert described[2][5] == "at - INTERVAL '5' SECOND"
    run(tables, "DROP TABLE events", text)
    assert names(tables, "SHOW CREATE TABLE events") == [text]
    assert rows(tables, "DESCRIBE events") == described
    run(tables, "CREATE VIEW v (x) COMMENT 'y' AS SELECT id + 1 FROM events -- the end")
    (view,) = names(tables, "SHOW CREATE VIEW v")
    run(tables, "DROP VIEW v", view)
    assert names(tables, "SHOW CREATE VIEW v") == [view]
    assert "SHOW CREATE VIEW v" in refused(tables, "SHOW CREATE TABLE v")


def test_views_are_altered_and_never_read_themselves(tables: TableEnvironment) -> None:
    run(tables, "CREATE TABLE t (a INT)", "CREATE VIEW v AS SELECT a FROM t", "CREATE VIEW w AS SELECT a FROM v")
    run(tables, "ALTER VIEW v AS SELECT a + 1 AS b, a FROM t", "ALTER VIEW w RENAME TO u")
    assert names(tables, "DESCRIBE v") == ["b", "a"]
    assert names(tables, "SHOW VIEWS") == ["u", "v"]
    assert "would read itself" in refused(tables, "ALTER VIEW v AS SELECT * FROM u")
    assert "would read itself" in refused(tables, "CREATE OR REPLACE VIEW v AS SELECT * FROM v")
    assert names(tables, "DESCRIBE v") == ["b", "a"], "it is as it was before"
    assert "t is a table: ALTER TABLE" in refused(tables, "ALTER VIEW t RENAME TO x")
    assert "v is a view: ALTER VIEW" in refused(tables, "ALTER TABLE v RENAME TO x")
    run(tables, "ALTER VIEW IF EXISTS nothing RENAME TO x")
    run(tables, "DROP TABLE t")
    assert "the view's query is not right any more: there is no table t" in refused(tables, "SELECT * FROM v")


def test_a_file_catalog_is_shared_by_sessions(tables: TableEnvironment, tmp_path: Path) -> None:
    use_files(tables, tmp_path / "c")
    run(
        tables, EVENTS, "CREATE VIEW `of / ü 🎉..` AS SELECT id FROM events", "CREATE DATABASE d COMMENT 'x'",
        "CREATE VIEW d.far AS SELECT id FROM events", "CREATE FUNCTION f AS 'a.b' LANGUAGE PYTHON",
        "CREATE TABLE default_catalog.default_database.there (a INT)",
        "CREATE VIEW d.away AS SELECT a FROM default_catalog.default_database.there",
    )  # fmt: skip
    described = rows(tables, "DESCRIBE events")
    other = TableEnvironment.create()
    use_files(other, tmp_path / "c")
    assert names(other, "SHOW TABLES") == ["events", "of / ü 🎉.."]
    assert rows(other, "DESCRIBE events") == described
    assert names(other, "DESCRIBE `of / ü 🎉..`") == ["id"]
    assert names(other, "DESCRIBE d.far") == ["id"], "names are looked up from where the view was declared"
    assert names(other, "SHOW USER FUNCTIONS") == ["f"]
    assert rows(other, "DESCRIBE FUNCTION EXTENDED f")[2:] == [("class name", "a.b"), ("function language", "PYTHON")]
    assert "'password' = 'x''y'" in (tmp_path / "c/default/events.sql").read_text(), "not masked: it has to connect"
    run(other, "ALTER TABLE events RENAME twice TO double", "ALTER TABLE events RENAME TO renamed", "DROP VIEW d.away")
    assert names(tables, "SHOW TABLES") == ["of / ü 🎉..", "renamed"]
    assert "there is no database" in refused(tables, "CREATE TABLE nowhere.t (a INT)")
    assert "DROP DATABASE d CASCADE" in refused(tables, "DROP DATABASE d")
    run(tables, "DROP DATABASE d CASCADE")
    assert names(other, "SHOW DATABASES") == ["default"]
    assert sorted(path.name for path in (tmp_path / "c").iterdir()) == [".lock", "default"]
    assert "too long for a file" in refused(tables, f"CREATE TABLE {'n' * 300} (a INT)")


def _add_many(path: str, results: Any) -> None:
    catalog = FileCatalog("files", {"path": path})
    added = [
        name
        for name in map("f{}".format, range(50))
        if catalog.add("default", ObjectKind.FUNCTION, name, CatalogFunction("a.b"))
    ]
    results.put(added)


def test_of_two_writers_at_once_one_is_refused(tables: TableEnvironment, tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    writers = [context.Process(target=_add_many, args=(str(tmp_path), results)) for _ in range(3)]
    for writer in writers:
        writer.start()
    added = [name for _ in writers for name in results.get(timeout=60)]
    for writer in writers:
        writer.join()
    assert sorted(added) == sorted(map("f{}".format, range(50))), "each was added by exactly one"
    use_files(tables, tmp_path)
    run(tables, "CREATE TABLE t (a INT)")
    first, second = FileCatalog("files", {"path": str(tmp_path)}), FileCatalog("files", {"path": str(tmp_path)})
    old = first.get("default", ObjectKind.RELATION, "t")
    assert old is not None
    run(tables, "ALTER TABLE t ADD b INT")
    assert not second.change("default", ObjectKind.RELATION, "t", old, None), "it is not the one that was looked at"
    assert names(tables, "DESCRIBE t") == ["a", "b"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "its end is missing"),
        ("CREATE TABLE `t` (\n  `a` IN", "damaged"),
        ("CREATE TABLE `t` (\n  `a` INT\n)", "its end is missing"),
        ("CREATE VIEW v AS SELECT 1;", None),
        ("CREATE FUNCTION f AS 'a.b' LANGUAGE PYTHON;", "it does not declare a table"),
        ("CREATE TABLE t (a INT, b AS c);", "there is no column c"),
    ],
)
def test_a_file_that_is_cut_off_is_named_and_others_are_read(
    tables: TableEnvironment, tmp_path: Path, text: str, problem: str | None
) -> None:
    use_files(tables, tmp_path)
    run(tables, "CREATE TABLE t (a INT)", "CREATE TABLE whole (a INT)")
    (tmp_path / "default/t.sql").write_text(text)
    (tmp_path / "default/.x.sql.0123").write_text("a draft that its writer did not finish")
    assert names(tables, "SHOW TABLES") == ["t", "whole"]
    assert names(tables, "DESCRIBE whole") == ["a"]
    if problem is not None:
        message = refused(tables, "DESCRIBE t")
        assert problem in message
        assert str(tmp_path / "default/t.sql") in message


def test_sessions_do_not_see_each_other_and_threads_share_one(tables: TableEnvironment) -> None:
    other = TableEnvironment.create()
    run(tables, "CREATE TABLE mine (a INT)", "SET 'parallelism.default' = '3'")
    assert names(other, "SHOW TABLES") == []
    assert rows(other, "SET") == []
    run(tables, "CREATE DATABASE d", "USE d", "CREATE TABLE t (a INT)", "CREATE VIEW v AS SELECT a FROM t")
    run(tables, "CREATE DATABASE e", "USE e", "CREATE TABLE t (b INT)")
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for step in range(15):
                tables.execute_sql(f"CREATE TABLE t_{number}_{step} (a INT)")
                assert names(tables, "DESCRIBE d.v") == ["a"]
                assert names(tables, "DESCRIBE t") == ["b"], "a view's names are those of its database, for it alone"
                tables.execute_sql(f"DROP TABLE t_{number}_{step}")
                assert tables.execute_sql("CREATE TABLE IF NOT EXISTS once (a INT)") is not None
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert names(tables, "SHOW TABLES") == ["once", "t"]


def test_names_with_blanks_backquotes_and_emoji(tables: TableEnvironment) -> None:
    run(tables, "CREATE TABLE `a ``b`` 🎉. c` (`x ``y` INT, `select` STRING)")
    assert names(tables, "SHOW TABLES") == ["a `b` 🎉. c"]
    assert names(tables, "DESCRIBE `a ``b`` 🎉. c`") == ["x `y", "select"]
    relation = tables.sql_query("SELECT `x ``y` AS `🎉`, t.`select` FROM `a ``b`` 🎉. c` AS t")
    relation.print_schema()
    long = " UNION ALL ".join(f"SELECT `x ``y` + {n} AS c FROM `a ``b`` 🎉. c`" for n in range(200))
    assert tables.sql_query(f"SELECT c FROM ({long}) AS t") is not None
    assert tables.sql_query("SELECT " + ", ".join(f"'{'x' * 1000}' AS c{n}" for n in range(1000))) is not None


def test_a_catalog_of_a_program(tables: TableEnvironment, tmp_path: Path) -> None:
    catalog = FileCatalog("mine", {"path": str(tmp_path)})
    tables.register_catalog("mine", catalog)
    tables.use_catalog("mine")
    run(tables, "CREATE DATABASE d")
    tables.use_database("d")
    run(tables, "CREATE TABLE t (a INT)")
    assert catalog.list_objects("d", ObjectKind.RELATION) == ["t"]
    with pytest.raises(CatalogError, match="there is a catalog mine already"):
        tables.register_catalog("mine", catalog)
    assert "'path' is s3://b, and has to be a directory" in refused(
        tables, "CREATE CATALOG x WITH ('type' = 'file', 'path' = 's3://b')"
    )
    (tmp_path / "file").write_text("")
    assert "File exists" in refused(tables, f"CREATE CATALOG x WITH ('type' = 'file', 'path' = '{tmp_path / 'file'}')")


def test_modules_and_jars_are_answered(tables: TableEnvironment) -> None:
    assert names(tables, "SHOW MODULES") == ["core"]
    assert rows(tables, "SHOW FULL MODULES") == [("core", True)]
    run(tables, "USE MODULES core")
    assert names(tables, "SHOW JARS") == []
    assert "a module with the name core exists already" in refused(tables, "LOAD MODULE core")
    assert "there is no module hive" in refused(tables, "LOAD MODULE hive WITH ('hive-version' = '3.1.3')")
    assert "there is no module hive" in refused(tables, "UNLOAD MODULE hive")
    assert "LANGUAGE PYTHON" in refused(tables, "ADD JAR '/a.jar'")


def test_a_statement_set_of_several_statements(tables: TableEnvironment) -> None:
    run(tables, "CREATE TABLE t (a INT) WITH ('connector' = 'none')", "BEGIN STATEMENT SET")
    assert "there is no table nothing" in refused(tables, "INSERT INTO nothing SELECT 1")
    run(tables, "INSERT INTO t SELECT 1", "INSERT INTO t SELECT 2")
    assert "a statement set has begun already" in refused(tables, "BEGIN STATEMENT SET")
    assert "there is no connector 'none'" in refused(tables, "END"), "both are run at the end"
    assert "no statement set has begun" in refused(tables, "END")
    run(tables, "BEGIN STATEMENT SET;")
    assert "the statement set has no INSERT" in refused(tables, "END;")
    assert "there is no connector 'none'" in refused(tables, "BEGIN STATEMENT SET; INSERT INTO t SELECT 1; END;")
    assert "sum" in names(tables, "SHOW FUNCTIONS LIKE 's%'")
    assert rows(tables, "DESCRIBE FUNCTION SUM")[0] == ("is system function", "true")


TYPES = [
    "BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "CHAR(3)", "VARCHAR(5)", "STRING",
    "BINARY(2)", "VARBINARY(5)", "BYTES", "DATE", "DECIMAL(38, 5)", "TIME(3)", "TIMESTAMP(6)", "TIMESTAMP_LTZ(3)",
    "INTERVAL YEAR TO MONTH", "INTERVAL DAY TO SECOND(3)", "ARRAY<INT NOT NULL>", "MAP<STRING, ARRAY<INTERVAL DAY>>",
    "MULTISET<INT>", "ROW<`x ``y` INT 'it''s', z ROW<a DATE>>",
]  # fmt: skip


@pytest.mark.parametrize("data_type", TYPES)
def test_a_file_catalog_keeps_each_type(tables: TableEnvironment, tmp_path: Path, data_type: str) -> None:
    use_files(tables, tmp_path)
    run(tables, f"CREATE TABLE t (a {data_type}, b {data_type} NOT NULL)")
    run(tables, f"CREATE TEMPORARY TABLE t (a {data_type}, b {data_type} NOT NULL)")
    hidden = rows(tables, "DESCRIBE t")
    run(tables, "DROP TEMPORARY TABLE t")
    assert rows(tables, "DESCRIBE t") == hidden


def test_what_a_file_would_not_keep_is_refused(tmp_path: Path) -> None:
    catalog = FileCatalog("files", {"path": str(tmp_path)})
    strange = CatalogFunction("a.b", "COBOL")
    with pytest.raises(CatalogError, match="can't be written as a statement that declares it again"):
        catalog.add("default", ObjectKind.FUNCTION, "f", strange)
    assert catalog.list_objects("default", ObjectKind.FUNCTION) == []


def test_former_names_of_options_are_known(tables: TableEnvironment) -> None:
    run(tables, "SET 'restart-strategy' = 'none'", "SET 'state.backend' = 'hashmap'", "RESET 'state.backend'")
    assert "there is no option 'restart-strategi'" in refused(tables, "SET 'restart-strategi' = 'none'")
