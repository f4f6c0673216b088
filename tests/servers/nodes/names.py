"""The name server of a Kubernetes of tests: names of Services lead to their addresses, as the API server knows them.

It is a thread of the tests, at an address that the pods reach, in place of CoreDNS in a pod: nothing has to be built.
"""

from __future__ import annotations

import contextlib
import socket
import socketserver
import struct
import threading
from collections.abc import Callable
from typing import Any

DOMAIN = "cluster.local"
_TTL = 5
_LOOK_SECONDS = 0.5
_A = 1
_NO_SUCH_NAME = 3


class NameServer:
    """See the head of this module. UDP only: no answer of tests is long.

    Args:
        address: to listen on, port 53.
        ask: GET of a path of the API server.
    """

    def __init__(self, address: str, ask: Callable[[str], Any]) -> None:
        self._ask, self._ended = ask, threading.Event()
        self._names: dict[str, list[str]] = {}
        server = self

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                query, back = self.request
                with contextlib.suppress(OSError, ValueError, IndexError, struct.error):
                    back.sendto(server.answer(query), self.client_address)

        self._server = socketserver.ThreadingUDPServer((address, 53), Handler)
        self._threads = [
            threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.1}, name="names"),
            threading.Thread(target=self._look, name="names-look"),
        ]

    def start(self) -> None:
        """Answer from now on."""
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        self._ended.set()
        self._server.shutdown()
        for thread in self._threads:
            thread.join()
        self._server.server_close()

    def _look(self) -> None:
        while not self._ended.is_set():
            with contextlib.suppress(OSError, ValueError, KeyError):  # what was known stays
                self._names = self._read()
            self._ended.wait(_LOOK_SECONDS)

    def _read(self) -> dict[str, list[str]]:
        slices: dict[tuple[str, str], list[str]] = {}
        for slice_ in self._ask("/apis/discovery.k8s.io/v1/endpointslices")["items"]:
            meta = slice_["metadata"]
            key = meta["namespace"], meta.get("labels", {}).get("kubernetes.io/service-name", "")
            for endpoint in slice_.get("endpoints") or ():
                if endpoint.get("conditions", {}).get("ready", True):
                    slices.setdefault(key, []).extend(endpoint["addresses"])
        addresses_by_name = {}
        for slice_ in self._ask("/api/v1/services")["items"]:
            name, namespace = slice_["metadata"]["name"], slice_["metadata"]["namespace"]
            address = slice_["spec"].get("clusterIP")
            addresses = slices.get((namespace, name), []) if address == "None" else [address]
            addresses_by_name[f"{name}.{namespace}.svc.{DOMAIN}"] = addresses
        return addresses_by_name

    def answer(self, query: bytes) -> bytes:
        number, flags, questions = struct.unpack("!HHH", query[:6])
        if questions != 1:
            raise ValueError("one question at a time")
        labels, at = [], 12
        while length := query[at]:
            labels.append(query[at + 1 : at + 1 + length].decode("ascii"))
            at += 1 + length
        (kind,) = struct.unpack("!H", query[at + 1 : at + 3])
        question = query[12 : at + 5]
        addresses = self._names.get(".".join(labels).lower())
        records = [] if kind != _A else addresses or []
        code = _NO_SUCH_NAME if addresses is None else 0
        head = struct.pack("!HHHHHH", number, 0x8480 | (flags & 0x0100) | code, 1, len(records), 0, 0)
        body = b"".join(
            struct.pack("!HHHIH", 0xC00C, _A, 1, _TTL, 4) + socket.inet_aton(address) for address in records
        )
        return head + question + body
