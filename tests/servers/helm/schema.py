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
    found = _schema()
    if kind not in found["kinds"]:
        return [f"{kind} is none of {sorted(found['kinds'])}"]
    return list(_compare(document, {"$ref": found["kinds"][kind]}, str(document.get("kind")), found["definitions"]))


@cache
def _schema() -> dict[str, Any]:
    kubernetes, others = json.loads(FILE.read_text()), json.loads(OPERATORS.read_text())
    return {key: {**kubernetes[key], **others[key]} for key in kubernetes}


def _compare(value: Any, wanted: dict[str, Any], where: str, definitions: dict[str, Any]) -> Iterator[str]:
    name = wanted.get("$ref", "").removeprefix(_REFERENCE)
    if name:
        wanted = definitions[name]
    if wanted.get("format") == "int-or-string" or name == _QUANTITY:
        if not isinstance(value, str | int | float) or isinstance(value, bool):
            yield f"{where} is a {type(value).__name__}, not a text or a number"
        return
    kind = wanted.get("type", "object" if "properties" in wanted else None)
    kinds: dict[str, Any] = {
        "object": dict, "array": list, "string": str, "integer": int, "number": int | float, "boolean": bool,
    }  # fmt: skip
    if kind is not None and (not isinstance(value, kinds[kind]) or (isinstance(value, bool) and kind != "boolean")):
        yield f"{where} is {value!r}, not of the type {kind}"
        return
    if "enum" in wanted and value not in wanted["enum"]:
        yield f"{where} is {value!r}, none of {wanted['enum']}"
    if isinstance(value, list):
        for number, one in enumerate(value):
            yield from _compare(one, wanted.get("items", {}), f"{where}[{number}]", definitions)
    if isinstance(value, dict):
        properties, others = wanted.get("properties", {}), wanted.get("additionalProperties")
        yield from (f"{where} has no {one}" for one in wanted.get("required", ()) if one not in value)
        for key, one in value.items():
            if key in properties:
                yield from _compare(one, properties[key], f"{where}.{key}", definitions)
            elif isinstance(others, dict):
                yield from _compare(one, others, f"{where}.{key}", definitions)
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
    kept = {key: value for key, value in schema.items() if key in _KEPT}
    if "properties" in kept:
        kept["properties"] = {key: _stripped(value) for key, value in kept["properties"].items()}
    for key in ("items", "additionalProperties"):
        if isinstance(kept.get(key), dict):
            kept[key] = _stripped(kept[key])
    return kept


def _references(schema: Any) -> list[str]:
    if isinstance(schema, list):
        return [found for one in schema for found in _references(one)]
    if not isinstance(schema, dict):
        return []
    own = [schema["$ref"]] if isinstance(schema.get("$ref"), str) else []
    return own + [found for one in schema.values() for found in _references(one)]


if __name__ == "__main__":
    first, *files = sys.argv[1:]
    made = (
        _cut_crds([yaml.safe_load(Path(file).read_text()) for file in files])
        if first == "-"
        else _cut(json.loads(Path(first).read_text()))
    )
    json.dump(made, sys.stdout, indent=None, sort_keys=True)
    print()
