"""What operators are made with: what the planner knows, in a form that travels to the slots."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from firesteel.common.typeinfo import TypeInformation
from firesteel.expressions import Expression
from firesteel_sql.connectors.lookup import LookupCache, TableLookup
from firesteel_sql.plan.stateful_relations import (
    AggregateCall,
    JoinKind,
    OverCall,
    RankFunction,
    SortKey,
    TimeBounds,
    WindowKind,
)


@dataclass(frozen=True)
class AggregatePlan:
    """What a ``GroupAggregate`` computes.

    Attributes:
        calls: the aggregates.
        insert_only: no row of the input ever goes.
        is_global: there are no groups: the key is a constant that is no part of the results.
        window_end: which column of the key is the end of a window; None = results leave with each change.
        starts_with_row: without groups: the row is given before any row of the input comes.
        window_zone: time zone of the ends of windows.
        ttl: ms without a change after which a group is forgotten; 0 = never.
    """

    calls: tuple[AggregateCall, ...]
    insert_only: bool
    is_global: bool = False
    window_end: int | None = None
    starts_with_row: bool = False
    window_zone: str = "UTC"
    ttl: int = 0


@dataclass(frozen=True)
class WindowPlan:
    """Windows of a fixed length.

    Attributes:
        kind: TUMBLE, HOP or CUMULATE.
        time: place of the column with the time.
        size: length of a window, ms; of CUMULATE the longest.
        step: time from one window to the next, ms.
        offset: by which windows are moved, ms.
        zone: time zone by whose clocks they begin and end.
    """

    kind: WindowKind
    time: int
    size: int
    step: int
    offset: int
    zone: str = "UTC"


@dataclass(frozen=True)
class SessionPlan:
    """Sessions of rows of one key.

    Attributes:
        time: place of the column with the time.
        gap: time without rows after which a session ends, ms.
        zone: time zone of their start and end.
    """

    time: int
    gap: int
    zone: str = "UTC"


@dataclass(frozen=True)
class JoinPlan:
    """What a join computes.

    Attributes:
        kind: of the join.
        widths: number of the columns of each input that belong to its table; further ones are left out.
        nulls_equal: for each key whether NULL equals NULL.
        condition: over pairs of rows; None = equal keys suffice.
        condition_types: names and types of a pair's columns, left ones first.
        may_be_equal: places of a column of each input: a pair is one unless both have values, and these differ (NOT
            IN); None = no such columns.
        bounds: of the times of partners.
        window_ends: places of the end of windows that are among the keys.
        window_zone: time zone of these ends.
        ttl: for each input, ms after its last write at which a row is forgotten; 0 = never.
    """

    kind: JoinKind
    widths: tuple[int, int]
    nulls_equal: tuple[bool, ...]
    condition: Expression | None = None
    condition_types: Mapping[str, TypeInformation] | None = None
    may_be_equal: tuple[int, int] | None = None
    bounds: TimeBounds | None = None
    window_ends: tuple[int, int] | None = None
    window_zone: str = "UTC"
    ttl: tuple[int, int] = (0, 0)


@dataclass(frozen=True)
class TemporalJoinPlan:
    """What a join with versions computes.

    Attributes:
        widths: number of the columns of each input that belong to its table; further ones are left out.
        nulls_equal: for each key whether NULL equals NULL.
        is_outer: left rows without a version stay.
        left_time: place of the time in the left input.
        right_time: place in the right input, where a version begins.
        condition: over pairs of rows; None = equal keys suffice.
        condition_types: names and types of a pair's columns, left ones first.
    """

    widths: tuple[int, int]
    nulls_equal: tuple[bool, ...]
    is_outer: bool
    left_time: int
    right_time: int
    condition: Expression | None = None
    condition_types: Mapping[str, TypeInformation] | None = None


@dataclass(frozen=True)
class RankPlan:
    """What a rank computes.

    Attributes:
        function: by which rows are numbered.
        order: of the rows; peers have the order in which they came.
        first: rank of the first row that is a result.
        last: rank of the last one; None = there is no last one.
        with_rank: the rank is the last column of the results.
        width: number of the columns that belong to the rows; further ones are left out.
        is_insert_only: rows are never deleted.
        last_of_peers: peers have the opposite order: the last one comes first.
        refuses_peers: a partition that has several rows when the watermark advances fails the job.
        window_end: place of the end of a window that is part of the partition; None = there are no windows.
        window_zone: time zone of these ends.
        ttl: ms after which a row is forgotten; 0 = never.
    """

    function: RankFunction
    order: tuple[SortKey, ...]
    first: int
    last: int | None
    with_rank: bool
    width: int
    is_insert_only: bool = False
    last_of_peers: bool = False
    refuses_peers: bool = False
    window_end: int | None = None
    window_zone: str = "UTC"
    ttl: int = 0


@dataclass(frozen=True)
class NormalizePlan:
    """What is remembered of the rows of a table that comes without those before updates.

    Attributes:
        ttl: ms after its last change at which a row is forgotten; 0 = never.
    """

    ttl: int = 0


@dataclass(frozen=True)
class UnnestPlan:
    """Which elements of a row become rows.

    Attributes:
        collection: place of the collection.
        is_outer: rows without elements stay.
        with_ordinality: the last column is the number of the element.
        is_multiset: the collection has the number of each element.
        has_fields: the fields of an element are columns.
    """

    collection: int
    is_outer: bool
    with_ordinality: bool
    is_multiset: bool
    has_fields: bool


@dataclass(frozen=True)
class SortPlan:
    """The order of rows.

    Attributes:
        order: of the rows; if they leave with the watermark, the first key is the time.
        width: number of the columns that belong to the rows; further ones are left out.
    """

    order: tuple[SortKey, ...]
    width: int


@dataclass(frozen=True)
class OverPlan:
    """What is computed over the rows around each row.

    Attributes:
        order: of the rows within a partition.
        calls: what is computed.
        width: number of the columns that belong to the rows; further ones are left out.
        is_by_time: rows are only inserted, and ordered by a time attribute first: each leaves once, as the watermark
            passes it.
        is_by_clock: likewise, but the time is that of the clock: each row leaves as it comes.
        running: numbers of the calls for which a partition remembers a value instead of all its rows.
        keeps_rows: number of rows of a partition that are in frames of later ones; None = all are.
        keeps_millis: time up to the latest row whose rows are in frames of later ones; None = ``keeps_rows`` suffices.
        ttl: ms after which a row, or what is remembered of a partition, is forgotten; 0 = never.
    """

    order: tuple[SortKey, ...]
    calls: tuple[OverCall, ...]
    width: int
    is_by_time: bool = False
    is_by_clock: bool = False
    running: tuple[int, ...] = ()
    keeps_rows: int | None = None
    keeps_millis: int | None = None
    ttl: int = 0


def number_of(call: AggregateCall) -> int:
    """The constant number of a call, such as the distance of LAG, which is 1 unless it is written."""
    number = call.constants[0] if call.constants else 1
    assert isinstance(number, int)
    return number


@dataclass(frozen=True)
class LookupPlan:
    """A join with rows that are looked up.

    Attributes:
        lookup: finds the rows of keys.
        cache: how long they are kept; None = not at all.
        keys: places of the key's columns in the left input.
        width: number of the left columns.
        table_types: names and types of the table's columns.
        is_outer: left rows without a partner stay.
        condition: over the columns of both; None = equal keys suffice.
        condition_types: names and types of these columns.
    """

    lookup: TableLookup
    cache: LookupCache | None
    keys: tuple[int, ...]
    width: int
    table_types: tuple[tuple[str, TypeInformation], ...]
    is_outer: bool
    condition: Expression | None = None
    condition_types: dict[str, TypeInformation] | None = None
