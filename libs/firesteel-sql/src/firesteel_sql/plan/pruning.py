"""Columns that nobody reads are dropped before operators that remember or send rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from firesteel_sql.plan.changes import unique_keys
from firesteel_sql.plan.projections import chosen_columns, is_simple
from firesteel_sql.plan.recursion import Recursion
from firesteel_sql.plan.relations import Filter, Projection, Relation, Union, WatermarkAssigner
from firesteel_sql.plan.row_expressions import InputColumn, RowExpression, composed, moved, places_of
from firesteel_sql.plan.stateful_relations import (
    AggregateCall,
    GroupBy,
    Join,
    JoinKey,
    JoinKind,
    LookupJoin,
    Normalize,
    Over,
    Rank,
    Replicate,
    SortedRows,
    SortKey,
    TemporalJoin,
    Unnest,
    WindowColumns,
    WindowTable,
)
from firesteel_sql.plan.traversal import expressions_of

Places = frozenset[int]


def pruned(relations: Sequence[Relation]) -> list[Relation]:
    """Relations with the same rows, in which columns that are not read are dropped as early as possible.

    A relation that several others read keeps what all of them read, and stays one.
    """
    ordered: dict[int, Relation] = {}

    def visit(relation: Relation) -> None:
        if id(relation) not in ordered:
            for part in relation.inputs:
                visit(part)
            ordered[id(relation)] = relation

    for relation in relations:
        visit(relation)
    needs: dict[int, Places] = {id(relation): frozenset() for relation in ordered.values()}
    for relation in relations:
        needs[id(relation)] = frozenset(range(len(relation.columns)))
    for relation in reversed(ordered.values()):  # readers before what they read
        needed = needs[id(relation)] = _at_least_one(relation, needs[id(relation)])
        for part, read in zip(relation.inputs, _read_of_inputs(relation, needed), strict=True):
            needs[id(part)] |= read
    rebuilt: dict[int, _Pruned] = {}
    for relation in ordered.values():
        inputs = [rebuilt[id(part)] for part in relation.inputs]
        rebuilt[id(relation)] = _rebuilt(relation, needs[id(relation)], inputs)
    return [rebuilt[id(relation)].narrowed(range(len(relation.columns))) for relation in relations]


@dataclass(frozen=True)
class _Pruned:
    """A relation with fewer columns.

    Attributes:
        relation: what remains.
        places: where columns of the original one are.
    """

    relation: Relation
    places: Mapping[int, int]

    def kept(self, read: Places) -> list[int]:
        """The columns of the original one that a reader gets: those that it reads, or any one."""
        return sorted(read or [min(self.places)] if self.places else read)

    def narrowed(self, columns: Iterable[int]) -> Relation:
        """The relation with these columns of the original one alone, in their order."""
        chosen = [self.places[place] for place in columns]
        if chosen == list(range(len(self.relation.columns))):
            return self.relation
        return composed_projections(chosen_columns(self.relation, chosen))


def _at_least_one(relation: Relation, needed: Places) -> Places:
    """Rows that are only counted have a column, too: one that costs nothing."""
    if needed or not relation.columns:
        return needed
    if isinstance(relation, Projection):
        cheap = [place for place, item in enumerate(relation.expressions) if is_simple(item)]
        return frozenset(cheap[:1] or [0])
    return frozenset([0])


# -- what is read


def _read_of_inputs(relation: Relation, needed: Places) -> list[Places]:
    """The columns of each input that a relation reads if these columns of it are needed."""
    match relation:
        case Filter() | WatermarkAssigner():
            own = {relation.column} if isinstance(relation, WatermarkAssigner) else set()
            return [needed | own | _of_expressions(relation)]
        case Projection():
            return [frozenset().union(*[places_of(relation.expressions[place]) for place in needed])]
        case Union():
            return [needed for _ in relation.parts]
        case Recursion():
            return [frozenset(range(len(part.columns))) for part in relation.inputs]
        case GroupBy():
            count = len(relation.groups)
            calls = [_of_call(call) for place, call in enumerate(relation.calls) if place + count in needed]
            if not count and not calls:
                calls = [_of_call(relation.calls[0])]
            return [frozenset(relation.groups).union(*calls)]
        case Join():
            width = len(relation.left.columns)
            left, right = _sides(needed | _of_expressions(relation), width)
            left |= {key.left for key in relation.keys}
            right |= {key.right for key in relation.keys}
            if relation.bounds is not None:
                left |= {relation.bounds.left_time}
                right |= {relation.bounds.right_time}
            return [left, right]
        case TemporalJoin():
            left, right = _sides(needed | _of_expressions(relation), len(relation.left.columns))
            left |= {key.left for key in relation.keys} | {relation.left_time}
            right |= {key.right for key in relation.keys} | {relation.right_time}
            return [left, right]
        case LookupJoin():
            left, _ = _sides(needed | _of_expressions(relation), len(relation.left.columns))
            return [left | {key.left for key in relation.keys}]
    if not relation.inputs:
        return []
    (inner,) = relation.inputs
    through = frozenset(place for place in needed if place < len(inner.columns))
    match relation:
        case Rank():
            through |= {*relation.partition, *[key.place for key in relation.order]}
        case Over():
            through |= {*relation.partition, *[key.place for key in relation.order]}
            for place, over in enumerate(relation.calls):
                if place + len(inner.columns) in needed:
                    through |= _of_call(over.call)
        case SortedRows():
            through |= {key.place for key in relation.order}
        case Normalize():
            through |= set(relation.key)
        case Unnest():
            through |= {relation.collection}
        case Replicate():
            through |= {relation.count}
        case WindowTable():
            through |= {relation.time, *relation.partition}
    return [through]


def _of_expressions(relation: Relation) -> Places:
    return frozenset().union(*[places_of(expression) for expression in expressions_of(relation)])


def _of_call(call: AggregateCall) -> Places:
    condition = () if call.filter is None else (call.filter,)
    return frozenset((*call.arguments, *condition, *[key.place for key in call.order]))


def _sides(places: Places, width: int) -> tuple[Places, Places]:
    left = frozenset(place for place in places if place < width)
    return left, frozenset(place - width for place in places - left)


# -- relations of fewer columns


def _rebuilt(relation: Relation, needed: Places, inputs: Sequence[_Pruned]) -> _Pruned:
    read = _read_of_inputs(relation, needed)
    match relation:
        case Filter():
            (inner,) = inputs
            kept = {place: new for place, new in inner.places.items()}
            condition = moved(relation.condition, kept)
            columns = _columns_at(relation, inner)
            return _Pruned(Filter(columns, inner.relation, condition), kept)
        case WatermarkAssigner():
            (inner,) = inputs
            columns = _columns_at(relation, inner)
            assigner = WatermarkAssigner(
                columns, inner.relation, inner.places[relation.column], moved(relation.watermark, inner.places)
            )
            return _Pruned(assigner, inner.places)
        case Projection():
            (inner,) = inputs
            kept_places = sorted(needed)
            projection = Projection(
                tuple(relation.columns[place] for place in kept_places), inner.relation,
                tuple(moved(relation.expressions[place], inner.places) for place in kept_places),
            )  # fmt: skip
            return _Pruned(composed_projections(projection), _numbered(kept_places))
        case Union():
            kept_places = sorted(needed)
            union = Union(
                tuple(relation.columns[place] for place in kept_places),
                tuple(part.narrowed(kept_places) for part in inputs),
            )
            return _Pruned(union, _numbered(kept_places))
        case Join():
            return _rebuilt_join(relation, needed, inputs, read)
        case TemporalJoin():
            left_kept, right_kept = inputs[0].kept(read[0]), inputs[1].kept(read[1])
            left, right = _numbered(left_kept), _numbered(right_kept)
            both = _both(left, right, len(relation.left.columns))
            temporal = replace(
                relation, columns=_chosen(relation, both), left=inputs[0].narrowed(left_kept),
                right=inputs[1].narrowed(right_kept), keys=_keys(relation.keys, left, right),
                condition=_moved_or_none(relation.condition, both), left_time=left[relation.left_time],
                right_time=right[relation.right_time],
            )  # fmt: skip
            return _Pruned(temporal, both)
        case LookupJoin():
            left_kept = inputs[0].kept(read[0])
            left = _numbered(left_kept)
            both = _both(left, _numbered(range(len(relation.table.columns))), len(relation.left.columns))
            lookup = replace(
                relation, columns=_chosen(relation, both), left=inputs[0].narrowed(left_kept),
                keys=tuple(replace(key, left=left[key.left]) for key in relation.keys),
                condition=_moved_or_none(relation.condition, both),
            )  # fmt: skip
            return _Pruned(lookup, both)
        case Recursion():
            every = range(len(relation.columns))
            first, step = (part.narrowed(every) for part in inputs)
            return _Pruned(replace(relation, first=first, step=step), _numbered(every))
    if not relation.inputs:
        return _Pruned(relation, _numbered(range(len(relation.columns))))
    kept_places = inputs[0].kept(read[0])
    return _rebuilt_over_one(relation, needed, inputs[0].narrowed(kept_places), _numbered(kept_places))


def _rebuilt_over_one(relation: Relation, needed: Places, inner: Relation, places: Mapping[int, int]) -> _Pruned:
    (old,) = relation.inputs
    width = len(old.columns)
    if isinstance(relation, GroupBy):
        return _rebuilt_aggregate(relation, needed, inner, places)
    # All others have the columns of their input, and results of their own behind them.
    results = [place for place in range(width, len(relation.columns))]
    match relation:
        case Over():
            results = [place for place in results if place in needed]
            if not results:
                return _Pruned(inner, places)
            calls = tuple(
                replace(relation.calls[place - width], call=_call(relation.calls[place - width].call, places))
                for place in results
            )
            rebuilt: Relation = replace(
                relation, input=inner, partition=_at(relation.partition, places), order=_order(relation.order, places),
                calls=calls,
            )  # fmt: skip
        case Rank():
            with_rank = relation.with_rank and results[0] in needed
            results = results if with_rank else []
            rebuilt = replace(
                relation, input=inner, partition=_at(relation.partition, places), order=_order(relation.order, places),
                with_rank=with_rank, window=_window(relation.window, places),
            )  # fmt: skip
        case SortedRows():
            rebuilt = replace(relation, input=inner, order=_order(relation.order, places))
        case Normalize():
            rebuilt = replace(relation, input=inner, key=_at(relation.key, places))
        case Unnest():
            rebuilt = replace(relation, input=inner, collection=places[relation.collection])
        case WindowTable():
            rebuilt = replace(
                relation, input=inner, time=places[relation.time], partition=_at(relation.partition, places)
            )
        case Replicate():  # the number of copies is no column of the results
            columns = tuple(relation.columns[place] for place in sorted(places) if place != relation.count)
            shown = [place for place in sorted(places) if place != relation.count]
            return _Pruned(
                replace(relation, columns=columns, input=inner, count=places[relation.count]), _numbered(shown)
            )
        case _:
            raise AssertionError(relation)
    shown = [*sorted(places), *results]
    columns = tuple(relation.columns[place] for place in shown)
    return _Pruned(replace(rebuilt, columns=columns), _numbered(shown))


def _rebuilt_aggregate(relation: GroupBy, needed: Places, inner: Relation, places: Mapping[int, int]) -> _Pruned:
    count = len(relation.groups)
    shown = [place for place in range(len(relation.columns)) if place < count or place in needed]
    shown = shown or [0]  # the one row of all rows is there, even if nobody reads what it has
    calls = tuple(_call(relation.calls[place - count], places) for place in shown[count:])
    aggregate = replace(
        relation, columns=tuple(relation.columns[place] for place in shown), input=inner,
        groups=_at(relation.groups, places), calls=calls, window=_window(relation.window, places),
    )  # fmt: skip
    return _Pruned(aggregate, _numbered(shown))


def _rebuilt_join(relation: Join, needed: Places, inputs: Sequence[_Pruned], read: Sequence[Places]) -> _Pruned:
    width = len(relation.left.columns)
    left_kept, right_kept = inputs[0].kept(read[0]), inputs[1].kept(read[1])
    left, right = _numbered(left_kept), _numbered(right_kept)
    if relation.kind is JoinKind.LEFT and all(place < width for place in needed):
        equal = {key.right for key in relation.keys}
        if any(key <= equal for key in unique_keys(relation.right)):  # one partner at most, and nobody reads it
            return _Pruned(inputs[0].narrowed(left_kept), left)
    both = _both(left, right, width)
    shown = both if relation.kind not in (JoinKind.SEMI, JoinKind.ANTI) else left
    bounds, window = relation.bounds, relation.window
    if bounds is not None:
        bounds = replace(bounds, left_time=left[bounds.left_time], right_time=right[bounds.right_time])
    if window is not None:
        ours, theirs = _window(window[0], left), _window(window[1], right)
        assert ours is not None
        assert theirs is not None
        window = (ours, theirs)
    join = replace(
        relation, columns=_chosen(relation, shown), left=inputs[0].narrowed(left_kept),
        right=inputs[1].narrowed(right_kept), keys=_keys(relation.keys, left, right),
        condition=_moved_or_none(relation.condition, both), bounds=bounds, window=window,
    )  # fmt: skip
    return _Pruned(join, shown)


def _numbered(places: Iterable[int]) -> dict[int, int]:
    return {place: number for number, place in enumerate(places)}


def _columns_at(relation: Relation, inner: _Pruned) -> tuple:  # type: ignore[type-arg]
    by_new = {new: relation.columns[old] for old, new in inner.places.items()}
    return tuple(by_new.get(place, column) for place, column in enumerate(inner.relation.columns))


def _both(left: Mapping[int, int], right: Mapping[int, int], width: int) -> dict[int, int]:
    return {**left, **{place + width: new + len(left) for place, new in right.items()}}


def _chosen(relation: Relation, places: Mapping[int, int]) -> tuple:  # type: ignore[type-arg]
    return tuple(relation.columns[old] for old in sorted(places, key=places.__getitem__))


def _keys(keys: Sequence[JoinKey], left: Mapping[int, int], right: Mapping[int, int]) -> tuple[JoinKey, ...]:
    return tuple(replace(key, left=left[key.left], right=right[key.right]) for key in keys)


def _moved_or_none(condition: RowExpression | None, places: Mapping[int, int]) -> RowExpression | None:
    return None if condition is None else moved(condition, places)


def _at(old: Sequence[int], places: Mapping[int, int]) -> tuple[int, ...]:
    return tuple(places[place] for place in old)


def _order(keys: Sequence[SortKey], places: Mapping[int, int]) -> tuple[SortKey, ...]:
    return tuple(replace(key, place=places[key.place]) for key in keys)


def _call(call: AggregateCall, places: Mapping[int, int]) -> AggregateCall:
    return replace(
        call, arguments=_at(call.arguments, places), filter=None if call.filter is None else places[call.filter],
        order=_order(call.order, places),
    )  # fmt: skip


def _window(window: WindowColumns | None, places: Mapping[int, int]) -> WindowColumns | None:
    if window is None:
        return None
    time = None if window.time is None else places.get(window.time)
    return replace(window, start=places[window.start], end=places[window.end], time=time)


# -- projections over projections


def composed_projections(projection: Relation) -> Relation:
    """A projection over another one as one, unless that computes something twice."""
    if not isinstance(projection, Projection) or not isinstance(projection.input, Projection):
        return projection
    inner = projection.input
    reads = [part.index for item in projection.expressions for part in item.walk() if isinstance(part, InputColumn)]
    if any(reads.count(place) > 1 and not is_simple(inner.expressions[place]) for place in set(reads)):
        return projection
    expressions = tuple(composed(item, inner.expressions) for item in projection.expressions)
    return composed_projections(Projection(projection.columns, inner.input, expressions))
