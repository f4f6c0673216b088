"""Describes files of CSV: columns and dialect."""

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
    """Special characters and lines of CSV.

    Attributes:
        separator, quote, escape: one character each; None = there is no such character.
        line_separator: end of rows that are written.
        null_value: text that stands for None; None = no text does (empty numbers, booleans and dates are None anyway).
        array_separator: character between the elements of an array; None = arrays have one element.
        allow_comments: lines that begin with ``#`` are left out.
        use_header: the first line holds the names of the columns, in any order. If the names of the schema are not
            there, columns are identified by their position.
        strict_headers: the header has to hold the names of the schema, in its order.
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


def one_character(role: str, text: str) -> str:
    """Check that a text can separate or quote fields, and return it.

    Raises:
        ProgramError: the text is not one character, or is an end of a line.
    """
    if not isinstance(text, str) or len(text) != 1 or text in "\r\n\0":
        raise ProgramError(f"CSV: the {role} is one character, not {text!r}")
    return text


@dataclass(frozen=True)
class CsvSchema:
    """Columns and dialect of CSV. Made by ``CsvSchema.builder()``, or from a row type.

    Attributes:
        row_type: names and types of the columns.
        dialect: special characters and lines.
        array_separators: column -> separator of its elements, if it is not that of the dialect.
        digits: column -> precision and scale of its decimal numbers, if they are declared (``digits_of``).

    Examples:
        ```python
        from firesteel.datastream.formats.csv import CsvReaderFormat, CsvSchema

        schema = CsvSchema.builder().add_string_column("name").add_number_column("amount").build()
        print(schema.size())
        ```

        ```text
        2
        ```
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
        """Returns the character between the elements of an array in this column."""
        return self.array_separators.get(column, self.dialect.array_separator)

    def __str__(self) -> str:
        return f"CsvSchema({self.row_type})"


class CsvSchemaBuilder:
    """Builds a ``CsvSchema``. Columns have the order in which they are added.

    Examples:
        ```python
        from firesteel.datastream.formats.csv import CsvSchema

        builder = CsvSchema.builder().add_string_column("name").add_boolean_column("paid")
        schema = builder.set_column_separator(";").set_null_value("-").build()
        print(schema.size())
        ```

        ```text
        2
        ```
    """

    def __init__(self) -> None:
        self._columns: list[tuple[str, TypeInformation]] = []
        self._separators: dict[int, str | None] = {}
        self._digits: dict[int, Digits] = {}
        self._dialect = CsvDialect()

    def build(self) -> CsvSchema:
        """Check the columns and make the schema.

        Raises:
            ProgramError: there is no column, or two columns have the same name.
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
        """Add a column of lists; by default their elements are strings.

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
        """Add a column of ``true`` and ``false``."""
        return self._add(name, Types.BOOLEAN())

    def add_number_column(self, name: str, number_type: Any | None = None) -> CsvSchemaBuilder:
        """Add a column of numbers; by default they are 64-bit integers.

        Numbers of ``DataTypes.DECIMAL(precision, scale)`` are rounded to the scale, halves away from zero.
        """
        self._digits[len(self._columns)] = digits_of(number_type)
        return self._add(name, Types.LONG() if number_type is None else as_type(number_type, "add_number_column()"))

    def add_string_column(self, name: str) -> CsvSchemaBuilder:
        """Add a column of texts."""
        return self._add(name, Types.STRING())

    def add_columns_from(self, schema: CsvSchema) -> CsvSchemaBuilder:
        """Add the columns of another schema."""
        for position, pair in enumerate(zip(schema.row_type.field_names, schema.row_type.field_types, strict=True)):
            if position in schema.array_separators:
                self._separators[len(self._columns)] = schema.array_separators[position]
            self._digits[len(self._columns)] = schema.digits.get(position)
            self._columns.append(pair)
        return self

    def clear_columns(self) -> CsvSchemaBuilder:
        """Remove the columns that were added so far."""
        self._columns.clear()
        self._separators.clear()
        self._digits.clear()
        return self

    def set_allow_comments(self, allow: bool = True) -> CsvSchemaBuilder:
        """Set whether lines that begin with ``#`` are left out."""
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
        """Have arrays of all columns hold one element."""
        self._separators = dict.fromkeys(self._separators)
        return self._with(array_separator=None)

    def remove_array_element_separator(self, index: int) -> CsvSchemaBuilder:
        """Have arrays of this column hold one element."""
        self._separators[self._column(index)] = None
        return self

    def _column(self, index: int) -> int:
        if not 0 <= index < len(self._columns):
            raise ProgramError(f"CSV schema: there is no column {index}; there are {len(self._columns)}")
        return index

    def set_array_element_separator(self, separator: str) -> CsvSchemaBuilder:
        """Set the character between elements of arrays, for columns without a separator of their own."""
        return self._with(array_separator=one_character("array element separator", separator))

    def set_column_separator(self, char: str) -> CsvSchemaBuilder:
        """Set the character between columns; a comma by default."""
        return self._with(separator=one_character("column separator", char))

    def disable_escape_char(self) -> CsvSchemaBuilder:
        """Have no character escape others; the default."""
        return self._with(escape=None)

    def set_escape_char(self, char: str) -> CsvSchemaBuilder:
        """Set the character that makes the next one stand for itself."""
        return self._with(escape=one_character("escape character", char))

    def set_line_separator(self, separator: str) -> CsvSchemaBuilder:
        """Set what writers put behind a row: LF or CR LF. Readers take both.

        Raises:
            ProgramError: the separator is neither.
        """
        if separator not in ("\n", "\r\n"):
            raise ProgramError(f"CSV: rows end with LF or CR LF, not with {separator!r}")
        return self._with(line_separator=separator)

    def set_null_value(self, null_value: str | None) -> CsvSchemaBuilder:
        """Set the text that stands for None; None = no text does."""
        return self._with(null_value=null_value)

    def disable_quote_char(self) -> CsvSchemaBuilder:
        """Have no character quote fields."""
        return self._with(quote=None)

    def set_quote_char(self, char: str) -> CsvSchemaBuilder:
        """Set the character that quotes fields; ``"`` by default."""
        return self._with(quote=one_character("quote character", char))

    def set_skip_first_data_row(self, skip: bool = True) -> CsvSchemaBuilder:
        """Set whether the first row (behind the header) is left out."""
        return self._with(skip_first_row=skip)

    def set_strict_headers(self, strict: bool = True) -> CsvSchemaBuilder:
        """Set whether the header has to name the columns of the schema in its order."""
        return self._with(strict_headers=strict)

    def set_use_header(self, use: bool = True) -> CsvSchemaBuilder:
        """Set whether the first line names the columns, in any order; writers write it.

        Columns whose names are missing are identified by their position, as all columns are in Flink.
        """
        return self._with(use_header=use)

    def size(self) -> int:
        """Returns the number of columns so far."""
        return len(self._columns)

    def _with(self, **changes: Any) -> CsvSchemaBuilder:
        self._dialect = replace(self._dialect, **changes)
        return self
