"""Observes, creates and removes what runs for objects: clusters, and jobs of sessions. May block."""

from __future__ import annotations

import asyncio
import json
import logging
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar
from urllib.parse import urlsplit

import aiohttp
from typing_extensions import override

from firesteel.client.rest_client import RestClient
from firesteel.config import Settings, options
from firesteel.core.errors import ConfigurationError, FiresteelError, JobNotFoundError, RpcError
from firesteel.core.proxies import opener_for
from firesteel.ha.cell_services import CellServices
from firesteel.ha.cells import AwayError
from firesteel.ha.job_cells import CellJobStore
from firesteel.ha.retrieval import DISPATCHER, of_job
from firesteel.rest.checkpoint_views import CHECKPOINTS_OFF, NoCheckpointsError, checkpoints
from firesteel_kubernetes.api import JsonObject, KubernetesApi, MissingError
from firesteel_kubernetes.clusters import Found, KubernetesCluster, KubernetesClusterError
from firesteel_kubernetes.high_availability import HIGH_AVAILABILITY, LABEL_KIND, KubernetesServices
from firesteel_kubernetes.names import JOBMANAGER, LABEL_COMPONENT, cluster_labels, selector
from firesteel_kubernetes.pods import end_of, is_ready, waits_for
from firesteel_operator.decisions import (
    REMOVING,
    TERMINAL,
    Create,
    Forget,
    JobSeen,
    LastCheckpoint,
    ObservedObject,
    OperationSeen,
    Remove,
    Status,
    Stop,
    TakeSavepoint,
)
from firesteel_operator.specs import GROUP, VERSION, Spec, SpecError, UpgradeMode

logger = logging.getLogger(__name__)
T = TypeVar("T")
OWNER: Final = f"{GROUP}/owner"
INCARNATION: Final = f"{GROUP}/incarnation"
_REST_SECONDS: Final = 10.0
_RUN_SECONDS: Final = 120.0
_LARGEST_PROGRAM: Final = 100 << 20
_LOCAL: Final = "local://"
_PROGRAMS: Final = (".py", ".zip", ".whl")
"""Suffixes of programs. Other files are not read for people who may create objects: the operator's pod has secrets."""

Work = Create | Remove | Stop | TakeSavepoint | Forget


class ActionError(FiresteelError):
    """An action has failed for now; it is repeated."""


class Rest(Protocol):
    """The part of a cluster's REST API that the operator needs."""

    def job(self, job_id: str) -> JobSeen | None:
        """A job; None = the cluster does not know it."""

    def operation(self, job_id: str, operation_id: str) -> OperationSeen | None:
        """A savepoint or stop; None = the cluster does not know it."""

    def stop(self, job_id: str, operation_id: str) -> None:
        """Stop a job with a savepoint."""

    def savepoint(self, job_id: str, operation_id: str) -> None:
        """Take a savepoint of a job, which runs on."""

    def cancel(self, job_id: str) -> None:
        """Cancel a job of the cluster."""

    def run(self, name: str, program: bytes, order: Mapping[str, Any]) -> None:
        """Upload a program and run it."""


