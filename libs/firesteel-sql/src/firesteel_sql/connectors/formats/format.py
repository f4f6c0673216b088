"""The contract of formats of tables, and how they are found."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from firesteel.common.serialization import BulkWriterFactory, SerializationSchema
from firesteel.common.type_table import Shape, field_names, parts_of, resolved
from firesteel.common.typeinfo import DecimalTypeInfo, RowTypeInfo, TypeInformation, Types
from firesteel.common.types import make_row
from firesteel.config.option import Option
from firesteel.connectors.file_format import FileFormat
from firesteel.expressions.values import RECORDS, ROW, arrow_schema, column_of, row_values
from firesteel.table.types import DataType
from firesteel_sql.connectors.changelog import INSERT_ONLY, ChangelogMode
from firesteel_sql.connectors.options import TableOptions

Kinds = npt.NDArray[np.int8]
INSERT, UPDATE_BEFORE, UPDATE_AFTER, DELETE = range(4)
"""Row kinds, in the numbers of batches."""


@dataclass(frozen=True)
class Change:
    """A row that was read from a message.

    Attributes:
        kind: row kind.
        values: of the columns.
        metadata: values of the format's metadata, by key.
    """

    kind: int
    values: Sequence[Any]
    metadata: Mapping[str, Any]


@dataclass(frozen=True)
class DecodedRows:
    """Rows that were read from several messages.

    Attributes:
        rows: columns of the rows.
        origins: position of each row's message; None = there is one row for each message.
        kinds: row kinds; None = all are inserted.
        metadata: columns of the format's metadata, by key.
    """

    rows: pa.RecordBatch
    origins: npt.NDArray[np.int64] | None
    kinds: Kinds | None
    metadata: Mapping[str, Sequence[Any]]


class RowDecoder(ABC):
    """Reads rows from messages. Pickled into the job.

    Args:
        row_type: type of the rows.
    """

    gives_metadata: bool = True
    """Whether the metadata of messages is read; False where no column holds some."""

    def __init__(self, row_type: RowTypeInfo) -> None:
        self.row_type = row_type

    @abstractmethod
    def changes(self, message: bytes) -> list[Change]:
        """The rows of a message: none if it is to be left out.

        Raises:
            ValueError: it can't be read; says which field and value.
        """

    def decode(self, messages: Sequence[bytes]) -> DecodedRows | None:
        """The rows of many messages; None = one of them can't be read, ``changes`` says which."""
        try:
            changes = [self.changes(message) for message in messages]
        except (ValueError, ArithmeticError):
            return None
        rows = [change for of_message in changes for change in of_message]
        counts = np.fromiter(map(len, changes), np.int64, len(changes))
        origins = np.repeat(np.arange(len(messages)), counts)
        keys = rows[0].metadata if rows else {}
        return DecodedRows(
            batch_of([change.values for change in rows], self.row_type),
            origins,
            np.array([change.kind for change in rows], np.int8),
            {key: [change.metadata[key] for change in rows] for key in keys},
        )


class RowEncoder(ABC):
    """Writes rows as messages. Pickled into the job."""

    @abstractmethod
    def encode(self, rows: pa.RecordBatch, kinds: Kinds | None) -> Sequence[bytes | None]:
        """A message for each row."""


