"""High availability on a real API server: its contracts, leaders that are cut off, tokens that change, rights."""

from __future__ import annotations

import errno
import itertools
import json
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from firesteel.checkpoint.store import StoredCheckpoint
from firesteel.config import Settings
from firesteel.core.errors import FencedError
from firesteel.ha.cells import AwayError, Put
from firesteel.ha.disk import Disk
from firesteel.ha.retrieval import Leader
from firesteel.ha.services import RESOURCEMANAGER, Leadership, load_high_availability, of_job
from firesteel.testing import check_cells, check_high_availability
from firesteel_kubernetes.high_availability import LARGEST_MAP, KubernetesCells, KubernetesServices
from tests.checkpoint_store_kit import check_checkpoint_store
from tests.servers.kubernetes.server import API_SERVER, ETCD, ControlPlane
from tests.unit.ha.crashes import check_failing_disk, check_power_cuts
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.long,
    pytest.mark.may_skip(reason="Kubernetes can be built by Go only"),
]
JOB = "ab" * 16
LEASE = 4.0
MAPS = "/api/v1/namespaces/default/configmaps"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
RULES = [
    {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "create", "update", "delete"]},
    {
        "apiGroups": ["coordination.k8s.io"],
        "resources": ["leases"],
        "verbs": ["get", "list", "watch", "create", "update", "delete"],
    },
]
"""What docs/high-availability.md says that a service account needs."""
_names = (f"test-{number}" for number in itertools.count())


@pytest.fixture
def settings(control_plane: ControlPlane, tmp_path: Path) -> Settings:
    """Of a cluster of its own."""
    return Settings(control_plane.settings(tmp_path, next(_names), LEASE))


@pytest.fixture
def services(settings: Settings) -> Iterator[KubernetesServices]:
    kubernetes_services = KubernetesServices(settings)
    yield kubernetes_services
    kubernetes_services.close()


def lead(services: KubernetesServices, component: str) -> Leadership:
    leadership = services.campaign(component)
    assert leadership is not None
    return leadership


def leads_at_last(services: KubernetesServices, component: str) -> Leadership:
    won: list[Leadership] = []

    def leads() -> bool:
        try:
            leadership = services.campaign(component)
        except AwayError:
            return False
        won.extend([leadership] if leadership is not None else [])
        return leadership is not None

    wait_until(leads, "the next one leads")
    return won[0]


def is_fenced(leadership: Leadership) -> bool:
    try:
        leadership.check()
    except FencedError:
        return True
    except OSError:
        return False
    return False


def test_kubernetes_keeps_the_contracts(settings: Settings, control_plane: ControlPlane, tmp_path: Path) -> None:
    check_high_availability(lambda: KubernetesServices(settings))
    cells = Settings(control_plane.settings(tmp_path, "contract", LEASE))
    check_cells(lambda: KubernetesCells(cells))
    services = KubernetesServices(settings)
    leadership = lead(services, of_job("cd" * 16))
    check_checkpoint_store(lambda: services.completed_checkpoints("cd" * 16, leadership))
    services.forget_job("cd" * 16)
    cluster = settings.to_plain()["kubernetes.cluster-id"]
    selector = f"?labelSelector=app={cluster},configmap-type=high-availability"
    left = [
        item["metadata"]["name"]
        for path in (MAPS, LEASES)
        for item in control_plane.ask("GET", path + selector)["items"]
    ]
    assert left
    assert not [name for name in left if "cd" * 16 in name], "a job that was forgotten leaves nothing"
    services.close()


def test_payloads_that_lose_power_and_fail_cost_nothing(control_plane: ControlPlane, tmp_path: Path) -> None:
    def cells(folder: Path, disk: Disk) -> KubernetesCells:
        name = folder.name.lower().replace("_", "-")[-40:]
        return KubernetesCells(Settings(control_plane.settings(tmp_path, name, LEASE)))

    check_power_cuts(tmp_path, cells, lose=True, stride=11)
    check_failing_disk(tmp_path, cells, errno.ENOSPC, stride=17)


