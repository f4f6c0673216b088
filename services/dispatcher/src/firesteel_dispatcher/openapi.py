"""The table of the REST API as an OpenAPI document."""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from typing import Any, Final

import msgspec

import firesteel
from firesteel.rest import types as t
from firesteel.rest.endpoints import CallerRights, Endpoint, Parameter, flink_name, part_type

_REFERENCE: Final = "#/components/schemas/{name}"
_KINDS: Final = {"text": "string", "number": "integer", "flag": "boolean"}


@functools.cache
def document(endpoints: Sequence[Endpoint]) -> bytes:
    """The document, as JSON."""
    kinds: list[Any] = [one.answer for one in endpoints if not one.is_text]
    kinds += [one.body for one in endpoints if one.body is not None]
    kinds += [part_type(part) for one in endpoints for part in one.parts] + [t.Errors]
    schemas, components = msgspec.json.schema_components(kinds, ref_template=_REFERENCE)
    found = {_key(kind): schema for kind, schema in zip(kinds, schemas, strict=True)}
    paths: dict[str, dict[str, Any]] = {}
    for one in endpoints:
        paths.setdefault(_path(one), {})[one.method.lower()] = _operation(one, found)
    return json.dumps(
        {
            "openapi": "3.1.0",
            "info": {
                "title": "Firesteel REST API",
                "version": firesteel.__version__,
                "description": "Paths and fields of Flink 2.3; all paths also stand below /v1.",
                "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
            },
            "servers": [{"url": "/"}, {"url": "/v1"}],
            "paths": paths,
            "components": {
                "schemas": components,
                "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            },
        },
        indent=1,
    ).encode()


def _key(kind: Any) -> str:
    return repr(kind)


def _path(one: Endpoint) -> str:
    path = one.path
    for part in one.parts:
        path = path.replace(f"{{{part}}}", f"{{{flink_name(part)}}}")
    return path


def _operation(one: Endpoint, schemas: dict[str, Any]) -> dict[str, Any]:
    parameters = [
        {"name": flink_name(part), "in": "path", "required": True, "schema": schemas[_key(part_type(part))]}
        for part in one.parts
    ]
    parameters += [_parameter(parameter) for parameter in one.query]
    media = str(one.answer) if one.is_text else "application/json"
    schema: Any = {"type": "string"} if one.is_text else schemas[_key(one.answer)]
    problem = {"application/json": {"schema": schemas[_key(t.Errors)]}}
    operation: dict[str, Any] = {
        "operationId": _name(one),
        "summary": one.what,
        "parameters": parameters,
        "responses": {
            str(one.status): {"description": one.what, "content": {media: {"schema": schema}}},
            "default": {"description": "what was wrong", "content": problem},
        },
    }
    if one.body is not None:
        operation["requestBody"] = {"content": {"application/json": {"schema": schemas[_key(one.body)]}}}
    elif one.upload:
        operation["requestBody"] = {"content": {one.upload: {"schema": {"type": "object"}}}, "required": True}
    if one.access is not CallerRights.READ:
        operation["security"] = [{"token": []}]
    return operation


def _parameter(one: Parameter) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": _KINDS[one.kind]}
    if one.kind == "number":
        schema |= {"minimum": one.least, "maximum": one.most}
    if one.choices:
        schema["enum"] = list(one.choices)
    if one.default is not None:
        schema["default"] = one.default
    return {"name": one.name, "in": "query", "required": one.needed, "description": one.doc, "schema": schema}


def _name(one: Endpoint) -> str:
    words = [word.strip("{}") for word in one.path.replace("-", "_").split("/") if word]
    return "_".join([one.method.lower(), *words]).replace(".", "_")
