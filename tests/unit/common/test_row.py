from __future__ import annotations

import copy
import pickle

import pytest

from firesteel.common import Row, RowKind
from firesteel.common.types import make_row


def test_repr_shows_names_only_where_there_are_names() -> None:
    assert repr(Row(1, 2)) == "<Row(1, 2)>"
    assert repr(Row(a=1)) == "Row(a=1)"
    assert repr(Row(name="Ann", age=3)) == "Row(name='Ann', age=3)"


def test_rows_with_and_without_names_never_equal_each_other() -> None:
    assert Row(1, 2) != Row(a=1, b=2)
    assert Row(a=1, b=2) == Row(b=2, a=1)
    assert hash(Row(a=1, b=2)) == hash(Row(b=2, a=1))
    assert Row(a=1, b=2) != Row(a=2, b=1)
    assert Row(a=1) != Row(b=1)
    assert Row(1, 2) != (1, 2)


def test_the_kind_takes_part_in_equality() -> None:
    deleted = Row.of_kind(RowKind.DELETE, 1, 2)
    assert deleted != Row(1, 2)
    assert deleted.get_row_kind() is RowKind.DELETE
    deleted.set_row_kind(RowKind.INSERT)
    assert deleted == Row(1, 2)
    assert [str(kind) for kind in RowKind] == ["+I", "-U", "+U", "-D"]
    with pytest.raises(TypeError):
        deleted.set_row_kind("DELETE")  # type: ignore[arg-type]


def test_access_by_index_slice_name_and_attribute() -> None:
    row = Row(id=7, name="x", price=2.5)
    assert row[0] == 7
    assert row[-1] == 2.5
    assert row[:2] == [7, "x"]
    assert row["name"] == row.name == "x"
    assert list(row) == [7, "x", 2.5]
    assert len(row) == 3
    assert "x" in row


def test_unknown_names_and_attributes_raise() -> None:
    with pytest.raises(ValueError, match="'nope' is not a field"):
        Row(a=1)["nope"]
    with pytest.raises(KeyError):
        Row(1)["a"]
    with pytest.raises(AttributeError):
        _ = Row(a=1).nope
    with pytest.raises(AttributeError):
        _ = Row(1).a


def test_attributes_are_read_only_and_items_are_not() -> None:
    row = Row(a=1)
    with pytest.raises(AttributeError):
        row.a = 2  # type: ignore[attr-defined]
    with pytest.raises(AttributeError):
        row.other = 2  # type: ignore[attr-defined]
    row["a"] = 5
    assert row.a == 5
    row[0] = 6
    assert row == Row(a=6)


def test_positional_and_named_values_do_not_mix() -> None:
    with pytest.raises(ValueError, match="not both"):
        Row(1, a=2)


def test_as_dict_goes_into_rows_lists_and_dicts_when_recursive() -> None:
    row = Row(k=1, v=Row(a=[Row(b=2)], c={"d": Row(e=3)}))
    assert row.as_dict() == {"k": 1, "v": Row(a=[Row(b=2)], c={"d": Row(e=3)})}
    assert row.as_dict(True) == {"k": 1, "v": {"a": [{"b": 2}], "c": {"d": {"e": 3}}}}
    with pytest.raises(TypeError, match="field names"):
        Row(1).as_dict()


def test_names_can_be_set_and_values_asked_for_by_name() -> None:
    row = Row(1, 2)
    assert row.get_fields_by_names(["x"]) == [1, 2]
    row.set_field_names(["a", "b"])
    assert row == Row(a=1, b=2)
    assert row.get_fields_by_names(["b", "a"]) == [2, 1]
    with pytest.raises(ValueError, match="'c'"):
        row.get_fields_by_names(["a", "c"])


def test_a_row_of_names_makes_rows() -> None:
    person = Row("name", "age")
    assert person("Ann", 31) == Row(name="Ann", age=31)
    with pytest.raises(ValueError, match="3 values"):
        person(1, 2, 3)


class Special(Row):
    """A row class of a user's."""


@pytest.mark.parametrize(
    "row",
    [
        Row(1, "a"),
        Row(a=1, b=None),
        Row.of_kind(RowKind.UPDATE_BEFORE, 1),
        Row.of_kind(RowKind.DELETE, a=1),
        Row(),
        Row(_hidden=1),
        Special(a=1),
    ],
    ids=repr,
)
@pytest.mark.parametrize("protocol", [2, 5])
def test_rows_survive_pickling_and_copying(row: Row, protocol: int) -> None:
    for twin in (pickle.loads(pickle.dumps(row, protocol)), copy.copy(row), copy.deepcopy(row)):
        assert twin == row
        assert type(twin) is type(row)
        assert twin.get_row_kind() is row.get_row_kind()
        assert repr(twin) == repr(row)
        if len(twin):
            twin[0] = "changed"
            assert twin != row


def test_rows_of_one_type_pickle_small() -> None:
    names = ("f0", "f1", "f2")
    rows = [make_row(names, [i, "a", 2.0]) for i in range(100)]
    assert len(pickle.dumps(rows, 5)) / len(rows) < 30


def test_copying_a_user_record_looks_up_no_field_as_protocol_method() -> None:
    row = Row(**{"__deepcopy__": 1, "a": 2})
    assert copy.deepcopy(row) == row
