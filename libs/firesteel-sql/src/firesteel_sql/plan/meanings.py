"""What relations mean, as text: equal for queries that mean the same rows, whatever their names, order and columns.

Operators find their state again by it (``identity_of``). The meaning of a relation has two parts: which rows it has,
without regard to the columns that are read of them, and what each of its columns holds. So a projection, an alias or a
HAVING above an operator, which columns of its input are read, and the other statements of the job, are no part of its
identity; its keys, and conditions on the rows of its input, are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from hashlib import sha256
from typing import Any, Final

from firesteel_sql.plan.changes import SourceMode, changelog_mode, insert_only
from firesteel_sql.plan.relations import (
    ConstantRows,
    Filter,
    Projection,
    Relation,
    Scan,
    Union,
    WatermarkAssigner,
)
from firesteel_sql.plan.row_expressions import AppliedFunction, InputColumn, RowExpression
from firesteel_sql.plan.stateful_relations import (
    AggregateCall,
    GroupBy,
    Join,
    JoinKey,
    JoinKind,
    LookupJoin,
    Normalize,
    Over,
    OverCall,
    Rank,
    Replicate,
    SinkMaterializer,
    SortedRows,
    SortKey,
    TemporalJoin,
    Unnest,
    WindowKind,
    WindowTable,
)

_LONGEST: Final = 160
"""Characters of a text; of longer ones, which a projection over a projection would double, the end is a hash."""
_COMMUTATIVE: Final = frozenset(("=", "<>", "+", "*"))
_FLIPPED: Final = {">": "<", ">=": "<="}
_INFIX: Final = frozenset(("-", "/", "%", "<", "<=", "||", "LIKE", *_COMMUTATIVE))


@dataclass(frozen=True)
class Meaning:
    """What a relation means.

    Attributes:
        source: the rows, before conditions.
        conditions: those that the rows fulfil.
        columns: what each column holds.
    """

    source: str
    conditions: frozenset[str]
    columns: tuple[str, ...]

    @property
    def rows(self) -> str:
        """Which rows there are."""
        if not self.conditions:
            return self.source
        return _short(f"{self.source} WHERE {' AND '.join(sorted(self.conditions))}")

    def at(self, places: Iterable[int]) -> str:
        """What some columns hold."""
        return ", ".join(self.columns[place] for place in places)


class Meanings:
    """The meanings of relations, each computed once.

    Args:
        source_mode: the changes that tables give.
    """

    def __init__(self, source_mode: SourceMode = insert_only) -> None:
        self._source_mode = source_mode
        self._known: dict[int, tuple[Relation, Meaning]] = {}

    def of_relation(self, relation: Relation) -> Meaning:
        """The meaning of a relation."""
        known = self._known.get(id(relation))
        if known is None:
            meaning = self._meaning(relation)
            self._known[id(relation)] = (relation, meaning)  # as long as it is there, no other one has its id
            return meaning
        return known[1]

    def identity_of(self, relation: Relation) -> str | None:
        """Which state the operator of a relation has; None = it has none.

        Two relations of one identity can go on with each other's state: it has the same keys, and holds the same rows,
        of which only other columns may be read.
        """
        inputs = [self.of_relation(part) for part in relation.inputs]
        rows = [meaning.rows for meaning in inputs]
        name = relation.text().partition("(")[0]
        match relation:
            case GroupBy():
                (meaning,) = inputs
                window = "" if relation.window is None else f" windows in {relation.window.zone}"
                return f"{name} of {self._changes_of(relation)} {rows[0]} by {meaning.at(relation.groups)}{window}"
            case Join():
                # The rows of inner joins are stored whatever the condition is; others count partners that fulfil it.
                is_inner = relation.kind is JoinKind.INNER
                on = _keys_text(inputs[0], inputs[1], relation.keys)
                condition = "" if is_inner else self._pair_condition(relation)
                on += condition + _times(relation, inputs)
                return f"{name} {relation.kind.name} of {rows[0]} and {rows[1]} on {on}"
            case TemporalJoin():
                on = _keys_text(inputs[0], inputs[1], relation.keys)
                times = inputs[0].at([relation.left_time]), inputs[1].at([relation.right_time])
                return f"{name} of {rows[0]} and {rows[1]} on {on} at {times}"
            case Rank():
                (meaning,) = inputs
                numbers = f"{relation.function.name} {relation.first} to {relation.last}"
                window = "" if relation.window is None else f" windows in {relation.window.zone}"
                return (
                    f"{name} {numbers} of {self._changes_of(relation)} {rows[0]} by {meaning.at(relation.partition)} "
                    f"in order of {_order(meaning, relation.order)}{window}"
                )
            case Over():
                (meaning,) = inputs
                is_append = changelog_mode(relation, self._source_mode).is_append
                # Rows leave the state once no frame needs them; what running results know is stored by call.
                calls = ", ".join(sorted(over_text(over, meaning.columns) for over in relation.calls))
                return (
                    f"{name} of {rows[0]} by {meaning.at(relation.partition)} in order of "
                    f"{_order(meaning, relation.order)}{f': {calls}' if is_append else ''}"
                )
            case WindowTable(kind=WindowKind.SESSION):
                (meaning,) = inputs
                time, keys = meaning.at([relation.time]), meaning.at(relation.partition)
                return f"{name} SESSION of {rows[0]} at {time}, {relation.size} ms, by {keys}"
            case SortedRows():
                return f"{name} of {rows[0]} in order of {_order(inputs[0], relation.order)}"
            case Normalize():
                return f"{name} of {rows[0]} by {inputs[0].at(relation.key)}"
            case SinkMaterializer():
                return f"{name} {relation.conflict.name} of {rows[0]} by {inputs[0].at(relation.key)}"
        return None

    def _changes_of(self, relation: Relation) -> str:
        """Operators store more of rows that may go."""
        modes = [changelog_mode(part, self._source_mode) for part in relation.inputs]
        return "inserted rows" if all(mode.is_append for mode in modes) else "changes"

    def _meaning(self, relation: Relation) -> Meaning:
        inputs = [self.of_relation(part) for part in relation.inputs]
        none: frozenset[str] = frozenset()
        match relation:
            case Scan():
                return Meaning(".".join(relation.identifier), none, tuple(column.name for column in relation.columns))
            case WatermarkAssigner() | SortedRows() | Normalize() | SinkMaterializer():
                return inputs[0]
            case Filter():
                (meaning,) = inputs
                added = frozenset(_conjuncts(relation.condition, meaning.columns))
                return Meaning(meaning.source, meaning.conditions | added, meaning.columns)
            case Projection():
                (meaning,) = inputs
                columns = tuple(expression_text(item, meaning.columns) for item in relation.expressions)
                return Meaning(meaning.source, meaning.conditions, columns)
            case Over():
                (meaning,) = inputs
                # A condition below changes the results, and one above does not.
                rows = f"{meaning.rows} BY {meaning.at(relation.partition)} ORDER {_order(meaning, relation.order)}"
                results = [_short(f"{over_text(over, meaning.columns)} OVER ({rows})") for over in relation.calls]
                return Meaning(meaning.source, meaning.conditions, (*meaning.columns, *results))
            case Union():
                parts = sorted(inputs, key=lambda part: (part.rows, part.columns))
                columns = tuple(
                    _short(f"({' | '.join(texts)})") for texts in zip(*(part.columns for part in parts), strict=True)
                )
                return Meaning(_short(f"UNION({'; '.join(part.rows for part in parts)})"), none, columns)
            case ConstantRows():
                rows = "; ".join(", ".join(expression_text(item, ()) for item in row) for row in relation.rows)
                columns = tuple(f"value {place}" for place in range(len(relation.columns)))
                return Meaning(_short(f"VALUES({rows})"), none, columns)
            case GroupBy():
                (meaning,) = inputs
                calls = [_short(call_text(call, meaning.columns)) for call in relation.calls]
                groups = ", ".join(sorted(meaning.columns[place] for place in relation.groups))
                source = _short(f"GROUP({meaning.rows} BY {groups})")
                return Meaning(source, none, (*(meaning.columns[place] for place in relation.groups), *calls))
            case WindowTable():
                (meaning,) = inputs
                sizes = f"{relation.size}, {relation.step}, {relation.offset}, {relation.zone}"
                keys = f" BY {meaning.at(relation.partition)}" if relation.partition else ""
                source = f"{relation.kind.name}({meaning.rows}, {meaning.at([relation.time])}, {sizes}{keys})"
                return Meaning(_short(source), none, (*meaning.columns, "window_start", "window_end", "window_time"))
            case Rank():
                (meaning,) = inputs
                order = f"BY {meaning.at(relation.partition)} ORDER {_order(meaning, relation.order)}"
                source = f"{relation.function.name}({meaning.rows} {order} {relation.first} TO {relation.last})"
                return Meaning(_short(source), none, (*meaning.columns, "rank")[: len(relation.columns)])
            case Join() | TemporalJoin():
                left, right = inputs
                kind = relation.kind.name if isinstance(relation, Join) else f"OUTER {relation.is_outer}"
                name = f"{type(relation).__name__} {kind}"
                on = f"{_keys_text(left, right, relation.keys)}{self._pair_condition(relation)}"
                bounds = _times(relation, inputs) if isinstance(relation, Join) else ""
                source = _short(f"{name}({left.rows}; {right.rows} ON {on}{bounds})")
                return Meaning(source, none, _pair(left, right)[: len(relation.columns)])
            case LookupJoin():
                table = self.of_relation(relation.table)
                on = f"{_keys_text(inputs[0], table, relation.keys)}{self._pair_condition(relation)}"
                source = _short(f"LOOKUP {relation.is_outer}({inputs[0].rows}; {table.rows} ON {on})")
                return Meaning(source, none, _pair(inputs[0], table))
            case Unnest():
                (meaning,) = inputs
                collection = meaning.columns[relation.collection]
                width = len(relation.columns) - len(meaning.columns)
                elements = [_short(f"{collection} element {number}") for number in range(width)]
                return Meaning(
                    _short(f"UNNEST({meaning.rows}, {collection}, {relation.is_outer})"), none,
                    (*meaning.columns, *elements),
                )  # fmt: skip
            case Replicate():
                (meaning,) = inputs
                source = _short(f"REPLICATE({meaning.rows} BY {meaning.columns[relation.count]})")
                columns = meaning.columns[: relation.count] + meaning.columns[relation.count + 1 :]
                return Meaning(source, none, columns)
        return _other(relation, inputs)

    def _pair_condition(self, relation: Join | TemporalJoin | LookupJoin) -> str:
        if relation.condition is None:
            return ""
        right = relation.table if isinstance(relation, LookupJoin) else relation.right
        columns = _pair(self.of_relation(relation.left), self.of_relation(right))
        return f" AND {' AND '.join(sorted(_conjuncts(relation.condition, columns)))}"


def _other(relation: Relation, inputs: Sequence[Meaning]) -> Meaning:
    """The meaning of a relation of which only its fields are known."""
    own = [
        f"{field.name}={_plain(getattr(relation, field.name))}"
        for field in fields(relation)
        if field.name not in ("columns", "input", "left", "right", "parts")
    ]
    source = f"{type(relation).__name__}({'; '.join(meaning.rows for meaning in inputs)}; {', '.join(own)})"
    inner = [text for meaning in inputs for text in meaning.columns]
    columns = [inner[place] if place < len(inner) else f"column {place}" for place in range(len(relation.columns))]
    return Meaning(_short(source), frozenset(), tuple(columns))


def _plain(value: Any) -> str:
    return "" if value is None else str(getattr(value, "name", value))


def _pair(left: Meaning, right: Meaning) -> tuple[str, ...]:
    return (*(_short(f"left.{text}") for text in left.columns), *(_short(f"right.{text}") for text in right.columns))


def _keys_text(left: Meaning, right: Meaning, keys: Sequence[JoinKey]) -> str:
    return " AND ".join(
        f"{left.columns[key.left]} {'IS NOT DISTINCT FROM' if key.nulls_equal else '='} {right.columns[key.right]}"
        for key in keys
    )


def _times(join: Join, inputs: Sequence[Meaning]) -> str:
    """How the times of partners are bounded, and whether NULL may be one."""
    left, right = inputs
    text = " NULL AWARE" if join.null_aware else ""
    if join.bounds is not None:
        bounds = join.bounds
        times = left.columns[bounds.left_time], right.columns[bounds.right_time]
        text += f" {times[1]} FROM {times[0]} + {bounds.lower} TO {times[0]} + {bounds.upper}"
    if join.window is not None:
        ends = left.columns[join.window[0].end], right.columns[join.window[1].end]
        text += f" UNTIL {ends[0]}, {ends[1]} IN {join.window[0].zone}"
    return text


def _order(meaning: Meaning, order: Sequence[SortKey]) -> str:
    return ", ".join(_sort_key(key, meaning.columns) for key in order)


def _sort_key(key: SortKey, columns: Sequence[str]) -> str:
    nulls = "" if key.nulls_first is key.ascending else " NULLS FIRST" if key.nulls_first else " NULLS LAST"
    return f"{columns[key.place]} {'ASC' if key.ascending else 'DESC'}{nulls}"


def call_text(call: AggregateCall, columns: Sequence[str]) -> str:
    """What a call of an aggregate function computes: ``SUM(price) FILTER (price < 10)``.

    Args:
        call: over columns of its input.
        columns: what these hold.
    """
    inside = ", ".join([*(columns[place] for place in call.arguments), *map(repr, call.constants)]) or "*"
    order = f" ORDER BY {', '.join(_sort_key(key, columns) for key in call.order)}" if call.order else ""
    condition = "" if call.filter is None else f" FILTER ({columns[call.filter]})"
    return f"{call.function}({'DISTINCT ' if call.distinct else ''}{inside}{order}){condition}"


def over_text(over: OverCall, columns: Sequence[str]) -> str:
    """What a call over the rows around each row computes."""
    unit = "ROWS" if over.frame.by_rows else "RANGE"
    return f"{call_text(over.call, columns)} {unit} {over.frame.preceding} TO {over.frame.following}"


def _conjuncts(condition: RowExpression, columns: Sequence[str]) -> list[str]:
    """The conditions that AND connects."""
    if isinstance(condition, AppliedFunction) and condition.name == "AND":
        return [text for part in condition.inputs for text in _conjuncts(part, columns)]
    return [expression_text(condition, columns)]


def expression_text(expression: RowExpression, columns: Sequence[str]) -> str:
    """What an expression computes; equal for expressions that differ in the order of AND, OR, =, + and * alone.

    Args:
        expression: over columns.
        columns: what these hold.
    """
    match expression:
        case InputColumn():
            return columns[expression.index]
        case AppliedFunction():
            return _short(_function_text(expression, columns))
    return str(expression)


def _function_text(expression: AppliedFunction, columns: Sequence[str]) -> str:
    name = expression.name
    if name in ("AND", "OR"):
        parts = sorted(set(_operands(expression, name, columns)))
        return f"({f' {name} '.join(parts)})"
    texts = [expression_text(operand, columns) for operand in expression.inputs]
    if name in _COMMUTATIVE:
        texts.sort()
    elif name in _FLIPPED and len(texts) == 2:
        name, texts = _FLIPPED[name], texts[::-1]
    match name:
        case "CAST" | "TRY_CAST":
            return f"{name}({texts[0]} AS {expression.type.nullable_()})"
        case "FIELD":
            return f"{texts[0]}.{dict(expression.options)['field']}"
    if name in _INFIX and len(texts) == 2:
        return f"({texts[0]} {name} {texts[1]})"
    options = [f"{key}={_plain(value)}" for key, value in sorted(expression.options) if value is not None]
    return f"{name}({', '.join([*texts, *options])})"


def _operands(expression: RowExpression, name: str, columns: Sequence[str]) -> list[str]:
    if isinstance(expression, AppliedFunction) and expression.name == name:
        return [text for operand in expression.inputs for text in _operands(operand, name, columns)]
    return [expression_text(expression, columns)]


def _short(text: str) -> str:
    if len(text) <= _LONGEST:
        return text
    return f"{text[: _LONGEST - 20]}...{sha256(text.encode()).hexdigest()[:16]}"


@dataclass(frozen=True)
class OperatorIdentity:
    """By what an operator finds its state again.

    Attributes:
        uid: unique in the job.
        input_names: for each input what its columns hold.
    """

    uid: str
    input_names: tuple[tuple[str, ...], ...] = ()


class OperatorIdentities:
    """The identities of the operators of a job; the second one of a meaning has ``#2`` behind its uid.

    Args:
        source_mode: the changes that tables give.
    """

    def __init__(self, source_mode: SourceMode = insert_only) -> None:
        self._meanings = Meanings(source_mode)
        self._counts: Counter[str] = Counter()

    def of_operator(self, relation: Relation) -> OperatorIdentity | None:
        """The identity of the operator that computes a relation, which is asked for once; None = it has no state."""
        if isinstance(relation, Scan):
            return OperatorIdentity(self._numbered(f"Source:{'.'.join(relation.identifier)}"))
        if isinstance(relation, ConstantRows):
            rows = self._meanings.of_relation(relation).rows
            return OperatorIdentity(self._numbered(f"Values:{sha256(rows.encode()).hexdigest()[:20]}"))
        identity = self._meanings.identity_of(relation)
        if identity is None:
            return None
        uid = f"{identity.partition(' ')[0]}:{sha256(identity.encode()).hexdigest()[:20]}"
        names = tuple(self._meanings.of_relation(part).columns for part in relation.inputs)
        return OperatorIdentity(self._numbered(uid), names)

    def of_sink(self, identifier: Sequence[str]) -> OperatorIdentity:
        """The identity of what writes a table, which is asked for once for each INSERT."""
        return OperatorIdentity(self._numbered(f"Sink:{'.'.join(identifier)}"))

    def _numbered(self, uid: str) -> str:
        self._counts[uid] += 1
        return uid if self._counts[uid] == 1 else f"{uid}#{self._counts[uid]}"
