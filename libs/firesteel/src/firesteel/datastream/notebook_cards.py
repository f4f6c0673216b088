"""What notebooks show of environments and streams."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from firesteel.common.job_status import JobStatus
from firesteel.common.submitted_jobs import SubmittedJob
from firesteel.common.typeinfo import TypeInformation
from firesteel.config import Settings
from firesteel.config import options as opt
from firesteel.config.addresses import rest_address
from firesteel.core import html_cards
from firesteel.core.errors import ConfigurationError, GraphError
from firesteel.core.sensitive import MASK, is_sensitive
from firesteel.graph.plan_picture import plan_picture
from firesteel.graph.stream_graph import Transformation

_MAX_TYPE: Final = 500


def cluster_of(settings: Settings) -> tuple[str, ...]:
    """Which cluster the settings send jobs to: the target, and the address unless the cluster is in this process."""
    target = settings.get(opt.EXECUTION_TARGET)
    if target == "local":
        return (target,)
    try:
        return target, rest_address(settings)
    except ConfigurationError:
        return (target,)


def environment_card(
    settings: Settings,
    configuration: Mapping[str, str],
    parallelism: int,
    pending: Iterable[Transformation],
    jobs: Iterable[tuple[SubmittedJob, JobStatus | None]],
) -> str:
    """An environment: where its jobs run, the options that the program has set, and what the next job will do.

    Args:
        settings: that hold.
        configuration: what the program has set.
        parallelism: of operators that set none.
        pending: operators of the next job.
        jobs: those that have not ended, with their states.
    """
    cluster = cluster_of(settings)
    where = "a cluster inside this process" if cluster[0] == "local" else " at ".join(cluster)
    facts = [("jobs run on", html_cards.text(where)), ("parallelism", str(parallelism))]
    for job, status in jobs:
        state = "no answer" if status is None else status.name
        cell = "" if job.cell is None else f" of In[{job.cell.number}]"
        facts.append(("job", html_cards.text(f"{job.client!r}{cell}: {state}")))
    bodies = []
    options = [[key, MASK if is_sensitive(key) else value] for key, value in sorted(configuration.items())]
    if options:
        rest = html_cards.more(len(options) - html_cards.MAX_ROWS, "options")
        bodies.append(html_cards.table(["option", "value"], options) + rest)
    picture = _picture(pending, parallelism)
    bodies.append(picture or "<div>No operators yet: the next job is empty.</div>")
    return html_cards.card("StreamExecutionEnvironment", facts, *bodies)


def stream_card(
    kind: str, name: str, record_type: TypeInformation | None, ends: Iterable[Transformation], parallelism: int
) -> str:
    """A stream: the type of its records, and the operators that make them.

    Args:
        kind: its class.
        name: of the operator at its end.
        record_type: of its records; None = it is a sink, or several streams.
        ends: operators that it reads.
        parallelism: of operators that set none.
    """
    facts = [("operator", html_cards.text(name))]
    if record_type is not None:
        facts.append(("type", html_cards.text(str(record_type), _MAX_TYPE)))
    return html_cards.card(kind, facts, _picture(ends, parallelism))


def _picture(ends: Iterable[Transformation], parallelism: int) -> str:
    try:
        return plan_picture(ends, parallelism)
    except GraphError as error:  # of several environments: execute() refuses it, too
        return f"<div>{html_cards.text(str(error), _MAX_TYPE)}</div>"


def shown_type(record_type: Any) -> str:
    """A type in a ``repr``."""
    text = str(record_type)
    return text if len(text) <= html_cards.MAX_TEXT else text[: html_cards.MAX_TEXT - 1] + "…"
