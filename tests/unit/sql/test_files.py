"""Tables in files: partitions as directories, columns that follow from a path, decimals without loss."""

from __future__ import annotations

import os
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from firesteel.common.typeinfo import RowTypeInfo
from firesteel.common.types import Row
from firesteel.connectors.malformed import MalformedPolicy, MalformedRecords
from firesteel.core.errors import MalformedDataError, ProgramError
from firesteel.functions.source import Split, Wait
from firesteel.table.types import DataType, DataTypes
from firesteel_sql import TableEnvironment
from firesteel_sql.catalog.tables import CatalogTable, TableColumn
from firesteel_sql.connectors.connector import connector_of
from firesteel_sql.connectors.formats.files import DEFAULT_NAME, TableFiles, partition_of
from firesteel_sql.connectors.formats.known import FILE_FORMATS, format_of
from firesteel_sql.connectors.options import TableOptions
from firesteel_sql.connectors.partitions import PartitionBuckets
from firesteel_sql.types.columns import type_info_of

T = DataTypes


def row_type(columns: dict[str, DataType]) -> RowTypeInfo:
    return RowTypeInfo([type_info_of(kind) for kind in columns.values()], list(columns))


def rows_of(files: Any, path: Path) -> list[dict[str, Any]]:
    split = Split("s", {"path": str(path), "start": 0, "end": path.stat().st_size})
    cursor = files.open_cursor(split, MalformedRecords(MalformedPolicy.FAIL, None))
    rows = []
    while True:
        chunk = cursor.read(100)
        assert not isinstance(chunk, Wait)
        rows += chunk.values.to_pylist()
        if chunk.finished:
            cursor.close()
            return rows


def test_rows_go_to_the_directories_of_their_partition() -> None:
    buckets = PartitionBuckets(("v", "day", "by"), ("day", "by"), DEFAULT_NAME)
    days = [date(2024, 1, 1), date(2024, 1, 1), None, date(2024, 1, 1), None]
    names = ["a/b=", "x", "", "a/b=", None]
    batch = pa.RecordBatch.from_arrays([pa.array(range(5)), pa.array(days), pa.array(names)], ["v", "day", "by"])
    found = {bucket: rows.tolist() for bucket, rows in (buckets.rows_of_buckets(batch, 0) or {}).items()}
    null = f"day={DEFAULT_NAME}/by={DEFAULT_NAME}"
    assert found == {"day=2024-01-01/by=a%2Fb%3D": [0, 3], "day=2024-01-01/by=x": [1], null: [2, 4]}
    for number, row in enumerate(zip(range(5), days, names, strict=True)):
        bucket = buckets.bucket_of(Row(*row), 0)
        assert number in found[bucket], "rows go where columns go"
    assert partition_of(f"/base/{next(iter(found))}/part-0", ["by", "day"]) == {"by": "a/b=", "day": "2024-01-01"}
    assert buckets.rows_of_buckets(batch.slice(0, 0), 0) == {}


def test_files_have_columns_of_their_path(tmp_path: Path) -> None:
    columns = {"id": T.BIGINT(), "day": T.DATE(), "name": T.STRING(), "size": T.BIGINT(), "n": T.INT()}
    json = format_of(TableOptions("t", {}), "format", "json", FILE_FORMATS)
    data = {"id": T.BIGINT()}
    inner = json.file_format(row_type(data), list(data.values()))
    metadata = {"name": "file.name", "size": "file.size"}
    files = TableFiles(row_type(columns), inner, row_type(data), ["day", "n"], metadata, DEFAULT_NAME)
    folder = tmp_path / "day=2024-01-01" / f"n={DEFAULT_NAME}"
    folder.mkdir(parents=True)
    path = folder / "rows"
    path.write_text('{"id": 1}\n{"id": 2}\n')
    day = date(2024, 1, 1)
    assert rows_of(files, path) == [
        {"id": number, "day": day, "name": "rows", "size": 20, "n": None} for number in (1, 2)
    ]
    elsewhere = tmp_path / "rows"
    elsewhere.write_text('{"id": 1}\n')
    with pytest.raises(MalformedDataError, match=r"rows.*below no directory day="):
        rows_of(files, elsewhere)
    odd = tmp_path / "day=x" / "n=1"
    odd.mkdir(parents=True)
    (odd / "rows").write_text('{"id": 1}\n')
    with pytest.raises(MalformedDataError, match="the partition day=x is no value of the column's type"):
        rows_of(files, odd / "rows")


