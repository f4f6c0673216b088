"""Python environments of jobs on this host: jobs with the same dependencies share one."""

from __future__ import annotations

import asyncio
import functools
import json
import logging
import os
import shutil
import signal
import sys
import tarfile
import zipfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from firesteel import __version__
from firesteel.core.archives import unpack_tar, unpack_zip
from firesteel.core.call_pool import CallPool
from firesteel.core.environment import scrub
from firesteel.core.errors import FiresteelError, RpcError, UnsafeArchiveError
from firesteel.core.text_output import ESCAPED
from firesteel.protocol.python_environment import PythonEnvironment

logger = logging.getLogger(__name__)
_LAST_LINES: Final = 12
"""Lines of a program's output that an error shows."""
_PRINT_VERSIONS: Final = (
    "import json, sys\n"
    "try:\n    from firesteel import __version__ as v\n"
    "except ImportError:\n    v = None\n"
    "print(json.dumps([list(sys.version_info[:2]), v]))"
)
Fetch = Callable[[str, str, list[str]], Awaitable[Mapping[str, str]]]
_FILES: Final = CallPool("python environments", deadline=None)
"""Threads without a deadline: the time limit of the environment holds for the whole preparation."""


class PythonEnvironmentError(FiresteelError):
    """The Python environment of a job can't be made on this host; the message says why."""


@dataclass(frozen=True)
class Prepared:
    """An environment that is ready.

    Attributes:
        id: identifies the dependencies.
        python: path of the interpreter.
        directory: working directory of the processes, with the unpacked archives.
        path: directories that the interpreter searches for modules besides its own.
    """

    id: str
    python: str
    directory: str
    path: tuple[str, ...]

    def order(self) -> dict[str, Any]:
        """The order that a slot process gets."""
        return {
            "type": "run_in",
            "environment": self.id,
            "python": self.python,
            "directory": self.directory,
            "path": list(self.path),
        }


