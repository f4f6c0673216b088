"""Values and types of expressions by Flink's rules; some thirty of them were seen on Flink 2.3."""

from __future__ import annotations

from datetime import UTC, datetime, tzinfo
from typing import Any

import pyarrow as pa
import pytest

from firesteel.common import Types
from firesteel.core.errors import ProgramError
from firesteel.expressions.binding import bind
from firesteel_sql.bind.queries import QueryBinder
from firesteel_sql.catalog.catalogs import Catalogs
from firesteel_sql.functions.signature import Session
from firesteel_sql.parse.errors import SqlError
from firesteel_sql.parse.statements import parse_query
from firesteel_sql.plan.relations import Projection
from firesteel_sql.plan.row_expressions import to_expression
from firesteel_sql.texts import type_text, value_text


def computed(text: str, zone: str = "UTC") -> tuple[Any, str]:
    """The value of an expression as SQL shows it, and its type."""
    sql = f"SELECT {text}"
    relation = QueryBinder(Catalogs(), Session(zone), sql).bind(parse_query(sql).query)
    assert isinstance(relation, Projection)
    (expression,) = relation.expressions
    value = bind(to_expression(expression, []), {}).evaluate({}, 1)[0].as_py()
    return value_text(value, expression.type), type_text(expression.type)


