"""What the chart makes of values: compared with golden files, with Kubernetes' own schema, and with what we promise."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from firesteel.config import Settings
from firesteel.config.options import ALL_OPTIONS
from firesteel_kubernetes.pods import PodMaker, PodPlan
from tests.servers.helm.chart import CASES, CHART, ROOT, golden, names, objects, rendered, template
from tests.servers.helm.schema import problems
from tools import helm_values

pytestmark = pytest.mark.may_skip(reason="a machine without npm, which Helm comes with")
_RULES = re.compile(r"(rules:\n(?:  - .*\n)+)")


def pods(manifests: list[dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The specifications of all pods, with the kind and name of who makes them."""
    for manifest in manifests:
        name = f"{manifest['kind']}/{manifest['metadata']['name']}"
        if manifest["kind"] == "Pod":
            yield name, manifest["spec"]
        elif "template" in manifest.get("spec", {}):
            yield name, manifest["spec"]["template"]["spec"]


def config(manifests: list[dict[str, Any]]) -> dict[str, Any]:
    (config_map,) = (each for each in manifests if "config.yaml" in each.get("data", {}))
    return dict(yaml.safe_load(config_map["data"]["config.yaml"]))


def test_lint(programs: Path) -> None:
    words = [str(programs / "helm"), "lint", "--strict", str(CHART)]
    for name in names():
        words += ["--values", str(CASES / f"{name}.yaml")]
        done = subprocess.run(words, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr
        words = words[:4]


@pytest.mark.parametrize("name", names())
def test_golden_files(programs: Path, name: str) -> None:
    """``python -m tests.servers.helm.chart`` writes them anew."""
    assert rendered(programs, name) == golden(name).read_text()


@pytest.mark.parametrize("name", names())
def test_kubernetes_knows_all_fields(programs: Path, name: str) -> None:
    other = "apiextensions.k8s.io/v1"  # a real API server takes the CRDs (tests/servers/kubernetes)
    manifests = [manifest for manifest in objects(rendered(programs, name)) if manifest["apiVersion"] != other]
    for manifest in manifests:
        manifest.get("data", {}).pop("config.yaml", None)
        if manifest["kind"] == "Secret":
            manifest["data"] = {}
        assert problems(manifest) == []
    assert manifests


@pytest.mark.parametrize("name", names())
def test_config_yaml_is_one_that_services_understand(programs: Path, name: str) -> None:
    options = config(objects(rendered(programs, name)))
    known = {option.key: option for option in ALL_OPTIONS}
    settings = Settings(
        {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in options.items()}
    )
    for key in options:
        if key in known:
            settings.get(known[key])
        else:
            assert key.startswith("metrics.reporter."), key


@pytest.mark.parametrize("name", names())
def test_pods_may_do_little(programs: Path, name: str) -> None:
    specs = list(pods(objects(rendered(programs, name))))
    for who, spec in specs:
        assert spec["securityContext"]["runAsNonRoot"], who
        may_ask = name == "available" or (name == "native" and not who.endswith("taskmanager"))
        asks = who.endswith("-operator") or (may_ask and not who.endswith("test"))
        assert spec["automountServiceAccountToken"] is asks, who
        (main, *_) = spec["containers"]
        context = main["securityContext"]
        assert context["readOnlyRootFilesystem"], who
        assert context["allowPrivilegeEscalation"] is False, who
        assert context["capabilities"] == {"drop": ["ALL"]}, who
        assert main["resources"]["limits"]["memory"], who
    assert len(specs) >= 3


def test_memory_is_that_of_the_memory_model(programs: Path) -> None:
    for size, expected in (("1728m", "1728Mi"), ("2g", "2048Mi"), ("3 gb", "3072Mi"), (1073741825, "1025Mi")):
        text = template(programs, f'config={{"taskmanager.memory.process.size": {json.dumps(size)}}}').stdout
        (spec,) = (spec for who, spec in pods(objects(text)) if who.endswith("taskmanager"))
        resources = spec["containers"][0]["resources"]
        assert resources["requests"]["memory"] == resources["limits"]["memory"] == expected


def test_a_nested_option_wins_over_that_of_the_chart(programs: Path) -> None:
    text = template(programs, 'config={"taskmanager": {"numberOfTaskSlots": 5}, "metrics.reporters": "none"}').stdout
    options = config(objects(text))
    assert options["taskmanager.numberOfTaskSlots"] == 5
    assert options["metrics.reporters"] == "none"
    (spec,) = (spec for who, spec in pods(objects(text)) if who.endswith("taskmanager"))
    assert spec["containers"][0]["resources"]["requests"]["cpu"] == "5"


def test_no_secret_is_in_a_config_map_or_an_environment(programs: Path) -> None:
    manifests = objects(template(programs, CASES / "session.yaml").stdout)
    (secret,) = (manifest for manifest in manifests if manifest["kind"] == "Secret")
    drawn = set(secret["data"].values())
    assert len(drawn) == 2
    rest = json.dumps([manifest for manifest in manifests if manifest["kind"] != "Secret"])
    assert not [value for value in drawn if value in rest]


def test_the_least_rights(programs: Path) -> None:
    assert not [manifest for manifest in objects(rendered(programs, "session")) if manifest["kind"] == "Role"]
    text = template(programs, 'highAvailability={"type": "kubernetes", "storageDir": "s3://bucket/ha"}').stdout
    manifests = objects(text)
    assert not [manifest for manifest in manifests if manifest["kind"].startswith("Cluster")]
    rights = {
        manifest["metadata"]["name"]: {rule["resources"][0]: rule["verbs"] for rule in manifest["rules"]}
        for manifest in manifests
        if manifest["kind"] == "Role"
    }
    assert rights == {
        "demo-firesteel-jobmanager": {
            "configmaps": ["get", "create", "update", "delete"],
            "leases": ["get", "list", "watch", "create", "update", "delete"],
        },
        "demo-firesteel-taskmanager": {"leases": ["get", "list", "watch"]},
    }
    tokens = {who for who, spec in pods(manifests) if spec["automountServiceAccountToken"]}
    assert {who.rpartition("-")[2] for who in tokens} == {"dispatcher", "resourcemanager", "jobmaster", "taskmanager"}
    roles = [manifest for manifest in objects(rendered(programs, "native")) if manifest["kind"] == "Role"]
    assert [manifest["metadata"]["name"] for manifest in roles] == ["demo-firesteel-jobmanager"]
    documented = yaml.safe_load(_RULES.findall((ROOT / "docs" / "kubernetes-native.md").read_text())[0])["rules"]
    verbs_of = {what: set(rule["verbs"]) for rule in documented for what in rule["resources"]}
    # Nobody but a native session looks for its own Deployment, and pods of StatefulSets have no ReplicaSet.
    assert _verbs(roles[0]) == {what: verbs for what, verbs in verbs_of.items() if what in ("pods", "secrets")}
    available = template(
        programs, CASES / "native.yaml", 'highAvailability={"type": "zookeeper", "storageDir": "s3://bucket/ha"}'
    ).stdout
    (role,) = (manifest for manifest in objects(available) if manifest["kind"] == "Role")
    assert _verbs(role) == {what: verbs for what, verbs in verbs_of.items() if what != "deployments"}


def _verbs(role: dict[str, Any]) -> dict[str, set[str]]:
    return {what: set(rule["verbs"]) for rule in role["rules"] for what in rule["resources"]}


def test_taskmanagers_on_demand_are_pods_of_the_chart(programs: Path, tmp_path: Path) -> None:
    """What the ResourceManager makes of the template has what values say, and nothing twice."""
    manifests = objects(rendered(programs, "native"))
    assert not [manifest for manifest in manifests if manifest["kind"] in ("Deployment", "PodDisruptionBudget")]
    (files,) = (manifest["data"] for manifest in manifests if "config.yaml" in manifest.get("data", {}))
    template_file = tmp_path / "pod.yaml"
    template_file.write_text(files["taskmanager-pod.yaml"])
    options = {key: str(value) for key, value in yaml.safe_load(files["config.yaml"]).items()}
    assert options["firesteel.resourcemanager.driver"] == "kubernetes"
    options["kubernetes.pod-template-file.taskmanager"] = str(template_file)
    plan = PodPlan("demo-firesteel-taskmanager-a", "taskmanager", {"app": "demo-firesteel"}, "firesteel-taskmanager",
                   (), 1 << 30, 2.0, "demo-firesteel-taskmanager", ports={"rpc": 6122})  # fmt: skip
    pod = PodMaker(Settings(options), "taskmanager").make(plan)
    assert problems(pod) == []
    (container,) = pod["spec"]["containers"]
    paths = [mount["mountPath"] for mount in container["volumeMounts"]]
    assert len(set(paths)) == len(paths)
    assert {"/scratch", "/etc/firesteel/s3", "/tmp"} <= set(paths)
    names_of = [volume["name"] for volume in pod["spec"]["volumes"]]
    assert len(set(names_of)) == len(names_of)
    assert {mount["name"] for mount in container["volumeMounts"]} <= set(names_of)
    variables = [variable["name"] for variable in container["env"]]
    assert len(set(variables)) == len(variables)
    assert "TZ" in variables
    assert container["image"] == "registry.example/firesteel:0.1.0"
    assert container["resources"]["limits"]["cpu"] == "2000m"
    assert container["resources"]["requests"]["cpu"] == "500m"
    assert container["readinessProbe"]["httpGet"]["port"] == "rpc"
    assert pod["spec"]["tolerations"] == [{"key": "spot", "operator": "Exists"}]
    assert pod["spec"]["priorityClassName"] == "streams"
    assert pod["metadata"]["labels"]["app.kubernetes.io/component"] == "taskmanager"


def test_processors_of_taskmanagers_on_demand_have_the_limit_that_is_given_or_none(programs: Path) -> None:
    key = "kubernetes.taskmanager.cpu.limit-factor"
    for cpu, factor in (("{}", "0"), ('{"request": "500m"}', "0"), ('{"request": "500m", "limit": 2}', "4")):
        text = template(programs, f'taskManager={{"kind": "Native", "cpu": {cpu}}}').stdout
        assert config(objects(text))[key] == factor


def test_a_change_of_taskmanagers_on_demand_is_one_of_the_resourcemanager(programs: Path) -> None:
    """They come from it: it has to see what is new of them."""
    distinct = set()
    for value in ("[]", '[{"key": "spot", "operator": "Exists"}]'):
        text = template(programs, f'taskManager={{"kind": "Native", "tolerations": {value}}}').stdout
        (stateful_set,) = (
            manifest
            for manifest in objects(text)
            if manifest["metadata"]["name"] == "demo-firesteel-resourcemanager" and manifest["kind"] == "StatefulSet"
        )
        distinct.add(json.dumps(stateful_set["spec"]["template"]["metadata"]["annotations"]))
    assert len(distinct) == 2


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ('dispatcher={"replicas": 2}', "dispatcher.replicas: 2 pods need high availability"),
        ('highAvailability={"type": "zookeeper"}', "highAvailability.storageDir"),
        ('mode="application"', "application.program"),
        ('mode="sessions"', "'/mode'"),
        ('taskmanager={"replicas": 3}', "taskmanager"),
        ('config={"taskmanager.memory.process.size": "much"}', '"much" is no size'),
        ('ingress={"enabled": true}', "ingress.hosts"),
        ('taskManager={"stateVolume": {"persistent": true}}', "taskManager.kind: StatefulSet"),
        ('monitoring={"prometheus": false, "podMonitor": {"enabled": true}}', "monitoring.prometheus"),
        ('jobMaster={"memory": "1Gi"}', "/jobMaster/memory"),
        (
            'taskManager={"kind": "Native", "args": ["-D", "a=b"]}',
            "taskManager.args is not for taskManager.kind: Native",
        ),
        ('taskManager={"kind": "Native", "autoscaling": {"enabled": true}}', "taskManager.autoscaling needs"),
        ('taskManager={"autoscaling": {"enabled": true, "maxReplicas": 1, "minReplicas": 2}}', "maxReplicas is below"),
        ('taskManager={"kind": "Native", "cpu": {"limit": 2}}', "needs taskManager.cpu.request"),
        ('taskManager={"kind": "Native", "cpu": {"request": "1e3"}}', "is no number of processors"),
    ],
)
def test_bad_values_are_refused(programs: Path, values: str, said: str) -> None:
    done = template(programs, values, check=False)
    assert done.returncode != 0
    assert said in done.stderr


