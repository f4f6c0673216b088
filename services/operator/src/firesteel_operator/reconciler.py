"""Reconciles one object with its spec: reads it, observes, decides, writes the status, acts. May block."""

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
"""Seconds until the next look at an object for which an action has failed."""
_LONGEST_MESSAGE: Final = 1000


class Reconciler:
    """Reconciles the objects of one namespace.

    Args:
        api: of Kubernetes.
        namespace: of the objects.
        worlds: by plural of a kind: observes and changes what runs for its objects.
        clock: of the operator.
    """

    def __init__(self, api: KubernetesApi, namespace: str, worlds: Mapping[str, World], clock: Clock) -> None:
        self._api, self._namespace, self._worlds, self._clock = api, namespace, dict(worlds), clock

    def reconcile(self, plural: str, name: str) -> float | None:
        """Look at an object once; returns seconds until the next look, if nothing changes; None = the object is gone.

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
        except ConflictError as error:  # the object has changed meanwhile, and nothing was done
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
        spec, problem = self._spec(plural, thing, status)
        if spec is None:
            if is_deleted:
                self._release(path, thing)
                return None
            self._write(path, thing, replace(status, error=problem), None)
            self._tell(thing, Event("ValidationError", problem, True))
            return LATER
        observed = world.see(thing, spec, status)
        if is_deleted:
            decision = remove(observed, status)
        else:
            decision = self._decide(thing, spec, observed, status)
            if problem:
                decision = replace(decision, status=replace(decision.status, error=problem))
                self._tell(thing, Event("ValidationError", problem, True))
        thing = self._write(path, thing, decision.status, spec)
        for event in decision.events:
            self._tell(thing, event)
        return self._act(path, thing, spec, decision, world)

    def _spec(self, plural: str, thing: JsonObject, status: Status) -> tuple[Spec | None, str]:
        """Spec of the object, or its last valid one; and what is wrong with the current one."""
        is_job = plural == SESSION_JOBS
        try:
            return Spec.from_plain(thing.get("spec") or {}, session_job=is_job), ""
        except (SpecError, ConfigurationError) as error:
            problem = str(error)
        if status.reconciled is None or status.suspended:
            return None, problem
        return Spec.from_plain(status.reconciled, session_job=is_job), problem

    def _decide(self, thing: JsonObject, spec: Spec, observed: ObservedObject, status: Status) -> Decision:
        metadata = thing["metadata"]
        now, generation = self._clock.epoch_ms() / 1000, int(metadata.get("generation", 0))
        return decide(metadata["uid"], spec, observed, status, now, generation)

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

    # -- writes

    def _write(self, path: str, thing: JsonObject, status: Status, spec: Spec | None) -> JsonObject:
        """Write the status, if it has changed; refused if anybody has written since it was read."""
        new_status = status_of(status, spec)
        if new_status == thing.get("status"):
            return thing
        new_thing = deepcopy(thing)
        new_thing["status"] = new_status
        return self._api.ask("PUT", f"{path}/status", new_thing)

    def _release(self, path: str, thing: JsonObject) -> None:
        """Remove the finalizer: nothing is left that the object stands for."""
        new_thing = deepcopy(thing)
        new_thing["metadata"]["finalizers"] = [
            finalizer for finalizer in new_thing["metadata"].get("finalizers") or () if finalizer != FINALIZER
        ]
        try:
            self._api.ask("PUT", path, new_thing)
        except MissingError:
            pass

    def _tell(self, thing: JsonObject, event: Event) -> None:
        """Write an event to Kubernetes; a repeated event is counted."""
        metadata, text = thing["metadata"], event.message[:_LONGEST_MESSAGE]
        key = hashlib.sha256(f"{metadata['uid']} {event.reason} {text}".encode()).hexdigest()[:16]
        events, name = f"/api/v1/namespaces/{self._namespace}/events", f"{metadata['name']}.{key}"
        now = now_text(self._clock.epoch_ms() / 1000)
        body: dict[str, Any] = {
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
                self._api.ask("POST", events, body)
            except ConflictError:
                earlier = self._api.ask("GET", f"{events}/{name}")
                earlier |= {"count": int(earlier.get("count") or 1) + 1, "lastTimestamp": now}
                self._api.ask("PUT", f"{events}/{name}", earlier)
        except ApiError as error:
            logger.info("event %s of %s can't be written: %s", event.reason, metadata["name"], error)
