"""What a failed start says, although the JVM that could explain it is about to go."""

from __future__ import annotations

from firesteel.spark.context import reason_of


class Thrown:
    def __init__(self, alive: bool) -> None:
        self.alive = alive

    def toString(self) -> str:
        if not self.alive:
            raise ConnectionRefusedError(111, "Connection refused")
        return "java.io.IOException: no login"


class JavaError(Exception):
    def __init__(self, alive: bool) -> None:
        self.java_exception = Thrown(alive)

    def __str__(self) -> str:
        raise AssertionError("the text of py4j's errors is a stack trace, and needs the JVM")


def test_an_error_of_java_gives_its_own_text() -> None:
    assert reason_of(JavaError(alive=True)) == "java.io.IOException: no login"


def test_an_error_of_a_jvm_that_has_gone_gives_its_class() -> None:
    assert reason_of(JavaError(alive=False)) == "JavaError"


def test_any_other_error_gives_its_text() -> None:
    assert reason_of(ValueError("why")) == "why"
