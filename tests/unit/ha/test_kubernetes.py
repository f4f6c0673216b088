"""High availability on Kubernetes, on a stand-in of its API server: its contracts, answers that get lost or come late,
leases by clocks of their own. The servers' tests hold it against a real one."""

from __future__ import annotations

import errno
import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from firesteel.checkpoint.store import StoredCheckpoint
from firesteel.config import Settings
from firesteel.core.errors import ConfigurationError, FencedError
from firesteel.ha.cells import AwayError, ChangedError, Put, UnsureError
from firesteel.ha.disk import Disk
from firesteel.ha.retrieval import Leader, of_job
from firesteel.ha.services import load_high_availability
from firesteel.testing import check_cells, check_high_availability
from firesteel_kubernetes.high_availability import LARGEST_MAP, KubernetesCells, KubernetesServices
from tests.checkpoint_store_kit import check_checkpoint_store
from tests.kubernetes_stand_in import StandIn
from tests.unit.ha.crashes import check_failing_disk, check_power_cuts

LEASE = "/apis/coordination.k8s.io/v1/namespaces/default/leases/orders-job-one"
MAP = "/api/v1/namespaces/default/configmaps/orders-job-one"
CELL = "job-one"
ELECTION = "high-availability.kubernetes.leader-election"
DURATION = 1000.0


def settings(directory: Path | None = None, **more: str) -> Settings:
    options = {
        "high-availability.type": "kubernetes", "kubernetes.cluster-id": "orders",
        f"{ELECTION}.lease-duration": f"{DURATION:g} s", f"{ELECTION}.renew-deadline": f"{DURATION:g} s",
        f"{ELECTION}.retry-period": "300 s", "kubernetes.transactional-operation.initial-retry-delay": "1 ms",
        "kubernetes.transactional-operation.max-retry-delay": "1 ms",
        "high-availability.storageDir": "" if directory is None else str(directory), **more,
    }  # fmt: skip
    return Settings({key: value for key, value in options.items() if value})


class Host:
    """A process with a clock of its own, which has nothing to do with those of others."""

    _clocks = (1e6 * number for number in itertools.count(1))

    def __init__(self, server: StandIn) -> None:
        self.time = next(self._clocks)
        self.cells = KubernetesCells(settings(), server, lambda: self.time)  # type: ignore[arg-type]


@contextmanager
def hosts(server: StandIn, count: int = 2) -> Iterator[list[Host]]:
    all_hosts = [Host(server) for _ in range(count)]
    yield all_hosts
    server.fault = lambda method, path: ""
    for host in all_hosts:
        host.cells.close()


def lead(host: Host) -> int:
    epoch = host.cells.campaign(CELL)
    assert epoch is not None
    return epoch


def test_high_availability_on_kubernetes_keeps_the_contracts(tmp_path: Path) -> None:
    server, others = StandIn(), StandIn()
    check_cells(lambda: KubernetesCells(settings(), server))  # type: ignore[arg-type]
    check_high_availability(lambda: KubernetesServices(settings(tmp_path), None, others))  # type: ignore[arg-type]
    services = KubernetesServices(settings(tmp_path), None, others)  # type: ignore[arg-type]
    leadership = services.campaign(of_job("cd" * 16))
    assert leadership is not None
    check_checkpoint_store(lambda: services.completed_checkpoints("cd" * 16, leadership))
    services.close()


def test_payloads_that_lose_power_and_fail_cost_nothing(tmp_path: Path) -> None:
    servers: dict[Path, StandIn] = {}

    def cells(folder: Path, disk: Disk) -> KubernetesCells:
        return KubernetesCells(settings(), servers.setdefault(folder, StandIn()))  # type: ignore[arg-type]

    check_power_cuts(tmp_path, cells, lose=True, stride=3)
    check_failing_disk(tmp_path, cells, errno.ENOSPC, stride=3)


def test_a_leader_that_can_not_renew_gives_up_before_another_one_can_lead() -> None:
    server = StandIn()
    with hosts(server) as (first, second):
        epoch = lead(first)
        assert second.cells.campaign(CELL) is None  # it has seen the lease
        server.fault = lambda method, path: "lost"
        first.time += 0.9 * DURATION - 1
        with pytest.raises(OSError, match="lost"):
            first.cells.check(CELL, epoch)
        first.time += 1
        with pytest.raises(FencedError):
            first.cells.check(CELL, epoch)
        server.fault = lambda method, path: ""
        second.time += DURATION - 1
        assert second.cells.campaign(CELL) is None
        second.time += 1
        assert lead(second) > epoch
        with pytest.raises(FencedError):
            first.cells.change(CELL, epoch, [Put("x", b"", None)])


