"""Values of records: what pickle takes out of the standard library and numpy, plain, derived, nested, and cyclic.

``same`` compares two of them part by part, with their types, also where they don't compare themselves.
"""

from __future__ import annotations

import array
import collections
import dataclasses
import datetime
import enum
import fractions
import functools
import io
import ipaddress
import logging
import operator
import pathlib
import random
import re
import time
import types
import uuid
import zoneinfo
from collections.abc import Callable
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
from hypothesis import strategies as st

from firesteel.common.types import Row, RowKind


class Side(enum.Enum):
    BUY = 1
    SELL = (2, "b")


class Level(enum.IntEnum):
    LOW = 1


class Word(enum.StrEnum):
    A = "a"


class Right(enum.Flag):
    READ = 1
    WRITE = 2


class Point(NamedTuple):
    x: Any
    y: Any = ()


Old = collections.namedtuple("Old", "a b")


@dataclasses.dataclass
class Plain:
    name: Any
    parts: list[Any] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True)
class Frozen:
    name: Any
    parts: Any = ()


@dataclasses.dataclass(slots=True)
class Slotted:
    name: Any
    never_set: Any = dataclasses.field(init=False)


@dataclasses.dataclass(frozen=True, slots=True)
class FrozenSlotted:
    name: Any


@dataclasses.dataclass
class Derived(Plain):
    more: Any = None


class Items(list[Any]):
    pass


class Names(dict[str, Any]):
    def __missing__(self, key: str) -> Any:
        return key


class Pair(tuple[Any, ...]):
    pass


class Group(set[Any]):
    pass


class Queue(collections.deque[Any]):
    pass


class Text(str):
    pass


class Octets(bytes):
    pass


class Number(int):
    pass


class Real(float):
    pass


class Record(Row):
    pass


class Error(ValueError):
    def __init__(self, code: int, text: str) -> None:
        super().__init__(code, text)
        self.code = code


class Slots:
    __slots__ = ("a", "b")


class Both(Slots):
    pass


class Reduced:
    def __init__(self, value: Any) -> None:
        self.value = value

    def __reduce__(self) -> Any:
        return Reduced, (self.value,)


class Stated:
    def __init__(self, value: Any) -> None:
        self.value = value

    def __getstate__(self) -> Any:
        return [self.value]

    def __setstate__(self, state: Any) -> None:
        (self.value,) = state


class NewArguments(tuple[Any, ...]):
    def __new__(cls, one: Any, two: Any) -> NewArguments:
        return super().__new__(cls, (one, two))

    def __getnewargs__(self) -> Any:
        return tuple(self)