FACTS = [
    # integers
    ("7 / 2", "3", "INT NOT NULL"),
    ("-7 / 2", "-3", "INT NOT NULL"),
    ("MOD(-7, 3)", "-1", "INT NOT NULL"),
    ("7 % -3", "1", "INT NOT NULL"),
    ("2147483647 + 1", "-2147483648", "INT NOT NULL"),
    ("-9223372036854775808 / -1", "-9223372036854775808", "BIGINT NOT NULL"),
    ("(-2147483647 - 1) % -1", "0", "INT NOT NULL"),
    ("CAST(300 AS TINYINT)", "44", "TINYINT NOT NULL"),
    ("CAST(-1.9 AS INT)", "-1", "INT NOT NULL"),
    ("CAST(9999999999.99 AS INT)", "1410065407", "INT NOT NULL"),
    ("3000000000", "3000000000", "BIGINT NOT NULL"),
    ("-9223372036854775808", "-9223372036854775808", "BIGINT NOT NULL"),
    # decimal numbers
    ("0.908", "0.908", "DECIMAL(3, 3) NOT NULL"),
    ("1.5 * 0.908", "1.3620", "DECIMAL(5, 4) NOT NULL"),
    ("1.25 + 1", "2.25", "DECIMAL(13, 2) NOT NULL"),
    ("CAST(1 AS DECIMAL(10, 2)) / CAST(3 AS DECIMAL(10, 2))", "0.3333333333333", "DECIMAL(23, 13)"),
    ("CAST(1.5 AS DECIMAL(38, 10)) * CAST(2 AS DECIMAL(38, 10))", "3.000000", "DECIMAL(38, 6) NOT NULL"),
    ("CAST(123456 AS DECIMAL(5, 0))", "NULL", "DECIMAL(5, 0)"),
    ("CAST(99.95 AS DECIMAL(3, 1))", "NULL", "DECIMAL(3, 1)"),
    ("CAST(1.25 AS DECIMAL(2, 1))", "1.3", "DECIMAL(2, 1)"),
    ("ROUND(2.5)", "3", "DECIMAL(2, 0) NOT NULL"),
    ("ROUND(-2.5)", "-3", "DECIMAL(2, 0) NOT NULL"),
    ("ROUND(1.2345, 2)", "1.23", "DECIMAL(4, 2) NOT NULL"),
    ("2.0 % 0.7", "0.6", "DECIMAL(1, 1) NOT NULL"),
    ("FLOOR(-1.5)", "-2", "DECIMAL(2, 0) NOT NULL"),
    # floating point
    ("1e0 / 3", "0.3333333333333333", "DOUBLE NOT NULL"),
    ("CAST(1e0 AS STRING)", "1.0", "STRING NOT NULL"),
    ("POWER(2, 10)", "1024.0", "DOUBLE NOT NULL"),
    ("CAST(1e30 AS INT)", "2147483647", "INT NOT NULL"),
    ("1.5 = 1.5e0", "TRUE", "BOOLEAN NOT NULL"),
    # texts
    ("'a' || 'bc'", "abc", "CHAR(3) NOT NULL"),
    ("'a' || NULL", "NULL", "STRING"),
    ("CAST('ab' AS CHAR(4)) || '|'", "ab  |", "CHAR(5) NOT NULL"),
    ("CAST('abcdef' AS VARCHAR(3))", "abc", "VARCHAR(3) NOT NULL"),
    ("CAST('a' AS CHAR(3)) = 'a'", "FALSE", "BOOLEAN NOT NULL"),
    ("SUBSTRING('hello', 0, 2)", "he", "VARCHAR(5)"),
    ("SUBSTRING('hello', -3)", "llo", "VARCHAR(5)"),
    ("SUBSTRING('hello' FROM 2 FOR 3)", "ell", "VARCHAR(5)"),
    ("SPLIT_INDEX('a/b/c', '/', 1)", "b", "STRING"),
    ("SPLIT_INDEX('a/b/c', '/', 3)", "NULL", "STRING"),
    ("CONCAT_WS(',', 'a', NULL, 'b')", "a,b", "STRING"),
    ("TRIM(LEADING 'x' FROM 'xxay')", "ay", "VARCHAR(4) NOT NULL"),
    ("POSITION('b' IN 'abc')", "2", "INT NOT NULL"),
    ("LPAD('hi', 4, '??')", "??hi", "STRING"),
    ("LPAD('hi', 1, '??')", "h", "STRING"),
    ("'abc' LIKE 'a%'", "TRUE", "BOOLEAN NOT NULL"),
    ("'a\\b' LIKE 'a\\b'", "TRUE", "BOOLEAN NOT NULL"),
    ("'a%c' LIKE 'a!%c' ESCAPE '!'", "TRUE", "BOOLEAN NOT NULL"),
    ("'abc' LIKE 'a!%c' ESCAPE '!'", "FALSE", "BOOLEAN NOT NULL"),
    ("REGEXP_EXTRACT('foothebar', 'foo(.*?)(bar)', 2)", "bar", "STRING"),
    ("REGEXP_REPLACE('foobar', 'oo|ar', '')", "fb", "STRING NOT NULL"),
    ("REGEXP_REPLACE('ab', '(a)(b)', '$2$1')", "$2$1", "STRING NOT NULL"),
    ("CHAR_LENGTH('ü€😀')", "3", "INT NOT NULL"),
    ("INITCAP('hello wORLD')", "Hello World", "CHAR(11) NOT NULL"),
    ("MD5('a')", "0cc175b9c0f1b6a831c399e269772661", "CHAR(32) NOT NULL"),
    # three-valued logic, choices
    ("TRUE AND NULL", "NULL", "BOOLEAN"),
    ("FALSE AND NULL", "FALSE", "BOOLEAN"),
    ("TRUE OR NULL", "TRUE", "BOOLEAN"),
    ("NOT NULL", "NULL", "BOOLEAN"),
    ("1 IN (2, NULL)", "NULL", "BOOLEAN"),
    ("1 IN (1, NULL)", "TRUE", "BOOLEAN"),
    ("1 NOT IN (2, 3)", "TRUE", "BOOLEAN NOT NULL"),
    ("NULL IS NULL", "TRUE", "BOOLEAN NOT NULL"),
    ("1 IS DISTINCT FROM NULL", "TRUE", "BOOLEAN NOT NULL"),
    ("CAST(NULL AS INT) IS NOT DISTINCT FROM NULL", "TRUE", "BOOLEAN NOT NULL"),
    ("CAST(NULL AS BOOLEAN) IS NOT TRUE", "TRUE", "BOOLEAN NOT NULL"),
    ("2 BETWEEN SYMMETRIC 3 AND 1", "TRUE", "BOOLEAN NOT NULL"),
    ("NULLIF(1, 1)", "NULL", "INT"),
    ("COALESCE(NULL, 1.5, 2)", "1.5", "DECIMAL(11, 1) NOT NULL"),
    ("CASE WHEN NULL THEN 1 ELSE 2 END", "2", "INT NOT NULL"),
    ("CASE 3 WHEN 1 THEN 'a' WHEN 3 THEN 'bcd' END", "bcd", "VARCHAR(3)"),
    ("CASE WHEN 1 = 0 THEN 1 / 0 ELSE 7 END", "7", "INT NOT NULL"),
    ("GREATEST(1, 2.5)", "2.5", "DECIMAL(11, 1) NOT NULL"),
    ("IF(1 > 2, 'a', 'bcd')", "bcd", "VARCHAR(3) NOT NULL"),
    # casts
    ("TRY_CAST('abc' AS INT)", "NULL", "INT"),
    ("CAST(TRUE AS INT)", "1", "INT NOT NULL"),
    ("CAST('yes' AS BOOLEAN)", "TRUE", "BOOLEAN NOT NULL"),
    ("CAST(' 12 ' AS INT)", "12", "INT NOT NULL"),
    ("CAST(TIMESTAMP '2020-01-02 03:04:05.100' AS STRING)", "2020-01-02 03:04:05.1", "STRING NOT NULL"),
    ("CAST('2020-01-02' AS DATE)", "2020-01-02", "DATE NOT NULL"),
    # times
    ("DATE '2020-01-31' + INTERVAL '1' MONTH", "2020-02-29", "DATE NOT NULL"),
    ("DATE '2020-01-02' - INTERVAL '1' HOUR", "2020-01-02", "DATE NOT NULL"),
    ("DATE '2020-01-02' - INTERVAL '25' HOUR", "2020-01-01", "DATE NOT NULL"),
    (
        "TIMESTAMP '2020-01-01 00:00:00' + INTERVAL '1 02:03:04' DAY TO SECOND",
        "2020-01-02 02:03:04",
        "TIMESTAMP(0) NOT NULL",
    ),
    ("TIME '23:59:00' + INTERVAL '2' MINUTE", "00:01:00", "TIME(0) NOT NULL"),
    ("DATE_FORMAT(TIMESTAMP '2020-01-02 03:04:05', 'yyyy-MM-dd''T''HH:mm')", "2020-01-02T03:04", "STRING"),
    # PRINTF: moments as LocalDateTime shows them; %g decides by the rounded number
    ("PRINTF('%s', TIMESTAMP '2020-01-02 03:04:00')", "2020-01-02T03:04", "STRING"),
    ("PRINTF('%s', TIMESTAMP '2020-01-02 03:04:05.120')", "2020-01-02T03:04:05.120", "STRING"),
    ("PRINTF('%s', TIMESTAMP '2020-01-02 03:04:00.000120')", "2020-01-02T03:04:00.000120", "STRING"),
    ("PRINTF('%g', 999999.5e0)", "1.00000e+06", "STRING"),
    ("PRINTF('%g', 0.00009999999e0)", "0.000100000", "STRING"),
    ("EXTRACT(QUARTER FROM DATE '2020-05-01')", "2", "BIGINT NOT NULL"),
    ("DAYOFWEEK(DATE '2026-11-29')", "1", "BIGINT NOT NULL"),
    ("CEIL(TIMESTAMP '2020-01-01 00:30:00' TO HOUR)", "2020-01-01 01:00:00", "TIMESTAMP(0) NOT NULL"),
    ("TIMESTAMPDIFF(DAY, TIMESTAMP '2020-01-01 12:00:00', TIMESTAMP '2020-01-03 11:00:00')", "1", "INT NOT NULL"),
    ("TIMESTAMPDIFF(MONTH, DATE '2020-01-31', DATE '2020-02-29')", "1", "INT NOT NULL"),
    ("TIMESTAMPADD(MONTH, 1, DATE '2020-01-31')", "2020-02-29", "DATE NOT NULL"),
    ("TO_TIMESTAMP('nonsense')", "NULL", "TIMESTAMP(3)"),
    ("TO_TIMESTAMP('31.01.2020 05', 'dd.MM.yyyy HH')", "2020-01-31 05:00:00.000", "TIMESTAMP(3)"),
    ("INTERVAL '1' DAY * 2", "+2 00:00:00.000", "INTERVAL SECOND(3) NOT NULL"),
    ("INTERVAL '1-6' YEAR TO MONTH", "+1-06", "INTERVAL MONTH NOT NULL"),
    # parts
    ("ARRAY[1, 2, 3][2]", "2", "INT"),
    ("ARRAY[1, 2, 3][9]", "NULL", "INT"),
    ("MAP['a', 1, 'b', 2]['b']", "2", "INT"),
    ("CARDINALITY(ARRAY[1, 2])", "2", "INT NOT NULL"),
    ("CAST(ARRAY[1, NULL, 3] AS ARRAY<STRING>)", "[1, NULL, 3]", "ARRAY<STRING> NOT NULL"),
    ("CAST(MAP['a', 1] AS MAP<STRING, DECIMAL(5, 1)>)", "{a=1.0}", "MAP<STRING, DECIMAL(5, 1)> NOT NULL"),
    ("CAST(ROW(1, 'x') AS ROW<n BIGINT, t STRING>).n", "1", "BIGINT"),
    ("CAST(ARRAY[ROW(1.5)] AS ARRAY<ROW<n DOUBLE>>)[1].n", "1.5", "DOUBLE"),
]


