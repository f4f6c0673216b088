"""From the options of the command line to ``key=value`` definitions, of which the later win."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from firesteel.client.cli.arguments import SAVEPOINT
from firesteel.config import options
from firesteel.config.definitions import hand_on
from firesteel.config.load import load_settings, parse_definitions
from firesteel.config.option import ConfigOption
from firesteel.config.settings import Settings
from firesteel.core.errors import ConfigurationError

_PYTHON: Final[Mapping[str, ConfigOption[str | None]]] = {
    "python_files": options.PYTHON_FILES,
    "python_requirements": options.PYTHON_REQUIREMENTS,
    "python_archives": options.PYTHON_ARCHIVES,
    "python_executable": options.PYTHON_EXECUTABLE,
    "client_executable": options.PYTHON_CLIENT_EXECUTABLE,
}


def read(parsed: argparse.Namespace) -> list[str]:
    """The definitions of ``-D``, ``-m``, ``-p``, ``-pyfs`` and its sisters.

    Raises:
        ConfigurationError: one is malformed.
    """
    found = list(parsed.definitions)
    parse_definitions(found)
    if getattr(parsed, "jobmanager", None) is not None:
        host, port = _host_and_port(parsed.jobmanager)
        found += [_define(options.REST_ADDRESS, host), _define(options.REST_PORT, str(port))]
    if getattr(parsed, "parallelism", None) is not None:
        found.append(_define(options.PARALLELISM_DEFAULT, str(parsed.parallelism)))
    for name, option in _PYTHON.items():
        if getattr(parsed, name, None) is not None:
            found.append(_define(option, getattr(parsed, name)))
    return found


def state_recovery(parsed: argparse.Namespace) -> list[str]:
    """The definitions of what the jobs of a program go on from: ``-s``, ``-claim`` and ``-n``."""
    found = []
    if parsed.restore_path is not None:
        found.append(_define(options.STATE_RECOVERY_PATH, absolute(parsed.restore_path)))
    if getattr(parsed, "claim_mode", None) is not None:
        found.append(_define(options.STATE_RECOVERY_CLAIM_MODE, parsed.claim_mode.upper()))
    if parsed.ignore_unclaimed:
        found.append(_define(options.STATE_RECOVERY_IGNORE_UNCLAIMED, "true"))
    return found


def absolute(path: str) -> str:
    """A path as processes elsewhere find it; a URI stays as it is."""
    return path if ":/" in path else str(Path(path).absolute())


def settings_of(parsed: argparse.Namespace) -> Settings:
    """All settings of a verb that runs no program.

    Raises:
        ConfigurationError: something is wrong with them.
    """
    settings = load_settings(definitions=read(parsed))
    settings.check()
    return settings


def settings_of_run(parsed: argparse.Namespace) -> Settings:
    """All settings of ``firesteel run``, which are handed on to the program.

    Raises:
        ConfigurationError: something is wrong with them.
    """
    found = [_define(options.EXECUTION_ATTACHED, "false" if parsed.detached else "true")]
    if parsed.shutdown_on_exit:
        found.append(_define(options.EXECUTION_SHUTDOWN_ON_ATTACHED_EXIT, "true"))
    found += [*state_recovery(parsed), *read(parsed)]
    if parsed.target is not None:
        found.append(_define(options.EXECUTION_TARGET, parsed.target))
    elif not load_settings(definitions=found).is_set(options.EXECUTION_TARGET):
        found.append(_define(options.EXECUTION_TARGET, "remote"))
    return _checked(found)


def settings_of_upgrade(parsed: argparse.Namespace) -> Settings:
    """All settings of ``firesteel upgrade``, which are handed on to the program.

    Raises:
        ConfigurationError: something is wrong with them.
    """
    parsed.restore_path = parsed.restore_path or _savepoint_among(parsed.arguments)
    found = [*state_recovery(parsed), *read(parsed)]
    if not load_settings(definitions=found).is_set(options.EXECUTION_TARGET):
        found.append(_define(options.EXECUTION_TARGET, "remote"))
    return _checked(found)


def _savepoint_among(arguments: list[str]) -> str:
    """The savepoint that stands behind the program, among its arguments, and is none of them."""
    for at, word in enumerate(arguments[:-1]):
        if word in SAVEPOINT:
            path = arguments[at + 1]
            del arguments[at : at + 2]
            return path
    raise ConfigurationError("which savepoint or checkpoint? Say it with -s PATH")


def settings_of_info(parsed: argparse.Namespace) -> Settings:
    """All settings of ``firesteel info``, which are handed on to the program.

    Raises:
        ConfigurationError: something is wrong with them.
    """
    found = read(parsed)
    if not load_settings(definitions=found).is_set(options.EXECUTION_TARGET):
        found.append(_define(options.EXECUTION_TARGET, "remote"))
    return _checked(found)


def _checked(definitions: list[str]) -> Settings:
    settings = load_settings(definitions=definitions)
    settings.check()
    hand_on(definitions)
    return settings


def _define(option: ConfigOption[Any], text: str) -> str:
    return f"{option.key}={text}"


def _host_and_port(text: str) -> tuple[str, int]:
    address = text.removeprefix("http://").rstrip("/")
    try:
        parts = urlsplit(f"//{address}")
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if not host or not port or "@" in address or "/" in address:
        raise ConfigurationError(f"-m {text}: expected host:port of the REST API, such as localhost:8081")
    return host, port