def test_the_next_one_leads_when_the_lease_of_a_process_that_was_killed_is_over(
    settings: Settings, services: KubernetesServices
) -> None:
    program = (
        "import time; from firesteel.config import Settings;"
        "from firesteel_kubernetes.high_availability import KubernetesServices;"
        f"l = KubernetesServices(Settings({dict(settings.to_plain())!r})).campaign('job-x');"
        "l.announce('http://first:1', 't'); print(l.epoch, flush=True); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        epoch = int(process.stdout.readline())
        heard: list[Leader | None] = []
        services.watch("job-x", heard.append)
        deadline = time.monotonic() + 2 * LEASE
        while time.monotonic() < deadline:
            assert services.campaign("job-x") is None, "a leader that renews its lease has lost it"
            time.sleep(0.2)
        process.kill()
        killed = time.monotonic()
        following = leads_at_last(services, "job-x")
        took = time.monotonic() - killed
    assert following.epoch == epoch + 1
    assert took <= LEASE + 1.5, f"the next one leads after {took:.1f} s"
    assert heard[0] == Leader(epoch, "http://first:1", "t")
    wait_until(lambda: heard[-1] is not None and heard[-1].epoch == epoch + 1, "the change is told", 3)


@pytest.mark.parametrize("part", [API_SERVER, ETCD])
def test_a_leader_that_kubernetes_does_not_hear_gives_up_before_another_one_can_lead(
    part: str, settings: Settings, services: KubernetesServices, control_plane: ControlPlane
) -> None:
    """A part of the control plane stands still: nobody can lead, and who leads knows in time that this may be so."""
    leadership = lead(services, of_job(JOB))
    store = services.completed_checkpoints(JOB, leadership)
    store.add(StoredCheckpoint(1, "file:///a/chk-1"))
    other = KubernetesServices(settings)
    assert other.campaign(of_job(JOB)) is None
    assert services.leader(of_job(JOB)) is not None
    with control_plane.stopped(part):
        stopped = time.monotonic()
        wait_until(lambda: is_fenced(leadership), "the leader has given up")
        took = time.monotonic() - stopped
        assert took < LEASE, f"it has led for {took:.1f} s without Kubernetes"
        with pytest.raises(FencedError):
            services.cells.change(of_job(JOB), leadership.epoch, [Put("x", b"", None)])
        assert services.leader(of_job(JOB)) is not None, "who has led is known"
    with pytest.raises(FencedError):
        leadership.check()
    following = leads_at_last(other, of_job(JOB))
    assert following.epoch > leadership.epoch
    assert other.completed_checkpoints(JOB, following).all() == [StoredCheckpoint(1, "file:///a/chk-1")]
    other.close()


@pytest.mark.parametrize("part", [API_SERVER, ETCD])
def test_a_part_that_is_killed_and_starts_again_in_time_costs_a_leader_nothing(
    part: str, tmp_path: Path, control_plane: ControlPlane
) -> None:
    services = KubernetesServices(Settings(control_plane.settings(tmp_path, next(_names), 60)))
    leadership = lead(services, of_job(JOB))
    store = services.completed_checkpoints(JOB, leadership)
    assert store.next_id() == 1
    with control_plane.away(part):
        pass
    assert wait_until(lambda: _next_or_none(store), "writes go on") >= 2
    leadership.check()
    services.close()


def _next_or_none(store: object) -> int | None:
    try:
        return int(store.next_id())  # type: ignore[attr-defined]
    except OSError:
        return None
    except Exception as error:  # a store says it in its own words
        if "can't be written" in str(error):
            return None
        raise


def test_a_process_waits_for_an_api_server_that_is_away(
    services: KubernetesServices, control_plane: ControlPlane
) -> None:
    with control_plane.away(API_SERVER), pytest.raises(AwayError, match="not to be reached"):
        services.campaign(RESOURCEMANAGER)
    lead(services, RESOURCEMANAGER)


def test_what_a_leader_writes_that_was_deposed_is_refused_by_the_api_server(
    services: KubernetesServices,
) -> None:
    """Also if the leader itself believes that it leads."""
    leadership = lead(services, of_job(JOB))
    store = services.completed_checkpoints(JOB, leadership)
    store.next_id()
    services.depose(of_job(JOB))
    with pytest.raises(FencedError):
        services.cells.change(of_job(JOB), leadership.epoch, [Put("x", b"", None)])
    with pytest.raises(FencedError):
        store.next_id()


def test_a_storm_of_conflicts(settings: Settings, services: KubernetesServices, control_plane: ControlPlane) -> None:
    """Somebody annotates the objects all the time, and several threads write: nothing is lost or done twice."""
    leadership = lead(services, of_job(JOB))
    leadership.announce("http://me:1", "t")
    name = f"{settings.to_plain()['kubernetes.cluster-id']}-{of_job(JOB)}"
    has_ended, storms = threading.Event(), itertools.count()

    def storm() -> None:
        while not has_ended.is_set():
            patch = {"metadata": {"annotations": {"storm": str(next(storms))}}}
            control_plane.ask("PATCH", f"{MAPS}/{name}", patch)
            control_plane.ask("PATCH", f"{LEASES}/{name}", patch)

    counted: list[int] = []

    def count() -> None:
        store = services.completed_checkpoints(JOB, leadership)
        counted.extend(store.next_id() for _ in range(15))

    def write(name: str) -> None:
        for number in range(15):
            there = services.cells.read(of_job(JOB), name)
            expected = None if there is None else there.version
            services.cells.change(of_job(JOB), leadership.epoch, [Put(name, b"%d" % number, expected)])

    storming = threading.Thread(target=storm)
    storming.start()
    counting = [
        threading.Thread(target=count), *(threading.Thread(target=write, args=(name,)) for name in ("one", "two")),
    ]  # fmt: skip
    for thread in counting:
        thread.start()
    for thread in counting:
        thread.join()
    deadline = time.monotonic() + LEASE + 1
    while time.monotonic() < deadline:
        leadership.check()
    has_ended.set()
    storming.join()
    assert counted == list(range(1, 16))
    for record in ("one", "two"):
        value = services.cells.read(of_job(JOB), record)
        assert value is not None
        assert value.value == b"14"
    assert next(storms) > 20


def test_a_token_that_is_replaced_and_the_least_rights(
    control_plane: ControlPlane, tmp_path: Path, settings: Settings
) -> None:
    """A service account with the rights that the documentation names; its token file is written anew, and the old token
    is worth nothing any more."""
    account = next(_names)
    control_plane.account(account, RULES)
    token, config = tmp_path / "token", tmp_path / "config"
    token.write_text(control_plane.account_token(account))
    plain = control_plane.kubeconfig("")
    plain["users"][0]["user"] = {"tokenFile": "token"}
    config.write_text(json.dumps(plain))
    own = Settings({**settings.to_plain(), "kubernetes.config.file": str(config)})
    services = KubernetesServices(own)
    check_high_availability(lambda: KubernetesServices(own))
    leadership = lead(services, of_job(JOB))
    heard: list[Leader | None] = []
    services.watch(of_job(JOB), heard.append)
    accounts = "/api/v1/namespaces/default/serviceaccounts"
    control_plane.ask("DELETE", f"{accounts}/{account}")  # which ends its tokens at once
    control_plane.ask("POST", accounts, {"metadata": {"name": account}})

    def is_refused() -> bool:
        try:
            leadership.check()
        except FencedError:
            raise
        except OSError as error:
            return "401" in str(error)
        return False

    wait_until(is_refused, "the old token is refused", 30)
    token.write_text(control_plane.account_token(account))
    leadership.check()
    time.sleep(LEASE + 0.5)
    leadership.check()
    services.close()


def test_a_service_without_rights_is_told_so(control_plane: ControlPlane, settings: Settings) -> None:
    config = str(control_plane.folder / "stranger.kubeconfig")
    stranger = KubernetesServices(Settings({**settings.to_plain(), "kubernetes.config.file": config}))
    with pytest.raises(OSError, match=r"403 Forbidden.* cannot get resource"):
        stranger.campaign(RESOURCEMANAGER)
    with pytest.raises(OSError, match="403"):
        stranger.depose(RESOURCEMANAGER)
    stranger.close()


def test_a_program_tells_the_token(control_plane: ControlPlane, settings: Settings, tmp_path: Path) -> None:
    """A kubeconfig as that of clouds: a program is asked for credentials, and again when they are refused."""
    credential = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "status": {"token": "wrong"},
    }
    answer, program = tmp_path / "answer", tmp_path / "credentials"
    answer.write_text(json.dumps(credential))
    program.write_text(f'#!/bin/sh\n[ -n "$KUBERNETES_EXEC_INFO" ] && cat {answer}\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    plain = control_plane.kubeconfig("")
    plain["users"][0]["user"] = {"exec": {"command": "./credentials", "apiVersion": credential["apiVersion"]}}
    (tmp_path / "config").write_text(json.dumps(plain))
    services = KubernetesServices(Settings({**settings.to_plain(), "kubernetes.config.file": str(tmp_path / "config")}))
    with pytest.raises(OSError, match="401"):
        services.campaign(RESOURCEMANAGER)
    answer.write_text(json.dumps({**credential, "status": {"token": control_plane.tokens["admin"]}}))
    lead(services, RESOURCEMANAGER)
    services.close()


def test_a_full_config_map(services: KubernetesServices) -> None:
    """The limit that is looked at here is within that of Kubernetes."""
    leadership = lead(services, of_job(JOB))
    services.cells.change(of_job(JOB), leadership.epoch, [Put("a", b"\xff" * (700 << 10), None)])
    services.cells.change(of_job(JOB), leadership.epoch, [Put("b", b"b" * (80 << 10), None)])
    services.cells.change(of_job(JOB), leadership.epoch, [Put("c", b"c" * (1 << 10), None)])
    with pytest.raises(OSError, match="a ConfigMap holds"):
        services.cells.change(of_job(JOB), leadership.epoch, [Put("d", b"d" * LARGEST_MAP, None)])
    leadership.check()


def test_a_watch_goes_on_after_its_place_was_forgotten(
    settings: Settings, services: KubernetesServices, control_plane: ControlPlane
) -> None:
    """etcd is compacted, and the API server killed: the place of the watch is gone (410), and changes are told."""
    heard: list[Leader | None] = []
    services.watch(of_job(JOB), heard.append)
    other = KubernetesServices(settings)
    lead(other, of_job(JOB)).announce("http://one:1", "t")
    wait_until(lambda: heard[-1] is not None and heard[-1].address == "http://one:1", "a leader is told", 3)
    control_plane.compact()
    with control_plane.away(API_SERVER):
        pass
    control_plane.compact()
    other.close()
    third = KubernetesServices(settings)
    leadership = leads_at_last(third, of_job(JOB))
    leadership.announce("http://two:1", "t")
    wait_until(lambda: heard[-1] is not None and heard[-1].address == "http://two:1", "the next one is told", 15)
    third.close()


def test_services_are_found_by_their_type(settings: Settings, tmp_path: Path) -> None:
    loaded = load_high_availability(settings, tmp_path)
    assert isinstance(loaded, KubernetesServices)
    loaded.close()