@pytest.mark.parametrize(("text", "value", "data_type"), FACTS)
def test_an_expression_has_the_value_and_type_of_flinks_rules(text: str, value: str, data_type: str) -> None:
    assert computed(text) == (value, data_type)


def test_moments_are_shown_in_the_sessions_zone() -> None:
    assert computed("CAST(TO_TIMESTAMP_LTZ(0, 3) AS STRING)", "Europe/Berlin")[0] == "1970-01-01 01:00:00"
    assert computed("FROM_UNIXTIME(0)", "America/New_York")[0] == "1969-12-31 19:00:00"
    assert computed("UNIX_TIMESTAMP('1970-01-01 01:00:00')", "Europe/Berlin")[0] == "0"
    assert (
        computed("CAST(CAST('2020-07-01 12:00:00' AS TIMESTAMP_LTZ(0)) AS TIMESTAMP(0))", "Europe/Berlin")[0]
        == "2020-07-01 12:00:00"
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("1 / 0", "(1 / 0) can't be computed: divide by zero"),
        ("1.0 / 0.0", "can't be computed"),
        ("CAST('abc' AS INT)", "'abc' is no 32-bit integer"),
        ("CAST('2020-13-01' AS DATE)", "is no timestamp"),
    ],
)
def test_a_value_that_can_not_be_computed_says_why(text: str, problem: str) -> None:
    with pytest.raises(ProgramError) as caught:
        computed(text)
    assert problem in str(caught.value)