class RestOfCluster(Rest):
    """REST API of a running cluster. Raises ``RpcError`` if the cluster does not answer, or refuses.

    Args:
        found: its address and token.
    """

    def __init__(self, cluster: Found) -> None:
        self._url, self._token = f"http://{cluster.host}:{cluster.port}", cluster.token

    @override
    def job(self, job_id: str) -> JobSeen | None:
        async def ask(client: RestClient) -> JobSeen | None:
            try:
                job = await client.get(f"/jobs/{job_id}", _REST_SECONDS)
            except JobNotFoundError:
                return None
            try:
                last = last_checkpoint(await client.get(f"/jobs/{job_id}/checkpoints", _REST_SECONDS))
            except JobNotFoundError as error:
                last = LastCheckpoint() if CHECKPOINTS_OFF in str(error) else LastCheckpoint(error=str(error))
            except RpcError as error:
                last = LastCheckpoint(error=str(error))
            return JobSeen(str(job["state"]), str(job["name"]), last, int(job["start-time"]) / 1000)

        return _ask(self._url, self._token, ask)

    @override
    def operation(self, job_id: str, operation_id: str) -> OperationSeen | None:
        async def ask(client: RestClient) -> OperationSeen | None:
            try:
                result = await client.savepoint_result(job_id, operation_id)
            except JobNotFoundError:
                return None
            if result is None:
                return OperationSeen()
            failure = result.get("failure-cause")
            if failure is not None:
                return OperationSeen(failure=str(failure["stack-trace"])[:1000])
            return OperationSeen(location=str(result["location"]))

        return _ask(self._url, self._token, ask)

    @override
    def stop(self, job_id: str, operation_id: str) -> None:
        _ask(self._url, self._token, lambda client: client.stop(job_id, operation_id, None))

    @override
    def savepoint(self, job_id: str, operation_id: str) -> None:
        _ask(self._url, self._token, lambda client: client.trigger_savepoint(job_id, operation_id, None))

    @override
    def cancel(self, job_id: str) -> None:
        with suppress(JobNotFoundError):
            _ask(self._url, self._token, lambda client: client.cancel(job_id))

    @override
    def run(self, name: str, program: bytes, order: Mapping[str, Any]) -> None:
        async def ask() -> None:
            headers = {"Authorization": f"Bearer {self._token}"}
            timeout = aiohttp.ClientTimeout(total=_RUN_SECONDS)
            async with aiohttp.ClientSession(headers=headers, timeout=timeout) as session:
                form = aiohttp.FormData()
                form.add_field("jarfile", program, filename=name, content_type="application/octet-stream")
                uploaded = await _checked(session.post(f"{self._url}/jars/upload", data=form))
                jar = str(uploaded["filename"]).rstrip("/").rpartition("/")[2]
                try:
                    await _checked(session.post(f"{self._url}/jars/{jar}/run", json=dict(order)))
                finally:
                    await _checked(session.delete(f"{self._url}/jars/{jar}"))

        try:
            asyncio.run(ask())
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise ActionError(f"{self._url} does not answer: {error!r}") from error


def last_checkpoint(checkpoints: Mapping[str, Any]) -> LastCheckpoint:
    """The checkpoint that a job continues from, out of ``/jobs/:jobid/checkpoints``.

    A JobMaster that succeeds another one has new counters: at first it only knows what it has restored.
    """
    latest = checkpoints.get("latest") or {}
    last = max(
        (checkpoint for kind in ("completed", "savepoint", "restored") if (checkpoint := latest.get(kind))),
        key=lambda checkpoint: int(checkpoint["id"]),
        default=None,
    )
    if last is None:
        return LastCheckpoint()
    place = str(last.get("external_path") or "")
    return LastCheckpoint(place, "" if place else f"nobody knows where checkpoint {last['id']} is")


def _ask(url: str, token: str, ask: Callable[[RestClient], Awaitable[T]]) -> T:
    async def run() -> T:
        client = RestClient(url, token)
        try:
            return await ask(client)
        finally:
            await client.close()

    return asyncio.run(run())


async def _checked(request: Any) -> Any:
    async with request as answer:
        text = await answer.text()
        if answer.status >= 400:
            raise ActionError(f"the cluster answers {answer.status}: {text[:1000]}")
        return json.loads(text) if text else {}


