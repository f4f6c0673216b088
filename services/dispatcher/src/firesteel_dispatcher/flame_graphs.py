"""Flame graphs of vertices, and profiles of processes: made from samples of stacks on request, and kept for a while."""

from __future__ import annotations

import asyncio
import html
import logging
import re
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from firesteel.core.clock import Clock
from firesteel.core.stacks import Samples
from firesteel.protocol import messages as m
from firesteel.protocol.gateways import ProcessGateway
from firesteel.rest import types as t
from firesteel_dispatcher.settings import FlameGraphSettings

logger = logging.getLogger(__name__)
KINDS: Final = ("full", "on_cpu", "off_cpu")
MODES: Final = ("CPU", "ALLOC", "LOCK", "WALL", "ITIMER")
"""Flink's; here CPU and ITIMER show what used the processor, the others all that threads do."""
MOST_PROFILES: Final = 10
LONGEST_PROFILE: Final = 60
_PROFILE_INTERVAL: Final = 0.01
_MOST_KEPT: Final = 200
NOT_YET: Final = -1
Tree = dict[str, Any]


def tree_of(stacks: Iterable[tuple[tuple[str, ...], int]]) -> Tree:
    """A flame graph: ``name``, ``value`` and ``children``; the widest child first."""
    root: Tree = {"name": "root", "value": 0, "children": {}}
    for stack, count in stacks:
        root["value"] += count
        node = root
        for name in stack:
            node = node["children"].setdefault(name, {"name": name, "value": 0, "children": {}})
            node["value"] += count
    return _listed(root)


def _listed(node: Tree) -> Tree:
    children = sorted(node["children"].values(), key=lambda child: (-child["value"], child["name"]))
    return {"name": node["name"], "value": node["value"], "children": [_listed(child) for child in children]}


def flame_graph(samples: Iterable[Samples], kind: str, at: int) -> t.FlameGraph:
    """The answer of /jobs/:jobid/vertices/:vertexid/flamegraph.

    Args:
        samples: of the subtasks.
        kind: one of ``KINDS``.
        at: epoch ms when they were complete.
    """
    counts: list[tuple[tuple[str, ...], int]] = []
    for sample in samples:
        counts += sample.on_cpu.items() if kind != "off_cpu" else ()
        counts += sample.off_cpu.items() if kind != "on_cpu" else ()
    return {"endTimestamp": at, "data": tree_of(counts)}


@dataclass
class _Graph:
    """Samples of a vertex.

    Attributes:
        requested_at: monotonic time of the last request.
        sampled_at: monotonic time of the samples.
        complete_ms: epoch ms of the samples.
        subtasks: samples by subtask.
        sampling: samples are being taken.
    """

    requested_at: float
    sampled_at: float = float("-inf")
    complete_ms: int = NOT_YET
    subtasks: Mapping[str, Samples] = field(default_factory=dict)
    sampling: bool = False


class FlameGraphs:
    """Samples of vertices, taken on request. A request for samples that are old makes new ones.

    Samples without any stack, as of a task that restarts, are not kept: the next request samples again.

    Args:
        settings: how often, how long.
        clock: for the age of samples.
        spawn: samples in the background.
    """

    def __init__(self, settings: FlameGraphSettings, clock: Clock, spawn: Callable[[Any, str], Any]) -> None:
        self.settings, self._clock, self._spawn = settings, clock, spawn
        self._graphs: OrderedDict[tuple[str, str], _Graph] = OrderedDict()

    def of(
        self, job_id: str, vertex_id: str, kind: str, subtask: int | None, gateways: Callable[[], Any]
    ) -> t.FlameGraph:
        """The flame graph from the present samples; if they are old or missing, new ones are taken for later requests.

        Args:
            job_id, vertex_id: of the vertex.
            kind: one of ``KINDS``.
            subtask: index of a subtask; None = all.
            gateways: an awaitable with the TaskManagers on which the vertex runs.
        """
        now = self._clock.monotonic()
        for key, idle in list(self._graphs.items()):
            if now - idle.requested_at > self.settings.cleanup_interval and not idle.sampling:
                del self._graphs[key]
        graph = self._graphs.setdefault((job_id, vertex_id), _Graph(now))
        graph.requested_at = now
        while len(self._graphs) > _MOST_KEPT:
            self._graphs.popitem(last=False)
        if not graph.sampling and now - graph.sampled_at >= self.settings.refresh_interval:
            graph.sampling = True
            if self._spawn(self._sample(job_id, vertex_id, graph, gateways), f"samples of vertex {vertex_id}") is None:
                graph.sampling = False
        if graph.complete_ms == NOT_YET:
            return {"endTimestamp": NOT_YET, "data": None}
        chosen = graph.subtasks.values() if subtask is None else [graph.subtasks.get(str(subtask), Samples())]
        return flame_graph(chosen, kind, graph.complete_ms)

    async def _sample(self, job_id: str, vertex_id: str, graph: _Graph, gateways: Callable[[], Any]) -> None:
        settings, interval_ms = self.settings, max(1, round(self.settings.delay * 1000))
        message = m.SampleStacks(job_id, vertex_id, settings.num_samples, interval_ms, settings.depth)
        try:
            subtasks: dict[str, Samples] = {}
            calls = [gateway.sample_stacks(message) for gateway in await gateways()]
            for answer in await asyncio.gather(*calls, return_exceptions=True):
                if isinstance(answer, BaseException):
                    logger.warning("vertex %s of job %s could not be sampled: %s", vertex_id, job_id, answer)
                    continue
                subtasks |= {subtask: Samples.from_plain(plain) for subtask, plain in answer.subtasks.items()}
            if any(sample.on_cpu or sample.off_cpu for sample in subtasks.values()):
                graph.subtasks = subtasks
                graph.complete_ms, graph.sampled_at = self._clock.epoch_ms(), self._clock.monotonic()
        except Exception as error:  # whatever the peers answer, a look must not end this service
            logger.warning("vertex %s of job %s could not be sampled: %s", vertex_id, job_id, error)
        finally:
            graph.sampling = False


