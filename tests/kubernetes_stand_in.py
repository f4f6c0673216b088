"""What Firesteel asks of Kubernetes' API server, in memory: objects with versions, and answers that get lost. Tests of
the tier ``servers`` hold the same against a real one."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Mapping
from copy import deepcopy

from firesteel_kubernetes.api import ASK_SECONDS, ConflictError, JsonObject, MissingError, UnansweredError, Watched

Fault = Callable[[str, str], str]
"""Method, path -> ``lost`` (never came), ``unanswered`` (was done), ``late`` (will be done), or nothing."""


class StandIn:
    """One API server, for any number of processes; ``KubernetesApi`` for those who ask it.

    Attributes:
        fault: what happens to questions.
        late: those that have not been done yet.
        asked: method and path of all questions.
        refused: how many writes were, since the object was another one.
    """

    server = "stand-in"

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self.objects: dict[str, JsonObject] = {}
        self._versions = itertools.count(1)
        self.fault: Fault = lambda method, path: ""
        self.late: list[tuple[str, str, JsonObject | None]] = []
        self.asked: list[tuple[str, str]] = []
        self.refused = 0
        self._watched: list[tuple[str, Watched, Callable[[Watched], None]]] = []

    def ask(
        self,
        method: str,
        path: str,
        body: JsonObject | None = None,
        *,
        query: Mapping[str, str] | None = None,
        seconds: float = ASK_SECONDS,
    ) -> JsonObject:
        assert seconds > 0
        with self._lock:
            self.asked.append((method, path))
            fault = self.fault(method, path)
            if fault == "lost":
                raise UnansweredError("lost")
            if fault == "late":
                self.late.append((method, path, deepcopy(body)))
                raise UnansweredError("late")
            answer = self.do(method, path, body)
            if fault == "unanswered":
                raise UnansweredError("unanswered")
        if method != "GET":
            self.tell()
        return answer

    def find(self, path: str, seconds: float = ASK_SECONDS) -> JsonObject | None:
        try:
            return self.ask("GET", path, seconds=seconds)
        except MissingError:
            return None

    def tell(self) -> None:
        """Those who watch see what there is."""
        for path, watched, changed in list(self._watched):
            watched.objects = self._in(path)
            watched.is_known = True
            changed(watched)

    def _in(self, path: str) -> dict[str, JsonObject]:
        with self._lock:
            return {
                key.rpartition("/")[2]: deepcopy(manifest)
                for key, manifest in self.objects.items()
                if f"{path}/" in key
            }

    def do(self, method: str, path: str, body: JsonObject | None) -> JsonObject:
        """What the server does."""
        with self._lock:
            body = deepcopy(body)
            if method == "POST":
                assert body is not None
                path = f"{path}/{body['metadata']['name']}"
                if path in self.objects:
                    self.refused += 1
                    raise ConflictError("exists", 409, "AlreadyExists")
                body["metadata"]["uid"] = f"uid-{next(self._versions)}"
            elif method == "PUT" and path.endswith("/status"):
                path = path.removesuffix("/status")
                if path not in self.objects:
                    raise MissingError("NotFound", 404)
                assert body is not None
                body = {**deepcopy(self.objects[path]), "status": body["status"], "metadata": body["metadata"]}
            elif method == "GET" and path.rpartition("/")[2] in ("pods", "leases", "configmaps"):
                return {"items": list(self._in(path).values())}
            elif path not in self.objects:
                raise MissingError("NotFound", 404)
            there = self.objects.get(path)
            if method == "DELETE" and (there or {}).get("metadata", {}).get("finalizers"):
                assert there is not None
                there["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
                return deepcopy(there)
            if method == "DELETE":
                return self.objects.pop(path)
            if method != "GET":
                assert body is not None
                version = body["metadata"].get("resourceVersion")
                if there is not None and version not in (None, there["metadata"]["resourceVersion"]):
                    self.refused += 1
                    raise ConflictError("Conflict", 409)
                body["metadata"]["resourceVersion"] = str(next(self._versions))
                self.objects[path] = body
                if body["metadata"].get("deletionTimestamp") and not body["metadata"].get("finalizers"):
                    return self.objects.pop(path)
            return deepcopy(self.objects[path])

    def come(self) -> None:
        """What was late comes now."""
        late, self.late = self.late, []
        for method, path, body in late:
            try:
                self.do(method, path, body)
            except (ConflictError, MissingError):
                pass

    def touch(self, path: str) -> None:
        """Somebody else changes an object that is none of their business."""
        with self._lock:
            manifest = deepcopy(self.objects[path])
            manifest["metadata"].setdefault("annotations", {})["touched"] = str(next(self._versions))
            self.do("PUT", path, manifest)

    def watch(self, path: str, query: Mapping[str, str], changed: Callable[[Watched], None]) -> Watched:
        watched = Watched(self, path, dict(query), changed)  # type: ignore[arg-type]
        entry = path, watched, changed
        watched.end = lambda: self._watched.remove(entry)
        self._watched.append(entry)
        self.tell()
        return watched

    def close(self) -> None: ...
