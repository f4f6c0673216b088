"""Native Kubernetes on a real one with two nodes: a session whose TaskManagers come when jobs need them and go when
nobody does, under an exactly-once job whose pods, node and JobManager fail; and applications."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers.conftest import tell
from tests.servers.helm.chart import ROOT
from tests.servers.kubernetes.server import rights
from tests.servers.nodes.cluster import KubernetesCluster
from tests.servers.nodes.conftest import IMAGE, ON_NODES, PROGRAM_OF_IMAGE, TAGS
from tests.servers.nodes.counting import BOUNDED, KEYS, Counting, counting
from tests.servers.nodes.deployed import until
from tests.servers.nodes.native import Native, make_namespace
from tests.servers.nodes.store import BUCKET, Store

pytestmark = ON_NODES
_RULES = re.compile(r"rules:\n((?:  - .*\n)+)")


def rules_of_docs() -> str:
    """What docs say that the JobManager's account needs, natively and for high availability."""
    matches = [_RULES.findall((ROOT / "docs" / page).read_text())
             for page in ("kubernetes-native.md", "high-availability.md")]  # fmt: skip
    assert all(len(match) == 1 for match in matches)
    return "".join(match[0] for match in matches)


@pytest.fixture(scope="module")
def namespace(cluster: KubernetesCluster, store: Store) -> None:
    """With accounts that have the rights of the docs, and no others."""
    make_namespace(cluster, store, rules_of_docs())


@pytest.fixture(scope="module")
def session(
    cluster: KubernetesCluster, namespace: None, tmp_path_factory: pytest.TempPathFactory,
    request: pytest.FixtureRequest,
) -> Iterator[Native]:  # fmt: skip
    """It has no TaskManager until a job needs one."""
    native_session = Native(cluster, tmp_path_factory.mktemp("session"), "orders")
    began = time.monotonic()
    try:
        native_session.start()
        tell(request, f"`firesteel kubernetes-session` took {time.monotonic() - began:.1f} s")
        yield native_session
    finally:
        native_session.stop()


@pytest.fixture
def job(session: Native, store: Store) -> Iterator[Counting]:
    """It runs in two slots; what it has written is right in the end."""
    with counting(session, store) as counting_job:
        yield counting_job


def test_taskmanagers_come_with_jobs_and_go_with_them(
    session: Native, store: Store, request: pytest.FixtureRequest
) -> None:
    until(lambda: not session.names("taskmanager"), "no TaskManager is there without a job")
    began = time.monotonic()
    seen: dict[str, float] = {}

    def look() -> bool:
        pods = session.pods("taskmanager")
        if pods:
            seen.setdefault("pod", time.monotonic() - began)
        if session.ask("/overview").get("slots-total"):
            seen.setdefault("slot", time.monotonic() - began)
        return "slot" in seen

    session.firesteel("run", "-d", "-p", "1", str(session.folder / _written(session.folder)),
                      f"s3://{BUCKET}/demand", "100000000", "100")  # fmt: skip
    submitted = time.monotonic() - began
    until(look, "a slot is registered")
    tell(
        request,
        f"native TaskManager: submitted after {submitted:.1f} s, its pod was seen at {seen['pod']:.1f} s, its slot at "
        f"{seen['slot']:.1f} s after `firesteel run` began",
    )
    (job,) = session.ask("/jobs/overview")["jobs"]
    session.firesteel("cancel", job["jid"])
    session.wait_slots(0)
    until(lambda: not session.names("taskmanager"), "the TaskManager's pod is removed when nobody uses it")


def _written(folder: Path) -> str:
    (folder / "bounded.py").write_text(BOUNDED)
    return "bounded.py"


def test_a_taskmanagers_pod_is_deleted(session: Native, job: Counting, request: pytest.FixtureRequest) -> None:
    before = session.names("taskmanager")
    assert len(before) == 2
    began = time.monotonic()
    session.kubectl("delete", "pod", before[0], timeout=120)
    tell(request, f"native TaskManager, pod deleted to records flowing: {job.flows_after(began):.1f} s")
    after = session.names("taskmanager")
    assert len(after) == 2
    assert before[0] not in after, "another pod has another name"
    assert before[1] in after


