"""Kubernetes' own description of its objects, cut down to those that the chart makes, and a check against it.

``python -m tests.servers.helm.schema SWAGGER.json > tests/servers/helm/kubernetes-1.35.json`` makes it anew from
``api/openapi-spec/swagger.json`` of the Go module ``k8s.io/kubernetes``. With files of CRDs behind a dash,
``python -m tests.servers.helm.schema - CRD.yaml ... > tests/servers/helm/prometheus-operator-0.85.json``, it is that of
``example/prometheus-operator-crd`` of the Go module ``github.com/prometheus-operator/prometheus-operator``.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import yaml

FILE = Path(__file__).parent / "kubernetes-1.35.json"
OPERATORS = Path(__file__).parent / "prometheus-operator-0.85.json"
KINDS = frozenset({
    "v1/ConfigMap", "v1/Secret", "v1/Service", "v1/ServiceAccount", "v1/PersistentVolumeClaim", "v1/Pod",
    "apps/v1/Deployment", "apps/v1/StatefulSet", "autoscaling/v2/HorizontalPodAutoscaler", "batch/v1/Job",
    "policy/v1/PodDisruptionBudget", "networking.k8s.io/v1/NetworkPolicy", "networking.k8s.io/v1/Ingress",
    "rbac.authorization.k8s.io/v1/Role", "rbac.authorization.k8s.io/v1/RoleBinding",
})  # fmt: skip
_KEPT = ("type", "properties", "required", "items", "additionalProperties", "enum", "format", "$ref")
_REFERENCE = "#/definitions/"
_METADATA = f"{_REFERENCE}io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
_QUANTITY = "io.k8s.apimachinery.pkg.api.resource.Quantity"


def problems(document: dict[str, Any]) -> list[str]:
    """What is wrong with an object; fields that Kubernetes does not know are wrong, too."""
    kind = f"{document.get('apiVersion')}/{document.get('kind')}"
    schemas = _schema()
    if kind not in schemas["kinds"]:
        return [f"{kind} is none of {sorted(schemas['kinds'])}"]
    return list(_compare(document, {"$ref": schemas["kinds"][kind]}, str(document.get("kind")), schemas["definitions"]))


@cache
def _schema() -> dict[str, Any]:
    kubernetes, others = json.loads(FILE.read_text()), json.loads(OPERATORS.read_text())
    return {key: {**kubernetes[key], **others[key]} for key in kubernetes}


def _compare(value: Any, schema: dict[str, Any], where: str, definitions: dict[str, Any]) -> Iterator[str]:
    name = schema.get("$ref", "").removeprefix(_REFERENCE)
    if name:
        schema = definitions[name]
    if schema.get("format") == "int-or-string" or name == _QUANTITY:
        if not isinstance(value, str | int | float) or isinstance(value, bool):
            yield f"{where} is a {type(value).__name__}, not a text or a number"
        return
    kind = schema.get("type", "object" if "properties" in schema else None)
    kinds: dict[str, Any] = {
        "object": dict, "array": list, "string": str, "integer": int, "number": int | float, "boolean": bool,
    }  # fmt: skip
    if kind is not None and (not isinstance(value, kinds[kind]) or (isinstance(value, bool) and kind != "boolean")):
        yield f"{where} is {value!r}, not of the type {kind}"
        return
    if "enum" in schema and value not in schema["enum"]:
        yield f"{where} is {value!r}, none of {schema['enum']}"
    if isinstance(value, list):
        for number, item in enumerate(value):
            yield from _compare(item, schema.get("items", {}), f"{where}[{number}]", definitions)
    if isinstance(value, dict):
        properties, others = schema.get("properties", {}), schema.get("additionalProperties")
        yield from (f"{where} has no {required}" for required in schema.get("required", ()) if required not in value)
        for key, item in value.items():
            if key in properties:
                yield from _compare(item, properties[key], f"{where}.{key}", definitions)
            elif isinstance(others, dict):
                yield from _compare(item, others, f"{where}.{key}", definitions)
            elif properties:
                yield f"{where} knows no {key}"


def _cut(swagger: dict[str, Any]) -> dict[str, Any]:
    everything, kinds = swagger["definitions"], {}
    for name, definition in everything.items():
        for of in definition.get("x-kubernetes-group-version-kind", ()):
            kind = "/".join(filter(None, (of["group"], of["version"], of["kind"])))
            if kind in KINDS:
                kinds[kind] = _REFERENCE + name
    if missing := KINDS - set(kinds):
        raise SystemExit(f"there is no {', '.join(sorted(missing))} in this file")
    definitions: dict[str, Any] = {}
    left = list(kinds.values())
    while left:
        name = left.pop().removeprefix(_REFERENCE)
        if name not in definitions:
            definitions[name] = _stripped(everything[name])
            left += _references(definitions[name])
    return {"kinds": kinds, "definitions": definitions}


def _cut_crds(crds: list[dict[str, Any]]) -> dict[str, Any]:
    kinds, definitions = {}, {}
    for crd in crds:
        for version in crd["spec"]["versions"]:
            kind = f"{crd['spec']['group']}/{version['name']}/{crd['spec']['names']['kind']}"
            kinds[kind] = f"{_REFERENCE}{kind}"
            definitions[kind] = _stripped(version["schema"]["openAPIV3Schema"])
            definitions[kind]["properties"]["metadata"] = {"$ref": _METADATA}  # CRDs say nothing of it
    return {"kinds": kinds, "definitions": definitions}


def _stripped(schema: dict[str, Any]) -> dict[str, Any]:
    stripped = {key: value for key, value in schema.items() if key in _KEPT}
    if "properties" in stripped:
        stripped["properties"] = {key: _stripped(value) for key, value in stripped["properties"].items()}
    for key in ("items", "additionalProperties"):
        if isinstance(stripped.get(key), dict):
            stripped[key] = _stripped(stripped[key])
    return stripped


def _references(schema: Any) -> list[str]:
    if isinstance(schema, list):
        return [reference for part in schema for reference in _references(part)]
    if not isinstance(schema, dict):
        return []
    own = [schema["$ref"]] if isinstance(schema.get("$ref"), str) else []
    return own + [reference for part in schema.values() for reference in _references(part)]


if __name__ == "__main__":
    first, *files = sys.argv[1:]
    extract = (
        _cut_crds([yaml.safe_load(Path(file).read_text()) for file in files])
        if first == "-"
        else _cut(json.loads(Path(first).read_text()))
    )
    json.dump(extract, sys.stdout, indent=None, sort_keys=True)
    print()