class World(ABC):
    """Observes and changes what runs for the objects of one kind.

    Args:
        api: of Kubernetes.
        namespace: of the objects.
        rest: creates a client of a cluster's REST API.
    """

    def __init__(self, api: KubernetesApi, namespace: str, rest: Callable[[Found], Rest] = RestOfCluster) -> None:
        self.api, self.namespace, self.rest = api, namespace, rest

    @abstractmethod
    def see(self, thing: JsonObject, spec: Spec, status: Status) -> ObservedObject:
        """Observe what runs for an object.

        Raises:
            ApiError: Kubernetes does not answer, or refuses.
        """

    @abstractmethod
    def do(self, thing: JsonObject, spec: Spec, status: Status, action: Work) -> None:
        """Carry out an action, which has no effect if it was carried out before.

        Raises:
            FiresteelError, OSError: it is impossible for now.
        """

    def _rest_of(self, name: str) -> Rest:
        settings = Settings({options.KUBERNETES_CLUSTER_ID.key: name, options.KUBERNETES_NAMESPACE.key: self.namespace})
        return self.rest(KubernetesCluster(settings, self.api).find())


class Clusters(World):
    """Clusters of ``FiresteelDeployment`` objects: sessions, and clusters for one job."""

    @override
    def see(self, thing: JsonObject, spec: Spec, status: Status) -> ObservedObject:
        cluster = self._cluster(thing, spec, status)
        workload, pods = cluster.workload(), cluster.pods()
        if workload is None:
            observed = ObservedObject(is_going=bool(pods), incarnation=status.incarnation)
            if pods or not status.incarnation:
                return observed
            leftovers = bool(self._records(cluster.name))
            last = None
            if status.step == REMOVING and status.find:
                last = self._last(thing, status)
            return ObservedObject(incarnation=status.incarnation, leftovers=leftovers or last is not None, last=last)
        metadata = workload["metadata"]
        notes = metadata.get("annotations") or {}
        if notes.get(OWNER) != thing["metadata"]["uid"]:
            return ObservedObject(is_foreign=True)
        number = int(notes.get(INCARNATION, 0))
        if metadata.get("deletionTimestamp"):
            return ObservedObject(is_going=True, incarnation=number)
        masters = [pod for pod in pods if (pod["metadata"].get("labels") or {}).get(LABEL_COMPONENT) == JOBMANAGER]
        ready = any(is_ready(pod) for pod in masters)
        trouble = next((reason for pod in pods if (reason := waits_for(pod))), "") or _end(workload, masters)
        job = operation = None
        if ready:
            try:
                rest = self._rest_of(cluster.name)
                job = rest.job(status.job_id) if spec.job is not None else None
                if status.operation is not None and job is not None:
                    operation = rest.operation(status.job_id, status.operation.id)
            except (RpcError, KubernetesClusterError, OSError) as error:
                logger.info("%s does not answer: %s", cluster.name, error)
                ready = False
        return ObservedObject(
            True, number, cluster.is_complete(), is_ready=ready, trouble="" if ready else trouble, job=job,
            operation=operation,
        )  # fmt: skip

    @override
    def do(self, thing: JsonObject, spec: Spec, status: Status, action: Work) -> None:
        match action:
            case Create():
                self._create(thing, action)
            case Remove():
                cluster = self._cluster(thing, spec, status)
                if cluster.workload() is not None:
                    cluster.delete()
            case Stop(job_id, operation_id):
                self._rest_of(thing["metadata"]["name"]).stop(job_id, operation_id)
            case TakeSavepoint(job_id, operation_id):
                self._rest_of(thing["metadata"]["name"]).savepoint(job_id, operation_id)
            case Forget():
                for path in self._records(thing["metadata"]["name"]):
                    with suppress(MissingError):
                        self.api.ask("DELETE", path)

    def _create(self, thing: JsonObject, action: Create) -> None:
        spec = Spec.from_plain(action.spec)
        with tempfile.TemporaryDirectory(prefix="firesteel-operator-") as folder:
            settings = settings_of(thing, spec, Path(folder))
            cluster = KubernetesCluster(
                settings, self.api, _reference(thing), _notes(thing, action.incarnation)
            )  # fmt: skip
            arguments = None if spec.job is None else arguments_of(spec, action)
            cluster.ensure(arguments)

    def _cluster(self, thing: JsonObject, spec: Spec, status: Status) -> KubernetesCluster:
        name = thing["metadata"]["name"]
        settings = {options.KUBERNETES_CLUSTER_ID.key: name, options.KUBERNETES_NAMESPACE.key: self.namespace}
        return KubernetesCluster(Settings(settings), self.api)

    def _records(self, name: str) -> list[str]:
        """Paths of the records that high availability has left."""
        labels = {**cluster_labels(name), LABEL_KIND: HIGH_AVAILABILITY}
        paths = []
        for collection in (
            f"/api/v1/namespaces/{self.namespace}/configmaps",
            f"/apis/coordination.k8s.io/v1/namespaces/{self.namespace}/leases",
        ):
            listed = self.api.ask("GET", collection, query={"labelSelector": selector(labels)})
            paths += [
                f"{collection}/{item['metadata']['name']}"
                for item in listed.get("items") or ()
                if labels.items() <= (item["metadata"].get("labels") or {}).items()
            ]
        return paths

    def _last(self, thing: JsonObject, status: Status) -> LastCheckpoint:
        """Find the last checkpoint of an incarnation that is gone.

        This leads the job meanwhile: a process of it that still lives somewhere can't complete another checkpoint.
        """
        spec = Spec.from_plain(status.reconciled or {})
        try:
            services = KubernetesServices(settings_of(thing, spec, None), None, self.api)
        except ConfigurationError as error:
            return LastCheckpoint(error=str(error))
        leadership = None
        try:
            was_led = services.remembers_job(status.job_id)
            leadership = services.campaign(of_job(status.job_id))
            if leadership is None:
                return LastCheckpoint(error="its JobMaster's lease is not over yet")
            store = services.completed_checkpoints(status.job_id, leadership)
            stored = store.all()
            if store.damaged:  # the damaged one may be the last
                return LastCheckpoint(error=f"a record of it is damaged: {store.damaged[0]}")
            if stored:
                return LastCheckpoint(stored[-1].location)
            return self._last_of_end(services, status, was_led)
        except (AwayError, FiresteelError, OSError) as error:
            return LastCheckpoint(error=str(error))
        finally:
            if leadership is not None:
                with suppress(OSError, FiresteelError):
                    leadership.release()

    @staticmethod
    def _last_of_end(services: CellServices, status: Status, was_led: bool) -> LastCheckpoint:
        """Like ``_last``, for a job without checkpoints in its records: it has ended, or has none."""
        jobs = CellJobStore(services.cells, services.payloads, DISPATCHER, 0)  # only to read
        end = services.recorded_end(status.job_id)
        archive = jobs.archive(status.job_id) if end is None else end.archive
        if archive is not None:
            try:
                return last_checkpoint(checkpoints(archive))
            except NoCheckpointsError as error:
                return LastCheckpoint() if CHECKPOINTS_OFF in str(error) else LastCheckpoint(error=str(error))
        has_run = status.stable is not None and status.stable == status.reconciled
        if has_run and not was_led and services.cells.read(DISPATCHER, f"job.{status.job_id}") is None:
            return LastCheckpoint(error="its records of high availability are gone")
        return LastCheckpoint()


