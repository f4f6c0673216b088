"""Questions to Kubernetes' API server, and what changes there.

Made of aiohttp, which Firesteel has anyway, on a thread with a loop of its own: so a question has one time limit over
everything, which leases need, and a watch ends when it is told to. docs/high-availability.md says why none of
Kubernetes' Python clients is used.

Source of facts: https://kubernetes.io/docs/reference/using-api/api-concepts/.
"""

from __future__ import annotations

import asyncio
import io
import json
import logging
import threading
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from typing import Any, Final, TypeVar

import aiohttp

from firesteel.core.call_pool import CallPool
from firesteel_kubernetes.access import ApiServerAccess

logger = logging.getLogger(__name__)
T = TypeVar("T")
JsonObject = dict[str, Any]
ASK_SECONDS: Final = 10.0
"""For which a question waits for its answer, unless it says something else."""
_WATCH_SECONDS: Final = 120
"""After which the server ends a watch, and the next one begins."""
_AGAIN_SECONDS: Final = (0.2, 0.5, 1.0, 2.0, 5.0)
"""Pauses after a watch that failed."""
_CLOSE_SECONDS: Final = 5.0
_LAST_SECONDS: Final = 0.02
"""In which connections close that were being made."""
_UNAUTHORIZED, _MISSING, _CONFLICT, _GONE, _TOO_MANY, _FAILED = 401, 404, 409, 410, 429, 500
_CREDENTIALS: Final = CallPool("credentials for Kubernetes")


class ApiError(OSError):
    """The server refuses; nothing has happened.

    Attributes:
        status: HTTP status; 0: nobody was asked.
        reason: Kubernetes' word for it, such as ``Forbidden``.
        retry_after: seconds after which the server wants to be asked again; 0: it does not say.
    """

    def __init__(self, text: str, status: int = 0, reason: str = "", retry_after: float = 0.0) -> None:
        super().__init__(text)
        self.status, self.reason, self.retry_after = status, reason, retry_after


class MissingError(ApiError):
    """There is no such object."""


class ConflictError(ApiError):
    """The object is another one than was expected, or is there already."""


class UnreachableError(ApiError):
    """The server could not be asked, or wants to be asked later; nothing has happened."""


class UnansweredError(ApiError):
    """The server was asked, and has not answered: it may have happened."""


