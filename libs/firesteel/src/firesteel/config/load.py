"""Loading settings, in the order: config.yaml, environment, command line, program; later layers win.

* ``config.yaml`` is looked for in the directory that ``FIRESTEEL_CONF_DIR`` names. Keys may be nested or flat.
* Environment: ``FIRESTEEL_OPTION_REST_PORT=8082`` sets ``rest.port``: upper case, every other character is ``_``.
* Command line: ``-Drest.port=8082``.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from firesteel.config.keys import environment_form, flink_keys, near
from firesteel.config.option import MAP
from firesteel.config.options import OPTIONS
from firesteel.config.settings import Settings
from firesteel.core.errors import ConfigurationError

__all__ = [
    "CONFIG_FILE",
    "CONF_DIR_VARIABLE",
    "ENVIRONMENT_PREFIX",
    "load_settings",
    "parse_definitions",
    "read_config_file",
    "read_environment",
]

CONF_DIR_VARIABLE = "FIRESTEEL_CONF_DIR"
CONFIG_FILE = "config.yaml"
ENVIRONMENT_PREFIX = "FIRESTEEL_OPTION_"


def load_settings(
    *,
    environ: Mapping[str, str] | None = None,
    config_file: Path | None = None,
    definitions: Iterable[str] = (),
    program: Mapping[str, Any] | None = None,
) -> Settings:
    """Loads all layers.

    Args:
        environ: environment variables; None is the process's own.
        config_file: file to read instead of the one that ``FIRESTEEL_CONF_DIR`` leads to.
        definitions: ``key=value`` of the command line's ``-D``.
        program: what the program set.

    Raises:
        ConfigurationError: a file can't be read, or a name or form is wrong. Values are checked by ``check()``.
    """
    environ = os.environ if environ is None else environ
    settings = Settings()
    if config_file is None and environ.get(CONF_DIR_VARIABLE):
        config_file = Path(environ[CONF_DIR_VARIABLE]) / CONFIG_FILE
    if config_file is not None:
        settings = settings.with_layer(str(config_file), read_config_file(config_file))
    settings = settings.with_layer("environment", read_environment(environ))
    settings = settings.with_layer("command line", parse_definitions(definitions))
    return settings.with_layer("program", program or {})


class _Loader(yaml.BaseLoader):
    """Scalars stay text, so that ``yes``, ``1_000`` and ``12:30`` mean what they say; no key may stand twice."""


def _mapping(loader: _Loader, node: yaml.MappingNode) -> dict[str, Any]:
    mapping: dict[str, Any] = {}
    for key_node, value_node in node.value:
        key = loader.construct_object(key_node, deep=True)
        if not isinstance(key, str):
            raise yaml.constructor.ConstructorError(None, None, "a key must be text", key_node.start_mark)
        if key in mapping:
            raise yaml.constructor.ConstructorError(None, None, f"{key} stands twice", key_node.start_mark)
        mapping[key] = loader.construct_object(value_node, deep=True)
    return mapping


_Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)


def read_config_file(path: Path) -> dict[str, Any]:
    """Reads a ``config.yaml``, nested or flat, into flat keys.

    Raises:
        ConfigurationError: the file is not there, is not YAML, or sets a key twice.
    """
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"The configuration file {path} can't be read: {error}") from error
    try:
        # The loader builds text, lists and dicts only.
        tree = yaml.load(text, Loader=_Loader)
    except yaml.YAMLError as error:
        raise ConfigurationError(f"The configuration file {path} is not valid YAML: {error}") from error
    if tree is None or tree == "":
        return {}
    if not isinstance(tree, dict):
        raise ConfigurationError(f"The configuration file {path} holds no keys and values at its top level.")
    flat: dict[str, Any] = {}
    _flatten(tree, "", flat, path)
    return flat


def _flatten(tree: dict[str, Any], prefix: str, flat: dict[str, Any], path: Path) -> None:
    for name, value in tree.items():
        key = prefix + name
        option = OPTIONS.get(key)
        if isinstance(value, dict) and not (option is not None and option.type is MAP):
            _flatten(value, key + ".", flat, path)
            continue
        if value in ("", "~", "null"):
            continue
        if key in flat:
            raise ConfigurationError(f"The configuration file {path} sets {key} twice, nested and flat.")
        flat[key] = value


def read_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Reads the variables that begin with ``FIRESTEEL_OPTION_``.

    Raises:
        ConfigurationError: a variable matches no key.
    """
    names = [name for name in environ if name.startswith(ENVIRONMENT_PREFIX)]
    if not names:
        return {}
    by_form = {environment_form(key): key for key in (*sorted(flink_keys()), *OPTIONS)}
    values: dict[str, str] = {}
    for name in sorted(names):
        form = name[len(ENVIRONMENT_PREFIX) :]
        key = by_form.get(form)
        if key is None:
            matches = [ENVIRONMENT_PREFIX + match for match in near(form, by_form)]
            hint = f"; did you mean {' or '.join(matches)}?" if matches else "."
            raise ConfigurationError(f"The environment variable {name} names no configuration key{hint}")
        values[key] = environ[name]
    return values


def parse_definitions(definitions: Iterable[str]) -> dict[str, str]:
    """Reads ``key=value`` texts; the later of two with one key wins.

    Raises:
        ConfigurationError: a text has no ``=`` or no key.
    """
    values: dict[str, str] = {}
    for text in definitions:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise ConfigurationError(f"-D{text}: expected -Dkey=value.")
        values[key.strip()] = value.strip()
    return values
