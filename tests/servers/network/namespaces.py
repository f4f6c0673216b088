"""A small network of this machine's own: hosts are network namespaces on one bridge, and faults are iptables rules.

Nothing outside is touched: the bridge lies in a namespace, too (that of the first host), so the machine's own
interfaces, routes and filters stay as they are, and no packet leaves. Names tell whose they are, so that what a killed
run left behind is found and removed.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import re
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TypeVar

from firesteel.core.process import ProcessId, is_running, myself

T = TypeVar("T")
TOOLS = {"ip": "iproute2", "iptables": "iptables", "nsenter": "util-linux"}
"""What is needed, and Debian's package of it."""
NETWORK = "198.18.0"
"""Beginning of all addresses: from a range for tests, which nobody routes."""
_MOUNTED = Path("/run/netns")
_NAME = re.compile(r"firesteel-test-([0-9a-f]+)-([0-9a-f]+)-[0-9]+")
_CLONE_NEWNET = 0x40000000
_counter = itertools.count()


def missing_tools() -> list[str]:
    """Debian's packages of the tools that are not there."""
    return sorted({package for tool, package in TOOLS.items() if shutil.which(tool) is None})


def run(*words: str) -> None:
    """Run a command.

    Raises:
        OSError: it failed; the message is its own.
    """
    done = subprocess.run(words, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=120)
    if done.returncode:
        raise OSError(f"{' '.join(words)}: {done.stderr.strip() or done.returncode}")


def remove_leftovers() -> None:
    """Remove namespaces of runs whose process is gone; their ends of cables and their rules go with them."""
    for path in _MOUNTED.glob("firesteel-test-*"):
        owner = _NAME.fullmatch(path.name)
        if owner and not is_running(ProcessId(int(owner[1], 16), int(owner[2], 16))):
            run("ip", "netns", "delete", path.name)


class Host:
    """A network namespace with an address; its processes share everything else with this machine.

    Attributes:
        address: its IPv4 address.
    """

    def __init__(self, address: str) -> None:
        me = myself()
        self.address = address
        self.namespace = f"firesteel-test-{me.pid:x}-{me.start:x}-{next(_counter)}"
        run("ip", "netns", "add", self.namespace)
        run("ip", "-n", self.namespace, "link", "set", "lo", "up")

    @property
    def command(self) -> list[str]:
        """Words in front of a command that is to run here; the process keeps its pid."""
        return ["nsenter", f"--net={_MOUNTED / self.namespace}"]

    def call(self, function: Callable[[], T]) -> T:
        """Call a function in a thread that is here: the sockets it makes are this host's.

        Raises:
            Exception: what the function raises.
        """
        results: list[T] = []
        failures: list[BaseException] = []

        def enter() -> None:
            try:
                with (_MOUNTED / self.namespace).open() as namespace:
                    libc = ctypes.CDLL(None, use_errno=True)
                    if libc.setns(namespace.fileno(), _CLONE_NEWNET):
                        raise OSError(ctypes.get_errno(), f"can't enter {self.namespace}")
                results.append(function())
            except BaseException as error:  # handed to the caller
                failures.append(error)

        thread = threading.Thread(target=enter, name=f"in {self.namespace}")
        thread.start()
        thread.join()
        if failures:
            raise failures[0]
        return results[0]

    @contextmanager
    def cut_off(self, *, incoming: bool = True, outgoing: bool = True, peer: Host | None = None) -> Iterator[None]:
        """Packets are dropped silently, and connections stay.

        Args:
            incoming: those that come here.
            outgoing: those that leave.
            peer: only those from and to this host; None = all but loopback.
        """
        rules: list[list[str]] = []
        if incoming:
            rules.append(["INPUT", "--in-interface", "eth0", *(["--source", peer.address] if peer else [])])
        if outgoing:
            rules.append(["OUTPUT", "--out-interface", "eth0", *(["--destination", peer.address] if peer else [])])
        with ExitStack() as undo:
            for rule in rules:
                self._rule("--append", rule)
                undo.callback(self._rule, "--delete", rule)
            yield

    def _rule(self, change: str, rule: Sequence[str]) -> None:
        run(*self.command, "iptables", "--wait", change, *rule, "--jump", "DROP")

    def delete(self) -> None:
        """Remove it. Processes that are still here lose their network."""
        run("ip", "netns", "delete", self.namespace)


class Network:
    """Hosts that reach each other and nobody else.

    Args:
        size: how many hosts beside the first, which has the bridge.

    Attributes:
        hub: the first host.
        hosts: the others.

    Raises:
        OSError: namespaces can't be made here; the message is that of the tool.
    """

    def __init__(self, size: int) -> None:
        self._all: list[Host] = []
        try:
            self.hub = self._host(1)
            run("ip", "-n", self.hub.namespace, "link", "add", "bridge", "type", "bridge")
            self._join(self.hub, "bridge")
            self.hosts = [self._connect(number) for number in range(2, size + 2)]
        except BaseException:
            self.close()
            raise

    def _host(self, number: int) -> Host:
        host = Host(f"{NETWORK}.{number}")
        self._all.append(host)
        return host

    def _connect(self, number: int) -> Host:
        host, hub, port = self._host(number), self.hub.namespace, f"port{number}"
        cable = ("type", "veth", "peer", "name", "eth0", "netns", host.namespace)
        run("ip", "-n", hub, "link", "add", port, *cable)
        run("ip", "-n", hub, "link", "set", port, "master", "bridge", "up")
        self._join(host, "eth0")
        return host

    @staticmethod
    def _join(host: Host, interface: str) -> None:
        run("ip", "-n", host.namespace, "address", "add", f"{host.address}/24", "dev", interface)
        run("ip", "-n", host.namespace, "link", "set", interface, "up")

    def close(self) -> None:
        for host in self._all:
            host.delete()
        self._all.clear()


def is_root() -> bool:
    """Only root makes namespaces."""
    return os.geteuid() == 0
