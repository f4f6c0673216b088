"""REST answers that come from samples of stacks: flame graphs and profiles."""

from __future__ import annotations

import functools

from aiohttp import web

from firesteel.core.errors import ConfigurationError
from firesteel.protocol.gateways import InspectionGateway
from firesteel.rest import types as t
from firesteel.rest import views
from firesteel.rest.endpoints import RestCall
from firesteel.service.middlewares import error_response
from firesteel_dispatcher.flame_graphs import LONGEST_PROFILE, MODES, sample_there
from firesteel_dispatcher.job import ENDED
from firesteel_dispatcher.processes import process_at, sample_jobmanager
from firesteel_dispatcher.rest_processes import address_of
from firesteel_dispatcher.shell import DispatcherService

_JOBMANAGER = "jobmanager"


async def flame_graph(service: DispatcherService, call: RestCall) -> t.FlameGraph:
    """What the tasks of a vertex spend their time on."""
    archive = await service.archive_of(call.job_id, call.vertex_id)
    vertex = views.find_vertex(archive, call.vertex_id)
    subtask = call.query["subtaskindex"]
    if subtask is not None and subtask >= vertex["parallelism"]:
        raise ConfigurationError(f"subtaskindex={subtask}: the vertex has {vertex['parallelism']} subtasks")
    if not service.settings.flame_graphs.enabled or archive["state"] in ENDED:
        return {"endTimestamp": -2, "data": None}
    homes = {row["taskmanager-id"] for row in vertex["subtasks"]}

    async def gateways() -> list[InspectionGateway]:
        cluster = await service.coordinators.overview()
        return [
            InspectionGateway(service.client, str(row["path"])) for row in cluster.taskmanagers if row["id"] in homes
        ]

    return service.diagnostics.flame_graphs.of(call.job_id, call.vertex_id, call.query["type"], subtask, gateways)


async def profiles(service: DispatcherService, call: RestCall) -> t.ProfileList:
    """Runs of the profiler of a process."""
    process = await _process(service, call)
    return {"profilingList": [run.to_rest() for run in service.diagnostics.profiles.of(process)]}


async def profile(service: DispatcherService, call: RestCall) -> t.Profile | web.Response:
    process, mode, seconds = await _process(service, call), call.body["mode"].upper(), call.body["duration"]
    if mode not in MODES:
        raise ConfigurationError(f"mode = {call.body['mode'][:40]!r} is none of {', '.join(MODES)}")
    if not 1 <= seconds <= LONGEST_PROFILE:
        raise ConfigurationError(f"duration = {seconds}: from 1 to {LONGEST_PROFILE} seconds are possible")
    if service.diagnostics.profiles.is_busy(process):
        return error_response(409, f"A profile of {process} is being taken already.")
    take = functools.partial(sample_jobmanager, service)
    if process != _JOBMANAGER:
        take = functools.partial(sample_there, process_at(service, await address_of(service, process)))
    return service.diagnostics.profiles.begin(process, mode, seconds, take).to_rest()


async def profile_file(service: DispatcherService, call: RestCall) -> web.Response:
    finished = service.diagnostics.profiles.find(await _process(service, call), call.path["filename"])
    if finished is None:
        return error_response(
            404, f"There is no profile {call.path['filename'][:80]!r}: the last ones are kept, in memory."
        )
    return web.Response(text=finished.page, content_type="text/html", headers={"Content-Disposition": "attachment"})


async def _process(service: DispatcherService, call: RestCall) -> str:
    if "taskmanager_id" not in call.path:
        return _JOBMANAGER
    await address_of(service, call.path["taskmanager_id"])
    return str(call.path["taskmanager_id"])
