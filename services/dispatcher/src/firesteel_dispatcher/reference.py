"""Renders docs/rest-api.md from the table of endpoints: ``python -m firesteel_dispatcher.reference``."""

from __future__ import annotations

from types import UnionType
from typing import Annotated, Any, Final, Literal, NotRequired, Union, get_args, get_origin, get_type_hints

from firesteel.rest import checkpoint_types, event_types, kafka_types, latency_types, load_types, program_types
from firesteel.rest import types as t
from firesteel.rest.endpoints import CallerRights, Endpoint
from firesteel.rest.picking import fields_of
from firesteel_dispatcher.endpoints import ENDPOINTS

_HEAD: Final = """# REST API

The Dispatcher answers on `rest.port` (8081) with the paths, fields and types of Flink 2.3, so that clients, boards and
scripts that people have for Flink work. Each path also stands below `/v1`. `GET /openapi.json` describes all of it for
programs that make clients.

* **Errors** are `{"errors": ["what was wrong, where, what to do"]}`: 400 for what is malformed (it names the field),
  401 without the token where one is needed, 404 for what is not there, 409 where the state of a job forbids it, 503
  while another service does not answer. Unknown query parameters and fields of a body are refused. A body where none
  belongs is not looked at: Flink's Java client sends one with each GET.
* **Who may call**: what changes the cluster, runs programs or brings results needs the token
  ([security](security.md)); where `firesteel.rest.token-file` is set, all paths do.
* **Times** are milliseconds since 1970, -1 = not yet; durations are milliseconds, sizes bytes. Ids are 32 hex digits.

## Where we differ from Flink

@DIFFERENCES@

**Metrics of the JVM** that clients ask for by name mean this of a Python process: `Status.JVM.Memory.Heap.Used` its
resident memory, `Heap.Max` that of the machine or container, `CPU.Load` and `CPU.Time` its processor time,
`Threads.Count` its threads, `GarbageCollector.All.*` Python's collector (times from the first question on),
`ClassLoader.ClassesLoaded` its modules. Non-heap, metaspace, direct and mapped memory, and the segments of Netty, are
0: there are none. A metric of a task, `/jobs/:jobid/vertices/:vertexid/subtasks/metrics` for example, is one of
`numRecordsIn`, `numRecordsOut`, `numBytesIn`, `numBytesOut` (each also `...PerSecond`, over the last minute),
`busyTimeMsPerSecond`, `idleTimeMsPerSecond`, `backPressuredTimeMsPerSecond`, `accumulateBusyTimeMs` and so on,
`currentInputWatermark`, `currentOutputWatermark`, `isBackPressured` (1 or 0), `buffers.inPoolUsage` and
`buffers.outPoolUsage` (also as `Shuffle.Netty.Input.Buffers.inPoolUsage`; how full its fullest channel is),
`checkpointAlignmentTime`, `checkpointStartDelayNanos`, `<operator>.numRecordsIn` and `.numRecordsOut` (each also
`...PerSecond`) of each operator of its chain, `numBytesSpilled` of a job in batch mode, and what user functions
register.
"""
_DIFFERENCES: Final = (
    (
        "jars",
        "programs of Python: `.py`, `.zip` (also named `.pyz` or `.jar`) with a `__main__.py`, or `.whl`, "
        "whose console scripts are its entries. `entry-class` is a module, or `module:function`. Each runs in"
        " a process of its own, as `firesteel run -d` would, with the token and without the cluster's secret;"
        " `run` answers when its first job is submitted",
    ),
    (
        "flame graphs, profiler, thread dumps of the JVM",
        "of Python: threads of the coordinators (those of JobMasters, too), TaskManagers and slots. Stacks are read "
        "by `sys._current_frames`, which costs user code nothing but moments of the interpreter's lock: while somebody "
        "looks it changes hands after 0.1 ms, so that threads are seen where they work. A thread that used the "
        "processor for half of the time between two looks was on it; `rest.flamegraph.*` tells how often is looked. "
        "The first question begins the looking, and is answered with `endTimestamp` -1",
    ),
    (
        "accumulators",
        "the counters of user functions, as `<operator>.<group>.<name>`",
    ),
    (
        "applications",
        "each job is one, with the same id",
    ),
    (
        "data sets",
        "results of `cache()`: files that their programs own and remove. Listed are those that the Dispatcher's host "
        "sees, below `firesteel.cache.directory` of the cluster and of its jobs; a program whose results were deleted "
        "computes them again",
    ),
    (
        "rescaling",
        "not adaptive but in reactive mode: both bounds of `resource-requirements` are the parallelism (reactive: 1 "
        "and the largest one), and a PUT that would change it is answered with 409. Rescales are those of jobs in "
        "reactive mode: at the begin, for more slots, after a failure. Of others there is none. `schedulerType` is "
        "`Adaptive` in reactive mode, and `Default` of others",
    ),
    (
        "requests to operator coordinators",
        "objects of Java: 400. `GET /jobs/:jobid/collect/:operatorUid` brings results",
    ),
    (
        "logs",
        "of services with `--log-file` that file, the rotated ones, those of the other services of a "
        "JobManager beside it, and those of executors; of others the last 1 MiB as `recent.log`. "
        "`slot-<n>.out` and `slot-<n>.log` have the last 256 KiB that the processes of a slot printed and "
        "logged. `Range: bytes=...` and `tail=<lines>` bring a part",
    ),
)
"""Features of Flink, and what they are here."""
_TITLES: Final = {
    "": "Cluster",
    "applications": "Applications",
    "jobs": "Jobs",
    "checkpoints": "Checkpoints and savepoints",
    "rescaling": "Rescaling",
    "vertices": "Vertices and subtasks",
    "taskmanagers": "TaskManagers",
    "jobmanager": "JobManager",
    "jars": "Programs",
}
_WHO: Final = {
    CallerRights.READ: "",
    CallerRights.CHANGE: "token",
    CallerRights.CANCEL: "token (not of an embedded cluster)",
}


