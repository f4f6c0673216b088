"""State that a function keeps for each key, and the descriptors that ask for it. PyFlink's names."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Generic, NoReturn, TypeVar

from firesteel.common.typeinfo import TypeInformation
from firesteel.core.errors import UnsupportedFeatureError

__all__ = ["State", "StateDescriptor", "ValueState", "ValueStateDescriptor"]

T = TypeVar("T")


class State(ABC):
    """Root of all kinds of keyed state; what it holds belongs to the key of the record being processed."""

    @abstractmethod
    def clear(self) -> None:
        """Forgets what is held for the current key."""


class ValueState(State, Generic[T]):
    """One value for each key."""

    @abstractmethod
    def value(self) -> T | None:
        """Returns the value of the current key, None if it has none."""

    @abstractmethod
    def update(self, value: T | None) -> None:
        """Sets the value of the current key; None clears it.

        Raises:
            TypeMismatchError: the value does not fit the descriptor's type.
        """


class StateDescriptor(ABC):  # noqa: B024 - PyFlink's root class; a descriptor only carries data
    """Name and type of a piece of state.

    Attributes:
        name: unique within its operator.
        type_info: type of what is held.

    Raises:
        ValueError: the name is empty.
        TypeError: the name is no str, or the type no type information.
    """

    def __init__(self, name: str, type_info: TypeInformation) -> None:
        if not isinstance(name, str):
            raise TypeError(f"the name of a state is a str, not {type(name).__name__}")
        if not name:
            raise ValueError("the name of a state is empty; give each state of a function a name of its own")
        if not isinstance(type_info, TypeInformation):
            hint = "; did you leave out the parentheses?" if callable(type_info) else ""
            raise TypeError(f"the type of state {name!r} is {type_info!r}, not a TypeInformation{hint}")
        self.name = name
        self.type_info = type_info

    def get_name(self) -> str:
        """Returns the name."""
        return self.name

    def enable_time_to_live(self, ttl_config: Any) -> NoReturn:
        """Refused in this version.

        Raises:
            UnsupportedFeatureError: always.
        """
        raise UnsupportedFeatureError(
            f"state {self.name!r}: time-to-live of state is not in this version; clear the state with clear()"
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, StateDescriptor):
            return NotImplemented
        return type(self) is type(other) and (self.name, self.type_info) == (other.name, other.type_info)

    def __hash__(self) -> int:
        return hash((type(self).__name__, self.name))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, {self.type_info})"


class ValueStateDescriptor(StateDescriptor):
    """Asks for a ``ValueState``: ``runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))``."""

    def __init__(self, name: str, value_type_info: TypeInformation) -> None:
        super().__init__(name, value_type_info)
