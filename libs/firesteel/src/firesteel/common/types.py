"""``Row`` and ``RowKind``: PyFlink's record type, in a form that is small and fast to pickle.

Behaviour follows PyFlink 2.3: the fields of a row have positions, or positions and names. A row with names never equals
one without; rows with names compare by name, whatever their order; the row kind takes part in equality.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from typing import Any, overload

__all__ = ["Row", "RowKind"]


class RowKind(Enum):
    """Change of a table that a row describes: insert, update (before and after image), delete.

    Examples:
        ```python
        from firesteel.common import Row, RowKind

        row = Row.of_kind(RowKind.DELETE, "Anna", 7)
        print(row.get_row_kind().name)
        ```

        ```text
        DELETE
        ```
    """

    INSERT = 0
    UPDATE_BEFORE = 1
    UPDATE_AFTER = 2
    DELETE = 3

    def __str__(self) -> str:
        return _KIND_SIGNS[self.value]


_KIND_SIGNS = ("+I", "-U", "+U", "-D")
_KINDS = tuple(RowKind)
_INSERT = RowKind.INSERT


class Row:
    """A record with a fixed number of fields, accessed by position, by name (``row["id"]``) or as attributes.

    ``Row(1, "a")`` has positions only, ``Row(id=1, name="a")`` has names too. Calling a row of names makes rows
    with these names: ``Person = Row("name", "age")``, then ``Person("Ann", 31)``. Attributes are read-only; fields can
    be set by ``row[i] = v``.

    Raises:
        ValueError: positional and named values are mixed.

    Examples:
        ```python
        from firesteel.common import Row

        anna = Row(name="Anna", age=7)
        print(anna.name, anna["age"], anna.as_dict())
        ```

        ```text
        Anna 7 {'name': 'Anna', 'age': 7}
        ```
    """

    __slots__ = ("_fields", "_row_kind", "_values")

    _fields: tuple[str, ...] | None
    _values: list[Any]
    _row_kind: RowKind

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if kwargs:
            if args:
                raise ValueError("A Row takes positional values or named values, not both.")
            self._fields = tuple(kwargs)
            self._values = list(kwargs.values())
        else:
            self._fields = None
            self._values = list(args)
        self._row_kind = _INSERT

    @staticmethod
    def of_kind(row_kind: RowKind, *args: Any, **kwargs: Any) -> Row:
        """Makes a row of the given kind from positional or named values."""
        row = Row(*args, **kwargs)
        row.set_row_kind(row_kind)
        return row

    def as_dict(self, recursive: bool = False) -> dict[str, Any]:
        """Returns names and values as a dict; ``recursive`` also converts rows inside of it, of its lists and dicts.

        Raises:
            TypeError: the row has no field names.
        """
        if self._fields is None:
            raise TypeError("A Row without field names cannot become a dict; name them with set_field_names().")
        if recursive:
            return {name: _plain(value) for name, value in zip(self._fields, self._values, strict=False)}
        return dict(zip(self._fields, self._values, strict=False))

    def get_row_kind(self) -> RowKind:
        """Returns the row's kind (``RowKind.INSERT`` unless set)."""
        return self._row_kind

    def set_row_kind(self, row_kind: RowKind) -> None:
        """Sets the row's kind.

        Raises:
            TypeError: the kind is not a ``RowKind``.
        """
        if not isinstance(row_kind, RowKind):
            raise TypeError(f"A row kind is a RowKind, not {type(row_kind).__name__}.")
        self._row_kind = row_kind

    def set_field_names(self, field_names: Sequence[str]) -> None:
        """Names the fields, in order of position."""
        self._fields = tuple(field_names)

    def get_fields_by_names(self, names: Sequence[str]) -> list[Any]:
        """Returns the values of fields in the order of ``names``; all values if the row has no names.

        Raises:
            ValueError: a name is not a field of this row.
        """
        fields = self._fields
        if fields is None or tuple(names) == fields:
            return self._values
        missing = sorted(set(names).difference(fields))
        if missing:
            raise ValueError(f"Field names {missing} do not exist in a Row with the fields {list(fields)}.")
        return [self._values[fields.index(name)] for name in names]

    def __contains__(self, item: object) -> bool:
        return item in self._values

    def __call__(self, *args: Any) -> Row:
        """Makes a row whose field names are this row's values.

        Raises:
            ValueError: more values than names.
        """
        if len(args) > len(self._values):
            raise ValueError(f"{len(args)} values do not fit the {len(self._values)} fields of {self!r}.")
        return make_row(tuple(self._values), list(args), self._row_kind)

    @overload
    def __getitem__(self, item: int | str) -> Any: ...
    @overload
    def __getitem__(self, item: slice) -> list[Any]: ...
    def __getitem__(self, item: int | str | slice) -> Any:
        if isinstance(item, (int, slice)):
            return self._values[item]
        return self._values[self._index(item)]

    def __setitem__(self, item: int | str | slice, value: Any) -> None:
        if isinstance(item, (int, slice)):
            self._values[item] = value
        else:
            self._values[self._index(item)] = value

    def _index(self, name: object) -> int:
        if self._fields is None:
            raise KeyError(f"{name!r}: this Row has no field names.")
        try:
            return self._fields.index(name)
        except ValueError:
            raise ValueError(f"{name!r} is not a field of this Row; its fields are {list(self._fields)}.") from None

    def __getattr__(self, item: str) -> Any:
        # Called only for what is neither a method nor a slot. Names with an underscore in front are
        # looked up last, so that copy, pickle and inspection do not mistake fields for protocol methods.
        if item.startswith("__"):
            raise AttributeError(item)
        try:
            fields = object.__getattribute__(self, "_fields")
            return self._values[fields.index(item)]
        except (ValueError, IndexError, AttributeError, TypeError):
            raise AttributeError(f"'{type(self).__name__}' has no field {item!r}") from None

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        if type(self) is not Row:
            return _remake_subclass, (type(self), self._fields, self._values, self._row_kind.value)
        # The fewest arguments that suffice: rows are pickled in masses.
        if self._row_kind is not _INSERT:
            return _remake, (self._values, self._fields, self._row_kind.value)
        if self._fields is not None:
            return _remake, (self._values, self._fields)
        return _remake, (self._values,)

    def __copy__(self) -> Row:
        row = type(self).__new__(type(self))
        row._fields, row._values, row._row_kind = self._fields, list(self._values), self._row_kind
        return row

    def __repr__(self) -> str:
        if self._fields is None:
            return f"<Row({', '.join(map(repr, self._values))})>"
        return f"Row({', '.join(f'{n}={v!r}' for n, v in zip(self._fields, self._values, strict=False))})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Row):
            return NotImplemented
        if self._row_kind is not other._row_kind:
            return False
        own_fields, other_fields = self._fields, other._fields
        if own_fields == other_fields:
            return self._values == other._values
        if own_fields is None or other_fields is None:
            return False
        return sorted(own_fields) == sorted(other_fields) and self._sorted_values() == other._sorted_values()

    def _sorted_values(self) -> list[Any]:
        by_name = sorted(zip(self._fields or (), self._values, strict=False), key=lambda pair: pair[0])
        return [value for _, value in by_name]

    def __hash__(self) -> int:
        return hash(tuple(self._values if self._fields is None else self._sorted_values()))

    def __iter__(self) -> Iterator[Any]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


