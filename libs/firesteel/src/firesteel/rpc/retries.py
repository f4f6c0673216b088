"""What a failed call says: whether it is worth a repeat, and whether the peer is somebody else by now."""

from __future__ import annotations

from firesteel.core.errors import FencedError, PeerUnreachableError, RpcError
from firesteel.protocol.message import RpcCode, RpcFault


def may_work_later(error: RpcError) -> bool:
    """Whether a call that failed so is worth a repeat.

    The peer was not reached or failed in it, or the clocks of the hosts differ too much at the moment.
    """
    if isinstance(error, RpcFault):
        return error.code in (RpcCode.INTERNAL, RpcCode.UNAUTHORIZED)
    return isinstance(error, PeerUnreachableError)


def is_gone(error: RpcError) -> bool:
    """Whether the one who was called for is there no more: another one leads, or nobody there knows of the matter."""
    return isinstance(error, FencedError) or (isinstance(error, RpcFault) and error.code is RpcCode.NOT_FOUND)
