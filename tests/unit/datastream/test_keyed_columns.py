"""Aggregates of streams that are keyed by columns: types of results, and what is refused when the graph is built."""

from __future__ import annotations

from typing import Any

import pytest

from firesteel.common import Time, Types
from firesteel.core.errors import GraphError, ProgramError
from firesteel.datastream import DataStream, KeyedStream, StreamExecutionEnvironment
from firesteel.datastream.window import TumblingProcessingTimeWindows
from firesteel.expressions import avg, col, count, first, last, max_, min_, sum_
from firesteel.functions.batch_functions import KeyedBatchFunction

BID = Types.ROW_NAMED(
    ["auction", "price", "channel", "day", "share"],
    [Types.LONG(), Types.INT(), Types.STRING(), Types.SQL_DATE(), Types.FLOAT()],
)


@pytest.fixture
def bids() -> KeyedStream:
    env = StreamExecutionEnvironment.get_execution_environment()
    return env.from_collection([], BID).key_by("auction")


def test_results_are_the_key_and_the_aggregates(bids: KeyedStream) -> None:
    aggregated = bids.aggregate(
        count().alias("n"),
        count("price"),
        sum_("price"),
        sum_("share"),
        avg("price"),
        min_("day"),
        max_("channel"),
        first("share"),
        last(col("price") * 2).alias("twice"),
    )
    names = [
        "n",
        "count_price",
        "sum_price",
        "sum_share",
        "avg_price",
        "min_day",
        "max_channel",
        "first_share",
        "twice",
    ]
    types = [Types.LONG(), Types.LONG(), Types.LONG(), Types.DOUBLE(), Types.DOUBLE(), Types.SQL_DATE()]
    types += [Types.STRING(), Types.FLOAT(), Types.INT()]
    assert aggregated.get_type() == Types.ROW_NAMED(["auction", *names], [Types.LONG(), *types])
    assert aggregated.get_name() == "Aggregate"


def test_several_columns_are_the_key() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    keyed = env.from_collection([], BID).key_by(["channel", "auction"])
    expected = Types.ROW_NAMED(["channel", "auction", "count"], [Types.STRING(), Types.LONG(), Types.LONG()])
    assert keyed.aggregate(count()).get_type() == expected


