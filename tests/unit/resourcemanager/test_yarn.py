"""The provider ``yarn``: nodes that get no more TaskManagers, ids of workers, how containers have ended."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from firesteel.config import Settings
from firesteel.core.clock import SystemClock
from firesteel.protocol.provider import ProviderContext, WorkerError, WorkerSpec
from firesteel.runtime.slot.slot_main import slot_main
from firesteel.spark.driver import GatewayAddress
from firesteel.testing import check_provider
from firesteel_resourcemanager.shell import _new_worker_id
from firesteel_yarn import provider as yarn
from firesteel_yarn.gateway import record_gateway
from firesteel_yarn.launch import LAUNCH_FILE, Launch
from firesteel_yarn.provider import FailingNodes, YarnProvider


def test_a_node_that_fails_again_and_again_is_left_out_for_a_while() -> None:
    nodes = FailingNodes(most=3, seconds=100.0)
    nodes.failed("a:1", 0.0)
    nodes.failed("a:1", 1.0)
    nodes.failed("b:1", 1.0)
    assert nodes.changes(1.0) == ([], [])
    nodes.failed("a:2", 2.0)  # another NodeManager of the same host
    assert nodes.changes(2.0) == (["a"], [])
    assert nodes.changes(3.0) == ([], []), "said once"
    nodes.failed("b:1", 102.0)
    nodes.failed("b:1", 102.0)
    assert nodes.changes(102.0) == ([], ["a"]), "what was long ago does not count, and a may be tried again"
    nodes.failed("b:1", 103.0)
    assert nodes.changes(103.0) == (["b"], [])


def test_no_number_of_failures_excludes_a_node_where_none_is_set() -> None:
    nodes = FailingNodes(most=0, seconds=100.0)
    for _ in range(9):
        nodes.failed("a:1", 0.0)
    assert nodes.changes(0.0) == ([], [])


def test_ids_of_workers_are_numbers_that_come_back() -> None:
    for worker in (_new_worker_id(), "worker-000000000000", "worker-ffffffffffff"):
        number = yarn._number(worker)
        assert 0 < number < 1 << 63
        assert yarn._worker(str(number)) == worker
    for wrong in ("w", "worker-", "worker-xyz", "worker-../0"):
        with pytest.raises(WorkerError, match="not an id"):
            yarn._number(wrong)


@pytest.fixture
def provider(tmp_path: Path) -> YarnProvider:
    settings = Settings({"taskmanager.memory.process.size": "1728m"})
    provider = YarnProvider(ProviderContext(settings, "s", SystemClock(), tmp_path, slot_main), tmp_path)
    provider._launch = Launch("python3", megabytes=1728)
    return provider


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (
            -104,
            r"taskmanager\.memory\.process\.size is 1728 MiB.*raise it.*jvm-overhead\.min \(192 MiB\).*YARN says: why",
        ),
        (-102, r"c on n:1 has ended with -102: it was preempted.*: why"),
        (137, r"has ended with 137: it was killed \(SIGKILL\): why"),
        (5, r"has ended with 5: why"),
    ],
)
def test_how_a_container_has_ended_is_told(provider: YarnProvider, code: int, said: str) -> None:
    ended = provider._take_event(["ended", str(yarn._number("worker-00000000000a")), "c", "n:1", str(code), "why"])
    assert ended is not None
    assert ended[0] == "worker-00000000000a"
    assert re.search(said, ended[1]), ended[1]


def test_lists_of_processes_are_left_out(provider: YarnProvider) -> None:
    dump = "1 of 2 GB used. Dump of the process-tree for c : |- PID"
    assert provider._cause("c", "n:1", -104, dump).endswith("YARN says: 1 of 2 GB used. ")
    assert provider._cause("c", "n:1", -104, "/jars/x.jar:" * 999).endswith("(192 MiB).")


class Master:
    """What ``Master.java`` is to the provider: news in lines, and what it was asked for."""

    def __init__(self, *news: str) -> None:
        self.news, self.stopped, self.excluded = list(news), list[int](), list[tuple[list[str], list[str]]]()

    def takeEvents(self) -> str:
        text, self.news = "\n".join(self.news), []
        return text

    def stop(self, number: int) -> None:
        self.stopped.append(number)

    def exclude(self, more: list[str], less: list[str]) -> None:
        self.excluded.append((more, less))

    def available(self) -> str:
        return "512 1"

    def workers(self) -> str:
        return f"{yarn._number('worker-00000000000a')}\tc\tn:1\n"


class Launches:
    """What a container is started with."""

    def __init__(self) -> None:
        self.commands: list[str] = []
        self.tokens = ""

    def command(self, line: str) -> None:
        self.commands.append(line)

    def variable(self, name: str, value: str) -> None: ...

    def ownCredentials(self) -> None:
        self.tokens = "of the ApplicationMaster"

    def credentials(self, tokens: str) -> None:
        self.tokens = tokens

    def make(self) -> Launches:
        return self


class StandInYarn:
    """What the ApplicationMaster's JVM gives to the provider, with a YARN that has room for all."""

    def __init__(self) -> None:
        self.jvm = SimpleNamespace(firesteel=SimpleNamespace(yarn=SimpleNamespace(Master=self, Launches=Launches)))
        self.containers: dict[int, Launches] = {}
        self.events: list[str] = []
        self.hung_up = 0

    def current(self) -> StandInYarn:
        return self

    def maximum(self) -> str:
        return "8192 8"

    def workers(self) -> str:
        return "".join(f"{number}\tcontainer_{number}\tn:1\n" for number in self.containers)

    def request(self, number: int, megabytes: int, cores: int, label: str, priority: int, launch: Launches) -> None:
        if number not in self.containers:
            self.containers[number] = launch
            self.events.append(f"allocated\t{number}\tcontainer_{number}\tn:1")

    def stop(self, number: int) -> None:
        self.end(number, -105)

    def end(self, number: int, code: int) -> None:
        if self.containers.pop(number, None) is not None:
            self.events.append(f"ended\t{number}\tcontainer_{number}\tn:1\t{code}\twhy")

    def takeEvents(self) -> str:
        text, self.events = "\n".join(self.events), []
        return text

    def exclude(self, more: list[str], less: list[str]) -> None: ...


