"""What the columns of a CSV file are, and how they are written."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from firesteel.common.typeinfo import RowTypeInfo, TypeInformation, Types
from firesteel.connectors.formats.declared_types import as_type, digits_of, row_type
from firesteel.core.errors import ProgramError
from firesteel.expressions.schema import Digits

__all__ = ["CsvDialect", "CsvSchema", "CsvSchemaBuilder"]


@dataclass(frozen=True)
class CsvDialect:
    """How CSV is written.

    Attributes:
        separator, quote, escape: one character each; None = there is none.
        line_separator: between rows, when writing.
        null_value: text that stands for None; None = there is none (empty numbers, booleans and dates are None anyhow).
        array_separator: between the elements of an array; None = arrays have one element.
        allow_comments: lines that begin with ``#`` are left out.
        use_header: the first line holds the names of the columns. They may stand in any order; where other names stand
            there, columns are known by their position.
        strict_headers: the names have to be those of the schema, in its order.
        skip_first_row: the first line (behind the header) is left out.
    """

    separator: str = ","
    quote: str | None = '"'
    escape: str | None = None
    line_separator: str = "\n"
    null_value: str | None = None
    array_separator: str | None = ";"
    allow_comments: bool = False
    use_header: bool = False
    strict_headers: bool = False
    skip_first_row: bool = False


def one_character(what: str, text: str) -> str:
    """The text, if it can separate or quote fields.

    Raises:
        ProgramError: it is not one character, or the end of a line.
    """
    if not isinstance(text, str) or len(text) != 1 or text in "\r\n\0":
        raise ProgramError(f"CSV: the {what} is one character, not {text!r}")
    return text


@dataclass(frozen=True)
class CsvSchema:
    """Columns and dialect of CSV. Made by ``CsvSchema.builder()``, or from a row type.

    Attributes:
        row_type: names and types of the columns.
        dialect: how it is written.
        array_separators: column -> separator of its elements, where it is not that of the dialect.
        digits: column -> precision and scale of its decimal numbers, where they were declared (``digits_of``).
    """

    row_type: RowTypeInfo
    dialect: CsvDialect = CsvDialect()
    array_separators: dict[int, str | None] = field(default_factory=dict)
    digits: dict[int, Digits] = field(default_factory=dict)

    def __post_init__(self) -> None:
        declared = digits_of(self.row_type)
        if isinstance(declared, list):
            object.__setattr__(self, "digits", {**dict(enumerate(declared)), **self.digits})
        object.__setattr__(self, "row_type", row_type(self.row_type, "CsvSchema"))

    @staticmethod
    def builder() -> CsvSchemaBuilder:
        """A builder without columns."""
        return CsvSchemaBuilder()

    def size(self) -> int:
        """Returns the number of columns."""
        return len(self.row_type.field_types)

    def array_separator(self, column: int) -> str | None:
        """Returns what separates the elements of an array in this column."""
        return self.array_separators.get(column, self.dialect.array_separator)

    def __str__(self) -> str:
        return f"CsvSchema({self.row_type})"


class CsvSchemaBuilder:
    """Builds a ``CsvSchema``."""

    def __init__(self) -> None:
        self._columns: list[tuple[str, TypeInformation]] = []
        self._separators: dict[int, str | None] = {}
        self._digits: dict[int, Digits] = {}
        self._dialect = CsvDialect()

    def build(self) -> CsvSchema:
        """The schema.

        Raises:
            ProgramError: there is no column, or a name stands twice.
        """
        names = [name for name, _ in self._columns]
        if not names:
            raise ProgramError("CSV schema: add at least one column")
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ProgramError(f"CSV schema: columns that stand more than once: {', '.join(twice)}")
        types = RowTypeInfo([type_info for _, type_info in self._columns], names)
        return CsvSchema(types, self._dialect, dict(self._separators), dict(self._digits))

    def _add(self, name: str, type_info: TypeInformation) -> CsvSchemaBuilder:
        if not isinstance(name, str) or not name:
            raise ProgramError(f"CSV schema: the name of a column is a text, not {name!r}")
        self._columns.append((name, type_info))
        return self

    def add_array_column(
        self, name: str, separator: str | None = ";", element_type: Any | None = None
    ) -> CsvSchemaBuilder:
        """A column of lists; elements are strings unless said otherwise.

        Raises:
            ProgramError: the separator is not one character.
        """
        if separator is not None:
            one_character("array element separator", separator)
        inner = Types.STRING() if element_type is None else as_type(element_type, "add_array_column()")
        self._separators[len(self._columns)] = separator
        self._digits[len(self._columns)] = digits_of(element_type)
        return self._add(name, Types.LIST(inner))

    def add_boolean_column(self, name: str) -> CsvSchemaBuilder:
        """A column of ``true`` and ``false``."""
        return self._add(name, Types.BOOLEAN())

    def add_number_column(self, name: str, number_type: Any | None = None) -> CsvSchemaBuilder:
        """A column of numbers; 64-bit integers unless said otherwise.

        Of ``DataTypes.DECIMAL(precision, scale)`` numbers are rounded to their scale, halves away from zero.
        """
        self._digits[len(self._columns)] = digits_of(number_type)
        return self._add(name, Types.LONG() if number_type is None else as_type(number_type, "add_number_column()"))

    def add_string_column(self, name: str) -> CsvSchemaBuilder:
        """A column of text."""
        return self._add(name, Types.STRING())

    def add_columns_from(self, schema: CsvSchema) -> CsvSchemaBuilder:
        """The columns of another schema."""
        for position, pair in enumerate(zip(schema.row_type.field_names, schema.row_type.field_types, strict=True)):
            if position in schema.array_separators:
                self._separators[len(self._columns)] = schema.array_separators[position]
            self._digits[len(self._columns)] = schema.digits.get(position)
            self._columns.append(pair)
        return self

    def clear_columns(self) -> CsvSchemaBuilder:
        """Remove all columns."""
        self._columns.clear()
        self._separators.clear()
        self._digits.clear()
        return self

    def set_allow_comments(self, allow: bool = True) -> CsvSchemaBuilder:
        """Leave out lines that begin with ``#``."""
        return self._with(allow_comments=allow)

    def set_any_property_name(self, name: str) -> CsvSchemaBuilder:
        """Refused: rows have no place for columns that the schema does not name.

        Raises:
            ProgramError: always.
        """
        raise ProgramError(
            f"CSV schema: set_any_property_name({name!r}): a row has no place for columns that the schema does not "
            "name; add them as columns"
        )

    def disable_array_element_separator(self) -> CsvSchemaBuilder:
        """Arrays have one element."""
        self._separators = dict.fromkeys(self._separators)
        return self._with(array_separator=None)

    def remove_array_element_separator(self, index: int) -> CsvSchemaBuilder:
        """Arrays of this column have one element."""
        self._separators[self._column(index)] = None
        return self

    def _column(self, index: int) -> int:
        if not 0 <= index < len(self._columns):
            raise ProgramError(f"CSV schema: there is no column {index}; there are {len(self._columns)}")
        return index

    def set_array_element_separator(self, separator: str) -> CsvSchemaBuilder:
        """What separates the elements of arrays of columns that name no separator."""
        return self._with(array_separator=one_character("array element separator", separator))

    def set_column_separator(self, char: str) -> CsvSchemaBuilder:
        """What separates columns."""
        return self._with(separator=one_character("column separator", char))

    def disable_escape_char(self) -> CsvSchemaBuilder:
        """No character escapes others; the default."""
        return self._with(escape=None)

    def set_escape_char(self, char: str) -> CsvSchemaBuilder:
        """The character behind this one stands for itself."""
        return self._with(escape=one_character("escape character", char))

    def set_line_separator(self, separator: str) -> CsvSchemaBuilder:
        """What writers put behind a row; readers take LF and CR LF.

        Raises:
            ProgramError: it does not end with a newline.
        """
        if separator not in ("\n", "\r\n"):
            raise ProgramError(f"CSV: rows end with LF or CR LF, not with {separator!r}")
        return self._with(line_separator=separator)

    def set_null_value(self, null_value: str | None) -> CsvSchemaBuilder:
        """The text that stands for None."""
        return self._with(null_value=null_value)

    def disable_quote_char(self) -> CsvSchemaBuilder:
        """Quotes have no meaning."""
        return self._with(quote=None)

    def set_quote_char(self, char: str) -> CsvSchemaBuilder:
        """What fields are quoted with."""
        return self._with(quote=one_character("quote character", char))

    def set_skip_first_data_row(self, skip: bool = True) -> CsvSchemaBuilder:
        """Leave out the first row (behind the header)."""
        return self._with(skip_first_row=skip)

    def set_strict_headers(self, strict: bool = True) -> CsvSchemaBuilder:
        """The header has to name the columns of the schema in its order."""
        return self._with(strict_headers=strict)

    def set_use_header(self, use: bool = True) -> CsvSchemaBuilder:
        """The first line names the columns, in any order; writers write it.

        Columns whose names are not there are known by their position, as all are in Flink.
        """
        return self._with(use_header=use)

    def size(self) -> int:
        """Returns the number of columns so far."""
        return len(self._columns)

    def _with(self, **changes: Any) -> CsvSchemaBuilder:
        self._dialect = replace(self._dialect, **changes)
        return self