# -- profiles of processes


@dataclass
class ProfilerRun:
    """A run of the profiler.

    Attributes:
        mode: one of ``MODES``.
        duration: seconds.
        begun, ended: epoch ms.
        status: RUNNING, FINISHED or FAILED.
        message: cause of a failure.
        page: the profile as an HTML page.
    """

    mode: str
    duration: int
    begun: int
    ended: int | None = None
    status: t.ProfileStatus = "RUNNING"
    message: str | None = None
    page: str = ""

    @property
    def name(self) -> str:
        return f"{self.mode}_{self.begun}.html"

    def to_rest(self) -> t.Profile:
        """The item of ``profilingList``."""
        return {
            "status": self.status,
            "mode": self.mode,
            "profilingMode": self.mode,
            "triggerTime": self.begun,
            "finishedTime": self.ended,
            "duration": self.duration,
            "message": self.message,
            "outputFile": self.name if self.page else None,
        }


class Profiles:
    """The last profiles of each process, in memory.

    Args:
        clock: for their times.
        spawn: runs them in the background.
    """

    def __init__(self, clock: Clock, spawn: Callable[[Any, str], Any]) -> None:
        self._clock, self._spawn = clock, spawn
        self._of: dict[str, list[ProfilerRun]] = {}

    def of(self, process: str) -> list[ProfilerRun]:
        return list(reversed(self._of.get(process, [])))

    def find(self, process: str, name: str) -> ProfilerRun | None:
        """A finished profile by the name of its file."""
        return next((profile for profile in self.of(process) if profile.page and profile.name == name), None)

    def begin(self, process: str, mode: str, seconds: int, take: Callable[[int, int], Any]) -> ProfilerRun:
        """Begin to profile a process.

        Args:
            process: name of the process.
            mode: one of ``MODES``.
            seconds: how long.
            take: takes a number of looks at an interval in ms; an awaitable with samples by thread.
        """
        profiles = self._of.setdefault(process, [])
        profile = ProfilerRun(mode, seconds, self._clock.epoch_ms())
        if profiles and profiles[-1].name == profile.name:
            profile.begun += 1
        profiles.append(profile)
        del profiles[:-MOST_PROFILES]
        self._spawn(self._run(profile, process, take), f"profile of {process}")
        return profile

    def is_busy(self, process: str) -> bool:
        """Whether a profile of a process is being taken."""
        return any(profile.status == "RUNNING" for profile in self.of(process))

    async def _run(self, profile: ProfilerRun, process: str, take: Callable[[int, int], Any]) -> None:
        try:
            samples_by_thread = await take(int(profile.duration / _PROFILE_INTERVAL), int(_PROFILE_INTERVAL * 1000))
            on_cpu = profile.mode in ("CPU", "ITIMER")
            stacks = [
                ((thread, *stack), count)
                for thread, samples in samples_by_thread.items()
                for counts in ([samples.on_cpu] if on_cpu else [samples.on_cpu, samples.off_cpu])
                for stack, count in counts.items()
            ]
            profile.page = page_of(tree_of(stacks), f"{process}, {profile.mode}, {profile.duration} s")
            profile.status = "FINISHED"
        except Exception as error:  # whatever it is, the profile shows it
            profile.status, profile.message = "FAILED", f"{type(error).__name__}: {error}"
        finally:
            profile.ended = self._clock.epoch_ms()


async def sample_there(gateway: ProcessGateway, count: int, interval_ms: int) -> dict[str, Samples]:
    """The threads of a TaskManager, by their names."""
    answer = await gateway.sample_threads(m.SampleThreads(count, interval_ms))
    return {name: Samples.from_plain(plain) for name, plain in answer.subtasks.items()}


_STYLE: Final = (
    "body{font:12px sans-serif}details{margin-left:1em}summary{white-space:nowrap}"
    "i{display:inline-block;height:.7em;background:#e6784b;margin-right:.5em}"
)


def page_of(tree: Tree, title: str) -> str:
    """A flame graph as an HTML page without scripts, whose parts can be opened and closed."""
    total = max(1, tree["value"])
    lines = [
        f"<!doctype html><meta charset=utf-8><title>{html.escape(title)}</title><style>{_STYLE}</style>",
        f"<h1>{html.escape(title)}</h1><p>{tree['value']} samples</p>",
    ]

    def add(node: Tree, depth: int) -> None:
        share = node["value"] / total
        mark = " open" if share > 0.05 and depth < 60 else ""
        name = html.escape(re.sub(r"\s+", " ", node["name"]))
        bar = f'<i style="width:{share * 300:.0f}px"></i>'
        lines.append(f"<details{mark}><summary>{bar}{share:.1%} {name}</summary>")
        for child in node["children"]:
            add(child, depth + 1)
        lines.append("</details>")

    add(tree, 0)
    return "\n".join(lines)
