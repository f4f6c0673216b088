"""Serializer snapshots: the schema of typed state as plain data, and what becomes of its values under a later type.

A schema is JSON: ``{"type": "row", "fields": [{"name": "id", "type": {"type": "basic", "of": "INT"}}, ...]}``. Three
answers: values are used as they are; they are migrated (a field was added or removed, a number widened); or the types
are incompatible, and the field is named.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, NamedTuple

from firesteel.common.coerce_scalars import rounded
from firesteel.common.type_table import SCALAR_BY_NAME, ScalarRow, Shape, field_names, parts_of, resolved
from firesteel.common.typeinfo import TypeInformation
from firesteel.common.types import Row, make_row

Schema = dict[str, Any]
Convert = Callable[[Any], Any]

_NONE: Final[Mapping[str, Any]] = {}
_BYTE: Final = SCALAR_BY_NAME["BYTE"].schema


class SchemaCompatibility(Enum):
    """What becomes of values of an older schema."""

    AS_IS = "as is"
    MIGRATE = "migrate"
    INCOMPATIBLE = "incompatible"


@dataclass(frozen=True)
class Compatibility:
    """The answer of a comparison, with its reason.

    Attributes:
        field: path of the field that decided, empty for the value itself.
        reason: what differs; empty if nothing does.
        convert: with MIGRATE: converts an old value; None where the Python value stays the same.
    """

    answer: SchemaCompatibility
    field: str = ""
    reason: str = ""
    convert: Convert | None = None


class LostKeysError(Exception):
    """Raised when entries of a map would be lost.

    Attributes:
        field: path of the keys.
        reason: what differs.
    """

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(reason)
        self.field, self.reason = field, reason


_AS_IS: Final = Compatibility(SchemaCompatibility.AS_IS)


def schema_of(type_info: TypeInformation) -> Schema:
    """Schema of a type, as plain data."""
    type_info, row = resolved(type_info)
    if isinstance(row, ScalarRow):
        scalar: Schema = row.schema
        return scalar
    parts = [schema_of(part) for part in parts_of(type_info)]
    match row.shape:
        case Shape.ROW | Shape.TUPLE:
            names = field_names(type_info) or ()
            fields = [{"name": name, "type": part} for name, part in zip(names, parts, strict=True)]
            return {"type": row.schema, "fields": fields}
        case Shape.MAP:
            return {"type": row.schema, "key": parts[0], "value": parts[1]}
        case Shape.LIST:
            return {"type": row.schema, "element": parts[0]}
        case Shape.ANY:
            return {"type": row.schema}
    return {"type": row.schema, "of": str(type_info)}


def text_of(schema: Schema) -> str:
    """Schema as text for people."""
    kind = schema["type"]
    if kind in ("row", "tuple"):
        fields = ", ".join(f"{field['name']}: {text_of(field['type'])}" for field in schema["fields"])
        return f"{kind}({fields})"
    if kind == "map":
        return f"map<{text_of(schema['key'])}, {text_of(schema['value'])}>"
    if "element" in schema:
        return f"{kind}<{text_of(schema['element'])}>"
    if kind == "decimal":
        return f"DECIMAL({schema['precision']}, {schema['scale']})"
    return str(schema.get("of", kind))


def compare(old: Schema, new: Schema, path: str = "", defaults: Mapping[str, Any] = _NONE) -> Compatibility:
    """Decide what becomes of values written with the old schema under the new one.

    Args:
        old, new: the schemas.
        path: of the value.
        defaults: of fields that are added, by path.
    """
    if old == new:
        return _AS_IS
    kind = old["type"]
    if kind != new["type"]:
        return _incompatible(old, new, path)
    if kind == "basic":
        before, now = SCALAR_BY_NAME.get(old["of"]), SCALAR_BY_NAME.get(new["of"])
        if before is not None and now is not None and now.name in before.wider:
            reason = f"widened from {before.name} to {now.name}"
            return Compatibility(SchemaCompatibility.MIGRATE, path, reason, now.widen)
        return _incompatible(old, new, path)
    if kind == "decimal":
        return _compare_decimals(old, new, path)
    if kind in ("row", "tuple"):
        return _compare_fields(old, new, path, defaults)
    if kind == "map":
        return _compare_maps(old, new, path, defaults)
    if "element" in old:
        return _compare_elements(old, new, path, defaults)
    return _incompatible(old, new, path)


def _compare_decimals(old: Schema, new: Schema, path: str) -> Compatibility:
    """Numbers with more digits on both sides of the point hold all that those with fewer do."""
    scale = new["scale"]
    if scale < old["scale"] or new["precision"] - scale < old["precision"] - old["scale"]:
        return _incompatible(old, new, path)
    reason = f"widened from {text_of(old)} to {text_of(new)}"
    return Compatibility(
        SchemaCompatibility.MIGRATE, path, reason, lambda value: rounded(value, (new["precision"], scale))
    )


def _incompatible(old: Schema, new: Schema, path: str) -> Compatibility:
    return Compatibility(SchemaCompatibility.INCOMPATIBLE, path, f"it was {text_of(old)} and is {text_of(new)} now")


def _compare_fields(old: Schema, new: Schema, path: str, defaults: Mapping[str, Any]) -> Compatibility:
    before = {field["name"]: (position, field["type"]) for position, field in enumerate(old["fields"])}
    reasons: list[tuple[str, str]] = []
    plan: list[_Field] = []
    for field in new["fields"]:
        name = field["name"]
        field_path = f"{path}.{name}" if path else name
        if name not in before:
            reasons.append(
                (field_path, f"added, {defaults[field_path]!r} where it was not" if field_path in defaults else "added")
            )
            plan.append(_Field(-1, None, defaults.get(field_path)))
            continue
        position, schema = before.pop(name)
        compatible = compare(schema, field["type"], field_path, defaults)
        if compatible.answer is SchemaCompatibility.INCOMPATIBLE:
            return compatible
        if compatible.answer is SchemaCompatibility.MIGRATE:
            reasons.append((compatible.field, compatible.reason))
        plan.append(_Field(position, compatible.convert))
    reasons += [(f"{path}.{name}" if path else name, "removed") for name in before]
    field_name, reason = reasons[0] if reasons else (path, "its fields are in another order")
    reason += "".join(f"; {name}: {why}" for name, why in reasons[1:])
    if old["type"] == "row":
        return Compatibility(
            SchemaCompatibility.MIGRATE,
            field_name,
            reason,
            _row_converter(tuple(f["name"] for f in new["fields"]), plan),
        )
    return Compatibility(SchemaCompatibility.MIGRATE, field_name, reason, lambda value: tuple(_pick(value, plan)))


class _Field(NamedTuple):
    """Source of a current field: its former position; -1 = the field is new and gets the default."""

    position: int
    convert: Convert | None
    default: Any = None


def _pick(values: Any, plan: list[_Field]) -> list[Any]:
    picked: list[Any] = []
    for position, convert, default in plan:
        value = default if position < 0 else values[position]
        picked.append(value if value is None or convert is None else convert(value))
    return picked


def _row_converter(names: tuple[str, ...], plan: list[_Field]) -> Convert:
    def convert(row: Row) -> Row:
        return make_row(names, _pick(list(row), plan), row.get_row_kind())

    return convert


def _compare_maps(old: Schema, new: Schema, path: str, defaults: Mapping[str, Any]) -> Compatibility:
    keys = compare(old["key"], new["key"], f"{path}[key]", defaults)
    values = compare(old["value"], new["value"], f"{path}[value]", defaults)
    for compatible in (keys, values):
        if compatible.answer is SchemaCompatibility.INCOMPATIBLE:
            return compatible
    first = keys if keys.answer is SchemaCompatibility.MIGRATE else values
    fit_key, fit_value = keys.convert, values.convert
    if fit_key is None and fit_value is None:
        return Compatibility(SchemaCompatibility.MIGRATE, first.field, first.reason)

    def convert(value: dict[Any, Any]) -> dict[Any, Any]:
        converted = {
            (key if fit_key is None else fit_key(key)): (item if item is None or fit_value is None else fit_value(item))
            for key, item in value.items()
        }
        if len(converted) < len(value):
            raise LostKeysError(f"{path}[key]", f"{first.reason}, which makes several of its keys one")
        return converted

    return Compatibility(SchemaCompatibility.MIGRATE, first.field, first.reason, convert)


def _compare_elements(old: Schema, new: Schema, path: str, defaults: Mapping[str, Any]) -> Compatibility:
    if old["type"] == "primitive_array" and _BYTE in (old["element"], new["element"]):
        return _incompatible(old, new, path)  # bytes, not a list
    compatible = compare(old["element"], new["element"], f"{path}[]", defaults)
    fit = compatible.convert
    if compatible.answer is SchemaCompatibility.INCOMPATIBLE or fit is None:
        return compatible

    def convert(value: list[Any]) -> list[Any]:
        return [item if item is None else fit(item) for item in value]

    return Compatibility(compatible.answer, compatible.field, compatible.reason, convert)