@pytest.mark.parametrize(
    ("aggregates", "error", "message"),
    [
        ((), GraphError, "takes at least one aggregate, such as count"),
        ((max_("pric"),), ProgramError, "no column 'pric'; did you mean 'price'"),
        ((sum_("channel"),), ProgramError, r"sum_\(col\('channel'\)\): sum takes numbers, not String"),
        ((avg("day"),), ProgramError, "avg takes numbers, not"),
        ((max_(col("price") + 1),), GraphError, "has no name; give it one with .alias"),
        ((count(), count()), GraphError, "the name 'count' stands more than once"),
        ((count().alias("auction"),), GraphError, "the name 'auction' stands more than once"),
        (
            (col("price"),),
            TypeError,
            r"not Expression; an expression has a value for each row.* last\(col\('price'\)\)",
        ),
        ((max,), TypeError, r"takes aggregates of firesteel.expressions, such as count\(\)"),
    ],
)
def test_what_does_not_fit_is_refused(
    bids: KeyedStream, aggregates: tuple[Any, ...], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        bids.aggregate(*aggregates)


def test_streams_without_columns_and_keys_that_are_functions_are_refused(pairs: DataStream) -> None:
    with pytest.raises(GraphError, match=r"aggregate\(\) needs a stream that is keyed by columns: key_by\('name'\)"):
        pairs.key_by(lambda pair: pair[0]).aggregate(count())
    untyped = pairs.map(lambda pair: pair)
    with pytest.raises(GraphError, match=r"aggregate\(\) with columns needs a stream whose records have typed fields"):
        untyped.key_by(lambda pair: pair[0]).aggregate(count())


@pytest.mark.parametrize("name", ["window_start", "window_end"])
def test_windows_of_a_key_that_is_called_like_a_window_are_refused(name: str) -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    stream = env.from_collection([], Types.ROW_NAMED([name, "k"], [Types.LONG(), Types.LONG()]))
    minutes = TumblingProcessingTimeWindows.of(Time.minutes(1))
    with pytest.raises(GraphError, match=rf"keyed by '{name}', and the results .* key_by\(col\('{name}'\).alias"):
        stream.key_by(name).window(minutes).aggregate(count())
    with pytest.raises(GraphError, match=f"the name '{name}' stands more than once"):
        stream.key_by("k").window(minutes).aggregate(count().alias(name))
    renamed = stream.key_by(col(name).alias("before")).window(minutes).aggregate(count())
    names = ["before", "window_start", "window_end", "count"]
    assert renamed.get_type() == Types.ROW_NAMED(names, [Types.LONG()] * 4)


def test_parts_of_a_key_that_are_computed() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    stream = env.from_collection([], BID)
    half = (col("price") / 2).alias("half")
    counted = stream.key_by([col("auction") % 10, half, col("channel").alias("on")]).aggregate(count())
    types = [Types.LONG(), Types.DOUBLE(), Types.STRING(), Types.LONG()]
    assert counted.get_type() == Types.ROW_NAMED(["auction % 10", "half", "on", "count"], types)
    with pytest.raises(GraphError, match="two columns of the key are called 'price'; give one of them an alias"):
        stream.key_by(["price", (col("auction") + 1).alias("price")]).aggregate(count())
    with pytest.raises(GraphError, match="the name 'half' stands more than once"):
        stream.key_by(half).aggregate(count().alias("half"))
    with pytest.raises(GraphError, match="'exact' is BigDecimal, whose columns are texts"):
        stream.key_by(col("price").cast(Types.BIG_DEC()).alias("exact")).aggregate(count())


def test_types_without_an_order_or_a_hash_of_columns_are_refused() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    many = Types.ROW_NAMED(["exact", "names"], [Types.BIG_DEC(), Types.LIST(Types.STRING())])
    stream = env.from_collection([], many)
    with pytest.raises(GraphError, match="'exact' is BigDecimal, whose columns are texts"):
        stream.key_by("exact").aggregate(count())
    keyed = env.from_collection([], Types.ROW_NAMED(["k", *many.field_names], [Types.INT(), *many.field_types]))
    for name in many.field_names:
        with pytest.raises(ProgramError, match="max takes numbers, text, bytes, dates and times, not"):
            keyed.key_by("k").aggregate(max_(name))
    assert keyed.key_by("k").aggregate(last("names")).get_type() == Types.ROW_NAMED(
        ["k", "last_names"], [Types.INT(), Types.LIST(Types.STRING())]
    )


def test_aggregates_say_what_they_take() -> None:
    with pytest.raises(TypeError, match="takes the name of a column or an expression, not int"):
        sum_(3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="takes a name"):
        count().alias("")
    assert repr(max_(col("price") * 2)) == "max_((col('price') * 2))"
    assert repr(count()) == "count()"


class Through(KeyedBatchFunction):
    def process_batch(self, batch: Any, ctx: KeyedBatchFunction.Context) -> Any:
        return batch


def test_functions_of_batches(bids: KeyedStream) -> None:
    assert bids.process_batches(Through(), BID).get_type() == BID
    assert bids.process_batches(lambda batch, ctx: batch, BID, "price").get_name() == "ProcessBatches"


@pytest.mark.parametrize(
    ("function", "output_type", "error", "message"),
    [
        (Through, BID, TypeError, r"write Through\(\), not Through"),
        (3, BID, TypeError, "takes a KeyedBatchFunction or a callable, not int"),
        (Through(), Types.LONG(), GraphError, "the result can't be batches"),
    ],
)
def test_functions_of_batches_that_are_refused(
    bids: KeyedStream, function: Any, output_type: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        bids.process_batches(function, output_type)


def test_functions_of_batches_need_keys_of_columns(pairs: DataStream) -> None:
    with pytest.raises(GraphError, match=r"process_batches\(\) needs a stream that is keyed by columns"):
        pairs.key_by(lambda pair: pair[0]).process_batches(Through(), BID)
    listed = Types.ROW_NAMED(["names"], [Types.LIST(Types.STRING())])
    with pytest.raises(GraphError, match="is no type of keys"):
        StreamExecutionEnvironment.get_execution_environment().from_collection([], listed).key_by("names")