class Touchy:
    """Whatever Python would do with it by the way raises."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def _refuse(self, *_: Any) -> Any:
        raise RuntimeError("hands off")

    __eq__ = __ne__ = __lt__ = __bool__ = __len__ = __iter__ = __contains__ = __repr__ = __str__ = _refuse
    __hash__ = None  # type: ignore[assignment]

    def method(self) -> Any:
        return self.value


class Meta(type):
    pass


class OfMeta(metaclass=Meta):
    pass


def nothing() -> None:
    """A function that is found by its name."""


def _slots() -> Slots:
    value = Both()
    value.a, value.c = [1], 2  # type: ignore[attr-defined]
    return value


def _cyclic_list() -> Any:
    value: list[Any] = [1]
    value.append(value)
    return value


def _cyclic_dict() -> Any:
    value: dict[str, Any] = {"a": Side.BUY}
    value["self"] = (value, [value])
    return value


def _tree() -> Any:
    root = Plain("root")
    for number in range(3):
        child = Derived(f"child {number}", [], root)
        child.parts.append(Derived("leaf", [], child))
        root.parts.append(child)
    return root


def _shared() -> Any:
    part = [1, {"a": Side.BUY}]
    return [part, (part, part), {"x": part}]


def _nested(make: Callable[[Any], Any], depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = make(value)
    return value


def _read_only() -> Any:
    value = np.arange(5)
    value.flags.writeable = False
    return value


def _with_attributes(value: Any, **attributes: Any) -> Any:
    vars(value).update(attributes)
    return value


def _derived() -> dict[str, Callable[[], Any]]:
    return {
        "derived list": lambda: _with_attributes(Items([1, [2]]), note={"a": 1}),
        "derived dict": lambda: Names(a=[1]),
        "derived tuple": lambda: _with_attributes(Pair(([1], 2)), note=[1]),
        "derived set": lambda: Group({1, "a"}),
        "derived deque": lambda: Queue([1, [2]], 5),
        "derived str": lambda: _with_attributes(Text("a"), note=1),
        "derived bytes": lambda: Octets(b"a"),
        "derived int": lambda: Number(5),
        "derived float": lambda: Real(0.5),
        "derived row": lambda: Record(a=1, b=[2]),
    }


ZOO: dict[str, Callable[[], Any]] = {
    # numbers, texts
    "None": lambda: None,
    "bool": lambda: True,
    "int": lambda: -1,
    "large int": lambda: -(10**400),
    "float": lambda: 0.1,
    "NaN": lambda: float("nan"),
    "infinity": lambda: -float("inf"),
    "minus zero": lambda: -0.0,
    "complex": lambda: complex(1, -0.0),
    "Decimal": lambda: Decimal("1.500"),
    "Decimal NaN": lambda: Decimal("NaN"),
    "Decimal sNaN": lambda: Decimal("sNaN"),
    "Fraction": lambda: fractions.Fraction(1, 3),
    "str": lambda: "ä€𝄞\0",
    "surrogate": lambda: "\ud800",
    "bytes": lambda: b"\0\xff",
    "bytearray": lambda: bytearray(b"abc"),
    "range": lambda: range(0, 10, 3),
    "slice": lambda: slice(1, None, 2),
    "ellipsis": lambda: ...,
    "NotImplemented": lambda: NotImplemented,
    # times
    "date": lambda: datetime.date(2026, 2, 28),
    "time": lambda: datetime.time(1, 2, 3, 4, fold=1),
    "time with zone": lambda: datetime.time(1, 2, tzinfo=datetime.UTC),
    "datetime": lambda: datetime.datetime(2026, 10, 25, 2, 30, fold=1),
    "datetime with zone": lambda: datetime.datetime(2026, 1, 1, tzinfo=zoneinfo.ZoneInfo("UTC")),
    "datetime with offset": lambda: datetime.datetime(
        2026, 1, 1, tzinfo=datetime.timezone(datetime.timedelta(hours=5, minutes=30), "UTC+05:30")
    ),
    "timedelta": lambda: datetime.timedelta(-1, 5, 7),
    "struct_time": lambda: time.struct_time((2026, 1, 1, 0, 0, 0, 3, 1, 0)),
    # by name
    "enum member": lambda: Side.BUY,
    "enum member of a tuple": lambda: Side.SELL,
    "IntEnum": lambda: Level.LOW,
    "StrEnum": lambda: Word.A,
    "Flag": lambda: Right.READ | Right.WRITE,
    "enum class": lambda: Side,
    "class": lambda: ValueError,
    "class of a metaclass": lambda: OfMeta,
    "generic alias": lambda: list[int],
    "function": lambda: nothing,
    "builtin": lambda: len,
    "method of a class": lambda: str.upper,
    "bound method": lambda: Point(1, [2]).count,
    "partial": lambda: functools.partial(print, [1], end=""),
    "itemgetter": lambda: operator.itemgetter(1, 2),
    "attrgetter": lambda: operator.attrgetter("a.b"),
    "logger": lambda: logging.getLogger("zoo"),
    "regular expression": lambda: re.compile("a+", re.IGNORECASE),
    # containers
    "tuple": lambda: (1, "a", (2.5, None)),
    "empty tuple": lambda: (),
    "empty list": list,
    "empty dict": dict,
    "list": lambda: [1, ["a", [None]]],
    "dict": lambda: {"a": [1], 2: {"b": (3,)}, None: Side.BUY, (1, "x"): b""},
    "set": lambda: {1, "a", None, (2, Side.BUY)},
    "frozenset": lambda: frozenset({1, "a"}),
    "NamedTuple": lambda: Point([1], Point(2)),
    "namedtuple": lambda: Old(1, [2]),
    "deque": lambda: collections.deque([1, [2]], 3),
    "OrderedDict": lambda: collections.OrderedDict(b=[1], a=2),
    "defaultdict": lambda: collections.defaultdict(list, a=[1]),
    "Counter": lambda: collections.Counter("aab"),
    "ChainMap": lambda: collections.ChainMap({"a": 1}, {"b": [2]}),
    "UserDict": lambda: collections.UserDict(a=[1]),
    "UserList": lambda: collections.UserList([1, [2]]),
    "UserString": lambda: collections.UserString("a"),
    "SimpleNamespace": lambda: types.SimpleNamespace(a=[1]),
    "array": lambda: array.array("d", [1.5, 2.5]),
    **_derived(),
    # objects
    "UUID": lambda: uuid.UUID(int=5),
    "IPv4Address": lambda: ipaddress.ip_address("10.0.0.1"),
    "IPv6Network": lambda: ipaddress.ip_network("fe80::/64"),
    "Path": lambda: pathlib.PurePosixPath("/a/b"),
    "Random": lambda: random.Random(5),
    "memoryview": lambda: memoryview(b"abc"),
    "memoryview of floats": lambda: memoryview(array.array("d", [1.5, 2.5])),
    "memoryview of an array": lambda: np.arange(6, dtype=np.int16).reshape(2, 3).data,
    "memoryview with steps": lambda: memoryview(bytearray(b"abcdef"))[::2],
    "empty memoryview": lambda: memoryview(array.array("d")),
    "BytesIO": lambda: io.BytesIO(b"abc"),
    "exception": lambda: Error(5, "a"),
    "exception group": lambda: ExceptionGroup("two", [ValueError("a"), KeyError("b")]),
    "dataclass": lambda: Plain("a", [1]),
    "frozen dataclass": lambda: Frozen("a", [1, (2,)]),
    "slotted dataclass": lambda: Slotted(["a"]),
    "frozen slotted dataclass": lambda: FrozenSlotted(["a"]),
    "derived dataclass": lambda: Derived("a", [1], Side.BUY),
    "slots": _slots,
    "__reduce__": lambda: Reduced([1]),
    "__getstate__": lambda: Stated([1]),
    "__getnewargs__": lambda: NewArguments([1], 2),
    "touchy": lambda: Touchy([1]),
    "exception class in a tuple": lambda: ("a", ValueError, 1),
    # Row
    "Row": lambda: Row(1, "a", [2]),
    "named Row": lambda: Row(a=1, b=Row(c=Side.BUY)),
    "Row of a kind": lambda: Row.of_kind(RowKind.UPDATE_AFTER, a=1),
    # numpy
    **{f"numpy {kind.__name__}": functools.partial(kind, 1) for kind in (np.int8, np.uint64, np.float16, np.float32)},
    "numpy float64": lambda: np.float64("nan"),
    "numpy bool": lambda: np.bool_(True),
    "numpy str": lambda: np.str_("a"),
    "numpy bytes": lambda: np.bytes_(b"a"),
    "numpy datetime64": lambda: np.datetime64("2026-01-01T00:00", "ns"),
    "numpy NaT": lambda: np.timedelta64("NaT", "s"),
    "numpy complex": lambda: np.complex64(1 + 2j),
    "numpy void": lambda: np.zeros(1, [("a", "i4"), ("b", "f8")])[0],
    "numpy dtype": lambda: np.dtype([("a", "i4")]),
    "array of numpy": lambda: np.arange(6).reshape(2, 3),
    "array in Fortran's order": lambda: np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    "array with a stride": lambda: np.arange(10)[::2],
    "array of no dimension": lambda: np.array(5),
    "empty array": lambda: np.zeros((0, 3)),
    "large array": lambda: np.arange(5_000),
    "array that is read only": _read_only,
    "array of objects": lambda: np.array([1, [2], Side.BUY, None], object),
    "array of texts": lambda: np.array(["a", "bcd"]),
    "structured array": lambda: np.zeros(2, [("a", "i4"), ("b", "O")]),
    "masked array": lambda: np.ma.masked_array([1, 2], [True, False]),
    "record array": lambda: np.zeros(2, [("a", "i4"), ("b", "f8")]).view(np.recarray),
    # shapes
    "cyclic list": _cyclic_list,
    "cyclic dict": _cyclic_dict,
    "tree with parents": _tree,
    "shared parts": _shared,
    "deep list": lambda: _nested(lambda inner: [inner], 300),
    "deep tuple": lambda: _nested(lambda inner: (inner,), 150),
    "deep dataclass": lambda: _nested(lambda inner: Plain(inner), 60),
    "large text": lambda: "x" * 100_000,
    "many parts": lambda: [{"n": number} for number in range(300)],
}
"""Makes of values, each time others that are the same."""

KEYS: dict[str, Callable[[], Any]] = {
    **{
        name: ZOO[name]
        for name in (
            "None", "bool", "int", "large int", "float", "NaN", "infinity", "minus zero", "Decimal", "Decimal NaN",
            "Fraction", "str", "surrogate", "bytes", "date", "time", "time with zone", "datetime", "datetime with zone",
            "datetime with offset", "timedelta", "enum member", "enum member of a tuple", "IntEnum", "StrEnum", "Flag",
            "tuple", "empty tuple", "derived str", "derived bytes", "derived int", "derived float", "UUID",
            "named Row", "Row of a kind", "numpy int8", "numpy uint64", "numpy float16", "numpy float64", "numpy bool",
            "numpy str", "numpy bytes", "deep tuple",
        )
    },
    "frozen dataclass": lambda: Frozen(float("nan"), (1, Side.BUY)),
    "frozen slotted dataclass": lambda: FrozenSlotted("a"),
    "NamedTuple": lambda: Point(1, Point(Decimal("NaN"))),
    "derived tuple": lambda: Pair((1, "a")),
    "tuple of all": lambda: (Side.BUY, uuid.UUID(int=1), np.float32("nan"), Decimal("NaN"), datetime.date.min, ("a",)),
}  # fmt: skip
"""Makes of keys; those of one name equal each other but for NaN."""

NO_KEYS = ("list", "dict", "set", "frozenset", "class", "function", "complex", "dataclass", "derived list", "range",
           "array of numpy", "numpy datetime64", "numpy NaT", "Path", "touchy", "Decimal sNaN", "partial")  # fmt: skip
"""Names of values of which none may be a key: those that can change, or whose hash is another one in each process."""

_leaves = st.sampled_from(sorted(ZOO)).map(lambda name: ZOO[name]())
VALUES: st.SearchStrategy[Any] = st.recursive(
    _leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(st.text(max_size=3), inner, max_size=4),
        st.builds(Plain, inner, st.lists(inner, max_size=3)),
        st.builds(Frozen, inner),
        st.builds(Slotted, inner),
        st.builds(Point, inner, inner),
        st.builds(Row, inner, inner),
        st.lists(inner, max_size=3).map(Items),
        st.lists(inner, max_size=3).map(collections.deque),
        st.builds(functools.partial, st.just(print), inner),
    ),
    max_leaves=12,
)
"""Such values in each other."""


def _parts(value: Any) -> list[Any]:
    """What a value holds, in order, where it does not compare it itself as it should."""
    parts: list[Any] = []
    if isinstance(value, np.ndarray):
        parts += [value.dtype, value.shape]
        parts.append(value.tolist() if value.dtype.hasobject else value.tobytes())
        return parts
    if isinstance(value, np.generic):
        return [value.dtype, value.tobytes()]
    if isinstance(value, dict):
        for key, item in dict.items(value):
            parts += [key, item]
        parts.append(getattr(value, "default_factory", None))
    elif isinstance(value, tuple | list | collections.deque):
        parts += [*value, getattr(value, "maxlen", None)]
    elif isinstance(value, Row):
        parts += [value._fields, value._values, value.get_row_kind()]
    elif isinstance(value, BaseException):
        parts += [value.args]
    elif isinstance(value, functools.partial):
        parts += [value.func, value.args, value.keywords]
    elif isinstance(value, types.MethodType | types.BuiltinMethodType):
        return [value.__name__, getattr(value, "__self__", None)]
    elif isinstance(value, random.Random):
        return [value.getstate()]
    elif isinstance(value, memoryview):
        return [value.format, value.shape, value.readonly, value.tobytes()]
    elif isinstance(value, io.BytesIO):
        return [value.getvalue(), value.tell()]
    elif isinstance(value, slice | operator.itemgetter | operator.attrgetter):
        return [repr(value)]
    elif isinstance(value, datetime.datetime | datetime.time):
        return [value.replace(tzinfo=None).isoformat(), value.fold, value.utcoffset(), value.tzname()]
    for cls in type(value).__mro__:
        for name, member in vars(cls).items():
            if isinstance(member, types.MemberDescriptorType) and cls.__module__ == __name__:
                parts += [name, getattr(value, name, "(empty)")]
    attributes = getattr(value, "__dict__", None)
    if isinstance(attributes, dict):
        parts += [part for pair in attributes.items() for part in pair]
    return parts


_ATOMS = (
    int, float, complex, str, bytes, bytearray, Decimal, type(None), set, frozenset, type, types.FunctionType,
    enum.Enum, types.ModuleType, array.array, re.Pattern, logging.Logger, np.dtype,
    datetime.date, datetime.timedelta, uuid.UUID, types.GenericAlias, range,
)  # fmt: skip


def same(first: Any, second: Any) -> bool:
    """Whether two values are of the same types and equal, with all that they hold, however deep or cyclic."""
    pairs, seen = [(first, second)], set[tuple[int, int]]()
    compared = []  # so that no id is given again meanwhile
    while pairs:
        value, other = pairs.pop()
        if type(value) is not type(other):
            return False
        if value is other or (id(value), id(other)) in seen:
            continue
        seen.add((id(value), id(other)))
        compared.append((value, other))
        if isinstance(value, _ATOMS) and not isinstance(value, datetime.datetime | np.generic):
            if repr(value) != repr(other) and (isinstance(value, Decimal) or value != other):
                return False
            if not isinstance(value, Text):
                continue
        parts, others = _parts(value), _parts(other)
        if len(parts) != len(others):
            return False
        if not parts and repr(value) != repr(other):
            return False
        pairs += zip(parts, others, strict=True)
    return True