def test_a_lease_that_is_renewed_is_nobody_elses_however_clocks_go() -> None:
    server = StandIn()
    with hosts(server) as (first, second):
        lead(first)
        for _ in range(3):
            assert second.cells.campaign(CELL) is None
            first.time += 300
            first.cells.announce(CELL, Leader(1, "http://one:1", "t"))  # as any renewal
            second.time += 50 * DURATION
        assert second.cells.campaign(CELL) is None


def test_what_a_leader_of_before_writes_is_refused_by_the_server_itself() -> None:
    """Also if it believes that it leads, and has read the cell before."""
    server = StandIn()
    with hosts(server) as (first, second):
        epoch = lead(first)
        first.cells.change(CELL, epoch, [Put("a", b"1", None)])
        second.cells.depose(CELL)
        following = lead(second)
        refused = server.refused
        with pytest.raises(FencedError):
            first.cells.change(CELL, epoch, [Put("b", b"", None)])
        assert server.refused == refused + 1, "it was the server that refused it"
        second.cells.check(CELL, following)
        assert second.cells.names(CELL) == ["a"]


def test_a_write_without_an_answer_is_found_to_be_done() -> None:
    server = StandIn()
    with hosts(server) as (first, second):
        epoch = lead(first)
        once = iter(["unanswered"])
        server.fault = lambda method, path: next(once, "") if (method, path) == ("PUT", MAP) else ""
        first.cells.change(CELL, epoch, [Put("a", b"1", None)])
        version = second.cells.read(CELL, "a")
        assert version is not None
        assert (version.value, version.version) == (b"1", 1), "it was done once"


def test_a_write_that_is_late_is_not_done_after_something_else_was_answered() -> None:
    server = StandIn()
    with hosts(server) as (host, _):
        epoch = lead(host)
        server.fault = lambda method, path: "late" if (method, path) == ("PUT", MAP) else ""
        with pytest.raises(UnsureError):
            host.cells.change(CELL, epoch, [Put("a", b"1", None)])
        with pytest.raises(OSError, match="late"):
            host.cells.names(CELL)
        server.fault = lambda method, path: ""
        assert host.cells.names(CELL) == []
        server.come()
        assert host.cells.names(CELL) == [], "what was late has come after an answer"
        host.cells.change(CELL, epoch, [Put("a", b"2", None)])


@pytest.mark.parametrize("method", ["POST", "PUT"])
def test_a_lease_that_was_granted_without_an_answer_is_led_in_the_next_campaign(method: str) -> None:
    server, was_asked = StandIn(), False

    def unanswered(how: str, path: str) -> str:
        nonlocal was_asked
        if how == method:
            was_asked = True
            return "unanswered"
        return "lost" if was_asked else ""

    with hosts(server) as (host, _):
        if method == "PUT":  # somebody has led before
            host.cells.release(CELL, lead(host))
        server.fault = unanswered
        with pytest.raises(AwayError):
            host.cells.campaign(CELL)
        server.fault = lambda method, path: ""
        assert server.objects[LEASE]["spec"]["holderIdentity"], "it was granted"
        assert lead(host) == (1 if method == "POST" else 2)


@pytest.mark.parametrize("collection", ["leases", "configmaps"])
def test_foreign_changes_of_the_objects_hold_nobody_up(collection: str) -> None:
    server = StandIn()
    with hosts(server) as (first, second):
        epoch = lead(first)
        path = LEASE if collection == "leases" else MAP
        busy, storms = False, itertools.cycle([True, True, False])

        def storm(method: str, requested: str) -> str:
            nonlocal busy
            if method == "PUT" and requested == path and not busy and next(storms):
                busy = True
                server.touch(path)
                busy = False
            return ""

        server.fault = storm
        for number in range(20):
            there = first.cells.read(CELL, "a")
            first.cells.change(CELL, epoch, [Put("a", b"%d" % number, None if there is None else there.version)])
            first.cells.announce(CELL, Leader(epoch, f"http://one:{number}", "t"))
        assert server.refused > 5
        cell = second.cells.read(CELL, "a")
        assert cell is not None
        assert (cell.value, cell.version) == (b"19", 20)
        assert second.cells.leader(CELL) == Leader(epoch, "http://one:19", "t")


