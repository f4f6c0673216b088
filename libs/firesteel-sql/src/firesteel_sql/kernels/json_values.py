"""JSON functions. Texts are parsed once for each distinct row of operands."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
import pyarrow.types as pt

from firesteel.common.value_texts import java_double_text
from firesteel.expressions.registry import Kernel
from firesteel_sql.kernels.casts import CastError, read_text
from firesteel_sql.kernels.definition import KernelCall, by_value, kernel, values_kernel
from firesteel_sql.kernels.json_paths import JsonPath, PathMissing, PathRefused, json_path

_MISSING: Final = object()


class JsonError(ValueError):
    """A text that is no JSON, or a value that a JSON function can't give."""


# -- reading and writing


def _no_constant(name: str) -> Any:
    raise JsonError(f"{name} is no JSON")


_DECODER: Final = json.JSONDecoder(parse_float=Decimal, parse_constant=_no_constant)


def parse(text: str) -> Any:
    """The value at the beginning of a text: what follows does not matter, as in Flink.

    Raises:
        JsonError: there is none.
    """
    text = text.lstrip(" \t\r\n")
    try:
        value, end = _DECODER.raw_decode(text)
        if end < len(text) and not isinstance(value, (dict, list, str)) and not text[end].isspace():
            raise ValueError(f"{text[: end + 1]} is no number and no word")
        return value
    except (ValueError, RecursionError) as error:
        raise JsonError(f"'{text[:80]}' is no JSON: {error}") from None


def written(value: Any) -> str:
    """A value as JSON, without blanks and with the keys in order, as Flink writes it."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case float():
            return _real(value)
        case int() | Decimal():
            return str(value)
        case str():
            return quoted(value)
        case list():
            return f"[{','.join(map(written, value))}]"
    return "{" + ",".join(f"{quoted(key)}:{written(item)}" for key, item in sorted(value.items())) + "}"


def _real(number: float) -> str:
    """As Java's ``BigDecimal.valueOf(number).toString()``; a FLOAT has the digits of the DOUBLE that it is."""
    text = java_double_text(number)
    return f'"{text}"' if text[-1] in "Ny" else str(Decimal(text))


_ESCAPED: Final = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_SPECIAL: Final = re.compile(r'["\\\x00-\x1f]')


def quoted(text: str) -> str:
    """A text as JSON."""
    return '"' + _SPECIAL.sub(lambda char: _ESCAPED.get(char.group()) or f"\\u{ord(char.group()):04X}", text) + '"'


def json_of(data_type: pa.DataType) -> Callable[[Any], str]:
    """What writes the values of a column's type as JSON."""
    if pt.is_list(data_type):
        element = json_of(data_type.value_type)
        return lambda items: f"[{','.join('null' if item is None else element(item) for item in items)}]"
    if pt.is_map(data_type):
        value = json_of(data_type.item_type)
        return lambda pairs: (
            "{" + ",".join(f"{quoted(key)}:{'null' if item is None else value(item)}" for key, item in pairs) + "}"
        )
    if pt.is_struct(data_type):
        fields = [(field.name, json_of(field.type)) for field in data_type]
        return lambda row: (
            "{"
            + ",".join(f"{quoted(name)}:{'null' if row[name] is None else write(row[name])}" for name, write in fields)
            + "}"
        )
    if pt.is_timestamp(data_type):
        return lambda moment: f'"{_moment_text(moment)}{"Z" if data_type.tz else ""}"'
    return _scalar_json


def _moment_text(moment: datetime) -> str:
    text = moment.replace(tzinfo=None).isoformat()
    return text.rstrip("0") if "." in text else text


def _scalar_json(value: Any) -> str:
    match value:
        case Decimal():
            return format(value, "f")
        case bytes():
            return f'"{base64.b64encode(value).decode("ascii")}"'
        case datetime() | date() | time():
            return f'"{value.isoformat()}"'
    return written(value)


# -- what a text is


