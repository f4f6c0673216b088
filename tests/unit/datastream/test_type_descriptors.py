"""Types of the Table API stand for type information wherever a program declares a type."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from firesteel.common import Encoder, Types
from firesteel.common.watermark_strategy import WatermarkStrategy
from firesteel.connectors.file_sink import FileSink
from firesteel.connectors.number_sequence import NumberSequenceSource
from firesteel.core.errors import UnsupportedFeatureError
from firesteel.datastream import OutputTag, StreamExecutionEnvironment
from firesteel.datastream.state import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from firesteel.expressions import col
from firesteel.table import DataTypes
from tests.unit.datastream.fakes import FakeExecutor

ROW = DataTypes.ROW([DataTypes.FIELD("a", DataTypes.INT()), DataTypes.FIELD("b", DataTypes.STRING(nullable=False))])
AS_TYPE_INFO = Types.ROW_NAMED(["a", "b"], [Types.INT(), Types.STRING()])


def test_sources_operators_and_keys(env: StreamExecutionEnvironment) -> None:
    stream = env.from_collection([(1, "a")], ROW)
    assert stream.get_type() == AS_TYPE_INFO
    assert stream.map(lambda row: row.a, DataTypes.BIGINT()).get_type() == Types.LONG()
    assert stream.flat_map(lambda row: [row.a], output_type=DataTypes.DECIMAL(10, 2)).get_type() == Types.BIG_DEC()
    assert stream.key_by(lambda row: row.a, DataTypes.INT()).get_type() == Types.ROW([Types.INT(), AS_TYPE_INFO])
    source = env.from_source(NumberSequenceSource(1, 2), WatermarkStrategy.no_watermarks(), "n", DataTypes.BIGINT())
    assert source.get_type() == Types.LONG()


def test_types_of_types_and_casts() -> None:
    text, number = DataTypes.STRING(), DataTypes.INT()
    assert Types.LIST(text) == Types.LIST(Types.STRING())
    assert Types.MAP(text, Types.LIST(number)) == Types.MAP(Types.STRING(), Types.LIST(Types.INT()))
    assert Types.ROW_NAMED(["a", "b"], [number, text]) == AS_TYPE_INFO
    assert Types.ROW((number,)) == Types.ROW([Types.INT()])
    assert Types.TUPLE([number, Types.LONG()]) == Types.TUPLE([Types.INT(), Types.LONG()])
    assert Types.PRIMITIVE_ARRAY(number) == Types.PRIMITIVE_ARRAY(Types.INT())
    assert Types.BASIC_ARRAY(text) == Types.BASIC_ARRAY(Types.STRING())
    assert Types.OBJECT_ARRAY(ROW) == Types.OBJECT_ARRAY(AS_TYPE_INFO)
    assert repr(col("a").cast(number)) == repr(col("a").cast(Types.INT()))
    with pytest.raises(TypeError, match=r"Type 0 of ListTypeInfo .* Did you leave out the parentheses"):
        Types.LIST(DataTypes.INT)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="takes a list of types"):
        Types.TUPLE(number)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="Invalid element type for a primitive array"):
        Types.PRIMITIVE_ARRAY(text)
    with pytest.raises(TypeError, match=r"the type of cast\(\) is 'INT', not a TypeInformation"):
        col("a").cast("INT")  # type: ignore[arg-type]


def test_state_and_side_outputs() -> None:
    assert ValueStateDescriptor("v", DataTypes.DATE()) == ValueStateDescriptor("v", Types.SQL_DATE())
    assert ListStateDescriptor("l", ROW).type_info == AS_TYPE_INFO
    keyed = MapStateDescriptor("m", DataTypes.STRING(), DataTypes.ARRAY(DataTypes.INT()))
    assert (keyed.key_type_info, keyed.value_type_info) == (Types.STRING(), Types.OBJECT_ARRAY(Types.INT()))
    assert OutputTag("t", DataTypes.INT()) == OutputTag("t", Types.INT())
    assert OutputTag("t", [DataTypes.INT(), Types.LONG()]) == OutputTag("t", Types.ROW([Types.INT(), Types.LONG()]))


def test_what_has_no_type_information_is_refused(env: StreamExecutionEnvironment) -> None:
    with pytest.raises(UnsupportedFeatureError, match="NULL"):
        env.from_collection([None], DataTypes.NULL())
    for wrong in (DataTypes.INT, Types.INT, DataTypes, "INT"):
        with pytest.raises(TypeError, match="not a TypeInformation"):
            env.from_collection([1], wrong)  # type: ignore[arg-type]


def test_text_files_hold_the_text_of_flinks_types(env: StreamExecutionEnvironment, tmp_path: Path) -> None:
    def sink() -> FileSink:
        return FileSink.for_row_format(tmp_path, Encoder.simple_string_encoder()).build()

    pair = Types.TUPLE([Types.STRING(), Types.BOOLEAN()])
    env.from_collection([("a", True)], pair).sink_to(sink())
    env.from_collection([("a", True)]).sink_to(sink())
    env.execute()
    executor = env._executor
    assert isinstance(executor, FakeExecutor)
    sinks = [node.operator.function for node in executor.graphs[-1].nodes.values() if node.is_sink]
    encoders = [pickle.loads(pickle.dumps(sink))._format for sink in sinks]
    assert [encoder.encode(("a", True)) for encoder in encoders] == [b"(a,true)\n", b"('a', True)\n"]
