"""Every expression against what it means in plain Python, with nulls, NaN and overflow."""

from __future__ import annotations

import datetime
import math
import operator
import pickle
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from firesteel import expressions
from firesteel.common.typeinfo import TypeInformation, Types
from firesteel.core.errors import ProgramError
from firesteel.expressions import Expression, coalesce, col, concat, lit, when
from firesteel.expressions.binding import bind, bind_condition
from firesteel.expressions.values import column_of

INTEGERS = {Types.BYTE(): 8, Types.SHORT(): 16, Types.INT(): 32, Types.LONG(): 64}


def ints(bits: int) -> st.SearchStrategy[int | None]:
    half = 1 << (bits - 1)
    edges = st.sampled_from([-half, -half + 1, -1, 0, 1, half - 2, half - 1])
    return st.one_of(st.none(), edges, st.integers(-half, half - 1))


FLOATS = st.one_of(st.none(), st.floats(), st.sampled_from([0.0, -0.0, 1.5, math.nan, math.inf, -math.inf]))
TEXTS = st.one_of(st.none(), st.text(st.characters(exclude_categories=["Cs"]), max_size=6))
BOOLEANS = st.sampled_from([None, True, False])
MOMENTS = st.one_of(st.none(), st.datetimes(datetime.datetime(1900, 1, 1), datetime.datetime(2100, 1, 1)))


def evaluate(
    expression: Expression, columns: Mapping[str, tuple[TypeInformation, Sequence[Any]]], *, wrap: bool = False
) -> list[Any]:
    bound = bind(expression, {name: type_info for name, (type_info, _) in columns.items()}, wrap=wrap)
    arrays = {name: column_of(values, name, type_info) for name, (type_info, values) in columns.items()}
    count = len(next(iter(columns.values()))[1])
    result = bound.evaluate(arrays, count)
    assert isinstance(result, pa.Array)
    assert result.type == bound.data_type
    return result.to_pylist()  # type: ignore[no-any-return]


def same(results: Sequence[Any], expected: Sequence[Any]) -> None:
    assert len(results) == len(expected)
    for result, other in zip(results, expected, strict=True):
        if isinstance(result, float) and isinstance(other, float) and math.isnan(other):
            assert math.isnan(result)
        else:
            assert result == other
            assert type(result) is type(other)


def lifted(function: Callable[..., Any]) -> Callable[..., Any]:
    """A null makes the result null."""
    return lambda *values: None if any(value is None for value in values) else function(*values)


class Overflow(Exception):
    pass


def in_range(value: int, bits: int, wrap: bool) -> int:
    half = 1 << (bits - 1)
    if not wrap and not -half <= value < half:
        raise Overflow
    return (value + half) % (1 << bits) - half


ARITHMETIC = {"+": operator.add, "-": operator.sub, "*": operator.mul, "//": operator.floordiv, "%": operator.mod}


@pytest.mark.parametrize("symbol", ARITHMETIC)
@given(data=st.data())
def test_arithmetic_of_whole_numbers(symbol: str, data: st.DataObject) -> None:
    left_type, right_type = data.draw(st.sampled_from(list(INTEGERS))), data.draw(st.sampled_from(list(INTEGERS)))
    bits, wrap = max(INTEGERS[left_type], INTEGERS[right_type]), data.draw(st.booleans())
    rows = data.draw(st.lists(st.tuples(ints(INTEGERS[left_type]), ints(INTEGERS[right_type])), min_size=1, max_size=6))
    function = ARITHMETIC[symbol]
    columns = {"a": (left_type, [a for a, _ in rows]), "b": (right_type, [b for _, b in rows])}
    expression = function(col("a"), col("b"))
    try:
        expected = [lifted(lambda a, b: in_range(function(a, b), bits, wrap))(a, b) for a, b in rows]
    except (Overflow, ZeroDivisionError):
        with pytest.raises(ProgramError, match=r"can't be computed for a = "):
            evaluate(expression, columns, wrap=wrap)
        return
    same(evaluate(expression, columns, wrap=wrap), expected)


