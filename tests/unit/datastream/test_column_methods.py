"""Methods on columns: what they add to the graph, and what they refuse when it is built."""

from __future__ import annotations

from typing import Any

import pytest

from firesteel.common import Types
from firesteel.core.errors import GraphError, ProgramError
from firesteel.datastream import DataStream, KeyedStream, StreamExecutionEnvironment
from firesteel.datastream.connectors.data_generator import DataGeneratorSource
from firesteel.expressions import col, lit
from firesteel.graph.specs import OperatorKind

BID = Types.ROW_NAMED(["auction", "price", "channel"], [Types.LONG(), Types.INT(), Types.STRING()])


@pytest.fixture
def bids() -> DataStream:
    return StreamExecutionEnvironment.get_execution_environment().from_collection([(1, 2, "a")], BID)


def test_types_of_results(bids: DataStream) -> None:
    chosen = bids.select("channel", (col("price") * 0.5).alias("half"), col("auction"))
    assert chosen.get_type() == Types.ROW_NAMED(
        ["channel", "half", "auction"], [Types.STRING(), Types.DOUBLE(), Types.LONG()]
    )
    added = bids.with_columns(
        (col("price") + col("auction")).alias("sum"), col("channel").str.length().alias("channel")
    )
    assert added.get_type() == Types.ROW_NAMED(
        ["auction", "price", "channel", "sum"], [Types.LONG(), Types.INT(), Types.INT(), Types.LONG()]
    )
    assert bids.drop("price", "auction").get_type() == Types.ROW_NAMED(["channel"], [Types.STRING()])
    assert bids.filter(col("price") > 1).get_type() == BID
    pairs = bids.map(lambda bid: (bid[0], bid[1]), Types.TUPLE([Types.LONG(), Types.INT()]))
    assert pairs.filter(col("f1") > 1).get_type() == pairs.get_type()
    assert pairs.select("f1").get_type() == Types.ROW_NAMED(["f1"], [Types.INT()])
    assert chosen.get_name() == "Select"


def test_types_that_share_their_columns_stay_apart() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    letters = env.from_collection([("a",)], Types.ROW_NAMED(["letter"], [Types.CHAR()]))
    assert letters.select("letter").get_type() == Types.ROW_NAMED(["letter"], [Types.CHAR()])


def test_keys_of_columns(bids: DataStream) -> None:
    by_one = bids.key_by("channel")
    assert isinstance(by_one, KeyedStream)
    assert by_one.get_type() == Types.ROW([Types.STRING(), BID])
    by_two = bids.key_by(["channel", col("auction")])
    assert by_two.get_type() == Types.ROW([Types.TUPLE([Types.STRING(), Types.LONG()]), BID])
    assert bids.key_by(lambda bid: bid.price).get_type() != by_one.get_type()
    computed = bids.key_by([col("price") % 10, "channel", (col("auction") * 0.5).alias("half")])
    assert computed.get_type() == Types.ROW([Types.TUPLE([Types.INT(), Types.STRING(), Types.DOUBLE()]), BID])
    assert bids.key_by(col("channel").str.upper()).get_type() == by_one.get_type()


def test_columns_of_a_keyed_stream_are_those_of_its_records(bids: DataStream) -> None:
    keyed = bids.key_by("channel")
    assert keyed.filter(col("price") > 1).get_type() == BID
    assert keyed.select("price").get_type() == Types.ROW_NAMED(["price"], [Types.INT()])


def test_operators_are_columnar(bids: DataStream) -> None:
    result = bids.filter(col("price") > 1).select("price").map_batches(lambda batch: batch, BID)
    kinds = []
    inputs = result._inputs
    while inputs:
        kinds.append(inputs[0].source.kind)
        sources = inputs[0].source.inputs
        inputs = sources[0] if sources else ()
    assert kinds[:3] == [OperatorKind.COLUMNS_MAP, OperatorKind.COLUMNS_PROJECT, OperatorKind.COLUMNS_FILTER]


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (lambda bids: bids.filter(col("prise") > 1), ProgramError, "no column 'prise'; did you mean 'price'"),
        (lambda bids: bids.filter(col("price") + 1), ProgramError, "a condition has to be Boolean"),
        (lambda bids: bids.select(col("price") + 1), GraphError, r"has no name; give it one with .alias\('…'\)"),
        (lambda bids: bids.select("price", lit(1).alias("price")), GraphError, "'price' stands more than once"),
        (lambda bids: bids.select(), GraphError, "no column is left"),
        (lambda bids: bids.select(7), TypeError, "takes names of columns and expressions, not int"),
        (lambda bids: bids.drop("nothing"), ProgramError, "no column 'nothing'"),
        (lambda bids: bids.drop("auction", "price", "channel"), GraphError, "no column is left"),
        (lambda bids: bids.key_by(col("channel") % 2), ProgramError, "% takes numbers"),
        (
            lambda bids: bids.key_by(["price", col("prise") % 2]),
            ProgramError,
            "no column 'prise'; did you mean 'price'",
        ),
        (lambda bids: bids.key_by("price", "auction"), TypeError, r"several columns as a list: key_by\(\[.*\]\)"),
        (lambda bids: bids.map(str).key_by(col("price") % 2), GraphError, "typed fields, but its type is Pickled"),
        (lambda bids: bids.join(bids).where(col("prise") + 1), ProgramError, "no column 'prise'"),
        (lambda bids: bids.key_by("nothing"), ProgramError, "no column 'nothing'"),
        (lambda bids: bids.key_by([]), GraphError, "at least one column"),
        (lambda bids: bids.map(str).filter(col("price") > 1), GraphError, "typed fields, but its type is Pickled"),
        (lambda bids: bids.map(len, Types.INT()).select("f0"), GraphError, "its type is Integer, which has no fields"),
        (lambda bids: bids.map_batches(3, BID), TypeError, "takes a MapFunction or a callable, not int"),
        (lambda bids: bids.map_batches(len, Types.STRING()), GraphError, "the result can't be batches"),
    ],
)
def test_what_is_refused(bids: DataStream, build: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        build(bids)


def test_a_generator_of_batches_needs_a_type_with_columns() -> None:
    with pytest.raises(ProgramError, match="need typed fields"):
        DataGeneratorSource.of_batches(lambda start, count: None, Types.STRING())
