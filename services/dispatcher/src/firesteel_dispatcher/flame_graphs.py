"""Flame graphs of vertices, and profiles of processes: made of samples that somebody asked for, kept for a while."""

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
    children = sorted(node["children"].values(), key=lambda one: (-one["value"], one["name"]))
    return {"name": node["name"], "value": node["value"], "children": [_listed(child) for child in children]}


def flame_graph(samples: Iterable[Samples], kind: str, at: int) -> t.FlameGraph:
    """The answer of /jobs/:jobid/vertices/:vertexid/flamegraph.

    Args:
        samples: of the subtasks.
        kind: one of ``KINDS``.
        at: epoch ms when they were complete.
    """
    counts: list[tuple[tuple[str, ...], int]] = []
    for one in samples:
        counts += one.on_cpu.items() if kind != "off_cpu" else ()
        counts += one.off_cpu.items() if kind != "on_cpu" else ()
    return {"endTimestamp": at, "data": tree_of(counts)}


@dataclass
class _Graph:
    asked: float
    """When somebody wanted it last."""
    taken: float = float("-inf")
    at: int = NOT_YET
    subtasks: Mapping[str, Samples] = field(default_factory=dict)
    sampling: bool = False


class FlameGraphs:
    """Samples of vertices: taken when somebody asks, and again when they are old and somebody asks.

    Where nothing was seen, as in a task that restarts, they are taken again with the next question.

    Args:
        settings: how often, how long.
        clock: for their age.
        spawn: runs samplings in the background.
    """

    def __init__(self, settings: FlameGraphSettings, clock: Clock, spawn: Callable[[Any, str], Any]) -> None:
        self.settings, self._clock, self._spawn = settings, clock, spawn
        self._graphs: OrderedDict[tuple[str, str], _Graph] = OrderedDict()

    def of(
        self, job_id: str, vertex_id: str, kind: str, subtask: int | None, gateways: Callable[[], Any]
    ) -> t.FlameGraph:
        """What is known now; if that is old or nothing, samples are taken for those who ask again.

        Args:
            job_id, vertex_id: which vertex.
            kind: one of ``KINDS``.
            subtask: one of them; None = all.
            gateways: an awaitable with the TaskManagers on which it runs.
        """
        now = self._clock.monotonic()
        for key in [key for key, one in self._graphs.items() if now - one.asked > self.settings.cleanup_interval]:
            if not self._graphs[key].sampling:
                del self._graphs[key]
        graph = self._graphs.setdefault((job_id, vertex_id), _Graph(now))
        graph.asked = now
        while len(self._graphs) > _MOST_KEPT:
            self._graphs.popitem(last=False)
        if not graph.sampling and now - graph.taken >= self.settings.refresh_interval:
            graph.sampling = True
            if self._spawn(self._sample(job_id, vertex_id, graph, gateways), f"samples of vertex {vertex_id}") is None:
                graph.sampling = False
        if graph.at == NOT_YET:
            return {"endTimestamp": NOT_YET, "data": None}
        chosen = graph.subtasks.values() if subtask is None else [graph.subtasks.get(str(subtask), Samples())]
        return flame_graph(chosen, kind, graph.at)

    async def _sample(self, job_id: str, vertex_id: str, graph: _Graph, gateways: Callable[[], Any]) -> None:
        own = self.settings
        message = m.SampleStacks(job_id, vertex_id, own.num_samples, max(1, round(own.delay * 1000)), own.depth)
        try:
            found: dict[str, Samples] = {}
            asked = [gateway.sample_stacks(message) for gateway in await gateways()]
            for answer in await asyncio.gather(*asked, return_exceptions=True):
                if isinstance(answer, BaseException):
                    logger.warning("vertex %s of job %s could not be sampled: %s", vertex_id, job_id, answer)
                    continue
                found |= {subtask: Samples.from_plain(plain) for subtask, plain in answer.subtasks.items()}
            if any(one.on_cpu or one.off_cpu for one in found.values()):
                graph.subtasks, graph.at, graph.taken = found, self._clock.epoch_ms(), self._clock.monotonic()
        except Exception as error:  # whatever the peers say: this is only a look
            logger.warning("vertex %s of job %s could not be sampled: %s", vertex_id, job_id, error)
        finally:
            graph.sampling = False


# -- profiles of processes


@dataclass
class ProfilerRun:
    """A run of the profiler.

    Attributes:
        mode: that was asked for.
        duration: seconds.
        begun, ended: epoch ms.
        status: RUNNING, FINISHED or FAILED.
        message: why it failed.
        page: of HTML.
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
        """One item of ``profilingList``."""
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
        """A finished one by the name of its file."""
        return next((one for one in self.of(process) if one.page and one.name == name), None)

    def begin(self, process: str, mode: str, seconds: int, take: Callable[[int, int], Any]) -> ProfilerRun:
        """Begin one.

        Args:
            process: name of the process.
            mode: one of ``MODES``.
            seconds: how long.
            take: awaitable with samples by thread, of so many looks at an interval in ms.
        """
        kept = self._of.setdefault(process, [])
        profile = ProfilerRun(mode, seconds, self._clock.epoch_ms())
        if kept and kept[-1].name == profile.name:
            profile.begun += 1
        kept.append(profile)
        del kept[:-MOST_PROFILES]
        self._spawn(self._run(profile, process, take), f"profile of {process}")
        return profile

    def is_busy(self, process: str) -> bool:
        """Whether one is under way."""
        return any(one.status == "RUNNING" for one in self.of(process))

    async def _run(self, profile: ProfilerRun, process: str, take: Callable[[int, int], Any]) -> None:
        try:
            found = await take(int(profile.duration / _PROFILE_INTERVAL), int(_PROFILE_INTERVAL * 1000))
            on_cpu = profile.mode in ("CPU", "ITIMER")
            stacks = [
                ((thread, *stack), count)
                for thread, one in found.items()
                for counts in ([one.on_cpu] if on_cpu else [one.on_cpu, one.off_cpu])
                for stack, count in counts.items()
            ]
            profile.page = page_of(tree_of(stacks), f"{process}, {profile.mode}, {profile.duration} s")
            profile.status = "FINISHED"
        except Exception as error:  # the profile says so
            profile.status, profile.message = "FAILED", f"{type(error).__name__}: {error}"
        finally:
            profile.ended = self._clock.epoch_ms()


async def sample_there(gateway: ProcessGateway, count: int, interval_ms: int) -> dict[str, Samples]:
    """The threads of a TaskManager, by their names."""
    found = await gateway.sample_threads(m.SampleThreads(count, interval_ms))
    return {name: Samples.from_plain(plain) for name, plain in found.subtasks.items()}


_STYLE: Final = (
    "body{font:12px sans-serif}details{margin-left:1em}summary{white-space:nowrap}"
    "i{display:inline-block;height:.7em;background:#e6784b;margin-right:.5em}"
)


def page_of(tree: Tree, title: str) -> str:
    """A flame graph as a page of its own, without scripts: parts of it can be opened and closed."""
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