def ieee(symbol: str, a: float, b: float) -> float:
    import numpy as np

    kernels = {"+": np.add, "-": np.subtract, "*": np.multiply, "//": np.floor_divide, "%": np.remainder}
    with np.errstate(all="ignore"):
        return float({**kernels, "/": np.divide}[symbol](np.float64(a), np.float64(b)))


@pytest.mark.parametrize("symbol", [*ARITHMETIC, "/"])
@given(rows=st.lists(st.tuples(FLOATS, FLOATS), min_size=1, max_size=6))
def test_arithmetic_of_doubles_is_ieee_754(symbol: str, rows: list[tuple[float | None, float | None]]) -> None:
    function = {**ARITHMETIC, "/": operator.truediv}[symbol]
    columns = {"a": (Types.DOUBLE(), [a for a, _ in rows]), "b": (Types.DOUBLE(), [b for _, b in rows])}
    expected = [lifted(lambda a, b: ieee(symbol, a, b))(a, b) for a, b in rows]
    same(evaluate(function(col("a"), col("b")), columns), expected)


@given(values=st.lists(ints(64), min_size=1, max_size=5), divisor=st.integers(1, 1 << 40))
def test_true_division_gives_doubles(values: list[int | None], divisor: int) -> None:
    quotients = evaluate(col("a") / divisor, {"a": (Types.LONG(), values)})
    same(quotients, [lifted(lambda a: float(a) / divisor)(a) for a in values])


COMPARISONS = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip


@pytest.mark.parametrize("symbol", COMPARISONS)
@pytest.mark.parametrize(
    ("type_info", "values"),
    [
        (Types.LONG(), ints(64)),
        (Types.DOUBLE(), FLOATS),
        (Types.STRING(), TEXTS),
        (Types.BOOLEAN(), BOOLEANS),
        (Types.SQL_TIMESTAMP(), MOMENTS),
    ],
    ids=["long", "double", "text", "boolean", "timestamp"],
)
@given(data=st.data())
def test_comparisons(
    symbol: str, type_info: TypeInformation, values: st.SearchStrategy[Any], data: st.DataObject
) -> None:
    rows = data.draw(st.lists(st.tuples(values, values), min_size=1, max_size=6))
    function = COMPARISONS[symbol]
    columns = {"a": (type_info, [a for a, _ in rows]), "b": (type_info, [b for _, b in rows])}
    same(evaluate(function(col("a"), col("b")), columns), [lifted(function)(a, b) for a, b in rows])


def kleene_and(a: bool | None, b: bool | None) -> bool | None:
    if a is False or b is False:
        return False
    return None if a is None or b is None else True


@given(rows=st.lists(st.tuples(BOOLEANS, BOOLEANS), min_size=1, max_size=9))
def test_logic_knows_three_values(rows: list[tuple[bool | None, bool | None]]) -> None:
    columns = {"a": (Types.BOOLEAN(), [a for a, _ in rows]), "b": (Types.BOOLEAN(), [b for _, b in rows])}
    negated = lifted(operator.not_)
    same(evaluate(col("a") & col("b"), columns), [kleene_and(a, b) for a, b in rows])
    same(evaluate(col("a") | col("b"), columns), [negated(kleene_and(negated(a), negated(b))) for a, b in rows])
    same(evaluate(col("a") ^ col("b"), columns), [lifted(operator.xor)(a, b) for a, b in rows])
    same(evaluate(~col("a"), columns), [negated(a) for a, _ in rows])


