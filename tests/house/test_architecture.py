"""Rules about files that no linter knows."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from firesteel.core import plugins
from tools import bootstrap

ROOT = Path(__file__).resolve().parents[2]
LIBRARY = ROOT / "libs" / "firesteel"
PROJECTS = [
    LIBRARY,
    *sorted(path.parent for part in ("libs/firesteel-*", "services/*") for path in ROOT.glob(f"{part}/pyproject.toml")),
]

LINES_ALLOWED = 1000
LONG_FILES: dict[str, str] = {
    "libs/firesteel/src/firesteel/datastream/data_stream.py": (
        "methods of streams make windows and joins, which make streams again: cut apart, they would import each other"
    ),
}
"""Files that may be longer, and why."""

PUBLIC_PACKAGES = ["firesteel.common", "firesteel.datastream"]

NOT_FOR_THE_REPOSITORY = re.compile(
    r"/" + r"root/|/" + r"home/\w+/|/" + r"work/(?:main|shared)|/" + r"opt/wheels"  # paths of one machine
    r"|files\.python" + r"hosted\.org|(?:index-url|find-links)[ =]+https?://"  # hosts of package indexes
)
"""Put together from pieces, so that this file does not contain what it looks for."""


def tracked(*patterns: str) -> list[Path]:
    """Files of the repository; of the folder where it is no git checkout."""
    process = subprocess.run(["git", "ls-files", "-z", *patterns], cwd=ROOT, capture_output=True, text=True)
    if process.returncode == 0:
        return [ROOT / name for name in process.stdout.split("\0") if name and (ROOT / name).is_file()]
    folders = [ROOT / name for name in ("libs", "services", "tests", "docs", "examples", "benchmarks", "tools")]
    files = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    return [path for path in files if not patterns or any(path.match(pattern) for pattern in patterns)]


def project(path: Path) -> dict[str, object]:
    table: dict[str, object] = tomllib.loads((path / "pyproject.toml").read_text())["project"]
    return table


def test_files_keep_their_budget() -> None:
    lengths = {path.relative_to(ROOT).as_posix(): len(path.read_bytes().splitlines()) for path in tracked("*.py")}
    assert lengths
    too_long = {name: length for name, length in lengths.items() if length > LINES_ALLOWED and name not in LONG_FILES}
    assert not too_long, f"cut these by concept, or give a reason in LONG_FILES: {too_long}"
    assert all(lengths.get(name, 0) > LINES_ALLOWED for name in LONG_FILES), "an entry of LONG_FILES is out of date"


@pytest.mark.parametrize("project", PROJECTS, ids=lambda path: path.name)
@pytest.mark.parametrize("name", ["LICENSE", "NOTICE"])
def test_each_package_ships_the_licence(project: Path, name: str) -> None:
    assert (project / name).read_text() == (ROOT / name).read_text()


def test_every_module_has_postponed_annotations() -> None:
    missing = []
    for path in tracked("*.py"):
        text = path.read_bytes()
        if re.search(rb"^from __future__ import .*\bannotations\b", text, re.MULTILINE):
            continue
        annotated = (ast.FunctionDef, ast.AsyncFunctionDef, ast.AnnAssign)
        if any(isinstance(node, annotated) for node in ast.walk(ast.parse(text))):
            missing.append(path.relative_to(ROOT).as_posix())
    assert not missing, f"`from __future__ import annotations` is missing in {missing}"


def test_nothing_of_one_machine_is_committed() -> None:
    matches = []
    for path in tracked():
        text = path.read_bytes().decode(errors="replace")
        matches += [f"{path.relative_to(ROOT)}: {match[0]}" for match in NOT_FOR_THE_REPOSITORY.finditer(text)]
    assert not matches
    assert not [path.name for path in tracked() if path.name == "uv.lock"], "uv.lock records download addresses"


def test_no_packages_are_committed() -> None:
    """What ``pip download`` leaves behind, and the like; the only jar is the one whose sources are beside it."""
    kinds = (".whl", ".egg", ".tar.gz", ".deb", ".jar")
    assert [path.name for path in tracked() if path.name.endswith(kinds)] == ["firesteel-spark.jar"]


def test_one_version_everywhere() -> None:
    versions = {path.name: project(path)["version"] for path in PROJECTS}
    assert len(versions) == 17
    assert set(versions.values()) == {importlib.import_module("firesteel").__version__}, versions
    for path in PROJECTS[1:]:
        assert f"firesteel=={versions[path.name]}" in requirements(path)
    ours = [item for path in PROJECTS for item in requirements(path, extras=True) if item.startswith("firesteel-")]
    assert ours
    assert all(item.endswith(f"=={versions['firesteel']}") for item in ours), ours


def requirements(path: Path, *, extras: bool = False) -> list[str]:
    """What a distribution depends on, with what its extras add."""
    table: Any = project(path)
    optional = table.get("optional-dependencies", {}).values() if extras else ()
    return [*table["dependencies"], *(item for packages in optional for item in packages)]


def requirement_names(dependencies: Sequence[str]) -> set[str]:
    return {re.split(r"[^\w-]", item, maxsplit=1)[0].lower() for item in dependencies}


@pytest.mark.parametrize("path", PROJECTS, ids=lambda path: path.name)
def test_every_part_declares_what_it_imports(path: Path) -> None:
    declared = requirement_names(requirements(path, extras=True)) | {path.name, f"firesteel_{path.name}"}
    declared |= {name.replace("-", "_") for name in declared if name.startswith("firesteel-")}
    renamed = {
        "pyyaml": "yaml", "prometheus-client": "prometheus_client", "opentelemetry-sdk": "opentelemetry",
        "protobuf": "google", "hdfs-native": "hdfs_native", "pykerberos": "kerberos",
        "typing-extensions": "typing_extensions",
    }  # fmt: skip
    declared |= {name for package, name in renamed.items() if package in declared}
    # PySpark brings the py4j of its own version.
    declared |= {"py4j"} if "pyspark" in declared else set()
    imported: dict[str, str] = {}
    for file in sorted((path / "src").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_bytes())):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and not node.level:
                names = [node.module or ""]
            else:
                continue
            for name in names:
                imported.setdefault(name.partition(".")[0], f"{file.relative_to(ROOT)}:{node.lineno}")
    unknown = {name: place for name, place in imported.items() if name not in declared | sys.stdlib_module_names}
    assert not unknown, f"not declared in {path.name}/pyproject.toml: {unknown}"


def test_the_locks_know_every_dependency(tmp_path: Path) -> None:
    written = tmp_path / "runtime.in"
    bootstrap.write_runtime_requirements(written)
    names = requirement_names(written.read_text().splitlines())
    assert {"aiohttp", "aiokafka", "kazoo", "pyspark"} <= names  # of the library, and of plug-ins
    for lock in ("runtime.txt", "dev.txt"):
        locked = re.findall(r"^([\w-]+)==", (ROOT / "requirements" / lock).read_text(), re.MULTILINE)
        assert names <= {name.lower() for name in locked}, f"run ./dev lock: {names - set(locked)}"


def test_the_library_declares_what_a_plug_in_needs_only_at_the_plug_in() -> None:
    of_the_library = requirement_names(requirements(LIBRARY, extras=True))
    optional = {"opentelemetry-sdk", "requests", "rich"} & of_the_library
    assert optional, "the extras of the library itself"
    for path in PROJECTS[1:]:
        if path.parent == LIBRARY.parent:
            assert path.name in of_the_library, f"{path.name} has no extra of firesteel"
            own = requirement_names(requirements(path, extras=True)) - requirement_names(requirements(LIBRARY))
            assert not (own - {"firesteel"}) & of_the_library


def test_every_entry_point_is_there() -> None:
    for path in PROJECTS:
        table: Any = project(path)
        for group, points in table.get("entry-points", {}).items():
            for name, target in points.items():
                assert plugins.import_target(target), f"{path.name}: {group} {name}"


def test_the_locks_have_hashes_for_everything() -> None:
    for lock in sorted((ROOT / "requirements").glob("*.txt")):
        entries = re.split(r"\n(?=\S)", lock.read_text().strip())
        assert entries
        assert all("==" in entry and "--hash=sha256:" in entry for entry in entries), lock.name


@pytest.mark.parametrize("name", PUBLIC_PACKAGES)
def test_public_packages_export_what_they_say(name: str) -> None:
    package = importlib.import_module(name)
    submodules = {module.name for module in pkgutil.iter_modules(package.__path__)}
    bound = {key for key in vars(package) if not key.startswith("_")} - submodules - {"annotations", "TYPE_CHECKING"}
    assert set(package.__all__) == bound
    assert len(package.__all__) == len(set(package.__all__))


def test_typed_packages_say_so() -> None:
    packages = [path for part in PROJECTS for path in (part / "src").iterdir() if path.is_dir()]
    assert len(packages) == 17
    assert all((package / "py.typed").is_file() for package in packages)
