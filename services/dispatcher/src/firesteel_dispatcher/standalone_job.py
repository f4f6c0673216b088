"""``firesteel-standalone-job``: a JobManager in application mode, as Flink's ``standalone-job.sh`` starts it.

It runs Dispatcher, ResourceManager and JobMaster host as processes of their own, and starts those again that die. The
Dispatcher runs the program. This process ends with the application, and its exit code tells how: 0 where the
application is FINISHED or CANCELED; the exit code of the program, or 1, where it FAILED; 143 where a signal has ended
the cluster before (the next start goes on with the application); 2 where command line or configuration is wrong.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import os
import secrets
import shutil
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from firesteel import __version__
from firesteel.client.cli.definitions import state_recovery
from firesteel.client.cli.refused import RefusedOption
from firesteel.config import options
from firesteel.config.derived import is_reactive
from firesteel.config.load import CONF_DIR_VARIABLE, CONFIG_FILE, load_settings
from firesteel.config.settings import Settings
from firesteel.core.environment import SECRET_VARIABLE, take
from firesteel.core.errors import ConfigurationError, FiresteelError, RunDirectoryError
from firesteel.core.ids import parse_job_id
from firesteel.core.run_directory import hold
from firesteel.core.text_output import escape_missing_characters
from firesteel.service.cluster_status import StatusFile
from firesteel.service.logs import setup_logging
from firesteel.service.pid_file import STANDBY, AlreadyRunningError, PidFile
from firesteel.service.process import cluster_directory
from firesteel.service.remains import end_remains
from firesteel.service.supervisor import (
    EXIT_TERMINATED,
    OVER,
    REFUSED,
    SERVICES,
    STOPPED,
    Supervisor,
    service_commands,
)
from firesteel_dispatcher.application_mode import ApplicationSettings
from firesteel_dispatcher.program_files import check_program, local_program, remote_program

logger = logging.getLogger(__name__)
NAME: Final = "standalone-job"
EXIT_FAILED: Final = 1
EXIT_WRONG: Final = 2
EXIT_GIVEN_UP: Final = 75
"""Exit code where services do not stay up (EX_TEMPFAIL): the program may be fine, and another start goes on with it."""
_PYTHON: Final = {
    "python_files": options.PYTHON_FILES,
    "python_requirements": options.PYTHON_REQUIREMENTS,
    "python_archives": options.PYTHON_ARCHIVES,
    "python_executable": options.PYTHON_EXECUTABLE,
    "client_executable": options.PYTHON_CLIENT_EXECUTABLE,
}


def parser() -> argparse.ArgumentParser:
    """The parser of the command line."""
    cli = argparse.ArgumentParser(
        prog="standalone-job.sh start|start-foreground",
        description="Starts a JobManager that runs one program, and ends with it.",
        allow_abbrev=False,
    )
    cli.add_argument("--version", action="version", version=f"firesteel {__version__}")
    cli.add_argument("-c", "--config-dir", "--configDir", type=Path, metavar="DIR", help="directory of config.yaml")
    cli.add_argument("-D", dest="definitions", action="append", default=[], metavar="KEY=VALUE", help="set an option")
    cli.add_argument("--log-file", type=Path, metavar="FILE", help="log there; logs of the services come beside it")
    cli.add_argument("--pid-file", type=Path, metavar="FILE", help="says which process this is, while it runs")
    cli.add_argument("--host", help="name of this host for the others; sets jobmanager.rpc.address")
    cli.add_argument("-r", "--webui-port", dest="rest_port", metavar="PORT", help="sets rest.port")
    cli.add_argument(
        "-py", "--python", dest="program", metavar="FILE",
        help="the program: a .py file, a directory or archive with a __main__.py, or a wheel",
    )  # fmt: skip
    cli.add_argument(
        "-pym", "--pyModule", dest="module", metavar="MODULE",
        help="what of a directory, an archive or -pyfs is run: a module, or module:function",
    )  # fmt: skip
    cli.add_argument("-pyfs", "--pyFiles", dest="python_files", metavar="FILES", help="sets python.files")
    cli.add_argument(
        "-pyreq", "--pyRequirements", dest="python_requirements", metavar="FILE", help="sets python.requirements"
    )
    cli.add_argument("-pyarch", "--pyArchives", dest="python_archives", metavar="FILES", help="sets python.archives")
    cli.add_argument(
        "-pyexec", "--pyExecutable", dest="python_executable", metavar="PYTHON", help="sets python.executable"
    )
    cli.add_argument(
        "-pyclientexec", "--pyClientExecutable", dest="client_executable", metavar="PYTHON",
        help="the Python that runs main(); sets python.client.executable",
    )  # fmt: skip
    cli.add_argument("-jid", "--job-id", metavar="ID", help="of the application and its first job: 32 hex digits")
    cli.add_argument("-s", "--fromSavepoint", dest="restore_path", metavar="PATH", help="its jobs go on from it")
    cli.add_argument(
        "-n", "--allowNonRestoredState", dest="ignore_unclaimed", action="store_true",
        help="drop state of operators that the program does not have any more",
    )  # fmt: skip
    cli.add_argument("--own-directory", type=Path, help=argparse.SUPPRESS)  # of `firesteel run-application`
    cli.add_argument("--while-stdin", action="store_true", help=argparse.SUPPRESS)  # stop at its end
    for spellings, instead in _REFUSED:
        cli.add_argument(*spellings, action=RefusedOption, nargs=0, instead=instead, help=argparse.SUPPRESS)
    cli.add_argument("arguments", nargs=argparse.REMAINDER, metavar="args", help="handed to the program")
    return cli


_REFUSED: Final = (
    (("-j", "--job-classname"), "Java programs don't run here; name a Python program with --python FILE"),
    (("--jars",), "no JVM runs the program: what it needs comes with --pyFiles, --pyRequirements and --pyArchives"),
)


def definitions_of(parsed: argparse.Namespace) -> list[str]:
    """Settings as ``key=value`` that the command line makes.

    Raises:
        ConfigurationError: the command line names no program, or a bad id.
    """
    definitions: list[str] = []
    if parsed.host is not None:
        definitions.append(f"{options.JOBMANAGER_RPC_ADDRESS.key}={parsed.host}")
    if parsed.rest_port is not None:
        definitions.append(f"{options.REST_PORT.key}={parsed.rest_port}")
    for name, option in _PYTHON.items():
        value = getattr(parsed, name)
        if value is not None:
            definitions.append(f"{option.key}={value}")
    program, entry = parsed.program, parsed.module
    if program is None and entry is not None:  # a module of one of the files that travel along, as in PyFlink
        files = [file for file in (parsed.python_files or "").split(",") if file.strip()]
        program = _holder_of(entry, files)
    if program is None:
        raise ConfigurationError("no program is named: --python FILE, or --pyModule MODULE with --pyFiles FILES")
    program_path = remote_program(program) or local_program(program)
    definitions.append(f"{options.APPLICATION_PROGRAM.key}={program_path}")
    if entry is not None:
        definitions.append(f"{options.APPLICATION_ENTRY.key}={entry}")
    if parsed.arguments:
        words = parsed.arguments[1:] if parsed.arguments[0] == "--" else parsed.arguments
        definitions.append(f"{options.APPLICATION_ARGUMENTS.key}={json.dumps(words)}")
    if parsed.job_id is not None:
        definitions.append(f"{options.APPLICATION_JOB_ID.key}={parse_job_id(parsed.job_id)}")
    return [*definitions, *state_recovery(parsed), *parsed.definitions]


def _holder_of(entry: str, files: Sequence[str]) -> str | None:
    """The one of several files, directories and archives that has a module; an archive is believed unread."""
    name = entry.partition(":")[0]
    for text in files:
        path = Path(text.strip()).expanduser().absolute()
        if path.suffix == ".py" and path.stem == name:
            return str(path)
        module = path / name.replace(".", "/")
        if module.with_name(f"{module.name}.py").is_file() or (module / "__init__.py").is_file():
            return str(path)
    archives = [text.strip() for text in files if text.strip().endswith((".zip", ".whl", ".egg"))]
    return archives[0] if archives else None


def main(argv: Sequence[str] | None = None) -> int:
    """Run the cluster until it ends; returns the exit code."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(EXIT_TERMINATED))
    escape_missing_characters()
    parsed = parser().parse_args(argv)
    folder: Path | None = parsed.config_dir
    if folder is None and os.environ.get(CONF_DIR_VARIABLE):
        folder = Path(os.environ[CONF_DIR_VARIABLE])
    folder = None if folder is None else folder.absolute()
    try:
        definitions = definitions_of(parsed)
        settings = load_settings(config_file=None if folder is None else folder / CONFIG_FILE, definitions=definitions)
        settings.check()
        is_reactive(settings)
        application = ApplicationSettings.from_settings(settings)
        assert application is not None
        path = Path(application.program)
        if remote_program(application.program) is None:
            check_program(path, None if path.suffix == ".py" else application.entry)
        if path.suffix == ".py":  # one module is run as it is
            entry_prefix = f"{options.APPLICATION_ENTRY.key}="
            definitions = [text for text in definitions if not text.startswith(entry_prefix)]
        directory = cluster_directory(settings, folder)
        with contextlib.ExitStack() as stack:
            setup_logging(file=parsed.log_file)
            if parsed.own_directory is not None:
                stack.callback(os.close, hold(parsed.own_directory))
            pid_file = stack.enter_context(PidFile(parsed.pid_file)) if parsed.pid_file else None
            return _run(definitions, settings, folder, directory, parsed, pid_file)
    except (ConfigurationError, RunDirectoryError) as error:
        return _refuse(str(error), EXIT_WRONG)
    except (AlreadyRunningError, OSError, FiresteelError) as error:
        return _refuse(str(error), EXIT_FAILED)


