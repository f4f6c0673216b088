"""What a host checks of a job before anything runs."""

from __future__ import annotations

from firesteel.config import Settings
from firesteel.core.errors import ConfigurationError, FencedError, GraphError
from firesteel.core.ids import parse_job_id
from firesteel.graph.job_graph import JobGraph
from firesteel.protocol import messages as m
from firesteel.protocol.message import RpcCode, RpcFault
from firesteel.service.leaders import Candidate
from firesteel_jobmaster.settings import JobMasterSettings


def read_job(cluster: Settings, message: m.StartJob) -> tuple[JobGraph, JobMasterSettings]:
    """The graph of a job, and the settings that hold for it.

    Args:
        cluster: settings of the cluster.
        message: what the Dispatcher sent.

    Raises:
        GraphError: graph or settings are malformed.
    """
    graph = JobGraph.from_plain(message.job_graph)
    try:
        parse_job_id(graph.job_id)
        return graph, JobMasterSettings.read(cluster, graph.config)
    except ConfigurationError as error:
        raise GraphError(str(error)) from error


def other_job(job_id: str) -> GraphError:
    """Two jobs have one id."""
    return GraphError(f"another job with the id {job_id} is here already")


def leads_elsewhere(before: m.StartJob, now: m.StartJob) -> bool:
    """Whether a job is started again by another Dispatcher than the one it reports to, and not by a former one."""
    if now.dispatcher_term < before.dispatcher_term:
        return False
    return (before.dispatcher_address, before.dispatcher_token) != (now.dispatcher_address, now.dispatcher_token)


def check_term(job_id: str, before: m.StartJob, now: m.StartJob) -> None:
    """Whether a Dispatcher may say what becomes of a job; one that stood still may give orders of long ago.

    Raises:
        RpcFault: a later one has the job.
    """
    if now.dispatcher_term < before.dispatcher_term:
        text = f"a later Dispatcher than {now.dispatcher_address} has job {job_id}"
        raise RpcFault(RpcCode.INTERNAL, text)


async def check_leads(candidate: Candidate | None) -> None:
    """Whether a host may start JobMasters; one that stood still may get an order that its successor has carried out.

    Raises:
        RpcFault: another host leads, and the Dispatcher is to ask that one; or who leads can't be read for now.
    """
    try:
        if candidate is not None:
            await candidate.check()
    except FencedError as error:
        raise RpcFault(RpcCode.INTERNAL, f"this JobMaster host leads no more: {error}") from error
    except OSError as error:
        text = f"whether this JobMaster host leads can't be read for now, ask again: {error}"
        raise RpcFault(RpcCode.INTERNAL, text) from error
