"""Each function of expressions against plain Python: nulls, NaN, edges, empty batches, slices, constants."""

from __future__ import annotations

import datetime
import math
import operator
import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firesteel import expressions
from firesteel.common import typeinfo
from firesteel.common.time import Instant
from firesteel.common.typeinfo import ExternalTypeInfo, LocalTimeTypeInfo, TypeInformation, Types
from firesteel.common.types import Row
from firesteel.core.errors import ProgramError
from firesteel.expressions import Expression, binding, coalesce, col, concat, lit, when
from firesteel.expressions.binding import bind
from firesteel.expressions.expression import DateTimeFunctions, StringFunctions
from firesteel.expressions.functions import FUNCTIONS
from firesteel.expressions.lazy import LAZY, by_rows
from firesteel.expressions.values import column_of, field_of, values_of
from tests.examples import examples
from tests.unit.expressions.strategies import DECIMALS, EPOCH, instant, moment, same

NUMBERS = st.sampled_from([0, 1, -1, 2, 7, -128, 127, 2**31 - 1, -(2**31)]) | st.integers(-(2**31), 2**31 - 1)
FLOATS = st.floats() | st.sampled_from([0.0, -0.0, 0.5, 1.5, 2.5, math.nan, math.inf, -math.inf])
ASCII = st.text("aBc zX\t.", max_size=6)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=6) | ASCII
MOMENTS = st.datetimes(datetime.datetime(1900, 1, 1), datetime.datetime(2200, 1, 1))
UTC = datetime.UTC

LONG, INT, DOUBLE, STRING, BOOLEAN = Types.LONG(), Types.INT(), Types.DOUBLE(), Types.STRING(), Types.BOOLEAN()
STAMP, INSTANT, DATE, TIME = Types.SQL_TIMESTAMP(), Types.INSTANT(), Types.SQL_DATE(), Types.SQL_TIME()
BIG_INT, BIG_DEC, BYTES = Types.BIG_INT(), Types.BIG_DEC(), Types.PRIMITIVE_ARRAY(Types.BYTE())
LIST, MAP = Types.LIST(INT), Types.MAP(STRING, INT)
ROW, PAIR = Types.ROW_NAMED(["x", "y"], [INT, STRING]), Types.TUPLE([INT, STRING])
VALUES: dict[TypeInformation, st.SearchStrategy[Any]] = {
    LONG: NUMBERS,
    INT: NUMBERS,
    DOUBLE: FLOATS,
    STRING: TEXT,
    BOOLEAN: st.booleans(),
    STAMP: MOMENTS,
    INSTANT: MOMENTS.map(instant),
    DATE: st.dates(datetime.date(1900, 1, 1), datetime.date(2200, 1, 1)),
    TIME: st.times(),
    BIG_INT: st.integers(-(10**70), 10**70) | NUMBERS,
    BIG_DEC: DECIMALS,
    BYTES: st.binary(max_size=4),
    LIST: st.lists(st.none() | NUMBERS, max_size=3),
    MAP: st.dictionaries(st.sampled_from("abc"), st.none() | NUMBERS, max_size=3),
    ROW: st.tuples(st.none() | NUMBERS, st.none() | TEXT).map(lambda t: Row(x=t[0], y=t[1])),
    PAIR: st.tuples(st.none() | NUMBERS, st.none() | TEXT),
}


class Case(NamedTuple):
    """Attributes: the functions that it holds; types of the columns a, b, c; the expression; what it means."""

    functions: str
    types: tuple[TypeInformation, ...]
    expression: Expression
    meaning: Callable[..., Any]
    values: tuple[st.SearchStrategy[Any], ...] = ()


def strict(meaning: Callable[..., Any]) -> Callable[..., Any]:
    """A null makes the result null."""
    return lambda *values: None if any(value is None for value in values) else meaning(*values)


def total(meaning: Callable[[float], float], undefined: float = math.nan) -> Callable[..., Any]:
    """Where Python's function is not defined: NaN, or an infinity."""

    def function(value: float) -> float:
        try:
            return meaning(value)
        except OverflowError:
            return math.inf
        except ValueError:
            return value if math.isnan(value) else undefined

    return strict(function)