class SessionJobs(World):
    """Jobs of ``FiresteelSessionJob`` objects in session clusters."""

    @override
    def see(self, thing: JsonObject, spec: Spec, status: Status) -> ObservedObject:
        try:
            parent = self.api.ask("GET", _path(self.namespace, "firesteeldeployments", spec.session))
        except MissingError:
            return ObservedObject(
                blocked=f"there is no FiresteelDeployment {spec.session} in namespace {self.namespace}"
            )
        if (parent.get("spec") or {}).get("job") is not None:
            return ObservedObject(blocked=f"FiresteelDeployment {spec.session} has a job of its own: it is no session")
        try:
            rest = self._rest_of(spec.session)
            job = rest.job(status.job_id) if status.job_id else None
            operation = None
            if status.operation is not None and job is not None:
                operation = rest.operation(status.job_id, status.operation.id)
        except (RpcError, KubernetesClusterError, OSError) as error:
            settings = {
                options.KUBERNETES_CLUSTER_ID.key: spec.session, options.KUBERNETES_NAMESPACE.key: self.namespace,
            }  # fmt: skip
            has_cluster = KubernetesCluster(Settings(settings), self.api).workload() is not None
            return ObservedObject(
                blocked=f"FiresteelDeployment {spec.session} takes no requests: {error}",
                is_hidden=has_cluster and bool(status.job_id),
            )
        ended = job is not None and job.state in TERMINAL
        is_removed = status.step == REMOVING or bool(thing["metadata"].get("deletionTimestamp"))
        last = None
        if status.find and (job is None or ended):
            last = LastCheckpoint(error=f"{spec.session} does not know the job any more") if job is None else job.last
        return ObservedObject(
            exists=job is not None and not (ended and is_removed), incarnation=status.incarnation,
            is_ready=True, job=job, operation=operation, last=last,
        )  # fmt: skip

    @override
    def do(self, thing: JsonObject, spec: Spec, status: Status, action: Work) -> None:
        rest = self._rest_of(spec.session)
        match action:
            case Create():
                job_spec = Spec.from_plain(action.spec, session_job=True)
                assert job_spec.job is not None
                name, program = read_program(job_spec.job.program)
                rest.run(name, program, order_of(job_spec, action))
            case Remove():
                rest.cancel(status.job_id)
            case Stop(job_id, operation_id):
                rest.stop(job_id, operation_id)
            case TakeSavepoint(job_id, operation_id):
                rest.savepoint(job_id, operation_id)
            case Forget():
                pass


