"""``Option``: an option is declared once, with key, type, default, unit, bounds and description."""

from __future__ import annotations

import hmac
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Generic, TypeVar

from firesteel.config import values
from firesteel.core import option_texts
from firesteel.core.sensitive import MASK, is_sensitive

__all__ = [
    "BOOL",
    "DURATION",
    "FLOAT",
    "INT",
    "LIST",
    "MAP",
    "MASK",
    "MEMORY",
    "PORTS",
    "SECRET",
    "STRING",
    "Option",
    "OptionType",
    "Secret",
    "enum_of",
    "is_sensitive",
]

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Secret:
    """Text that shows itself as stars; ``reveal()`` gives it. Compares in constant time."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """Returns the text itself."""
        return self._text

    def __str__(self) -> str:
        return MASK

    def __repr__(self) -> str:
        return f"Secret({MASK})"

    def __format__(self, spec: str) -> str:
        return format(MASK, spec)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        return hmac.compare_digest(self._text.encode(), other._text.encode())

    def __hash__(self) -> int:
        return hash(("Secret", self._text))


@dataclass(frozen=True)
class OptionType(Generic[T_co]):
    """How a kind of value is read from text.

    Attributes:
        name: shown in the reference.
        parse: from text or Python value; raises ``ValueError`` with what was expected.
        show: text form of a value.
        names: all values, if they are few and have names.
    """

    name: str
    parse: Callable[[Any], T_co]
    show: Callable[[Any], str] = option_texts.show
    names: tuple[str, ...] = ()


BOOL = OptionType("Boolean", values.parse_bool, names=("true", "false"))
INT = OptionType("Integer", values.parse_int)
FLOAT = OptionType("Double", values.parse_float)
STRING = OptionType("String", values.parse_str)
DURATION: OptionType[timedelta] = OptionType("Duration", values.parse_duration, option_texts.show_duration)
MEMORY = OptionType("MemorySize", values.parse_memory, values.show_memory)
LIST = OptionType("List", values.parse_list)
MAP = OptionType("Map", values.parse_map)
PORTS = OptionType("String", values.parse_ports)
SECRET = OptionType(
    "Secret", lambda raw: raw if isinstance(raw, Secret) else Secret(values.parse_str(raw)), lambda value: MASK
)


def enum_of(*names: str, **also: str) -> OptionType[str]:
    """One of these names, read in any case and with ``-`` for ``_``.

    Args:
        names: that are documented.
        also: other spelling -> name.
    """
    by_form = also | {name.lower().replace("_", "-"): name for name in names}

    def parse(raw: Any) -> str:
        name = by_form.get(str(getattr(raw, "name", raw)).strip().lower().replace("_", "-"))
        if name is None:
            raise ValueError(f"one of {', '.join(names)}")
        return name

    return OptionType(f"Enum ({', '.join(names)})", parse, names=names)


@dataclass(frozen=True, eq=False)
class Option(Generic[T]):
    """A declared option.

    Attributes:
        key: full name, with Flink's spelling where Flink has the option.
        type: how its value is read.
        default: value when nothing is set.
        doc: what it does, in a sentence or two.
        unit: what a bare number means, if that needs saying.
        fallback_keys: asked in this order when the key itself is not set.
        at_least: smallest value allowed.
        at_most: largest value allowed.
        instead: the option has no effect in this version; what happens whatever it says. Empty = it has its effect.
    """

    key: str
    type: OptionType[T]
    default: T
    doc: str
    unit: str = ""
    fallback_keys: tuple[str, ...] = ()
    at_least: Any = None
    at_most: Any = None
    instead: str = ""

    def parse(self, raw: Any) -> T:
        """Returns the typed value.

        Raises:
            ValueError: not of the type, or out of bounds; the message says what is expected.
        """
        value = self.type.parse(raw)
        if self.at_least is not None and value < self.at_least:
            raise ValueError(f"at least {self.type.show(self.at_least)}")
        if self.at_most is not None and value > self.at_most:
            raise ValueError(f"at most {self.type.show(self.at_most)}")
        return value

    @property
    def secret(self) -> bool:
        """Whether its value must not be shown."""
        return self.type.name == "Secret" or is_sensitive(self.key)
