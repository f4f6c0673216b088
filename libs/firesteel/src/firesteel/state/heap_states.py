"""The kinds of keyed state on the heap, without time-to-live."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from firesteel.common.nan_keys import WHOLE, with_named_nan
from firesteel.functions.state import (
    AggregatingState,
    AggregatingStateDescriptor,
    ListState,
    ListStateDescriptor,
    MapState,
    MapStateDescriptor,
    ReducingState,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueState,
    ValueStateDescriptor,
)
from firesteel.state.fitting import Fit, fits_as_it_is, make_fit
from firesteel.state.tables import MISSING, Table

_EMPTY: Final[dict[Any, Any]] = {}


@dataclass(frozen=True)
class Kind:
    """How the state of one descriptor is stored.

    Attributes:
        name: of the kind.
        descriptor: of the state.
        fit: fits values, elements, a map's values, or accumulators to their type; None if any object will do.
        fit_key: fits keys of a map.
    """

    name: str
    descriptor: StateDescriptor
    fit: Fit | None
    fit_key: Fit | None = None


KINDS: Final[Mapping[type[StateDescriptor], str]] = {
    ValueStateDescriptor: "value",
    ListStateDescriptor: "list",
    MapStateDescriptor: "map",
    ReducingStateDescriptor: "reducing",
    AggregatingStateDescriptor: "aggregating",
}


def kind_of(descriptor: StateDescriptor, *, strict_integers: bool) -> Kind:
    """Kind of the state of a descriptor."""
    name = next(kind for cls, kind in KINDS.items() if isinstance(descriptor, cls))
    where = f"state {descriptor.name}"
    if isinstance(descriptor, MapStateDescriptor):
        fit_key = make_fit(f"{where}[key]", descriptor.key_type_info, strict_integers=strict_integers)
        fit = make_fit(f"{where}[value]", descriptor.value_type_info, strict_integers=strict_integers)
        return Kind(name, descriptor, fit, fit_key)
    return Kind(name, descriptor, make_fit(where, descriptor.type_info, strict_integers=strict_integers))


class HeapState:
    """Base of all kinds. The table's ``get`` is bound once, and again by ``bind``.

    Args:
        keyed: its ``key`` is the current key.
        table: values by key.
        kind: how values are stored.
    """

    __slots__ = ("_get", "_keyed", "_kind", "_table")

    def __init__(self, keyed: Any, table: Table, kind: Kind) -> None:
        self._keyed, self._table, self._kind = keyed, table, kind
        self._get: Any = table.get

    def bind(self) -> None:
        """Bind the table's methods, which have changed."""
        self._get = self._table.get

    def clear(self) -> None:
        """Forget the state of the current key."""
        self._table.pop(self._keyed.key, None)


class HeapValueState(HeapState, ValueState[Any]):
    """One value for each key."""

    __slots__ = ("_exact", "_fit", "_highest", "_lowest")

    def __init__(self, keyed: Any, table: Table, kind: Kind) -> None:
        super().__init__(keyed, table, kind)
        self._fit = kind.fit
        self._exact, self._lowest, self._highest = fits_as_it_is(kind.descriptor.type_info)

    def value(self) -> Any:
        """Value of the current key; None = it has none."""
        return self._get(self._keyed.key)

    def update(self, value: Any) -> None:
        """Set the value of the current key; None clears it."""
        exact = value.__class__
        if exact is self._exact and (exact is not int or self._lowest <= value <= self._highest):
            self._table[self._keyed.key] = value
        elif value is None:
            self._table.pop(self._keyed.key, None)
        else:
            self._table[self._keyed.key] = value if self._fit is None else self._fit(value)


def elements_of(kind: Kind, method: str, values: Iterable[Any]) -> list[Any]:
    """Fitted elements, from the argument of a list state's method."""
    name = kind.descriptor.name
    if values is None or isinstance(values, str | bytes):
        raise TypeError(f"state {name!r}: {method}() takes an iterable of elements, not {type(values).__name__}")
    return [element_of(kind, value) for value in values]


def element_of(kind: Kind, value: Any) -> Any:
    """Fitted element of a list state."""
    if value is None:
        raise TypeError(f"state {kind.descriptor.name!r}: None can't be an element of list state")
    return value if kind.fit is None else kind.fit(value)


class HeapListState(HeapState, ListState[Any]):
    """A list for each key; empty lists are not stored."""

    __slots__ = ()

    def get(self) -> list[Any]:
        """Copy of the elements: changing it does not change the state."""
        elements = self._get(self._keyed.key)
        return [] if elements is None else elements.copy()

    def add(self, value: Any) -> None:
        value = element_of(self._kind, value)
        elements = self._get(self._keyed.key)
        if elements is None:
            self._table[self._keyed.key] = [value]
        else:
            elements.append(value)

    def add_all(self, values: Iterable[Any]) -> None:
        """Add elements: all or, if one does not fit, none."""
        fitted = elements_of(self._kind, "add_all", values)
        elements = self._get(self._keyed.key)
        if elements is not None:
            elements.extend(fitted)
        elif fitted:
            self._table[self._keyed.key] = fitted

    def update(self, values: Iterable[Any]) -> None:
        fitted = elements_of(self._kind, "update", values)
        if fitted:
            self._table[self._keyed.key] = fitted
        else:
            self.clear()


