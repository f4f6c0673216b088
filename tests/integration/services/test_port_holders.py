"""Who listens on a port."""

from __future__ import annotations

import os
import socket
import sys

import pytest

from firesteel.core.port_holders import port_holder


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize(("family", "host"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
def test_the_process_that_listens_is_named(family: int, host: str) -> None:
    with socket.socket(family) as door:
        try:
            door.bind((host, 0))
        except OSError:
            pytest.skip(f"this machine has no {host}")
        port = door.getsockname()[1]
        assert port_holder(port) == "", "it does not listen yet"
        door.listen()
        assert port_holder(port).startswith(f"process {os.getpid()} (")
    assert port_holder(port) == ""
