"""What an environment sends along with a job, and what it is given for a JVM."""

from __future__ import annotations

from typing import Any

import pytest

from firesteel.config import options as opt
from firesteel.core.errors import UnsupportedFeatureError
from firesteel.datastream import StreamExecutionEnvironment


def value(env: StreamExecutionEnvironment, option: Any) -> Any:
    return env._settings().get(option)


def test_dependencies_are_kept_as_options(env: StreamExecutionEnvironment) -> None:
    env.add_python_file("a.py")
    env.add_python_file("b.zip")
    env.set_python_requirements("requirements.txt")
    env.add_python_archive("model.zip")
    env.add_python_archive("data.tgz", "data")
    env.set_python_executable("/opt/python/bin/python3")
    assert value(env, opt.PYTHON_FILES) == "a.py,b.zip"
    assert value(env, opt.PYTHON_REQUIREMENTS) == "requirements.txt"
    assert value(env, opt.PYTHON_ARCHIVES) == "model.zip,data.tgz#data"
    assert value(env, opt.PYTHON_EXECUTABLE) == "/opt/python/bin/python3"
    env.set_python_requirements("other.txt", "cache")
    assert value(env, opt.PYTHON_REQUIREMENTS) == "other.txt#cache"


@pytest.mark.parametrize("path", ["a,b", "a#b", ""])
def test_paths_that_can_not_be_kept_are_refused(env: StreamExecutionEnvironment, path: str) -> None:
    with pytest.raises(ValueError, match="path"):
        env.add_python_file(path)
    with pytest.raises(ValueError, match="path"):
        env.add_python_archive(path)
    with pytest.raises(ValueError, match="path"):
        env.set_python_requirements(path)


def test_jars_are_ignored_with_one_word(env: StreamExecutionEnvironment, caplog: pytest.LogCaptureFixture) -> None:
    env.add_jars("file:///a.jar", "file:///b.jar")
    env.add_jars("file:///c.jar")
    assert value(env, opt.PIPELINE_JARS) == "file:///a.jar;file:///b.jar;file:///c.jar"
    assert len(caplog.records) == 1
    assert "add_jars() has no effect" in caplog.text
    env.add_classpaths("file:///x/")
    assert len(caplog.records) == 2


def test_what_has_no_meaning_here_is_refused_with_a_reason(env: StreamExecutionEnvironment) -> None:
    with pytest.raises(UnsupportedFeatureError, match="add_python_archive"):
        env.register_cached_file("/data/model", "model")
