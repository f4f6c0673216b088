"""Programs that users have uploaded, and the processes that run them: no process of the cluster runs user code."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import hashlib
import json
import logging
import os
import re
import shutil
import sys
import tempfile
import time
import uuid
import zipfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

from firesteel.client.python_dependencies import python_environment
from firesteel.config import Settings, options
from firesteel.connectors.filesystems.file_system import FileSystems, remote_path
from firesteel.core.call_pool import CallPool
from firesteel.core.environment import without_secrets
from firesteel.core.errors import ConfigurationError, FiresteelError
from firesteel.core.files import sync_directory
from firesteel.core.text_output import ESCAPED
from firesteel.rest import types as t
from firesteel.rest.archive_cache import Archive
from firesteel.rest.job_settings import is_for_jobs
from firesteel.service.python_environments import Prepared, PythonEnvironments
from firesteel_dispatcher.application import MainEnd
from firesteel_dispatcher.program_files import (
    MAIN,
    SUFFIXES,
    check_content,
    check_program,
    default_entry,
    entries_of,
    local_program,
    remote_program,
)

logger = logging.getLogger(__name__)
_COMMAND_LINE: Final = "command line"
"""Origin of the settings that a program was run with, in place of those that it has set itself."""
_SET_BY_EACH_RUN: Final = frozenset(
    {
        "execution.target",
        options.EXECUTION_ATTACHED.key,
        options.STATE_RECOVERY_PATH.key,
        options.STATE_RECOVERY_IGNORE_UNCLAIMED.key,
        options.STATE_RECOVERY_CLAIM_MODE.key,
    }
)
"""Settings that each run of a program gets anew; see also ``is_for_jobs``."""
RUN_SECONDS: Final = 300.0
"""A program that has submitted no job after so many seconds is ended."""
MOST_AT_ONCE: Final = 8
"""Programs other than applications that run at the same time, also those that have submitted their first job."""
MOST_APPLICATIONS: Final = 64
"""Applications whose programs run at the same time."""
_LOOK: Final = 0.05
"""Seconds between two looks at the answers of a program."""
_GRACE: Final = 10.0
"""Seconds between SIGTERM and SIGKILL."""
_ID: Final = re.compile(r"([0-9a-f-]{36})_([^/]+)")
_NAME: Final = re.compile(r"[^/\\\0]{1,200}")
_LONGEST_ERROR: Final = 8000
_DRAFT: Final = ".upload-"
_KEY: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_UPLOADS: Final = CallPool("uploaded programs")
_FETCHES: Final = CallPool("fetched programs", deadline=300.0)
"""Copies of programs and of their dependencies from file systems and through pip's index may take minutes."""


class UnknownProgramError(FiresteelError):
    """There is no uploaded program with this id."""


class ProgramFailedError(FiresteelError):
    """A program ended before it had submitted a job; the text has its error, or the end of its output."""


class BusyError(FiresteelError):
    """Raised where as many programs run already as may run at the same time."""


@dataclass(frozen=True)
class ProgramOrder:
    """A request to run an uploaded program.

    Attributes:
        program: id of the upload.
        entry: what of an archive is run: a module or ``module:function``; None: its ``__main__``.
        arguments: command line of the program.
        settings: of its jobs.
        job_id: id of its first job; None = a new id.
        path: of a program that was not uploaded; ``program`` does not count then.
    """

    program: str
    entry: str | None = None
    arguments: tuple[str, ...] = ()
    settings: Mapping[str, str] | None = None
    job_id: str | None = None
    path: Path | None = None


def order_again(archive: Archive, savepoint: str, *, drops_state: bool) -> ProgramOrder:
    """An order for the program of a job, with the same arguments and the same settings as before.

    Args:
        archive: of the job.
        savepoint: path of a savepoint or retained checkpoint from which the program goes on; empty = it begins anew.
        drops_state: whether state of operators that are not there any more is left out.

    Raises:
        ConfigurationError: the job was not submitted by an uploaded program.
    """
    config: Mapping[str, str] = archive["config"]
    program, settings = config.get(options.APPLICATION_UPLOAD.key), {}
    if program is None:
        raise ConfigurationError(
            f"Job {archive['jid']} was submitted from outside: the cluster has its graph, but not the program. Run it "
            "where it is: firesteel run [-s SAVEPOINT] PROGRAM"
        )
    own_file = str(program).partition("_")[2]
    for key, row in archive.get("firesteel-settings", {}).items():
        if row["origin"] == _COMMAND_LINE and key in config and is_for_jobs(key) and key not in _SET_BY_EACH_RUN:
            settings[key] = config[key]
    if options.PYTHON_FILES.key in settings:  # the upload itself is put there with each run
        files = settings[options.PYTHON_FILES.key].split(",")
        settings[options.PYTHON_FILES.key] = ",".join(file for file in files if not file.endswith(f"/{own_file}"))
    if savepoint:
        settings[options.STATE_RECOVERY_PATH.key] = savepoint
        settings[options.STATE_RECOVERY_IGNORE_UNCLAIMED.key] = "true" if drops_state else "false"
    arguments = json.loads(config.get(options.APPLICATION_ARGUMENTS.key, "[]"))
    return ProgramOrder(program, config.get(options.APPLICATION_ENTRY.key), tuple(arguments), settings)