def _path(namespace: str, plural: str, name: str) -> str:
    return f"/apis/{GROUP}/{VERSION}/namespaces/{namespace}/{plural}/{name}"


def _reference(thing: JsonObject) -> JsonObject:
    return {
        "apiVersion": thing["apiVersion"], "kind": thing["kind"], "name": thing["metadata"]["name"],
        "uid": thing["metadata"]["uid"], "controller": True, "blockOwnerDeletion": True,
    }  # fmt: skip


def _notes(thing: JsonObject, incarnation: int) -> dict[str, str]:
    return {OWNER: str(thing["metadata"]["uid"]), INCARNATION: str(incarnation)}


def _end(workload: JsonObject, pods: list[JsonObject]) -> str:
    """How an application has ended, if it has."""
    for condition in (workload.get("status") or {}).get("conditions") or ():
        if condition["status"] == "True" and condition["type"] in ("Complete", "Failed"):
            ends = [end for pod in pods if (end := end_of(pod))]
            return f"its JobManager has ended: {(ends or [str(condition.get('message', ''))])[-1]}"
    return ""


# -- of specs


def settings_of(thing: JsonObject, spec: Spec, folder: Path | None) -> Settings:
    """Options of a cluster.

    Args:
        thing: the object.
        spec: of the cluster.
        folder: where pod templates are written; None: they are left out.

    Raises:
        SpecError: a part is no object.
    """
    plain, cluster_options = spec.plain, dict(spec.configuration)
    cluster_options[options.KUBERNETES_CLUSTER_ID.key] = thing["metadata"]["name"]
    cluster_options[options.KUBERNETES_NAMESPACE.key] = thing["metadata"]["namespace"]
    for field, key in (
        ("image", "kubernetes.container.image.ref"),
        ("imagePullPolicy", "kubernetes.container.image.pull-policy"),
        ("serviceAccount", "kubernetes.service-account"),
    ):
        if plain.get(field):
            cluster_options[key] = str(plain[field])
    templates = {"default": plain.get("podTemplate")}
    for field, kind in (("jobManager", "jobmanager"), ("taskManager", "taskmanager")):
        part = plain.get(field) or {}
        resource = part.get("resource") or {}
        if resource.get("memory"):
            cluster_options[f"{kind}.memory.process.size"] = str(resource["memory"])
        if resource.get("cpu"):
            cluster_options[f"kubernetes.{kind}.cpu.amount"] = str(resource["cpu"])
        if part.get("replicas") and kind == "jobmanager":
            cluster_options["kubernetes.jobmanager.replicas"] = str(part["replicas"])
        templates[kind] = part.get("podTemplate")
    for kind, template in templates.items():
        if template and folder is not None:
            file = folder / f"{kind}.json"
            file.write_text(json.dumps(template))  # JSON is YAML, too
            cluster_options[f"kubernetes.pod-template-file.{kind}"] = str(file)
    if spec.job is not None:
        cluster_options[options.SHUTDOWN_ON_APPLICATION_FINISH.key] = (
            "false"  # else nobody could be asked how it has ended
        )
        if spec.job.mode is not UpgradeMode.STATELESS:
            cluster_options.setdefault(options.CHECKPOINTING_RETENTION.key, "RETAIN_ON_CANCELLATION")
    return Settings(cluster_options, f"FiresteelDeployment {thing['metadata']['name']}")


