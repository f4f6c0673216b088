"""The JobGraph: plain data that coordinators validate and schedule without unpickling anything."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from firesteel.core.errors import GraphError
from firesteel.graph.specs import PartitionerKind

FORMAT_VERSION = 1
USER_ENUMERATOR: Final = "user"
"""Enumerator name of sources whose enumerator a user wrote; its code is in the chain of a vertex of its own."""


@dataclass(frozen=True)
class OperatorInfo:
    """Description of an operator for the plan and REST."""

    id: str
    name: str
    uid: str | None
    kind: str
    description: str = ""


@dataclass(frozen=True)
class SourceInfo:
    """The enumerator of a source operator.

    Attributes:
        operator_id: id of the source operator.
        enumerator: name of a built-in enumerator, which the JobMaster runs, or ``USER_ENUMERATOR``.
        config: configuration of the built-in enumerator.
        bounded: the source ends by itself.
        replayable: the source can read its splits again after a restart.
        coordinator: id of the vertex that runs a user's enumerator.
    """

    operator_id: str
    enumerator: str
    config: Mapping[str, Any]
    bounded: bool
    replayable: bool = True
    coordinator: str | None = None


@dataclass(frozen=True)
class JobVertex:
    """One chain; ``parallelism`` subtasks of it run.

    Attributes:
        id: 32 hex digits; equal to the id of its first operator.
        name: names of its operators joined by `` -> ``.
        chain: SHA-256 of the blob that holds the pickled ``ChainSpec``.
        operators: head first.
        source: set when the head is a source.
        needs_commit: it holds a sink whose results become visible by a commit at the end of the job.
        collects: id of the collect operator in it, if there is one.
        enumerates: id of the source's vertex whose splits this vertex hands out: it runs a user's enumerator, has no
            edges, and ends when the source's vertex has ended.
        fixed_parallelism: one of its operators can't have another parallelism, so reactive mode does not change it.
        adapts: the program has not set its parallelism, so batch mode may give it fewer subtasks than ``parallelism``.
    """

    id: str
    name: str
    parallelism: int
    max_parallelism: int
    slot_sharing_group: str
    chain: str
    operators: tuple[OperatorInfo, ...]
    source: SourceInfo | None = None
    needs_commit: bool = False
    collects: str | None = None
    enumerates: str | None = None
    fixed_parallelism: bool = False
    adapts: bool = False


@dataclass(frozen=True)
class JobEdge:
    """A data set between two vertices.

    Attributes:
        index: position in ``JobGraph.edges``; names the edge on the wire.
        source, target: vertex ids.
        source_operator: operator whose results it carries.
        input_index: 0 or 1: which input of the target's head operator it feeds.
        partitioner: a ``PartitionerKind`` name.
        buffer_timeout_ms: longest time a record waits for its batch to fill; 0 = none, -1 = only full batches.
        columns: names of the columns that it carries if some are left out; None = all.
    """

    index: int
    source: str
    target: str
    source_operator: str
    input_index: int
    partitioner: str
    buffer_timeout_ms: int = 100
    columns: tuple[str, ...] | None = None


@dataclass(frozen=True)
class JobGraph:
    """A job as it is submitted.

    Attributes:
        job_id, name: id and name of the job.
        vertices: in topological order.
        edges: position = index.
        config: effective settings of the program, text to text.
        blobs: SHA-256 -> size in bytes of every blob that the job needs.
        main_blob: SHA-256 of the pickled classes and functions of the program's ``__main__``; None = it has none.
        python_path: entries that slots put in front of ``sys.path`` (embedded mode, where they are the client's own).
        python_files: SHA-256 of zip archives that slots unpack and put in front of ``sys.path``, in this order.
        python_environment: the Python environment that slots have to make, plain
            (``firesteel.protocol.python_environment``); empty = none.
        config_layers: for each key of ``config`` the layer that it comes from: ``program``, ``command line``,
            ``environment``, or the path of a config.yaml.
        versions: versions of firesteel, python, pyarrow and cloudpickle at the client.
        format_version: version of this layout.
    """

    job_id: str
    name: str
    vertices: tuple[JobVertex, ...]
    edges: tuple[JobEdge, ...]
    config: Mapping[str, str] = field(default_factory=dict)
    blobs: Mapping[str, int] = field(default_factory=dict)
    main_blob: str | None = None
    python_path: tuple[str, ...] = ()
    python_files: tuple[str, ...] = ()
    python_environment: Mapping[str, Any] = field(default_factory=dict)
    config_layers: Mapping[str, str] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    format_version: int = FORMAT_VERSION

    def vertex(self, vertex_id: str) -> JobVertex:
        """Return the vertex of this id.

        Raises:
            KeyError: there is no such vertex.
        """
        for vertex in self.vertices:
            if vertex.id == vertex_id:
                return vertex
        raise KeyError(vertex_id)

    def to_plain(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_plain(cls, plain: Any) -> JobGraph:
        """Read and validate a job graph that a client has sent.

        Raises:
            GraphError: names what is missing, of a wrong type or inconsistent.
        """
        if not isinstance(plain, Mapping):
            raise GraphError(f"a job graph is a JSON object, not {type(plain).__name__}")
        version = plain.get("format_version")
        if version != FORMAT_VERSION:
            raise GraphError(
                f"job graph format {version!r} is not known here (this cluster reads format {FORMAT_VERSION}): "
                "submit with the same version of firesteel as the cluster's"
            )
        try:
            vertices = tuple(
                JobVertex(
                    **{
                        **v,
                        "operators": tuple(OperatorInfo(**o) for o in v["operators"]),
                        "source": SourceInfo(**v["source"]) if v.get("source") else None,
                    }
                )
                for v in plain["vertices"]
            )
            edges = tuple(
                JobEdge(**{**e, "columns": tuple(e["columns"]) if e.get("columns") else None}) for e in plain["edges"]
            )
            names = ("job_id", "name", "config", "config_layers", "blobs", "main_blob", "versions")
            fields = {k: plain[k] for k in names}
            fields |= {k: tuple(plain[k]) for k in ("python_path", "python_files")}
            fields["python_environment"] = dict(plain.get("python_environment") or {})
            graph = cls(vertices=vertices, edges=edges, **fields)
        except (KeyError, TypeError, AttributeError) as error:
            raise GraphError(f"malformed job graph: {type(error).__name__}: {error}") from error
        graph.validate()
        return graph

    def validate(self) -> None:
        """Check everything that can be checked without the blobs.

        Raises:
            GraphError: says which vertex or edge is wrong, and why.
        """
        if not self.vertices:
            raise GraphError("the graph is empty: add a source and a sink before execute()")
        ids: dict[str, int] = {}
        for position, vertex in enumerate(self.vertices):
            if vertex.id in ids:
                raise GraphError(f"two vertices have the id {vertex.id}")
            ids[vertex.id] = position
            if not 1 <= vertex.parallelism <= vertex.max_parallelism:
                raise GraphError(
                    f"vertex {vertex.name!r}: parallelism {vertex.parallelism} is not between 1 and its max "
                    f"parallelism {vertex.max_parallelism}"
                )
            if vertex.chain not in self.blobs:
                raise GraphError(f"vertex {vertex.name!r}: its chain {vertex.chain[:12]} is not among the blobs")
            if not vertex.operators:
                raise GraphError(f"vertex {vertex.name!r} has no operators")
        self._validate_enumerators()
        kinds = {kind.value for kind in PartitionerKind}
        for position, edge in enumerate(self.edges):
            if edge.index != position:
                raise GraphError(f"edge {position} carries index {edge.index}")
            for end in (edge.source, edge.target):
                if end not in ids:
                    raise GraphError(f"edge {position} names vertex {end}, which the graph does not have")
            if ids[edge.source] >= ids[edge.target]:
                raise GraphError(f"edge {position} leads backwards: vertices must stand in topological order")
            if edge.partitioner not in kinds:
                raise GraphError(f"edge {position}: unknown partitioner {edge.partitioner!r}")
            if edge.input_index not in (0, 1):
                raise GraphError(f"edge {position}: input index {edge.input_index} is neither 0 nor 1")
            up, down = self.vertex(edge.source), self.vertex(edge.target)
            if edge.partitioner == PartitionerKind.FORWARD.value and up.parallelism != down.parallelism:
                raise GraphError(
                    f"edge {position} from {up.name!r} to {down.name!r} is FORWARD, but their parallelisms differ: "
                    f"{up.parallelism} and {down.parallelism}; use rebalance() or rescale()"
                )
        if self.main_blob is not None and self.main_blob not in self.blobs:
            raise GraphError(f"the main blob {self.main_blob[:12]} is not among the blobs")
        for name in self.python_files:
            if not isinstance(name, str) or name not in self.blobs:
                raise GraphError(f"the Python files {name!r:.20} are not among the blobs")
        if not _is_text_to_text(self.config) or not _is_text_to_text(self.config_layers):
            raise GraphError("config and config_layers map text to text")

    def _validate_enumerators(self) -> None:
        """Check that sources and the vertices that hand out their splits name each other."""
        coordinators = {v.id: v.source.coordinator for v in self.vertices if v.source is not None}
        enumerators = {v.enumerates: v.id for v in self.vertices if v.enumerates is not None}
        for vertex in self.vertices:
            source = vertex.source
            if source is not None and (source.enumerator == USER_ENUMERATOR) != (source.coordinator is not None):
                raise GraphError(
                    f"vertex {vertex.name!r}: a source has a coordinator if, and only if, a user wrote its enumerator"
                )
            if source is not None and source.coordinator != enumerators.get(vertex.id):
                raise GraphError(f"vertex {vertex.name!r}: {source.coordinator} does not hand out its splits")
            if vertex.enumerates is None:
                continue
            if coordinators.get(vertex.enumerates) != vertex.id:
                raise GraphError(
                    f"vertex {vertex.name!r} enumerates {vertex.enumerates}, whose source names another coordinator"
                )
            if vertex.parallelism != 1 or any(vertex.id in (edge.source, edge.target) for edge in self.edges):
                raise GraphError(f"vertex {vertex.name!r} runs an enumerator, so it must have one subtask and no edges")

    def slots_needed(self) -> int:
        """Return the number of slots: the sum over slot-sharing groups of the largest parallelism in the group."""
        groups: dict[str, int] = {}
        for vertex in self.vertices:
            groups[vertex.slot_sharing_group] = max(groups.get(vertex.slot_sharing_group, 0), vertex.parallelism)
        return sum(groups.values())


def _is_text_to_text(value: Any) -> bool:
    return isinstance(value, Mapping) and all(isinstance(text, str) for pair in value.items() for text in pair)


def add_blob(blobs: dict[str, bytes], content: bytes) -> str:
    """Add a blob to those of a job and return its name, the SHA-256 of its content."""
    name = hashlib.sha256(content).hexdigest()
    blobs[name] = content
    return name
