"""Names and types of the columns of streams that compute relations."""

from __future__ import annotations

from collections.abc import Sequence

from firesteel.common.typeinfo import RowTypeInfo
from firesteel_sql.plan.relations import Column
from firesteel_sql.types.columns import type_info_of


def names_of(columns: Sequence[Column]) -> list[str]:
    """Names for the columns of a stream, where a relation may have one name twice."""
    names: list[str] = []
    for column in columns:
        name, count = column.name, 0
        while name in names:
            name = f"{column.name}{count}"
            count += 1
        names.append(name)
    return names


def row_type_of(columns: Sequence[Column]) -> RowTypeInfo:
    """The type of the rows of a stream with these columns."""
    return RowTypeInfo([type_info_of(column.type) for column in columns], names_of(columns))