class TableFormat(ABC):
    """Reads and writes rows as messages, or files.

    Args:
        options: those of the table; keys are read behind the prefix of the format's role (``value.``).
    """

    NAME: ClassVar[str]
    OPTIONS: ClassVar[tuple[Option[Any], ...]] = ()
    MODE: ClassVar[ChangelogMode] = INSERT_ONLY
    """The changes that messages hold."""
    TAKES_FIELDS: ClassVar[bool] = False
    """Whether files are read without fields of nested rows that the row type does not have."""

    def __init__(self, options: TableOptions) -> None:
        self.options = options

    def for_topic(self, topic: str, role: str) -> TableFormat:
        """The format of the keys or values (``role``) of a topic, whose name may be a default of its options."""
        return self

    def metadata(self) -> Mapping[str, DataType]:
        """Keys of the metadata that messages hold besides the row, with the types of their columns."""
        return {}

    def decoder(self, row_type: RowTypeInfo, types: Sequence[DataType]) -> RowDecoder:
        """What reads messages.

        Raises:
            TableOptionError: there are no messages of the format, or an option is wrong.
        """
        raise self.options.refuse("format", f"is '{self.NAME}', which is one of files")

    def encoder(self, row_type: RowTypeInfo, types: Sequence[DataType]) -> RowEncoder:
        """What writes messages.

        Raises:
            TableOptionError: there are no messages of the format, or an option is wrong.
        """
        raise self.options.refuse("format", f"is '{self.NAME}', which is one of files")

    def file_format(self, row_type: RowTypeInfo, types: Sequence[DataType]) -> FileFormat:
        """What reads files.

        Raises:
            TableOptionError: there are no files of the format, or an option is wrong.
        """
        raise self.options.refuse("format", f"is '{self.NAME}', which is one of messages")

    def file_writer(self, row_type: RowTypeInfo, types: Sequence[DataType]) -> SerializationSchema | BulkWriterFactory:
        """What writes files: the lines of files that may grow for long, or whole files.

        Raises:
            TableOptionError: there are no files of the format, or an option is wrong.
        """
        raise self.options.refuse("format", f"is '{self.NAME}', which is one of messages")


def batch_of(rows: Sequence[Sequence[Any]], row_type: RowTypeInfo) -> pa.RecordBatch:
    """Columns of rows; decimal numbers are rounded to their type, and NULL where they do not fit."""
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(row_type.field_names)
    arrays = []
    for name, declared, values in zip(row_type.field_names, row_type.field_types, columns, strict=True):
        fit = decimals_of(declared)
        arrays.append(column_of(values if fit is None else [fit(value) for value in values], name, declared))
    return pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(row_type, {RECORDS: ROW}))


def with_any_decimals(declared: TypeInformation) -> TypeInformation:
    """The type with decimal numbers of any size, which ``batch_of`` rounds, in place of those with few digits."""
    if isinstance(declared, DecimalTypeInfo):
        return Types.BIG_DEC()
    declared, row = resolved(declared)
    parts = [with_any_decimals(part) for part in parts_of(declared)]
    match row.shape:
        case Shape.ROW:
            return Types.ROW_NAMED(list(field_names(declared) or ()), parts)
        case Shape.LIST if parts != list(parts_of(declared)):
            return Types.OBJECT_ARRAY(parts[0])
        case Shape.MAP:
            return Types.MAP(*parts)
    return declared


def decimals_of(declared: TypeInformation) -> Callable[[Any], Any] | None:
    """What rounds the decimal numbers in values of a type, as Flink does; None = there are none."""
    if isinstance(declared, DecimalTypeInfo):
        return _decimal_fit(declared.precision, declared.scale)
    declared, row = resolved(declared)
    parts = [decimals_of(part) for part in parts_of(declared)]
    if all(part is None for part in parts):
        return None
    fits = [part or _same for part in parts]
    match row.shape:
        case Shape.LIST:
            return lambda value: None if value is None else [fits[0](item) for item in value]
        case Shape.MAP:
            key_fit, value_fit = fits
            return lambda value: None if value is None else {key_fit(k): value_fit(v) for k, v in value.items()}
    names = field_names(declared) or ()

    def fit_row(value: Any) -> Any:
        if value is None:
            return None
        return make_row(names, [fit(item) for fit, item in zip(fits, row_values(value, names), strict=True)])

    return fit_row


def _decimal_fit(precision: int, scale: int) -> Callable[[Any], Any]:
    context = Context(prec=precision + 40, rounding=ROUND_HALF_UP)
    step, limit = Decimal(1).scaleb(-scale), Decimal(10) ** (precision - scale)

    def fit(value: Any) -> Any:
        # Compared without abs(), which rounds numbers of more than 28 digits.
        if value is None or not value.is_finite() or not -limit < value < limit:
            return None
        rounded = value.quantize(step, context=context)
        return rounded if -limit < rounded < limit else None

    return fit


def _same(value: Any) -> Any:
    return value