@pytest.mark.parametrize("mode", ["session", "application"])
def test_monitors_find_all_that_has_metrics(programs: Path, mode: str) -> None:
    """By labels and names of ports, as the Prometheus operator does; nothing is found twice."""
    text = template(
        programs,
        f'mode="{mode}"',
        'application={"program": "local:///opt/job.py"}',
        'monitoring={"serviceMonitor": {"enabled": true}, "podMonitor": {"enabled": true}}',
    ).stdout
    manifests = objects(text)
    monitors = {
        manifest["kind"]: manifest["spec"]
        for manifest in manifests
        if manifest["kind"] in ("ServiceMonitor", "PodMonitor")
    }
    services = [manifest for manifest in manifests if manifest["kind"] == "Service"]
    seen: list[tuple[str, int]] = []
    for maker in (manifest for manifest in manifests if manifest["kind"] in ("Deployment", "StatefulSet", "Job")):
        template_of = maker["spec"]["template"]
        labels = template_of["metadata"]["labels"]
        name = labels["app.kubernetes.io/component"]
        ports = {port["name"]: port["containerPort"] for port in template_of["spec"]["containers"][0]["ports"]}
        if _selects(monitors["PodMonitor"]["selector"], labels):
            seen += [(name, ports[end["port"]]) for end in monitors["PodMonitor"]["podMetricsEndpoints"]]
        for service in services:
            reaches = service["spec"]["selector"].items() <= labels.items()
            if reaches and _selects(monitors["ServiceMonitor"]["selector"], service["metadata"]["labels"]):
                named = {port["name"]: port["port"] for port in service["spec"]["ports"]}
                ends = monitors["ServiceMonitor"]["endpoints"]
                seen += [(name, named[end["port"]]) for end in ends if end["port"] in named]
    services_of = {
        "session": [("dispatcher", 6123), ("resourcemanager", 8082), ("jobmaster", 6124)],
        "application": [("jobmanager", port) for port in (6123, 8082, 6124)],
    }
    assert sorted(seen) == sorted([*services_of[mode], ("taskmanager", 6122)])