class KubernetesApi:
    """One API server. All methods may be called on any thread but its own.

    Args:
        access: where it is, and who asks.
        user_agent: how requests name who asks.
    """

    def __init__(self, access: ApiServerAccess, user_agent: str = "firesteel") -> None:
        self._access, self._agent = access, user_agent
        self.server = access.server
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._session: aiohttp.ClientSession | None = None
        self._closed = False

    # -- questions

    def ask(
        self,
        method: str,
        path: str,
        body: JsonObject | None = None,
        *,
        query: Mapping[str, str] | None = None,
        seconds: float = ASK_SECONDS,
    ) -> JsonObject:
        """One question.

        Args:
            method: of HTTP.
            path: of the object or collection, from ``/api``.
            body: JSON; of a ``PATCH``: a merge patch.
            query: parameters.
            seconds: for everything, from connecting to the last byte.

        Raises:
            ApiError: see its kinds.
        """

        text = b"" if body is None else json.dumps(body).encode()

        async def run() -> JsonObject:
            sent = False
            try:
                async with asyncio.timeout(seconds):
                    headers = await self._headers()
                    if text:
                        kind = "merge-patch+json" if method == "PATCH" else "json"
                        headers["Content-Type"] = f"application/{kind}"
                    session = await self._open()
                    sent = True
                    for is_last in (False, True):
                        async with session.request(
                            method, self.server + path, params=query, headers=headers,
                            data=io.BytesIO(text) if text else None, **self._how(),
                        ) as answer:  # fmt: skip
                            told = await answer.text()
                        if answer.status != _UNAUTHORIZED or is_last:
                            break
                        if not await _CREDENTIALS.call(self._access.credentials.refused):
                            break
                        await self._forget_session()
                        headers, session = headers | await self._headers(), await self._open()
            except aiohttp.ClientConnectorError as error:
                raise UnreachableError(
                    f"Kubernetes is not to be reached at {self.server}: {error.strerror or error}"
                ) from (error)
            except TimeoutError as error:
                said = f"Kubernetes ({self.server}) has not answered for {seconds:.1f} s"
                raise (UnansweredError(said) if sent else UnreachableError(said)) from error
            except (aiohttp.ClientError, ConnectionError) as error:
                raise UnansweredError(f"Kubernetes ({self.server}) has not answered: {error!r}") from error
            return _answered(answer, told, f"{method} {path}")

        return self._run(run(), seconds + _CLOSE_SECONDS)

    def _how(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        if self._access.proxy:
            found["proxy"] = self._access.proxy
        if self._access.server_name:
            found["server_hostname"] = self._access.server_name
        return found

    async def _headers(self) -> dict[str, str]:
        headers = {"Accept": "application/json", "User-Agent": self._agent}
        try:
            token = await _CREDENTIALS.call(self._access.credentials.token)
        except OSError as error:
            raise UnreachableError(f"who asks Kubernetes ({self._access.found}) can't be told: {error}") from error
        if token:
            headers["Authorization"] = f"Bearer {token}"
        return headers

    async def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            try:
                tls = await _CREDENTIALS.call(self._access.tls)
            except (OSError, ValueError) as error:
                raise UnreachableError(
                    f"certificates for Kubernetes ({self._access.found}) are no use: {error}"
                ) from error
            if self._session is None:
                self._session = aiohttp.ClientSession(
                    connector=aiohttp.TCPConnector(ssl=tls, limit=0), timeout=aiohttp.ClientTimeout(total=None)
                )
        return self._session

    async def _forget_session(self) -> None:
        """A certificate of the client is shown when it connects: another one needs other connections."""
        if self._access.credentials.certificate() is not None:
            session, self._session = self._session, None
            if session is not None:
                await session.close()

    # -- watches

    def watch(self, path: str, query: Mapping[str, str], changed: Callable[[Watched], None]) -> Watched:
        """Follow the objects of a collection.

        Args:
            path: of the collection.
            query: its selectors.
            changed: called with what is known, on the thread of this object, after each change; must not block.
        """
        watched = Watched(self, path, dict(query), changed)
        loop = self._running()
        watched.end = lambda: loop.call_soon_threadsafe(task.cancel)
        task: asyncio.Future[Any] = asyncio.run_coroutine_threadsafe(watched.follow(), loop)  # type: ignore[assignment]
        return watched

    async def listed(self, path: str, query: Mapping[str, str]) -> JsonObject:
        """A collection; on the loop of this object."""
        session = await self._open()
        async with (
            asyncio.timeout(ASK_SECONDS),
            session.get(self.server + path, params=query, headers=await self._headers(), **self._how()) as answer,
        ):
            text = await answer.text()
        if answer.status == _UNAUTHORIZED:
            await _CREDENTIALS.call(self._access.credentials.refused)
        return _answered(answer, text, f"GET {path}")

    async def events(self, path: str, query: Mapping[str, str], heard: Callable[[JsonObject], None]) -> None:
        """What changes in a collection, until the server ends that; on the loop of this object."""
        session = await self._open()
        more = {"watch": "1", "allowWatchBookmarks": "true", "timeoutSeconds": str(_WATCH_SECONDS)}
        async with (
            asyncio.timeout(_WATCH_SECONDS + ASK_SECONDS),
            session.get(self.server + path, params={**query, **more}, headers=await self._headers(), **self._how()) as (
                answer
            ),
        ):
            if answer.status >= 400:
                _answered(answer, await answer.text(), f"watch {path}")
            rest = b""
            async for part in answer.content.iter_any():
                *lines, rest = (rest + part).split(b"\n")
                for line in lines:
                    if line.strip():
                        heard(json.loads(line))

    # -- life

    def close(self) -> None:
        """Idempotent."""
        with self._lock:
            self._closed = True
            loop, thread, self._loop = self._loop, self._thread, None
        if loop is None or thread is None:
            return

        async def end() -> None:
            mine = asyncio.current_task()
            session, self._session = self._session, None
            if session is not None and session.connector is not None:
                await session.connector.close(abort_ssl=True)  # a server that stands still would not say good-bye
            others = [task for task in asyncio.all_tasks() if task is not mine]
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)
            for one in (session, self._session):  # a watch may have begun another one
                if one is not None:
                    await one.close()
            await asyncio.sleep(_LAST_SECONDS)
            loop.call_soon(loop.stop)

        asyncio.run_coroutine_threadsafe(end(), loop)
        if thread is not threading.current_thread():
            thread.join(_CLOSE_SECONDS)

    def _running(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._closed:
                raise UnreachableError(f"the connection to Kubernetes ({self.server}) was closed")
            if self._loop is None:
                loop = self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=_serve, args=(loop,), name="kubernetes", daemon=True)
                self._thread.start()
            return self._loop

    def _run(self, coroutine: Coroutine[Any, Any, T], seconds: float) -> T:
        try:
            loop = self._running()
        except ApiError:
            coroutine.close()
            raise
        future = asyncio.run_coroutine_threadsafe(coroutine, loop)
        try:
            return future.result(seconds)
        except asyncio.CancelledError:
            raise UnansweredError(f"the connection to Kubernetes ({self.server}) was closed") from None
        except TimeoutError:
            future.cancel()
            raise UnansweredError(f"Kubernetes ({self.server}) has not answered") from None


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        with suppress(RuntimeError):
            loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()


