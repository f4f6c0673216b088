"""Values of pickled state whose classes have changed: they are found by module and name.

A class with a ``__setstate__`` of its own brings its objects up to date itself. Objects of other dataclasses get the
defaults of fields that were not there when they were written.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Any, Final

from firesteel.core.errors import StateMigrationError, TaskInterrupt
from firesteel.state.schema import Schema

_MISSING: Final = object()
_CONTAINERS: Final = frozenset({list, tuple, dict})
_Fields = tuple["dataclasses.Field[Any]", ...]


def holds_pickles(schema: Schema) -> bool:
    """Whether values, elements or values of maps of a type are pickled."""
    inner = schema.get("element") or schema.get("value") or schema
    return bool(inner.get("type") == "pickled")


def complete(state: str, values: Iterable[Any]) -> None:
    """Give objects of dataclasses, also in lists, tuples and dicts, the fields that they lack.

    Args:
        state: name of it, for errors.
        values: that were unpickled; changed in place.

    Raises:
        StateMigrationError: a field has no default; names the class.
    """
    known: dict[type[Any], _Fields] = {}
    for value in values:
        if value.__class__ not in _CONTAINERS:
            _complete(state, value, known)
            continue
        containers, seen = [value], {id(value)}  # they may be nested to any depth, and hold themselves
        while containers:
            container = containers.pop()
            for item in container.values() if container.__class__ is dict else container:
                if item.__class__ not in _CONTAINERS:
                    _complete(state, item, known)
                elif id(item) not in seen:
                    seen.add(id(item))
                    containers.append(item)


def _complete(state: str, value: Any, known: dict[type[Any], _Fields]) -> None:
    cls = value.__class__
    fields = known.get(cls)
    if fields is None:
        fields = known[cls] = _fields_of(cls)
    if not fields:
        return
    there = getattr(value, "__dict__", None)
    for field in fields:
        if (field.name in there) if there is not None else (getattr(value, field.name, _MISSING) is not _MISSING):
            continue
        if field.default is not dataclasses.MISSING:
            object.__setattr__(value, field.name, field.default)
        elif field.default_factory is not dataclasses.MISSING:
            object.__setattr__(value, field.name, field.default_factory())
        elif field.init:  # the class itself may leave others empty
            raise StateMigrationError(
                state,
                field.name,
                f"{cls.__qualname__} has a field that was not there when its objects were written: give it a default, "
                "or the class a __setstate__",
            )


def _fields_of(cls: type[Any]) -> _Fields:
    """Those to look at; none of a class that is no dataclass, or sees to it itself."""
    if not dataclasses.is_dataclass(cls):
        return ()
    own = getattr(cls, "__setstate__", None)
    if own is not None and getattr(own, "__module__", "") != dataclasses.__name__:  # those with slots have one
        return ()
    return dataclasses.fields(cls)


def read(state: str, entries: Iterable[tuple[Any, Any]]) -> Iterator[tuple[Any, Any]]:
    """The entries, as they are unpickled.

    Raises:
        StateMigrationError: a class is not there any more, or refuses its objects of before.
    """
    try:
        yield from entries
    except StateMigrationError:
        raise
    except TaskInterrupt:
        raise
    except BaseException as error:  # __setstate__ is the user's
        reason = f"its values can't be unpickled, {type(error).__qualname__}: {error}"
        if isinstance(error, AttributeError | ImportError):
            reason += "; classes are looked for by module and name: keep them there"
        raise StateMigrationError(state, "", reason) from error
