"""Copies of mutable records, so that two operators with the same record do not see each other's changes.

Copied are dicts, lists, sets, byte arrays, the mutable classes of ``collections``, classes derived from these, rows,
dataclasses, arrays of numpy, and frames and series of pandas; and such values inside of them, also inside of tuples.
Objects of other classes are passed as they are, because it is not known what a copy of them would mean.

The algorithm needs no recursion, so records may be nested to any depth: a copy is shallow at first, and is put on a
waiting list, until its mutable inner values are replaced by (shallow) copies, which wait in turn. A dictionary of the
copies made so far preserves cycles, and values that occur in several places. Only tuples, which can't be changed later,
are made after copies of their elements.
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
"""Functions that get and set each slot of a class."""
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
"""Types of immutable values without inner values."""
_MOST_CLASSES: Final = 10_000
"""Number of classes whose forms are remembered; programs may make classes without end."""
_PANDAS: Final = frozenset({"DataFrame", "Series"})
_OWN_COPIES: Final = ("__reduce__", "__reduce_ex__", "__copy__", "__deepcopy__")
"""A class that defines one of these methods decides itself how it is copied: its objects are passed as they are."""


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
    """Copy a value that the function which returned it may change later.

    Does what ``own_copy`` does, except that tuples and frozen dataclasses are passed as they are, whatever is in them:
    checking their elements would cost as much for each record as a copy.
    """
    copier = COPIERS[value.__class__]
    return value if copier is None else copier(value)


class _Form(NamedTuple):
    """How values of a class are copied.

    Attributes:
        inner_values: returns the values inside of a value; if all are atoms, ``shallow`` makes the whole copy.
        shallow: makes a copy with the same inner values; None = the copy is made from copies of them, as for tuples.
        replace: replaces all inner values except ``ATOMS`` by copies; None = the inner values need no copies.
        frozen: whether only inner values can be changed: if all are atoms, the value itself serves as the copy.
    """

    inner_values: Callable[[Any], Iterable[Any]]
    shallow: Copier | None
    replace: _Replace | None
    frozen: bool = False


def _deep_copy(value: Any) -> Any:
    """Copy a value together with its inner values."""
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
        while waiting:  # each replacement may add further copies to the list
            replace, shallow = waiting.pop()
            replace(shallow, copies, waiting)
    except RecursionError as error:
        raise _too_deep(value) from error
    return copied


def _too_deep(value: Any) -> SerializationError:
    return SerializationError(
        f"a record of type {class_name(type(value))} can't be copied: it holds tuples in tuples, deeper than Python's "
        "recursion limit, so pickle can't write it either; use lists or objects instead of tuples"
    )


def _part(value: Any, copies: _Copies, waiting: _Waiting) -> Any:
    """Copy a value that is none of ``ATOMS``; inner values of the copy may still wait for their replacement.

    Args:
        value: the value to copy.
        copies: copies made so far, by the ``id`` of the original value.
        waiting: shallow copies whose inner values have to be replaced.
    """
    value_id = id(value)
    if value_id in copies:  # a cycle, or a value that occurs several times
        return copies[value_id]
    cls = type(value)
    # Dicts and lists first, without a look-up of their form: they are the most frequent.
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
        else:  # a tuple: copy its elements first, and keep the tuple itself if none of them was copied
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
    copies[value_id] = copied
    return copied


# -- records of the most common classes: if they contain only atoms, they need no waiting list


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
        except AttributeError:  # the slot is empty
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


# -- inner values


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
        except AttributeError:  # the slot is empty
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
"""Built-in class -> elements of its values and of those of derived classes; without keys and set elements."""


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
    """Copy a value of a class that is derived from a built-in one, without calling any methods of that class."""
    copied = base.__new__(type(value))
    _FILL[base](copied, value)
    _copy_attributes(slots, value, copied)
    return copied


def _copy_attributes(slots: _Slots, value: Any, copied: Any) -> None:
    for get, put in slots:
        try:
            put(copied, get(value))
        except AttributeError:  # the slot is empty
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
"""Built-in class -> function that puts a value's elements into an empty copy."""


# -- replacement of inner values by copies


