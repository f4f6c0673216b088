"""Copies of records that can be changed in place, so that two who hold a record don't see each other's changes.

Dicts, lists, sets, byte arrays, what ``collections`` has of such, classes derived from these, rows, dataclasses, arrays
of numpy, and frames and series of pandas are copied, with such values inside them, also inside tuples. Objects of other
classes are not: nobody can tell what a copy of them would mean.

A copy is shallow first, and waits in a list until the values in it that can be changed are replaced by copies of their
own, which may wait in turn. So records may be nested as deep as they like. A dictionary of what was copied already lets
them hold themselves, or one value in several places. Only tuples are made after their elements.
"""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import uuid
from array import array
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable
from functools import partial
from itertools import chain
from operator import is_, methodcaller
from types import BuiltinFunctionType, MemberDescriptorType
from typing import Any, Final, NamedTuple

import numpy as np

from firesteel.common.types import Row
from firesteel.core.errors import SerializationError, class_name

Copier = Callable[[Any], Any]
_Copies = dict[int, Any]
_Slots = list[tuple[Callable[[Any], Any], Callable[[Any, Any], None]]]
"""For each slot of a class, the functions that get and set it."""
_Waiting = list[tuple["_Replace", Any]]
_Replace = Callable[[Any, _Copies, _Waiting], None]

ATOMS: Final[frozenset[type]] = frozenset(
    {
        int,
        str,
        float,
        bool,
        bytes,
        complex,
        type(None),
        decimal.Decimal,
        datetime.date,
        datetime.datetime,
        datetime.time,
        datetime.timedelta,
        uuid.UUID,
    }
)
"""Types of values that nobody can change, and which hold no others."""
_MOST_CLASSES: Final = 10_000
_PANDAS: Final = frozenset({"DataFrame", "Series"})
_OWN_COPIES: Final = ("__reduce__", "__reduce_ex__", "__copy__", "__deepcopy__")
"""A class that defines one of these methods knows itself how it is copied: its objects are left alone."""


def own_copy(value: Any) -> Any:
    """Copy a value so that the copy shares nothing mutable with it; an immutable value is returned itself.

    Raises:
        SerializationError: tuples are nested deeper than Python's recursion limit.
    """
    cls = value.__class__
    if cls in ATOMS:
        return value
    if cls is tuple:
        return value if ATOMS.issuperset(map(type, value)) else _of_tuple(value)
    copier = COPIERS[cls]
    if copier is not None:
        return copier(value)
    form = _FORMS[cls]
    return value if form is None or ATOMS.issuperset(map(type, form.inner_values(value))) else _deep_copy(value)


def own_copies(values: list[Any]) -> list[Any]:
    """Copy each value of a list (``own_copy``); the list itself is returned if there is nothing to copy."""
    if ATOMS.issuperset(map(type, values)):
        return values
    return [own_copy(value) for value in values]  # not map(): what a copy of a user's class raises may be StopIteration


def as_given(value: Any) -> Any:
    """Copy a value that its owner may change and hand over again.

    Does what ``own_copy`` does, but tuples and frozen dataclasses are passed as they are, whatever is in them: looking
    into each would cost every record as much as a copy.
    """
    copier = COPIERS[value.__class__]
    return value if copier is None else copier(value)


class _Form(NamedTuple):
    """How values of a class are copied.

    Attributes:
        inner_values: gives the values that a value holds; where there are only atoms, ``shallow`` is all of the copy.
        shallow: makes a copy that holds the same inner values; None = it is made of copies of these, as tuples are.
        replace: puts copies of inner values, except of ``ATOMS``, in their place; None = none of them is to be copied.
        frozen: the value itself can't be changed, only what it holds: it is no copy if there are only atoms.
    """

    inner_values: Callable[[Any], Iterable[Any]]
    shallow: Copier | None
    replace: _Replace | None
    frozen: bool = False


def _deep_copy(value: Any) -> Any:
    """Copy a value together with the values that it holds."""
    copies: _Copies = {}
    waiting: _Waiting = []
    try:
        copied = _part(value, copies, waiting)
    except RecursionError as error:
        raise _too_deep(value) from error
    return _completed(value, copied, copies, waiting) if waiting else copied


def _complete(value: Any, copied: Any, replace: _Replace) -> Any:
    """Replace the inner values of a shallow copy by copies, and return it."""
    copies: _Copies = {id(value): copied}
    waiting: _Waiting = []
    try:
        replace(copied, copies, waiting)
    except RecursionError as error:
        raise _too_deep(value) from error
    return _completed(value, copied, copies, waiting) if waiting else copied


def _completed(value: Any, copied: Any, copies: _Copies, waiting: _Waiting) -> Any:
    try:
        while waiting:
            replace, shallow = waiting.pop()
            replace(shallow, copies, waiting)
    except RecursionError as error:
        raise _too_deep(value) from error
    return copied