class UploadedPrograms:
    """The uploaded programs of a cluster, and the processes that run programs.

    Args:
        directory: of uploads; None: a temporary directory that is removed at the end.
        token: opens the REST API to programs.
    """

    def __init__(self, directory: Path | None, token: str) -> None:
        self._directory, self.token = directory, token
        self._temporary: Path | None = None
        self._running: set[asyncio.subprocess.Process] = set()
        self._applications: set[asyncio.subprocess.Process] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    # -- uploads

    @property
    def directory(self) -> Path:
        """The directory of uploads, which is made at its first use.

        Raises:
            OSError: the directory can't be made.
        """
        if self._directory is not None:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            return self._directory
        if self._temporary is None:
            self._temporary = Path(tempfile.mkdtemp(prefix="firesteel-programs-"))
        return self._temporary

    async def add(self, name: str, pieces: AsyncIterator[bytes]) -> Path:
        """Store an upload; returns its path, whose last part is its id.

        Raises:
            ConfigurationError: the file is no Python program, or its name is not allowed.
            OSError: the file can't be stored.
        """
        name = os.path.basename(name.replace("\\", "/"))
        if not _NAME.fullmatch(name) or not name.lower().endswith(SUFFIXES):
            raise ConfigurationError(
                f"{name[:80]!r} is no program: its name has to end in one of {', '.join(SUFFIXES)}"
            )
        upload = await _UPLOADS.call(lambda: _Upload(self.directory))
        try:
            async for piece in pieces:
                await _UPLOADS.call(upload.write, piece)
            return await _UPLOADS.call(upload.finish, name)
        except BaseException:
            with suppress(OSError):  # a draft that stays goes at the next start
                await _UPLOADS.call(upload.discard)
            raise

    async def remove_drafts(self) -> None:
        """Remove the files of uploads that the end of a Dispatcher has cut off.

        Raises:
            OSError: the directory can't be read.
        """
        if self._directory is not None:
            await _UPLOADS.call(_remove_drafts, self._directory)

    async def listed(self) -> list[t.Program]:
        """All uploads in the shape of ``/jars``, the newest first.

        Raises:
            OSError: the directory can't be read.
        """
        return await _UPLOADS.call(self._look)

    def _look(self) -> list[t.Program]:
        programs: list[t.Program] = []
        for folder in self.directory.iterdir() if self._temporary or self._directory else ():
            for path in folder.iterdir() if folder.is_dir() and _KEY.fullmatch(folder.name) else ():
                entries = [] if path.suffix == ".py" else _entries(path)
                programs.append(
                    {
                        "id": f"{folder.name}_{path.name}",
                        "name": path.name,
                        "uploaded": int(path.stat().st_mtime * 1000),
                        "entry": [{"name": entry, "description": None} for entry in entries or [path.stem]],
                    }
                )
        return sorted(programs, key=lambda program: -program["uploaded"])

    async def find(self, program_id: str) -> Path:
        """The file of an upload.

        Raises:
            UnknownProgramError: there is no such upload.
        """
        match = _ID.fullmatch(program_id)
        if match is not None and (self._temporary or self._directory):
            path = self.directory / match[1] / match[2]
            if await _UPLOADS.call(path.is_file):
                return path
        raise UnknownProgramError(f"File {program_id[:120]!r} does not exist: GET /jars lists what was uploaded.")

    async def remove(self, program_id: str) -> None:
        """Remove an upload; jobs that it has submitted go on.

        Raises:
            UnknownProgramError: there is no such upload.
        """
        await _UPLOADS.call(shutil.rmtree, (await self.find(program_id)).parent, ignore_errors=True)

    # -- runs

    async def plan(self, order: ProgramOrder, rest_address: str) -> t.Plan:
        """Run a program up to its first job, which is not submitted; returns the plan of that job.

        Raises:
            UnknownProgramError, ProgramFailedError, BusyError, ConfigurationError: as they say.
        """
        async with _Run(self, order, rest_address, plan_only=True) as run:
            return cast(t.Plan, await run.first("plan"))

    async def run(self, order: ProgramOrder, rest_address: str) -> str:
        """Run a program until its first job is submitted, and let it go on then; returns the id of that job.

        Raises:
            UnknownProgramError, ProgramFailedError, BusyError, ConfigurationError: as they say.
        """
        async with _Run(self, order, rest_address, plan_only=False) as run:
            job_id = str(await run.first("job"))
            run.let_go()
            return job_id

    async def fetched(self, program: str, settings: Settings) -> Path:
        """The path of a program on this host; a program in a file system is copied to the directory of uploads.

        Args:
            program: path, local or of a file system (``s3://bucket/program.py``).
            settings: of the file system.

        Raises:
            ConfigurationError: there is no such file system, or no such file.
            OSError, FileSystemError: the program can't be read for now.
        """
        path = remote_program(program)
        return local_program(program) if path is None else await self._copied(path, "program", settings)

    async def _copied(self, path: str, role: str, settings: Settings) -> Path:
        """Copy a file of a file system to the directory of uploads; returns the path of the copy.

        Args:
            path: of the file, normalized.
            role: what the file is, for errors.
            settings: of the file system.
        """
        folder = self.directory / hashlib.sha256(path.encode()).hexdigest()[:32]
        target = folder / path.rpartition("/")[2]

        def copy() -> None:
            folder.mkdir(mode=0o700, exist_ok=True)
            draft = folder / f".{uuid.uuid4().hex}"  # another application may be reading the present file
            try:
                with FileSystems(settings).of(path).open(path) as source, draft.open("xb") as file:
                    shutil.copyfileobj(source, file)
                draft.replace(target)
            except FileNotFoundError as error:
                raise ConfigurationError(f"the {role} {path} is not there") from error
            finally:
                draft.unlink(missing_ok=True)

        await _FETCHES.call(copy)
        return target

    async def dependencies_fetched(self, job_settings: Mapping[str, str], settings: Settings) -> dict[str, str]:
        """Settings of jobs, with the files that travel with the jobs copied to this host; see ``fetched``.

        Args:
            job_settings: their ``python.files``, ``python.archives`` and ``python.requirements`` may name files in file
                systems.
            settings: of the file systems.

        Raises:
            ConfigurationError, OSError, FileSystemError: as ``fetched``.
        """
        fetched_settings = dict(job_settings)
        for option in (options.PYTHON_FILES, options.PYTHON_REQUIREMENTS, options.PYTHON_ARCHIVES):
            entries = []
            for entry in fetched_settings.get(option.key, "").split(","):
                path, mark, target = entry.strip().partition("#")
                remote = remote_path(path, option.key) if path else None
                if remote is not None:
                    path = str(await self._copied(remote, f"file of {option.key}", settings))
                entries.append(f"{path}{mark}{target}")
            if option.key in fetched_settings:
                fetched_settings[option.key] = ",".join(entries)
        return fetched_settings

    def main(self, order: ProgramOrder, rest_address: str, *, own: bool) -> Main:
        """The process of an application, not started yet.

        Args:
            order: its ``job_id`` is the application's id.
            rest_address: base URL of the REST API, where the program submits its jobs.
            own: whether this is the program of a cluster in application mode, which writes to the Dispatcher's output.
        """
        return Main(self, order, rest_address, own=own)

    async def check(self, order: ProgramOrder) -> Path:
        """The path of the program of an order, after a check that the order can be run.

        Raises:
            UnknownProgramError, BusyError, ConfigurationError: as they say.
        """
        path = await self.path_of(order)
        if path.suffix == ".py" and order.entry not in (None, MAIN, path.stem):
            raise ConfigurationError(f"entryClass = {order.entry!r:.80}: {path.name} is one module, run as it is")
        if len(self._applications) >= MOST_APPLICATIONS:
            raise BusyError(f"{MOST_APPLICATIONS} applications run already: try again when one has ended")
        return path

    async def path_of(self, order: ProgramOrder) -> Path:
        """The path of the program of an order.

        Raises:
            UnknownProgramError: there is no such upload.
            ConfigurationError: the file is not there, or is no Python program.
        """
        if order.path is None:
            return await self.find(order.program)
        await _UPLOADS.call(check_program, order.path, order.entry)
        return order.path

    def keep(self, task: asyncio.Task[None]) -> None:
        """Hold a reference to a task until it has ended: the event loop itself holds none."""
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def start(
        self,
        plain: Mapping[str, Any],
        output: Any,
        directory: Path | None,
        python: Prepared | None = None,
        *,
        is_application: bool,
    ) -> asyncio.subprocess.Process:
        """Start the process of an order; it dies with this process."""
        if not is_application and len(self._running) >= MOST_AT_ONCE:
            raise BusyError(f"{MOST_AT_ONCE} programs are being run already: try again when one of them has ended")
        process = await asyncio.create_subprocess_exec(
            sys.executable if python is None else python.python, "-P", "-m", "firesteel.client.program_process",
            stdin=asyncio.subprocess.PIPE, stdout=output, stderr=asyncio.subprocess.STDOUT,
            env=_environment(() if python is None else python.path), cwd=directory, start_new_session=True,
        )  # fmt: skip
        (self._applications if is_application else self._running).add(process)
        assert process.stdin is not None
        try:
            process.stdin.write(json.dumps(plain).encode() + b"\n")
            await process.stdin.drain()
        except ConnectionError:  # the process has ended already, and its answer says why
            pass
        finally:
            process.stdin.close()
        return process

    async def stop_process(self, process: asyncio.subprocess.Process) -> None:
        """Kill a process, with all processes that it has started."""
        try:
            if process.returncode is None:
                os.killpg(process.pid, 9)
        except ProcessLookupError:
            pass
        await process.wait()
        self._running.discard(process)
        self._applications.discard(process)

    async def forget(self, process: asyncio.subprocess.Process, folder: Path) -> None:
        """Wait for the end of a process that was let go, and remove its files."""
        try:
            await process.wait()
        finally:
            self._running.discard(process)
            shutil.rmtree(folder, ignore_errors=True)

    async def close(self) -> None:
        """End all processes; a temporary directory of uploads is removed."""
        for process in [*self._running, *self._applications]:
            await self.stop_process(process)
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)