def test_a_taskmanagers_pod_takes_too_much_memory(session: Native, job: Counting) -> None:
    """Kubernetes' word for its end is in the log of the ResourceManager, and another pod takes its place."""
    name = session.names("taskmanager")[0]
    session.take_memory(name)
    until(lambda: name not in session.names("taskmanager"), "its pod has ended")
    job.goes_on()
    (jobmanager,) = session.names("jobmanager")
    worker = name.removeprefix(f"{session.id}-taskmanager-")

    def said() -> list[str]:
        lines = session.kubectl("logs", jobmanager).stdout.splitlines()
        return [line for line in lines if f"{worker} has ended" in line]

    until(said, lambda: session.kubectl("logs", jobmanager).stdout[-6000:])  # the job may go on before it is known
    assert "OOMKilled (exit code 137)" in said()[0]


def test_the_resourcemanager_is_killed(session: Native, job: Counting) -> None:
    """The next one finds the pods by their labels: no slot is lost, and the job does not restart."""
    before, (jobmanager,) = session.names("taskmanager"), session.names("jobmanager")
    attempts = _attempts(job)
    session.kill(jobmanager, "resourcemanager")
    session.wait_slots(2)
    job.goes_on()
    assert session.names("taskmanager") == before
    assert _attempts(job) == attempts, job.why()


def _attempts(job: Counting) -> list[int]:
    attempts = []
    for vertex in job.now()["vertices"]:
        details = job.release.ask(f"/jobs/{job.job}/vertices/{vertex['id']}")
        attempts += [subtask["attempt"] for subtask in details["subtasks"]]
    return attempts


def test_the_jobmanagers_pod_is_deleted(session: Native, job: Counting, request: pytest.FixtureRequest) -> None:
    """TaskManagers stay: the next JobManager has their slots."""
    before, (jobmanager,) = session.names("taskmanager"), session.names("jobmanager")
    began = time.monotonic()
    session.kubectl("delete", "pod", jobmanager, timeout=120)
    until(lambda: session.names("jobmanager") not in ([], [jobmanager]), "there is another JobManager")
    tell(request, f"native JobManager, pod deleted to records flowing: {job.flows_after(began):.1f} s")
    job.goes_on()
    assert session.names("taskmanager") == before


def test_the_node_of_a_taskmanager_is_lost(session: Native, job: Counting) -> None:
    """Its pod stays where nobody sees it; another one takes its place on the other node."""
    second = session.cluster.nodes[1]
    there = {pod["metadata"]["name"] for pod in session.pods("taskmanager") if pod["spec"]["nodeName"] == second.name}
    assert there, "Kubernetes spreads pods over its nodes"
    with second.cut_off():
        session.cluster.wait_ready(second, ready=False)
        job.goes_on()
        assert not there & {pod["metadata"]["name"] for pod in session.pods("taskmanager")}
    session.cluster.wait_ready(second)
    until(lambda: len(session.names("taskmanager")) == 2, "two pods are left")
    job.goes_on()


def test_a_pod_that_fits_on_no_node_is_told_and_the_session_ends_over_rest(
    cluster: KubernetesCluster, namespace: None, tmp_path: Path
) -> None:
    """``DELETE /cluster`` takes along all that was made."""
    narrow = Native(cluster, tmp_path, "narrow", **{"kubernetes.taskmanager.node-selector": "disk:fast"})
    try:
        narrow.start()
        narrow.firesteel("run", "-d", "-p", "1", str(tmp_path / _written(tmp_path)), f"s3://{BUCKET}/none", "10", "10")
        (job,) = until(lambda: narrow.ask("/jobs/overview").get("jobs"), "the job is there")
        reason = until(lambda: narrow.ask(f"/jobs/{job['jid']}").get("firesteel-waiting-for"), "it waits for something")
        until(
            lambda: "Unschedulable: 0/2 nodes are available" in json.dumps(narrow.ask(f"/jobs/{job['jid']}")),
            lambda: f"Kubernetes' reason is told: {reason} {narrow.ask('/jobs/' + job['jid'])}",
        )
        assert narrow.rest("DELETE", "/cluster")[0] == 200
        narrow.wait_gone()
        said = narrow.command("kubernetes-session", "--stop", "-Dkubernetes.cluster-id=narrow",
                              f"-Dkubernetes.config.file={cluster.kubeconfig}", check=False)  # fmt: skip
        assert "there is no cluster narrow" in said.stderr
    except BaseException:
        print(narrow.state())
        raise
    finally:
        narrow.stop()