class HeapMapState(HeapState, MapState[Any, Any]):
    """A dict for each key; empty dicts are not stored."""

    __slots__ = ()

    def get(self, key: Any) -> Any:
        """Value under a key; None = there is none."""
        value = self._get(self._keyed.key, _EMPTY).get(key)
        if value is None and key.__class__ not in WHOLE:  # a key that is there holds no NaN but the one
            return self._get(self._keyed.key, _EMPTY).get(with_named_nan(key))
        return value

    def put(self, key: Any, value: Any) -> None:
        """Set the value under a key."""
        kind = self._kind
        if kind.fit_key is not None:
            key = kind.fit_key(key)
        if kind.fit is not None and value is not None:
            value = kind.fit(value)
        entries = self._get(self._keyed.key)
        if key.__class__ not in WHOLE and (entries is None or key not in entries):
            key = with_named_nan(key)
        if entries is None:
            self._table[self._keyed.key] = {key: value}
        else:
            entries[key] = value

    def put_all(self, dict_value: Mapping[Any, Any]) -> None:
        """Set several values: all or, if one does not fit, none."""
        fitted = entries_of(self._kind, dict_value)
        if fitted:
            entries = self._get(self._keyed.key)
            if entries is None:
                self._table[self._keyed.key] = fitted
            else:
                entries.update(fitted)

    def remove(self, key: Any) -> None:
        """Remove the value under a key."""
        entries = self._get(self._keyed.key)
        if entries is not None:
            entries.pop(with_named_nan(key), None)
            if not entries:
                self.clear()

    def contains(self, key: Any) -> bool:
        """Whether there is a value under a key."""
        entries = self._get(self._keyed.key, _EMPTY)
        return key in entries or with_named_nan(key) in entries

    def items(self) -> Iterable[tuple[Any, Any]]:
        """Keys and values, in the order of the keys' first ``put``."""
        return self._get(self._keyed.key, _EMPTY).items()  # type: ignore[no-any-return]

    def keys(self) -> Iterable[Any]:
        return self._get(self._keyed.key, _EMPTY).keys()  # type: ignore[no-any-return]

    def values(self) -> Iterable[Any]:
        return self._get(self._keyed.key, _EMPTY).values()  # type: ignore[no-any-return]

    def is_empty(self) -> bool:
        """Whether the current key has no entry."""
        return self._keyed.key not in self._table


def entries_of(kind: Kind, dict_value: Any) -> dict[Any, Any]:
    """Fitted entries, from the argument of a map state's method."""
    if not isinstance(dict_value, Mapping):
        raise TypeError(f"state {kind.descriptor.name!r}: put_all() takes a dict, not {type(dict_value).__name__}")
    fit_key, fit = kind.fit_key, kind.fit
    entries = {}
    for key, value in dict_value.items():
        fitted_key = with_named_nan(key if fit_key is None else fit_key(key))
        entries[fitted_key] = value if value is None or fit is None else fit(value)
    return entries


class HeapReducingState(HeapState, ReducingState[Any]):
    """One value for each key, the combination of all added values."""

    __slots__ = ("_reduce",)

    def __init__(self, keyed: Any, table: Table, kind: Kind) -> None:
        super().__init__(keyed, table, kind)
        self._reduce: Callable[[Any, Any], Any] = kind.descriptor.reduce  # type: ignore[attr-defined]

    def get(self) -> Any:
        """Combination so far; None = nothing was added."""
        return self._get(self._keyed.key)

    def add(self, value: Any) -> None:
        """Combine a value with the current one; None clears, as in Flink."""
        if value is None:
            self.clear()
            return
        fit = self._kind.fit
        before = self._get(self._keyed.key)
        if before is not None:
            value = self._reduce(before, value)
        self._table[self._keyed.key] = value if fit is None else fit(value)


class HeapAggregatingState(HeapState, AggregatingState[Any, Any]):
    """An accumulator for each key."""

    __slots__ = ("_function",)

    def __init__(self, keyed: Any, table: Table, kind: Kind) -> None:
        super().__init__(keyed, table, kind)
        self._function: Any = kind.descriptor.get_agg_function()  # type: ignore[attr-defined]

    def get(self) -> Any:
        """Result of the accumulator; None = nothing was added."""
        accumulator = self._get(self._keyed.key, MISSING)
        return None if accumulator is MISSING else self._function.get_result(accumulator)

    def add(self, value: Any) -> None:
        """Add a value to the accumulator; None clears, as in Flink."""
        if value is None:
            self.clear()
            return
        fit, function = self._kind.fit, self._function
        accumulator = self._get(self._keyed.key, MISSING)
        if accumulator is MISSING:
            accumulator = function.create_accumulator()
        accumulator = function.add(value, accumulator)
        self._table[self._keyed.key] = accumulator if fit is None else fit(accumulator)


def merge_values(kind: Kind, first: Any, second: Any) -> Any:
    """Merge two stored values of mergeable state."""
    fit = kind.fit
    if kind.name == "list":
        return first + second
    if kind.name == "reducing":
        merged = kind.descriptor.reduce(first, second)  # type: ignore[attr-defined]
    else:
        merged = kind.descriptor.get_agg_function().merge(first, second)  # type: ignore[attr-defined]
    return merged if fit is None else fit(merged)


STATES: Final[Mapping[str, type[HeapState]]] = {
    "value": HeapValueState,
    "list": HeapListState,
    "map": HeapMapState,
    "reducing": HeapReducingState,
    "aggregating": HeapAggregatingState,
}
