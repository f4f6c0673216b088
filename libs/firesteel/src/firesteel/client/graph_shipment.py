"""From a StreamGraph to what is submitted: the JobGraph and its blobs."""

from __future__ import annotations

import hashlib
import os
import sys
from dataclasses import replace

from firesteel.client.code_shipment import CodeShipment
from firesteel.config import options
from firesteel.config.settings import Settings
from firesteel.connectors.collection import CollectionSource
from firesteel.core.errors import ProgramError
from firesteel.core.ids import new_job_id
from firesteel.graph.chaining import build_job_graph
from firesteel.graph.job_graph import JobGraph
from firesteel.graph.specs import ChainSpec
from firesteel.graph.stream_graph import StreamGraph


def prepare(graph: StreamGraph, settings: Settings) -> tuple[JobGraph, dict[str, bytes]]:
    """Build the JobGraph and pickle its chains.

    Returns:
        The graph, and SHA-256 -> content of every blob.

    Raises:
        ProgramError: the graph is refused, a function can't be pickled, or a collection is too large.
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

    job_graph, blobs = build_job_graph(
        graph, job_id=new_job_id(), pickle_chain=pickle_chain, config=settings.to_plain()
    )
    code = shipment.code_blob()
    name = None
    if code is not None:
        name = hashlib.sha256(code).hexdigest()
        blobs[name] = code
    sizes = {sha: len(content) for sha, content in blobs.items()}
    return replace(job_graph, main_blob=name, python_path=python_path(), blobs=sizes), blobs


def python_path() -> tuple[str, ...]:
    """Entries of ``sys.path`` as absolute paths, for slots on this host."""
    entries: list[str] = []
    for entry in sys.path:
        absolute = os.path.abspath(entry or os.getcwd())
        if absolute not in entries and os.path.exists(absolute):
            entries.append(absolute)
    return tuple(entries)