class _Run:
    """The process of one run of an uploaded program."""

    def __init__(
        self,
        programs: UploadedPrograms,
        order: ProgramOrder,
        rest_address: str,
        *,
        plan_only: bool = False,
        is_application: bool = False,
        own: bool = False,
    ) -> None:
        self._programs, self._order, self._plan_only = programs, order, plan_only
        self._is_application, self._own = is_application, own
        self._path = Path(order.program)
        self._folder = Path(tempfile.mkdtemp(prefix="firesteel-run-"))
        self._rest = rest_address
        self._process: asyncio.subprocess.Process | None = None
        self._goes_on = False

    async def __aenter__(self) -> _Run:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.end()

    async def start(self) -> None:
        order, token = self._order, self._folder / "token"
        try:
            path = self._path = await self._programs.check(order)
            token.touch(mode=0o600)
            token.write_text(self._programs.token, encoding="utf-8")
            host, _, port = self._rest.removeprefix("http://").rpartition(":")
            settings = {
                **(order.settings or {}),
                "execution.target": "remote",
                **self._kind(),
                **self._origin(),
                "rest.address": host.strip("[]"),
                "rest.port": port,
                "firesteel.rest.token-file": str(token),
            }
            is_archive = path.suffix != ".py" and await _UPLOADS.call(path.is_file)
            if is_archive or (path.suffix != ".py" and order.entry is not None):
                files = [str(self._path), settings.get("python.files", "")]
                settings["python.files"] = ",".join(filter(None, files))
            entry = None if order.entry == MAIN else order.entry
            if entry is None and is_archive:
                entry = await _UPLOADS.call(default_entry, path)
            plain = {
                "program": str(self._path),
                "entry": entry,
                "arguments": list(order.arguments),
                "settings": settings,
                "plan_only": self._plan_only,
                "job_id": order.job_id,
                "is_application": self._is_application,
                "is_restarted": self._own,
                "parent": os.getpid(),
                "answer": str(self._folder / "answer"),
            }
            with (self._folder / "output").open("wb") as file:
                output, directory = (None, None) if self._own else (file, self._path.parent)
                python = await self._python(settings) if self._is_application else None
                start = self._programs.start
                self._process = await start(plain, output, directory, python, is_application=self._is_application)
        except BaseException:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise

    async def _python(self, settings: Mapping[str, str]) -> Prepared | None:
        """The Python environment of an application, which its jobs' slots have as well; None: this process's own."""
        chosen = Settings(settings)
        client = chosen.get(options.PYTHON_CLIENT_EXECUTABLE)
        if client is not None:
            chosen = Settings({**settings, options.PYTHON_EXECUTABLE.key: client})
        environment, blobs = await _FETCHES.call(python_environment, chosen)
        if not environment:
            return None
        for name, content in blobs.items():
            await _FETCHES.call((self._folder / name).write_bytes, content)

        async def fetch(_: str, __: str, names: list[str]) -> Mapping[str, str]:
            return {name: str(self._folder / name) for name in names}

        environments = PythonEnvironments(
            self._folder / "python", fetch, f"the Dispatcher, for main() of {self._path.name}"
        )
        seconds = chosen.get(options.PYTHON_ENVIRONMENT_TIMEOUT).total_seconds()
        plain = {**environment.to_plain(), "blob_address": "", "timeout_seconds": seconds}
        return await environments.prepare(str(self._order.job_id), plain)

    def _kind(self) -> dict[str, str]:
        """Settings that differ by kind: ``execute()`` of an application waits, and its jobs name the application."""
        if not self._is_application:
            return {"execution.attached": "false"}
        return {options.APPLICATION_ID.key: str(self._order.job_id)}

    def _origin(self) -> dict[str, str]:
        """Settings by which the jobs of an uploaded program tell how it was run."""
        order = self._order
        if order.path is not None:
            return {}
        entry = {} if order.entry is None else {options.APPLICATION_ENTRY.key: order.entry}
        arguments = {options.APPLICATION_ARGUMENTS.key: json.dumps(list(order.arguments))}
        return {options.APPLICATION_UPLOAD.key: order.program, **arguments, **entry}

    async def first(self, kind: str) -> Any:
        """Wait for the first answer of a kind.

        Raises:
            ProgramFailedError: the program ended without such an answer, or took too long.
        """
        process, deadline = self._process, time.monotonic() + RUN_SECONDS
        assert process is not None
        waiting_for_end = asyncio.get_running_loop().create_task(process.wait())
        try:
            while True:
                has_ended = waiting_for_end.done()
                lines = self._lines()
                for line in lines:
                    if kind in line:
                        return line[kind]
                if has_ended:
                    error = next((line["error"] for line in lines if "error" in line), None)
                    raise ProgramFailedError(self._failure(error))
                if time.monotonic() > deadline:
                    raise ProgramFailedError(f"the program had submitted no job after {RUN_SECONDS:g} s: it was ended")
                await asyncio.wait({waiting_for_end}, timeout=_LOOK)
        finally:
            waiting_for_end.cancel()

    def _lines(self) -> list[dict[str, Any]]:
        try:
            text = (self._folder / "answer").read_text(encoding="utf-8")
        except FileNotFoundError:
            return []
        return [json.loads(line) for line in text.split("\n")[:-1]]

    def _failure(self, error: str | None) -> str:
        if error is not None:
            return f"the program failed:\n{error[-_LONGEST_ERROR:]}"
        output = self._output_tail()
        return f"the program executes no job{f'; it said: {output}' if output else ''}"

    def _output_tail(self) -> str:
        """The end of the program's output; empty where the output goes to the Dispatcher's own."""
        try:
            return (self._folder / "output").read_text(encoding="utf-8", errors=ESCAPED)[-_LONGEST_ERROR:].strip()
        except OSError:
            return ""

    def let_go(self) -> None:
        """Let the program go on after ``end``."""
        assert self._process is not None
        self._goes_on = True
        waiting = self._programs.forget(self._process, self._folder)
        self._programs.keep(asyncio.get_running_loop().create_task(waiting))

    async def end(self) -> None:
        """Stop the process, unless it was let go."""
        if self._goes_on or self._process is None:
            return
        await self._programs.stop_process(self._process)
        shutil.rmtree(self._folder, ignore_errors=True)


