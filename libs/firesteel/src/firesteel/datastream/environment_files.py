"""What an environment sends along with its jobs: Python files, packages, archives; and what it is given for a JVM."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, NoReturn

from firesteel.common.configuration import Configuration
from firesteel.config import ConfigOption, Settings
from firesteel.config import options as opt
from firesteel.core.errors import UnsupportedFeatureError
from firesteel.datastream.checks import some_text

__all__ = ["EnvironmentFiles"]

logger = logging.getLogger(__name__)


class EnvironmentFiles:
    """Part of ``StreamExecutionEnvironment``."""

    _configuration: Configuration
    _said_no_jvm: frozenset[str] = frozenset()

    if TYPE_CHECKING:

        def _settings(self) -> Settings: ...

    def add_python_file(self, file_path: str) -> None:
        """Sends a Python file along with the jobs: a module, an archive (.zip, .whl, .egg) or a directory.

        Slots find what is in it before everything else. Modules that the program imports from its own directory travel
        by themselves.
        """
        self._append(opt.PYTHON_FILES, _path("the path of a Python file", file_path))

    def set_python_requirements(self, requirements_file_path: str, requirements_cache_dir: str | None = None) -> None:
        """Gives the job's slots the packages of a requirements.txt.

        They are installed by pip on each host that runs slots of the job, once for the same dependencies, into a
        virtual environment that also sees what the cluster has; it is removed when no job uses it.

        Args:
            requirements_file_path: the file.
            requirements_cache_dir: a directory with packages; if it is given, pip asks no index.
        """
        path = _path("the path of the requirements", requirements_file_path)
        if requirements_cache_dir is not None:
            path += "#" + _path("the directory of packages", requirements_cache_dir)
        self._configuration.set_string(opt.PYTHON_REQUIREMENTS.key, path)

    def add_python_archive(self, archive_path: str, target_dir: str | None = None) -> None:
        """Unpacks an archive in the working directory of the job's slots, before any function runs.

        Args:
            archive_path: a .zip, .whl, .egg, .tar, .tar.gz or .tgz file.
            target_dir: name of the directory to make for it; None = the archive's file name, as in PyFlink.
        """
        path = _path("the path of an archive", archive_path)
        if target_dir is not None:
            path += "#" + _path("the target directory", target_dir)
        self._append(opt.PYTHON_ARCHIVES, path)

    def set_python_executable(self, python_exec: str) -> None:
        """Chooses the Python interpreter of the job's slots, by its path on the hosts that run them.

        A relative path starts from the directories of ``add_python_archive``: ``venv.zip/venv/bin/python``. It has to
        be of the same minor version as the program's, and to have Firesteel of the cluster's version. Functions find
        its path in the environment variable ``python``.
        """
        text = some_text("the Python executable", python_exec)
        self._configuration.set_string(opt.PYTHON_EXECUTABLE.key, text)

    def add_jars(self, *jars_path: str) -> None:
        """Accepted and ignored, since no JVM carries records; said once in a warning.

        Connectors for which PyFlink needs a jar come with Firesteel under PyFlink's names, or not at all.
        """
        self._ignored("add_jars", opt.PIPELINE_JARS, jars_path)

    def add_classpaths(self, *classpaths: str) -> None:
        """Accepted and ignored, like ``add_jars``."""
        self._ignored("add_classpaths", opt.PIPELINE_CLASSPATHS, classpaths)

    def register_cached_file(self, file_path: str, name: str, executable: bool = False) -> NoReturn:
        """Refused: nothing in Python reads Flink's distributed cache.

        Raises:
            UnsupportedFeatureError: always.
        """
        raise UnsupportedFeatureError(
            f"register_cached_file({name!r}): functions in Python have no way to read Flink's distributed cache; send "
            "the file with add_python_archive(), and open it by its name in the working directory"
        )

    def _append(self, option: ConfigOption[Any], text: str) -> None:
        before = self._settings().get(option)
        self._configuration.set_string(option.key, f"{before},{text}" if before else text)

    def _ignored(self, method: str, option: ConfigOption[Any], paths: tuple[str, ...]) -> None:
        found = [some_text(f"an argument of {method}()", path) for path in paths]
        before = self._settings().get(option)
        self._configuration.set_string(option.key, ";".join([*([before] if before else []), *found]))
        if method not in self._said_no_jvm:
            self._said_no_jvm |= {method}
            logger.warning(
                "%s() has no effect: no JVM carries the records of Firesteel, whose connectors are in "
                "firesteel.datastream.connectors",
                method,
            )


def _path(what: str, path: str) -> str:
    text = some_text(what, path)
    for character in ",#":
        if character in text:
            raise ValueError(f"{what} can't hold {character!r}: {text!r}")
    return text
