"""The dashboard in the Dispatcher's package is that of its sources; no Node is needed to see it."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
from pathlib import Path

DISPATCHER = Path(__file__).resolve().parents[2] / "services" / "dispatcher"
WEB = DISPATCHER / "web"
BUILT = DISPATCHER / "src" / "firesteel_dispatcher" / "dashboard"
LIMIT = 120_000
"""Compressed bytes of all files together: half a second of a slow line, with the first paint."""
ADVICE = "run services/dispatcher/web/build and commit what it makes"


def sha(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_the_dashboard_was_built_from_the_sources_that_are_here() -> None:
    recorded = json.loads((BUILT / "build.json").read_text())
    files = [path for path in (WEB / "src").rglob("*") if path.is_file()]
    files += [WEB / name for name in ("build.mjs", "package.json", "package-lock.json", "tsconfig.json")]
    assert len(files) > 15
    assert {path.relative_to(WEB).as_posix(): sha(path) for path in files} == recorded["sources"], ADVICE
    built = {path.name: sha(path) for path in BUILT.iterdir() if path.name != "build.json"}
    assert built == recorded["files"], ADVICE


def test_the_dashboard_is_small() -> None:
    sizes = {path.name: len(gzip.compress(path.read_bytes())) for path in BUILT.iterdir()}
    assert sum(sizes.values()) <= LIMIT, sizes


def test_packages_are_pinned_and_name_no_registry() -> None:
    lock = json.loads((WEB / "package-lock.json").read_text())["packages"]
    assert all("integrity" in package for name, package in lock.items() if name)
    assert not [name for name, package in lock.items() if "resolved" in package], "remove them: npm finds its own"
    needed = json.loads((WEB / "package.json").read_text())
    for name, version in {**needed["dependencies"], **needed["devDependencies"]}.items():
        assert re.fullmatch(r"\d+\.\d+\.\d+", version), f"{name} is not pinned"
        assert lock[f"node_modules/{name}"]["version"] == version


def test_nothing_is_asked_of_other_hosts() -> None:
    for path in BUILT.glob("app.*"):
        hosts = set(re.findall(r"https?://[\w.-]+", path.read_text())) - {"http://www.w3.org"}
        assert not hosts, f"{path.name} names {hosts}"