class PythonEnvironments:
    """Makes environments, each once, and removes those without a job.

    Args:
        directory: of all environments; private, and made when needed.
        fetch: gets blobs of a job: job id, address, names -> paths.
        host: where the environments are, for messages.
    """

    def __init__(self, directory: Path, fetch: Fetch, host: str) -> None:
        self._directory, self._fetch, self._host = directory, fetch, host
        self._environments: dict[str, asyncio.Task[Prepared]] = {}
        self._users: dict[str, set[str]] = {}
        self._writers: dict[str, set[asyncio.Task[object]]] = {}
        """Work of threads on files, by environment; it goes on where the making of the environment is cancelled."""
        self._removals: dict[str, asyncio.Task[None]] = {}
        """The last removal of each environment that is under way."""

    async def prepare(self, job_id: str, python: Mapping[str, Any]) -> Prepared:
        """Make the environment of a job, or join the making; from now on the job uses it.

        Args:
            job_id: of the job.
            python: plain ``PythonEnvironment``, with ``blob_address`` and ``timeout_seconds``.

        Raises:
            PythonEnvironmentError: the environment can't be made.
        """
        environment = PythonEnvironment.from_plain(python)
        name = environment.id
        self._users.setdefault(name, set()).add(job_id)
        task = self._environments.get(name)
        if task is None or (task.done() and (task.cancelled() or task.exception() is not None)):
            coroutine = self._make(environment, job_id, str(python["blob_address"]), float(python["timeout_seconds"]))
            task = self._environments[name] = asyncio.get_running_loop().create_task(coroutine)
        return await asyncio.shield(task)

    def forget(self, job_id: str) -> None:
        """A job has no slot here any more: remove the environments that no other job uses."""
        for name, users in list(self._users.items()):
            users.discard(job_id)
            if not users:
                del self._users[name]
                making, former = self._environments.pop(name, None), self._removals.get(name)
                removal = asyncio.get_running_loop().create_task(self._remove(name, making, former))
                self._removals[name] = removal
                removal.add_done_callback(functools.partial(self._removed, name))

    async def _remove(
        self, name: str, making: asyncio.Task[Prepared] | None, former: asyncio.Task[None] | None
    ) -> None:
        """Remove the files of an environment, once nothing writes or removes them any more."""
        if making is not None:
            making.cancel()  # which kills a pip that runs
        writers = [writer for writer in (making, former, *self._writers.pop(name, ())) if writer is not None]
        await asyncio.gather(*writers, return_exceptions=True)
        await _FILES.call(shutil.rmtree, self._directory / name, ignore_errors=True)

    def _removed(self, name: str, removal: asyncio.Task[None]) -> None:
        if self._removals.get(name) is removal:
            del self._removals[name]

    async def close(self) -> None:
        """End all work, and remove all environments."""
        tasks = [*self._environments.values(), *self._removals.values()]
        self._environments.clear()
        self._users.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        shutil.rmtree(self._directory, ignore_errors=True)

    async def _make(self, environment: PythonEnvironment, job_id: str, address: str, seconds: float) -> Prepared:
        folder = self._directory / environment.id
        try:
            async with asyncio.timeout(seconds):
                # A removal, or an archive that a failed attempt still unpacks, would spoil the new files.
                former_work = {*self._writers.get(environment.id, ())}
                if (removal := self._removals.get(environment.id)) is not None:
                    former_work.add(removal)
                if former_work:
                    await asyncio.wait(former_work)
                paths = await self._fetch(job_id, address, environment.blobs())
                remove_files = functools.partial(shutil.rmtree, folder, ignore_errors=True)
                await self._on_thread(environment.id, remove_files)  # of a failed attempt
                work = folder / "work"
                work.mkdir(mode=0o700, parents=True)
                for archive in environment.archives:
                    await self._unpack(environment.id, paths[archive.blob], archive.kind, work / archive.target)
                return await self._interpreter(environment, paths, folder, work)
        except TimeoutError:
            raise self._error(f"it was not ready within {seconds:g} s (firesteel.python.environment-timeout)") from None
        except (OSError, RpcError, tarfile.TarError, zipfile.BadZipFile, UnsafeArchiveError) as error:
            raise self._error(str(error)) from error

    async def _unpack(self, name: str, path: str, kind: str, target: Path) -> None:
        unpack = unpack_zip if kind == "zip" else unpack_tar
        await self._on_thread(name, functools.partial(unpack, path, target))

    async def _on_thread(self, name: str, work: Callable[[], object]) -> None:
        """Work on the files of an environment without blocking the event loop, which has heartbeats to answer."""
        working = asyncio.get_running_loop().create_task(_FILES.call(work))
        writers = self._writers.setdefault(name, set())
        writers.add(working)
        working.add_done_callback(writers.discard)
        await asyncio.shield(working)  # the thread can't be cancelled, so a removal has to wait for it

    async def _interpreter(
        self, environment: PythonEnvironment, paths: Mapping[str, str], folder: Path, work: Path
    ) -> Prepared:
        chosen = environment.executable
        python = sys.executable if chosen is None else str(work / chosen)  # an absolute path stays what it is
        if chosen is not None:
            await self._check(chosen, python, needs_firesteel=environment.requirements is None)
        if environment.requirements is None:
            path = tuple(_own_path()) if chosen is None else ()
            return Prepared(environment.id, python, str(work), path)
        venv = folder / "venv"
        await self._run("the virtual environment could not be made", [python, "-m", "venv", str(venv)])
        python = str(venv / "bin" / "python")
        (site,) = venv.glob("lib/python*/site-packages")
        lines = [f"import site; site.addsitedir({entry!r})" for entry in _own_path()]
        (site / "firesteel-cluster.pth").write_text("\n".join(lines) + "\n")
        index_options = []
        if environment.packages is not None:
            packages = folder / "packages"
            await self._unpack(environment.id, paths[environment.packages], "zip", packages)
            index_options = ["--no-index", "--find-links", str(packages)]
        install = [python, "-m", "pip", "install", "--disable-pip-version-check", "--no-input", *index_options]
        requirements = folder / "requirements.txt"
        shutil.copyfile(paths[environment.requirements], requirements)
        await self._run("the packages could not be installed", [*install, "-r", str(requirements)])
        return Prepared(environment.id, python, str(work), ())

    async def _check(self, chosen: str, python: str, *, needs_firesteel: bool) -> None:
        executable = f"the Python executable {chosen!r}"
        if not os.access(python, os.X_OK):
            raise self._error(f"{executable} is not there, or can't be run")
        output = await self._run(f"{executable} does not run", [python, "-c", _PRINT_VERSIONS])
        # What starts with the interpreter (.pth files, wrappers) may print lines of its own around the answer.
        answers = [line for line in output.splitlines() if line.startswith("[[")]
        if not answers:
            raise self._error(f"{executable} does not tell its version:\n{_tail(output)}")
        version, firesteel = json.loads(answers[-1])
        own_version = list(sys.version_info[:2])
        if version != own_version:
            its_version, cluster_version = ".".join(map(str, version)), ".".join(map(str, own_version))
            text = f"{executable} is Python {its_version}, and the cluster and its jobs are of Python {cluster_version}"
            raise self._error(text)
        if needs_firesteel and firesteel != __version__:
            installed = "no firesteel" if firesteel is None else f"firesteel {firesteel}"
            raise self._error(f"{executable} has {installed}: install firesteel {__version__} there")

    async def _run(self, failure: str, command: Sequence[str]) -> str:
        environment = dict(os.environ)
        scrub(environment)
        for name in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV"):
            environment.pop(name, None)
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )
        try:
            output, _ = await process.communicate()
        except asyncio.CancelledError:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            await process.wait()
            raise
        text = output.decode(errors=ESCAPED)
        if process.returncode != 0:
            raise self._error(f"{failure} (exit code {process.returncode}):\n{_tail(text)}")
        return text

    def _error(self, cause: str) -> PythonEnvironmentError:
        return PythonEnvironmentError(f"The Python environment of the job could not be made on {self._host}: {cause}")


def _tail(output: str) -> str:
    return "\n".join(output.strip().splitlines()[-_LAST_LINES:])


def _own_path() -> list[str]:
    """Directories in which this process finds modules, without those of the standard library."""
    library = os.path.dirname(os.__file__)
    directories = []
    for entry in sys.path:
        absolute = os.path.abspath(entry)
        is_standard_library = absolute == library or absolute == os.path.join(library, "lib-dynload")
        if entry and os.path.isdir(absolute) and not is_standard_library and absolute not in directories:
            directories.append(absolute)
    return directories
