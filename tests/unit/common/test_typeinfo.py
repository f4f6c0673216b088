from __future__ import annotations

import pickle

import pytest

from firesteel.common.typeinfo import (
    BasicTypeInfo,
    DateTypeInfo,
    ExternalTypeInfo,
    InstantTypeInfo,
    LocalTimeTypeInfo,
    PickledBytesTypeInfo,
    RowTypeInfo,
    TypeInformation,
    Types,
)

SAMPLES: list[tuple[TypeInformation, str]] = [
    (Types.STRING(), "String"),
    (Types.BYTE(), "Byte"),
    (Types.BOOLEAN(), "Boolean"),
    (Types.SHORT(), "Short"),
    (Types.INT(), "Integer"),
    (Types.LONG(), "Long"),
    (Types.FLOAT(), "Float"),
    (Types.DOUBLE(), "Double"),
    (Types.CHAR(), "Character"),
    (Types.BIG_INT(), "BigInteger"),
    (Types.BIG_DEC(), "BigDecimal"),
    (Types.INSTANT(), "Instant"),
    (Types.SQL_DATE(), "Date"),
    (Types.SQL_TIME(), "Time"),
    (Types.SQL_TIMESTAMP(), "Timestamp"),
    (Types.PICKLED_BYTE_ARRAY(), "PickledByteArrayTypeInfo"),
    (Types.ROW([Types.INT()]), "RowTypeInfo(Integer)"),
    (Types.ROW_NAMED(["a"], [Types.INT()]), "RowTypeInfo(a: Integer)"),
    (Types.TUPLE([Types.STRING(), Types.INT()]), "TupleTypeInfo(String, Integer)"),
    (Types.LIST(Types.INT()), "ListTypeInfo<Integer>"),
    (Types.MAP(Types.INT(), Types.STRING()), "MapTypeInfo<Integer, String>"),
    (Types.PRIMITIVE_ARRAY(Types.BYTE()), "byte[]"),
    (Types.BASIC_ARRAY(Types.STRING()), "BasicArrayTypeInfo<String>"),
    (Types.OBJECT_ARRAY(Types.ROW_NAMED(["a"], [Types.INT()])), "ObjectArrayTypeInfo<RowTypeInfo(a: Integer)>"),
    (LocalTimeTypeInfo(LocalTimeTypeInfo.TimeType.LOCAL_DATE_TIME), "LocalDateTime"),
    (ExternalTypeInfo(Types.INT()), "ExternalTypeInfo<Integer>"),
]


@pytest.mark.parametrize(("type_info", "text"), SAMPLES, ids=[text for _, text in SAMPLES])
def test_types_have_flinks_text_and_are_values(type_info: TypeInformation, text: str) -> None:
    assert str(type_info) == text
    twin = pickle.loads(pickle.dumps(type_info))
    assert twin == type_info
    assert hash(twin) == hash(type_info)
    assert [other for other, _ in SAMPLES if other == type_info] == [type_info]


def test_made_up_names_show_once_they_were_asked_for() -> None:
    row = Types.ROW([Types.INT(), Types.STRING()])
    assert row.get_field_names() == ["f0", "f1"]
    assert str(row) == "RowTypeInfo(f0: Integer, f1: String)"
    assert row == Types.ROW([Types.INT(), Types.STRING()])


def test_row_types_know_their_fields() -> None:
    row = RowTypeInfo([Types.INT(), Types.STRING()], ["a", "b"])
    assert row.get_field_index("b") == 1
    assert row.get_field_index("z") == -1
    assert row.get_field_types() == [Types.INT(), Types.STRING()]
    assert row.get_field_names() == ["a", "b"]
    assert row != RowTypeInfo([Types.INT(), Types.STRING()], ["a", "c"])
    assert row != RowTypeInfo([Types.INT(), Types.INT()], ["a", "b"])


def test_bad_declarations_are_refused_at_once() -> None:
    with pytest.raises(ValueError, match="2 field types but 1 field names"):
        Types.ROW_NAMED(["a"], [Types.INT(), Types.INT()])
    with pytest.raises(ValueError, match="more than once"):
        Types.ROW_NAMED(["a", "a"], [Types.INT(), Types.INT()])
    with pytest.raises(TypeError, match="parentheses"):
        Types.ROW([Types.INT])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="list of types"):
        Types.TUPLE(Types.INT())  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="primitive array"):
        Types.PRIMITIVE_ARRAY(Types.STRING())
    with pytest.raises(TypeError, match="boxed primitive array"):
        Types.BASIC_ARRAY(Types.BIG_DEC())


def test_names_of_pyflink_lead_to_the_same_types() -> None:
    assert BasicTypeInfo.INT_TYPE_INFO() == Types.INT()
    assert isinstance(Types.INSTANT(), InstantTypeInfo)
    assert isinstance(Types.SQL_DATE(), DateTypeInfo)
    assert PickledBytesTypeInfo.PICKLED_BYTE_ARRAY_TYPE_INFO() == Types.PICKLED_BYTE_ARRAY()
    assert DateTypeInfo.EPOCH_ORDINAL == 719163