@pytest.mark.parametrize(
    ("sql", "problem"),
    [
        ("SELECT '10' > 9", "do not go together: write a CAST"),
        ("SELECT 1 + 'a'", "a number is needed, not CHAR(1)"),
        ("SELECT 'a' + 'b'", "joined with ||"),
        ("SELECT UPPEER('a')", "there is no function UPPEER; did you mean UPPER?"),
        ("SELECT UPPER(1)", "UPPER: a text is needed, not INT"),
        ("SELECT UPPER()", "UPPER takes 1 operand, not 0"),
        ("SELECT SUBSTRING('a')", "SUBSTRING takes 2 to 3 operands, not 1"),
        ("SELECT REGEXP('a', '(')", "REGEXP: '(' is no regular expression"),
        ("SELECT REGEXP('a', '\\p{IsLatin}')", "the class \\p{IsLatin} is not supported"),
        ("SELECT NOT 1", "a condition is needed, not INT"),
        ("SELECT x", "there is no column x: the query has no FROM"),
        ("SELECT x FROM (VALUES (1)) AS t(y)", "there is no column x; there is y"),
        ("SELECT prise FROM (VALUES (1, 2)) AS t(price, size)", "did you mean price?"),
        ("SELECT t.prise FROM (VALUES (1)) AS t(price)", "t has no column prise; did you mean price?"),
        ("SELECT u.* FROM (VALUES (1)) AS t(price)", "the query has no table u"),
        ("SELECT a FROM (VALUES (1, 2)) AS t(a, a)", "a means several columns"),
        ("SELECT CAST(1 AS ARRAY<INT>)", "can't be cast"),
        ("SELECT CAST(1 AS DECIMAL(50, 2))", "the precision is from 1 to 38"),
        ("SELECT CAST(1 AS TIMESTAMP(12))", "the precision is from 0 to 9"),
        ("SELECT DATE 'tomorrow'", "write it as DATE '2026-01-31'"),
        ("SELECT INTERVAL '1:70' HOUR TO MINUTE", "MINUTE is at most 59"),
        ("SELECT * FROM (VALUES (1), (1, 2)) AS t(a)", "a row of VALUES has 2 values"),
        ("SELECT * FROM (VALUES (1), ('a')) AS t(a)", "have no type in common"),
        ("SELECT 1 UNION ALL SELECT 1, 2", "this query has 2 columns"),
        ("SELECT a FROM (VALUES (1)) AS t(a, b)", "2 names are given for 1 columns"),
        ("SELECT 1 FROM (VALUES (1)) AS t(a) WHERE a", "WHERE needs a condition, not INT"),
        ("SELECT CASE WHEN TRUE THEN 1 ELSE 'a' END", "do not go together"),
        ("SELECT 123456789012345678901234567890123456789", "38 digits at most"),
        ("VALUES (SUM(1))", "the aggregate function SUM can't stand here"),
        ("SELECT * FROM nowhere", "there is no table nowhere"),
    ],
)
def test_a_query_without_meaning_is_refused(sql: str, problem: str) -> None:
    with pytest.raises(SqlError) as caught:
        QueryBinder(Catalogs(), Session(), sql).bind(parse_query(sql).query)
    assert problem in caught.value.problem