def _uploaded(store: Store, folder: Path) -> str:
    file = folder / _written(folder)
    store.client().fput_object(BUCKET, "programs/bounded.py", str(file))
    return f"s3://{BUCKET}/programs/bounded.py"


def _check(store: Store, prefix: str, records: int) -> None:
    lines = store.lines(prefix)
    expected = {f"{number} {number // KEYS + 1}" for number in range(records)}
    assert {line: times for line, times in lines.items() if times > 1} == {}, "records came twice"
    assert set(lines) == expected


def test_an_application_whose_jobmanager_is_deleted(
    cluster: KubernetesCluster, namespace: None, store: Store, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Its program is in the object store. It goes on in another pod, ends, and takes its TaskManagers along."""
    native = Native(cluster, tmp_path, "once")
    records, program = 20_000, _uploaded(store, tmp_path)
    began = time.monotonic()
    try:
        native.run_application("-d", program, f"s3://{BUCKET}/once", str(records), "400")
        (job,) = until(lambda: native.ask("/jobs/overview").get("jobs"), "its job is there")
        until(lambda: native.ask(f"/jobs/{job['jid']}/checkpoints").get("counts", {}).get("completed", 0) >= 3,
              "checkpoints complete")  # fmt: skip
        tell(request, f"run-application to the third checkpoint: {time.monotonic() - began:.1f} s")
        (jobmanager,) = native.names("jobmanager")
        native.kubectl("delete", "pod", jobmanager, timeout=120)
        until(
            lambda: native.get("job", native.id)["status"].get("succeeded") == 1, lambda: f"it ends: {native.state()}"
        )
        _check(store, "once", records)
        until(lambda: not native.names("taskmanager"), "its TaskManagers are gone")
    except BaseException:
        print(native.state())
        raise
    finally:
        native.stop()
    native.wait_gone()


def test_how_an_application_ends_is_told(
    cluster: KubernetesCluster, namespace: None, store: Store, tmp_path: Path
) -> None:
    """Attached, the command ends as the program does; that is in the object store or in the image."""
    in_store, image = _uploaded(store, tmp_path), {"kubernetes.container.image.ref": f"{IMAGE}:{TAGS[1]}"}
    rows: tuple[tuple[str, dict[str, str], str, tuple[str, ...], int, str], ...] = (
        ("good", image, f"local://{PROGRAM_OF_IMAGE}", (), 0, "has ended"),
        ("bad", {}, in_store, ("--wrong",), 1, "no such table: orders"),
    )
    for name, options, program, more, code, said in rows:
        native = Native(cluster, tmp_path, name, **options)
        try:
            done = native.run_application(program, f"s3://{BUCKET}/{name}", "2000", "1000", *more, check=False)
            assert (done.returncode, said in done.stdout + done.stderr) == (code, True), done.stdout + done.stderr
            until(lambda made=native: not made.names("taskmanager"), "its TaskManagers are gone")  # type: ignore[misc]
        except BaseException:
            print(native.state())
            raise
        finally:
            native.stop()
        native.wait_gone()
    _check(store, "good", 2000)


def test_accounts_may_do_what_they_need_and_no_more(
    cluster: KubernetesCluster, namespace: None, store: Store, tmp_path: Path
) -> None:
    """The API server has written down what they asked for, from a session's beginning to its end."""
    native = Native(cluster, tmp_path, "rights")
    try:
        native.start()
        with counting(native, store) as job:
            (jobmanager,) = native.names("jobmanager")
            native.kill(jobmanager, "resourcemanager")
            native.wait_slots(2)
            job.goes_on()
        assert native.rest("DELETE", "/cluster")[0] == 200
        native.wait_gone()
    finally:
        native.stop()
    for account in ("firesteel", "workers"):
        allowed, used = rights(native.get("role", account)["rules"]), cluster.control.used(account, native.name)
        assert used == allowed, f"{account} does not use {sorted(allowed - used)}"