def _is_json(text: str | None, kind: str) -> bool:
    if text is None:
        return False
    try:
        value = parse(text)
    except JsonError:
        return False
    match kind:
        case "OBJECT":
            return isinstance(value, dict)
        case "ARRAY":
            return isinstance(value, list)
        case "SCALAR":
            return not isinstance(value, (dict, list))
    return True


@kernel
def is_json(call: KernelCall) -> Kernel:
    """``x IS JSON [kind]``."""
    kind = call.options["kind"]
    return by_value(lambda text: _is_json(text, kind), call.result, sees_null=True)


# -- paths


def _value_at(text: str, path: JsonPath) -> Any:
    """What a path means in a text; ``_MISSING`` for nothing in a lax path, also if the text is no JSON.

    Raises:
        JsonError: the path is strict, and the text is no JSON, or the path leads to nothing.
    """
    try:
        return path.read(parse(text))
    except PathMissing as missing:
        if path.is_strict:
            raise JsonError(f"the path '{path.text}' leads to nothing: {missing}") from None
    except JsonError:
        if path.is_strict:
            raise
    return _MISSING


@kernel
def json_exists(call: KernelCall) -> Kernel:
    """``JSON_EXISTS(text, path ... ON ERROR)``."""
    on_error = call.options["on_error"]

    def exists(text: str, path: str) -> bool | None:
        try:
            target = _value_at(text, json_path(path))
        except (JsonError, PathRefused):
            if on_error == "ERROR":
                raise
            return {"TRUE": True, "FALSE": False, "UNKNOWN": None}[on_error]
        return target is not _MISSING and target is not None

    return by_value(exists, call.result)


def _scalar_text(value: Any) -> str:
    """A scalar as JSON_VALUE gives it as a text."""
    if isinstance(value, str):
        return value
    return written(value)


@kernel
def json_value(call: KernelCall) -> Kernel:
    """``JSON_VALUE(text, path RETURNING type ... ON EMPTY ... ON ERROR)``.

    The operands are the text, the path, and the defaults of the two clauses that have one.
    """
    on_empty, on_error = call.options["on_empty"], call.options["on_error"]
    zone = call.options.get("zone", "UTC")
    length = call.options.get("length")

    def as_result(value: Any) -> Any:
        text = _scalar_text(value)
        if pt.is_string(call.result):
            return text if length is None else text[:length]
        try:
            return read_text(text, call.result, zone)
        except CastError as error:
            raise JsonError(str(error)) from None

    def value_of(text: str | None, path: str | None, *defaults: Any) -> Any:
        if text is None or path is None:
            return None
        remaining = iter(defaults)
        for_empty = next(remaining) if on_empty == "DEFAULT" else None
        for_error = next(remaining) if on_error == "DEFAULT" else None
        try:
            compiled = json_path(path)
            target = _value_at(text, compiled)
            is_scalar = not isinstance(target, (dict, list))
            if target is not _MISSING and target is not None and is_scalar:
                return as_result(target)
            if compiled.is_strict and not is_scalar:
                raise JsonError(f"JSON_VALUE gives scalars, and '{path}' is an object or an array in {text[:80]}")
        except (JsonError, PathRefused):
            if on_error == "ERROR":
                raise
            return for_error
        if on_empty == "ERROR":
            raise JsonError(f"JSON_VALUE: '{path}' is empty in {text[:80]}")
        return for_empty

    return by_value(value_of, call.result, sees_null=True)


_EMPTY: Final[dict[str, Any]] = {"EMPTY ARRAY": [], "EMPTY OBJECT": {}, "NULL": None}


