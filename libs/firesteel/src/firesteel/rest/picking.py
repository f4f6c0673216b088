"""Answers that repeat rows of an archive: the type of the answer says which fields."""

from __future__ import annotations

import functools
from collections.abc import Hashable, Mapping
from typing import Any, NotRequired, TypeVar, cast, get_origin, get_type_hints

Row = TypeVar("Row")


def picked(kind: type[Row], source: Mapping[str, Any]) -> Row:
    """The fields of a ``TypedDict`` from a mapping that has them and others.

    Raises:
        KeyError: a required field is missing.
    """
    return cast(
        Row, {name: source[name] for name, required in fields_of(cast(Hashable, kind)) if required or name in source}
    )


@functools.cache
def fields_of(kind: Any) -> tuple[tuple[str, bool], ...]:
    """Names of the fields of a ``TypedDict``, and whether they are required.

    ``__required_keys__`` does not tell where annotations are texts, as in modules that postpone their evaluation.
    """
    hints = get_type_hints(kind, include_extras=True)
    return tuple(
        (name, name in kind.__required_keys__ and get_origin(hint) is not NotRequired) for name, hint in hints.items()
    )