class Main(_Run):
    """The process of an application."""

    def __init__(self, programs: UploadedPrograms, order: ProgramOrder, rest_address: str, *, own: bool) -> None:
        super().__init__(programs, order, rest_address, is_application=True, own=own)
        self._terminated_at: float | None = None

    @property
    def pid(self) -> int:
        """Id of the process, which has been started."""
        assert self._process is not None
        return self._process.pid

    def ended(self) -> MainEnd | None:
        """How the process ended; None: it runs."""
        process = self._process
        if process is None or process.returncode is None:
            return None
        lines = self._lines()
        failure = next((line for line in lines if "error" in line), None)
        if failure is not None:
            return MainEnd(process.returncode, str(failure["error"])[-_LONGEST_ERROR:], str(failure.get("class", "")))
        if process.returncode == 0:
            return MainEnd(0)
        code, output = process.returncode, self._output_tail()
        description = f"was ended by signal {-code}" if code < 0 else f"ended with {code}"
        return MainEnd(code, f"the process of the program {description}{f'; it said: {output}' if output else ''}")

    @property
    def was_killed(self) -> bool:
        """Whether the process ended by a signal that this process has not sent."""
        process = self._process
        return process is not None and (process.returncode or 0) < 0 and self._terminated_at is None

    async def wait(self, seconds: float) -> None:
        """Wait until the process has ended, or for so many seconds."""
        process = self._process
        if process is None or process.returncode is not None:
            await asyncio.sleep(seconds)
            return
        waiting = asyncio.get_running_loop().create_task(process.wait())
        try:
            await asyncio.wait({waiting}, timeout=seconds)
        finally:
            waiting.cancel()

    async def tell_to_end(self) -> None:
        """Send SIGTERM, which unwinds the program; a program that has not ended some time later is killed."""
        process = self._process
        if process is None or process.returncode is not None:
            return
        now = time.monotonic()
        if self._terminated_at is None:
            self._terminated_at = now
            process.terminate()
        elif now - self._terminated_at > _GRACE:
            logger.warning("the program %s did not end within %g s, and is killed", self._path.name, _GRACE)
            await self._programs.stop_process(process)


