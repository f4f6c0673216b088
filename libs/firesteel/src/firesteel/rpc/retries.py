"""Which calls are worth a repeat."""

from __future__ import annotations

from firesteel.core.errors import PeerUnreachableError, RpcError
from firesteel.protocol.message import RpcCode, RpcFault


def may_work_later(error: RpcError) -> bool:
    """Whether a call that failed so is worth a repeat.

    The peer was not reached or failed in it, or the clocks of the hosts differ too much at the moment.
    """
    if isinstance(error, RpcFault):
        return error.code in (RpcCode.INTERNAL, RpcCode.UNAUTHORIZED)
    return isinstance(error, PeerUnreachableError)
