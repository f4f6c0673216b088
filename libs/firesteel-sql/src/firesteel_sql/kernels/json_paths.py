"""Paths into JSON: ``$.orders[0].items[*].price``, with the words ``lax`` or ``strict`` in front.

The language is that of Jayway's JsonPath, which Flink uses: names, positions (also from the end), slices, unions,
wildcards, ``..`` at any depth, filters ``[?(@.price > 10)]``, and the functions ``length()``, ``size()``, ``min()``,
``max()``, ``sum()``, ``avg()`` and ``keys()`` at the end. A path without wildcards, filters, unions and depth is
definite: it means one value. Another one means the list of all that it finds.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final

Step = Callable[[Any], Iterator[Any]]
"""What a step of a path finds in a value; raises ``PathMissing`` for a name or position that is not there."""


class PathRefused(ValueError):
    """A text that is no path."""


class PathMissing(ValueError):
    """A definite path leads to nothing in a value."""


@dataclass(frozen=True)
class JsonPath:
    """A path.

    Attributes:
        is_strict: whether what is not there is an error.
        is_definite: whether it means one value.
        steps: from the root.
        function: applied to the result; None = none.
        text: as it was written.
    """

    is_strict: bool
    is_definite: bool
    steps: tuple[Step, ...]
    function: Callable[[Any], Any] | None
    text: str

    def read(self, root: Any) -> Any:
        """What the path means in a value: that value, or a list for a path that is not definite.

        Raises:
            PathMissing: a definite path leads to nothing.
        """
        values = [root]
        for step in self.steps:
            if self.is_definite:
                values = [part for value in values for part in step(value)]
            else:
                values = [part for value in values for part in _lenient(step, value)]
        result = values[0] if self.is_definite else values
        return result if self.function is None else self.function(result)


def _lenient(step: Step, value: Any) -> Iterator[Any]:
    try:
        yield from step(value)
    except PathMissing:
        return


_PREFIX: Final = re.compile(r"\s*(strict|lax)\s+(.+)", re.IGNORECASE | re.DOTALL)
_NAME: Final = re.compile(r"[^.\[\]()\s'\"*,?]+")
_QUOTED: Final = re.compile(r"'((?:[^'\\]|\\.)*)'|\"((?:[^\"\\]|\\.)*)\"")
_NUMBER: Final = re.compile(r"-?\d+")


@lru_cache(512)
def json_path(text: str) -> JsonPath:
    """Read a path.

    Raises:
        PathRefused: it is none.
    """
    prefix = _PREFIX.fullmatch(text)
    is_strict = prefix is None or prefix.group(1).lower() == "strict"
    reader = _Reader(text if prefix is None else prefix.group(2).strip())
    steps, is_definite, function = reader.path()
    return JsonPath(is_strict, is_definite, tuple(steps), function, text)


# -- steps


def _child(name: str) -> Step:
    def step(value: Any) -> Iterator[Any]:
        if not isinstance(value, dict) or name not in value:
            raise PathMissing(f"there is no {name}")
        yield value[name]

    return step


def _children(names: list[str]) -> Step:
    def step(value: Any) -> Iterator[Any]:
        if isinstance(value, dict):  # Jayway gives one object of the names that are there
            yield {name: value[name] for name in names if name in value}

    return step


def _item(index: int) -> Step:
    def step(value: Any) -> Iterator[Any]:
        if not isinstance(value, list) or not -len(value) <= index < len(value):
            raise PathMissing(f"there is no element {index}")
        yield value[index]

    return step


def _items(indices: list[int]) -> Step:
    def step(value: Any) -> Iterator[Any]:
        if isinstance(value, list):
            yield from (value[index] for index in indices if -len(value) <= index < len(value))

    return step


def _slice(start: int | None, end: int | None) -> Step:
    def step(value: Any) -> Iterator[Any]:
        if isinstance(value, list):
            yield from value[start:end]

    return step


def _all(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        yield from value.values()
    elif isinstance(value, list):
        yield from value


def _deep(inner: Step) -> Step:
    def step(value: Any) -> Iterator[Any]:
        yield from _lenient(inner, value)
        for part in _all(value):
            yield from step(part)

    return step


def _filtered(test: Callable[[Any], bool]) -> Step:
    def step(value: Any) -> Iterator[Any]:
        if isinstance(value, list):
            yield from (item for item in value if test(item))
        elif isinstance(value, dict) and test(value):
            yield value

    return step


def _size(value: Any) -> int | None:
    return len(value) if isinstance(value, (list, dict)) else None


def _of_numbers(function: Callable[[list[Any]], Any]) -> Callable[[Any], Any]:
    def of(value: Any) -> Any:
        numbers = [item for item in value if _is_number(item)] if isinstance(value, list) else []
        if not numbers:
            raise PathMissing("there are no numbers")
        return function([float(number) for number in numbers])

    return of


_FUNCTIONS: Final[dict[str, Callable[[Any], Any]]] = {
    "length": _size, "size": _size, "min": _of_numbers(min), "max": _of_numbers(max), "sum": _of_numbers(sum),
    "avg": _of_numbers(lambda numbers: sum(numbers) / len(numbers)),
    "keys": lambda value: list(value) if isinstance(value, dict) else None,
}  # fmt: skip


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, Decimal)) and not isinstance(value, bool)


# -- reading


class _Reader:
    """Reads a path by descent."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.place = 0

    def _refuse(self) -> PathRefused:
        return PathRefused(f"'{self.text}' is no path of JSON (at {self.text[self.place :]!r}): it begins with $")

    def _take(self, text: str) -> bool:
        if self.text.startswith(text, self.place):
            self.place += len(text)
            return True
        return False

    def _match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        match = pattern.match(self.text, self.place)
        if match is not None:
            self.place = match.end()
        return match

    def _blanks(self) -> None:
        self._match(_BLANKS)

    def path(self) -> tuple[list[Step], bool, Callable[[Any], Any] | None]:
        """The steps behind ``$``, whether all are definite, and the function at the end."""
        if not self._take("$"):
            raise self._refuse()
        steps, is_definite, function = self.steps()
        if self.place < len(self.text):
            raise self._refuse()
        return steps, is_definite, function

    def steps(self) -> tuple[list[Step], bool, Callable[[Any], Any] | None]:
        """Steps until something else stands there."""
        steps: list[Step] = []
        is_definite = True
        while True:
            is_deep = self._take("..")
            if is_deep or self._take("."):
                step: Step
                if self._take("*"):
                    step, single = _all, False
                elif self.text.startswith("[", self.place):
                    step, single = self._bracket()
                else:
                    name = self._match(_NAME)
                    if name is None:
                        raise self._refuse()
                    if self._take("()"):
                        function = _FUNCTIONS.get(name.group())
                        if function is None:
                            raise PathRefused(f"'{self.text}': paths have no function {name.group()}()")
                        return steps, is_definite, function
                    step, single = _child(name.group()), True
            elif self.text.startswith("[", self.place):
                step, single = self._bracket()
            else:
                return steps, is_definite, None
            steps.append(_deep(step) if is_deep else step)
            is_definite = is_definite and single and not is_deep

    def _bracket(self) -> tuple[Step, bool]:
        self.place += 1
        self._blanks()
        if self._take("*"):
            return self._closed(_all, False)
        if self._take("?"):
            self._blanks()
            if not self._take("("):
                raise self._refuse()
            test = self._disjunction()
            if not self._take(")"):
                raise self._refuse()
            return self._closed(_filtered(test), False)
        names: list[str] = []
        while (quoted := self._match(_QUOTED)) is not None:
            names.append(_unescaped(quoted.group(1) if quoted.group(1) is not None else quoted.group(2)))
            self._blanks()
            if not self._take(","):
                break
            self._blanks()
        if names:
            return self._closed(_child(names[0]) if len(names) == 1 else _children(names), len(names) == 1)
        first = self._match(_NUMBER)
        self._blanks()
        if self._take(":"):
            self._blanks()
            last = self._match(_NUMBER)
            step = _slice(None if first is None else int(first.group()), None if last is None else int(last.group()))
            return self._closed(step, False)
        if first is None:
            raise self._refuse()
        indices = [int(first.group())]
        while self._take(","):
            self._blanks()
            number = self._match(_NUMBER)
            if number is None:
                raise self._refuse()
            indices.append(int(number.group()))
            self._blanks()
        return self._closed(_item(indices[0]) if len(indices) == 1 else _items(indices), len(indices) == 1)

    def _closed(self, step: Step, is_definite: bool) -> tuple[Step, bool]:
        self._blanks()
        if not self._take("]"):
            raise self._refuse()
        return step, is_definite

    # -- filters

    def _disjunction(self) -> Callable[[Any], bool]:
        tests = [self._conjunction()]
        while self._take("||"):
            tests.append(self._conjunction())
        return lambda item: any(test(item) for test in tests)

    def _conjunction(self) -> Callable[[Any], bool]:
        tests = [self._test()]
        while self._take("&&"):
            tests.append(self._test())
        return lambda item: all(test(item) for test in tests)

    def _test(self) -> Callable[[Any], bool]:
        self._blanks()
        if self._take("!"):
            inner = self._test()
            return lambda item: not inner(item)
        if self._take("("):
            inner = self._disjunction()
            if not self._take(")"):
                raise self._refuse()
            self._blanks()
            return inner
        left = self._operand()
        self._blanks()
        sign = self._match(_SIGNS)
        if sign is None:
            return lambda item: left(item) is not _MISSING
        self._blanks()
        if sign.group() == "=~":
            regex = self._match(_REGEX)
            if regex is None:
                raise self._refuse()
            compiled = re.compile(regex.group(1), re.IGNORECASE if "i" in regex.group(2) else 0)
            self._blanks()
            return lambda item: isinstance(left(item), str) and compiled.fullmatch(left(item)) is not None
        right = self._operand()
        self._blanks()
        compare = _COMPARE[sign.group()]
        return lambda item: compare(left(item), right(item))

    def _operand(self) -> Callable[[Any], Any]:
        if self._take("@"):
            steps, is_definite, function = self.steps()
            path = JsonPath(False, is_definite, tuple(steps), function, self.text)
            return lambda item: _value_of(path, item)
        quoted = self._match(_QUOTED)
        if quoted is not None:
            text = _unescaped(quoted.group(1) if quoted.group(1) is not None else quoted.group(2))
            return lambda item: text
        literal = self._match(_LITERAL)
        if literal is None:
            raise self._refuse()
        word = literal.group()
        value = {"true": True, "false": False, "null": None}[word] if word.isalpha() else float(word)
        return lambda item: value


_BLANKS: Final = re.compile(r"\s*")
_SIGNS: Final = re.compile(r"==|!=|<=|>=|=~|<|>")
_REGEX: Final = re.compile(r"/((?:[^/\\]|\\.)*)/([a-z]*)")
_LITERAL: Final = re.compile(r"true|false|null|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")
_MISSING: Final = object()


def _value_of(path: JsonPath, item: Any) -> Any:
    try:
        return path.read(item)
    except PathMissing:
        return _MISSING


def _ordered(compare: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    def test(left: Any, right: Any) -> bool:
        if (_is_number(left) and _is_number(right)) or (isinstance(left, str) and isinstance(right, str)):
            return compare(left, right)
        return False

    return test


def _equal(left: Any, right: Any) -> bool:
    return left is not _MISSING and type(left) in _KINDS.get(type(right), (type(right),)) and left == right


_NUMBERS: Final = (int, float, Decimal)
_KINDS: Final = dict.fromkeys(_NUMBERS, _NUMBERS)
_COMPARE: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "==": _equal, "!=": lambda left, right: not _equal(left, right), "<": _ordered(operator.lt),
    "<=": _ordered(operator.le), ">": _ordered(operator.gt), ">=": _ordered(operator.ge),
}  # fmt: skip


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text)
