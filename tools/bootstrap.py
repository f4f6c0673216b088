"""Makes .venv, the locks and the wheels with uv. Standard library only; run by any Python >= 3.11 that has pip.

    bootstrap.py runtime|dev STAMP     make .venv what requirements/<group>.txt says, then leave STAMP in it
    bootstrap.py lock [PACKAGE]        write requirements/*.txt
    bootstrap.py dist [FOLDER]         build a wheel and an sdist of each distribution, by default into build/dist

Two calls at once: the second waits. A call that was interrupted is repeated: what is there is brought to the locks.
"""

from __future__ import annotations

import fcntl
import functools
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
OURS = VENV / ".made-by-dev"
UV = ROOT / "build" / "uv" / "bin" / "uv"
REQUIREMENTS = ROOT / "requirements"
PROJECTS = [path.parent for part in ("libs", "services") for path in sorted(ROOT.glob(f"{part}/*/pyproject.toml"))]


def fail(sentence: str) -> NoReturn:
    """Ends the process with one sentence."""
    sys.exit(f"dev: {sentence}")


def install(group: str, stamp: str) -> None:
    """Brings .venv from any state to that of the locks."""
    ready = VENV / f".ready-{group}"
    if ready.exists() and ready.read_text() == stamp:  # another call has done it meanwhile
        return
    for old in VENV.glob(".ready-*"):
        old.unlink()
    install_uv()
    make_venv()
    print(f"dev: installing {group} dependencies into .venv", file=sys.stderr)
    build = ["--build-constraints", str(REQUIREMENTS / "build.txt")]
    locks = [f"requirements/{name}.txt" for name in ((group, "data") if group == "dev" else (group,))]
    uv("pip", "sync", "-q", "--require-hashes", *build, *locks)
    uv("pip", "install", "-q", "--no-deps", *editables(PROJECTS, ROOT))
    ready.write_text(stamp)


def editables(projects: Iterable[Path], root: Path) -> list[str]:
    """uv's arguments for projects below its working directory: in an absolute path it takes ``#`` for a comment."""
    return [word for project in projects for word in ("-e", f"./{project.relative_to(root)}")]


def make_venv() -> None:
    """A new environment, unless there is one of a fit Python; one that somebody else made is never removed."""
    fit = "import sys; sys.exit(sys.version_info < (3, 11) or sys.prefix == sys.base_prefix)"
    python = VENV / "bin" / "python"
    works = python.exists() and subprocess.run([python, "-I", "-c", fit]).returncode == 0
    if works and (not OURS.exists() or OURS.read_text() == str(VENV)):  # a clone that was moved names the old place
        return
    if VENV.exists() and any(VENV.iterdir()) and not OURS.exists():
        fail(f"{VENV} was not made by ./dev and is no environment of Python 3.11 or newer; move it away.")
    print(f"dev: making .venv with Python {sys.version.split()[0]} ({sys.executable})", file=sys.stderr)
    uv("venv", "-q", "--clear", "--python", sys.executable, str(VENV))
    OURS.write_text(str(VENV))


def install_uv() -> None:
    """The locked uv, by pip, into build/."""
    lock_file = REQUIREMENTS / "installer.txt"
    locked = re.search(r"^uv==(\S+)", lock_file.read_text(), re.M)
    assert locked is not None
    if UV.exists() and f"uv {locked[1]}" in subprocess.run([UV, "--version"], capture_output=True, text=True).stdout:
        return
    print("dev: installing uv", file=sys.stderr)
    target = UV.parents[1]
    shutil.rmtree(target, ignore_errors=True)
    options = ["--only-binary", ":all:", "--no-deps", "--require-hashes", "--target", str(target), "-r", str(lock_file)]
    command = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", *options]
    if run(command, environment() | {"PIP_ROOT_USER_ACTION": "ignore"}):
        fail(f"pip of {sys.executable} did not install uv; it says above why (PIP_INDEX_URL, proxy and network?).")


def uv(*arguments: str, output: int | None = None) -> None:
    """Runs uv for .venv, with the settings of pip in uv's names where uv has none of its own."""
    env = environment() | {"VIRTUAL_ENV": str(VENV), "UV_PYTHON_DOWNLOADS": "never"}
    names = {
        "index-url": "UV_DEFAULT_INDEX", "extra-index-url": "UV_INDEX", "find-links": "UV_FIND_LINKS",
        "no-index": "UV_NO_INDEX", "trusted-host": "UV_INSECURE_HOST", "timeout": "UV_HTTP_TIMEOUT",
        "default-timeout": "UV_HTTP_TIMEOUT", "cert": "SSL_CERT_FILE", "proxy": "ALL_PROXY",
    }  # fmt: skip
    settings = pip_settings()
    for setting, name in names.items():
        value = settings.get(setting, "")
        if setting == "find-links":
            value = ",".join(link for link in value.split() if "://" in link or Path(link).is_dir())
        if value and not (env.get(name) or (name == "UV_DEFAULT_INDEX" and env.get("UV_INDEX_URL"))):
            env[name] = value
    if run([str(UV), *arguments], env, output):
        needs = ".venv needs 1.2 GB, and uv's cache as much again, shared with .venv on the same disk"
        fail(f"uv {' '.join(arguments[:2])} failed; it says above why ({needs}; PIP_INDEX_URL names another index).")


