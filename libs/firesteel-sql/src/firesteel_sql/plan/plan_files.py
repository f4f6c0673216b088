"""Files of compiled plans: what COMPILE PLAN writes, and EXECUTE PLAN reads.

A file is JSON that people can read: the declarations of the tables, the relations in the order in which they are
computed, each with its columns, expressions and the identity of its operator, and the INSERTs. Relations name those
that they are made of by number. Nothing is looked up or optimised again, so a later version runs the same operators,
which find the same state. Fields that have their default are left out, so a later version may have more of them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from datetime import date, datetime, time
from decimal import Decimal, InvalidOperation
from enum import Enum
from functools import cache
from importlib import import_module
from inspect import isclass
from types import NoneType, UnionType
from typing import Any, Final, Protocol, TypeVar, Union, get_args, get_origin, get_type_hints

from firesteel.core.errors import ProgramError
from firesteel.table.types import DataType
from firesteel_sql.catalog.tables import CatalogTable, Identifier
from firesteel_sql.plan import recursion, stateful_relations
from firesteel_sql.plan import relations as plain_relations
from firesteel_sql.plan.meanings import OperatorIdentity
from firesteel_sql.plan.relations import Relation
from firesteel_sql.plan.row_expressions import (
    OWN_KERNELS,
    AppliedFunction,
    Constant,
    InputColumn,
    RowExpression,
    places_of,
)
from firesteel_sql.plan.traversal import expressions_of

VERSION: Final = 1
"""Version of the files that are written; the only one that is read."""
_VERSION_KEY: Final = "firesteel-plan"
T = TypeVar("T")


class PlanFileError(ProgramError):
    """A file is no plan that this version can run; says where."""


@dataclass(frozen=True)
class PlannedInsert:
    """What an INSERT writes.

    Attributes:
        identifier: full name of the table.
        table: its declaration.
        relation: what is computed.
    """

    identifier: Identifier
    table: CatalogTable
    relation: Relation


class Identities(Protocol):
    """Gives operators their identities."""

    def of_operator(self, relation: Relation) -> OperatorIdentity | None:
        """The identity of the operator that computes a relation; None = it has no state."""

    def of_sink(self, identifier: Sequence[str]) -> OperatorIdentity:
        """The identity of what writes a table."""


class RecordedIdentities:
    """The identities of a compiled plan.

    Args:
        of_relations: by relation.
        of_sinks: of the INSERTs, in their order.
    """

    def __init__(
        self, of_relations: Sequence[tuple[Relation, OperatorIdentity]], of_sinks: Sequence[OperatorIdentity]
    ) -> None:
        self._relations = list(of_relations)
        self._by_id = {id(relation): identity for relation, identity in self._relations}
        self._sinks = iter(of_sinks)

    def of_operator(self, relation: Relation) -> OperatorIdentity | None:
        """The identity of the operator that computes a relation; None = it has no state."""
        return self._by_id.get(id(relation))

    def of_sink(self, identifier: Sequence[str]) -> OperatorIdentity:
        """The identity of the next INSERT."""
        return next(self._sinks)


@dataclass(frozen=True)
class CompiledPlan:
    """A job as a file has it.

    Attributes:
        inserts: what is written.
        identities: of the operators.
    """

    inserts: tuple[PlannedInsert, ...]
    identities: Identities


# -- writing


def plan_text(
    inserts: Sequence[PlannedInsert],
    identities: Identities,
    declaration_of: Callable[[Identifier, CatalogTable], str],
    type_text: Callable[[DataType], str],
    written_by: str,
) -> str:
    """The text of the file of a plan.

    Args:
        inserts: what is written.
        identities: of the operators.
        declaration_of: the statement that declares a table.
        type_text: a type as SQL has it.
        written_by: version of the package.

    Raises:
        PlanFileError: a part of it can't be written.
    """
    writer = _Writer(identities, declaration_of, type_text)
    written = [
        {
            "table": writer.table(insert.identifier, insert.table),
            "rows": writer.relation(insert.relation),
            "uid": identities.of_sink(insert.identifier).uid,
        }
        for insert in inserts
    ]
    plan = {
        _VERSION_KEY: VERSION,
        "written-by": written_by,
        "tables": writer.tables,
        "relations": writer.relations,
        "inserts": written,
    }
    return _json(plan) + "\n"


def _json(value: Any, indent: str = "") -> str:
    """JSON in lines: a structure that fits on one stays on one."""
    short = json.dumps(value, ensure_ascii=False)
    if len(short) + len(indent) <= 120 or not isinstance(value, (dict, list)) or not value:
        return short
    inner = indent + "  "
    if isinstance(value, dict):
        items = [f"{json.dumps(key, ensure_ascii=False)}: {_json(item, inner)}" for key, item in value.items()]
    else:
        items = [_json(item, inner) for item in value]
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    return f"{opening}\n{inner}" + f",\n{inner}".join(items) + f"\n{indent}{closing}"


class _Writer:
    """Turns relations into JSON.

    Attributes:
        tables: all tables, each once.
        relations: all relations, each once, behind those that they are made of.
    """

    def __init__(
        self,
        identities: Identities,
        declaration_of: Callable[[Identifier, CatalogTable], str],
        type_text: Callable[[DataType], str],
    ) -> None:
        self._identities, self._declaration_of, self._type_text = identities, declaration_of, type_text
        self.tables: list[dict[str, Any]] = []
        self.relations: list[dict[str, Any]] = []
        self._table_numbers: list[tuple[Identifier, CatalogTable]] = []
        self._relation_numbers: list[Relation] = []

    def table(self, identifier: Identifier, table: CatalogTable) -> int:
        """Number of a table."""
        for number, known in enumerate(self._table_numbers):
            if known == (identifier, table):
                return number
        self._table_numbers.append((identifier, table))
        self.tables.append(
            {"name": list(identifier), "declaration": self._declaration_of(identifier, table).split("\n")}
        )
        return len(self.tables) - 1

    def relation(self, relation: Relation) -> int:
        """Number of a relation."""
        for number, known in enumerate(self._relation_numbers):
            # A table is read once, however many queries read it.
            if known is relation or (isinstance(relation, plain_relations.Scan) and known == relation):
                return number
        written: dict[str, Any] = {"relation": type(relation).__name__}
        written |= self._fields(relation)
        identity = self._identities.of_operator(relation)
        if identity is not None:
            written["uid"] = identity.uid
            if identity.input_names:
                written["state"] = [list(names) for names in identity.input_names]
        self._relation_numbers.append(relation)
        self.relations.append(written)
        return len(self.relations) - 1

    def _fields(self, value: Any) -> dict[str, Any]:
        written = {}
        for field in fields(value):
            item = getattr(value, field.name)
            if field.name == "table" and isinstance(item, CatalogTable):
                written["table"] = self.table(value.identifier, item)
            elif not (field.name == "identifier" and isinstance(value, plain_relations.Scan)) and not (
                field.default is not MISSING and item == field.default
            ):
                written[field.name] = self.value(item)
        return written

    def value(self, value: Any) -> Any:
        """A value as JSON."""
        match value:
            case None | bool() | int() | str():
                return value if not isinstance(value, Enum) else value.name
            case Enum():
                return value.name
            case plain_relations.Scan() if value not in self._relation_numbers:
                return self.relation(value)
            case Relation():
                return self.relation(value)
            case DataType():
                return self._type(value)
            case Constant():
                return {"constant": self.scalar(value.value), "type": self._type(value.type)}
            case InputColumn():
                return {"column": value.index, "name": value.name, "type": self._type(value.type)}
            case AppliedFunction():
                return {"function": value.name, **{k: v for k, v in self._fields(value).items() if k != "name"}}
            case tuple() | list():
                return [self.value(item) for item in value]
        if is_dataclass(value) and type(value).__name__ in _STRUCTURES:
            return self._fields(value)
        return self.scalar(value)

    def _type(self, data_type: DataType) -> Any:
        return self._type_text(data_type)

    def scalar(self, value: Any) -> Any:
        """A value of a constant; those that JSON does not have say what they are."""
        match value:
            case None | bool() | int() | str():
                return value
            case float():
                return value if math.isfinite(value) else {"float": str(value)}
            case Decimal():
                return {"decimal": str(value)}
            case bytes():
                return {"bytes": value.hex()}
            case datetime():
                return {"timestamp": value.isoformat()}
            case date():
                return {"date": value.isoformat()}
            case time():
                return {"time": value.isoformat()}
            case DataType():
                return {"type": self._type(value)}
            case tuple() | list():
                return [self.scalar(item) for item in value]
        raise PlanFileError(f"a plan can't have the value {value!r} ({type(value).__name__})")


_SCALARS: Final[Mapping[str, Callable[[str], Any]]] = {
    "float": float, "decimal": Decimal, "bytes": bytes.fromhex, "timestamp": datetime.fromisoformat,
    "date": date.fromisoformat, "time": time.fromisoformat,
}  # fmt: skip


# -- reading


def read_plan(
    text: str,
    file: str,
    declared: Callable[[Identifier, str], CatalogTable],
    parse_type: Callable[[str], DataType],
) -> CompiledPlan:
    """The plan of a file.

    Args:
        text: of the file.
        file: its name, for errors.
        declared: the table of a declaration; raises ``ProgramError`` for what is none.
        parse_type: the type that SQL writes so; raises ``ProgramError`` for what is none.

    Raises:
        PlanFileError: the file is damaged, or no plan, or one of another version.
    """
    try:
        plain = json.loads(text)
    except ValueError as error:
        raise PlanFileError(f"{file} is no plan: it is no JSON: {error}") from None
    if not isinstance(plain, dict) or _VERSION_KEY not in plain:
        by_flink = " (plans of Flink have other operators: compile it again)" if "flinkVersion" in text[:200] else ""
        raise PlanFileError(f"{file} is no plan: '{_VERSION_KEY}' is missing{by_flink}")
    if plain[_VERSION_KEY] != VERSION:
        raise PlanFileError(
            f"{file} is a plan of version {plain[_VERSION_KEY]!r}, written by {plain.get('written-by')}, and this "
            f"Firesteel reads version {VERSION}: run it with the version that wrote it, or compile it again"
        )
    return _Reader(file, declared, parse_type).plan(plain)


class _Reader:
    """Turns JSON into relations, and says of each mistake where it is."""

    def __init__(
        self, file: str, declared: Callable[[Identifier, str], CatalogTable], parse_type: Callable[[str], DataType]
    ) -> None:
        self._file, self._declared, self._parse_type = file, declared, parse_type
        self._tables: list[tuple[Identifier, CatalogTable]] = []
        self._relations: list[Relation] = []

    def plan(self, plain: dict[str, Any]) -> CompiledPlan:
        for key in plain:
            if key not in (_VERSION_KEY, "written-by", "tables", "relations", "inserts"):
                raise self._error("", f"there is no '{key}'")
        for number, item in enumerate(self._list(plain, "tables", "")):
            self._tables.append(self._table(item, f"tables[{number}]"))
        identities: list[tuple[Relation, OperatorIdentity]] = []
        for number, item in enumerate(self._list(plain, "relations", "")):
            where = f"relations[{number}]"
            relation = self._relation(item, where)
            self._relations.append(relation)
            if "uid" in item:
                names = self.value(item.get("state", []), tuple[tuple[str, ...], ...], f"{where}.state")
                identities.append((relation, OperatorIdentity(self.value(item["uid"], str, f"{where}.uid"), names)))
        inserts, sinks = [], []
        for number, item in enumerate(self._list(plain, "inserts", "")):
            where = f"inserts[{number}]"
            item = self._object(item, where)
            table = self._number(item.get("table"), self._tables, f"{where}.table")
            relation = self._number(item.get("rows"), self._relations, f"{where}.rows")
            inserts.append(PlannedInsert(*table, relation))
            sinks.append(OperatorIdentity(self.value(item.get("uid"), str, f"{where}.uid")))
        if not inserts:
            raise self._error("inserts", "there is none")
        return CompiledPlan(tuple(inserts), RecordedIdentities(identities, sinks))

    def _error(self, where: str, what: str) -> PlanFileError:
        return PlanFileError(f"{self._file}: {where}{': ' if where else ''}{what}")

    def _object(self, plain: Any, where: str) -> dict[str, Any]:
        if not isinstance(plain, dict):
            raise self._error(where, f"an object is expected, not {_shown(plain)}")
        return plain

    def _list(self, plain: dict[str, Any], key: str, where: str) -> list[Any]:
        items = plain.get(key)
        if not isinstance(items, list):
            raise self._error(f"{where}{key}", f"a list is expected, not {_shown(items)}")
        return items

    def _number(self, plain: Any, among: Sequence[T], where: str) -> T:
        if type(plain) is not int or not 0 <= plain < len(among):
            raise self._error(where, f"a number below {len(among)} is expected, not {_shown(plain)}")
        return among[plain]

    def _table(self, plain: Any, where: str) -> tuple[Identifier, CatalogTable]:
        item = self._object(plain, where)
        catalog, database, name = self.value(item.get("name"), tuple[str, str, str], f"{where}.name")
        lines = self.value(item.get("declaration"), tuple[str, ...], f"{where}.declaration")
        identifier = (catalog, database, name)
        try:
            return identifier, self._declared(identifier, "\n".join(lines))
        except ProgramError as error:
            raise self._error(f"{where}.declaration", str(error)) from None

    def _relation(self, plain: Any, where: str) -> Relation:
        item = self._object(plain, where)
        kind = _RELATIONS.get(str(item.get("relation")))
        if kind is None:
            raise self._error(f"{where}.relation", f"this version has no {_shown(item.get('relation'))}")
        own = {key: value for key, value in item.items() if key not in ("relation", "uid", "state")}
        more: dict[str, Any] = {}
        if kind is plain_relations.Scan:
            more["identifier"], more["table"] = self._number(own.pop("table", None), self._tables, f"{where}.table")
        relation: Relation = self._structure(own, kind, where, more)
        width = sum(len(part.columns) for part in relation.inputs)
        if isinstance(relation, stateful_relations.LookupJoin):
            width += len(relation.table.columns)
        try:
            relation.text()
            highest = max((place for item in expressions_of(relation) for place in places_of(item)), default=-1)
        except IndexError:
            highest = width
        if highest >= width:
            raise self._error(where, f"it reads a column that its input does not have, which has {width}")
        return relation

    def _structure(self, plain: dict[str, Any], kind: type[T], where: str, more: Mapping[str, Any] | None = None) -> T:
        values: dict[str, Any] = dict(more or {})
        hints = _hints(kind)
        for key, item in plain.items():
            if key not in hints:
                raise self._error(where, f"there is no '{key}' in {kind.__name__}")
            values[key] = self.value(item, hints[key], f"{where}.{key}")
        for field in fields(kind):  # type: ignore[arg-type] # they are dataclasses
            if field.default is MISSING and field.name not in values:
                raise self._error(where, f"'{field.name}' is missing")
        return kind(**values)

    def value(self, plain: Any, hint: Any, where: str) -> Any:
        """A value of the type that a hint says."""
        origin, arguments = get_origin(hint), get_args(hint)
        if origin in (Union, UnionType):
            if plain is None and NoneType in arguments:
                return None
            (other,) = [argument for argument in arguments if argument is not NoneType]
            return self.value(plain, other, where)
        if origin is tuple:
            if not isinstance(plain, list) or (arguments[-1] is not ... and len(plain) != len(arguments)):
                count = "" if arguments[-1] is ... else f" of {len(arguments)}"
                raise self._error(where, f"a list{count} is expected, not {_shown(plain)}")
            types = [arguments[0]] * len(plain) if arguments[-1] is ... else arguments
            pairs = enumerate(zip(plain, types, strict=True))
            return tuple(self.value(item, item_type, f"{where}[{number}]") for number, (item, item_type) in pairs)
        if hint in (Any, object):
            return self._scalar(plain, where)
        if hint in (str, int, bool):
            if type(plain) is not hint:
                raise self._error(where, f"{_WORDS[hint]} is expected, not {_shown(plain)}")
            return plain
        if not isclass(hint):
            raise AssertionError(hint)
        if issubclass(hint, Enum):
            if not isinstance(plain, str) or plain not in hint.__members__:
                raise self._error(where, f"{' or '.join(hint.__members__)} is expected, not {_shown(plain)}")
            return hint[plain]
        if issubclass(hint, DataType):
            return self._type(plain, where)
        if issubclass(hint, Relation):
            relation = self._number(plain, self._relations, where)
            if not isinstance(relation, hint):
                raise self._error(where, f"relation {plain} is no {hint.__name__}")
            return relation
        if issubclass(hint, RowExpression):
            return self._expression(self._object(plain, where), where)
        return self._structure(self._object(plain, where), hint, where)

    def _type(self, plain: Any, where: str) -> DataType:
        text = self.value(plain, str, where)
        try:
            return self._parse_type(text)
        except ProgramError as error:
            raise self._error(where, f"{text!r} is no type: {error}") from None

    def _expression(self, plain: dict[str, Any], where: str) -> RowExpression:
        if "column" in plain:
            return self._structure({"index": plain["column"], **_without(plain, "column")}, InputColumn, where)
        if "constant" in plain:
            return self._structure({"value": plain["constant"], **_without(plain, "constant")}, Constant, where)
        if "function" not in plain:
            raise self._error(where, "'column', 'constant' or 'function' is expected")
        call = self._structure({"name": plain["function"], **_without(plain, "function")}, AppliedFunction, where)
        if not _has_kernel(call.kernel):
            raise self._error(f"{where}.kernel", f"this version has no {call.kernel!r}, which computes {call.name}")
        return call

    def _scalar(self, plain: Any, where: str) -> Any:
        if isinstance(plain, list):
            return tuple(self._scalar(item, f"{where}[{number}]") for number, item in enumerate(plain))
        if not isinstance(plain, dict):
            return plain
        if len(plain) == 1:
            (name, text), *_ = plain.items()
            if name == "type":
                return self._type(text, where)
            if name in _SCALARS and isinstance(text, str):
                try:
                    return _SCALARS[name](text)
                except (ValueError, InvalidOperation):
                    raise self._error(where, f"{text!r} is no {name}") from None
        raise self._error(where, f"a value is expected, not {_shown(plain)}")


def _without(plain: dict[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in plain.items() if name != key}


def _shown(plain: Any) -> str:
    text = json.dumps(plain, ensure_ascii=False)
    return text if len(text) <= 60 else text[:57] + "..."


_WORDS: Final = {str: "a text", int: "a whole number", bool: "true or false"}


def _classes(*modules: Any) -> Iterator[type[Any]]:
    for module in modules:
        for item in vars(module).values():
            if isclass(item) and is_dataclass(item) and item.__module__ == module.__name__:
                yield item


_RELATIONS: Final[Mapping[str, type[Relation]]] = {
    kind.__name__: kind
    for kind in _classes(plain_relations, stateful_relations, recursion)
    if issubclass(kind, Relation)
}
_STRUCTURES: Final = frozenset(kind.__name__ for kind in _classes(plain_relations, stateful_relations))
"""Parts of relations that are written field by field."""


_HINTS: Final[dict[type[Any], dict[str, Any]]] = {}


def _hints(kind: type[Any]) -> dict[str, Any]:
    if kind not in _HINTS:
        _HINTS[kind] = get_type_hints(kind)
    return _HINTS[kind]


@cache
def _has_kernel(kernel: str) -> bool:
    """Whether this version has a kernel: one of ``firesteel.expressions``, or a function of the room ``kernels``."""
    module, colon, name = kernel.partition(":")
    if not colon:
        return kernel in OWN_KERNELS
    if not module.startswith("firesteel_sql.kernels."):
        return False
    try:
        return hasattr(import_module(module), name)
    except ModuleNotFoundError:
        return False
