"""``'connector' = 'datagen'``: rows of random values, or of sequences."""

from __future__ import annotations

import random
import string
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from firesteel.common import WatermarkStrategy
from firesteel.datastream import DataStream, StreamExecutionEnvironment
from firesteel.datastream.connectors.data_generator import DataGeneratorSource, RateLimiterStrategy
from firesteel.expressions.schema import arrow_type
from firesteel.expressions.values import column_of
from firesteel.table.types import DataType, ElementsType, MapType, RowType
from firesteel_sql.connectors.connector import TableConnector, TableContext
from firesteel_sql.types import rules
from firesteel_sql.types.columns import type_info_of

_LONGEST_SEQUENCE = 1 << 62


class DataGenConnector(TableConnector):
    """Generates rows: 10,000 a second, without an end, unless options say otherwise."""

    def read(self, environment: StreamExecutionEnvironment, context: TableContext) -> DataStream:
        options = context.options
        rate = options.integer("rows-per-second", 10_000)
        count = options.integer("number-of-rows")
        columns = {}
        for column in context.physical:
            assert column.type is not None
            columns[column.name], length = _column(column.name, column.type, context)
            if length is not None:
                count = length if count is None else min(count, length)
        options.refuse_unknown()
        limit = RateLimiterStrategy.per_second(rate) if rate and rate > 0 else None
        row_type = context.row_type
        source = DataGeneratorSource.of_batches(_Rows(columns, row_type), row_type, count, limit, projects=True)
        return environment.from_source(source, WatermarkStrategy.no_watermarks(), context.identifier[2])


@dataclass(frozen=True)
class _Rows:
    """Makes the batch of rows ``start`` to ``start + count - 1``, of some of the columns."""

    columns: dict[str, Callable[[int, int], Any]]
    row_type: Any

    def __call__(self, start: int, count: int, names: Any) -> pa.RecordBatch:
        types = dict(zip(self.row_type.field_names, self.row_type.field_types, strict=True))
        arrays = []
        for name in names:
            values = self.columns[name](start, count)
            arrays.append(values if isinstance(values, pa.Array) else column_of(values, name, types[name]))
        return pa.RecordBatch.from_arrays(arrays, names=list(names))


def _column(name: str, data_type: DataType, context: TableContext) -> tuple[Callable[[int, int], Any], int | None]:
    """What makes a column, and how many rows it makes if it ends."""
    options, prefix = context.options, f"fields.{name}."
    kind = options.text(f"{prefix}kind", "random")
    nulls = options.number(f"{prefix}null-rate", 0.0) or 0.0
    if kind == "sequence":
        start, end = options.integer(f"{prefix}start"), options.integer(f"{prefix}end")
        if start is None or end is None or end < start:
            raise options.refuse(f"{prefix}kind", "is 'sequence', which needs .start and .end")
        return _Sequence(start, data_type), end - start + 1
    if kind != "random":
        raise options.refuse(f"{prefix}kind", f"is '{kind}': there are 'random' and 'sequence'")
    low, high = options.number(f"{prefix}min"), options.number(f"{prefix}max")
    length = options.integer(f"{prefix}length", 100) or 100
    past = options.duration(f"{prefix}max-past")
    return _Random(data_type, low, high, length, past, nulls), None


@dataclass(frozen=True)
class _Sequence:
    """The numbers from ``start`` on."""

    start: int
    data_type: DataType

    def __call__(self, start: int, count: int) -> Any:
        numbers = pa.array(np.arange(self.start + start, self.start + start + count, dtype=np.int64))
        if rules.is_text(self.data_type):
            return numbers.cast(pa.string())
        target = arrow_type(type_info_of(self.data_type))
        return numbers.cast(pa.decimal128(19, 0)).cast(target) if pa.types.is_decimal(target) else numbers.cast(target)


@dataclass(frozen=True)
class _Random:
    """Random values of a type; the same ones for the same rows."""

    data_type: DataType
    low: float | None
    high: float | None
    length: int
    past: timedelta | None
    nulls: float

    def __call__(self, start: int, count: int) -> Any:
        name = self.data_type.name
        generator = np.random.default_rng((start, count))
        mask = generator.random(count) < self.nulls if self.nulls else None
        if name in _BITS:
            bits = _BITS[name]
            low = int(self.low) if self.low is not None else -(1 << (bits - 1))
            high = int(self.high) if self.high is not None else (1 << (bits - 1)) - 1
            numbers = generator.integers(low, high, count, endpoint=True, dtype=np.int64)
            return pa.array(numbers, mask=mask).cast(arrow_type(type_info_of(self.data_type)))
        if name in ("FLOAT", "DOUBLE"):
            lowest = self.low or 0.0
            span = (self.high if self.high is not None else 1.0) - lowest
            fractions = lowest + span * generator.random(count)
            return pa.array(fractions.astype(np.float32 if name == "FLOAT" else np.float64), mask=mask)
        if name == "BOOLEAN":
            return pa.array(generator.random(count) < 0.5, mask=mask)
        choose = random.Random(start * 2_654_435_761 + count)
        values = [self._value(self.data_type, choose) for _ in range(count)]
        return [None if mask is not None and mask[place] else value for place, value in enumerate(values)]

    def _value(self, data_type: DataType, choose: random.Random) -> Any:
        match data_type:
            case RowType():
                return tuple(self._value(part, choose) for part in data_type.field_types())
            case MapType():
                return {self._value(data_type.key_type, choose): self._value(data_type.value_type, choose)}
            case ElementsType():
                return [self._value(data_type.element_type, choose) for _ in range(3)]
        name = data_type.name
        if name in _BITS:
            half = 1 << (_BITS[name] - 1)
            return choose.randint(-half, half - 1)
        if name in ("CHAR", "VARCHAR"):
            length = min(self.length, data_type.parameters[0])
            return "".join(choose.choices(string.hexdigits[:16], k=length))
        if name in ("BINARY", "VARBINARY"):
            return choose.randbytes(min(self.length, data_type.parameters[0]))
        if name == "DECIMAL":
            precision, scale = data_type.parameters
            return Decimal(choose.randrange(10**precision)).scaleb(-scale)
        if name == "BOOLEAN":
            return choose.random() < 0.5
        if name in ("FLOAT", "DOUBLE"):
            return choose.random()
        now = datetime.now(UTC)
        moment = now - choose.random() * (self.past or timedelta())
        moment = moment.replace(microsecond=moment.microsecond // 1000 * 1000)
        if name == "DATE":
            return date(1970, 1, 1) + timedelta(days=choose.randrange(20_000)) if self.past is None else moment.date()
        if name == "TIME":
            return time(choose.randrange(24), choose.randrange(60), choose.randrange(60))
        return moment if name == "TIMESTAMP_LTZ" else moment.replace(tzinfo=None)


_BITS = {"TINYINT": 8, "SMALLINT": 16, "INT": 32, "BIGINT": 64}