class Watched:
    """Objects of a collection, as far as they are known; ``KubernetesApi.watch`` makes it.

    Attributes:
        objects: name -> object.
        is_known: the collection was read at least once.
        end: follow no more.
    """

    def __init__(
        self, api: KubernetesApi, path: str, query: dict[str, str], changed: Callable[[Watched], None]
    ) -> None:
        self._api, self._path, self._query, self._changed = api, path, query, changed
        self._lock = threading.Lock()
        self._version = ""
        self.objects: dict[str, JsonObject] = {}
        self.is_known = False
        self.end: Callable[[], object] = lambda: None

    def snapshot(self) -> dict[str, JsonObject]:
        """The objects of now."""
        with self._lock:
            return dict(self.objects)

    async def follow(self) -> None:
        """Read the collection, then what changes; again where that breaks off, or the server has forgotten the place
        (410)."""
        failures = 0
        while True:
            try:
                if not self._version:
                    await self._read()
                await self._api.events(self._path, {**self._query, "resourceVersion": self._version}, self._heard)
                failures = 0
            except ApiError as error:
                if error.status == _GONE:
                    self._version = ""
                    if not failures:
                        failures = 1
                        continue
                logger.info("what changes at Kubernetes can't be seen for now: %s", error)
                await asyncio.sleep(max(error.retry_after, _AGAIN_SECONDS[min(failures, len(_AGAIN_SECONDS) - 1)]))
                failures += 1
            except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
                logger.info("what changes at Kubernetes can't be seen for now: %r", error)
                self._version = ""  # what happened meanwhile may be forgotten there
                await asyncio.sleep(_AGAIN_SECONDS[min(failures, len(_AGAIN_SECONDS) - 1)])
                failures += 1

    async def _read(self) -> None:
        found = await self._api.listed(self._path, self._query)
        with self._lock:
            self.objects = {one["metadata"]["name"]: one for one in found.get("items") or ()}
        self._version, self.is_known = str(found["metadata"].get("resourceVersion", "")), True
        self._changed(self)

    def _heard(self, event: JsonObject) -> None:
        kind, one = event.get("type"), event.get("object") or {}
        if kind == "ERROR":
            status = int(one.get("code", _FAILED))
            raise ApiError(f"Kubernetes ends a watch: {one.get('message', '')}", status, str(one.get("reason", "")))
        self._version = str(one["metadata"].get("resourceVersion", self._version))
        if kind == "BOOKMARK":
            return
        with self._lock:
            if kind == "DELETED":
                self.objects.pop(one["metadata"]["name"], None)
            else:
                self.objects[one["metadata"]["name"]] = one
        self._changed(self)


def _answered(answer: aiohttp.ClientResponse, text: str, what: str) -> JsonObject:
    status = answer.status
    try:
        plain = json.loads(text) if text else {}
    except ValueError:
        plain = {"message": text[:200]}
    if not isinstance(plain, dict):
        plain = {"message": text[:200]}
    if status < 400:
        return plain
    reason = str(plain.get("reason") or answer.reason or "")
    said = f"Kubernetes answers {what} with {status} {reason}: {plain.get('message', '')}"
    try:
        later = float(answer.headers.get("Retry-After", 0))
    except ValueError:
        later = 0.0
    kind: type[ApiError] = ApiError
    if status == _MISSING:
        kind = MissingError
    elif status == _CONFLICT:
        kind = ConflictError
    elif status == _TOO_MANY:
        kind = UnreachableError
    elif status >= _FAILED:
        kind = UnansweredError
    return _raise(kind(said, status, reason, later))


def _raise(error: ApiError) -> JsonObject:
    raise error
