"""What operators store: which rows, about how many bytes, and what keeps that from growing without an end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from firesteel_sql.plan.changes import SourceMode, changelog_mode, results_are_final
from firesteel_sql.plan.relations import Column, Relation
from firesteel_sql.plan.stateful_relations import (
    AggregateCall,
    GroupBy,
    Join,
    JoinKind,
    Normalize,
    Over,
    Rank,
    SinkMaterializer,
    SortedRows,
    TemporalJoin,
    WindowKind,
    WindowTable,
    duration_text,
)

_KEY_BYTES: Final = 24
"""Bytes of a key in the index, besides its values."""
_ROW_BYTES: Final = 20
"""Bytes of a row in the list of its key, besides its values."""
_NUMBER_BYTES: Final = 8
_TEXT: Final = 24
"""Bytes of a text, of which only the type is known: 16 characters and its place."""
_NESTED: Final = 100
_BYTES: Final = {
    "BOOLEAN": 1, "TINYINT": 1, "SMALLINT": 2, "INT": 4, "FLOAT": 4, "DATE": 4, "DECIMAL": 16, "CHAR": _TEXT,
    "VARCHAR": _TEXT, "BINARY": _TEXT, "VARBINARY": _TEXT, "ARRAY": _NESTED, "MULTISET": _NESTED, "MAP": _NESTED,
    "ROW": _NESTED,
}  # fmt: skip
"""Bytes of values by type; of others 8."""
_OF_ALL_ROWS: Final = frozenset(
    ("LISTAGG", "STRING_AGG", "COLLECT", "ARRAY_AGG", "SINGLE_VALUE", "PERCENTILE", "JSON_OBJECTAGG", "JSON_ARRAYAGG")
)
"""Aggregates that store the arguments of all rows."""
_OF_CHANGING_ROWS: Final = frozenset(("MIN", "MAX", "FIRST_VALUE", "LAST_VALUE"))
"""Aggregates that do so where rows may go."""


@dataclass(frozen=True)
class StoredState:
    """A part of what an operator stores.

    Attributes:
        what: it stores, for people: ``left: each row (k, v)``.
        row_bytes: about how many bytes one of that takes.
        bound: what keeps it from growing without an end; None = nothing does.
        keys: names of the columns for whose different values it has a bounded number of rows each; empty = for each
            row of the input there may be one.
    """

    what: str
    row_bytes: int
    bound: str | None
    keys: tuple[str, ...] = ()

    @property
    def grows(self) -> bool:
        """Whether it may grow without an end."""
        return self.bound is None

    def text(self) -> str:
        """The state in EXPLAIN."""
        growth = f"grows with each new {', '.join(self.keys)}" if self.keys else "grows with each row"
        return f"{self.what}: about {self.row_bytes} bytes, {self.bound or growth}"


def stored_states(relation: Relation, source_mode: SourceMode) -> list[StoredState]:
    """What the operator of a relation stores; nothing for one without state.

    Args:
        relation: that is computed.
        source_mode: the changes that tables give.
    """
    states = _stored_states(relation, source_mode)
    times: int | tuple[int | None, int | None] | None = getattr(relation, "state_ttl", None)
    pair = times if isinstance(times, tuple) else (times,) * len(states)
    return [
        replace(state, bound=f"forgotten {duration_text(ttl)} after its last write") if ttl and state.grows else state
        for state, ttl in zip(states, pair, strict=True)
    ]


def _stored_states(relation: Relation, source_mode: SourceMode) -> list[StoredState]:
    match relation:
        case GroupBy():
            return list(_of_groups(relation, source_mode))
        case Join():
            return _of_join(relation)
        case TemporalJoin():
            left = _of_rows("left: each row", relation.left.columns, 3, "until the watermark passes its time")
            keys = tuple(relation.right.columns[key.right].name for key in relation.keys)
            bound = f"versions go as later ones of the same {', '.join(keys)} are valid"
            return [left, _of_rows("right: each version", relation.right.columns, 3, bound, keys)]
        case Rank():
            return [_of_rank(relation, source_mode)]
        case Over():
            return [_of_over(relation, source_mode)]
        case WindowTable(kind=WindowKind.SESSION):
            bound = "until the watermark passes the end of its session"
            return [_of_rows("each row", relation.input.columns, 1, bound)]
        case SortedRows():
            bound = "until the end of the input" if relation.at_end else "until the watermark passes its time"
            return [_of_rows("each row", relation.columns, 2, bound)]
        case Normalize():
            keys = tuple(relation.columns[place].name for place in relation.key)
            bound = "a row for each primary key of the table"
            return [_of_rows("each row", relation.columns, 0, bound, keys)]
        case SinkMaterializer():
            keys = tuple(relation.columns[place].name for place in relation.key)
            return [_of_rows("each row", relation.columns, 2, "the rows of the result", keys)]
    return []


def _of_rows(
    what: str, columns: Sequence[Column], numbers: int, bound: str | None, keys: tuple[str, ...] = ()
) -> StoredState:
    names = ", ".join(column.name for column in columns)
    size = _ROW_BYTES + numbers * _NUMBER_BYTES + _bytes_of(columns)
    return StoredState(f"{what} ({names})", size, bound, keys)


def _bytes_of(columns: Iterable[Column]) -> int:
    return sum(_BYTES.get(column.type.name, _NUMBER_BYTES) for column in columns)


def _of_groups(relation: GroupBy, source_mode: SourceMode) -> Iterator[StoredState]:
    inside = relation.input.columns
    keys = tuple(inside[place].name for place in relation.groups)
    is_append = changelog_mode(relation.input, source_mode).is_append
    if relation.window is not None:
        bound: str | None = "until the watermark passes the end of the window"
    elif not keys:
        bound = "one row"
    else:
        bound = None
    calls = [call for call in relation.calls if call.function not in _OF_ALL_ROWS and not _is_row_count(call)]
    size = _KEY_BYTES + _NUMBER_BYTES + _bytes_of(inside[place] for place in relation.groups)
    size += sum(_call_bytes(call, inside) for call in calls)
    texts = ", ".join(["the number of rows", *(call.text(inside) for call in calls)])
    what = f"for each {', '.join(keys)}" if keys else "for all rows"
    yield StoredState(f"{what}: {texts}", size, bound, keys)
    in_groups = None if relation.window is None else bound
    for arguments in dict.fromkeys(call.arguments for call in relation.calls if call.distinct):
        columns = [inside[place] for place in arguments]
        names = ", ".join(column.name for column in columns)
        size = _KEY_BYTES + _NUMBER_BYTES + _bytes_of([*columns, *(inside[place] for place in relation.groups)])
        yield StoredState(f"each different ({names}) of a group", size, in_groups)
    for call in relation.calls:
        if _stores_rows(call, is_append):
            columns = [inside[place] for place in (*call.arguments, *(key.place for key in call.order))]
            yield _of_rows(f"{call.text(inside)}: of each row", columns, 1, in_groups)


def _is_row_count(call: AggregateCall) -> bool:
    return call.function == "COUNT" and not call.arguments and call.filter is None


def _stores_rows(call: AggregateCall, is_append: bool) -> bool:
    return call.function in _OF_ALL_ROWS or (call.function in _OF_CHANGING_ROWS and (not is_append or bool(call.order)))


def _call_bytes(call: AggregateCall, columns: Sequence[Column]) -> int:
    if call.function == "COUNT":
        return _NUMBER_BYTES
    size = _bytes_of(columns[place] for place in call.arguments)
    is_decimal = any(columns[place].type.name == "DECIMAL" for place in call.arguments)
    if is_decimal and call.function not in _OF_CHANGING_ROWS:
        size = 5 * _NUMBER_BYTES
    return max(size, _NUMBER_BYTES) + _NUMBER_BYTES


def _of_join(relation: Join) -> list[StoredState]:
    bound = None
    if relation.window is not None:
        bound = "until the watermark passes the end of the window"
    elif relation.bounds is not None:
        bound = "until the watermark passes the times of possible partners"
    kind = relation.kind
    counts_left = kind in (JoinKind.LEFT, JoinKind.FULL, JoinKind.SEMI, JoinKind.ANTI)
    counts_right = kind in (JoinKind.RIGHT, JoinKind.FULL)
    times = 0 if bound is None else 1
    return [
        _of_rows("left: each row", relation.left.columns, counts_left + times, bound),
        _of_rows("right: each row", relation.right.columns, counts_right + times, bound),
    ]


def _of_rank(relation: Rank, source_mode: SourceMode) -> StoredState:
    columns = relation.input.columns
    keys = tuple(columns[place].name for place in relation.partition)
    is_append = changelog_mode(relation.input, source_mode).is_append
    of_keys = f" of each {', '.join(keys)}" if keys else ""
    what = f"the first {relation.last} rows{of_keys}" if is_append and relation.last is not None else "each row"
    bound = None
    if relation.window is not None:
        bound = "until the watermark passes the end of the window"
    elif is_append and relation.last is not None and not keys:
        bound = f"{relation.last} rows"
    return _of_rows(what, columns, 2, bound, keys)


def _of_over(relation: Over, source_mode: SourceMode) -> StoredState:
    columns = relation.input.columns
    keys = tuple(columns[place].name for place in relation.partition)
    if not (changelog_mode(relation.input, source_mode).is_append and results_are_final(relation)):
        return _of_rows("each row", columns, 1, None, keys)
    frames = [over.frame.preceding for over in relation.calls]
    bound = None
    if None not in frames:
        bound = "until the watermark passes its time, and no later frame has it"
    return _of_rows("each row that waits for the watermark, or is in a frame", columns, 3, bound, keys)
