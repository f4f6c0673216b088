"""The table of the REST API: every endpoint with its handler, its parameters and who may call.

Routes, checks, ``/openapi.json`` and docs/rest-api.md come from this table.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from aiohttp import web

from firesteel.rest import checkpoint_types as c
from firesteel.rest import types as t
from firesteel.rest.endpoints import CallerRights, Endpoint, Parameter, RestCall, Switch, change, get
from firesteel.rest.job_endpoints import (
    AGGREGATES,
    CHECKPOINT_ENDPOINTS,
    JOB,
    JOB_ENDPOINTS,
    METRICS,
    RESCALE_ENDPOINTS,
    STATE_ENDPOINTS,
    VERTEX,
    VERTEX_ENDPOINTS,
)
from firesteel.rest.program_types import RunAgainRequest
from firesteel_dispatcher import job_logs, log_levels
from firesteel_dispatcher import rest_cluster as cluster
from firesteel_dispatcher import rest_hot_keys as hot_keys
from firesteel_dispatcher import rest_jobs as jobs
from firesteel_dispatcher import rest_processes as processes
from firesteel_dispatcher import rest_profiles as profiles
from firesteel_dispatcher import rest_programs as programs
from firesteel_dispatcher.flame_graphs import KINDS
from firesteel_dispatcher.openapi import document
from firesteel_dispatcher.shell import DispatcherService

_TASKMANAGER: Final = "/taskmanagers/{taskmanager_id}"
_APPLICATION: Final = "/applications/{application_id}"
_BINARY: Final = "application/octet-stream"
_HTML: Final = "text/html"
_MULTIPART: Final = "multipart/form-data"

_LOG: Final = (
    Parameter("tail", "only so many lines, the last ones; the header Range works as well", "number", most=10_000),
)
_PLAN: Final = (
    Parameter("entry-class", "of an archive: a module, or module:function"),
    Parameter("parallelism", "of its jobs", "number", least=1, most=1 << 15),
    Parameter("programArg", "arguments, separated by commas"),
    Parameter("program-args", "arguments in one text, as in a shell"),
)
_RUN: Final = (
    *_PLAN,
    Parameter("savepointPath", "where its jobs go on from"),
    Parameter("allowNonRestoredState", "state that no operator wants is dropped", "flag"),
)
_WAIT: Final = Parameter("wait-ms", "how long to wait for it; Flink has no such parameter", "number", 0, most=60_000)


async def openapi(_: DispatcherService, __: RestCall) -> web.Response:
    """Describes the endpoints as an OpenAPI document."""
    return web.Response(body=document(ENDPOINTS), content_type="application/json")


def _where(switch: Switch, *endpoints: Endpoint) -> list[Endpoint]:
    """Endpoints that can be switched off together."""
    return [replace(endpoint, switch=switch) for endpoint in endpoints]


ENDPOINTS: Final = (
    # -- cluster
    get("/config", cluster.config, "what kind of cluster this is"),
    get("/overview", cluster.overview, "counters of the cluster"),
    change("DELETE", "/cluster", cluster.shut_down, "ends all jobs and the cluster"),
    get("/datasets", cluster.datasets, "results that cache() keeps, as far as its host sees them"),
    get("/datasets/delete/{trigger_id}", cluster.dataset_status, "state of a deletion"),
    change(
        "DELETE", "/datasets/{dataset_id}", cluster.delete_dataset, "deletes one: its program computes it anew",
        status=202,
    ),
    # -- applications: programs with their jobs, and jobs that were submitted by themselves
    get("/applications/overview", jobs.applications, "all applications: programs with their jobs, and single jobs"),
    get(_APPLICATION, jobs.application, "an application with its jobs"),
    get(f"{_APPLICATION}/exceptions", jobs.application_failures, "what ended an application, or its main()"),
    change(
        "POST", f"{_APPLICATION}/cancel", jobs.cancel_application, "cancels an application", status=202,
        access=CallerRights.CANCEL, switch=Switch.CANCEL,
    ),
    get(f"{_APPLICATION}/jobmanager/config", processes.jobmanager_config, "settings of its cluster"),
    # -- jobs
    get("/jobs", jobs.jobs, "ids and states of jobs"),
    change("POST", "/jobs", jobs.submit, "submits a job", upload=_MULTIPART, status=202),
    get(
        "/jobs/overview", jobs.overview, "all jobs with counts of their tasks, and how well they are",
        Parameter("history", "running jobs have their rates of the last 15 minutes", "flag", False),
    ),
    get(
        "/jobs/metrics", jobs.metrics_of_jobs, "metrics over several jobs", *AGGREGATES,
        Parameter("jobs", "ids, separated by commas; default: all"),
    ),
    *JOB_ENDPOINTS,
    change(
        "PATCH", JOB, jobs.cancel, "cancels a job",
        Parameter("mode", "cancel; stop is answered with 308", default="cancel", choices=("cancel", "stop")),
        status=202, access=CallerRights.CANCEL, switch=Switch.CANCEL,
    ),
    # A page of another site can have a browser send a GET, and nothing in it need tell where it comes from: so the
    # token is needed here, of an embedded cluster as well.
    change("GET", f"{JOB}/yarn-cancel", jobs.cancel, "cancels a job", status=202, switch=Switch.CANCEL),
    get(f"{JOB}/yarn-stop", jobs.stop_of_old, "removed in Flink: always 308", answer=t.Errors, status=308),
    get(f"{JOB}/status", jobs.status, "state of a job"),
    get(f"{JOB}/execution-result", jobs.execution_result, "how a job ended", _WAIT),
    change(
        "PATCH", f"{JOB}/clientHeartbeat", jobs.client_heartbeat, "its client lives", body=t.ClientHeartbeat,
        status=202, polled=True,
    ),
    get(
        f"{JOB}/metrics/history", jobs.metric_history, "what the job did in the last hour",
        Parameter("vertex", "id of a vertex; default: series of the job itself", default=""),
        Parameter("since", "only moments after this one, in ms since 1970", "number", -1, least=-1, most=1 << 62),
        ours=True,
    ),
    get(
        f"{JOB}/logs", job_logs.show, "what all its processes have logged, in order of time",
        Parameter(
            "since", "the first records from this moment on, in ms since 1970; default: the last ones", "number", -1,
            least=-1, most=1 << 62,
        ),
        Parameter("until", "only records before this moment", "number", -1, least=-1, most=1 << 62),
        Parameter("level", "least level: DEBUG, INFO, WARN or ERROR; default: all", default=""),
        Parameter("text", "what a record contains, in any case of letters", default=""),
        Parameter("limit", "most records", "number", 1000, least=1, most=10_000),
        ours=True,
    ),
    change(
        "POST", f"{JOB}/coordinators/{{operator_id}}", jobs.coordinate, "for Java only: always 400",
        body=t.CoordinationRequest,
    ),
    change(
        "GET", f"{JOB}/collect/{{operator_id}}", jobs.collect, "results of a collect operator, pickled",
        Parameter("offset", "of the first result", "number", 0, most=1 << 62),
        Parameter("max-bytes", "of the answer", "number", 1 << 20, least=1, most=1 << 30),
        Parameter("wait-ms", "how long to wait for the first one", "number", 0, most=60_000), answer=_BINARY,
        ours=True, polled=True,
    ),
    # -- savepoints and checkpoints
    change(
        "POST", f"{JOB}/savepoints", jobs.trigger_savepoint, "takes a savepoint", body=c.SavepointTrigger, status=202,
    ),
    get(f"{JOB}/savepoints/{{trigger_id}}", jobs.savepoint_status, "of a savepoint or stop"),
    change(
        "POST", f"{JOB}/stop", jobs.stop, "stops a job with a savepoint", body=c.StopRequest, status=202,
        switch=Switch.CANCEL,
    ),
    change("POST", "/savepoint-disposal", cluster.dispose_savepoint, "removes a savepoint", body=c.DisposalRequest),
    get("/savepoint-disposal/{trigger_id}", cluster.disposal_status, "state of a removal"),
    *CHECKPOINT_ENDPOINTS,
    *STATE_ENDPOINTS,
    change(
        "POST", f"{JOB}/checkpoints", jobs.trigger_checkpoint, "takes a checkpoint", body=c.CheckpointTrigger,
        status=202,
    ),
    get(f"{JOB}/checkpoints/{{trigger_id}}", jobs.checkpoint_status, "of a checkpoint"),
    # -- rescaling: in reactive mode
    *RESCALE_ENDPOINTS,
    change(
        "PUT", f"{JOB}/resource-requirements", jobs.set_requirements,
        "changes them: 409 where the job would have to be rescaled", body=t.Requirements,
    ),
    change(
        "PATCH", f"{JOB}/rescaling", jobs.rescaling, "switched off in Flink: always 503",
        Parameter("parallelism", "wanted", "number", least=1, most=1 << 15, needed=True), answer=t.Errors, status=503,
    ),
    get(f"{JOB}/rescaling/{{trigger_id}}", jobs.rescaling, "always 503", answer=t.Errors, status=503),
    # -- vertices and subtasks
    *VERTEX_ENDPOINTS,
    get(
        f"{VERTEX}/flamegraph", profiles.flame_graph, "what its tasks spend their time on, in Python",
        Parameter("type", "full, on_cpu or off_cpu", default="full", choices=KINDS),
        Parameter("subtaskindex", "only this subtask", "number"),
    ),
    get(
        f"{VERTEX}/hot-keys", hot_keys.hot_keys, "the most frequent keys that it gets, and their subtasks",
        Parameter("most", "number of keys", "number", 10, least=1, most=50), ours=True,
    ),
    # -- TaskManagers
    get("/taskmanagers", processes.taskmanagers, "all TaskManagers"),
    get(
        "/taskmanagers/metrics", processes.metrics_of_taskmanagers, "metrics over TaskManagers", *AGGREGATES,
        Parameter("taskmanagers", "ids, separated by commas; default: all"),
    ),
    get(_TASKMANAGER, processes.taskmanager, "one TaskManager"),
    get(f"{_TASKMANAGER}/metrics", processes.taskmanager_metrics, "what it measures of itself", *METRICS),
    get(f"{_TASKMANAGER}/log", processes.main_log, "its log", *_LOG, answer=t.Text),
    get(f"{_TASKMANAGER}/stdout", processes.standard_output, "what it has printed", *_LOG, answer=t.Text),
    get(f"{_TASKMANAGER}/logs", processes.log_list, "its logs, and those of its slots"),
    get(f"{_TASKMANAGER}/logs/{{filename}}", processes.log_file, "one of them", *_LOG, answer=t.Text),
    get(f"{_TASKMANAGER}/thread-dump", processes.taskmanager_threads, "what all threads do"),
    get(f"{_TASKMANAGER}/profiler", profiles.profiles, "runs of its profiler"),
    change("POST", f"{_TASKMANAGER}/profiler", profiles.profile, "runs it", body=t.ProfileRequest),
    get(f"{_TASKMANAGER}/profiler/{{filename}}", profiles.profile_file, "what came out", answer=_HTML),
    # -- JobManager
    get("/jobmanager/config", processes.jobmanager_config, "settings of the cluster"),
    get("/jobmanager/environment", processes.jobmanager_environment, "what it runs on"),
    get("/jobmanager/metrics", processes.jobmanager_metrics, "what it measures, and the cluster's slots", *METRICS),
    get("/jobmanager/log", processes.main_log, "its log", *_LOG, answer=t.Text),
    get("/jobmanager/stdout", processes.standard_output, "what it has printed", *_LOG, answer=t.Text),
    get("/jobmanager/logs", processes.log_list, "logs of the services of this host"),
    get("/jobmanager/logs/{filename}", processes.log_file, "one of them", *_LOG, answer=t.Text),
    get("/jobmanager/thread-dump", processes.jobmanager_threads, "what all its threads do"),
    get("/jobmanager/profiler", profiles.profiles, "runs of its profiler"),
    change("POST", "/jobmanager/profiler", profiles.profile, "runs it", body=t.ProfileRequest),
    get("/jobmanager/profiler/{filename}", profiles.profile_file, "what came out", answer=_HTML),
    get(f"{JOB}/jobmanager/config", processes.jobmanager_config, "settings of its cluster"),
    get(f"{JOB}/jobmanager/environment", processes.jobmanager_environment, "what that runs on"),
    get(f"{JOB}/jobmanager/log-url", processes.log_url, "where the JobManager's log is"),
    get(f"{JOB}/taskmanagers/{{taskmanager_id}}/log-url", processes.log_url, "where a TaskManager's log is"),
    # -- programs
    *_where(
        Switch.SUBMIT,
        get("/jars", programs.uploaded, "uploaded programs"),
        change("POST", "/jars/upload", programs.upload, "uploads a .py, .zip or .whl", upload=_MULTIPART),
        change("DELETE", "/jars/{jar_id}", programs.delete, "removes an upload"),
        change("GET", "/jars/{jar_id}/plan", programs.plan, "runs it up to its first job: the plan", *_PLAN),
        change("POST", "/jars/{jar_id}/plan", programs.plan, "the same", *_PLAN, body=t.PlanRequest),
        change(
            "POST", "/jars/{jar_id}/run", programs.run, "runs it; answers when its first job is submitted", *_RUN,
            body=t.RunRequest,
        ),
        change(
            "POST", f"{JOB}/run-again", programs.run_again,
            "runs the uploaded program of a job again, with the same arguments and settings",
            body=RunAgainRequest, ours=True,
        ),
        change(
            "POST", "/jars/{jar_id}/run-application", programs.run_application, "runs it, and does not wait", *_RUN,
            body=t.RunRequest, status=202,
        ),
    ),
    # -- levels of logs
    get("/firesteel/loglevels", log_levels.show, "levels of loggers at all processes", ours=True),
    change(
        "PUT", "/firesteel/loglevels", log_levels.change, "changes one at all processes, until these end",
        body=t.LogLevel, ours=True,
    ),
    # -- this table
    get("/openapi.json", openapi, "the REST API as OpenAPI describes it", answer=dict[str, Any], ours=True),
)  # fmt: skip
"""Endpoints in the order in which paths are tried: those with fixed parts stand before those with variable ones."""
