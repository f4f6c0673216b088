"""Makes one object what it says: reads it, looks, decides, writes the status, acts. May block."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import replace
from typing import Any, Final

from firesteel.core.clock import Clock
from firesteel.core.errors import ConfigurationError, FiresteelError
from firesteel_kubernetes.api import ApiError, ConflictError, JsonObject, KubernetesApi, MissingError
from firesteel_operator.decisions import LATER, SOON, Decision, Event, ObservedObject, Release, Status, decide, remove
from firesteel_operator.report import now_text, read_status, status_of
from firesteel_operator.specs import GROUP, SESSION_JOBS, VERSION, Spec, SpecError
from firesteel_operator.worlds import World

logger = logging.getLogger(__name__)
FINALIZER: Final = f"{GROUP}/operator"
COMPONENT: Final = "firesteel-operator"
FAILED_SECONDS: Final = 5.0
"""Until an object is looked at again of which something could not be done."""
_LONGEST_MESSAGE: Final = 1000


class Reconciler:
    """Of the objects of one namespace.

    Args:
        api: of Kubernetes.
        namespace: of the objects.
        worlds: of each kind of objects, by its plural.
        clock: tells the time.
    """

    def __init__(self, api: KubernetesApi, namespace: str, worlds: Mapping[str, World], clock: Clock) -> None:
        self._api, self._namespace, self._worlds, self._clock = api, namespace, dict(worlds), clock

    def reconcile(self, plural: str, name: str) -> float | None:
        """Look at an object once; returns in how many seconds to look again, if nothing changes; None: it is gone.

        Raises:
            ApiError: Kubernetes does not answer, or refuses.
        """
        path = f"/apis/{GROUP}/{VERSION}/namespaces/{self._namespace}/{plural}/{name}"
        try:
            thing = self._api.ask("GET", path)
        except MissingError:
            return None
        try:
            return self._reconcile(plural, path, thing)
        except ConflictError as error:  # it has changed meanwhile, and nothing was done
            logger.info("%s %s is looked at again: %s", plural, name, error)
            return SOON

    def _reconcile(self, plural: str, path: str, thing: JsonObject) -> float | None:
        is_deleted = bool(thing["metadata"].get("deletionTimestamp"))
        has_finalizer = FINALIZER in (thing["metadata"].get("finalizers") or ())
        if is_deleted and not has_finalizer:
            return LATER
        if not has_finalizer:
            thing["metadata"]["finalizers"] = [*(thing["metadata"].get("finalizers") or ()), FINALIZER]
            thing = self._api.ask("PUT", path, thing)
        status, world = read_status(thing), self._worlds[plural]
        spec, wrong = self._spec(plural, thing, status)
        if spec is None:
            if is_deleted:
                self._release(path, thing)
                return None
            self._write(path, thing, replace(status, error=wrong), None)
            self._tell(thing, Event("ValidationError", wrong, True))
            return LATER
        seen = world.see(thing, spec, status)
        if is_deleted:
            decision = remove(seen, status)
        else:
            decision = self._decide(thing, spec, seen, status)
            if wrong:
                decision = replace(decision, status=replace(decision.status, error=wrong))
                self._tell(thing, Event("ValidationError", wrong, True))
        thing = self._write(path, thing, decision.status, spec)
        for event in decision.events:
            self._tell(thing, event)
        return self._act(path, thing, spec, decision, world)

    def _spec(self, plural: str, thing: JsonObject, status: Status) -> tuple[Spec | None, str]:
        """The spec, or the last one that could be used, and what is wrong with the one that is there."""
        is_job = plural == SESSION_JOBS
        try:
            return Spec.from_plain(thing.get("spec") or {}, session_job=is_job), ""
        except (SpecError, ConfigurationError) as error:
            wrong = str(error)
        if status.reconciled is None or status.suspended:
            return None, wrong
        return Spec.from_plain(status.reconciled, session_job=is_job), wrong

    def _decide(self, thing: JsonObject, spec: Spec, seen: ObservedObject, status: Status) -> Decision:
        metadata = thing["metadata"]
        now, generation = self._clock.epoch_ms() / 1000, int(metadata.get("generation", 0))
        return decide(metadata["uid"], spec, seen, status, now, generation)

    def _act(self, path: str, thing: JsonObject, spec: Spec, decision: Decision, world: World) -> float | None:
        for action in decision.actions:
            if isinstance(action, Release):
                self._release(path, thing)
                return None
            logger.info("%s: %s", path.rpartition("/")[2], action)
            try:
                world.do(thing, spec, decision.status, action)
            except (FiresteelError, OSError) as error:
                text = f"{type(action).__name__}: {error}"
                logger.warning("%s: %s", path.rpartition("/")[2], text)
                self._tell(thing, Event("Error", text, True))
                self._write(path, thing, replace(decision.status, error=text[:_LONGEST_MESSAGE]), spec)
                return FAILED_SECONDS
        return decision.again

    # -- what is written

    def _write(self, path: str, thing: JsonObject, status: Status, spec: Spec | None) -> JsonObject:
        """Write the status, if it is another one; nobody else may have written since it was read."""
        made = status_of(status, spec)
        if made == thing.get("status"):
            return thing
        new = deepcopy(thing)
        new["status"] = made
        return self._api.ask("PUT", f"{path}/status", new)

    def _release(self, path: str, thing: JsonObject) -> None:
        """Nothing is left that the object stands for."""
        new = deepcopy(thing)
        new["metadata"]["finalizers"] = [one for one in new["metadata"].get("finalizers") or () if one != FINALIZER]
        try:
            self._api.ask("PUT", path, new)
        except MissingError:
            pass

    def _tell(self, thing: JsonObject, event: Event) -> None:
        """An event of Kubernetes; the same one again is counted."""
        metadata, text = thing["metadata"], event.message[:_LONGEST_MESSAGE]
        key = hashlib.sha256(f"{metadata['uid']} {event.reason} {text}".encode()).hexdigest()[:16]
        events, name = f"/api/v1/namespaces/{self._namespace}/events", f"{metadata['name']}.{key}"
        now = now_text(self._clock.epoch_ms() / 1000)
        made: dict[str, Any] = {
            "metadata": {"name": name, "namespace": self._namespace},
            "involvedObject": {
                "apiVersion": thing["apiVersion"], "kind": thing["kind"], "name": metadata["name"],
                "namespace": self._namespace, "uid": metadata["uid"],
            },
            "reason": event.reason, "message": text, "type": "Warning" if event.is_warning else "Normal",
            "source": {"component": COMPONENT}, "firstTimestamp": now, "lastTimestamp": now, "count": 1,
        }  # fmt: skip
        try:
            try:
                self._api.ask("POST", events, made)
            except ConflictError:
                there = self._api.ask("GET", f"{events}/{name}")
                there |= {"count": int(there.get("count") or 1) + 1, "lastTimestamp": now}
                self._api.ask("PUT", f"{events}/{name}", there)
        except ApiError as error:
            logger.info("event %s of %s is not told: %s", event.reason, metadata["name"], error)