@kernel
def json_query(call: KernelCall) -> Kernel:
    """``JSON_QUERY(text, path RETURNING type wrapper ... ON EMPTY ... ON ERROR)``."""
    wrapper, on_empty, on_error = (call.options[name] for name in ("wrapper", "on_empty", "on_error"))
    is_text = pt.is_string(call.result)

    def as_result(value: Any) -> Any:
        if value is None:
            return None
        if is_text:
            return written(value)
        if not isinstance(value, list):
            raise JsonError("JSON_QUERY: the result is an object, and an array is to be returned")
        return [None if item is None else _scalar_text(item) for item in value]

    def query(text: str, path: str) -> Any:
        try:
            compiled = json_path(path)
            target = _value_at(text, compiled)
            if (
                target is not _MISSING
                and target is not None
                and (
                    wrapper == "WITH UNCONDITIONAL" or (wrapper == "WITH CONDITIONAL" and not isinstance(target, list))
                )
            ):
                target = [target]
            if isinstance(target, (dict, list)):
                return as_result(target)
            if compiled.is_strict and target is not None:
                raise JsonError(f"JSON_QUERY gives objects and arrays, and '{path}' is a scalar in {text[:80]}")
        except (JsonError, PathRefused):
            if on_error == "ERROR":
                raise
            return as_result(_EMPTY[on_error])
        if on_empty == "ERROR":
            raise JsonError(f"JSON_QUERY: '{path}' is empty in {text[:80]}")
        return as_result(_EMPTY[on_empty])

    return by_value(query, call.result)


# -- making JSON


def _writers(call: KernelCall) -> list[Callable[[Any], str]]:
    """For each value what writes it; those that are JSON already stay as they are."""
    return [str if place in call.options["raw"] else json_of(data_type) for place, data_type in enumerate(call.inputs)]


@kernel
def json_object(call: KernelCall) -> Kernel:
    """``JSON_OBJECT(KEY k VALUE v, ... ON NULL)``; the keys are options."""
    keys = [quoted(key) for key in call.options["keys"]]
    writers = _writers(call)
    keeps_null = call.options["keeps_null"]

    def object_of(*values: Any) -> str:
        entries: dict[str, str] = {}
        for key, write, value in zip(keys, writers, values, strict=True):
            if value is not None:
                entries[key] = write(value)
            elif keeps_null:
                entries[key] = "null"
        return "{" + ",".join(f"{key}:{value}" for key, value in entries.items()) + "}"

    return by_value(object_of, call.result, sees_null=True)


@kernel
def json_array(call: KernelCall) -> Kernel:
    """``JSON_ARRAY(v, ... ON NULL)``."""
    writers = _writers(call)
    keeps_null = call.options["keeps_null"]

    def array_of(*values: Any) -> str:
        parts = [
            "null" if value is None else write(value)
            for write, value in zip(writers, values, strict=True)
            if value is not None or keeps_null
        ]
        return f"[{','.join(parts)}]"

    return by_value(array_of, call.result, sees_null=True)


@kernel
def json_string(call: KernelCall) -> Kernel:
    """``JSON_STRING(x)``."""
    return by_value(json_of(call.inputs[0]), call.result)


json_ = values_kernel(lambda text: written(parse(text)))


def _json_quoted(text: str) -> str:
    """As ``quoted``, with all that is not ASCII as ``\\uXXXX``, and with ``/`` escaped."""
    return json.dumps(text).replace("/", "\\/")


_ESCAPES: Final = re.compile(r'\\(?:u([0-9a-fA-F]{4})|(["\\/bfnrt]))')
_UNESCAPED: Final = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}


def _json_unquoted(text: str) -> str:
    """The text that a JSON string means; anything else stays as it is."""
    if len(text) < 2 or text[0] != '"' or text[-1] != '"':
        return text
    try:
        parse(text)
    except JsonError:
        return text
    units = _ESCAPES.sub(
        lambda match: (
            chr(int(match.group(1), 16)) if match.group(1) else _UNESCAPED.get(match.group(2), match.group(2))
        ),
        text[1:-1],
    )
    # Two escapes may be the halves of one character.
    return units.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


json_quote = values_kernel(_json_quoted)
json_unquote = values_kernel(_json_unquoted)