def test_the_least_integer_of_a_column_is_divided_as_in_java() -> None:
    sql = "SELECT a / b, a % b FROM (VALUES (1, 1)) AS t(a, b)"
    relation = QueryBinder(Catalogs(), Session(), sql).bind(parse_query(sql).query)
    assert isinstance(relation, Projection)
    columns = {name: pa.array(values, pa.int32()) for name, values in (("a", [-(2**31), 7, None]), ("b", [-1, -2, -1]))}
    types = dict.fromkeys(columns, Types.INT())
    quotients, remainders = (
        bind(to_expression(expression, ["a", "b"]), types).evaluate(columns, 3) for expression in relation.expressions
    )
    assert pa.array(quotients).to_pylist() == [-(2**31), -3, None]
    assert pa.array(remainders).to_pylist() == [0, 1, None]


def test_the_present_time_is_read_from_the_clock_once(monkeypatch: pytest.MonkeyPatch) -> None:
    readings = iter([datetime(2026, 1, 1, 11, 59, 59, 999_900, UTC), datetime(2026, 1, 1, 12, 0, 0, 100, UTC)])

    class Clock(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Any:
            return next(readings)

    monkeypatch.setattr("firesteel_sql.kernels.times.datetime", Clock)
    assert computed("LOCALTIMESTAMP")[0] == "2026-01-01 11:59:59.999"


def test_a_pattern_of_dates_whose_quote_has_no_end_is_refused() -> None:
    with pytest.raises(SqlError, match="a quote in it has no end"):
        computed("DATE_FORMAT(TIMESTAMP '2020-01-02 03:04:05', 'yyyy''T')")
