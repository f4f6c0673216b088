from __future__ import annotations

import pytest

from firesteel.core.errors import FencedError, PeerUnreachableError, RpcError, UnauthorizedError
from firesteel.protocol.message import RpcCode, RpcFault
from firesteel.service.retries import is_gone, may_work_later


@pytest.mark.parametrize(
    ("error", "gone", "later"),
    [
        (FencedError("another one leads"), True, False),
        (RpcFault(RpcCode.NOT_FOUND, "no such job"), True, False),
        (RpcFault(RpcCode.INTERNAL, "a bug"), False, True),
        (RpcFault(RpcCode.UNAUTHORIZED, "clocks differ"), False, True),
        (RpcFault(RpcCode.BAD_REQUEST, "no"), False, False),
        (PeerUnreachableError("refused"), False, True),
        (UnauthorizedError("no"), False, False),
    ],
)
def test_what_a_failed_call_says(error: RpcError, gone: bool, later: bool) -> None:
    assert (is_gone(error), may_work_later(error)) == (gone, later)
