"""GROUP BY over rows that come and go: after each batch the changes add up to what a fresh computation gives."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from decimal import ROUND_HALF_UP, Decimal
from statistics import median, pstdev, variance
from typing import Any

import pyarrow as pa
import pytest

from firesteel.common.typeinfo import DecimalTypeInfo, RowTypeInfo, Types
from firesteel.core.errors import ProgramError
from firesteel.table.types import DataTypes
from firesteel_sql.operators.accumulators import _rescaled
from firesteel_sql.operators.plans import AggregatePlan
from firesteel_sql.plan.stateful_relations import AggregateCall, SortKey
from tests.unit.sql.operators.changelog_rig import Change, ChangelogRig

INPUT = Types.ROW_NAMED(
    ["key", "whole", "real", "exact", "text", "chosen"],
    [Types.STRING(), Types.INT(), Types.DOUBLE(), DecimalTypeInfo(20, 2), Types.STRING(), Types.BOOLEAN()],
)
KEY, WHOLE, REAL, EXACT, TEXT, CHOSEN = range(6)
Values = Sequence[Any]


def _call(function: str, *arguments: int, **more: Any) -> AggregateCall:
    return AggregateCall(function, arguments, DataTypes.BIGINT(), **more)


def _or_null(function: Callable[[Values], Any]) -> Callable[[Values], Any]:
    return lambda values: function(values) if values else None


def _exact_mean(values: Values) -> Decimal:
    return (sum(values, Decimal(0)) / len(values)).quantize(Decimal("0.000001"), ROUND_HALF_UP)


def _whole_mean(values: Values) -> int:
    mean = abs(sum(values)) // len(values)
    return mean if sum(values) > 0 else -mean


LISTED: dict[str, tuple[AggregateCall, Any, Callable[[Values], Any]]] = {
    "rows": (_call("COUNT"), Types.LONG(), len),
    "count": (_call("COUNT", WHOLE), Types.LONG(), len),
    "sum": (_call("SUM", WHOLE), Types.INT(), _or_null(sum)),
    "sum0": (_call("$SUM0", WHOLE), Types.INT(), sum),
    "mean": (_call("AVG", WHOLE), Types.INT(), _or_null(_whole_mean)),
    "exact_sum": (_call("SUM", EXACT), DecimalTypeInfo(38, 2), _or_null(sum)),
    "exact_mean": (_call("AVG", EXACT), DecimalTypeInfo(38, 6), _or_null(_exact_mean)),
    "real_sum": (_call("SUM", REAL), Types.DOUBLE(), _or_null(sum)),
    "least": (_call("MIN", WHOLE), Types.INT(), _or_null(min)),
    "greatest": (_call("MAX", EXACT), DecimalTypeInfo(20, 2), _or_null(max)),
    "last_text": (_call("MAX", TEXT), Types.STRING(), _or_null(max)),
    "distinct": (_call("COUNT", TEXT, distinct=True), Types.LONG(), lambda values: len(set(values))),
    "distinct_sum": (
        _call("SUM", WHOLE, distinct=True),
        Types.INT(),
        _or_null(lambda values: sum(set(values))),
    ),
    "distinct_mean": (
        _call("AVG", WHOLE, distinct=True),
        Types.INT(),
        _or_null(lambda values: _whole_mean(list(set(values)))),
    ),
    "chosen": (_call("COUNT", filter=CHOSEN), Types.LONG(), len),
    "chosen_distinct": (
        _call("COUNT", TEXT, distinct=True, filter=CHOSEN),
        Types.LONG(),
        lambda values: len(set(values)),
    ),
    "sorted": (
        _call("LISTAGG", TEXT, order=(SortKey(TEXT, ascending=False),), constants=("-",)),
        Types.STRING(),
        _or_null(lambda values: "-".join(sorted(values, reverse=True))),
    ),
    "middle": (_call("PERCENTILE", REAL, constants=(0.5,)), Types.DOUBLE(), _or_null(median)),
    "bag": (
        _call("COLLECT", TEXT),
        Types.MAP(Types.STRING(), Types.INT()),
        _or_null(lambda values: frozenset(Counter(values).items())),
    ),
}


def _expected(rows: Counter[tuple[Any, ...]], names: Sequence[str]) -> Counter[tuple[Any, ...]]:
    groups: dict[Any, list[tuple[Any, ...]]] = {}
    for row in rows.elements():
        groups.setdefault(row[KEY], []).append(row)
    results: Counter[tuple[Any, ...]] = Counter()
    for key, members in groups.items():
        values = []
        for name in names:
            call, _, compute = LISTED[name]
            counted = [row for row in members if call.filter is None or row[call.filter]]
            arguments = [row[call.arguments[0]] if call.arguments else 1 for row in counted]
            values.append(compute([value for value in arguments if value is not None]))
        results[key, *values] += 1
    return results


def _rig(names: Sequence[str], parallelism: int = 1, **plan: Any) -> ChangelogRig:
    output = RowTypeInfo([Types.STRING(), *(LISTED[name][1] for name in names)], ["key", *names])
    parameters = AggregatePlan(tuple(LISTED[name][0] for name in names), **{"insert_only": False} | plan)
    return ChangelogRig(
        "firesteel_sql.operators.aggregates:GroupAggregate", parameters, [INPUT], [(KEY,)], output, parallelism
    )


def _row(random_numbers: random.Random) -> tuple[Any, ...]:
    pick = random_numbers.choice
    return (
        pick(("a", "b", "c", None)),
        pick((None, 0, 1, -2, 7, 1000)),
        pick((None, 0.5, -1.25, 1024.0)),
        pick((None, Decimal("0.01"), Decimal("-12.50"), Decimal("99999999999999999.99"))),
        pick((None, "", "tea", "wine", "été", "x" * 40)),
        pick((None, True, False)),
    )


def _changes(random_numbers: random.Random, rows: Counter[tuple[Any, ...]], size: int) -> list[Change]:
    """Changes that fit the rows, which are changed with them."""
    changes: list[Change] = []
    for _ in range(size):
        if rows and random_numbers.random() < 0.45:
            row = random_numbers.choice(sorted(rows, key=repr))
            rows[row] -= 1
            if not rows[row]:
                del rows[row]
            changes.append((-1, row))
        else:
            row = _row(random_numbers)
            rows[row] += 1
            changes.append((1, row))
    return changes


@pytest.mark.parametrize("seed", range(6))
def test_changes_add_up_to_a_fresh_computation_after_each_batch_and_restart(seed: int) -> None:
    random_numbers = random.Random(seed)
    rows: Counter[tuple[Any, ...]] = Counter()
    names = list(LISTED)
    rig = _rig(names, parallelism=1 + seed % 3)
    for step in range(25):
        table = rig.change(_changes(random_numbers, rows, random_numbers.choice((1, 3, 20))))
        assert table == _expected(rows, names), f"after batch {step}"
        if step % 8 == 5:
            rig.restart(random_numbers.choice((1, 2, 4)))


@pytest.mark.parametrize("seed", range(3))
def test_functions_of_rows_that_never_go_need_no_rows(seed: int) -> None:
    random_numbers = random.Random(seed)
    rows: Counter[tuple[Any, ...]] = Counter()
    names = ["least", "greatest", "last_text", "real_sum", "distinct"]
    rig = _rig(names, insert_only=True)
    for _ in range(10):
        batch = [_row(random_numbers) for _ in range(7)]
        rows.update(batch)
        assert rig.change([(1, row) for row in batch]) == _expected(rows, names)
        rig.restart(2)


def test_an_update_is_a_row_that_goes_next_to_one_that_comes() -> None:
    rig = _rig(["rows"])
    rig.change([(1, ("a", 1, None, None, None, None)), (1, ("b", 1, None, None, None, None))])
    assert rig.changes == [(0, ("a", 1)), (0, ("b", 1))]
    rig.change([(1, ("a", 1, None, None, None, None)), (-1, ("b", 1, None, None, None, None))])
    assert rig.changes == [(1, ("a", 1)), (2, ("a", 2)), (3, ("b", 1))]


def test_a_result_that_stays_as_it_is_gives_nothing() -> None:
    rig = _rig(["greatest", "count"])
    rig.change([(1, ("a", None, None, Decimal(5), None, None))])
    rig.change([(1, ("a", None, None, Decimal(3), None, None))])
    assert rig.changes == []


def test_a_row_that_goes_and_never_came_is_an_error_with_operator_and_key() -> None:
    rig = _rig(["rows"])
    with pytest.raises(ProgramError, match=r"computed: a row of the group \('a'\) goes that never came"):
        rig.change([(-1, ("a", 1, None, None, None, None))])


def test_numbers_that_are_not_finite_leave_no_trace_once_they_are_gone() -> None:
    rig = _rig(["real_sum"])
    for value in (float("nan"), float("inf"), float("-inf")):
        rig.change([(1, ("a", None, value, None, None, None)), (1, ("a", None, 2.5, None, None, None))])
        rig.change([(-1, ("a", None, value, None, None, None))])
        assert rig.table == {("a", 2.5): 1}
        rig.change([(-1, ("a", None, 2.5, None, None, None))])
        assert not rig.table


def test_a_sum_with_more_than_38_digits_is_null() -> None:
    exact = Types.ROW_NAMED(["key", "exact"], [Types.STRING(), DecimalTypeInfo(38, 0)])
    output = Types.ROW_NAMED(["key", "sum"], [Types.STRING(), DecimalTypeInfo(38, 0)])
    plan = AggregatePlan((_call("SUM", 1),), insert_only=False)
    rig = ChangelogRig("firesteel_sql.operators.aggregates:GroupAggregate", plan, [exact], [(0,)], output)
    largest, least = Decimal("9" * 38), Decimal("-" + "9" * 38)
    rig.change([(1, ("a", largest)), (1, ("b", least))])
    assert rig.table == {("a", largest): 1, ("b", least): 1}
    rig.change([(1, ("a", Decimal(1))), (1, ("b", least)), (1, ("b", least))])
    assert rig.table == {("a", None): 1, ("b", None): 1}
    rig.change([(-1, ("a", largest)), (-1, ("b", least)), (-1, ("b", least))])
    assert rig.table == {("a", Decimal(1)): 1, ("b", least): 1}


def test_deviations_of_large_numbers_keep_their_digits_when_rows_go() -> None:
    output = Types.ROW_NAMED(["key", "one", "other"], [Types.STRING(), Types.DOUBLE(), Types.DOUBLE()])
    plan = AggregatePlan((_call("STDDEV_POP", REAL), _call("VAR_SAMP", REAL)), insert_only=False)
    rig = ChangelogRig("firesteel_sql.operators.aggregates:GroupAggregate", plan, [INPUT], [(KEY,)], output)
    numbers = [1e9 + value for value in (4.0, 7.0, 13.0, 16.0)]
    rig.change([(1, ("a", None, number, None, None, None)) for number in [*numbers, 1e9 + 5]])
    rig.change([(-1, ("a", None, 1e9 + 5, None, None, None))])
    ((_, deviation, sample),) = rig.table
    assert deviation == pytest.approx(pstdev(numbers), rel=1e-3)
    assert sample == pytest.approx(variance(numbers), rel=1e-3)
    rig.change([(-1, ("a", None, number, None, None, None)) for number in numbers[1:]])
    assert rig.table == {("a", 0.0, None): 1}


def test_a_query_as_a_value_has_one_row() -> None:
    output = RowTypeInfo([Types.STRING(), Types.INT()], ["key", "value"])
    plan = AggregatePlan((_call("SINGLE_VALUE", WHOLE),), insert_only=False)
    rig = ChangelogRig("firesteel_sql.operators.aggregates:GroupAggregate", plan, [INPUT], [(KEY,)], output, 1)
    first, second = [("a", value, None, None, None, None) for value in (1, None)]
    assert rig.change([(1, first)]) == Counter({("a", 1): 1})
    assert rig.change([(-1, first), (1, second)]) == Counter({("a", None): 1})
    with pytest.raises(ProgramError, match="a query as a value has 2 rows"):
        rig.change([(1, first)])


def test_the_largest_decimal_number_fits_its_type() -> None:
    largest = Decimal("9" * 32 + ".999999")
    numbers = [largest, largest.copy_negate(), Decimal(10) ** 32, None]
    assert _rescaled(numbers, pa.decimal128(38, 6)).to_pylist() == [*numbers[:2], None, None]
