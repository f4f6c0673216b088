"""The table of the REST API: complete, consistent, described; what requests have to be like."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest
from multidict import MultiDict

from firesteel.core.errors import ConfigurationError
from firesteel.rest import checkpoint_types as c
from firesteel.rest import types as t
from firesteel.rest.endpoints import CallerRights, Endpoint, Parameter, RestCall
from firesteel_dispatcher import reference
from firesteel_dispatcher.endpoints import ENDPOINTS
from firesteel_dispatcher.openapi import document

ROOT = Path(__file__).parents[3]
FLINK = 97
"""Endpoints of Flink 2.3."""


class Request:
    """As much of a request as is read."""

    def __init__(self, path: dict[str, str], query: list[tuple[str, str]] | None = None, body: bytes = b"") -> None:
        self.match_info, self.query, self._body = path, MultiDict(query or []), body

    async def read(self) -> bytes:
        return self._body


def read(endpoint_: Endpoint, path: dict[str, str], query: Any = None, body: bytes = b"") -> RestCall:
    return asyncio.run(endpoint_.read(Request(path, query, body)))  # type: ignore[arg-type]


async def nothing(*_: Any) -> Any: ...


def endpoint(path: str, *query: Parameter, body: Any = None) -> Endpoint:
    return Endpoint("POST", path, nothing, "", t.EmptyResponse, query, body)


def test_all_endpoints_of_flink_are_there_once() -> None:
    rows = [(row.method, row.path) for row in ENDPOINTS]
    assert len(rows) == len(set(rows))
    assert sum(not row.ours for row in ENDPOINTS) == FLINK


def test_no_path_is_hidden_by_one_before_it() -> None:
    for number, row in enumerate(ENDPOINTS):
        example = re.sub(r"\{\w+\}", "0", row.path)
        for before in ENDPOINTS[:number]:
            pattern = re.sub(r"\{\w+\}", "[^/]+", before.path)
            assert before.method != row.method or not re.fullmatch(pattern, example), (before.path, row.path)


def test_what_changes_the_cluster_needs_a_token() -> None:
    free = {(row.method, row.flink_path) for row in ENDPOINTS if row.access is CallerRights.READ}
    assert {method for method, _ in free} == {"GET"}
    assert not {path for _, path in free if "plan" in path and "jars" in path}


def test_openapi_refers_to_what_it_has() -> None:
    text = document(ENDPOINTS).decode()
    description = json.loads(text)
    schemas = description["components"]["schemas"]
    assert set(re.findall(r'"#/components/schemas/(\w+)"', text)) <= schemas.keys()
    assert sum(len(methods) for methods in description["paths"].values()) == len(ENDPOINTS)
    job = description["paths"]["/jobs/{jobid}"]
    assert job["get"]["responses"]["200"]["content"]["application/json"]["schema"] == {
        "$ref": "#/components/schemas/JobDetails"
    }
    assert schemas["JobDetails"]["properties"]["jid"]["pattern"] == "^[0-9a-f]{32}$"
    assert job["patch"]["security"] == [{"token": []}]
    names = [operation["operationId"] for methods in description["paths"].values() for operation in methods.values()]
    assert len(names) == len(set(names))


def test_the_reference_page_is_up_to_date() -> None:
    page = ROOT / "docs" / "rest-api.md"
    assert page.read_text() == reference.render(), (
        "write it anew: python -m firesteel_dispatcher.reference > docs/rest-api.md"
    )


def test_parts_of_paths_are_checked() -> None:
    subtask_endpoint = endpoint("/jobs/{job_id}/vertices/{vertex_id}/subtasks/{subtask}/{name}")
    path = {"job_id": "AB" * 16, "vertex_id": "0" * 32, "subtask": "7", "name": "x"}
    assert read(subtask_endpoint, path).path == {"job_id": "ab" * 16, "vertex_id": "0" * 32, "subtask": 7, "name": "x"}
    for part, wrong, name in (
        ("job_id", "ab", "jobid"),
        ("vertex_id", "g" * 32, "vertexid"),
        ("subtask", "-1", "subtaskindex"),
        ("subtask", "٣", "subtaskindex"),
        ("subtask", "9" * 19, "subtaskindex"),
    ):
        with pytest.raises(ConfigurationError, match=rf"path parameter \({name}\)"):
            read(subtask_endpoint, {**path, part: wrong})


def test_parameters_are_checked() -> None:
    query_endpoint = endpoint(
        "/x",
        Parameter("n", "a number", "number", 5, least=1, most=9),
        Parameter("flag", "yes or no", "flag"),
        Parameter("kind", "of it", choices=("one", "two"), default="one"),
        Parameter("get", "names"),
    )
    assert read(query_endpoint, {}).query == {"n": 5, "flag": None, "kind": "one", "get": None}
    query = [("n", "100"), ("flag", "TRUE"), ("kind", "Two"), ("get", "a,b"), ("get", "c")]
    assert read(query_endpoint, {}, query).query == {"n": 9, "flag": True, "kind": "two", "get": "a,b,c"}
    for name, wrong in (("n", "x"), ("n", "1.5"), ("flag", "1"), ("kind", "three"), ("other", "")):
        with pytest.raises(ConfigurationError, match=name):
            read(query_endpoint, {}, [(name, wrong)])
    with pytest.raises(ConfigurationError, match="query parameter needed is missing"):
        read(endpoint("/x", Parameter("needed", "so", needed=True)), {})


def test_bodies_are_checked() -> None:
    body_endpoint = endpoint("/x", body=c.SavepointTrigger)
    assert read(body_endpoint, {}).body == {}
    assert read(body_endpoint, {}, body=b'{"cancel-job": true, "triggerId": null}').body == {
        "cancel-job": True,
        "triggerId": None,
    }
    for body, words in (
        (b'{"cancel-job": 1}', "cancel-job"),
        (b'{"cancelJob": true}', "unknown field 'cancelJob'"),
        (b"[]", "JSON object"),
        (b"{", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"\xff", "not JSON"),
    ):
        with pytest.raises(ConfigurationError, match=words):
            read(body_endpoint, {}, body=body)
    with pytest.raises(ConfigurationError, match="expiredTimestamp"):
        read(endpoint("/x", body=t.ClientHeartbeat), {}, body=b"{}")
    bounds = {"0" * 32: {"parallelism": {"lowerBound": 0, "upperBound": 1}}}
    with pytest.raises(ConfigurationError, match="lowerBound"):
        read(endpoint("/x", body=t.Requirements), {}, body=json.dumps(bounds).encode())
    assert read(endpoint("/x"), {}, body=b"whatever").body == {}
