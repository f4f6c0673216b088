"""REST answers about metrics of tasks, from job archives: pure functions, with the shapes that Flink uses.

Without ``get`` an answer lists ids only. With it, plain paths give the ids that are known, values as texts; the path
over all subtasks gives numbers, and nothing at all if one of the ids is missing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from firesteel.core.errors import ConfigurationError
from firesteel.graph.job_archive import TASK_METRICS
from firesteel.rest import types as t
from firesteel.rest.archive_cache import Archive
from firesteel.rest.views import find_vertex, job_values, jsonable

Query = Mapping[str, str]
INPUT_WATERMARK: Final = "currentInputWatermark"
_ALIASES: Final = {
    "accumulateBusyTimeMs": "busyTimeMs",
    "accumulateIdleTimeMs": "idleTimeMs",
    "accumulateBackPressuredTimeMs": "backPressuredTimeMs",
    "Shuffle.Netty.Input.Buffers.inPoolUsage": "buffers.inPoolUsage",
    "Shuffle.Netty.Input.Buffers.inputQueueSize": "buffers.inputQueueSize",
    "Shuffle.Netty.Output.Buffers.outPoolUsage": "buffers.outPoolUsage",
    "Shuffle.Netty.Output.Buffers.outputQueueSize": "buffers.outputQueueSize",
}
"""Flink's names -> ours."""
SPLIT, SPLIT_WATERMARK = "split.", ".watermark.currentWatermark"


def job_metrics(archive: Archive, query: Query) -> list[t.MetricValue]:
    """/jobs/:jobid/metrics."""
    return plain(job_values(archive), query)


def coordinator_metrics(archive: Archive, query: Query) -> list[t.MetricValue]:
    """/jobs/:jobid/vertices/:vertexid/jm-operator-metrics: enumerators of sources measure nothing."""
    find_vertex(archive, query["vertex_id"])
    return plain({}, query)


def vertex_metrics(archive: Archive, query: Query) -> list[t.MetricValue]:
    """/jobs/:jobid/vertices/:vertexid/metrics: ids begin with the subtask's index."""
    values = {
        f"{subtask['subtask']}.{name}": value
        for subtask in find_vertex(archive, query["vertex_id"])["subtasks"]
        for name, value in _metrics(subtask).items()
    }
    return plain(values, query)


def vertex_watermarks(archive: Archive, query: Query) -> list[t.MetricValue]:
    """/jobs/:jobid/vertices/:vertexid/watermarks: of each subtask's input; of a source's splits, which Flink omits."""
    return [
        {"id": f"{subtask['subtask']}.{name}", "value": _text(value)}
        for subtask in find_vertex(archive, query["vertex_id"])["subtasks"]
        for name, value in _metrics(subtask).items()
        if name == INPUT_WATERMARK or (name.startswith(SPLIT) and name.endswith(SPLIT_WATERMARK))
    ]


def one_subtask_metrics(archive: Archive, query: Query) -> list[t.MetricValue]:
    """/jobs/:jobid/vertices/:vertexid/subtasks/:subtaskindex/metrics."""
    subtasks = find_vertex(archive, query["vertex_id"])["subtasks"]
    (index,) = _indices(query["subtask"], len(subtasks), "the subtask index")[:1]
    return plain(_metrics(subtasks[index]), query)


def subtask_metrics(archive: Archive, query: Query) -> list[t.AggregatedMetric]:
    """/jobs/:jobid/vertices/:vertexid/subtasks/metrics: over the subtasks that ``subtasks`` names."""
    subtasks = find_vertex(archive, query["vertex_id"])["subtasks"]
    if "subtasks" in query:
        subtasks = [subtasks[i] for i in _indices(query["subtasks"], len(subtasks), "subtasks")]
    return aggregates([_metrics(subtask) for subtask in subtasks], query)


def aggregates(entities: Iterable[Mapping[str, Any]], query: Query) -> list[t.AggregatedMetric]:
    """The smallest value of each metric, the largest and so on, for paths over several jobs, TaskManagers or subtasks.

    Args:
        entities: metrics of each of them.
        query: with ``get`` and ``agg``.

    Raises:
        ConfigurationError: ``agg`` names an unknown function.
    """
    numbers: dict[str, list[float]] = {}
    for metrics in entities:
        for name, value in metrics.items():
            number = _number(value)
            if number is not None:
                numbers.setdefault(name, []).append(number)
    functions = _aggregates(query.get("agg"))
    if "get" not in query:
        return [{"id": name} for name in numbers]
    requested = names(query["get"])
    if any(name not in numbers for name in requested):
        return []
    rows: list[t.AggregatedMetric] = []
    for name in requested:
        row: t.AggregatedMetric = {"id": name}
        for key, function in functions.items():
            row[key] = jsonable(function(numbers[name]))
        rows.append(row)
    return rows


def _metrics(subtask: Mapping[str, Any]) -> Mapping[str, Any]:
    """Metrics of a subtask by our names and by Flink's."""
    metrics: Mapping[str, Any] = subtask.get(TASK_METRICS, {})
    return {**metrics, **{alias: metrics[name] for alias, name in _ALIASES.items() if name in metrics}}


def plain(values: Mapping[str, Any], query: Query) -> list[t.MetricValue]:
    """The ids of metrics, or with ``get`` the values of those that are known, as texts."""
    if "get" not in query:
        return [{"id": name} for name in values]
    return [{"id": name, "value": _text(values[name])} for name in names(query["get"]) if name in values]


def _text(value: Any) -> str:
    return str(jsonable(value))


def _number(value: Any) -> float | None:
    if isinstance(value, int | float):
        return value
    try:
        return float(value)
    except ValueError:
        return None


def names(text: str) -> list[str]:
    """Names in a list with commas, each once."""
    return list(dict.fromkeys(name for name in text.split(",") if name))


def _skew(values: Sequence[float]) -> float:
    """Coefficient of variation in percent: 0 = all alike."""
    mean = sum(values) / len(values)
    if not mean or not math.isfinite(mean):
        return 0.0
    deviation = math.sqrt(sum((value - mean) ** 2 for value in values) / len(values))
    return abs(deviation / mean) * 100


Aggregates = Mapping[t.AggregateName, Callable[[Sequence[float]], float]]
_AGGREGATES: Final[Aggregates] = {
    "min": min,
    "max": max,
    "avg": lambda values: sum(values) / len(values),
    "sum": sum,
    "skew": _skew,
}


def _aggregates(text: str | None) -> Aggregates:
    if text is None:
        return _AGGREGATES
    requested = [name.lower() for name in names(text)]
    unknown = [name for name in requested if name not in _AGGREGATES]
    if unknown:
        raise ConfigurationError(f"agg={unknown[0]!r:.40} is none of {', '.join(_AGGREGATES)}")
    return {name: function for name, function in _AGGREGATES.items() if name in requested}


def _indices(text: str, count: int, what: str) -> list[int]:
    """``0,2-5`` as indices below ``count``; those beyond are left out, as in Flink."""
    indices: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()) or len(part) > 40:
            raise ConfigurationError(f"{what} = {text!r:.80} is no list of indices and ranges such as 0,2-5")
        indices.update(range(int(first), min(int(last) if dash else int(first), count) + 1))
    below = sorted(index for index in indices if index < count)
    if not below:
        raise ConfigurationError(f"{what} = {text!r:.80}: the vertex has {count} subtasks")
    return below