def _selects(selector: dict[str, Any], labels: dict[str, str]) -> bool:
    for expression in selector.get("matchExpressions", ()):
        value = labels.get(expression["key"])
        fits = {"Exists": value is not None, "In": value in expression.get("values", ()),
                "NotIn": value not in expression.get("values", ())}  # fmt: skip
        if not fits[expression["operator"]]:
            return False
    return bool(selector.get("matchLabels", {}).items() <= labels.items())


def test_the_board_is_that_of_compose() -> None:
    board = ROOT / "deploy" / "compose" / "full" / "grafana" / "dashboards" / "firesteel.json"
    assert (CHART / "files" / "firesteel.json").read_bytes() == board.read_bytes()


def test_every_value_is_described() -> None:
    assert helm_values.undescribed() == []


def test_the_page_of_values_is_up_to_date() -> None:
    """``python -m tools.helm_values > docs/helm-values.md`` renders it."""
    assert (ROOT / "docs" / "helm-values.md").read_text() == helm_values.page()


def test_the_schema_finds_what_is_wrong() -> None:
    good: dict[str, Any] = {
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}, "spec": {"ports": [{"port": 1}]},
    }  # fmt: skip
    assert problems(good) == []
    assert problems(good | {"spec": {"ports": [{"prot": 1}]}}) == [
        "Service.spec.ports[0] has no port", "Service.spec.ports[0] knows no prot",
    ]  # fmt: skip
    assert problems(good | {"spec": {"ports": [{"port": "one"}]}}) == [
        "Service.spec.ports[0].port is 'one', not of the type integer"
    ]
    assert problems(good | {"kind": "Servant"})
