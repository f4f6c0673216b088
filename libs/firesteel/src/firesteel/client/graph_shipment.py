"""Makes the JobGraph and the blobs that are submitted for a StreamGraph."""

from __future__ import annotations

import logging
import os
import sys
from dataclasses import replace
from typing import Final

from firesteel.client.code_shipment import CodeShipment
from firesteel.client.python_dependencies import python_environment
from firesteel.client.python_files import archives, named_files, program_roots
from firesteel.config import options
from firesteel.config.settings import Settings
from firesteel.connectors.collection import CollectionSource
from firesteel.connectors.file_splits import FileEnumerator
from firesteel.core.errors import ProgramError, UnsupportedFeatureError
from firesteel.core.ids import new_job_id
from firesteel.graph.bounded import BATCH, missing_in_batch, unbounded_source
from firesteel.graph.chaining import build_job_graph
from firesteel.graph.job_graph import JobGraph, add_blob
from firesteel.graph.specs import ChainSpec
from firesteel.graph.stream_graph import StreamGraph

logger = logging.getLogger(__name__)

_OF_THIS_HOST: Final = frozenset(
    {
        options.SECRET_FILE.key,
        options.REST_TOKEN_FILE.key,
        options.PYTHON_FILES.key,
        options.PYTHON_REQUIREMENTS.key,
        options.PYTHON_ARCHIVES.key,
    }
)
"""Options with paths of the client's host, which mean nothing to the cluster."""


def prepare(graph: StreamGraph, settings: Settings, *, same_host: bool) -> tuple[JobGraph, dict[str, bytes]]:
    """Build the JobGraph, pickle its chains and pack the program's Python files.

    Args:
        graph: of the program.
        settings: all that was set, in its layers.
        same_host: whether slots see the program's directories, so that its modules need not travel.

    Returns:
        The graph, and SHA-256 -> content of every blob.

    Raises:
        ProgramError: the graph is refused, a function can't be pickled, or a collection or the Python files are too
            large.
    """
    shipment = CodeShipment()
    limit = settings.get(options.COLLECTION_MAX_BYTES)

    def pickle_chain(chain: ChainSpec) -> bytes:
        blob = shipment.dumps_chain(chain)
        head = chain.operators[0]
        if len(blob) > limit and isinstance(head.function, CollectionSource):
            raise ProgramError(
                f"the collection of {head.name!r} takes {len(blob)} bytes when pickled, more than "
                f"{options.COLLECTION_MAX_BYTES.key} = {limit}: put the data into files, or raise the limit"
            )
        return blob

    config = {key: text for key, text in settings.to_plain().items() if key not in _OF_THIS_HOST}
    job_graph, blobs = build_job_graph(graph, job_id=new_job_id(), pickle_chain=pickle_chain, config=config)
    if same_host:
        _check_files(job_graph)
    code = shipment.code_blob()
    main_blob = None if code is None else add_blob(blobs, code)
    roots = [] if same_host else program_roots(sys.modules.get("__main__"), sys.path)
    packed = archives(named_files(settings), sys.modules, roots, settings.get(options.PYTHON_FILES_MAX_BYTES))
    environment, dependencies = python_environment(settings)
    blobs.update(dependencies)
    job_graph = replace(
        job_graph,
        python_environment=environment.to_plain(),
        main_blob=main_blob,
        python_files=tuple(add_blob(blobs, archive) for archive in packed),
        python_path=python_path() if same_host else (),
        config_layers={key: layer for key, layer in settings.layers().items() if key in config},
        blobs={sha: len(content) for sha, content in blobs.items()},
    )
    return _with_runtime_mode(job_graph, settings), blobs


def _with_runtime_mode(job_graph: JobGraph, settings: Settings) -> JobGraph:
    """The graph, in whose settings the mode is BATCH if that is how it runs.

    Raises:
        ProgramError: BATCH was asked for, and the program can't run so.
    """
    mode = settings.get(options.EXECUTION_RUNTIME_MODE)
    if mode == "STREAMING":
        return job_graph
    source = unbounded_source(job_graph)
    reason = None if source is None else f"source {source!r} is unbounded"
    if reason is None and (missing := missing_in_batch(job_graph)) is not None:
        reason = f"this version does not run {missing} so"
    if reason is not None and mode == BATCH:
        text = f"Runtime mode BATCH can't run job {job_graph.name!r}: {reason}. Use STREAMING or AUTOMATIC."
        raise (ProgramError if source is not None else UnsupportedFeatureError)(text)
    chosen = "STREAMING" if reason else BATCH
    if mode != BATCH:
        logger.info(
            "AUTOMATIC: job %r runs in mode %s%s", job_graph.name, chosen, f", since {reason}" if reason else ""
        )
    if chosen == BATCH and settings.get(options.CHECKPOINTING_INTERVAL):
        logger.warning("checkpoints have no effect in runtime mode BATCH: Spark runs what is lost again")
    return replace(job_graph, config={**job_graph.config, options.EXECUTION_RUNTIME_MODE.key: chosen})


def python_path() -> tuple[str, ...]:
    """Entries of ``sys.path`` as absolute paths, for slots on this host."""
    entries: list[str] = []
    for entry in sys.path:
        absolute = os.path.abspath(entry or os.getcwd())
        if absolute not in entries and os.path.exists(absolute):
            entries.append(absolute)
    return tuple(entries)


def _check_files(job_graph: JobGraph) -> None:
    """Refuse files that are not there before anything is deployed; a cluster elsewhere has files of its own."""
    for vertex in job_graph.vertices:
        if vertex.source is not None and vertex.source.enumerator == "files":
            FileEnumerator(vertex.source.config).start()