def test_decimals_in_files_of_json_lose_nothing(tmp_path: Path) -> None:
    columns = {"d": T.DECIMAL(20, 2)}
    path = tmp_path / "rows"
    path.write_text('{"d": 123456789012345678.99}\n{"d": 1e30}\n')
    json = format_of(TableOptions("t", {}), "format", "json", FILE_FORMATS)
    found = rows_of(json.file_format(row_type(columns), list(columns.values())), path)
    assert found == [{"d": Decimal("123456789012345678.99")}, {"d": None}]


def test_fields_of_json_files_that_can_not_be_read_are_null_if_errors_are_ignored(tmp_path: Path) -> None:
    columns = {"id": T.INT(), "d": T.DECIMAL(4, 1)}
    path = tmp_path / "rows"
    path.write_text('{"id": "x", "d": 1.25}\n')
    json = format_of(TableOptions("t", {"json.ignore-parse-errors": "true"}), "format", "json", FILE_FORMATS)
    assert rows_of(json.file_format(row_type(columns), []), path) == [{"id": None, "d": Decimal("1.3")}]


def table(tmp_path: Path, **options: str) -> CatalogTable:
    given = {"connector": "filesystem", "path": os.fspath(tmp_path), "format": "csv", **options}
    columns = (TableColumn("a", T.INT()), TableColumn("p", T.STRING()))
    return CatalogTable(columns, given, partitioned_by=("p",))


def test_partitions_are_listed(tmp_path: Path) -> None:
    connector, context = connector_of(("c", "d", "t"), table(tmp_path / "none"))
    assert connector.partitions(context) == []
    for name in ("p=b", "p=a%2F"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "part").write_text("1\n")
    connector, context = connector_of(("c", "d", "t"), table(tmp_path))
    assert connector.partitions(context) == [{"p": "a/"}, {"p": "b"}]


@pytest.mark.parametrize(
    ("sql", "problem"),
    [
        ("m STRING METADATA FROM 'file.nam'", "'file.nam', which the connector 'filesystem' does not have; did you "
         "mean file.name?"),
        ("m INT METADATA FROM 'file.modification-time'", "the metadata column m: TIMESTAMP_LTZ(3)"),
    ],
)  # fmt: skip
def test_metadata_that_is_not_there_is_refused(sql: str, problem: str) -> None:
    tables = TableEnvironment.create()
    tables.execute_sql(f"CREATE TABLE t (a INT, {sql}) WITH ('connector'='filesystem', 'path'='/x', 'format'='json')")
    with pytest.raises(ProgramError) as caught:
        tables.execute_sql("SELECT * FROM t")
    assert problem in str(caught.value)


def test_compaction_is_refused_by_name() -> None:
    tables = TableEnvironment.create()
    tables.execute_sql(
        "CREATE TABLE t (a INT) WITH ('connector'='filesystem','path'='/x','format'='json','auto-compaction'='true')"
    )
    with pytest.raises(ProgramError, match="'auto-compaction' is true: small files are not joined"):
        tables.execute_sql("INSERT INTO t VALUES (1)")


@pytest.mark.parametrize(
    ("partition", "left"),
    [
        (None, {"day=1/new", "day=3/new"}),
        ({"day": 1}, {"day=1/new", "day=2/old", "day=3/new"}),
        ({}, {"day=1/new", "day=2/old", "day=3/new"}),
        ({"day": 2}, {"day=1/new", "day=1/old", "day=3/new"}),
    ],
)
def test_overwriting_removes_the_files_of_its_partitions(
    tmp_path: Path, partition: dict[str, Any] | None, left: set[str]
) -> None:
    columns = (TableColumn("v", T.INT()), TableColumn("day", T.INT()))
    table = CatalogTable(
        columns, {"connector": "filesystem", "path": str(tmp_path), "format": "json"}, partitioned_by=("day",)
    )
    connector, context = connector_of(("c", "d", "t"), table)

    def write(*names: str) -> None:
        for name in names:
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_text("{}")

    write("day=1/old", "day=2/old")
    remove = connector.removal(context, partition)
    write("day=1/new", "day=3/new")
    remove()
    assert {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()} == left