def python_divided(a: float, b: float) -> float:
    if b == 0:
        return math.nan if a == 0 or math.isnan(a) else math.copysign(math.inf, a) * math.copysign(1.0, b)
    return a / b


def truncated(unit: str) -> Callable[[datetime.datetime], datetime.datetime]:
    def cut(t: datetime.datetime) -> datetime.datetime:
        midnight = t.replace(hour=0, minute=0, second=0, microsecond=0)
        return {
            "second": t.replace(microsecond=0),
            "minute": t.replace(second=0, microsecond=0),
            "hour": t.replace(minute=0, second=0, microsecond=0),
            "day": midnight,
            "week": midnight - datetime.timedelta(days=t.weekday()),
            "month": midnight.replace(day=1),
            "quarter": midnight.replace(day=1, month=(t.month - 1) // 3 * 3 + 1),
            "year": midnight.replace(day=1, month=1),
        }[unit]

    return cut


PARTS: dict[str, Callable[[Any], int]] = {
    "year": lambda t: t.year,
    "month": lambda t: t.month,
    "day": lambda t: t.day,
    "hour": lambda t: t.hour,
    "minute": lambda t: t.minute,
    "second": lambda t: t.second,
    "microsecond": lambda t: t.microsecond,
    "day_of_week": lambda t: t.isoweekday(),
    "day_of_year": lambda t: t.timetuple().tm_yday,
}
OF_DATES = ("year", "month", "day", "day_of_week", "day_of_year")
UNITS = ("second", "minute", "hour", "day", "week", "month", "quarter", "year")
COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {"+": operator.add, "-": operator.sub, "*": operator.mul}
DIME = Decimal("1.10")
SMALL = st.integers(-1000, 1000)
a, b, c = col("a"), col("b"), col("c")


def kleene(left: bool | None, right: bool | None, absorbing: bool) -> bool | None:
    if left is absorbing or right is absorbing:
        return absorbing
    return None if left is None or right is None else not absorbing


def at(values: Any, position: int) -> Any:
    return values[position] if -len(values) <= position < len(values) else None


CASES = [
    *(Case(s, (LONG, LONG), f(a, b), strict(f), (SMALL, SMALL)) for s, f in ARITHMETIC.items()),
    *(Case(s, (LONG,), f(7, a), strict(lambda x, f=f: f(7, x)), (SMALL,)) for s, f in ARITHMETIC.items()),
    *(Case(s, (DOUBLE, DOUBLE), f(a, b), strict(f)) for s, f in ARITHMETIC.items()),
    Case("/", (DOUBLE, DOUBLE), a / b, strict(python_divided)),
    Case("/", (INT,), 10 / a, strict(lambda x: python_divided(10.0, float(x)))),
    Case("//", (INT,), a // 7, strict(lambda x: x // 7)),
    Case("//", (INT,), a // -7, strict(lambda x: x // -7)),
    Case("%", (INT,), a % 7, strict(lambda x: x % 7)),
    Case("%", (INT,), a % -7, strict(lambda x: x % -7)),
    Case("**", (LONG,), a**3, strict(lambda x: x**3), (SMALL,)),
    Case("**", (DOUBLE,), a**2.0, total(lambda x: x**2.0)),
    Case("negate", (LONG,), -a, strict(operator.neg)),
    Case("negate", (DOUBLE,), -a, strict(operator.neg)),
    Case("abs", (LONG,), a.abs(), strict(abs)),
    Case("abs", (DOUBLE,), abs(a), strict(abs)),
    Case("round", (DOUBLE,), a.round(), strict(lambda x: round(x, 0) if math.isfinite(x) else x), (st.sampled_from(
        [0.5, 1.5, -2.5, 2.4, -0.0, 1e300, math.nan, math.inf]),)),
    Case("round", (LONG,), a.round(2), strict(lambda x: x)),
    Case("floor", (DOUBLE,), a.floor(), strict(lambda x: float(math.floor(x)) if math.isfinite(x) else x),
         (st.floats(0.5, 1e15) | st.sampled_from([math.nan, math.inf, -math.inf, -2.5]),)),
    Case("ceil", (DOUBLE,), a.ceil(), strict(lambda x: float(math.ceil(x)) if math.isfinite(x) else x),
         (st.floats(0.5, 1e15) | st.sampled_from([math.nan, math.inf, -math.inf, -2.5]),)),
    Case("floor", (INT,), a.floor(), strict(lambda x: x)),
    Case("ceil", (INT,), a.ceil(), strict(lambda x: x)),
    Case("sqrt", (DOUBLE,), a.sqrt(), total(math.sqrt)),
    *(
        Case(s, (kind, kind), f(a, b), strict(f))
        for s, f in COMPARE.items()
        for kind in (LONG, DOUBLE, STRING, BOOLEAN, STAMP, INSTANT, DATE, TIME, BIG_INT, BIG_DEC, BYTES)
    ),
    *(Case(s, (BIG_INT, LONG), f(a, b), strict(f)) for s, f in COMPARE.items()),
    *(Case(s, (BIG_DEC, BIG_INT), f(a, b), strict(f)) for s, f in COMPARE.items()),
    *(Case(s, (BIG_DEC,), f(a, DIME), strict(lambda x, f=f: f(x, DIME))) for s, f in COMPARE.items()),
    Case("==", (INSTANT,), a == Instant(5, 0), strict(lambda x: x == Instant(5, 0))),
    Case("<", (INSTANT,), a < datetime.datetime(1980, 1, 1, tzinfo=UTC), strict(lambda x: moment(x).year < 1980)),
    Case("<", (DATE, STAMP), a < b, strict(lambda x, y: datetime.datetime.combine(x, datetime.time()) < y)),
    Case("&", (BOOLEAN, BOOLEAN), a & b, lambda x, y: kleene(x, y, False)),
    Case("|", (BOOLEAN, BOOLEAN), a | b, lambda x, y: kleene(x, y, True)),
    Case("^", (BOOLEAN, BOOLEAN), a ^ b, strict(operator.xor)),
    Case("not", (BOOLEAN,), ~a, strict(operator.not_)),
    Case("& >= <=", (INT,), a.between(-1, 7), strict(lambda x: -1 <= x <= 7)),
    *(Case("is_null not", (kind,), a.is_not_null(), lambda x: x is not None) for kind in VALUES),
    *(Case("is_null", (kind,), a.is_null(), lambda x: x is None) for kind in VALUES),
    Case("is_nan", (DOUBLE,), a.is_nan(), strict(math.isnan)),
    Case("is_nan", (INT,), a.is_nan(), strict(lambda x: False)),
    Case("is_in", (INT,), a.is_in([0, 1, 7]), strict(lambda x: x in (0, 1, 7))),
    Case("is_in", (STRING,), a.is_in(["", "a"]), strict(lambda x: x in ("", "a"))),
    *(Case("coalesce", (kind, kind), coalesce(a, b), lambda x, y: y if x is None else x) for kind in VALUES),
    Case("coalesce", (INT,), a.fill_null(5), lambda x: 5 if x is None else x),
    *(
        Case("when", (BOOLEAN, kind, kind), when(a).then(b).otherwise(c), lambda t, x, y: x if t else y)
        for kind in VALUES
    ),
    Case("when", (BOOLEAN, BOOLEAN, LIST), when(a).then(None).when(b).then(c),
         lambda s, t, x: None if s else x if t else None),
    Case("length", (STRING,), a.str.length(), strict(len)),
    Case("lower", (STRING,), a.str.lower(), strict(str.lower), (ASCII,)),
    Case("upper", (STRING,), a.str.upper(), strict(str.upper), (ASCII,)),
    Case("strip", (STRING,), a.str.strip(), strict(str.strip), (ASCII,)),
    Case("contains", (STRING,), a.str.contains("a"), strict(lambda x: "a" in x)),
    Case("starts_with", (STRING,), a.str.starts_with("a"), strict(lambda x: x.startswith("a"))),
    Case("ends_with", (STRING,), a.str.ends_with("a"), strict(lambda x: x.endswith("a"))),
    Case("matches", (STRING,), a.str.matches("^a|Z$"), strict(lambda x: x.startswith("a") or x.endswith("Z"))),
    Case("replace", (STRING,), a.str.replace("a", "ab"), strict(lambda x: x.replace("a", "ab"))),
    *(Case("slice", (STRING,), a.str.slice(i, j), strict(lambda x, i=i, j=j: x[i:j]))
      for i, j in ((0, 2), (1, None), (-2, None), (-3, -1), (2, 1), (0, 0))),
    Case("concat", (STRING, STRING), concat(a, "-", b), strict(lambda x, y: f"{x}-{y}")),
    Case("+", (STRING, STRING), a + b, strict(operator.add)),
    Case("+", (STAMP,), a + datetime.timedelta(hours=1), strict(lambda t: t + datetime.timedelta(hours=1))),
    Case("-", (INSTANT,), a - datetime.timedelta(hours=1),
         strict(lambda t: instant(moment(t) - datetime.timedelta(hours=1)))),
    *(Case("date_part", (STAMP,), getattr(a.dt, part)(), strict(f)) for part, f in PARTS.items()),
    *(Case("date_part", (INSTANT,), getattr(a.dt, part)(), strict(lambda t, f=f: f(moment(t))))
      for part, f in PARTS.items()),
    *(Case("date_part", (DATE,), getattr(a.dt, part)(), strict(PARTS[part])) for part in OF_DATES),
    *(Case("date_part", (TIME,), getattr(a.dt, part)(), strict(PARTS[part])) for part in PARTS if part not in OF_DATES),
    Case("date", (STAMP,), a.dt.date(), strict(lambda t: t.date())),
    Case("date", (INSTANT,), a.dt.date(), strict(lambda t: moment(t).date())),
    Case("epoch_millis", (STAMP,), a.dt.epoch_millis(), strict(lambda t: instant(t).to_epoch_milli())),
    Case("epoch_millis", (INSTANT,), a.dt.epoch_millis(), strict(lambda t: t.to_epoch_milli())),
    Case("epoch_millis", (DATE,), a.dt.epoch_millis(),
         strict(lambda d: (d - EPOCH.date()).days * 86_400_000)),
    *(Case("truncate", (STAMP,), a.dt.truncate(unit), strict(truncated(unit))) for unit in UNITS),
    *(Case("truncate", (INSTANT,), a.dt.truncate(unit), strict(lambda t, u=unit: instant(truncated(u)(moment(t)))))
      for unit in UNITS),
    *(Case("truncate", (DATE,), a.dt.truncate(unit),
           strict(lambda d, u=unit: truncated(u)(datetime.datetime.combine(d, datetime.time())).date()))
      for unit in UNITS[3:]),
    Case("field", (ROW,), a.field("x"), strict(lambda row: row.x)),
    Case("field", (PAIR,), a.field("f1"), strict(lambda row: row[1])),
    Case("field upper", (ROW,), a.field("y").str.upper(), strict(lambda row: strict(str.upper)(row.y)), (
        st.tuples(st.none(), st.none() | ASCII).map(lambda t: Row(x=t[0], y=t[1])),)),
    *(Case("get", (LIST,), a.get(i), strict(lambda x, i=i: at(x, i))) for i in (0, 1, -1, -3, 5)),
    Case("get", (MAP,), a.get("b"), strict(lambda x: x.get("b"))),
    Case("size", (LIST,), a.size(), strict(len)),
    Case("size", (MAP,), a.size(), strict(len)),
    Case("cast", (LONG,), a.cast(STRING), strict(str)),
    Case("cast", (LONG,), a.cast(DOUBLE), strict(float)),
    Case("cast", (LONG,), a.cast(BIG_DEC), strict(Decimal)),
    Case("cast", (LONG,), a.cast(BIG_INT), strict(int)),
    Case("cast", (LONG,), a.cast(BOOLEAN), strict(bool)),
    Case("cast", (BOOLEAN,), a.cast(INT), strict(int)),
    Case("cast", (BOOLEAN,), a.cast(STRING), strict(lambda x: "true" if x else "false")),
    Case("cast", (DOUBLE,), a.cast(LONG), strict(int), (st.floats(-1e15, 1e15),)),
    Case("cast", (BIG_INT,), a.cast(LONG), strict(int), (NUMBERS,)),
    Case("cast", (BIG_INT,), a.cast(STRING), strict(str)),
    Case("cast", (BIG_INT,), a.cast(BIG_DEC), strict(Decimal)),
    Case("cast", (BIG_DEC,), a.cast(STRING), strict(str)),
    Case("cast", (BIG_DEC,), a.cast(DOUBLE), strict(float)),
    Case("cast", (BIG_INT,), a.cast(DOUBLE), strict(float)),
    Case("cast", (STRING,), a.cast(BIG_DEC), strict(Decimal), (DECIMALS.map(str),)),
    Case("cast", (STRING,), a.cast(BIG_INT), strict(int), (NUMBERS.map(str),)),
    Case("cast", (STRING,), a.cast(LONG), strict(int), (NUMBERS.map(str),)),
    Case("cast", (STAMP,), a.cast(DATE), strict(lambda t: t.date())),
    Case("cast", (STAMP,), a.cast(INSTANT), strict(instant)),
    Case("cast", (INSTANT,), a.cast(STAMP), strict(moment)),
    Case("cast", (INSTANT,), a.cast(DATE), strict(lambda t: moment(t).date())),
    Case("cast", (DATE,), a.cast(STAMP), strict(lambda d: datetime.datetime.combine(d, datetime.time()))),
    Case("cast", (DATE,), a.cast(STRING), strict(str)),
]  # fmt: skip
NEAR = {"exp": math.exp, "ln": lambda x: -math.inf if x == 0 else math.log(x)}
"""Functions whose last bit may differ from that of Python's."""


def computed(case: Case, rows: Sequence[tuple[Any, ...]], *, offset: int = 0) -> list[Any]:
    names = "abc"[: len(case.types)]
    types = dict(zip(names, case.types, strict=True))
    bound = bind(case.expression, types)
    columns = {}
    for position, (name, type_info) in enumerate(types.items()):
        values = [row[position] for row in rows]
        columns[name] = column_of([*values[:1] * offset, *values], name, type_info).slice(offset if rows else 0)
    result = bound.evaluate(columns, len(rows))
    assert isinstance(result, pa.Array)
    assert result.type == bound.data_type
    assert len(result) == len(rows)
    return values_of(result, field_of("result", bound.type_info))


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.expression}-{'-'.join(map(str, case.types))}")
@settings(max_examples=examples(15))
@given(data=st.data())
def test_the_meaning_of_each_function(case: Case, data: st.DataObject) -> None:
    given_values = case.values or tuple(VALUES[type_info] for type_info in case.types)
    rows = data.draw(st.lists(st.tuples(*[st.none() | values for values in given_values]), max_size=5))
    expected = [case.meaning(*row) for row in rows]
    results = computed(case, rows, offset=data.draw(st.integers(0, 3)))
    assert same(results, expected), (results, expected)
    assert computed(case, []) == []


@pytest.mark.parametrize(
    "case", [case for case in CASES if {*case.functions.split()} & {*LAZY}], ids=lambda case: str(case.expression)[:80]
)
@settings(max_examples=examples(15))
@given(data=st.data())
def test_the_meaning_by_the_rows_where_a_part_counts(case: Case, data: st.DataObject) -> None:
    given_values = case.values or tuple(VALUES[type_info] for type_info in case.types)
    rows = data.draw(st.lists(st.tuples(*[st.none() | values for values in given_values]), max_size=5))
    with patch.object(
        binding, "guarded", lambda name, parts, _, compute: lambda columns: by_rows(name, parts, columns, compute)
    ):
        results = computed(case, rows, offset=data.draw(st.integers(0, 3)))
        assert computed(case, []) == []
    assert same(results, [case.meaning(*row) for row in rows])


def tree(expression: Expression) -> Any:
    return expression.function, expression.options, [tree(part) for part in expression.inputs]


@pytest.mark.parametrize(
    "expression",
    [
        *(case.expression for case in CASES),
        (-a) ** 2, -(a**2), (-a).abs(), -a.abs(), (~a).is_null(), 2**a, lit("%d") % a, lit(1) + lit(2), lit(-3).abs(),
        1 - a, a - (b - c), a == None, a.is_in([None, "x", 1.5]), lit(True) & a,  # noqa: E711
        a == math.inf, a.fill_null(-math.inf), a + lit("it's"), a == b"\0", a == Decimal("1.10"),
        a < datetime.datetime(1980, 1, 1, tzinfo=UTC), a - datetime.timedelta(days=1), a == Instant(5, 1),
        concat("x", a, None), coalesce(a, b, 0), a.alias("other name"),
        a.field("x").get("k").get(-1), a.cast(LIST), a.cast(MAP), a.cast(ROW), a.cast(PAIR), a.cast(BYTES),
        a.cast(STAMP),
        a.cast(LocalTimeTypeInfo(LocalTimeTypeInfo.TimeType.LOCAL_DATE)), a.cast(Types.OBJECT_ARRAY(LIST)),
        a.cast(Types.BASIC_ARRAY(INT)), a.cast(ExternalTypeInfo(DATE)), a.cast(Types.PICKLED_BYTE_ARRAY()),
    ],
    ids=str,
)  # fmt: skip
def test_the_text_of_an_expression_is_the_program_that_makes_it(expression: Expression) -> None:
    names = {**vars(expressions), **vars(typeinfo), "datetime": datetime, "Decimal": Decimal, "Instant": Instant}
    assert tree(eval(repr(expression), names)) == tree(expression)


@pytest.mark.parametrize("name", NEAR)
@given(values=st.lists(st.none() | st.floats(-700, 700), max_size=5))
def test_real_functions(name: str, values: list[float | None]) -> None:
    case = Case(name, (DOUBLE,), getattr(a, name)(), total(NEAR[name]))
    for result, value in zip(computed(case, [(value,) for value in values]), values, strict=True):
        expected = case.meaning(value)
        assert result == pytest.approx(expected, rel=1e-15, nan_ok=True) if expected is not None else result is None


def test_every_function_has_a_meaning() -> None:
    functions = {name for case in CASES for name in case.functions.split()} | set(NEAR)
    assert functions == set(FUNCTIONS)


def test_every_method_makes_a_function_that_is_held() -> None:
    parts = {name for name in vars(DateTimeFunctions) if not name.startswith("_")}
    assert parts == {*PARTS, "date", "truncate", "epoch_millis"}
    assert {name for name in vars(StringFunctions) if not name.startswith("_")} <= set(FUNCTIONS)


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        (a.field("z"), "there is no field 'z'; there are 'x', 'y'"),
        (a.field("xx"), "did you mean 'x'"),
        (b.field("x"), r"field takes rows and tuples, not ListTypeInfo<Integer>"),
        (col("n").field("x"), "field takes rows and tuples, not Integer"),
        (lit(1).get(0), "get takes rows, lists or maps, not Long"),
        (b.get("x"), "the position in a list is an int, not 'x'"),
        (c.get(1), "the key does not fit"),
        (col("n").size(), "size takes lists and maps, not Integer"),
        (a == a, "has parts, which can't be compared at once"),
        (b.is_in([1]), "go together|does not take"),
        (col("d") + 1, r"\+ takes numbers, not BigDecimal; cast it to DOUBLE"),
        (col("d") == 1.5, "do not go together"),
        (col("d").is_in([1]), "compare with =="),
        (col("n").cast(LIST), "Integer can't become ListTypeInfo<Integer>"),
        (lit(Decimal("NaN")) == 1, "no finite number"),
        (when(col("n") > 1).then(a).otherwise(col("t")), "do not go together"),
        (lit(Instant(0, 1)) == col("i"), "finer than microseconds"),
    ],
)
def test_parts_and_types_that_do_not_fit(expression: Expression, message: str) -> None:
    columns = {
        "a": ROW, "b": LIST, "c": MAP, "n": INT, "d": BIG_DEC, "t": Types.TUPLE([INT, STRING]), "i": INSTANT,
    }  # fmt: skip
    with pytest.raises(ProgramError, match=message):
        bind(expression, columns)


def test_the_page_names_every_method() -> None:
    page = (Path(__file__).parents[3] / "docs" / "columns.md").read_text()
    named = set(re.findall(r"[a-z_]+", page.split("## Expressions", 1)[1].split("\n## ", 1)[0]))
    accessors = {"str", "dt"}
    about = {"columns", "walk", "output_name", "function", "inputs", "options", "to_timestamp_assigner"}
    methods = {
        name
        for owner in (Expression, StringFunctions, DateTimeFunctions)
        for name in vars(owner)
        if not name.startswith("_")
    }
    assert methods - accessors - about - named == set()
