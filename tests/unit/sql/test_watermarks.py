"""Event time of tables: which strategy a source or a stream runs for a WATERMARK."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest

from firesteel.common import WatermarkStrategy
from firesteel.core.errors import ProgramError
from firesteel.expressions.values import arrow_schema
from firesteel.runtime.operator_base.watermarks import ActiveClock, EventTime
from firesteel.testing.clock import ManualClock
from firesteel_sql import TableEnvironment
from firesteel_sql.connectors.connector import connector_of
from firesteel_sql.execution.watermarks import scanned, strategy_of_source
from firesteel_sql.plan.relations import Relation, WatermarkAssigner

DATAGEN = "WITH ('connector' = 'datagen'{})"


def assigner(tables: TableEnvironment) -> WatermarkAssigner:
    relation: Relation = tables.sql_query("SELECT * FROM t")._relation
    return next(part for part in relation.walk() if isinstance(part, WatermarkAssigner))


def strategy(columns: str, options: str = "", idle: timedelta = timedelta()) -> tuple[WatermarkStrategy, Any]:
    tables = TableEnvironment.create()
    tables.execute_sql(f"CREATE TABLE t ({columns}) {DATAGEN.format(options)}")
    relation = assigner(tables)
    parts = scanned(relation)
    assert parts is not None
    connector, context = connector_of(parts[0].identifier, parts[0].table)
    found = strategy_of_source(relation, connector, context, idle)
    assert found is not None
    return found, context.read_type


@pytest.mark.parametrize(
    ("columns", "values", "stamp", "watermark"),
    [
        ("ts TIMESTAMP(3), WATERMARK FOR ts AS ts", {"ts": 5_000_000}, 5_000, 5_000),
        ("ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND", {"ts": 9_000_000}, 9_000, 4_000),
        ("a INT, ts TIMESTAMP_LTZ(3), WATERMARK FOR ts AS ts - INTERVAL '0.001' SECOND", {"a": 1, "ts": 7_000_000},
         7_000, 6_999),
        ("ms BIGINT, ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts - INTERVAL '1' SECOND", {"ms": 8_000},
         8_000, 7_000),
        ("a INT, ts TIMESTAMP(3), WATERMARK FOR ts AS CASE WHEN a > 1 THEN ts - INTERVAL '3' SECOND ELSE ts END",
         {"a": 2, "ts": 9_000_000}, 9_000, 6_000),
    ],
)  # fmt: skip
def test_a_watermark_is_any_expression_of_the_row(
    columns: str, values: dict[str, int], stamp: int, watermark: int
) -> None:
    found, row_type = strategy(columns)
    time = EventTime("t", found, ActiveClock(ManualClock()), row_type)
    schema = arrow_schema(row_type)
    arrays = [pa.array([values[name]], schema.field(name).type) for name in schema.names]
    stamps = time.take_columns(pa.RecordBatch.from_arrays(arrays, schema=schema), None)
    assert stamps is not None
    assert list(stamps) == [stamp]
    time.periodic()
    assert time.watermark == watermark


TS = "ts TIMESTAMP(3), WATERMARK FOR ts AS ts"


def test_idleness_comes_from_the_table_or_the_session() -> None:
    assert strategy(TS)[0].idle_timeout is None
    session = strategy(TS, idle=timedelta(seconds=7))[0].idle_timeout
    assert session is not None
    assert session.to_millis() == 7000
    own = strategy(TS, ", 'scan.watermark.idle-timeout' = '2 s'", timedelta(seconds=7))[0].idle_timeout
    assert own is not None
    assert own.to_millis() == 2000


def test_sources_are_aligned() -> None:
    found = strategy(TS, ", 'scan.watermark.alignment.group' = 'g', 'scan.watermark.alignment.max-drift' = '1 min'")[0]
    assert found.alignment_group == "g"
    with pytest.raises(ProgramError, match=r"'scan\.watermark\.alignment\.max-drift' is missing"):
        strategy(TS, ", 'scan.watermark.alignment.group' = 'g'")
    with pytest.raises(ProgramError, match="is 'on-event', and has to be one of on-periodic"):
        strategy(TS, ", 'scan.watermark.emit.strategy' = 'on-event'")
