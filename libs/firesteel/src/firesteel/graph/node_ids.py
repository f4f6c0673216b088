"""Operator ids: stable over submissions of the same program, so that state finds its operator again.

With a ``uid`` the id is the Murmur3-128 hash of that text. Without one it is a hash of the operator's place: its
position in a breadth-first walk from the sources, how many operators are chained behind it, and the ids of its
inputs. Names, function bodies and parallelism as such take no part. The scheme is that of Flink's second hasher.

Murmur3-128: the x64 variant, seed 0; the digest is both 64-bit halves in little-endian order.
"""

from __future__ import annotations

import re
from collections import deque

from firesteel.core.errors import GraphError
from firesteel.core.ids import OperatorId
from firesteel.graph.stream_graph import StreamGraph, StreamNode

_MASK = (1 << 64) - 1
_C1 = 0x87C37B91114253D5
_C2 = 0x4CF5AD432745937F
_UID_HASH = re.compile(r"[0-9a-f]{32}")


def murmur3_128(data: bytes) -> bytes:
    """Return the 16-byte Murmur3-128 digest of ``data``."""
    h1 = h2 = 0
    full = len(data) // 16 * 16
    for start in range(0, full, 16):
        h1 ^= _scramble(int.from_bytes(data[start : start + 8], "little"), _C1, 31, _C2)
        h1 = (((_rotate(h1, 27) + h2) & _MASK) * 5 + 0x52DCE729) & _MASK
        h2 ^= _scramble(int.from_bytes(data[start + 8 : start + 16], "little"), _C2, 33, _C1)
        h2 = (((_rotate(h2, 31) + h1) & _MASK) * 5 + 0x38495AB5) & _MASK
    tail = data[full:]
    h2 ^= _scramble(int.from_bytes(tail[8:], "little"), _C2, 33, _C1)  # a missing half is 0, which scrambles to 0
    h1 ^= _scramble(int.from_bytes(tail[:8], "little"), _C1, 31, _C2)
    h1 ^= len(data)
    h2 ^= len(data)
    h1 = (h1 + h2) & _MASK
    h2 = (h2 + h1) & _MASK
    h1, h2 = _finish(h1), _finish(h2)
    h1 = (h1 + h2) & _MASK
    h2 = (h2 + h1) & _MASK
    return h1.to_bytes(8, "little") + h2.to_bytes(8, "little")


def operator_ids(graph: StreamGraph) -> dict[int, OperatorId]:
    """Return the operator id of every node, by node id.

    Raises:
        GraphError: two operators have the same uid or uid hash, a uid hash is malformed, or an operator has no uid
            though ids are not to be made up (``pipeline.auto-generate-uids``).
    """
    digests: dict[int, bytes] = {}
    owners: dict[bytes, StreamNode] = {}
    for node in _breadth_first(graph):
        digest = _digest(graph, node, digests)
        owner = owners.setdefault(digest, node)
        if owner is not node:
            raise GraphError(_collision(owner, node))
        digests[node.id] = digest
    return {node_id: OperatorId(digest.hex()) for node_id, digest in digests.items()}


def _digest(graph: StreamGraph, node: StreamNode, digests: dict[int, bytes]) -> bytes:
    if node.uid_hash is not None:
        if not _UID_HASH.fullmatch(node.uid_hash):
            raise GraphError(f"operator {node.name!r}: the uid hash {node.uid_hash!r} is not 32 lower-case hex digits")
        return bytes.fromhex(node.uid_hash)
    if node.uid is not None:
        return murmur3_128(node.uid.encode())
    if not graph.auto_generate_uids and not node.internal:
        raise GraphError(
            f"operator {node.name!r} has no uid, and pipeline.auto-generate-uids is off: give it one with .uid(...)"
        )
    position = len(digests).to_bytes(4, "little")
    chained = sum(graph.is_chainable(edge) for edge in node.out_edges)
    digest = bytearray(murmur3_128(position * (1 + chained)))
    for edge in node.in_edges:
        for i, input_byte in enumerate(digests[edge.source]):
            digest[i] = (digest[i] * 37 ^ input_byte) & 0xFF
    return bytes(digest)


def _breadth_first(graph: StreamGraph) -> list[StreamNode]:
    """Nodes in breadth-first order from the sources; each one stands behind all its inputs."""
    waiting = deque(node for node in graph.nodes.values() if not node.in_edges)
    queued = {node.id for node in waiting}
    visited: dict[int, StreamNode] = {}
    while waiting:
        node = waiting.popleft()
        if any(edge.source not in visited for edge in node.in_edges):
            queued.discard(node.id)  # its last input will queue it again
            continue
        visited[node.id] = node
        for edge in node.out_edges:
            if edge.target not in queued:
                queued.add(edge.target)
                waiting.append(graph.nodes[edge.target])
    return list(visited.values())


def _collision(first: StreamNode, second: StreamNode) -> str:
    pair = f"operators {first.name!r} (node {first.id}) and {second.name!r} (node {second.id})"
    if first.uid is not None and first.uid == second.uid:
        return f"{pair} have the same uid {first.uid!r}; give each operator a uid of its own"
    return f"{pair} have the same id; give each operator a uid or uid hash of its own"


def _scramble(k: int, first_factor: int, rotation: int, second_factor: int) -> int:
    return (_rotate((k * first_factor) & _MASK, rotation) * second_factor) & _MASK


def _rotate(x: int, by: int) -> int:
    return ((x << by) | (x >> (64 - by))) & _MASK


def _finish(k: int) -> int:
    k = ((k ^ (k >> 33)) * 0xFF51AFD7ED558CCD) & _MASK
    k = ((k ^ (k >> 33)) * 0xC4CEB9FE1A85EC53) & _MASK
    return k ^ (k >> 33)