def arguments_of(spec: Spec, action: Create) -> list[str]:
    """Arguments of ``firesteel-standalone-job`` for an incarnation."""
    job = spec.job
    assert job is not None
    words = ["--python", job.program.removeprefix(_LOCAL), "--job-id", action.job_id]
    if job.module:
        words += ["--pyModule", job.module]
    if job.parallelism is not None:
        words += ["-D", f"{options.PARALLELISM_DEFAULT.key}={job.parallelism}"]
    if action.restore:
        words += ["--fromSavepoint", action.restore]
        words += ["-D", f"{options.STATE_RECOVERY_CLAIM_MODE.key}={'CLAIM' if action.claim else 'NO_CLAIM'}"]
    if job.drops_state:
        words.append("--allowNonRestoredState")
    return [*words, "--", *job.arguments] if job.arguments else words


def order_of(spec: Spec, action: Create) -> dict[str, Any]:
    """Body of ``POST /jars/:jarid/run`` for an incarnation."""
    job = spec.job
    assert job is not None
    configuration = dict(spec.configuration)
    if job.mode is not UpgradeMode.STATELESS:
        configuration.setdefault(options.CHECKPOINTING_RETENTION.key, "RETAIN_ON_CANCELLATION")
    order: dict[str, Any] = {
        "jobId": action.job_id,
        "programArgsList": list(job.arguments),
        "allowNonRestoredState": job.drops_state,
        "flinkConfiguration": configuration,
    }
    if job.module:
        order["entryClass"] = job.module
    if job.parallelism is not None:
        order["parallelism"] = job.parallelism
    if action.restore:
        order |= {"savepointPath": action.restore, "claimMode": "CLAIM" if action.claim else "NO_CLAIM"}
    return order


def read_program(uri: str) -> tuple[str, bytes]:
    """Name and content of the program of a session's job.

    Raises:
        SpecError: it can't be read from there.
        OSError: it can't be read.
    """
    name = urlsplit(uri).path.rpartition("/")[2]
    if not name.endswith(_PROGRAMS):
        raise SpecError(f"spec.job.program: {uri} is no program: it has to end with {', '.join(_PROGRAMS)}")
    if uri.startswith(("http://", "https://")):
        with opener_for(uri).open(uri, timeout=_RUN_SECONDS) as answer:
            content: bytes = answer.read(_LARGEST_PROGRAM + 1)
    elif uri.startswith((_LOCAL, "/")):
        content = Path(uri.removeprefix(_LOCAL)).read_bytes()
    else:
        raise SpecError(f"spec.job.program: {uri} is neither http(s):// nor local:// (a file of the operator's pod)")
    if len(content) > _LARGEST_PROGRAM:
        raise SpecError(f"spec.job.program: {uri} is larger than {_LARGEST_PROGRAM >> 20} MiB")
    return name, content
