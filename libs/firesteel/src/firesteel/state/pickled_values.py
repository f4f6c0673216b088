"""Values of pickled state whose classes have changed; classes are found by module and name.

A class with a ``__setstate__`` of its own converts its objects itself. Objects of other dataclasses get the defaults of
fields that did not exist when they were written.
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
    """Give objects of dataclasses, also inside lists, tuples and dicts, the fields that they lack.

    Args:
        state: its name, for errors.
        values: unpickled; changed in place.

    Raises:
        StateMigrationError: a field has no default; names the class.
    """
    fields_by_class: dict[type[Any], _Fields] = {}
    for value in values:
        if value.__class__ not in _CONTAINERS:
            _complete(state, value, fields_by_class)
            continue
        containers, visited = [value], {id(value)}  # containers may be nested to any depth, and contain themselves
        while containers:
            container = containers.pop()
            for item in container.values() if container.__class__ is dict else container:
                if item.__class__ not in _CONTAINERS:
                    _complete(state, item, fields_by_class)
                elif id(item) not in visited:
                    visited.add(id(item))
                    containers.append(item)


def _complete(state: str, value: Any, fields_by_class: dict[type[Any], _Fields]) -> None:
    cls = value.__class__
    fields = fields_by_class.get(cls)
    if fields is None:
        fields = fields_by_class[cls] = _fields_of(cls)
    if not fields:
        return
    instance_fields = getattr(value, "__dict__", None)
    for field in fields:
        if (
            (field.name in instance_fields)
            if instance_fields is not None
            else (getattr(value, field.name, _MISSING) is not _MISSING)
        ):
            continue
        if field.default is not dataclasses.MISSING:
            object.__setattr__(value, field.name, field.default)
        elif field.default_factory is not dataclasses.MISSING:
            object.__setattr__(value, field.name, field.default_factory())
        elif field.init:  # fields without ``init`` may be left empty by the class itself
            raise StateMigrationError(
                state,
                field.name,
                f"{cls.__qualname__} has a field that was not there when its objects were written: give it a default, "
                "or the class a __setstate__",
            )


def _fields_of(cls: type[Any]) -> _Fields:
    """Fields to complete; none of a class that is no dataclass, or has its own ``__setstate__``."""
    if not dataclasses.is_dataclass(cls):
        return ()
    setstate = getattr(cls, "__setstate__", None)
    if (
        setstate is not None and getattr(setstate, "__module__", "") != dataclasses.__name__
    ):  # slots bring a generated one
        return ()
    return dataclasses.fields(cls)


def read(state: str, entries: Iterable[tuple[Any, Any]]) -> Iterator[tuple[Any, Any]]:
    """Iterate over entries while they are unpickled.

    Raises:
        StateMigrationError: a class does not exist any more, or refuses its earlier objects.
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
            reason += "; classes are found by module and name: keep them there"
        raise StateMigrationError(state, "", reason) from error