def _too_deep(value: Any) -> SerializationError:
    return SerializationError(
        f"a record of type {class_name(type(value))} can't be copied: it holds tuples in tuples, deeper than Python's "
        "recursion limit, which pickle does not take either; use lists or objects in place of tuples"
    )


def _part(value: Any, copies: _Copies, waiting: _Waiting) -> Any:
    """Copy a value that is none of ``ATOMS``; inner values of the copy may still wait for their replacement.

    Args:
        value: to be copied.
        copies: copies of values that were met before, by the ``id`` of the value.
        waiting: shallow copies whose inner values have to be replaced.
    """
    place = id(value)
    if place in copies:
        return copies[place]
    cls = type(value)
    if cls is dict:
        copied = value.copy()
        if not ATOMS.issuperset(map(type, value.values())):
            waiting.append((_replace_in_dict, copied))
    elif cls is list:
        copied = value.copy()
        if not ATOMS.issuperset(map(type, value)):
            waiting.append((_replace_in_list, copied))
    else:
        form = _FORMS[cls]
        if form is None:
            return value
        inner_values, shallow, replace, frozen = form
        atoms = ATOMS.issuperset(map(type, inner_values(value)))
        if atoms and frozen:
            return value
        if shallow is not None:
            copied = shallow(value)
        else:
            parts = []
            for item in tuple.__iter__(value):  # a loop: each level of tuples takes one frame, as in pickle
                parts.append(item if item.__class__ in ATOMS else _part(item, copies, waiting))
            if replace is None and all(map(is_, parts, tuple.__iter__(value))):
                copied = value
            else:
                copied = tuple.__new__(cls, parts)
                _copy_attributes([], value, copied)
        if replace is not None and not atoms:
            waiting.append((replace, copied))
    copies[place] = copied
    return copied


# -- records of the most common classes: those that hold only atoms need no waiting list


def _of_dict(value: dict[Any, Any]) -> dict[Any, Any]:
    copied = value.copy()
    return copied if ATOMS.issuperset(map(type, value.values())) else _complete(value, copied, _replace_in_dict)


def _of_list(value: Any) -> Any:
    copied = value.copy()
    return copied if ATOMS.issuperset(map(type, value)) else _complete(value, copied, _replace_in_list)


def _of_tuple(value: tuple[Any, ...]) -> Any:
    for item in value:
        cls = item.__class__
        if cls not in ATOMS and not (cls is tuple and ATOMS.issuperset(map(type, item))):
            return _deep_copy(value)
    return value


def _of_row(value: Row) -> Row:
    copied = _shallow_row(value)
    return copied if ATOMS.issuperset(map(type, value._values)) else _complete(value, copied, _replace_in_row)


def _of_dataclass(value: Any) -> Any:
    copied = object.__new__(value.__class__)
    attributes = copied.__dict__
    attributes.update(value.__dict__)
    return (
        copied if ATOMS.issuperset(map(type, attributes.values())) else _complete(value, copied, _replace_in_attributes)
    )


def _of_slots(slots: _Slots, replace: _Replace, value: Any) -> Any:
    copied = object.__new__(type(value))
    atoms = True
    for get, put in slots:
        try:
            item = get(value)
        except AttributeError:  # it is empty
            continue
        put(copied, item)
        atoms = atoms and item.__class__ in ATOMS
    return copied if atoms else _complete(value, copied, replace)


def _of_any(form: _Form, value: Any) -> Any:
    inner_values, shallow, replace, _ = form
    assert shallow is not None
    assert replace is not None
    copied = shallow(value)
    return copied if ATOMS.issuperset(map(type, inner_values(copied))) else _complete(value, copied, replace)


# -- what values hold


def _nothing(value: Any) -> Iterable[Any]:
    return ()


def _attributes(value: Any) -> Iterable[Any]:
    return value.__dict__.values()  # type: ignore[no-any-return]


def _all_inner(base: type, slots: _Slots, value: Any) -> Iterable[Any]:
    """Elements and attributes of a value of a class that is derived from a built-in one."""
    parts: list[Any] = []
    for get, _ in slots:
        try:
            parts.append(get(value))
        except AttributeError:  # it is empty
            pass
    attributes = getattr(value, "__dict__", None)
    elements = _ELEMENTS[base](value)
    return chain(elements, parts, attributes.values()) if attributes else chain(elements, parts)


_ELEMENTS: Final[dict[type, Callable[[Any], Iterable[Any]]]] = {
    object: _nothing,
    tuple: tuple.__iter__,
    dict: dict.values,
    list: list.__iter__,
    set: _nothing,
    bytearray: _nothing,
    OrderedDict: dict.values,
    defaultdict: dict.values,
    Counter: dict.values,
    deque: deque.__iter__,
    Row: lambda value: value._values,
}
"""The elements of values of a built-in class, and of those derived from it; not those that are hashed."""