def make_row(fields: tuple[str, ...] | None, values: Iterable[Any], kind: RowKind = _INSERT) -> Row:
    """Make a row, faster than ``Row()``; a list of values is not copied."""
    row = Row.__new__(Row)
    row._fields = fields
    row._values = values if type(values) is list else list(values)
    row._row_kind = kind
    return row


class _Rows:
    """Stands for a list of rows with the same fields in a pickle; unpickling gives the list."""

    __slots__ = ("_rows",)

    def __init__(self, rows: list[Row]) -> None:
        self._rows = rows

    def __reduce__(self) -> tuple[Any, ...]:
        return _remake_all, ([row._values[:] for row in self._rows], self._rows[0]._fields)


def to_pickle(values: list[Any]) -> Any:
    """Return the object to pickle instead of a list: many rows with the same fields then cost a third."""
    if len(values) < 2 or values[0].__class__ is not Row:
        return values
    fields = values[0]._fields
    for value in values:
        if value.__class__ is not Row or value._row_kind is not _INSERT or value._fields != fields:
            return values
    return _Rows(values)


def _remake_all(lists: list[list[Any]], fields: tuple[str, ...] | None) -> list[Row]:
    rows = []
    create = Row.__new__
    for values in lists:
        row = create(Row)
        row._values, row._fields, row._row_kind = values, fields, _INSERT
        rows.append(row)
    return rows


def _remake(values: list[Any], fields: tuple[str, ...] | None = None, kind: int = 0) -> Row:
    row = Row.__new__(Row)
    row._values = values
    row._fields = fields
    row._row_kind = _KINDS[kind]
    return row


def _remake_subclass(cls: type[Row], fields: tuple[str, ...] | None, values: list[Any], kind: int) -> Row:
    row = cls.__new__(cls)
    row._values, row._fields, row._row_kind = values, fields, _KINDS[kind]
    return row


def _plain(value: Any) -> Any:
    if isinstance(value, Row):
        return value.as_dict(True)
    if isinstance(value, list):
        return [_plain(element) for element in value]
    if isinstance(value, dict):
        return {key: _plain(element) for key, element in value.items()}
    return value
