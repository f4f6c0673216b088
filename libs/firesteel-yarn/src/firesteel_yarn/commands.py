"""Clusters on YARN: ``yarn-session``, ``run-application -t yarn``, ``yarn-logs``, and how other verbs find them."""

from __future__ import annotations

import argparse
import atexit
import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from firesteel.client.cli import exit_codes
from firesteel.client.cli.definitions import read, settings_of, state_recovery
from firesteel.client.connections import close_connections, connect
from firesteel.client.console import Console
from firesteel.config import options
from firesteel.config.load import CONF_DIR_VARIABLE, CONFIG_FILE, load_settings
from firesteel.config.option import Option
from firesteel.config.settings import Settings
from firesteel.core.errors import ConfigurationError, FiresteelError
from firesteel.core.ids import parse_job_id
from firesteel.core.secret import read_secret_file
from firesteel.core.text_output import ESCAPED
from firesteel_yarn.client import Report, Yarn, YarnSubmission, connected
from firesteel_yarn.gateway import YarnError

TARGET: Final = "yarn-session"
_HERE: Final = "{{PWD}}"
_SESSION_NAME, _APPLICATION_NAME = "Firesteel session cluster", "Firesteel application"
_SHIPPED: Final[Mapping[str, Option[str | None]]] = {
    "python_files": options.PYTHON_FILES,
    "python_requirements": options.PYTHON_REQUIREMENTS,
    "python_archives": options.PYTHON_ARCHIVES,
}


# -- verbs that need a cluster


def use_cluster(parsed: argparse.Namespace, console: Console) -> bool:
    """Send the command to the application on YARN that the command line or the settings name; False = they name none.

    Raises:
        ConfigurationError: the target is YARN, and no application is named.
        YarnError: the application has no usable cluster.
    """
    target = getattr(parsed, "target", None)
    settings = load_settings(definitions=read(parsed))
    if target is None and settings.is_set(options.EXECUTION_TARGET):
        target = settings.get(options.EXECUTION_TARGET)
    application = getattr(parsed, "yarn_application", None) or settings.get(options.YARN_APPLICATION_ID)
    if application is None:
        if target == TARGET:
            raise ConfigurationError(
                f"-t {TARGET}: say which application: -D{options.YARN_APPLICATION_ID.key}=application_..., as "
                "`firesteel yarn-session` prints it"
            )
        return False
    if target not in (None, TARGET, "remote"):
        return False
    with connected(settings) as yarn:
        application_report = yarn.report(application)
        if not application_report.has_ended and not application_report.rest:
            console.note(f"{application} is {application_report.state}; its cluster is waited for")
            application_report = yarn.wait(application, lambda report: bool(report.rest), console.note)
        if application_report.has_ended:
            raise YarnError(f"{application} has no cluster any more: {_ended(application_report)}")
        token = yarn.token(application)
    if token is None and not settings.is_set(options.REST_TOKEN_FILE) and not settings.is_set(options.SECRET_FILE):
        console.note(
            f"there is no token of {application} in the staging directory of this user: it was started by "
            f"{application_report.user}, or with another {options.YARN_STAGING.key}"
        )
    definitions = _rest_definitions(application_report, token)
    parsed.definitions += definitions
    if target is not None:
        parsed.target = "remote"
        parsed.definitions.append(f"{options.EXECUTION_TARGET.key}=remote")
    return True


