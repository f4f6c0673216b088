"""The driver's command line and environment, and the workers' search path."""

from __future__ import annotations

import json
import os
import site
import subprocess
import sys
import sysconfig
from pathlib import Path

import pyspark
import pytest

import firesteel
from firesteel.core.errors import FleetError
from firesteel.spark.driver import GatewayAddress
from firesteel.spark.java import Java
from firesteel.spark.jvm import child_environment, class_path, command_line
from firesteel.spark.spark_settings import common_settings
from firesteel.spark.worker_path import worker_environment, worker_path
from firesteel.spark.workers import PYTHON, put_on_path


def java(feature: int) -> Java:
    return Java(Path("/j/bin/java"), Path("/j"), feature, "b")


def test_the_command_line_names_main_class_heap_and_scratch_directory(tmp_path: Path) -> None:
    line = command_line(java(17), "a.Main", scratch=tmp_path, heap_mb=700, flags=["-Dx=y"], arguments=["one", "two"])
    assert line[0] == "/j/bin/java"
    assert line[-3:] == ["a.Main", "one", "two"]
    assert {"-Xmx700m", "-Dx=y", f"-Djava.io.tmpdir={tmp_path / 'tmp'}", "-XX:-UsePerfData"} <= set(line)
    assert (tmp_path / "tmp").is_dir()
    assert not any("add-modules" in argument for argument in line)  # the jlinked JRE has not got Spark's


def test_crash_reports_go_into_the_scratch_directory_since_they_may_hold_secrets(tmp_path: Path) -> None:
    assert f"-XX:ErrorFile={tmp_path}/hs_err_%p.log" in command_line(java(17), "a.Main", scratch=tmp_path)


def test_paths_reach_java_as_they_are(tmp_path: Path) -> None:
    scratch = tmp_path / "é #%20 b"
    scratch.mkdir()
    line = command_line(java(17), "a.Main", scratch=scratch)
    log4j = f"-Dlog4j2.configurationFile=file://{tmp_path}/%C3%A9%20%23%2520%20b/log4j2.properties"
    assert {f"-Djava.io.tmpdir={scratch}/tmp", log4j, "-Dfile.encoding=utf-8"} <= set(line)
    pools = common_settings(scratch, "secret")["spark.scheduler.allocation.file"]
    assert pools == f"file:{scratch}/pools.xml"  # Hadoop decodes nothing


@pytest.mark.parametrize("may_run", [True, False])
def test_workers_run_our_interpreter_also_from_a_directory_that_runs_no_programs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, may_run: bool
) -> None:
    real = os.access
    monkeypatch.setattr("os.access", lambda path, mode: may_run and real(path, mode))
    for _ in range(2):  # a second executor finds it there
        path = put_on_path(tmp_path, {"PATH": "/bin"})["PATH"]
    folder, rest = path.split(":")
    assert (Path(folder).is_relative_to(tmp_path), rest) == (True, "/bin")
    assert (folder == str(tmp_path)) is may_run
    program = "import firesteel, pyspark, sys; print(firesteel.__file__, pyspark.__file__, sys.base_prefix, sep='\\n')"
    done = subprocess.run([f"{folder}/{PYTHON}", "-c", program], text=True, check=True, capture_output=True)
    expected = (firesteel.__file__, pyspark.__file__, sys.base_prefix)
    assert [os.path.realpath(line) for line in done.stdout.splitlines()] == [
        os.path.realpath(path) for path in expected
    ]


def test_too_few_open_files_are_refused_in_a_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda _: (256, 511))
    with pytest.raises(
        FleetError, match=r"may have 511 files open, and Spark needs 512 at least: raise the hard limit"
    ):
        command_line(java(17), "a.Main", scratch=tmp_path)
    monkeypatch.setattr("resource.getrlimit", lambda _: (256, 512))
    assert command_line(java(17), "a.Main", scratch=tmp_path)


def test_a_jvm_encodes_paths_as_python_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setattr("locale.getencoding", lambda: "ANSI_X3.4-1968")
    environment = child_environment({"LC_ALL": "C", "LC_TIME": "de_DE"}, {})
    assert "LC_ALL" not in environment
    assert (environment["LC_CTYPE"], environment["LC_COLLATE"], environment["LC_TIME"]) == ("C.UTF-8", "C", "C")
    monkeypatch.setattr("locale.getencoding", lambda: "UTF-8")
    environment = child_environment({"LC_ALL": "de_DE.UTF-8"}, {})
    assert environment["LC_ALL"] == "de_DE.UTF-8"
    assert "LC_CTYPE" not in environment


