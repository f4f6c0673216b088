"""``'connector' = 'datagen'``: rows of random values, or of sequences."""

from __future__ import annotations

import random
import string
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal, InvalidOperation, localcontext
from typing import Any, Final
from zlib import crc32

import numpy as np
import pyarrow as pa

from firesteel.config.option import BOOL, DURATION, FLOAT, INT, Option, OptionType, enum_of
from firesteel.datastream import DataStream, StreamExecutionEnvironment
from firesteel.datastream.connectors.data_generator import DataGeneratorSource, RateLimiterStrategy
from firesteel.expressions.schema import arrow_type
from firesteel.expressions.values import column_of
from firesteel.table.types import DataType, ElementsType, MapType, RowType
from firesteel_sql.connectors.connector import SCAN_PARALLELISM, TableConnector, TableContext, read_source
from firesteel_sql.connectors.options import TableOptions
from firesteel_sql.types import rules
from firesteel_sql.types.columns import type_info_of


def _number(raw: Any) -> Decimal:
    try:
        return Decimal(str(raw).strip())
    except InvalidOperation:
        raise ValueError("a number") from None


_NUMBER: Final = OptionType("Number", _number)
_DIGITS: Final = 80
"""Digits with which decimal numbers are computed: Python's own 28 are fewer than a DECIMAL may have."""
ROWS_PER_SECOND: Final = Option("rows-per-second", INT, 10_000, "Rows in a second; 0 or less = as fast as it goes.")
NUMBER_OF_ROWS: Final[Option[int | None]] = Option(
    "number-of-rows", INT, None, "Rows in all; without it, and without a sequence, there is no end.", at_least=0
)
KIND: Final = Option("fields.#.kind", enum_of("random", "sequence"), "random", "How the values of a column are made.")
START: Final[Option[int | None]] = Option("fields.#.start", INT, None, "First value of a sequence.")
END: Final[Option[int | None]] = Option("fields.#.end", INT, None, "Last value of a sequence, with which rows end.")
MIN: Final[Option[Decimal | None]] = Option(
    "fields.#.min", _NUMBER, None, "Smallest random number; the smallest of the type if it is not set."
)
MAX: Final[Option[Decimal | None]] = Option(
    "fields.#.max", _NUMBER, None, "Largest random number; the largest of the type if it is not set."
)
LENGTH: Final[Option[int | None]] = Option(
    "fields.#.length", INT, None, "Length of texts and bytes (100), and of arrays and maps (3).", at_least=0
)
VARIES: Final = Option("fields.#.var-len", BOOL, False, "Texts and bytes have any length up to `length`.")
MAX_PAST: Final = Option(
    "fields.#.max-past", DURATION, timedelta(), "How far random timestamps are in the past at most."
)
NULL_RATE: Final = Option("fields.#.null-rate", FLOAT, 0.0, "Share of values that are NULL.", at_least=0.0, at_most=1.0)


class DataGenConnector(TableConnector):
    """Generates rows: 10,000 a second, without an end, unless options say otherwise."""

    OPTIONS = (
        ROWS_PER_SECOND, NUMBER_OF_ROWS, KIND, START, END, MIN, MAX, LENGTH, VARIES, MAX_PAST, NULL_RATE,
        SCAN_PARALLELISM,
    )  # fmt: skip
    makes_watermarks = True

    def read(self, environment: StreamExecutionEnvironment, context: TableContext) -> DataStream:
        rate, count = context.options.get(ROWS_PER_SECOND), context.options.get(NUMBER_OF_ROWS)
        columns = {}
        for column in context.physical:
            assert column.type is not None
            columns[column.name], length = _column(column.name, column.type, context.options)
            if length is not None:
                count = length if count is None else min(count, length)
        limit = RateLimiterStrategy.per_second(rate) if rate > 0 else None
        row_type = context.row_type
        source = DataGeneratorSource.of_batches(_Rows(columns, row_type), row_type, count, limit, projects=True)
        return read_source(environment, source, context)


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