def test_a_record_that_has_changed_is_told_after_a_second_look() -> None:
    server = StandIn()
    with hosts(server) as (host, _):
        epoch = lead(host)
        host.cells.change(CELL, epoch, [Put("a", b"1", None), Put("b", b"\xff\x00", None)])
        with pytest.raises(ChangedError):
            host.cells.change(CELL, epoch, [Put("a", b"2", 7)])
        cell = host.cells.read(CELL, "b")
        assert cell is not None
        assert (cell.value, cell.version) == (b"\xff\x00", 2)


def test_a_cell_that_would_be_larger_than_a_config_map_is_refused_and_stays() -> None:
    server = StandIn()
    with hosts(server) as (host, _):
        epoch = lead(host)
        host.cells.change(CELL, epoch, [Put("a", b"a" * (LARGEST_MAP - 100), None)])
        with pytest.raises(OSError, match="a ConfigMap holds 1,048,576: keep fewer ended jobs"):
            host.cells.change(CELL, epoch, [Put("b", b"b" * 200, None)])
        assert host.cells.names(CELL) == ["a"]
        host.cells.change(CELL, epoch, [Put("b", b"b", None)])


def test_large_metadata_are_payloads(tmp_path: Path) -> None:
    server = StandIn()
    services = KubernetesServices(settings(tmp_path), None, server)  # type: ignore[arg-type]
    leadership = services.campaign(CELL)
    assert leadership is not None
    store = services.completed_checkpoints("one", leadership)
    store.add(StoredCheckpoint(1, "file:///a/chk-1"))
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
    services.close()


def test_objects_carry_the_labels_of_flink_and_those_of_others() -> None:
    server = StandIn()
    with hosts(server) as (host, _):
        epoch = lead(host)
        theirs = server.ask("GET", MAP)
        theirs["metadata"]["labels"]["team"] = "blue"
        server.ask("PUT", MAP, theirs)
        host.cells.change(CELL, epoch, [Put("a", b"", None)])
        for path in (LEASE, MAP):
            labels = server.objects[path]["metadata"]["labels"]
            assert labels["app"] == "orders"
            assert labels["configmap-type"] == "high-availability"
        assert server.objects[MAP]["metadata"]["labels"]["team"] == "blue"
        host.cells.forget(CELL)
        assert server.objects == {}


@pytest.mark.parametrize("kind", ["kubernetes", "Kubernetes", "KUBERNETES"])
def test_wrong_options_are_named(kind: str, tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text(
        "current-context: c\ncontexts: [{name: c, context: {cluster: k, user: u}}]\n"
        "clusters: [{name: k, cluster: {server: 'https://127.0.0.1:1'}}]\nusers: [{name: u, user: {token: t}}]\n"
    )
    options = settings(tmp_path, **{"high-availability.type": kind, "kubernetes.config.file": str(config)})
    services = load_high_availability(options, tmp_path)
    assert isinstance(services, KubernetesServices)
    services.close()
    for more, said in (
        ({"high-availability.storageDir": ""}, "needs high-availability.storageDir"),
        ({"kubernetes.cluster-id": "Orders"}, "kubernetes.cluster-id: 'Orders' can't be the name"),
        ({"kubernetes.cluster-id": "a" * 46}, "45 at most"),
        ({f"{ELECTION}.retry-period": "900 s"}, "retry-period .900 s. has to be shorter"),
        ({"kubernetes.config.file": "/nowhere"}, "the kubeconfig /nowhere can't be read: No such file"),
        ({"kubernetes.context": "d"}, "has no context 'd'"),
    ):
        with pytest.raises(ConfigurationError, match=said):
            KubernetesServices(Settings({k: v for k, v in {**options.to_plain(), **more}.items() if v}))


def test_a_stand_by_remembers_nothing_of_its_campaigns() -> None:
    server = StandIn()
    with hosts(server) as (first, second):
        lead(first)
        for _ in range(100):
            assert second.cells.campaign(CELL) is None
        assert second.cells._abandoned == set()  # 172,800 campaigns a day were 31 MB
        first.cells.release(CELL, 1)
        assert lead(second) == 2


def test_a_leader_reads_its_config_map_as_often_as_it_renews_its_lease() -> None:
    server, reads = StandIn(), list[str]()

    def noted(method: str, path: str) -> str:
        if (method, path) == ("GET", MAP):
            reads.append(path)
        return ""

    with hosts(server) as (first, second):
        epoch = lead(first)
        server.fault = noted
        for _ in range(301):  # a look each second; the retry period is 300 s
            first.cells.poll(CELL, epoch)
            first.time += 1
        assert len(reads) == 2
        second.cells.depose(CELL)
        first.time += 300
        with pytest.raises(FencedError):
            first.cells.poll(CELL, epoch)
