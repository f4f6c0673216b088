from __future__ import annotations

import pickle

import pytest

from firesteel.client.unpicklable import explain
from firesteel.core.errors import FleetError, class_name
from firesteel.graph.key_hash import key_type_error
from firesteel_jobmaster.failures import internal, slot_lost


class OuterError(Exception):
    class InnerError(Exception):
        pass


@pytest.mark.parametrize(
    ("what", "name"),
    [
        (ValueError("x"), "ValueError"),
        (list, "list"),
        (FleetError, "firesteel.core.errors.FleetError"),
        (OuterError.InnerError(), f"{__name__}.OuterError.InnerError"),
    ],
)
def test_classes_have_their_module_unless_they_are_builtins(what: type | BaseException, name: str) -> None:
    assert class_name(what) == name


def test_a_class_has_one_name_whoever_tells_of_it() -> None:
    assert internal(ValueError("x"), "scheduling").error_class == "ValueError"
    assert slot_lost("s", "killed", None).error_class == class_name(FleetError)
    assert str(key_type_error(list)).startswith("A value of type list can't")
    text = explain({"rows": (row for row in [1])}, pickle.dumps, TypeError("no"))
    assert text.startswith("its dict['rows'] is a generator, which can't be pickled")