@functools.cache
def pip_settings() -> dict[str, str]:
    """What pip is configured with, by name."""
    command = [sys.executable, "-m", "pip", "config", "list"]
    listing = subprocess.run(command, capture_output=True, text=True, env=environment()).stdout
    found: dict[str, str] = {}
    for section in ("global", "install", ":env:"):  # the later ones count more
        found |= dict(re.findall(rf"^{section}\.([\w-]+)='(.*)'$", listing, re.M))
    return {name: value.replace("\\n", " ") for name, value in found.items()}


def run(command: list[str], env: dict[str, str], output: int | None = None) -> int:
    """Runs an installer, which inherits the lock: an orphaned one still holds it."""
    return subprocess.run(command, cwd=ROOT, env=env, stdout=output, pass_fds=[one_at_a_time()]).returncode


@functools.cache
def one_at_a_time() -> int:
    """Waits until no other call installs; returns the descriptor that holds the others off."""
    (ROOT / "build").mkdir(exist_ok=True)
    fd = os.open(ROOT / "build" / "bootstrap.lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        print("dev: another ./dev is installing; waiting for it", file=sys.stderr)
        fcntl.flock(fd, fcntl.LOCK_EX)
    return fd


def environment() -> dict[str, str]:
    """The user's, without what would install elsewhere."""
    elsewhere = ("PYTHONPATH", "PYTHONHOME", "PIP_TARGET", "PIP_PREFIX", "PIP_USER")
    return {name: value for name, value in os.environ.items() if name not in elsewhere}


UNLOCKED = ("avro", "gssapi", "otel-grpc")
"""Extras whose packages are in no image: they are for the tests (requirements/dev.in), or built from source."""


def write_runtime_requirements(target: Path) -> None:
    """Writes what others' packages all distributions need, so that ours need not be on an index to be locked."""
    wanted: set[str] = set()
    for project in PROJECTS:
        table = tomllib.loads((project / "pyproject.toml").read_text())["project"]
        wanted.update(table.get("dependencies", ()))
        for extra, packages in table.get("optional-dependencies", {}).items():
            if extra not in UNLOCKED:
                wanted.update(packages)
    target.write_text("".join(f"{line}\n" for line in sorted(wanted) if not line.startswith("firesteel")))


def lock(packages: list[str]) -> None:
    """Writes requirements/*.txt: with hashes, for every platform, without a host name."""
    install_uv()
    upgrade = [part for package in packages for part in ("--upgrade-package", package)] or ["--upgrade"]
    options = ["--universal", "--python-version", "3.11", "--generate-hashes", "--no-annotate", "--no-header", "-q"]
    options += ["--no-emit-index-url", "--no-emit-find-links", *upgrade]
    runtime = ROOT / "build" / "runtime.in"
    write_runtime_requirements(runtime)
    jobs = {
        "installer": ["requirements/installer.in"],
        "build": ["requirements/build.in"],
        "runtime": [str(runtime)],
        "dev": [str(runtime), "requirements/dev.in", "-c", "requirements/runtime.txt"],
        "data": ["requirements/data.in", "--no-deps"],
    }
    for name, sources in jobs.items():
        target = f"requirements/{name}.txt"
        uv("pip", "compile", *sources, *options, "-o", target, output=subprocess.DEVNULL)
        text = (ROOT / target).read_text()
        if re.search(r"https?://|^--", text, re.M):
            fail(f"{target} names a host or an index option; that must not be committed.")
        print(f"{target}: {len(re.findall(r'^[a-zA-Z0-9].*==', text, re.M))} packages")


def build_distributions(folder: Path = ROOT / "build" / "dist") -> None:
    """Builds all wheels and sdists, the same bytes from the same sources.

    The wheels are built from the sdists, and uv has the build backend in itself: no index is asked.
    """
    install_uv()
    for project in PROJECTS:
        uv("build", "-q", "--no-index", "--out-dir", str(folder), str(project))
    print(folder)


if __name__ == "__main__":
    try:
        one_at_a_time()
        match sys.argv[1:]:
            case ["lock", *packages]:
                lock(packages)
            case ["dist", *folders]:
                build_distributions(*(Path(folder).absolute() for folder in folders))
            case arguments:
                install(*arguments)
    except KeyboardInterrupt:
        sys.exit(130)
    except OSError as error:
        fail(f"cannot write {error.filename or ROOT}: {error.strerror}; use a checkout that you may write to.")