@given(rows=st.lists(st.tuples(BOOLEANS, ints(32), ints(64)), min_size=1, max_size=6))
def test_choices_and_nulls(rows: list[tuple[bool | None, int | None, int | None]]) -> None:
    columns: dict[str, tuple[TypeInformation, Sequence[Any]]] = {
        "t": (Types.BOOLEAN(), [row[0] for row in rows]),
        "a": (Types.INT(), [row[1] for row in rows]),
        "b": (Types.LONG(), [row[2] for row in rows]),
    }
    same(evaluate(when(col("t")).then(col("a")).otherwise(col("b")), columns), [a if t else b for t, a, b in rows])
    same(evaluate(when(col("t")).then("yes"), columns), ["yes" if t else None for t, _, _ in rows])
    several = when(col("a") > 0).then(1).when(col("t")).then(2).otherwise(3)
    same(evaluate(several, columns), [1 if a is not None and a > 0 else 2 if t else 3 for t, a, _ in rows])
    same(evaluate(coalesce(col("a"), col("b")), columns), [b if a is None else a for _, a, b in rows])
    same(evaluate(col("a").fill_null(7), columns), [7 if a is None else a for _, a, _ in rows])
    same(evaluate(col("a").is_null(), columns), [a is None for _, a, _ in rows])
    same(evaluate(col("a").is_not_null(), columns), [a is not None for _, a, _ in rows])
    same(evaluate(col("a").is_in([0, 1, -5]), columns), [lifted(lambda a: a in (0, 1, -5))(a) for _, a, _ in rows])
    same(evaluate(col("a").between(-2, 2), columns), [lifted(lambda a: -2 <= a <= 2)(a) for _, a, _ in rows])


@given(
    values=st.lists(TEXTS, min_size=1, max_size=6), part=st.text("ab.", min_size=1, max_size=2), n=st.integers(-4, 4)
)
def test_text(values: list[str | None], part: str, n: int) -> None:
    columns = {"s": (Types.STRING(), values)}
    text = col("s").str
    cases: list[tuple[Expression, Callable[[str], Any]]] = [
        (text.length(), len),
        (text.contains(part), lambda s: part in s),
        (text.starts_with(part), lambda s: s.startswith(part)),
        (text.ends_with(part), lambda s: s.endswith(part)),
        (text.replace(part, "<>"), lambda s: s.replace(part, "<>")),
        (text.slice(n), lambda s: s[n:]),
        (text.slice(0, n), lambda s: s[0:n]),
        (col("s") + "!", lambda s: s + "!"),
        (concat("<", col("s"), col("s")), lambda s: "<" + s + s),
    ]
    for expression, meaning in cases:
        same(evaluate(expression, columns), [lifted(meaning)(value) for value in values])


@given(values=st.lists(st.one_of(st.none(), st.text("aBcDxYz \t", max_size=6)), min_size=1, max_size=6))
def test_case_and_white_space(values: list[str | None]) -> None:
    columns = {"s": (Types.STRING(), values)}
    same(evaluate(col("s").str.upper(), columns), [lifted(str.upper)(v) for v in values])
    same(evaluate(col("s").str.lower(), columns), [lifted(str.lower)(v) for v in values])
    same(evaluate(col("s").str.strip(), columns), [lifted(str.strip)(v) for v in values])


EPOCH = datetime.datetime(1970, 1, 1)