def render() -> str:
    groups: dict[str, list[Endpoint]] = {title: [] for title in _TITLES.values()}
    for endpoint in ENDPOINTS:
        groups[_TITLES[_group(endpoint)]].append(endpoint)
    differences = ["| Flink | Here |", "| --- | --- |", *(f"| {flink} | {here} |" for flink, here in _DIFFERENCES)]
    lines = [_HEAD.replace("@DIFFERENCES@", "\n".join(differences)), "## Endpoints", ""]
    for title, endpoints in groups.items():
        lines += [
            f"### {title}",
            "",
            "| Method and path | What | Query, body | Answer | Needs |",
            *["| --- " * 5 + "|"],
        ]
        lines += [_row(endpoint) for endpoint in endpoints]
        lines.append("")
    lines += ["## Types", "", "`?` marks what may be missing.", "", "| Type | Fields |", "| --- | --- |"]
    modules = t, checkpoint_types, event_types, kafka_types, latency_types, load_types, program_types
    for name, kind in sorted({name: kind for module in modules for name, kind in vars(module).items()}.items()):
        if hasattr(kind, "__total__"):
            lines.append(f"| `{name}` | {_fields(kind)} |")
    return "\n".join([*lines, ""])


def _group(endpoint: Endpoint) -> str:
    parts = endpoint.path.strip("/").split("/")
    if "vertices" in parts:
        return "vertices"
    if "rescal" in endpoint.path or "resource-requirements" in endpoint.path:
        return "rescaling"
    if parts[0] == "savepoint-disposal" or {"checkpoints", "savepoints", "stop"} & set(parts):
        return "checkpoints"
    if parts[-1] == "log-url" or "jobmanager" in parts:
        return "jobmanager"
    return parts[0] if parts[0] in _TITLES else ""


def _row(endpoint: Endpoint) -> str:
    takes = [f"`{parameter.name}`{'' if parameter.needed else '?'}" for parameter in endpoint.query]
    if endpoint.body is not None:
        takes.append(f"body {_shown(endpoint.body)}")
    elif endpoint.upload:
        takes.append(endpoint.upload)
    description = f"{endpoint.what}{' (not in Flink)' if endpoint.ours else ''}"
    status = "" if endpoint.status == 200 else f" ({endpoint.status})"
    answer = f"{endpoint.answer if endpoint.is_text else _shown(endpoint.answer)}{status}"
    cells = f"{endpoint.method} `{endpoint.flink_path}`", description, ", ".join(takes), answer, _WHO[endpoint.access]
    return f"| {' | '.join(cells)} |"


def _fields(kind: Any) -> str:
    hints = get_type_hints(kind, include_extras=True)
    return ", ".join(f"`{name}`{'' if required else '?'} {_shown(hints[name])}" for name, required in fields_of(kind))


def _shown(kind: Any) -> str:
    origin, inner = get_origin(kind), get_args(kind)
    if kind is t.Id:
        return "id"
    if kind is Any:
        return "anything"
    if kind is type(None):
        return "null"
    if origin in (NotRequired, Annotated):
        return _shown(inner[0])
    for name in ("Number", "JobState", "TaskState", "ApplicationState"):
        if kind == getattr(t, name):
            return name
    if origin is Literal:
        return "\\|".join(map(str, inner))
    if origin in (Union, UnionType):
        return "\\|".join(dict.fromkeys(map(_shown, inner)))
    if origin is list:
        return f"[{_shown(inner[0])}]"
    if origin is dict:
        return f"{{{_shown(inner[0])}: {_shown(inner[1])}}}"
    names = {str: "text", int: "int", float: "number", bool: "flag"}
    return names.get(kind) or f"`{kind.__name__}`"


if __name__ == "__main__":
    print(render(), end="")