def _rest_definitions(report: Report, token: str | None) -> list[str]:
    url = urlsplit(report.rest)
    definitions = [f"{options.REST_ADDRESS.key}={url.hostname}", f"{options.REST_PORT.key}={url.port}"]
    if token is not None:
        folder = Path(tempfile.mkdtemp(prefix="firesteel-token-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        file = folder / "rest-token"
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as out:
            out.write(token)
        definitions.append(f"{options.REST_TOKEN_FILE.key}={file}")
    return definitions


# -- new clusters


def yarn_session(parsed: argparse.Namespace, console: Console) -> int:
    """Run ``firesteel yarn-session``."""
    settings = _settings(parsed)
    if parsed.stop or parsed.yarn_application is not None:
        return _existing(parsed, settings, console)
    with connected(settings) as yarn:
        application = yarn.submit(YarnSubmission(settings, _SESSION_NAME, token=_own_token(settings)))
        report = _await_start(yarn, application, console)
        console.say_result(
            parsed.json,
            f"{application}: session cluster at {report.rest} (through YARN: {report.tracking})",
            {"application": application, "rest": report.rest, "tracking": report.tracking},
        )
        if parsed.detached:
            if not parsed.json:
                console.note(
                    f"`firesteel run -t {TARGET} -D{options.YARN_APPLICATION_ID.key}={application} program.py` runs a "
                    f"program there; `firesteel yarn-session --stop -id {application}` ends it"
                )
            return exit_codes.DONE
        return _follow(yarn, report, console)


def _existing(parsed: argparse.Namespace, settings: Settings, console: Console) -> int:
    application = parsed.yarn_application or settings.get(options.YARN_APPLICATION_ID)
    if application is None:
        raise ConfigurationError("--stop: say which session, with -id application_...")
    with connected(settings) as yarn:
        report = yarn.report(application)
        if report.has_ended:
            raise YarnError(f"{application} has ended: {_ended(report)}")
        if parsed.stop:
            return _stop(yarn, report, console)
        console.say(f"{application}: session cluster at {report.rest} (through YARN: {report.tracking})")
        return _follow(yarn, report, console)


def run_application(parsed: argparse.Namespace, console: Console) -> int:
    """Run ``firesteel run-application -t yarn``."""
    settings = _settings(parsed)
    ship: dict[str, str] = {}
    definitions = _program(parsed, ship)
    for name, option in _SHIPPED.items():
        text = settings.get(option)
        if text is not None:
            definitions.append(f"{option.key}={_ship_each(text, ship, name)}")
    settings = settings.with_layer("command line", dict(_pair(text) for text in definitions))
    with connected(settings) as yarn:
        name = f"{_APPLICATION_NAME}: {Path(parsed.program).name}"
        application = yarn.submit(YarnSubmission(settings, name, ship, _own_token(settings)))
        application_report = _await_start(yarn, application, console)
        if not application_report.has_ended:
            console.say_result(
                parsed.json and parsed.detached,
                f"application {application}: {application_report.rest} (through YARN: {application_report.tracking})",
                {"application": application, "rest": application_report.rest, "tracking": application_report.tracking},
            )
        if parsed.detached and not application_report.has_ended:
            return exit_codes.DONE
        try:
            application_report = yarn.wait(application, lambda report: False, console.note)
        except KeyboardInterrupt:
            if parsed.shutdown_on_exit:
                console.note("firesteel run-application: interrupted; the application ends")
                yarn.kill(application)
            else:
                console.note(
                    "firesteel run-application: left; the application runs on, and `yarn application -kill "
                    f"{application}` ends it"
                )
            return exit_codes.INTERRUPTED
    console.say(f"application {application} is {application_report.state}/{application_report.final}")
    if application_report.diagnostics:
        console.note(application_report.diagnostics)
    was_cancelled = application_report.state == "FINISHED" and application_report.final == "KILLED"
    return exit_codes.DONE if application_report.final == "SUCCEEDED" or was_cancelled else exit_codes.FAILED


def yarn_logs(parsed: argparse.Namespace, console: Console) -> int:
    """Run ``firesteel yarn-logs``."""
    settings = settings_of(parsed)
    application = parsed.application or settings.get(options.YARN_APPLICATION_ID)
    if application is None:
        raise ConfigurationError("say which application: yarn-logs application_...")
    with connected(settings) as yarn, tempfile.TemporaryDirectory(prefix="firesteel-logs-") as folder:
        report = yarn.report(application)
        if not report.has_ended:
            console.note(
                f"{application} is {report.state}: YARN collects logs when it has ended. Until then `firesteel logs "
                f"-D{options.YARN_APPLICATION_ID.key}={application}` shows them, and nodes do:"
            )
            for container, node, url in yarn.containers(application):
                console.say(f"{container} on {node}: {url}")
            return exit_codes.DONE
        path = Path(folder, "logs")
        if not yarn.logs(application, path):
            raise YarnError(
                f"YARN has no logs of {application}: they are collected a few seconds after its end, where "
                "yarn.log-aggregation-enable is true"
            )
        with path.open(encoding="utf-8", errors=ESCAPED) as lines:
            for line in lines:
                console.say(line.rstrip("\n"))
    return exit_codes.DONE


# -- helpers


def _settings(parsed: argparse.Namespace) -> Settings:
    folder = os.environ.get(CONF_DIR_VARIABLE)
    words = [f"{key}={value}" for key, value in _of_options(parsed).items() if value is not None]
    settings = load_settings(
        config_file=Path(folder) / CONFIG_FILE if folder else None, definitions=[*words, *read(parsed)]
    )
    settings.check()
    return settings


def _of_options(parsed: argparse.Namespace) -> dict[str, str | None]:
    """Settings for the options of Flink's ``yarn-session.sh``."""
    return {
        options.YARN_NAME.key: getattr(parsed, "name", None),
        options.YARN_QUEUE.key: getattr(parsed, "queue", None),
        options.YARN_TYPE.key: getattr(parsed, "application_type", None),
        options.YARN_NODE_LABEL.key: getattr(parsed, "node_label", None),
        options.YARN_SHIP_FILES.key: getattr(parsed, "ship", None),
        options.TASKMANAGER_SLOTS.key: getattr(parsed, "slots", None),
        options.JOBMANAGER_MEMORY.key: _memory(getattr(parsed, "jobmanager_memory", None)),
        options.MEMORY_PROCESS_SIZE.key: _memory(getattr(parsed, "taskmanager_memory", None)),
    }


def _memory(text: str | None) -> str | None:
    """Memory size; a bare number of these options means MiB, as in Flink."""
    return f"{text}m" if text is not None and text.isdecimal() else text


def _own_token(settings: Settings) -> str | None:
    named = settings.get(options.REST_TOKEN_FILE)
    return None if named is None else read_secret_file(Path(os.environ.get(CONF_DIR_VARIABLE, ""), named))


def _await_start(yarn: Yarn, application: str, console: Console) -> Report:
    console.note(f"{application} is submitted")
    try:
        started = yarn.wait(application, lambda report: report.state == "RUNNING" and bool(report.rest), console.note)
    except KeyboardInterrupt:
        yarn.kill(application)
        raise
    if started.has_ended and started.final != "SUCCEEDED":
        raise YarnError(
            f"{application} did not start: {_ended(started)}; `firesteel yarn-logs {application}` shows more"
        )
    return started


def _follow(yarn: Yarn, session: Report, console: Console) -> int:
    """Wait until a session ends; Ctrl-C ends it."""
    console.note("Ctrl-C ends the session.")
    try:
        ended = yarn.wait(session.id, lambda report: False, console.note)
    except KeyboardInterrupt:
        _stop(yarn, yarn.report(session.id), console)
        return exit_codes.INTERRUPTED
    console.note(f"{session.id} has ended: {_ended(ended)}")
    return exit_codes.DONE if ended.final == "SUCCEEDED" else exit_codes.FAILED


def _stop(yarn: Yarn, session: Report, console: Console) -> int:
    """End a session through its own cluster; if that does not answer, through YARN."""
    definitions = _rest_definitions(session, yarn.token(session.id))
    try:
        connection = connect(load_settings(definitions=definitions))
        connection.loop.run(connection.rest.shut_down_cluster())
    except FiresteelError as error:
        console.note(f"{session.id} does not end by itself ({error}); YARN kills it")
        yarn.kill(session.id)
    finally:
        close_connections()
    ended = yarn.wait(session.id, lambda report: False, console.note)
    console.say(f"{session.id} has ended: {_ended(ended)}")
    return exit_codes.DONE


def _ended(report: Report) -> str:
    text = f"{report.state}, {report.final}"
    return f"{text}: {report.diagnostics}" if report.diagnostics else text


def _program(parsed: argparse.Namespace, ship: dict[str, str]) -> list[str]:
    """Settings of a program; ``ship`` gets the files that the ApplicationMaster needs."""
    program, definitions = str(parsed.program), list[str]()
    if parsed.as_module:
        definitions.append(f"{options.APPLICATION_ENTRY.key}={program}")
        name = program.partition(":")[0].replace(".", "/")
        program = str(Path.cwd())
        if not Path(f"{name}.py").is_file() and not Path(name).is_dir():
            raise ConfigurationError(f"-pym {parsed.program}: there is no such module in this directory")
    if ":/" not in program or program.startswith("file:"):
        path = Path(program.removeprefix("file://")).expanduser().absolute()
        if not path.exists():
            raise ConfigurationError(f"there is no program {program}")
        program = _shipped(path, ship)
    definitions.append(f"{options.APPLICATION_PROGRAM.key}={program}")
    if parsed.arguments:
        words = parsed.arguments[1:] if parsed.arguments[0] == "--" else parsed.arguments
        definitions.append(f"{options.APPLICATION_ARGUMENTS.key}={json.dumps(words)}")
    if parsed.job_id is not None:
        definitions.append(f"{options.APPLICATION_JOB_ID.key}={parse_job_id(parsed.job_id)}")
    definitions += state_recovery(parsed)
    return definitions


def _ship_each(text: str, ship: dict[str, str], name: str) -> str:
    """Replace paths of this host, in a list with commas, by paths in the container."""
    parts = []
    for entry in filter(None, (part.strip() for part in text.split(","))):
        location, mark, fragment = entry.partition("#")
        path = Path(location.removeprefix("file://")).expanduser()
        if ":/" not in location or location.startswith("file:"):
            if not path.exists():
                raise ConfigurationError(f"{name}: there is no file {location}")
            location = _shipped(path.absolute(), ship)
        parts.append(f"{location}{mark}{fragment}")
    return ",".join(parts)


def _shipped(path: Path, ship: dict[str, str]) -> str:
    if ship.setdefault(path.name, str(path)) != str(path):
        raise ConfigurationError(f"{ship[path.name]} and {path} have the same name in the container: rename one")
    return f"{_HERE}/{path.name}"


def _pair(text: str) -> tuple[str, str]:
    key, _, value = text.partition("=")
    return key, value
