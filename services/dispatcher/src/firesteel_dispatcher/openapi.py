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
    """The OpenAPI document of these endpoints, as JSON."""
    kinds: list[Any] = [endpoint.answer for endpoint in endpoints if not endpoint.is_text]
    kinds += [endpoint.body for endpoint in endpoints if endpoint.body is not None]
    kinds += [part_type(part) for endpoint in endpoints for part in endpoint.parts] + [t.Errors]
    schemas, components = msgspec.json.schema_components(kinds, ref_template=_REFERENCE)
    schema_of = {_key(kind): schema for kind, schema in zip(kinds, schemas, strict=True)}
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in endpoints:
        paths.setdefault(_path(endpoint), {})[endpoint.method.lower()] = _operation(endpoint, schema_of)
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


def _path(endpoint: Endpoint) -> str:
    path = endpoint.path
    for part in endpoint.parts:
        path = path.replace(f"{{{part}}}", f"{{{flink_name(part)}}}")
    return path


def _operation(endpoint: Endpoint, schemas: dict[str, Any]) -> dict[str, Any]:
    parameters = [
        {"name": flink_name(part), "in": "path", "required": True, "schema": schemas[_key(part_type(part))]}
        for part in endpoint.parts
    ]
    parameters += [_parameter(parameter) for parameter in endpoint.query]
    media = str(endpoint.answer) if endpoint.is_text else "application/json"
    schema: Any = {"type": "string"} if endpoint.is_text else schemas[_key(endpoint.answer)]
    problem = {"application/json": {"schema": schemas[_key(t.Errors)]}}
    operation: dict[str, Any] = {
        "operationId": _name(endpoint),
        "summary": endpoint.what,
        "parameters": parameters,
        "responses": {
            str(endpoint.status): {"description": endpoint.what, "content": {media: {"schema": schema}}},
            "default": {"description": "what was wrong", "content": problem},
        },
    }
    if endpoint.body is not None:
        operation["requestBody"] = {"content": {"application/json": {"schema": schemas[_key(endpoint.body)]}}}
    elif endpoint.upload:
        operation["requestBody"] = {"content": {endpoint.upload: {"schema": {"type": "object"}}}, "required": True}
    if endpoint.access is not CallerRights.READ:
        operation["security"] = [{"token": []}]
    return operation


def _parameter(parameter: Parameter) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": _KINDS[parameter.kind]}
    if parameter.kind == "number":
        schema |= {"minimum": parameter.least, "maximum": parameter.most}
    if parameter.choices:
        schema["enum"] = list(parameter.choices)
    if parameter.default is not None:
        schema["default"] = parameter.default
    return {
        "name": parameter.name,
        "in": "query",
        "required": parameter.needed,
        "description": parameter.doc,
        "schema": schema,
    }


def _name(endpoint: Endpoint) -> str:
    words = [word.strip("{}") for word in endpoint.path.replace("-", "_").split("/") if word]
    return "_".join([endpoint.method.lower(), *words]).replace(".", "_")