def _replace_in_dict(copied: dict[Any, Any], copies: _Copies, waiting: _Waiting) -> None:
    put = dict.__setitem__
    for key, item in dict.items(copied):
        if item.__class__ not in ATOMS:
            put(copied, key, _part(item, copies, waiting))  # an existing key keeps its place in the order


def _replace_in_list(copied: list[Any], copies: _Copies, waiting: _Waiting) -> None:
    put = list.__setitem__
    for place, item in enumerate(list.__iter__(copied)):
        if item.__class__ not in ATOMS:
            put(copied, place, _part(item, copies, waiting))


def _replace_in_deque(copied: deque[Any], copies: _Copies, waiting: _Waiting) -> None:
    # A deque must not change while it is iterated, so its elements are collected first.
    items = [item if item.__class__ in ATOMS else _part(item, copies, waiting) for item in deque.__iter__(copied)]
    deque.clear(copied)
    deque.extend(copied, items)


def _replace_in_row(copied: Row, copies: _Copies, waiting: _Waiting) -> None:
    _replace_in_list(copied._values, copies, waiting)


def _replace_in_array(copied: np.ndarray[Any, Any], copies: _Copies, waiting: _Waiting) -> None:
    # Only arrays of objects have inner values; a read-only array was not copied, so it must not be changed.
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
        except AttributeError:  # the slot is empty
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
"""Built-in class -> function that replaces the elements of its values, and of those of derived classes."""


# -- classes


class _Forms(dict[type, _Form | None]):
    """Forms of all classes seen so far; None: values of the class are passed as they are.

    Programs may make classes at run time, so a full dict is cleared.
    """

    def __missing__(self, cls: type) -> _Form | None:
        if len(self) >= _MOST_CLASSES:
            self.clear()
            self.update(_BUILT_IN)
        self[cls] = form = _form_of(cls)
        return form


def _form_of(cls: type) -> _Form | None:
    if issubclass(cls, np.ndarray):
        # The array stands for its elements: _replace_in_array decides by the dtype whether there are any to replace.
        return _Form(lambda value: (value,), _shallow_array, _replace_in_array)
    if issubclass(cls, array):
        return _Form(_nothing, lambda value: value[:], None)
    # pandas is recognized by its names, so that it need not be imported.
    if any(parent.__name__ in _PANDAS and str(parent.__module__).startswith("pandas.") for parent in cls.__mro__):
        return _Form(_nothing, methodcaller("copy"), None)
    # The built-in class that cls is derived from says where its elements are; own slots and attributes come on top.
    base = next(parent for parent in cls.__mro__ if parent in _ELEMENTS)
    own_classes = [parent for parent in cls.__mro__ if parent not in base.__mro__]
    if any(name in vars(parent) for parent in own_classes for name in _OWN_COPIES):
        return None
    slots = _slots_of(cls)
    inner_values = partial(_all_inner, base, slots)
    replace = partial(_replace_in_object, _REPLACE[base], slots)
    if base is tuple:
        if isinstance(cls.__new__, BuiltinFunctionType) and cls.__new__ is not tuple.__new__:
            return None  # a built-in one such as time.struct_time, which contains numbers
        if not cls.__dictoffset__:
            return _Form(tuple.__iter__, None, None, frozen=True)
        return _Form(inner_values, None, replace, frozen=True)
    frozen = False
    if base is object:
        # Of classes without a built-in base only dataclasses are copied: see the head of this module.
        if not dataclasses.is_dataclass(cls) or cls.__new__ is not object.__new__:
            return None
        frozen = cls.__dataclass_params__.frozen  # type: ignore[attr-defined]
        if not slots:
            return _Form(_attributes, _shallow_dataclass, _replace_in_attributes, frozen)
    return _Form(inner_values, partial(_shallow_object, base, slots), replace, frozen)


def _slots_of(cls: type) -> _Slots:
    """The slots that Python classes define; the built-in classes take care of their own ones."""
    return [
        (member.__get__, member.__set__)
        for parent in cls.__mro__
        if parent not in _ELEMENTS
        for member in vars(parent).values()
        if isinstance(member, MemberDescriptorType)
    ]


class _Copiers(dict[type, Copier | None]):
    """Functions for ``as_given`` by class; None: values of the class are passed as they are."""

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
