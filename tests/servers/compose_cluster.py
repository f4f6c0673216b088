"""A cluster of docker-compose.yml for tests: a project, a port and a secret of its own, and faults from the host."""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testcontainers.compose import DockerCompose

from firesteel.core.process import ProcessId, identify, is_running, myself
from tests.integration.processes.cluster import BIN, free_ports, rest_call, wait_until
from tests.integration.processes.doors import SLOT_SOCKET, doors_of
from tools.bootstrap import pip_settings

ROOT = Path(__file__).resolve().parents[2]
ENSURE_ENGINE = Path(__file__).parent / "docker" / "ensure-engine.sh"
BASE_IMAGE = "firesteel-test/base:2"
SERVICES = ("dispatcher", "resourcemanager", "jobmaster", "taskmanager")
NO_INDEX = re.compile(
    "establish a new connection|name resolution|Network is unreachable|TimeoutError|ProxyError|CERTIFICATE_VERIFY"
)
"""What pip says where it reaches no package index."""
PATIENCE = 240.0
"""Seconds after which a test gives up waiting for something that must come true."""
_PROJECT = "firesteel-test-"
PROJECT_LABEL = "com.docker.compose.project"


def command(*words: str, timeout: float = 300, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run a command of the host; its output is captured.

    Raises:
        AssertionError: it ended with another code than 0, and ``check`` is set.
    """
    done = subprocess.run(words, capture_output=True, text=True, timeout=timeout, stdin=subprocess.DEVNULL)
    if check and done.returncode:
        raise AssertionError(f"{' '.join(words)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done


def foreign_settings() -> list[str]:
    """Environment variables of whoever runs the tests that would change what containers or Compose do."""
    return [key for key in os.environ if key.startswith(("FIRESTEEL_", "COMPOSE_"))]


def ensure_engine() -> subprocess.CompletedProcess[str]:
    """See to a Docker engine with Compose v2 and the base image; what the script's exit codes mean, it says itself."""
    words = ["sh", str(ENSURE_ENGINE), BASE_IMAGE]
    return subprocess.run(words, capture_output=True, text=True, stdin=subprocess.DEVNULL)


def until(condition: Callable[[], Any], what: str) -> Any:
    """The condition's first true value."""
    return wait_until(condition, what, PATIENCE)


def own_project() -> str:
    """A name for a project of this process; others can tell whether its owner lives."""
    me = myself()
    return f"{_PROJECT}{me.pid}-{me.start}-{secrets.token_hex(3)}"


def remove_leftovers() -> None:
    """Remove containers, networks, volumes and images of runs whose process is gone."""
    for kind in ("container", "network", "volume", "image"):
        everything = ("--all",) if kind == "container" else ()
        listed = command("docker", kind, "ls", "--quiet", *everything, "--filter", f"label={PROJECT_LABEL}").stdout
        for name in sorted(set(listed.split())):
            inspected = command("docker", kind, "inspect", name, check=False)
            if inspected.returncode == 0 and _is_leftover(json.loads(inspected.stdout)[0]):
                command("docker", kind, "rm", *(() if kind == "network" else ("--force",)), name, check=False)


def _is_leftover(thing: dict[str, Any]) -> bool:
    labels = thing.get("Labels") or thing.get("Config", {}).get("Labels") or {}
    owner = re.match(rf"{_PROJECT}(\d+)-(\d+)-", labels.get(PROJECT_LABEL, ""))
    return owner is not None and not is_running(ProcessId(int(owner[1]), int(owner[2])))


@dataclass(frozen=True)
class Container:
    """A container of the cluster.

    Attributes:
        id: Docker's.
        service: its name in docker-compose.yml.
    """

    id: str
    service: str

    def inspect(self) -> dict[str, Any]:
        """All that Docker knows."""
        return dict(json.loads(command("docker", "inspect", self.id).stdout)[0])

    def state(self) -> dict[str, Any]:
        return dict(self.inspect()["State"])

    def pid(self) -> int:
        """Its first process, as the host numbers it; 0 while it does not run."""
        return int(self.state()["Pid"])

    def is_healthy(self) -> bool:
        """Whether it runs and its last health check was good."""
        state = self.state()
        return bool(state["Running"]) and state["Health"]["Status"] == "healthy"

    def read(self, pattern: str) -> str:
        """The contents of files in it."""
        return command("docker", "exec", self.id, "sh", "-c", f"cat {pattern}").stdout

    def crash(self) -> None:
        """Kill all its processes at once. Docker takes it for a crash and starts the container again."""
        before = self.pid()
        assert before, f"{self.service} does not run"
        os.kill(before, 9)
        until(lambda: self.pid() not in (0, before), f"Docker starts {self.service} again")

    def restart(self) -> None:
        """Stop it in order, as ``docker compose restart`` does, and start it again."""
        before = self.state()["StartedAt"]
        command("docker", "restart", "--time", "40", self.id)
        state = self.state()
        assert state["Running"], state
        assert state["StartedAt"] != before

    def processes(self) -> set[ProcessId]:
        """Its processes, as the host numbers them."""
        top = command("docker", "top", self.id, "-o", "pid", check=False)
        identities = map(identify, [int(word) for word in top.stdout.split() if word.isdigit()])
        return {process for process in identities if process is not None}

    def slots(self) -> set[ProcessId]:
        """Slot processes in it: each listens for its peers."""
        pid = self.pid()
        if not pid:
            return set()
        doors = doors_of([process.pid for process in self.processes()], network_of=pid)
        identities = (identify(door.pid) for door in doors if door.unix and SLOT_SOCKET.search(door.unix))
        return {process for process in identities if process is not None}

    @contextmanager
    def paused(self) -> Iterator[None]:
        """All its processes stand still; its connections stay.

        They are stopped by a signal: where the kernel takes half a minute to freeze busy processes, as ``docker pause``
        has it do, nobody knows for how long they stand still.
        """
        stopped: list[ProcessId] = []
        try:
            # Some may be born meanwhile.
            while moving := [process for process in self.processes() if process not in stopped]:
                for process in moving:
                    with suppress(ProcessLookupError):
                        os.kill(process.pid, signal.SIGSTOP)
                stopped += moving
            yield
        finally:
            for process in reversed(stopped):
                if is_running(process):
                    os.kill(process.pid, signal.SIGCONT)

    @contextmanager
    def cut_off(self) -> Iterator[None]:
        """What the cluster's network brings to it is dropped silently; connections stay."""
        (network,) = self.inspect()["NetworkSettings"]["Networks"].values()
        (subnet,) = json.loads(command("docker", "network", "inspect", network["NetworkID"]).stdout)[0]["IPAM"][
            "Config"
        ]
        inside = ["nsenter", "--target", str(self.pid()), "--net", "iptables", "--wait"]
        rule = ["INPUT", "--source", subnet["Subnet"], "--jump", "DROP"]
        command(*inside, "--append", *rule)
        try:
            yield
        finally:
            command(*inside, "--delete", *rule)


class ComposeCluster:
    """The services of docker-compose.yml.

    Args:
        image: that was built from the Dockerfile.
        options: for all services, on top of the configuration in the image.
        secret: instead of one that is long and random.
        variables: more of those that docker-compose.yml reads.
        folders: service -> where ``output``, a folder of the host, is mounted in it.
        container: more of the description of each service, and of the one that makes the secret.

    Attributes:
        output: that folder.
        ports: further ones of the host, by name.
    """

    def __init__(
        self,
        image: str,
        options: Mapping[str, str] | None = None,
        secret: str | None = None,
        variables: Mapping[str, str] | None = None,
        folders: Mapping[str, str] | None = None,
        container: Mapping[str, Any] | None = None,
    ) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="compose"))
        self.secret = secrets.token_hex(32) if secret is None else secret
        (port,) = free_ports(1)
        self.rest_host = f"127.0.0.1:{port}"
        self.project = own_project()
        self.output = self.folder / "output"
        self.output.mkdir()
        self.output.chmod(0o777)  # containers have a user of their own
        self.ports: dict[str, int] = {}
        environment = {f"FIRESTEEL_OPTION_{_variable(key)}": value for key, value in (options or {}).items()}
        more: dict[str, Any] = {name: {"environment": environment} | dict(container or {}) for name in SERVICES}
        if container:
            more["secret"] = dict(container)
        for name, path in (folders or {}).items():
            more[name]["volumes"] = [f"{self.output}:{path}"]
        override = self.folder / "override.json"  # JSON is YAML
        override.write_text(json.dumps({"services": more}))
        self.compose = compose(
            self.folder,
            override,
            COMPOSE_PROJECT_NAME=self.project,
            FIRESTEEL_IMAGE=image,
            FIRESTEEL_SECRET=self.secret,
            FIRESTEEL_REST_PORT=str(port),
            **(variables or {}),
        )

    def call(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run ``docker compose`` for this cluster."""
        program, compose, *rest = self.compose.docker_compose_command()
        return command(program, compose, "--ansi", "never", *rest, *arguments, check=check)

    def up(self, *options: str) -> None:
        """``docker compose up --detach --wait``."""
        done = self.call("up", "--detach", "--wait", "--no-build", *options, check=False)
        assert done.returncode == 0, done.stdout + done.stderr + self.logs()

    def down(self) -> None:
        """``docker compose down --volumes``: containers, networks and volumes are removed."""
        self.compose.stop(down=True)

    def close(self) -> None:
        self.down()
        shutil.rmtree(self.folder)

    def all(self, service: str) -> list[Container]:
        """The containers of a service, those that do not run too."""
        filters = (f"label={PROJECT_LABEL}={self.project}", f"label=com.docker.compose.service={service}")
        words = [word for condition in filters for word in ("--filter", condition)]
        return [
            Container(container_id, service) for container_id in command("docker", "ps", "-aq", *words).stdout.split()
        ]

    def the(self, service: str) -> Container:
        """The only container of a service."""
        (container,) = self.all(service)
        return container

    def is_healthy(self) -> bool:
        """Whether a container of each service runs, and the last health check of all of them was good."""
        words = ("--filter", f"label={PROJECT_LABEL}={self.project}")
        shown = '{{.Label "com.docker.compose.service"}} {{.Status}}'
        lines = command("docker", "ps", *words, "--format", shown).stdout.splitlines()
        states = [line.partition(" ") for line in lines]
        return {name for name, _, _ in states} >= set(SERVICES) and all(
            state.endswith("(healthy)") for name, _, state in states if name in SERVICES
        )

    def left(self) -> list[str]:
        """What Docker has of this project."""
        leftovers = []
        for kind, everything in (("container", ["--all"]), ("network", []), ("volume", [])):
            listing = ["docker", kind, "ls", "--quiet", *everything]
            words = command(*listing, "--filter", f"label={PROJECT_LABEL}={self.project}").stdout.split()
            leftovers += [f"{kind} {word}" for word in words]
        return leftovers

    def rest(self, method: str, path: str) -> tuple[int, Any]:
        """Status and JSON of a REST request.

        Raises:
            OSError: nobody answers.
        """
        return rest_call(f"http://{self.rest_host}", method, path, secret=self.secret)

    def ask(self, path: str) -> dict[str, Any]:
        """A REST answer; nothing while there is none."""
        with suppress(OSError, ValueError):
            status, answer = self.rest("GET", path)
            if status == 200:
                return dict(answer)
        return {}

    def wait_slots(self, total: int, available: int | None = None) -> None:
        """Until so many slots are registered, and so many of them are free (by default all)."""
        expected = (total, total if available is None else available)

        def there() -> bool:
            overview = self.ask("/overview")
            return (overview.get("slots-total"), overview.get("slots-available")) == expected

        until(there, f"{expected[0]} slots, {expected[1]} of them free")

    def calm(self, slots: int) -> None:
        """Cancel what runs, and wait until everything is well and all slots are free."""
        until(self.is_healthy, "all services are healthy")
        for job in until(lambda: self.ask("/jobs/overview"), "the Dispatcher answers")["jobs"]:
            if job["end-time"] < 0:
                self.rest("PATCH", f"/jobs/{job['jid']}")
        self.wait_slots(slots)

    def firesteel(self, *arguments: str, secret: str | None = "") -> subprocess.CompletedProcess[str]:
        """Run the command ``firesteel`` on the host for this cluster, with its secret unless another is given."""
        environment = {key: value for key, value in os.environ.items() if not key.startswith("FIRESTEEL_")}
        if secret is not None:
            environment["FIRESTEEL_SECRET"] = secret or self.secret
        verb, *rest = arguments
        return subprocess.run(
            [str(BIN / "firesteel"), verb, "-m", self.rest_host, *rest],
            capture_output=True, text=True, timeout=300, env=environment, stdin=subprocess.DEVNULL, cwd=self.folder,
        )  # fmt: skip

    def logs(self, since: float = 0.0) -> str:
        """What the services have logged since a time (of the clock on the wall), with the secret left out."""
        text = self.call("logs", "--no-color", "--since", f"{since:.3f}", check=False).stdout
        return text.replace(self.secret, "<secret>") if self.secret else text


def compose(folder: Path, *overrides: Path, **variables: str) -> DockerCompose:
    """docker-compose.yml of this checkout with files on top of it; the variables come from a file, not from ``ps``."""
    env_file = folder / "env"
    env_file.touch(mode=0o600)
    env_file.write_text("".join(f"{key}={value}\n" for key, value in variables.items()))
    files = [str(ROOT / "docker-compose.yml"), *map(str, overrides)]
    return DockerCompose(ROOT, compose_file_name=files, env_file=str(env_file))


def build_image(project: str) -> str:
    """Build the image from this checkout; returns its name, which no other run uses."""
    name = f"firesteel-test/image:{project}"
    folder = Path(tempfile.mkdtemp(prefix="build"))
    try:
        overrides = []
        pip_files = _pip_files(folder)
        if pip_files:
            overrides.append(folder / "build.json")
            service = {"dispatcher": {"build": {"secrets": list(pip_files)}}}
            files = {name: {"file": file} for name, file in pip_files.items()}
            overrides[0].write_text(json.dumps({"services": service, "secrets": files}))
        composed = compose(
            folder,
            *overrides,
            COMPOSE_PROJECT_NAME=project,
            FIRESTEEL_IMAGE=name,
            FIRESTEEL_BASE_IMAGE=BASE_IMAGE,
            FIRESTEEL_SECRET="not used by a build",
        )
        command(*composed.docker_compose_command(), "build", "dispatcher", timeout=900)
    finally:
        shutil.rmtree(folder)
    return name


def _pip_files(folder: Path) -> dict[str, str]:
    """What pip needs in a build to reach the index that this machine's pip reaches: the build's secrets by id."""
    pip = pip_settings()
    secret_files = {}
    bundle = os.environ.get("SSL_CERT_FILE") or pip.get("cert", "")
    if bundle and Path(bundle).is_file():
        secret_files["ca"] = bundle
    lines = [
        f"{name} = {pip[name]}\n" for name in ("index-url", "extra-index-url", "trusted-host", "proxy") if name in pip
    ]
    if lines:
        file = folder / "pip.conf"
        file.touch(mode=0o600)
        file.write_text("[global]\n" + "".join(lines))
        secret_files["pip"] = str(file)
    return secret_files


def _variable(key: str) -> str:
    return re.sub(r"[^A-Z0-9]", "_", key.upper())