@given(values=st.lists(MOMENTS, min_size=1, max_size=5))
def test_moments(values: list[datetime.datetime | None]) -> None:
    columns = {"at": (Types.SQL_TIMESTAMP(), values)}
    at = col("at").dt
    cases: list[tuple[Expression, Callable[[datetime.datetime], Any]]] = [
        (at.year(), lambda t: t.year),
        (at.month(), lambda t: t.month),
        (at.day(), lambda t: t.day),
        (at.hour(), lambda t: t.hour),
        (at.minute(), lambda t: t.minute),
        (at.second(), lambda t: t.second),
        (at.microsecond(), lambda t: t.microsecond),
        (at.day_of_week(), lambda t: t.isoweekday()),
        (at.day_of_year(), lambda t: t.timetuple().tm_yday),
        (at.date(), lambda t: t.date()),
        (at.truncate("hour"), lambda t: t.replace(minute=0, second=0, microsecond=0)),
        (at.truncate("month"), lambda t: t.replace(day=1, hour=0, minute=0, second=0, microsecond=0)),
        (at.epoch_millis(), lambda t: (t - EPOCH) // datetime.timedelta(milliseconds=1)),
        (col("at") + datetime.timedelta(seconds=90), lambda t: t + datetime.timedelta(seconds=90)),
        (col("at").cast(Types.SQL_DATE()), lambda t: t.date()),
    ]
    for expression, meaning in cases:
        same(evaluate(expression, columns), [lifted(meaning)(value) for value in values])


@given(values=st.lists(ints(64), min_size=1, max_size=5), wrap=st.booleans())
def test_casts_of_whole_numbers(values: list[int | None], wrap: bool) -> None:
    columns = {"a": (Types.LONG(), values)}
    same(evaluate(col("a").cast(Types.STRING()), columns), [lifted(str)(v) for v in values])
    same(evaluate(col("a").cast(Types.DOUBLE()), columns), [lifted(float)(v) for v in values])
    same(evaluate(col("a").cast(Types.BOOLEAN()), columns), [lifted(bool)(v) for v in values])
    same(evaluate(col("a").cast(Types.STRING()).cast(Types.LONG()), columns), values)
    try:
        expected = [lifted(lambda v: in_range(v, 16, wrap))(v) for v in values]
    except Overflow:
        with pytest.raises(ProgramError, match="can't be computed"):
            evaluate(col("a").cast(Types.SHORT()), columns, wrap=wrap)
        return
    same(evaluate(col("a").cast(Types.SHORT()), columns, wrap=wrap), expected)


@given(values=st.lists(FLOATS, min_size=1, max_size=5))
def test_casts_of_doubles_cut_off_or_fail(values: list[float | None]) -> None:
    columns = {"a": (Types.DOUBLE(), values)}
    fine = all(v is None or (math.isfinite(v) and abs(v) < 2**63) for v in values)
    if not fine:
        with pytest.raises(ProgramError, match="can't be computed"):
            evaluate(col("a").cast(Types.LONG()), columns)
        return
    same(evaluate(col("a").cast(Types.LONG()), columns), [lifted(int)(v) for v in values])


def test_functions_of_one_number() -> None:
    columns: dict[str, tuple[TypeInformation, Sequence[Any]]] = {
        "a": (Types.DOUBLE(), [2.5, -2.5, 4.0, None]),
        "n": (Types.INT(), [3, -3, 0, None]),
    }
    same(evaluate(col("a").round(), columns), [2.0, -2.0, 4.0, None])
    same(evaluate(col("a").floor(), columns), [2.0, -3.0, 4.0, None])
    same(evaluate(col("a").ceil(), columns), [3.0, -2.0, 4.0, None])
    same(evaluate(col("a").abs(), columns), [2.5, 2.5, 4.0, None])
    same(evaluate(-col("n"), columns), [-3, 3, 0, None])
    same(evaluate(col("n") ** 2, columns), [9, 9, 0, None])
    same(evaluate(2 ** col("n"), columns), [8.0, 0.125, 1.0, None])
    same(evaluate(col("a").sqrt(), columns), [2.5**0.5, math.nan, 2.0, None])
    same(evaluate(lit(1.0).exp().ln(), columns), [1.0] * 4)
    same(evaluate(col("a").is_nan(), columns), [False, False, False, None])
    same(evaluate(1 - col("n"), columns), [-2, 4, 1, None])


def test_constants_adapt_to_columns() -> None:
    columns = {"i": Types.INT(), "b": Types.BYTE(), "f": Types.FLOAT(), "s": Types.STRING()}
    cases: list[tuple[Expression, TypeInformation]] = [
        (col("i") + 1, Types.INT()),
        (col("i") + 2**40, Types.LONG()),
        (col("b") + 300, Types.LONG()),
        (col("i") * 0.5, Types.DOUBLE()),
        (col("f") * 0.5, Types.FLOAT()),
        (col("b") + col("i"), Types.INT()),
        (col("i") / 2, Types.DOUBLE()),
        (col("i") // 2, Types.INT()),
        (col("s").str.length() + 1, Types.INT()),
        (lit(1) + 1, Types.LONG()),
        (when(col("i") > 0).then(1).otherwise(2.5), Types.DOUBLE()),
        (coalesce(None, col("s")), Types.STRING()),
    ]
    for expression, expected in cases:
        assert bind(expression, columns).type_info == expected, expression


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        (col("pricee") > 1, "the stream has no column 'pricee'; did you mean 'price'?"),
        (col("zzz"), "there are 'price', 'name', 'at', 'any'"),
        (col("name") + 1, r"\(col\('name'\) \+ 1\): \+ takes numbers, not String"),
        (col("name") > 1, "String and Long do not go together"),
        (col("price") & col("name"), "& takes Booleans, not Double"),
        (col("price").str.upper(), "upper takes text, not Double"),
        (col("name").dt.hour(), r"dt.hour\(\) takes a time or a timestamp, not String"),
        (col("at") - col("at"), "epoch_millis"),
        (col("at").cast(Types.LONG()), "epoch_millis"),
        (col("any") == 1, "column 'any' is PickledByteArrayTypeInfo, whose values no expression can use"),
        (col("name").str.matches("("), "no regular expression"),
        (col("price").is_in([None]), r"is_in\(\) takes no None"),
        (col("price").cast(Types.LIST(Types.INT())), "Double can't become ListTypeInfo"),
        (col("price").alias("a") + 1, "alias"),
        (lit(2**70), "beyond LONG"),
    ],
)
def test_what_does_not_fit_is_refused_when_the_graph_is_built(expression: Expression, message: str) -> None:
    columns = {
        "price": Types.DOUBLE(), "name": Types.STRING(), "at": Types.SQL_TIMESTAMP(), "any": Types.PICKLED_BYTE_ARRAY(),
    }  # fmt: skip
    with pytest.raises(ProgramError, match=message):
        bind(expression, columns)


