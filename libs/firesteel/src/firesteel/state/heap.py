"""Keyed state on the heap: one dict for each name, from key to value.

Keys that Python holds equal are one key, as in the stable key hash. The key group of a key is worked out when state is
written out, not when it is used: on the hot path a value costs one dict look-up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from firesteel.common.coerce import make_coercer
from firesteel.common.typeinfo import BasicType, BasicTypeInfo, TypeInformation
from firesteel.core.errors import ProgramError, TypeMismatchError
from firesteel.functions.state import StateDescriptor, ValueState, ValueStateDescriptor


class NoKey:
    """Stands where no record, and so no key, is being processed."""

    def __repr__(self) -> str:
        return "no key"

    def __hash__(self) -> int:
        raise ProgramError(
            "keyed state was used while no record was being processed: use it in the function's own methods, "
            "not in open() or close()"
        )


NO_KEY = NoKey()


_INTEGER_BITS = {BasicType.BYTE: 8, BasicType.SHORT: 16, BasicType.INT: 32, BasicType.LONG: 64}
_EXACT: dict[BasicType, type] = {
    BasicType.STRING: str,
    BasicType.BOOLEAN: bool,
    BasicType.DOUBLE: float,
    **dict.fromkeys(_INTEGER_BITS, int),
}


def _fits_as_it_is(type_info: TypeInformation) -> tuple[type | None, int, int]:
    """Class (and, of integers, range) of values that need no coercion: spares a call for each update."""
    basic = type_info.basic_type if isinstance(type_info, BasicTypeInfo) else None
    if basic is None or basic not in _EXACT:
        return None, 0, 0
    half = 1 << (_INTEGER_BITS.get(basic, 1) - 1)
    return _EXACT[basic], -half, half - 1


class HeapKeyedState:
    """All keyed state of one operator.

    Attributes:
        key: of the record being processed; set by the operator, read by the states.
    """

    __slots__ = ("_declared", "_states", "_strict", "_tables", "key")

    def __init__(self, *, strict_integers: bool = False) -> None:
        self.key: Any = NO_KEY
        self._strict = strict_integers
        self._tables: dict[str, dict[Any, Any]] = {}
        self._declared: dict[str, StateDescriptor] = {}
        self._states: dict[str, HeapValueState] = {}

    def value_state(self, descriptor: ValueStateDescriptor) -> HeapValueState:
        """The state of this name; the same object each time.

        Raises:
            ProgramError: the descriptor is of another class, or the name is taken by state of another type.
        """
        if not isinstance(descriptor, ValueStateDescriptor):
            raise ProgramError(f"get_state() takes a ValueStateDescriptor, not {descriptor!r}")
        name = descriptor.name
        declared = self._declared.get(name)
        if declared is None:
            self._declared[name] = descriptor
            coerce = make_coercer(descriptor.type_info, strict_integers=self._strict)
            self._states[name] = HeapValueState(self, self.table(name), descriptor, coerce)
        elif declared != descriptor:
            raise ProgramError(
                f"state {name!r} was asked for as {declared!r} before and is asked for as {descriptor!r} now: "
                "give each state of a function a name of its own"
            )
        return self._states[name]

    def table(self, name: str) -> dict[Any, Any]:
        """The values of a name by key; made when it is not there."""
        return self._tables.setdefault(name, {})

    def by_key_group(self, groups_of: Callable[[list[Any]], list[int]]) -> dict[int, dict[str, list[tuple[Any, Any]]]]:
        """Everything, for a snapshot: key group -> state name -> (key, value) pairs.

        Args:
            groups_of: the key group of each of a list of keys.
        """
        found: dict[int, dict[str, list[tuple[Any, Any]]]] = {}
        for name, table in self._tables.items():
            items = list(table.items())
            for group, item in zip(groups_of([key for key, _ in items]), items, strict=True):
                found.setdefault(group, {}).setdefault(name, []).append(item)
        return found

    def keys(self) -> Iterator[Any]:
        """Each key that has a value in some state, once."""
        return iter(dict.fromkeys(key for table in self._tables.values() for key in table))

    def close(self) -> None:
        """Forget everything."""
        for table in self._tables.values():
            table.clear()
        self.key = NO_KEY


class HeapValueState(ValueState[Any]):
    """One value for each key."""

    __slots__ = ("_coerce", "_exact", "_get", "_highest", "_keyed", "_lowest", "_name", "_table")

    def __init__(
        self,
        keyed: HeapKeyedState,
        table: dict[Any, Any],
        descriptor: ValueStateDescriptor,
        coerce: Callable[[object], Any] | None,
    ) -> None:
        self._keyed, self._table, self._name, self._coerce = keyed, table, descriptor.name, coerce
        self._get = table.get
        self._exact, self._lowest, self._highest = _fits_as_it_is(descriptor.type_info)

    def value(self) -> Any:
        """The value of the current key, None if it has none."""
        return self._get(self._keyed.key)

    def update(self, value: Any) -> None:
        """Set the value of the current key; None clears it.

        Raises:
            TypeMismatchError: the value does not fit the declared type.
        """
        exact = value.__class__
        if exact is self._exact and (exact is not int or self._lowest <= value <= self._highest):
            self._table[self._keyed.key] = value
        elif value is None:
            self._table.pop(self._keyed.key, None)
        elif self._coerce is None:
            self._table[self._keyed.key] = value
        else:
            try:
                self._table[self._keyed.key] = self._coerce(value)
            except TypeMismatchError as error:
                field = f"state {self._name}" + (f".{error.field}" if error.field else "")
                raise TypeMismatchError(field, error.declared, error.value, error.reason) from None

    def clear(self) -> None:
        """Forget the value of the current key."""
        self._table.pop(self._keyed.key, None)