def _column(name: str, data_type: DataType, options: TableOptions) -> tuple[Callable[[int, int], Any], int | None]:
    """What makes a column, and how many rows it makes if it ends."""
    if options.get(KIND, name) == "sequence":
        start, end = options.get(START, name), options.get(END, name)
        if start is None or end is None or end < start:
            raise options.refuse(f"fields.{name}.kind", "is 'sequence', which needs .start and .end, not before it")
        return _Sequence(start, data_type), end - start + 1
    low, high = options.get(MIN, name), options.get(MAX, name)
    if low is not None and high is not None and low > high:
        raise options.refuse(f"fields.{name}.min", f"is {low}, which is above .max, {high}")
    length, varies = options.get(LENGTH, name), options.get(VARIES, name)
    past, nulls = options.get(MAX_PAST, name), options.get(NULL_RATE, name)
    seed = crc32(name.encode())  # columns of one type have different values
    return _Random(data_type, seed, low, high, length, varies, past, nulls), None


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
    seed: int
    low: Decimal | None
    high: Decimal | None
    length: int | None
    varies: bool
    past: timedelta
    nulls: float

    def __call__(self, start: int, count: int) -> Any:
        name = self.data_type.name
        generator = np.random.default_rng((self.seed, start, count))
        mask = generator.random(count) < self.nulls if self.nulls else None
        if name in _BITS:
            half = 1 << (_BITS[name] - 1)
            low = max(-half, int(self.low)) if self.low is not None else -half
            high = min(half - 1, int(self.high)) if self.high is not None else half - 1
            numbers = generator.integers(low, high, count, endpoint=True, dtype=np.int64)
            return pa.array(numbers, mask=mask).cast(arrow_type(type_info_of(self.data_type)))
        if name in ("FLOAT", "DOUBLE"):
            low_float, high_float = self._floats(np.finfo(np.float32 if name == "FLOAT" else np.float64))
            fractions = low_float + (high_float - low_float) * generator.random(count)
            return pa.array(fractions.astype(np.float32 if name == "FLOAT" else np.float64), mask=mask)
        if name == "BOOLEAN":
            return pa.array(generator.random(count) < 0.5, mask=mask)
        choose = random.Random((self.seed << 96) + (start << 32) + count)
        values = [self._value(self.data_type, choose) for _ in range(count)]
        return [None if mask is not None and mask[place] else value for place, value in enumerate(values)]

    def _floats(self, limits: Any) -> tuple[float, float]:
        """Bounds of numbers with a fraction: from 0 up to the largest one, as in Flink, if none are set."""
        low = float(self.low) if self.low is not None else 0.0
        return low, float(self.high) if self.high is not None else float(limits.max)

    def _length(self, longest: int, choose: random.Random) -> int:
        length = min(100 if self.length is None else self.length, longest)
        return choose.randint(1, length) if self.varies and length else length

    def _value(self, data_type: DataType, choose: random.Random) -> Any:
        match data_type:
            case RowType():
                return tuple(self._value(part, choose) for part in data_type.field_types())
            case MapType():
                return {
                    self._value(data_type.key_type, choose): self._value(data_type.value_type, choose)
                    for _ in range(3 if self.length is None else self.length)
                }
            case ElementsType():
                return [
                    self._value(data_type.element_type, choose)
                    for _ in range(3 if self.length is None else self.length)
                ]
        name = data_type.name
        if name in _BITS:
            half = 1 << (_BITS[name] - 1)
            return choose.randint(-half, half - 1)
        if name in ("CHAR", "VARCHAR"):
            length = data_type.parameters[0] if name == "CHAR" else self._length(data_type.parameters[0], choose)
            return "".join(choose.choices(string.hexdigits[:16], k=length))
        if name in ("BINARY", "VARBINARY"):
            return choose.randbytes(self._length(data_type.parameters[0], choose))
        if name == "DECIMAL":
            precision, scale = data_type.parameters
            low, high = 0, 10**precision - 1
            with localcontext(prec=_DIGITS):
                low = low if self.low is None else int(self.low.scaleb(scale))
                high = high if self.high is None else min(int(self.high.scaleb(scale)), high)
                return Decimal(choose.randint(low, high)).scaleb(-scale)
        if name == "BOOLEAN":
            return choose.random() < 0.5
        if name in ("FLOAT", "DOUBLE"):
            return choose.random()
        now = datetime.now(UTC)
        moment = now - choose.random() * self.past
        moment = moment.replace(microsecond=moment.microsecond // 1000 * 1000)
        if name == "DATE":
            return date(1970, 1, 1) + timedelta(days=choose.randrange(20_000)) if not self.past else moment.date()
        if name == "TIME":
            return time(choose.randrange(24), choose.randrange(60), choose.randrange(60))
        return moment if name == "TIMESTAMP_LTZ" else moment.replace(tzinfo=None)


_BITS = {"TINYINT": 8, "SMALLINT": 16, "INT": 32, "BIGINT": 64}