def test_conditions_are_booleans() -> None:
    with pytest.raises(ProgramError, match="a condition has to be Boolean"):
        bind_condition(col("a") + 1, {"a": Types.INT()})
    assert bind_condition(col("a") > 1, {"a": Types.INT()}).columns == {"a"}


def test_the_row_that_fails_is_shown() -> None:
    values = [*range(900), 2**31 - 1, *range(100)]
    with pytest.raises(ProgramError, match=r"\(col\('n'\) \+ 1\) can't be computed for n = 2147483647: overflow"):
        evaluate(col("n") + 1, {"n": (Types.INT(), values)})


def test_empty_batches() -> None:
    columns: dict[str, tuple[TypeInformation, Sequence[Any]]] = {"n": (Types.INT(), []), "s": (Types.STRING(), [])}
    for expression in (col("n") // 0 + 1, col("s").str.upper(), lit(1), when(col("n") > 0).then(1), col("n") % 3):
        assert evaluate(expression, columns) == []


def test_what_can_not_be_written() -> None:
    with pytest.raises(TypeError, match="no truth value"):
        bool(col("a") > 1)
    with pytest.raises(TypeError, match="no truth value"):
        1 < col("a") < 2  # noqa: B015
    with pytest.raises(TypeError, match="can't be a constant"):
        col("a") + object()
    with pytest.raises(TypeError, match="takes the name of a column"):
        col("")
    with pytest.raises(ValueError, match="truncate"):
        col("a").dt.truncate("fortnight")


def test_names_texts_and_pickles() -> None:
    expression = (col("a") + 1 > lit(2)) & ~col("b").str.contains("x")
    assert repr(expression) == "(((col('a') + 1) > 2) & ~col('b').str.contains('x'))"
    assert repr(when(col("a") > 1).then("x").otherwise(None)) == "when((col('a') > 1)).then('x').otherwise(None)"
    assert repr(pickle.loads(pickle.dumps(expression))) == repr(expression)
    assert col("a").output_name() == "a"
    assert (col("a") + 1).output_name() is None
    assert (col("a") + 1).alias("c").output_name() == "c"
    assert expression.columns() == {"a", "b"}


a, b = col("a"), col("b")
GUARDED = [
    (when(b != 0).then(a // b), lambda x, y: x // y if y else None),
    (when(b == 0).then(0).otherwise(a % b), lambda x, y: x % y if y else 0),
    (
        when(b == 0).then(when(a > 1).then(a).otherwise(lit(1) // lit(0))).otherwise(a // b),
        lambda x, y: x // y if y else x,
    ),
    (when(b == 0).then(-1).when(a // b > 2).then(2).otherwise(a // b), lambda x, y: -1 if not y else min(x // y, 2)),
    (
        when(b == 0).then(0).otherwise(when(a // b > 2).then(2).otherwise(a // b)),
        lambda x, y: min(x // y, 2) if y else 0,
    ),
    (coalesce(when(b == 0).then(7), a // b), lambda x, y: x // y if y else 7),
    ((b != 0) & (a // b > 2), lambda x, y: y != 0 and x // y > 2),
    ((b == 0) | (a // b > 2), lambda x, y: y == 0 or x // y > 2),
    (~((b == 0) | (a // b > 2)) & (a % b == 0), lambda x, y: not (y == 0 or x // y > 2) and x % y == 0),
    (when(b != 0).then(a // b).fill_null(0) + 1, lambda x, y: (x // y if y else 0) + 1),
    (when(lit(True)).then(a).otherwise(a // 0), lambda x, y: x),
]


@pytest.mark.parametrize(("expression", "meaning"), GUARDED, ids=[str(expression)[:80] for expression, _ in GUARDED])
def test_what_is_guarded_does_not_fail_where_it_does_not_count(expression: Expression, meaning: Any) -> None:
    rows = [(5, 0), (9, 3), (4, 2), (6, 0), (12, 5)]
    columns = {"a": pa.array([x for x, _ in rows], pa.int64()), "b": pa.array([y for _, y in rows], pa.int64())}
    bound = bind(expression, {"a": Types.LONG(), "b": Types.LONG()})
    for _ in range(2):
        assert bound.evaluate(columns, len(rows)).to_pylist() == [meaning(x, y) for x, y in rows]
    assert bound.evaluate({name: column[:0] for name, column in columns.items()}, 0).to_pylist() == []


def test_what_counts_and_fails_is_shown_with_its_row() -> None:
    bound = bind(when(b != 1).then(a // b).otherwise(0), {"a": Types.LONG(), "b": Types.LONG()})
    columns = {"a": pa.array([5, 6, 7], pa.int64()), "b": pa.array([1, 2, 0], pa.int64())}
    with pytest.raises(ProgramError, match="can't be computed for a = 7, b = 0: division by zero"):
        bound.evaluate(columns, 3)


def test_choices_of_constants() -> None:
    bound = bind(when(lit(1) == 1).then("yes").otherwise((lit(1) // 0).cast(Types.STRING())), {"a": Types.LONG()})
    assert bound.evaluate({}, 2).to_pylist() == ["yes", "yes"]
    assert bound.evaluate({"a": pa.array([1, 2, 3], pa.int64())}, 3).to_pylist() == ["yes"] * 3


@pytest.mark.parametrize("text", [
    "count()", "max_(col('price'))", "sum_((col('price') * 2)).alias('twice')", "last(col('price')).alias('p')",
    "count(col('price')).alias('count')",
])  # fmt: skip
def test_the_text_of_an_aggregate_is_the_program_that_makes_it(text: str) -> None:
    evaluated = eval(text, vars(expressions))
    assert repr(evaluated) == text
    assert evaluated.name == {"m": "max_price", "s": "twice", "l": "p"}.get(text[0], "count")
