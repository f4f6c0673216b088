"""Failures tell whose fault it was, where and at which record."""

from __future__ import annotations

import base64
import pickle
from typing import Any

from firesteel.common.typeinfo import Types
from firesteel.core.errors import ProtocolError
from firesteel.graph.specs import OperatorKind
from firesteel.protocol.deployment import TaskFailure
from firesteel.runtime.operator_base.failures import describe_failure
from tests.unit.runtime.support import INFO, line, opened, run, spec

MAP = OperatorKind.MAP


def failure_of(*operators: Any, values: list[Any]) -> TaskFailure:
    """Run a chain that raises."""
    try:
        run(opened(line(*operators, spec(OperatorKind.PRINT))), values)
    except Exception as error:
        return describe_failure(error, INFO)
    raise AssertionError("nothing was raised")


def fail(value: Any) -> Any:
    raise LookupError(f"no {value}")


def test_a_users_exception() -> None:
    failure = failure_of(spec(MAP, lambda v: v, name="first"), spec(MAP, fail, name="second"), values=["x" * 500])
    assert (failure.kind, failure.error_class, failure.operator) == ("user", "LookupError", "second")
    assert (failure.vertex_name, failure.subtask, failure.attempt) == ("Map -> Sink", 1, 2)
    assert failure.record is not None
    assert len(failure.record) <= 200
    assert failure.record.startswith("'xxx")
    assert "in fail" in failure.traceback
    assert "raise LookupError" in failure.traceback
    assert "chain.py" not in failure.traceback
    assert "stateless.py" not in failure.traceback


def test_a_builtin_that_raises_has_no_frame_of_its_own() -> None:
    failure = failure_of(spec(MAP, int, name="to int"), values=["1", "a"])
    assert (failure.kind, failure.operator, failure.record) == ("user", "to int", "'a'")
    assert failure.traceback.strip().splitlines()[-1] == "ValueError: invalid literal for int() with base 10: 'a'"
    assert "File" not in failure.traceback


def test_a_failure_inside_a_users_generator() -> None:
    def generator(value: int) -> Any:
        yield value
        raise KeyError(value)

    failure = failure_of(spec(OperatorKind.FLAT_MAP, generator, name="gen"), spec(MAP, str), values=[4])
    assert (failure.operator, failure.record, failure.error_class) == ("gen", "4", "KeyError")


def test_a_type_mismatch() -> None:
    row = Types.ROW_NAMED(["id", "price"], [Types.INT(), Types.DOUBLE()])
    failure = failure_of(spec(MAP, lambda v: v, name="typed", output_type=row), values=[(1, 2.0), (2, "x")])
    assert (failure.kind, failure.operator, failure.record) == ("type", "typed", "(2, 'x')")
    assert "price" in failure.message
    assert "coerce" not in failure.traceback


def test_an_error_of_ours() -> None:
    try:
        raise AssertionError("bug")
    except AssertionError as error:
        failure = describe_failure(error)
    assert (failure.kind, failure.subtask, failure.record) == ("internal", -1, None)


def test_a_lost_peer_is_external() -> None:
    assert describe_failure(ProtocolError("slot 7", "it went away"), kind="external").kind == "external"


def test_the_cause_is_shown_without_our_frames() -> None:
    def chained(value: Any) -> Any:
        try:
            fail(value)
        except LookupError as error:
            raise RuntimeError("outer") from error

    failure = failure_of(spec(MAP, chained), values=[1])
    assert "no 1" in failure.traceback
    assert "direct cause" in failure.traceback


class Hostile(Exception):
    def __str__(self) -> str:
        raise RuntimeError

    def __reduce__(self) -> Any:
        raise RuntimeError


def test_a_hostile_exception_is_reported_all_the_same() -> None:
    def raises(value: Any) -> Any:
        raise Hostile

    failure = failure_of(spec(MAP, raises, name="hostile"), values=[1])
    assert failure.error_class.endswith("Hostile")
    assert failure.pickled is None
    assert failure.operator == "hostile"


def test_a_pickled_exception_keeps_its_class() -> None:
    failure = failure_of(spec(MAP, fail), values=["cat"])
    assert failure.pickled is not None
    error = pickle.loads(base64.b64decode(failure.pickled))
    assert (type(error), error.args) == (LookupError, ("no cat",))


def test_an_exception_that_cannot_be_unpickled_is_left_out() -> None:
    class Picky(Exception):
        def __init__(self, first: int, second: int) -> None:
            super().__init__("text")

    def raises(value: Any) -> Any:
        raise Picky(1, 2)

    assert failure_of(spec(MAP, raises), values=[1]).pickled is None
