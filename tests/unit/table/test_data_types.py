"""``DataTypes`` as descriptors, and their way to ``Types`` and back."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from firesteel.common import Types
from firesteel.core.errors import UnsupportedFeatureError
from firesteel.table import DataTypes, from_type_info, to_type_info

ROW = DataTypes.ROW(
    [
        DataTypes.FIELD("id", DataTypes.BIGINT(False)),
        DataTypes.FIELD("names", DataTypes.ARRAY(DataTypes.STRING())),
        DataTypes.FIELD("prices", DataTypes.MAP(DataTypes.CHAR(3), DataTypes.DECIMAL(10, 2)), "by currency"),
    ]
)


def test_their_text_is_sqls() -> None:
    assert str(DataTypes.INT(nullable=False)) == "INT NOT NULL"
    assert str(DataTypes.TIMESTAMP(3)) == "TIMESTAMP(3)"
    assert str(ROW) == (
        "ROW<`id` BIGINT NOT NULL, `names` ARRAY<VARCHAR(2147483647)>, "
        "`prices` MAP<CHAR(3), DECIMAL(10, 2)> 'by currency'>"
    )


def test_types_are_values() -> None:
    assert DataTypes.STRING() == DataTypes.VARCHAR(2**31 - 1)
    assert DataTypes.INT() != DataTypes.INT().not_null()
    assert pickle.loads(pickle.dumps(ROW)) == ROW
    assert len({ROW, ROW, DataTypes.INT()}) == 2


def test_a_row_becomes_a_row_type_info() -> None:
    expected = Types.ROW_NAMED(
        ["id", "names", "prices"],
        [Types.LONG(), Types.OBJECT_ARRAY(Types.STRING()), Types.MAP(Types.STRING(), Types.BIG_DEC())],
    )
    assert to_type_info(ROW) == expected


@pytest.mark.parametrize(
    "type_info",
    [
        Types.STRING(), Types.BOOLEAN(), Types.BYTE(), Types.SHORT(), Types.INT(), Types.LONG(), Types.FLOAT(),
        Types.DOUBLE(), Types.BIG_DEC(), Types.SQL_DATE(), Types.SQL_TIME(), Types.SQL_TIMESTAMP(), Types.INSTANT(),
        Types.PRIMITIVE_ARRAY(Types.BYTE()), Types.MAP(Types.STRING(), Types.INT()),
        Types.OBJECT_ARRAY(Types.LONG()), Types.ROW_NAMED(["a", "b"], [Types.INT(), Types.ROW([Types.STRING()])]),
    ],
)  # fmt: skip
def test_there_and_back(type_info: Any) -> None:
    again = to_type_info(from_type_info(type_info))
    assert str(again).replace("f0: ", "") == str(type_info).replace("f0: ", "")
    assert from_type_info(again) == from_type_info(type_info)


def test_some_types_have_a_nearest_one() -> None:
    assert to_type_info(DataTypes.MULTISET(DataTypes.STRING())) == Types.MAP(Types.STRING(), Types.INT())
    assert from_type_info(Types.TUPLE([Types.INT()])) == DataTypes.ROW([DataTypes.FIELD("f0", DataTypes.INT())])
    assert from_type_info(Types.LIST(Types.INT())) == DataTypes.ARRAY(DataTypes.INT())
    assert from_type_info(Types.BASIC_ARRAY(Types.INT())) == DataTypes.ARRAY(DataTypes.INT())


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: DataTypes.CHAR(0), ValueError, "length"),
        (lambda: DataTypes.DECIMAL(5, 6), ValueError, "scale"),
        (lambda: DataTypes.DECIMAL(39, 0), ValueError, "precision"),
        (lambda: DataTypes.TIMESTAMP("3"), TypeError, "precision is an int"),  # type: ignore[arg-type]
        (lambda: DataTypes.ARRAY(DataTypes.INT), TypeError, "parentheses"),  # type: ignore[arg-type]
        (lambda: DataTypes.ROW([("a", DataTypes.INT())]), TypeError, "FIELD"),  # type: ignore[list-item]
        (lambda: DataTypes.ROW([DataTypes.FIELD("a", DataTypes.INT())] * 2), ValueError, "twice"),
        (lambda: DataTypes.FIELD("", DataTypes.INT()), TypeError, "name of a field"),
        (lambda: to_type_info(DataTypes.NULL()), UnsupportedFeatureError, "NULL"),
        (lambda: from_type_info(Types.PICKLED_BYTE_ARRAY()), UnsupportedFeatureError, "no type of SQL"),
        (lambda: DataTypes.LIST_VIEW(DataTypes.INT()), UnsupportedFeatureError, "Table API"),
    ],
)
def test_what_is_wrong_is_refused(make: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make()