def _run(
    definitions: Sequence[str],
    settings: Settings,
    folder: Path | None,
    directory: Path,
    parsed: argparse.Namespace,
    pid_file: PidFile | None,
) -> int:
    log_file: Path | None = parsed.log_file
    start = secrets.token_hex(8)
    status_file = StatusFile(directory / f"application-{start}.json")
    secret = take(SECRET_VARIABLE, os.environ)
    secret_file = directory / f"secret-{start}"
    if secret is not None:  # slots could see it in the environment of this process, and of those that it starts
        write_private(secret_file, secret)
        definitions = [*definitions, f"{options.SECRET_FILE.key}={secret_file}"]
    logs: dict[str, Path] = {}
    if log_file is not None:
        log_file = log_file.absolute()
        for name in SERVICES:
            log_name = log_file.name.replace(NAME, name) if NAME in log_file.name else f"{name}-{log_file.name}"
            logs[name] = log_file.with_name(log_name)
    status_definitions = [f"{options.APPLICATION_START_ID.key}={start}", status_file.definition]
    commands = service_commands(folder, [*definitions, *status_definitions], logs)
    dispatcher_pid = directory / f"dispatcher-{start}.pid"
    commands["dispatcher"] += ["--pid-file", str(dispatcher_pid)]
    out = {name: log.with_suffix(".out") for name, log in logs.items()}

    def started() -> bool:
        status = status_file.read()
        if not status.id:
            lines = dispatcher_pid.read_text().splitlines() if dispatcher_pid.exists() else []
            if pid_file is not None and lines[2:] == [STANDBY]:
                pid_file.stands_by()
            return False
        print(f"application {status.id} ({status.name}): {status.rest}", flush=True)
        if pid_file is not None:
            pid_file.listens_on(status.rest)
        return True

    while_open = sys.stdin if parsed.while_stdin else None
    reason = Supervisor(commands, out, lambda: status_file.read().ends(settings), started, while_open).run()
    status = status_file.read()
    try:
        for file in (status_file.path, secret_file, dispatcher_pid):
            file.unlink(missing_ok=True)
        for sentence in end_remains(directory):
            logger.info("%s", sentence)
        if parsed.own_directory is not None:  # logs stay
            workers = directory / "workers"
            if workers.is_dir():
                leave_out = shutil.ignore_patterns("conf", "*.pid")
                shutil.copytree(workers, parsed.own_directory / "log" / "workers", ignore=leave_out)
            for name in ("cluster", "conf"):
                shutil.rmtree(parsed.own_directory / name, ignore_errors=True)
    except OSError as error:
        logger.warning("not all was removed: %s", error)
    if reason == OVER and not status.id:
        print("the cluster was ended", flush=True)
        return 0
    if reason == OVER:
        for exception in status.exceptions:
            print(f"firesteel-{NAME}: {exception.name}: {exception.stacktrace}", file=sys.stderr)
        state = status.state
        if status.exceptions:  # Kubernetes shows the last line, and which of both streams is last there is chance
            state += ": " + status.exceptions[-1].stacktrace.strip().rpartition("\n")[2]
        print(f"application {status.id} ({status.name}) is {state}", flush=True)
        return status.exit_code or 0
    if reason == STOPPED:
        logger.info("stopped by a signal; the next start goes on with the application")
        return EXIT_TERMINATED
    code = EXIT_WRONG if reason.endswith(REFUSED) else EXIT_GIVEN_UP
    return _refuse(f"gives up: {reason}; see the logs of the services", code)


def write_private(path: Path, text: str) -> None:
    """Write a file that only this user can read."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        file.write(text)


def _refuse(sentence: str, code: int) -> int:
    if logging.getLogger().handlers:
        logger.error("%s", sentence)
    print(f"firesteel-{NAME}: {sentence}", file=sys.stderr, flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
