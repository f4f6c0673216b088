"""A real notebook kernel (ipykernel) in a process of its own, and the cells that a test runs in it."""

from __future__ import annotations

import os
import queue
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import zmq
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import KernelManager

from firesteel.core import process

_PATIENCE = 100.0


@dataclass
class Cell:
    """What a cell gave.

    Attributes:
        out: its standard output.
        err: its standard error.
        error: the name of the exception that ended it, or None.
        report: what the notebook shows of that exception, without colours.
        shown: what it displays as HTML, or as plain text where there is none; an update is an element of its own.
    """

    out: str = ""
    err: str = ""
    error: str | None = None
    report: str = ""
    shown: list[str] = field(default_factory=list)


class Notebook:
    """One kernel.

    Attributes:
        pid: of its process.
    """

    def __init__(self, manager: KernelManager, client: BlockingKernelClient) -> None:
        self._manager, self._client = manager, client
        pid = getattr(manager.provisioner, "pid", None)
        assert isinstance(pid, int)
        self.pid = pid
        self._begun = ""

    def begin(self, source: str) -> None:
        """Sends a cell to the kernel."""
        self._begun = self._client.execute(source)

    def end(self, until: str | None = None) -> Cell:
        """Waits for the end of the cell that was sent; or until its standard output holds a text.

        Raises:
            AssertionError: neither came within a minute.
        """
        cell = Cell()
        deadline = time.monotonic() + _PATIENCE
        while True:
            try:
                message = self._client.get_iopub_msg(timeout=max(0.01, deadline - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"the cell did not end within {_PATIENCE} s: {cell}") from None
            if message["parent_header"].get("msg_id") != self._begun:
                continue
            content = message["content"]
            match message["msg_type"]:
                case "stream" if content["name"] == "stdout":
                    cell.out += content["text"]
                    if until is not None and until in cell.out:
                        return cell
                case "stream":
                    cell.err += content["text"]
                case "display_data" | "update_display_data" | "execute_result":
                    cell.shown.append(content["data"].get("text/html", content["data"]["text/plain"]))
                case "error":
                    cell.error, cell.report = content["ename"], "\n".join(content["traceback"])
                case "status" if content["execution_state"] == "idle":
                    return cell

    def run(self, source: str) -> Cell:
        """Sends a cell and waits for its end."""
        self.begin(source)
        return self.end()

    def interrupt(self) -> None:
        """The notebook's stop button."""
        self._manager.interrupt_kernel()

    def shut_down(self) -> None:
        """The notebook asks the kernel to end, and waits for it."""
        self._manager.shutdown_kernel()

    def kill(self) -> None:
        """SIGKILL of the kernel's process."""
        self._manager.shutdown_kernel(now=True)


@contextmanager
def notebook(folder: Path, variables: Mapping[str, str] | None = None) -> Iterator[Notebook]:
    """A kernel that works in a folder; it is killed at the end of the block, with all that it started."""
    private = folder / ".jupyter"
    private.mkdir()
    folders = dict.fromkeys(("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_RUNTIME_DIR"), str(private))
    context: zmq.Context[Any] = zmq.Context()
    manager = KernelManager(
        context=context, connection_file=str(private / "kernel.json"), transport="ipc", ip=str(private / "k")
    )
    manager.shutdown_wait_time = _PATIENCE  # then it would be killed, and its files stay until the next start
    client: BlockingKernelClient | None = None
    left: list[process.ProcessId] = []
    try:
        manager.start_kernel(cwd=str(folder), env={**os.environ, **folders, **(variables or {})})
        client = manager.blocking_client()
        client.start_channels()
        client.wait_for_ready(timeout=_PATIENCE)
        started = Notebook(manager, client)
        assert "NoColor" in started.run("get_ipython().run_line_magic('colors', 'NoColor'); print('NoColor')").out
        yield started
        left = process.descendants(started.pid)
    finally:
        if client is not None:
            client.stop_channels()
        manager.shutdown_kernel(now=True)
        context.destroy(linger=0)
        process.wait_gone(left, timeout=20)