def test_the_provider_for_yarn_keeps_the_contract(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = StandInYarn()

    def hang_up(gateway: StandInYarn) -> None:
        assert gateway is server
        server.hung_up += 1

    monkeypatch.setattr(yarn, "attach", lambda address: server)
    monkeypatch.setattr(yarn, "hang_up", hang_up)
    record_gateway(tmp_path, GatewayAddress(1, "secret"))
    (tmp_path / LAUNCH_FILE).write_text(Launch("python3", megabytes=1728).to_json())
    context = ProviderContext(Settings({}), "s", SystemClock(), tmp_path, slot_main)
    check_provider(
        lambda: YarnProvider(context, tmp_path),
        lambda worker: yarn._number(worker) in server.containers,
        lambda worker: server.end(yarn._number(worker), 137),
        patience=5.0,
    )
    assert server.containers == {}
    assert server.hung_up == 3, "each provider lets the JVM go"


def test_with_a_keytab_containers_get_tokens_that_are_new(
    provider: YarnProvider, caplog: pytest.LogCaptureFixture
) -> None:
    server = StandInYarn()
    provider._gateway = provider._master = server
    answers: list[str | OSError] = ["new", OSError("no NameNode")]

    def tokens() -> str:
        if isinstance(answer := answers.pop(0), OSError):
            raise answer
        return answer

    provider._keytab = SimpleNamespace(tokens=tokens)
    with caplog.at_level("WARNING"):
        for worker in ("worker-00000000000a", "worker-00000000000b"):
            provider.start_worker(WorkerSpec(worker, 1))
    assert [launch.tokens for launch in server.containers.values()] == ["new", "of the ApplicationMaster"]
    assert "no NameNode" in caplog.text, "the container is asked for all the same"


def ended(worker: str, code: int, container: str = "c") -> str:
    return "\t".join(("ended", str(yarn._number(worker)), container, "n:1" if container else "", str(code), "why"))


def test_each_end_is_told_once_and_nodes_that_fail_are_excluded(provider: YarnProvider) -> None:
    a, b, c, d = (f"worker-00000000000{digit}" for digit in "abcd")
    master = Master(ended(a, 1), ended(b, 1), ended(c, 0), ended(d, 0, ""))
    provider._master = master
    assert [worker for worker, _ in provider.ended_workers()] == [a, b, c, d]
    assert provider.ended_workers() == []
    assert master.excluded == [], "two failures are not three"
    master.news = [ended(a, 1)]
    provider.ended_workers()
    assert master.excluded == [(["n"], [])]


def test_containers_that_are_waited_for_say_why_once_it_takes_long(provider: YarnProvider) -> None:
    a, b = "worker-00000000000a", "worker-00000000000b"
    now = provider.context.clock.monotonic()
    provider._waiting = {a: now - 100, b: now}
    assert provider.waiting_workers() == {}, "it is not attached"
    master = provider._master = Master()
    (said,) = provider.waiting_workers().items()
    assert said[0] == a
    assert said[1].startswith(
        "YARN has given no container of 1728 MiB and 1 cores yet: the queue default has room for 512"
    )
    master.news = ["\t".join(("allocated", str(yarn._number(a)), "c", "n:1"))]
    provider.ended_workers()
    assert provider.waiting_workers() == {}


def test_workers_that_are_unknown_are_no_error_and_all_end_with_the_cluster(provider: YarnProvider) -> None:
    provider.stop_worker("worker-00000000000a")  # before it was attached
    with pytest.raises(WorkerError, match="not attached"):
        provider.start_worker(WorkerSpec("worker-00000000000a", 1))
    master = provider._master = Master()
    provider.stop_worker("somebody-else")
    assert master.stopped == []
    provider.terminate()
    assert master.stopped == [yarn._number("worker-00000000000a")]
    assert provider.ended_workers() == []