# -- shallow copies


def _shallow_row(value: Row) -> Row:
    row = Row.__new__(Row)
    row._fields, row._row_kind = value._fields, value._row_kind
    row._values = value._values.copy()
    return row


def _shallow_dataclass(value: Any) -> Any:
    copied = object.__new__(value.__class__)
    copied.__dict__.update(value.__dict__)
    return copied


def _shallow_array(value: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return value.copy(order="K") if value.flags.writeable else value


def _shallow_object(base: Any, slots: _Slots, value: Any) -> Any:
    """A copy of a value of a class that is derived from a built-in one; none of its own methods is called."""
    copied = base.__new__(type(value))
    _FILL[base](copied, value)
    _copy_attributes(slots, value, copied)
    return copied


def _copy_attributes(slots: _Slots, value: Any, copied: Any) -> None:
    for get, put in slots:
        try:
            put(copied, get(value))
        except AttributeError:  # it is empty
            pass
    attributes = getattr(value, "__dict__", None)
    if attributes:
        copied.__dict__.update(attributes)


def _fill_dict(copied: dict[Any, Any], value: dict[Any, Any]) -> None:
    dict.update(copied, dict.items(value))


def _fill_ordered(copied: OrderedDict[Any, Any], value: OrderedDict[Any, Any]) -> None:
    for key, item in OrderedDict.items(value):
        OrderedDict.__setitem__(copied, key, item)


def _fill_default(copied: defaultdict[Any, Any], value: defaultdict[Any, Any]) -> None:
    copied.default_factory = value.default_factory
    _fill_dict(copied, value)


def _fill_row(copied: Row, value: Row) -> None:
    copied._fields, copied._row_kind, copied._values = value._fields, value._row_kind, value._values.copy()


_FILL: Final[dict[type, Callable[[Any, Any], None]]] = {
    object: lambda copied, value: None,
    dict: _fill_dict,
    list: lambda copied, value: list.extend(copied, list.__iter__(value)),
    set: lambda copied, value: set.update(copied, set.__iter__(value)),
    bytearray: bytearray.extend,
    OrderedDict: _fill_ordered,
    defaultdict: _fill_default,
    Counter: _fill_dict,
    deque: lambda copied, value: deque.__init__(copied, deque.__iter__(value), value.maxlen),
    Row: _fill_row,
}
"""Puts the elements of a value into an empty one of the same class."""


# -- copies of what they hold


def _replace_in_dict(copied: dict[Any, Any], copies: _Copies, waiting: _Waiting) -> None:
    put = dict.__setitem__
    for key, item in dict.items(copied):
        if item.__class__ not in ATOMS:
            put(copied, key, _part(item, copies, waiting))  # the key is there already: it stays at its place


def _replace_in_list(copied: list[Any], copies: _Copies, waiting: _Waiting) -> None:
    put = list.__setitem__
    for place, item in enumerate(list.__iter__(copied)):
        if item.__class__ not in ATOMS:
            put(copied, place, _part(item, copies, waiting))


def _replace_in_deque(copied: deque[Any], copies: _Copies, waiting: _Waiting) -> None:
    items = [item if item.__class__ in ATOMS else _part(item, copies, waiting) for item in deque.__iter__(copied)]
    deque.clear(copied)
    deque.extend(copied, items)


def _replace_in_row(copied: Row, copies: _Copies, waiting: _Waiting) -> None:
    _replace_in_list(copied._values, copies, waiting)


def _replace_in_array(copied: np.ndarray[Any, Any], copies: _Copies, waiting: _Waiting) -> None:
    if copied.dtype.kind == "O" and copied.flags.writeable:
        for place, item in enumerate(copied.flat):
            if item.__class__ not in ATOMS:
                copied.flat[place] = _part(item, copies, waiting)


def _replace_in_attributes(copied: Any, copies: _Copies, waiting: _Waiting) -> None:
    _replace_in_dict(copied.__dict__, copies, waiting)


def _replace_in_object(
    elements: _Replace | None,
    slots: _Slots,
    copied: Any,
    copies: _Copies,
    waiting: _Waiting,
) -> None:
    if elements is not None:
        elements(copied, copies, waiting)
    for get, put in slots:
        try:
            item = get(copied)
        except AttributeError:  # it is empty
            continue
        if item.__class__ not in ATOMS:
            put(copied, _part(item, copies, waiting))
    attributes = getattr(copied, "__dict__", None)
    if attributes:
        _replace_in_dict(attributes, copies, waiting)


_REPLACE: Final[dict[type, _Replace | None]] = {
    object: None,
    tuple: None,
    dict: _replace_in_dict,
    list: _replace_in_list,
    set: None,
    bytearray: None,
    OrderedDict: _replace_in_dict,
    defaultdict: _replace_in_dict,
    Counter: _replace_in_dict,
    deque: _replace_in_deque,
    Row: _replace_in_row,
}
"""Replaces the elements of values of a built-in class, and of those derived from it."""


# -- classes


class _Forms(dict[type, _Form | None]):
    """How values of each class that was met are copied; None: they are passed as they are.

    Classes may be made at run time, so it starts afresh when it is full.
    """

    def __missing__(self, cls: type) -> _Form | None:
        if len(self) >= _MOST_CLASSES:
            self.clear()
            self.update(_BUILT_IN)
        self[cls] = form = _form_of(cls)
        return form


def _form_of(cls: type) -> _Form | None:
    if issubclass(cls, np.ndarray):
        return _Form(lambda value: (value,), _shallow_array, _replace_in_array)
    if issubclass(cls, array):
        return _Form(_nothing, lambda value: value[:], None)
    if any(parent.__name__ in _PANDAS and str(parent.__module__).startswith("pandas.") for parent in cls.__mro__):
        return _Form(_nothing, methodcaller("copy"), None)
    base = next(parent for parent in cls.__mro__ if parent in _ELEMENTS)
    own_classes = [parent for parent in cls.__mro__ if parent not in base.__mro__]
    if any(name in vars(parent) for parent in own_classes for name in _OWN_COPIES):
        return None
    slots = _slots_of(cls)
    inner_values = partial(_all_inner, base, slots)
    replace = partial(_replace_in_object, _REPLACE[base], slots)
    if base is tuple:
        if isinstance(cls.__new__, BuiltinFunctionType) and cls.__new__ is not tuple.__new__:
            return None  # such as time.struct_time, which holds numbers
        if not cls.__dictoffset__:
            return _Form(tuple.__iter__, None, None, frozen=True)
        return _Form(inner_values, None, replace, frozen=True)
    frozen = False
    if base is object:
        if not dataclasses.is_dataclass(cls) or cls.__new__ is not object.__new__:
            return None
        frozen = cls.__dataclass_params__.frozen  # type: ignore[attr-defined]
        if not slots:
            return _Form(_attributes, _shallow_dataclass, _replace_in_attributes, frozen)
    return _Form(inner_values, partial(_shallow_object, base, slots), replace, frozen)


def _slots_of(cls: type) -> _Slots:
    """The slots that Python classes have made; those of built-in ones are their own business."""
    return [
        (member.__get__, member.__set__)
        for parent in cls.__mro__
        if parent not in _ELEMENTS
        for member in vars(parent).values()
        if isinstance(member, MemberDescriptorType)
    ]


class _Copiers(dict[type, Copier | None]):
    """What copies values of a class where results wait; None: they are passed as they are."""

    def __missing__(self, cls: type) -> Copier | None:
        if len(self) >= _MOST_CLASSES:
            self.clear()
            self.update(_COMMON)
        form = _FORMS[cls]
        copier: Copier | None
        if form is None or form.frozen:
            copier = None
        elif form.replace is None:
            copier = form.shallow
        elif form.shallow is _shallow_dataclass:
            copier = _of_dataclass
        else:
            slots = _slots_of(cls)
            assert form.replace is not None
            plain = dataclasses.is_dataclass(cls) and slots and not cls.__dictoffset__
            copier = partial(_of_slots, slots, form.replace) if plain else partial(_of_any, form)
        self[cls] = copier
        return copier


_BUILT_IN: Final[dict[type, _Form | None]] = {
    **dict.fromkeys(ATOMS),
    tuple: _Form(tuple.__iter__, None, None, frozen=True),
    set: _Form(_nothing, set.copy, None),
    bytearray: _Form(_nothing, bytearray.copy, None),
    OrderedDict: _Form(dict.values, OrderedDict.copy, _replace_in_dict),
    defaultdict: _Form(dict.values, defaultdict.copy, _replace_in_dict),
    Counter: _Form(dict.values, Counter.copy, _replace_in_dict),
    deque: _Form(deque.__iter__, deque.copy, _replace_in_deque),
    Row: _Form(_ELEMENTS[Row], _shallow_row, _replace_in_row),
}
_FORMS: Final = _Forms(_BUILT_IN)
_COMMON: Final[dict[type, Copier | None]] = {
    **dict.fromkeys(ATOMS),
    tuple: None,
    dict: _of_dict,
    list: _of_list,
    set: set.copy,
    bytearray: bytearray.copy,
    Row: _of_row,
}
COPIERS: Final = _Copiers(_COMMON)
