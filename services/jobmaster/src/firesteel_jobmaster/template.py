"""The process from which the processes of JobMasters are forked: ``python -m firesteel_jobmaster.template FD``.

Everything that a JobMaster needs is imported once here, before the first fork: a JobMaster starts in the time of a
fork, and all share the memory of what was imported (``gc.freeze`` keeps the collector from touching those pages).
There is one thread and no event loop here, so that a fork loses nothing.

The host speaks with it over a Unix socket, in lines of JSON; what the forked process needs comes over a socket of its
own that the host sends along. So the template never knows a secret.

=================  ===========================================  ======================================
from the host      ``{"fork": job id}`` with a descriptor       run a JobMaster that talks over it
to the host        ``{"ready": pid}``                           once, when all is imported
to the host        ``{"ended": job id, "pid", "status"}``       a process ended; status as of ``waitpid``
=================  ===========================================  ======================================

It ends when the host does, or closes the socket. The JobMasters go on.
"""

from __future__ import annotations

import gc
import json
import logging
import os
import resource
import select
import signal
import socket
import sys
import traceback
from typing import Any

from firesteel.core.process import reap_children

_EXIT_CRASHED = 70
_MOST_DESCRIPTORS = 32


class Template:
    """Forks processes of JobMasters, and reports their ends.

    Args:
        host: the socket to the host.
    """

    def __init__(self, host: socket.socket) -> None:
        self._host = host
        self._jobs: dict[int, str] = {}
        self._lines = b""
        self._descriptors: list[int] = []
        self._wake, self._wake_end = os.pipe()

    def serve(self) -> None:
        """Fork and report, until the host is gone."""
        os.set_blocking(self._wake, False)
        os.set_blocking(self._wake_end, False)
        signal.set_wakeup_fd(self._wake_end, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._tell({"ready": os.getpid()})
        while True:
            readable, _, _ = select.select([self._host.fileno(), self._wake], [], [])
            if self._wake in readable:
                try:
                    os.read(self._wake, 4096)
                except BlockingIOError:
                    pass
            self._bury()
            if self._host.fileno() in readable and not self._read():
                return

    def _read(self) -> bool:
        try:
            data, descriptors, _, _ = socket.recv_fds(self._host, 65536, _MOST_DESCRIPTORS)
        except OSError:
            return False
        self._descriptors += descriptors
        self._lines += data
        *lines, self._lines = self._lines.split(b"\n")
        for line in lines:
            self._fork(json.loads(line)["fork"], socket.socket(fileno=self._descriptors.pop(0)))
        return bool(data)

    def _fork(self, job_id: str, connection: socket.socket) -> None:
        try:
            pid = os.fork()
        except OSError as error:  # no memory, no room for processes: the host sees the connection end
            print(f"the JobMaster of job {job_id} could not be forked: {error}", file=sys.stderr, flush=True)
            connection.close()
            return
        if pid == 0:
            self._be_a_jobmaster(connection)
        connection.close()
        self._jobs[pid] = job_id

    def _be_a_jobmaster(self, connection: socket.socket) -> None:
        code = _EXIT_CRASHED
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            self._host.close()
            for descriptor in (self._wake, self._wake_end, *self._descriptors):
                os.close(descriptor)
            from firesteel_jobmaster.job_process import run

            code = run(connection)
        except BaseException:
            traceback.print_exc()
        finally:
            logging.shutdown()
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    def _bury(self) -> None:
        for pid, status in reap_children():
            job_id = self._jobs.pop(pid, None)
            if job_id is not None:
                self._tell({"ended": job_id, "pid": pid, "status": status})

    def _tell(self, message: dict[str, Any]) -> None:
        try:
            self._host.sendall(json.dumps(message).encode() + b"\n")
        except OSError:
            pass  # the host is gone; the next read says so


def main() -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # connections to each TaskManager
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C in the terminal is the host's business
    host = socket.socket(fileno=int(sys.argv[1]))
    host.set_inheritable(False)
    import firesteel_jobmaster.job_process  # noqa: F401 # and with it all that a JobMaster needs

    gc.collect()
    gc.freeze()
    Template(host).serve()


if __name__ == "__main__":
    main()
