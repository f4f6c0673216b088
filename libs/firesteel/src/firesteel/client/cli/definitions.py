"""Turns options of the command line into ``key=value`` definitions; later definitions win over earlier ones."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from firesteel.checkpoint.places import absolute_path
from firesteel.client.cli.arguments import SAVEPOINT
from firesteel.config import options
from firesteel.config.definitions import hand_on
from firesteel.config.load import load_settings, parse_definitions
from firesteel.config.option import Option
from firesteel.config.settings import Settings
from firesteel.core.errors import ConfigurationError

_PYTHON: Final[Mapping[str, Option[str | None]]] = {
    "python_files": options.PYTHON_FILES,
    "python_requirements": options.PYTHON_REQUIREMENTS,
    "python_archives": options.PYTHON_ARCHIVES,
    "python_executable": options.PYTHON_EXECUTABLE,
    "client_executable": options.PYTHON_CLIENT_EXECUTABLE,
}


def read(parsed: argparse.Namespace) -> list[str]:
    """The definitions of ``-D``, ``-m``, ``-p``, and the options about Python (``-pyfs``, ``-pyreq`` …).

    Raises:
        ConfigurationError: a definition or an address is malformed.
    """
    definitions = list(parsed.definitions)
    parse_definitions(definitions)
    if getattr(parsed, "jobmanager", None) is not None:
        host, port = _host_and_port(parsed.jobmanager)
        definitions += [_define(options.REST_ADDRESS, host), _define(options.REST_PORT, str(port))]
    if getattr(parsed, "parallelism", None) is not None:
        definitions.append(_define(options.PARALLELISM_DEFAULT, str(parsed.parallelism)))
    for name, option in _PYTHON.items():
        if getattr(parsed, name, None) is not None:
            definitions.append(_define(option, getattr(parsed, name)))
    return definitions


def state_recovery(parsed: argparse.Namespace) -> list[str]:
    """The definitions of the savepoint that the program's jobs start from: ``-s``, ``-claim`` and ``-n``."""
    definitions = []
    if parsed.restore_path is not None:
        definitions.append(_define(options.STATE_RECOVERY_PATH, absolute_path(parsed.restore_path)))
    if getattr(parsed, "claim_mode", None) is not None:
        definitions.append(_define(options.STATE_RECOVERY_CLAIM_MODE, parsed.claim_mode.upper()))
    if parsed.ignore_unclaimed:
        definitions.append(_define(options.STATE_RECOVERY_IGNORE_UNCLAIMED, "true"))
    return definitions


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
    definitions = [_define(options.EXECUTION_ATTACHED, "false" if parsed.detached else "true")]
    if parsed.shutdown_on_exit:
        definitions.append(_define(options.EXECUTION_SHUTDOWN_ON_ATTACHED_EXIT, "true"))
    definitions += [*state_recovery(parsed), *read(parsed)]
    if parsed.target is not None:
        definitions.append(_define(options.EXECUTION_TARGET, parsed.target))
    return _handed_on(definitions)


def settings_of_upgrade(parsed: argparse.Namespace) -> Settings:
    """All settings of ``firesteel upgrade``, which are handed on to the program.

    Raises:
        ConfigurationError: something is wrong with them.
    """
    parsed.restore_path = parsed.restore_path or _savepoint_among(parsed.arguments)
    return _handed_on([*state_recovery(parsed), *read(parsed)])


def _savepoint_among(arguments: list[str]) -> str:
    """Take ``-s PATH`` out of the program's arguments, where argparse leaves it when it stands behind the program.

    Raises:
        ConfigurationError: there is none.
    """
    for position, word in enumerate(arguments[:-1]):
        if word in SAVEPOINT:
            path = arguments[position + 1]
            del arguments[position : position + 2]
            return path
    raise ConfigurationError("which savepoint or checkpoint? Say it with -s PATH")


def settings_of_info(parsed: argparse.Namespace) -> Settings:
    """All settings of ``firesteel info``, which are handed on to the program.

    Raises:
        ConfigurationError: something is wrong with them.
    """
    return _handed_on(read(parsed))


def _handed_on(definitions: list[str]) -> Settings:
    """Check the settings and hand them on to the program; it runs on a remote cluster unless they say otherwise."""
    settings = load_settings(definitions=definitions)
    if not settings.is_set(options.EXECUTION_TARGET):
        definitions.append(_define(options.EXECUTION_TARGET, "remote"))
        settings = load_settings(definitions=definitions)
    settings.check()
    hand_on(definitions)
    return settings


def _define(option: Option[Any], text: str) -> str:
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