def test_options_for_all_jvms_win_over_none_of_ours() -> None:
    environment = child_environment({"JAVA_TOOL_OPTIONS": "-Da=b", "_JAVA_OPTIONS": "-Xmx64m"}, {})
    assert "_JAVA_OPTIONS" not in environment
    assert environment["JAVA_TOOL_OPTIONS"] == "-Da=b -Xmx64m"


def test_flags_that_older_javas_refuse_are_for_newer_ones(tmp_path: Path) -> None:
    flag = "--sun-misc-unsafe-memory-access=allow"
    assert flag not in command_line(java(17), "a.Main", scratch=tmp_path)
    assert flag not in command_line(java(23), "a.Main", scratch=tmp_path)
    assert flag in command_line(java(25), "a.Main", scratch=tmp_path)


def test_the_class_path_has_every_jar_once_and_the_busiest_first() -> None:
    jars = [Path(jar).name for jar in class_path(whole=True)]
    assert jars[0].startswith("spark-core_")
    assert jars[1].startswith("scala-library-")
    assert len(jars) == len(set(jars))
    assert jars[-1] == "firesteel-spark.jar"
    assert sorted(jars[:-1]) == sorted(path.name for path in Path(class_path(whole=True)[0]).parent.glob("*.jar"))


def test_a_jvm_of_our_own_has_the_jars_of_spark_sql_and_none_of_hive() -> None:
    used, whole = class_path(whole=False), class_path(whole=True)
    assert used == [jar for jar in whole if jar in used]
    left_out = {Path(jar).name.partition("_2.13")[0] for jar in whole if jar not in used}
    assert {"spark-hive", "spark-mllib", "spark-kubernetes", "spark-connect"} <= left_out
    for begin in ("spark-sql_", "spark-catalyst_", "parquet-hadoop", "orc-core", "hive-storage-api", "janino", "icu4j"):
        assert any(Path(jar).name.startswith(begin) for jar in used), begin


def test_the_clusters_secret_does_not_reach_the_jvm() -> None:
    environment = child_environment({"FIRESTEEL_SECRET": "hunter2", "FIRESTEEL_SECRET_FILE": "/s", "HOME": "/h"}, {})
    assert "HOME" in environment
    assert not [name for name in environment if "SECRET" in name]


def test_settings_of_another_spark_do_not_reach_the_jvm() -> None:
    inherited = {"HOME": "/h", "SPARK_HOME": "/s", "PYSPARK_PYTHON": "p", "SPARK_LOCAL_DIRS": "/l", "PYTHONPATH": "/p"}
    environment = child_environment(inherited, {"PYTHONPATH": "/mine"})
    assert environment["HOME"] == "/h"
    assert environment["PYTHONPATH"] == "/mine"
    assert {"SPARK_HOME", "PYSPARK_PYTHON", "SPARK_LOCAL_DIRS"}.isdisjoint(environment)


def test_the_gateways_secret_is_not_shown() -> None:
    assert "hunter2" not in repr(GatewayAddress(1, "hunter2"))


def test_workers_get_the_entries_of_the_clients_path_that_exist(tmp_path: Path) -> None:
    script, archive, inner = tmp_path / "scripts", tmp_path / "lib.zip", tmp_path / "run" / "files"
    script.mkdir()
    inner.mkdir(parents=True)
    archive.touch()
    standard = sysconfig.get_path("stdlib")
    entries = [str(script), standard, str(tmp_path / "nowhere"), str(archive), str(inner), "", standard]
    assert worker_path(entries, [str(tmp_path / "run")]) == [str(script), standard, str(archive), os.getcwd()]


def test_a_path_with_a_colon_survives(tmp_path: Path) -> None:
    odd = tmp_path / f"a{os.pathsep}b"
    odd.mkdir()
    environment = worker_environment([str(odd), str(tmp_path)], {})
    assert json.loads(environment["FIRESTEEL_PATH"]) == [str(odd), str(tmp_path)]


def test_pythonpath_holds_only_what_the_daemon_needs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    source = str(Path(firesteel.__file__).parent.parent)
    monkeypatch.setattr(site, "getsitepackages", lambda: [])
    environment = worker_environment([str(tmp_path)], {"PYTHONPATH": "/theirs"})
    assert environment["PYTHONPATH"] == f"/theirs{os.pathsep}{source}"
    monkeypatch.setattr(site, "getsitepackages", lambda: [source])  # installed, not run from its sources
    assert "PYTHONPATH" not in worker_environment([str(tmp_path)], {})


def test_the_current_directory_does_not_come_before_the_clients_path(tmp_path: Path) -> None:
    assert worker_environment([str(tmp_path)], {})["PYTHONSAFEPATH"] == "firesteel"
    assert "PYTHONSAFEPATH" not in worker_environment([str(tmp_path)], {"PYTHONSAFEPATH": "1"})
