"""Fields of rows that are read are columns from the table on; the others are not read."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from firesteel.common.typeinfo import RowTypeInfo, Types
from firesteel.connectors.formats.parquet_files import ParquetColumnarRowInputFormat
from firesteel.connectors.malformed import MalformedRecords
from firesteel.connectors.split_reader import Chunk
from firesteel.functions.source import Split
from firesteel.table.types import RowType
from firesteel_sql.plan.optimizer import optimised
from firesteel_sql.plan.relations import Filter, Relation, Scan
from tests.unit.sql.planning import bound, declared

CATALOGS = declared(
    """
CREATE TABLE events (kind INT, bid ROW<price INT, at TIMESTAMP(3), who ROW<name STRING, age INT>>,
  sale ROW<id INT, at TIMESTAMP(3)>, at AS CASE kind WHEN 0 THEN bid.at ELSE sale.at END,
  WATERMARK FOR at AS at - INTERVAL '4' SECOND) WITH ('connector' = 'filesystem');
CREATE TABLE bare (k INT, r ROW<a INT, b INT>) WITH ('connector' = 'filesystem')
"""
)


def planned(query: str, *, narrow: bool = True) -> Relation:
    (relation,) = optimised([bound(query, CATALOGS)], takes_fields=lambda scan: narrow)
    return relation


def read(relation: Relation) -> dict[str, list[str]]:
    """The fields of rows that the table is read with."""
    (scan,) = {id(part): part for part in relation.walk() if isinstance(part, Scan)}.values()
    declared_types = {column.name: column.type for column in scan.table.columns if column.type is not None}
    fields = {}
    for column in scan.columns:
        assert declared_types[column.name] == column.type, "the connector reads what the plan says"
        if isinstance(column.type, RowType):
            fields[column.name] = column.type.field_names()
    return fields


@pytest.mark.parametrize(
    ("query", "fields"),
    [
        ("SELECT bid.price FROM events WHERE kind = 0", {"bid": ["price", "at"], "sale": ["at"]}),
        ("SELECT bid.who.age FROM events", {"bid": ["at", "who"], "sale": ["at"]}),
        ("SELECT sale, sale.id FROM events", {"bid": ["at"], "sale": ["id", "at"]}),
        ("SELECT r.b FROM bare", {"r": ["b"]}),
        ("SELECT r.b, r.b + 1 FROM bare WHERE r.a > 1", {"r": ["a", "b"]}),
        ("SELECT r FROM bare WHERE r.a > 1", {"r": ["a", "b"]}),
        ("SELECT x.r.b, y.r.a FROM bare x JOIN bare y ON x.k = y.k", {"r": ["a", "b"]}),
        ("SELECT r.b FROM bare UNION ALL SELECT r.b FROM bare", {"r": ["b"]}),
        ("SELECT COUNT(r.b) FROM (SELECT r FROM bare WHERE k > 1)", {"r": ["b"]}),
        ("SELECT * FROM bare", {"r": ["a", "b"]}),
    ],
)
def test_a_table_is_read_with_the_fields_of_its_rows_that_a_query_reads(
    query: str, fields: dict[str, list[str]]
) -> None:
    assert read(planned(query)) == fields


def test_a_filter_copies_fields_and_no_rows() -> None:
    relation = planned("SELECT bid.price FROM events WHERE kind = 0", narrow=False)
    (condition,) = [part for part in relation.walk() if isinstance(part, Filter)]
    assert {str(column) for column in condition.columns} == {"kind INT", "at TIMESTAMP(3) *ROWTIME*", "bid.price INT"}


def test_a_table_whose_connector_needs_all_fields_is_read_with_all() -> None:
    assert read(planned("SELECT r.b FROM bare", narrow=False)) == {"r": ["a", "b"]}


def test_files_of_parquet_are_read_without_other_fields(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "rows"
    rows = [{"a": 1, "b": "x", "c": {"d": 1, "e": 2}}, None, {"a": None, "b": "z", "c": None}]
    pq.write_table(pa.table({"k": [1, 2, 3], "r": rows}), path)
    inner = Types.ROW_NAMED(["e"], [Types.LONG()])
    row = Types.ROW_NAMED(["c", "a"], [inner, Types.LONG()])
    chosen: list[list[str]] = []
    iter_batches = pq.ParquetFile.iter_batches

    def noted(file: pq.ParquetFile, *arguments: object, columns: list[str], **options: object) -> object:
        chosen.append(columns)
        return iter_batches(file, *arguments, columns=columns, **options)

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", noted)
    assert values_of(path, Types.ROW_NAMED(["k", "r"], [Types.LONG(), row])) == [
        {"k": 1, "r": {"c": {"e": 2}, "a": 1}}, {"k": 2, "r": None}, {"k": 3, "r": {"c": None, "a": None}},
    ]  # fmt: skip
    assert chosen == [["k", "r.c.e", "r.a"]]
    unknown = Types.ROW_NAMED(["r"], [Types.ROW_NAMED(["z"], [Types.LONG()])])
    assert values_of(path, unknown) == [{"r": {"z": None}}, {"r": None}, {"r": {"z": None}}]


def values_of(path: Path, row_type: RowTypeInfo) -> object:
    split = Split("0", {"path": os.fspath(path), "start": 0, "end": path.stat().st_size})
    chunk = ParquetColumnarRowInputFormat(row_type).open_cursor(split, MalformedRecords()).read(10)
    assert isinstance(chunk, Chunk)
    assert isinstance(chunk.values, pa.RecordBatch)
    return chunk.values.to_pylist()