class _Upload:
    """A file on its way into a directory of uploads. Its methods block.

    The file is a draft until it is whole, checked and on the disk. Only then the directory lists it. A lock on the
    draft says that it is being written, since other Dispatchers may use the same directory.

    Raises:
        OSError: the file can't be stored; all methods raise it.
    """

    def __init__(self, directory: Path) -> None:
        self._directory, self._key = directory, str(uuid.uuid4())
        self._draft = directory / f"{_DRAFT}{self._key}"
        self._file = self._draft.open("xb")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP):
                raise

    def write(self, piece: bytes) -> None:
        self._file.write(piece)

    def finish(self, name: str) -> Path:
        """Have the upload listed under this name; returns the path whose last part is its id.

        Raises:
            ConfigurationError: the file is no Python program.
        """
        self._file.flush()
        check_content(self._draft, name)
        os.fsync(self._file.fileno())
        folder = self._directory / self._key
        folder.mkdir(mode=0o700)
        try:
            self._draft.rename(folder / name)
            sync_directory(folder)
            sync_directory(self._directory)
        except OSError:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        self._file.close()
        return self._directory / f"{self._key}_{name}"

    def discard(self) -> None:
        self._draft.unlink(missing_ok=True)
        with suppress(OSError):  # the rest of the buffer can't be written
            self._file.close()


def _remove_drafts(directory: Path) -> None:
    for draft in directory.glob(f"{_DRAFT}*") if directory.is_dir() else ():
        try:
            with draft.open("rb+") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                draft.unlink()
        except FileNotFoundError:  # another Dispatcher was faster
            continue
        except BlockingIOError:
            logger.debug("%s is being uploaded to another Dispatcher", draft)
            continue
        logger.info("%s, an upload that was cut off, was removed", draft)
    for folder in directory.iterdir() if directory.is_dir() else ():
        if _KEY.fullmatch(folder.name):
            with suppress(OSError):  # only an empty folder is removed: its upload was cut off at the very end
                folder.rmdir()


def _environment(path: Sequence[str]) -> dict[str, str]:
    """The environment of a program: without the cluster's secrets and configuration, since the order has all that the
    program needs of them."""
    variables = {name: value for name, value in without_secrets(os.environ).items() if name != "FIRESTEEL_CONF_DIR"}
    if path:
        variables["PYTHONPATH"] = os.pathsep.join(path)
    return variables


def _entries(path: Path) -> list[str]:
    try:
        return entries_of(path)
    except (zipfile.BadZipFile, OSError):
        return []
