"""The table of the REST API: every endpoint with its parameters, the types of what it takes and answers, and who may
call. Routes, checks, ``/openapi.json`` and docs/rest-api.md are made of it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from aiohttp import web

from firesteel.rest import checkpoint_types as c
from firesteel.rest import checkpoint_views, metric_views, rescale_views, subtask_views, views
from firesteel.rest import types as t
from firesteel.rest.endpoints import CallerRights, Endpoint, Parameter, RestCall, Switch
from firesteel_dispatcher import log_levels
from firesteel_dispatcher import rest_cluster as cluster
from firesteel_dispatcher import rest_jobs as jobs
from firesteel_dispatcher import rest_processes as processes
from firesteel_dispatcher import rest_profiles as profiles
from firesteel_dispatcher import rest_programs as programs
from firesteel_dispatcher.flame_graphs import KINDS
from firesteel_dispatcher.openapi import document
from firesteel_dispatcher.shell import DispatcherService

_JOB: Final = "/jobs/{job_id}"
_VERTEX: Final = "/jobs/{job_id}/vertices/{vertex_id}"
_SUBTASK: Final = f"{_VERTEX}/subtasks/{{subtask}}"
_TASKMANAGER: Final = "/taskmanagers/{taskmanager_id}"
_APPLICATION: Final = "/applications/{application_id}"
_BINARY: Final = "application/octet-stream"
_HTML: Final = "text/html"
_MULTIPART: Final = "multipart/form-data"

_GET = Parameter("get", "ids of metrics, separated by commas; without it the answer lists the ids there are")
_AGG = Parameter("agg", "which of min, max, avg, sum, skew, separated by commas; default: all")
_METRICS: Final = (_GET,)
_AGGREGATES: Final = (_GET, _AGG)
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


def _of_vertex(view: Any) -> Any:
    """A handler of a view that takes the vertex itself."""
    return jobs.of_vertex(lambda archive, vertex_id: view(views.find_vertex(archive, vertex_id)))


def _back_pressure(archive: Any, vertex_id: str) -> Any:
    return subtask_views.back_pressure(views.find_vertex(archive, vertex_id), archive["now"])


def _plan(archive: Any) -> Any:
    return {"plan": archive["plan"]}


async def openapi(_: DispatcherService, __: RestCall) -> Any:
    """This table, as OpenAPI has it."""
    return web.Response(body=document(ENDPOINTS), content_type="application/json")


def _read(path: str, handle: Any, what: str, answer: Any, *query: Parameter, **more: Any) -> Endpoint:
    return Endpoint("GET", path, handle, what, answer, query, **more)


def _do(method: str, path: str, handle: Any, what: str, answer: Any, *query: Parameter, **more: Any) -> Endpoint:
    return Endpoint(method, path, handle, what, answer, query, access=more.pop("access", CallerRights.CHANGE), **more)


def _where(switch: Switch, *endpoints: Endpoint) -> list[Endpoint]:
    """Endpoints that can be switched off together."""
    return [replace(endpoint, switch=switch) for endpoint in endpoints]


ENDPOINTS: Final = (
    # -- cluster
    _read("/config", cluster.config, "what kind of cluster this is", t.DashboardConfiguration),
    _read("/overview", cluster.overview, "counters of the cluster", t.ClusterOverview),
    _do("DELETE", "/cluster", cluster.shut_down, "ends all jobs and the cluster", t.Empty),
    _read("/datasets", cluster.datasets, "results that cache() keeps, as far as its host sees them", t.DataSets),
    _read("/datasets/delete/{trigger_id}", cluster.dataset_status, "state of a deletion", t.Disposal),
    _do(
        "DELETE",
        "/datasets/{dataset_id}",
        cluster.delete_dataset,
        "deletes one: its program computes it anew",
        t.Requested,
        status=202,
    ),
    # -- applications: programs with their jobs, and jobs that were submitted by themselves
    _read(
        "/applications/overview", jobs.applications, "all applications: programs with their jobs, and single jobs",
        t.ApplicationsOverview,
    ),
    _read(_APPLICATION, jobs.application, "an application with its jobs", t.Application),
    _read(
        f"{_APPLICATION}/exceptions", jobs.application_failures, "what ended an application, or its main()",
        t.ApplicationExceptions,
    ),
    _do(
        "POST", f"{_APPLICATION}/cancel", jobs.cancel_application, "cancels an application", t.Empty,
        status=202, access=CallerRights.CANCEL, switch=Switch.CANCEL,
    ),
    _read(
        f"{_APPLICATION}/jobmanager/config", processes.jobmanager_config, "settings of its cluster", list[t.Setting]
    ),
    # -- jobs
    _read("/jobs", jobs.jobs, "ids and states of jobs", t.Jobs),
    _do("POST", "/jobs", jobs.submit, "submits a job", t.Submitted, upload=_MULTIPART, status=202),
    _read("/jobs/overview", jobs.overview, "all jobs with counts of their tasks", t.JobsOverview),
    _read(
        "/jobs/metrics", jobs.metrics_of_jobs, "metrics over several jobs", list[t.Aggregate],
        *_AGGREGATES, Parameter("jobs", "ids, separated by commas; default: all"),
    ),
    _read(_JOB, jobs.of_job(views.job_details), "a job: state, plan, vertices", t.JobDetails),
    _do(
        "PATCH", _JOB, jobs.cancel, "cancels a job", t.Empty,
        Parameter("mode", "cancel; stop is answered with 308", default="cancel", choices=("cancel", "stop")),
        status=202, access=CallerRights.CANCEL, switch=Switch.CANCEL,
    ),
    # A page of another site can have a browser send a GET, and nothing in it need tell where it comes from: so the
    # token is needed here, of an embedded cluster as well.
    _do("GET", f"{_JOB}/yarn-cancel", jobs.cancel, "cancels a job", t.Empty, status=202, switch=Switch.CANCEL),
    _read(f"{_JOB}/yarn-stop", jobs.stop_of_old, "removed in Flink: always 308", t.Errors, status=308),
    _read(f"{_JOB}/status", jobs.status, "state of a job", t.JobStatus),
    _read(f"{_JOB}/execution-result", jobs.execution_result, "how a job ended", t.ExecutionResult, _WAIT),
    _do(
        "PATCH", f"{_JOB}/clientHeartbeat", jobs.client_heartbeat, "its client lives", t.Empty,
        body=t.ClientHeartbeat, status=202, polled=True,
    ),
    _read(f"{_JOB}/config", jobs.of_job(views.job_config), "settings of a job", t.JobConfig),
    _read(f"{_JOB}/plan", jobs.of_job(_plan), "plan of a job", t.JobPlan),
    _read(
        f"{_JOB}/exceptions", jobs.exceptions, "failures, the newest first", t.JobExceptions,
        Parameter("maxExceptions", "most entries", "number", 10, least=1, most=10_000),
        Parameter("failureLabelFilter", "key:value, separated by commas: only failures with these", default=""),
    ),
    _read(
        f"{_JOB}/accumulators", jobs.job_accumulators, "counters of user functions, over all subtasks",
        t.JobAccumulators, Parameter("includeSerializedValue", "they have no serialized form", "flag", False),
    ),
    _read(f"{_JOB}/metrics", processes.job_values, "metrics of a job", list[t.MetricValue], *_METRICS),
    _read(
        f"{_JOB}/metrics/history", jobs.metric_history, "what the job did in the last hour", t.MetricHistory,
        Parameter("vertex", "id of a vertex; default: series of the job itself", default=""),
        Parameter("since", "only moments after this one, in ms since 1970", "number", -1, least=-1, most=1 << 62),
        ours=True,
    ),
    _do(
        "POST", f"{_JOB}/coordinators/{{operator_id}}", jobs.coordinate, "for Java only: always 400",
        t.CoordinationResult, body=t.CoordinationRequest,
    ),
    _do(
        "GET", f"{_JOB}/collect/{{operator_id}}", jobs.collect, "results of a collect operator, pickled", _BINARY,
        Parameter("offset", "of the first result", "number", 0, most=1 << 62),
        Parameter("max-bytes", "of the answer", "number", 1 << 20, least=1, most=1 << 30),
        Parameter("wait-ms", "how long to wait for the first one", "number", 0, most=60_000),
        ours=True, polled=True,
    ),
    # -- savepoints and checkpoints
    _do(
        "POST", f"{_JOB}/savepoints", jobs.trigger_savepoint, "takes a savepoint", t.Requested,
        body=c.SavepointTrigger, status=202,
    ),
    _read(f"{_JOB}/savepoints/{{trigger_id}}", jobs.savepoint_status, "of a savepoint or stop", c.SavepointStatus),
    _do(
        "POST", f"{_JOB}/stop", jobs.stop, "stops a job with a savepoint", t.Requested, body=c.StopRequest, status=202,
        switch=Switch.CANCEL,
    ),
    _do(
        "POST", "/savepoint-disposal", cluster.dispose_savepoint, "removes a savepoint", t.Requested,
        body=c.DisposalRequest,
    ),
    _read("/savepoint-disposal/{trigger_id}", cluster.disposal_status, "state of a removal", t.Disposal),
    _read(f"{_JOB}/checkpoints", jobs.of_job(checkpoint_views.checkpoints), "checkpoint statistics", c.Checkpoints),
    _do(
        "POST", f"{_JOB}/checkpoints", jobs.trigger_checkpoint, "takes a checkpoint", t.Requested,
        body=c.CheckpointTrigger, status=202,
    ),
    _read(
        f"{_JOB}/checkpoints/config", jobs.of_job(checkpoint_views.checkpoint_config), "checkpoint settings",
        c.CheckpointConfig,
    ),
    _read(
        f"{_JOB}/checkpoints/details/{{checkpoint_id}}", jobs.of_query(checkpoint_views.checkpoint_details),
        "one checkpoint, by vertex", c.Checkpoint,
    ),
    _read(
        f"{_JOB}/checkpoints/details/{{checkpoint_id}}/subtasks/{{vertex_id}}",
        jobs.of_query(checkpoint_views.checkpoint_subtasks), "one checkpoint of one vertex, by subtask",
        c.CheckpointSubtasks,
    ),
    _read(f"{_JOB}/checkpoints/{{trigger_id}}", jobs.checkpoint_status, "of a checkpoint", c.CheckpointStatus),
    # -- rescaling: in reactive mode
    _read(
        f"{_JOB}/resource-requirements", jobs.of_job(rescale_views.requirements), "bounds of the parallelism",
        t.Requirements,
    ),
    _do(
        "PUT", f"{_JOB}/resource-requirements", jobs.set_requirements,
        "changes them: 409 where the job would have to be rescaled", t.Empty, body=t.Requirements,
    ),
    _read(
        f"{_JOB}/rescales/overview", jobs.of_job(rescale_views.rescales_overview),
        "how many there were, and the latest of each kind", t.RescalesOverview,
    ),
    _read(
        f"{_JOB}/rescales/history", jobs.of_job(rescale_views.rescales_history),
        "those that are kept, the newest first", list[t.Rescale],
    ),
    _read(
        f"{_JOB}/rescales/details/{{rescale_id}}", jobs.of_query(rescale_views.rescale_details),
        "one, with the states of the scheduler", t.Rescale,
    ),
    _read(
        f"{_JOB}/rescales/summary", jobs.of_job(rescale_views.rescales_summary), "how long they took",
        t.RescalesSummary,
    ),
    _read(
        f"{_JOB}/rescales/config", jobs.of_job(rescale_views.rescales_config), "settings of reactive mode",
        t.RescalesConfig,
    ),
    _do(
        "PATCH", f"{_JOB}/rescaling", jobs.rescaling, "switched off in Flink: always 503", t.Errors,
        Parameter("parallelism", "wanted", "number", least=1, most=1 << 15, needed=True), status=503,
    ),
    _read(f"{_JOB}/rescaling/{{trigger_id}}", jobs.rescaling, "always 503", t.Errors, status=503),
    # -- vertices and subtasks
    _read(_VERTEX, jobs.of_vertex(views.vertex_details), "subtasks of a vertex", t.VertexDetails),
    _read(f"{_VERTEX}/subtasktimes", jobs.of_vertex(views.subtask_times), "times of their states", t.SubtaskTimes),
    _read(
        f"{_VERTEX}/taskmanagers", jobs.of_vertex(views.vertex_taskmanagers), "a vertex by TaskManager",
        t.VertexTaskManagers,
    ),
    _read(
        f"{_VERTEX}/accumulators", _of_vertex(subtask_views.vertex_accumulators), "counters of its user functions",
        t.VertexAccumulators,
    ),
    _read(
        f"{_VERTEX}/subtasks/accumulators", _of_vertex(subtask_views.subtasks_accumulators), "the same by subtask",
        t.SubtasksAccumulators,
    ),
    _read(f"{_VERTEX}/backpressure", jobs.of_vertex(_back_pressure), "back pressure by subtask", t.BackPressure),
    _read(
        f"{_VERTEX}/flamegraph", profiles.flame_graph, "what its tasks spend their time on, in Python", t.FlameGraph,
        Parameter("type", "full, on_cpu or off_cpu", default="full", choices=KINDS),
        Parameter("subtaskindex", "only this subtask", "number"),
    ),
    _read(
        f"{_VERTEX}/watermarks", jobs.of_query(metric_views.vertex_watermarks), "watermarks of its inputs",
        list[t.MetricValue],
    ),
    _read(
        f"{_VERTEX}/metrics", jobs.of_query(metric_views.vertex_metrics), "metrics, ids begin with the subtask",
        list[t.MetricValue], *_METRICS,
    ),
    _read(
        f"{_VERTEX}/subtasks/metrics", jobs.of_query(metric_views.subtask_metrics), "metrics over subtasks",
        list[t.Aggregate], *_AGGREGATES, Parameter("subtasks", "indices and ranges such as 0,2-5; default: all"),
    ),
    _read(
        f"{_VERTEX}/jm-operator-metrics", processes.coordinator_metrics, "of enumerators: none", list[t.MetricValue],
        *_METRICS,
    ),
    _read(_SUBTASK, jobs.subtask, "a subtask: its current attempt", t.Subtask),
    _read(f"{_SUBTASK}/attempts/{{attempt}}", jobs.subtask, "one of its attempts", t.Subtask),
    _read(
        f"{_SUBTASK}/attempts/{{attempt}}/accumulators", jobs.attempt_accumulators, "counters of an attempt",
        t.AttemptAccumulators,
    ),
    _read(
        f"{_SUBTASK}/metrics", jobs.of_query(metric_views.one_subtask_metrics), "metrics of a subtask",
        list[t.MetricValue], *_METRICS,
    ),
    # -- TaskManagers
    _read("/taskmanagers", processes.taskmanagers, "all TaskManagers", t.TaskManagers),
    _read(
        "/taskmanagers/metrics", processes.metrics_of_taskmanagers, "metrics over TaskManagers", list[t.Aggregate],
        *_AGGREGATES, Parameter("taskmanagers", "ids, separated by commas; default: all"),
    ),
    _read(_TASKMANAGER, processes.taskmanager, "one TaskManager", t.TaskManagerDetails),
    _read(
        f"{_TASKMANAGER}/metrics", processes.taskmanager_metrics, "what it measures of itself", list[t.MetricValue],
        *_METRICS,
    ),
    _read(f"{_TASKMANAGER}/log", processes.main_log, "its log", t.Text, *_LOG),
    _read(f"{_TASKMANAGER}/stdout", processes.standard_output, "what it has printed", t.Text, *_LOG),
    _read(f"{_TASKMANAGER}/logs", processes.log_list, "its logs, and those of its slots", t.LogList),
    _read(f"{_TASKMANAGER}/logs/{{filename}}", processes.log_file, "one of them", t.Text, *_LOG),
    _read(f"{_TASKMANAGER}/thread-dump", processes.taskmanager_threads, "what all threads do", t.ThreadDump),
    _read(f"{_TASKMANAGER}/profiler", profiles.profiles, "runs of its profiler", t.ProfileList),
    _do("POST", f"{_TASKMANAGER}/profiler", profiles.profile, "runs it", t.Profile, body=t.ProfileRequest),
    _read(f"{_TASKMANAGER}/profiler/{{filename}}", profiles.profile_file, "what came out", _HTML),
    # -- JobManager
    _read("/jobmanager/config", processes.jobmanager_config, "settings of the cluster", list[t.Setting]),
    _read("/jobmanager/environment", processes.jobmanager_environment, "what it runs on", t.Environment),
    _read(
        "/jobmanager/metrics", processes.jobmanager_metrics, "what it measures, and the cluster's slots",
        list[t.MetricValue], *_METRICS,
    ),
    _read("/jobmanager/log", processes.main_log, "its log", t.Text, *_LOG),
    _read("/jobmanager/stdout", processes.standard_output, "what it has printed", t.Text, *_LOG),
    _read("/jobmanager/logs", processes.log_list, "logs of the services of this host", t.LogList),
    _read("/jobmanager/logs/{filename}", processes.log_file, "one of them", t.Text, *_LOG),
    _read("/jobmanager/thread-dump", processes.jobmanager_threads, "what all its threads do", t.ThreadDump),
    _read("/jobmanager/profiler", profiles.profiles, "runs of its profiler", t.ProfileList),
    _do("POST", "/jobmanager/profiler", profiles.profile, "runs it", t.Profile, body=t.ProfileRequest),
    _read("/jobmanager/profiler/{filename}", profiles.profile_file, "what came out", _HTML),
    _read(f"{_JOB}/jobmanager/config", processes.jobmanager_config, "settings of its cluster", list[t.Setting]),
    _read(f"{_JOB}/jobmanager/environment", processes.jobmanager_environment, "what that runs on", t.Environment),
    _read(f"{_JOB}/jobmanager/log-url", processes.log_url, "where the JobManager's log is", t.LogUrl),
    _read(
        f"{_JOB}/taskmanagers/{{taskmanager_id}}/log-url", processes.log_url, "where a TaskManager's log is", t.LogUrl
    ),
    # -- programs
    *_where(
        Switch.SUBMIT,
        _read("/jars", programs.uploaded, "uploaded programs", t.Programs),
        _do("POST", "/jars/upload", programs.upload, "uploads a .py, .zip or .whl", t.Uploaded, upload=_MULTIPART),
        _do("DELETE", "/jars/{jar_id}", programs.delete, "removes an upload", t.Empty),
        _do("GET", "/jars/{jar_id}/plan", programs.plan, "runs it up to its first job: the plan", t.JobPlan, *_PLAN),
        _do("POST", "/jars/{jar_id}/plan", programs.plan, "the same", t.JobPlan, *_PLAN, body=t.PlanRequest),
        _do(
            "POST", "/jars/{jar_id}/run", programs.run, "runs it; answers when its first job is submitted", t.RunAnswer,
            *_RUN, body=t.RunRequest,
        ),
        _do(
            "POST", "/jars/{jar_id}/run-application", programs.run_application, "runs it, and does not wait",
            t.RunApplicationAnswer, *_RUN, body=t.RunRequest, status=202,
        ),
    ),
    # -- levels of logs
    _read("/firesteel/loglevels", log_levels.show, "levels of loggers at all processes", t.LogLevels, ours=True),
    _do(
        "PUT", "/firesteel/loglevels", log_levels.change, "changes one at all processes, until these end", t.LogLevels,
        body=t.LogLevel, ours=True,
    ),
    # -- this table
    _read("/openapi.json", openapi, "the REST API as OpenAPI describes it", dict[str, Any], ours=True),
)  # fmt: skip
"""In the order in which paths are tried: those with fixed parts stand before those with variable ones."""
