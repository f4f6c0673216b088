"""The host's side of the template process: starts it, has it fork, hears of deaths, starts another when it died."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable

from firesteel.core.call_pool import CallPool

logger = logging.getLogger(__name__)
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0
"""Seconds between starts of templates that die before they are ready."""
STOP_SECONDS = 2.0
Ended = Callable[[str, int, str], None]
_ENDS = CallPool("ends of templates", deadline=None)
"""Threads that wait for templates to end; each wait has a time limit of its own."""


class TemplateError(Exception):
    """No JobMaster can be forked now."""


class TemplateProcess:
    """Keeps one template process alive. Its first start needs no event loop; ``attach`` does.

    Args:
        ended: called when a process ends that the current template has forked: job id, pid, and how it has ended.
    """

    def __init__(self, ended: Ended) -> None:
        self._ended = ended
        self._closed = False
        self._pause = FIRST_PAUSE
        self._lines = b""
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._starting: asyncio.TimerHandle | None = None
        self._ready = asyncio.Event()
        self.generation = 0
        """Counts templates: a process that an earlier one forked is nobody's child any more."""
        self._start()

    @property
    def is_ready(self) -> bool:
        """Whether a JobMaster can be forked at once."""
        return self._ready.is_set()

    @property
    def pid(self) -> int | None:
        """Process id of the template that runs."""
        return self._process.pid if self._process is not None else None

    def attach(self) -> None:
        """Read the template's reports from now on, on the running loop."""
        self._loop = asyncio.get_running_loop()
        if self._socket is not None:
            self._loop.add_reader(self._socket, self._read)

    def _start(self) -> None:
        self._starting = None
        own_end, child_end = socket.socketpair()
        own_end.setblocking(False)
        with child_end:
            try:
                self._process = subprocess.Popen(
                    [sys.executable, "-P", "-m", "firesteel_jobmaster.template", str(child_end.fileno())],
                    pass_fds=(child_end.fileno(),),
                    stdin=subprocess.DEVNULL,
                    start_new_session=True,
                )
            except BaseException:
                own_end.close()
                raise
        self.generation += 1
        self._socket, self._lines = own_end, b""
        if self._loop is not None:
            self._loop.add_reader(own_end, self._read)

    def _read(self) -> None:
        if self._socket is None:
            return
        try:
            data = self._socket.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self._lines += data
        *lines, self._lines = self._lines.split(b"\n")
        for line in lines:
            message = json.loads(line)
            if "ready" in message:
                self._pause = FIRST_PAUSE
                self._ready.set()
                logger.info("JobMasters are forked from process %d", message["ready"])
            else:
                self._ended(message["ended"], message["pid"], describe_status(message["status"]))
        if not data:
            self._died()

    def _died(self) -> None:
        status = self._drop()
        if not self._closed and self._loop is not None:
            self._start_later(self._loop, status)

    def _start_later(self, loop: asyncio.AbstractEventLoop, status: str) -> None:
        logger.error("the template of JobMasters %s; the next one starts in %g s", status, self._pause)
        self._starting = loop.call_later(self._pause, self._start_again, loop)
        self._pause = min(self._pause * 2, LONGEST_PAUSE)

    def _start_again(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            self._start()
        except OSError as error:  # no memory, no room for processes or files
            self._start_later(loop, f"could not be started: {error}")

    def _drop(self) -> str:
        """Have the current template end; returns how it has ended."""
        self._ready.clear()
        if self._socket is not None:
            if self._loop is not None:
                self._loop.remove_reader(self._socket)
            self._socket.close()
            self._socket = None
        process, self._process = self._process, None
        if process is None:
            return "is gone"
        try:
            process.wait(0.2)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        return describe_exit(process.returncode)

    async def fork(self, job_id: str, timeout: float) -> socket.socket:
        """Have the template fork a process; returns the socket to the process.

        Args:
            job_id: of the job that it will run.
            timeout: seconds that a template may take to become ready.

        Raises:
            TemplateError: there is no template, and none came.
        """
        try:
            async with asyncio.timeout(timeout):
                await self._ready.wait()
        except TimeoutError:
            raise TemplateError(f"no process to fork JobMasters from became ready within {timeout:g} s") from None
        assert self._socket is not None
        own_end, child_end = socket.socketpair()
        with child_end:
            try:
                line = json.dumps({"fork": job_id}).encode() + b"\n"
                socket.send_fds(self._socket, [line], [child_end.fileno()])
            except OSError as error:
                own_end.close()
                self.replace(f"takes no orders: {error}")
                raise TemplateError(f"the process that JobMasters are forked from takes no orders: {error}") from error
        return own_end

    def replace(self, why: str) -> None:
        """Kill a template that does not do its work, and start another one."""
        if self._process is not None:
            logger.error("the template of JobMasters %s", why)
            self._process.kill()
            self._died()

    async def close(self) -> None:
        """End the template; processes that it has forked go on."""
        self._closed = True
        if self._starting is not None:
            self._starting.cancel()
        if self._process is not None and self._socket is not None:
            self._socket.shutdown(socket.SHUT_RDWR)
            await _ENDS.call(_wait, self._process)
        self._drop()


def _wait(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()


def describe_status(status: int) -> str:
    """A ``waitpid`` status, for people."""
    return describe_exit(os.waitstatus_to_exitcode(status))


def describe_exit(code: int) -> str:
    """An exit code as ``subprocess`` has it, for people."""
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was killed by signal {-code} ({signal.Signals(-code).name})"
    except ValueError:
        return f"was killed by signal {-code}"
