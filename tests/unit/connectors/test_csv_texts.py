"""Lines of CSV are those that Flink writes: the expected ones were written by Jackson's CsvGenerator (2.21)."""

from __future__ import annotations

from datetime import date, datetime, time
from typing import Any

import pytest

from firesteel.common import Instant, Types
from firesteel.common.types import Row
from firesteel.common.value_texts import java_double_text, java_float_text
from firesteel.connectors.formats.csv_files import CsvBulkWriters
from firesteel.connectors.formats.csv_rows import CsvRowDeserializationSchema, CsvRowSerializationSchema
from firesteel.connectors.formats.csv_schema import CsvSchema, CsvSchemaBuilder
from firesteel.runtime.records.columns import StreamColumns
from tests.unit.connectors.test_schemas import written


def schema(**dialect: str) -> CsvSchema:
    builder = CsvSchema.builder().add_string_column("x").add_number_column("y")
    for name, value in dialect.items():
        getattr(builder, f"set_{name}")(value)
    return builder.build()


COMMA = [
    ("", ""), (" ", '" "'), ("a", "a"), (" a", '" a"'), ("a b", '"a b"'), ("a,b", '"a,b"'), ('a"b', '"a""b"'),
    ("a\nb", '"a\nb"'), ("a\rb", '"a\rb"'), ("a\tb", '"a\tb"'), ("#a", '"#a"'), ("'", "\"'\""), ("+1", '"+1"'),
    ("-1", "-1"), ("0", "0"), ("ü", "ü"), ("a;b", "a;b"), ("a/b", "a/b"), ("a.b", "a.b"), ("a*b", '"a*b"'),
    ("a\x01b", '"a\x01b"'), ("a\\b", '"a\\b"'), ("a:b", "a:b"), ("€", "€"), ("null", "null"),
    ("123456789012345678901234", "123456789012345678901234"),
    ("1234567890123456789012345", '"1234567890123456789012345"'),
    ("12345678901234567890123😀", '"12345678901234567890123😀"'),
    ("1234567890123456789012😀", "1234567890123456789012😀"),
]  # fmt: skip
OTHERS: list[tuple[dict[str, str], str, str]] = [
    ({"column_separator": ";"}, "-1", '"-1"'), ({"column_separator": ";"}, "a.b", '"a.b"'),
    ({"column_separator": ";"}, "a_b", "a_b"), ({"column_separator": ";"}, "a,b", '"a,b"'),
    ({"column_separator": "\t"}, "a'b", "a'b"), ({"column_separator": "\t"}, "a b", '"a b"'),
    ({"column_separator": "\t"}, 'a"b', '"a""b"'), ({"column_separator": "\t"}, "a.b", "a.b"),
    ({"column_separator": "|"}, "ab", '"ab"'), ({"column_separator": "|"}, "é", "é"),
    ({"escape_char": "\\"}, "a\\b", '"a\\\\b"'), ({"escape_char": "\\"}, 'a"b', '"a""b"'),
    ({"escape_char": "/"}, "a/b", '"a//b"'), ({"escape_char": "/"}, "a\\b", "a\\b"),
    ({"escape_char": "~"}, "a~b", '"a~~b"'), ({"quote_char": "'"}, "a'b", "'a''b'"),
    ({"quote_char": "'"}, 'a"b', "'a\"b'"), ({"quote_char": "~"}, "ab", "~ab~"), ({"quote_char": "~"}, "a~b", "~a~~b~"),
]  # fmt: skip


@pytest.mark.parametrize(("dialect", "text", "field"), [*(({}, *pair) for pair in COMMA), *OTHERS])
def test_texts_are_quoted_as_jackson_does(dialect: dict[str, str], text: str, field: str) -> None:
    built = schema(**dialect)
    rows = [Row(x=text, y=-1), Row(x=None, y=None), Row(x="z" if field[0:1] != '"' else text, y=7)]
    separator = built.dialect.separator
    line = CsvRowSerializationSchema(built, "\n")
    assert line.serialize(rows[0]) == f"{field}{separator}-1\n".encode()
    assert line.serialize(rows[1]) == f"{separator}\n".encode()
    batch = StreamColumns(built.row_type).from_records(rows)
    assert line.serialize_columns(batch) == [line.serialize(row) for row in rows]


def test_lines_of_files(tmp_path: Any) -> None:
    built: CsvSchemaBuilder = CsvSchema.builder().add_string_column("x y").add_boolean_column("b")
    built.add_array_column("l").add_number_column("d", Types.DOUBLE()).add_number_column("f", Types.FLOAT())
    rows = [Row("2020-01-01 00:00:00", True, ["a b", "c"], 1e7, 163.3), Row("a", False, ["a", "c"], 1e-4, 1e-10)]
    rows = [Row(**dict(zip(("x y", "b", "l", "d", "f"), row, strict=True))) for row in rows]
    path = tmp_path / "a.csv"
    written(CsvBulkWriters.for_schema(built.set_use_header().build()), rows, path)
    assert path.read_text() == (
        '"x y",b,l,d,f\n"2020-01-01 00:00:00",true,"a b;c",1.0E7,163.3\na,false,a;c,1.0E-4,1.0E-10\n'
    )


def test_moments_are_written_as_in_sql_and_read_again() -> None:
    moment = datetime(2020, 1, 2, 3, 4, 5, 120_000)
    row_type = Types.ROW_NAMED(
        ["d", "t", "at", "i"], [Types.SQL_DATE(), Types.SQL_TIME(), Types.SQL_TIMESTAMP(), Types.INSTANT()]
    )
    row = Row(d=date(2020, 1, 2), t=time(3, 4, 5, 100_000), at=moment, i=Instant(0, 0))
    line = CsvRowSerializationSchema.Builder(row_type).build().serialize(row)
    assert line == b'2020-01-02,03:04:05.1,"2020-01-02 03:04:05.12","1970-01-01 00:00:00Z"\n'
    assert CsvRowDeserializationSchema.Builder(row_type).build().deserialize(line) == row


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (1.0, "1.0"), (0.1, "0.1"), (1e7, "1.0E7"), (9_999_999.0, "9999999.0"), (12_345_678.9, "1.23456789E7"),
        (1e-3, "0.001"), (1e-4, "1.0E-4"), (9.999e-4, "9.999E-4"), (1e21, "1.0E21"), (5e-324, "4.9E-324"),
        (1.7976931348623157e308, "1.7976931348623157E308"), (float("nan"), "NaN"), (float("-inf"), "-Infinity"),
        (-0.0, "-0.0"), (-1e10, "-1.0E10"), (123456789012345680.0, "1.2345678901234568E17"),
    ],
)  # fmt: skip
def test_doubles_are_those_of_java(number: float, text: str) -> None:
    assert java_double_text(number) == text


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (163.30001831054688, "163.30002"), (12345679.0, "1.2345679E7"), (1.2345679068655616e17, "1.2345679E17"),
        (1e-10, "1.0E-10"), (1.401298464324817e-45, "1.4E-45"), (3.4028234663852886e38, "3.4028235E38"),
        (float("inf"), "Infinity"), (0.0, "0.0"), (0.5, "0.5"),
    ],
)  # fmt: skip
def test_floats_are_those_of_java(number: float, text: str) -> None:
    assert java_float_text(number) == text
