"""The rows of the table of the REST API, each of which is an endpoint and reads and checks requests to it.

The type of an answer is the return type of its handler, so what mypy has checked is what ``/openapi.json`` and
docs/rest-api.md say.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import UnionType
from typing import Any, Final, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
from aiohttp import web

from firesteel.core.errors import ConfigurationError
from firesteel.rest import types as t
from firesteel.rest.views import jsonable

_PART: Final = re.compile(r"\{(\w+)\}")
_ID: Final = re.compile(r"[0-9a-fA-F]{32}")
_LONGEST_NUMBER: Final = 18
_FLINK_NAMES: Final = {"subtask": "subtaskindex", "operator_id": "operatorUid"}
_IDS: Final = frozenset({"job_id", "vertex_id", "application_id", "dataset_id"})
_NUMBERS: Final = frozenset({"subtask", "attempt", "checkpoint_id"})


class CallerRights(Enum):
    """Which callers a REST endpoint answers."""

    READ = "anybody, where no token file is set"
    CHANGE = "whoever has the token"
    CANCEL = "whoever has the token; anybody, of an embedded cluster"


class Switch(Enum):
    """Parts of the REST API that an operator can switch off."""

    SUBMIT = "web.submit.enable"
    """Uploading and running programs."""
    CANCEL = "web.cancel.enable"
    """Ending jobs from a page in a browser."""


@dataclass(frozen=True)
class Parameter:
    """A parameter of the query.

    Attributes:
        name: name in the query; the values of a repeated parameter are joined by commas.
        doc: description, for the reference and for errors.
        kind: type of the value.
        default: value where a request does not have the parameter.
        least, most: bounds of a number; a number beyond is replaced by the bound.
        choices: allowed texts, in any case of letters; empty = any.
        needed: whether each request must have the parameter.
    """

    name: str
    doc: str
    kind: Literal["text", "number", "flag"] = "text"
    default: Any = None
    least: int = 0
    most: int = 2**31 - 1
    choices: tuple[str, ...] = ()
    needed: bool = False

    def read(self, text: str | None) -> Any:
        """The value of the parameter in a request.

        Args:
            text: of the query; None = the request does not have the parameter.

        Raises:
            ConfigurationError: the value is malformed, or missing.
        """
        if text is None:
            if self.needed:
                raise ConfigurationError(f"The query parameter {self.name} is missing: {self.doc}")
            return self.default
        shown = f"Cannot resolve query parameter ({self.name}) from value {text[:80]!r}"
        if self.kind == "number":
            if not re.fullmatch(r"[+-]?[0-9]{1,30}", text.strip()):
                raise ConfigurationError(f"{shown}: it is no whole number")
            return min(max(int(text), self.least), self.most)
        if self.kind == "flag":
            if text.lower() not in ("true", "false"):
                raise ConfigurationError(f"{shown}: it is neither true nor false")
            return text.lower() == "true"
        if self.choices and (text := text.lower()) not in self.choices:
            raise ConfigurationError(f"{shown}: it is none of {', '.join(self.choices)}")
        return text


@dataclass(frozen=True)
class RestCall:
    """A request that was read and checked.

    Attributes:
        request: the request itself.
        path: the variable parts of the path; ids in lower case, numbers as such.
        query: all parameters of the endpoint, with defaults for those that the request does not have.
        body: the JSON of the body, checked against the type of the endpoint; empty where the endpoint takes none.
    """

    request: web.Request
    path: Mapping[str, Any]
    query: Mapping[str, Any] = field(default_factory=dict)
    body: Mapping[str, Any] = field(default_factory=dict)

    @property
    def job_id(self) -> str:
        """Id of the job in the path."""
        return str(self.path["job_id"])

    @property
    def vertex_id(self) -> str:
        """Id of the vertex in the path."""
        return str(self.path["vertex_id"])

    def given(self) -> dict[str, str]:
        """Parts of the path and parameters of the query that have a value, as texts; the former win."""
        query = {name: str(value) for name, value in self.query.items() if value is not None}
        return {**query, **{name: str(value) for name, value in self.path.items()}}


Handler = Callable[[Any, RestCall], Awaitable[Any]]
"""Takes the service that answers, and a request; returns a value that becomes JSON."""


@dataclass(frozen=True)
class Endpoint:
    """A row of the table.

    Attributes:
        method: HTTP method.
        path: path with variable parts in braces.
        handle: returns a value that becomes JSON, or a response of its own.
        what: purpose, for the reference.
        answer: type of the JSON; ``types.Text`` or another media type where the answer is no JSON.
        query: parameters.
        body: type of the JSON in the request; None: a body is not read.
        upload: media type of a body that the handler reads by itself.
        access: who may call.
        status: status of an answer that is no error.
        ours: whether Flink has no such endpoint.
        switch: turns the endpoint off; None = it is always on.
        polled: whether programs repeat such requests all the time, so that they are not in the log.
    """

    method: str
    path: str
    handle: Handler
    what: str
    answer: Any
    query: tuple[Parameter, ...] = ()
    body: Any = None
    upload: str = ""
    access: CallerRights = CallerRights.READ
    status: int = 200
    ours: bool = False
    switch: Switch | None = None
    polled: bool = False

    @property
    def flink_path(self) -> str:
        """The path as Flink writes it: ``/jobs/:jobid``."""
        return _PART.sub(lambda part: f":{flink_name(part[1])}", self.path)

    @property
    def parts(self) -> list[str]:
        """Names of the variable parts of the path."""
        return _PART.findall(self.path)

    @property
    def is_text(self) -> bool:
        """Whether the answer is text or another media type instead of JSON."""
        return isinstance(self.answer, str)

    async def read(self, request: web.Request) -> RestCall:
        """Read and check a request.

        Raises:
            ConfigurationError: the request is malformed; the text names the field.
        """
        path = {name: _part(name, request.match_info[name]) for name in self.parts}
        known = {parameter.name: parameter for parameter in self.query}
        for name in request.query:
            if name not in known:
                takes = f"takes {', '.join(known)}" if known else "takes none"
                raise ConfigurationError(f"Unknown query parameter {name[:80]!r}: {self.flink_path} {takes}")
        query = {
            name: parameter.read(",".join(request.query.getall(name)) if name in request.query else None)
            for name, parameter in known.items()
        }
        body = {} if self.body is None else await read_body(request, self.body)
        return RestCall(request, path, query, body)

    async def respond(self, service: Any, request: web.Request) -> web.StreamResponse:
        """Read a request, let the handler answer it, and turn the answer into JSON.

        Raises:
            ConfigurationError: the request is malformed; the text names the field.
        """
        answer = await self.handle(service, await self.read(request))
        return answer if isinstance(answer, web.StreamResponse) else json_answer(answer, self.status)


def get(path: str, handle: Handler, what: str, *query: Parameter, **more: Any) -> Endpoint:
    """A row that shows something; see ``Endpoint`` for ``more``."""
    return Endpoint("GET", path, handle, what, more.pop("answer", None) or answer_type(handle), query, **more)


def change(method: str, path: str, handle: Handler, what: str, *query: Parameter, **more: Any) -> Endpoint:
    """A row that changes something, which needs the token; see ``Endpoint`` for ``more``."""
    answer, access = more.pop("answer", None) or answer_type(handle), more.pop("access", CallerRights.CHANGE)
    return Endpoint(method, path, handle, what, answer, query, access=access, **more)


def answer_type(handle: Handler) -> Any:
    """The return type of a handler, without the responses that it makes itself: refusals, files.

    Raises:
        TypeError: the handler has no such type.
    """
    annotation = get_type_hints(handle, include_extras=True)["return"]
    members = get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)
    types = [kind for kind in members if not (isinstance(kind, type) and issubclass(kind, web.StreamResponse))]
    if len(types) != 1 or types[0] is Any:
        raise TypeError(f"{handle}: its return type has to be that of its JSON; a row without JSON names its answer")
    return types[0]


def json_answer(value: Any, status: int = 200) -> web.Response:
    """JSON; NaN and infinities as text."""
    try:
        text = json.dumps(value, allow_nan=False)
    except ValueError:
        text = json.dumps(jsonable(value), allow_nan=False)
    return web.Response(text=text, status=status, content_type="application/json", charset="UTF-8")


def flink_name(part: str) -> str:
    """A variable part of a path as Flink calls it."""
    return _FLINK_NAMES.get(part, part.replace("_", ""))


def part_type(part: str) -> Any:
    """The type of a variable part of a path."""
    return t.Id if part in _IDS else int if part in _NUMBERS else str


def _part(name: str, text: str) -> str | int:
    shown = f"Cannot resolve path parameter ({flink_name(name)}) from value {text[:80]!r}"
    if name in _IDS:
        if not _ID.fullmatch(text):
            raise ConfigurationError(f"{shown}: an id is 32 hex digits")
        return text.lower()
    if name in _NUMBERS:
        if not text.isascii() or not text.isdecimal() or len(text) > _LONGEST_NUMBER:
            raise ConfigurationError(f"{shown}: it is no number")
        return int(text)
    return text


async def read_body(request: web.Request, kind: Any) -> Mapping[str, Any]:
    """The JSON of a request; an empty body is an empty object.

    Args:
        request: has the body.
        kind: type of the body: a ``TypedDict``, or a mapping.

    Raises:
        ConfigurationError: the body is no JSON, or has a field that is unknown or of a wrong type; the text names it.
    """
    content = await request.read()
    try:
        body = msgspec.json.decode(content) if content.strip() else {}
    except (msgspec.DecodeError, RecursionError) as error:
        raise ConfigurationError(f"the body is not JSON: {error}") from error
    if not isinstance(body, dict):
        raise ConfigurationError(f"the body has to be a JSON object, not {type(body).__name__}")
    if isinstance(kind, type):
        fields = get_type_hints(kind)
        unknown = [name for name in body if name not in fields]
        if unknown:
            raise ConfigurationError(f"unknown field {unknown[0][:80]!r} in the body: it takes {', '.join(fields)}")
    try:
        checked: Mapping[str, Any] = msgspec.convert(body, kind)
    except msgspec.ValidationError as error:
        raise ConfigurationError(f"the body is malformed: {error}") from error
    return checked
