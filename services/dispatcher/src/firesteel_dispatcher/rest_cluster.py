"""REST answers about the cluster, and requests that change it."""

from __future__ import annotations

import time
from typing import Final

from aiohttp import web

import firesteel
from firesteel.rest import types as t
from firesteel.rest.checkpoint_views import failure_cause
from firesteel.rest.endpoints import RestCall
from firesteel.service.middlewares import error_response
from firesteel_dispatcher.checkpoint_requests import read_disposal
from firesteel_dispatcher.disposals import Disposals
from firesteel_dispatcher.shell import DispatcherService

FLINK_VERSION: Final = "2.3.0"
"""Version of Flink whose REST API this is; clients choose their requests by it."""
REFRESH_MS: Final = 3000


async def config(service: DispatcherService, call: RestCall) -> t.DashboardConfiguration:
    """The features of this cluster, and the rights of the caller."""
    has_token = service.rest.access.is_known(call.request)
    offset = -(time.altzone if time.localtime().tm_isdst else time.timezone)
    return {
        "refresh-interval": REFRESH_MS,
        "timezone-name": time.tzname[time.localtime().tm_isdst],
        "timezone-offset": offset * 1000,
        "flink-version": FLINK_VERSION,
        "flink-revision": "firesteel",
        "features": {
            "web-submit": service.settings.web_submit,
            "web-cancel": service.settings.web_cancel,
            "web-rescale": False,
            "web-history": False,
        },
        "firesteel-version": firesteel.__version__,
        "firesteel-access": {"change": has_token, "cancel": has_token or service.rest.access.cancel_is_free},
    }


async def overview(service: DispatcherService, _: RestCall) -> t.ClusterOverview:
    """Counters of the cluster."""
    cluster = await service.coordinators.overview()
    return {
        "taskmanagers": len(cluster.taskmanagers),
        "slots-total": cluster.slots_total,
        "slots-available": cluster.slots_available,
        **service.core.counts(),
        "flink-version": FLINK_VERSION,
        "flink-commit": "firesteel",
        "firesteel-version": firesteel.__version__,
    }


async def shut_down(service: DispatcherService, _: RestCall) -> t.EmptyResponse:
    """End all jobs and the cluster."""
    service.shut_down_cluster()
    return {}


async def datasets(service: DispatcherService, _: RestCall) -> t.DataSetList:
    """Results of ``cache()``, as far as the Dispatcher sees their files."""
    datasets_here = await service.datasets.all()
    return {"dataSets": [{"id": dataset.id, "isComplete": dataset.is_complete} for dataset in datasets_here]}


async def delete_dataset(service: DispatcherService, call: RestCall) -> t.TriggerResponse | web.Response:
    dataset_id = call.path["dataset_id"]
    if all(dataset.id != dataset_id for dataset in await service.datasets.all()):
        return error_response(
            404,
            f"There is no data set {dataset_id}: results of cache() are files in firesteel.cache.directory, which go "
            "with their program, and the Dispatcher knows those that its host sees.",
        )
    return {"request-id": service.datasets.deletions.begin(dataset_id)}


async def dataset_status(service: DispatcherService, call: RestCall) -> t.Disposal | web.Response:
    """Whether it is gone."""
    return _disposal(service.datasets.deletions, call.path["trigger_id"])


async def dispose_savepoint(service: DispatcherService, call: RestCall) -> t.TriggerResponse:
    return {"request-id": service.disposals.begin(read_disposal(call.body))}


async def disposal_status(service: DispatcherService, call: RestCall) -> t.Disposal | web.Response:
    """Whether it is gone."""
    return _disposal(service.disposals, call.path["trigger_id"])


def _disposal(disposals: Disposals, trigger_id: str) -> t.Disposal | web.Response:
    if not disposals.known(trigger_id):
        return error_response(404, f"There is no asynchronous operation with the trigger id {trigger_id[:80]!r}.")
    failure = disposals.result(trigger_id)
    if failure is None:
        return {"status": {"id": "IN_PROGRESS"}, "operation": None}
    operation: t.DisposalResult = {"failure-cause": failure_cause(failure)} if failure else {}
    return {"status": {"id": "COMPLETED"}, "operation": operation}
