"""Which files travel with a job, and in what form."""

from __future__ import annotations

import importlib
import io
import json
import os
import sys
import zipfile
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from firesteel.client.graph_shipment import prepare
from firesteel.client.python_files import archives, imported_files, named_files, program_roots
from firesteel.config import options
from firesteel.config.settings import Settings
from firesteel.core.errors import GraphError, ProgramError
from firesteel.datastream import StreamExecutionEnvironment
from firesteel.graph.job_graph import JobGraph

LIMIT = 1 << 20


def module(name: str, file: Path | str | None) -> ModuleType:
    module = ModuleType(name)
    module.__file__ = None if file is None else str(file)
    return module


def content(archive: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(archive)) as opened:
        return {name: opened.read(name) for name in opened.namelist()}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in (
        "program.py",
        "beside.py",
        "not_imported.py",
        "pack/__init__.py",
        "pack/inner/__init__.py",
        "pack/inner/deep.py",
        "pack/data.json",
        "pack/.hidden",
        "pack/__pycache__/deep.pyc",
        "spaces/one.py",
        "spaces/two.py",
        "src/elsewhere.py",
        ".venv/lib/python3/site-packages/installed.py",
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"# {name}\n")
    return tmp_path


def test_what_the_program_imported_from_its_directory_travels(folder: Path) -> None:
    modules = {
        "__main__": module("__main__", folder / "program.py"),
        "beside": module("beside", folder / "beside.py"),
        "pack.inner": module("pack.inner", folder / "pack/inner/__init__.py"),
        "spaces.one": module("spaces.one", folder / "spaces/one.py"),
        "elsewhere": module("elsewhere", folder / "src/elsewhere.py"),
        "installed": module("installed", folder / ".venv/lib/python3/site-packages/installed.py"),
        "json": json,
        "sys": sys,
        "odd": module("odd", None),
        "gone": module("gone", folder / "gone.py"),
    }
    assert sorted(imported_files(modules, folder)) == [
        "beside.py",
        "pack/__init__.py",
        "pack/data.json",
        "pack/inner/__init__.py",
        "pack/inner/deep.py",
        "spaces/one.py",
    ]


def test_archives_are_the_same_for_the_same_content(folder: Path) -> None:
    modules = {"beside": module("beside", folder / "beside.py"), "pack": module("pack", folder / "pack/__init__.py")}
    first = archives([], modules, [folder], LIMIT)
    os.utime(folder / "beside.py", (1, 1))
    (folder / "beside.py").chmod(0o600)
    assert archives([], dict(reversed(modules.items())), [folder], LIMIT) == first
    assert len(first) == 1
    assert content(first[0])["beside.py"] == b"# beside.py\n"
    (folder / "beside.py").write_text("changed")
    assert archives([], modules, [folder], LIMIT) != first


def test_named_files_come_first_each_in_an_archive_of_its_own(folder: Path) -> None:
    wheel = folder / "some.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("wheeled.py", "")
    text = f"{folder / 'src'}, {wheel},{folder / 'not_imported.py'}"
    named = named_files(Settings({"python.files": text}))
    modules = {"beside": module("beside", folder / "beside.py")}
    built = archives(named, modules, [folder], LIMIT)
    assert [list(content(archive)) for archive in built] == [
        ["elsewhere.py"],
        ["wheeled.py"],
        ["not_imported.py"],
        ["beside.py"],
    ]
    assert built[1] == wheel.read_bytes()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("missing.py", r"'missing.py': .* does not exist"),
        ("hdfs://x/y.zip", "only local files"),
        ("notes.txt", "no directory, no .py file, and no zip archive"),
        ("broken.zip", "no directory, no .py file, and no zip archive"),
    ],
)
def test_named_files_that_cannot_travel_are_refused(
    text: str, said: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    Path("notes.txt").write_text("")
    Path("broken.zip").write_text("")
    with pytest.raises(ProgramError, match=said):
        named_files(Settings({"python.files": text}))


def test_too_much_is_refused_naming_the_limit_and_the_largest_file(folder: Path) -> None:
    (folder / "pack/data.json").write_bytes(os.urandom(5_000))
    modules = {"pack": module("pack", folder / "pack/__init__.py")}
    with pytest.raises(ProgramError, match=r"more than 4 kb \(firesteel.python.files-max-bytes\).*data.json with 5000"):
        archives([], modules, [folder], 4096)


def test_the_roots_are_the_scripts_directory_and_the_first_of_the_path(folder: Path) -> None:
    script = module("__main__", folder / "program.py")
    assert program_roots(script, [str(folder / "src"), "/"]) == [folder, folder / "src"]
    assert program_roots(script, [str(folder)]) == [folder]
    assert program_roots(module("__main__", pytest.__file__), [os.path.dirname(os.__file__)]) == []
    assert program_roots(None, [""]) == [Path.cwd()]


def prepared(folder: Path, monkeypatch: pytest.MonkeyPatch, same_host: bool) -> tuple[JobGraph, dict[str, bytes]]:
    monkeypatch.syspath_prepend(str(folder))
    beside = importlib.import_module("beside")
    monkeypatch.setitem(sys.modules, "beside", beside)
    graphs = []
    env = StreamExecutionEnvironment.get_execution_environment()
    env.add_python_file(str(folder / "src"))
    env.add_python_file(str(folder / "not_imported.py"))
    env.from_sequence(1, 2).map(str).print()
    settings = Settings({"firesteel.security.secret-file": "/x", "rest.port": 1}, "/conf/config.yaml")
    settings = settings.with_layer("program", env._configuration.to_dict())
    graphs.append(prepare(env._stream_graph("job"), settings, same_host=same_host))
    monkeypatch.delitem(sys.modules, "beside")
    return graphs[0]


def test_on_other_hosts_slots_get_archives_and_no_paths(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph, blobs = prepared(folder, monkeypatch, same_host=False)
    assert graph.python_path == ()
    assert [list(content(blobs[name])) for name in graph.python_files][:2] == [["elsewhere.py"], ["not_imported.py"]]
    assert "beside.py" in content(blobs[graph.python_files[2]])
    assert graph.config == {"rest.port": "1"}
    assert graph.config_layers == {"rest.port": "/conf/config.yaml"}
    assert JobGraph.from_plain(json.loads(json.dumps(graph.to_plain()))) == graph
    assert graph.blobs == {name: len(blob) for name, blob in blobs.items()}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"python_files": ["0" * 64]}, "the Python files '0000.* are not among the blobs"),
        ({"python_files": [{}]}, "the Python files {} are not among the blobs"),
        ({"config": {"a": 1}}, "map text to text"),
        ({"config_layers": ["a"]}, "map text to text"),
    ],
)
def test_a_cluster_checks_what_it_is_sent(
    change: dict[str, Any], said: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, _ = prepared(folder, monkeypatch, same_host=False)
    with pytest.raises(GraphError, match=said):
        JobGraph.from_plain({**graph.to_plain(), **change})


def test_on_this_host_slots_get_paths_and_what_was_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph, blobs = prepared(folder, monkeypatch, same_host=True)
    assert str(folder) in graph.python_path
    assert [list(content(blobs[name])) for name in graph.python_files] == [["elsewhere.py"], ["not_imported.py"]]


def test_a_path_with_a_comma_is_refused() -> None:
    with pytest.raises(ValueError, match="can't hold ','"):
        StreamExecutionEnvironment.get_execution_environment().add_python_file("a,b.py")
    assert options.PYTHON_FILES.key == "python.files"
