"""What a cluster on YARN is made of, by the client's settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from firesteel.config import Settings, options
from firesteel.core.errors import ConfigurationError
from firesteel_yarn.client import attempts_of, check_sizes, cluster_settings, container_sizes, rest_address
from firesteel_yarn.launch import Launch, Shipped
from firesteel_yarn.packages import packages_here
from firesteel_yarn.staging import is_left_over

ID = "application_1732402800000_0001"


def test_the_settings_of_another_cluster_are_left_out() -> None:
    user_settings = Settings({
        "rest.port": "8081", "rest.address": "elsewhere", "firesteel.security.secret-file": "cluster-secret",
        "jobmanager.rpc.address": "elsewhere", "execution.target": "remote", "heartbeat.interval": "7 s",
        "containerized.master.env.A": "1", "firesteel.resourcemanager.driver": "standalone",
    })  # fmt: skip
    cluster = cluster_settings(user_settings, ID)
    assert cluster.to_plain() == {
        "heartbeat.interval": "7 s", "firesteel.resourcemanager.driver": "yarn",
        "high-availability.cluster-id": ID, "taskmanager.memory.process.size": "1728m",
        "jobmanager.bind-host": "0.0.0.0", "taskmanager.bind-host": "0.0.0.0", "rest.bind-address": "0.0.0.0",
        "firesteel.rest.allow-unauthenticated": "true",
    }  # fmt: skip
    assert user_settings.check() == [], "variables of containers are known keys"


def test_what_somebody_has_set_stays() -> None:
    user_settings = Settings({
        "high-availability.cluster-id": "mine", "jobmanager.bind-host": "10.0.0.1",
        "taskmanager.memory.flink.size": "2g", "firesteel.rest.token-file": "token",
    })  # fmt: skip
    cluster = cluster_settings(user_settings, ID)
    assert cluster.get(options.HA_CLUSTER_ID) == "mine"
    assert cluster.get(options.JOBMANAGER_BIND_HOST) == "10.0.0.1"
    assert not cluster.is_set(options.MEMORY_PROCESS_SIZE)
    assert cluster.get(options.REST_ALLOW_UNAUTHENTICATED) is False


def test_containers_are_as_large_as_the_memory_model_says() -> None:
    sizes = container_sizes(cluster_settings(Settings({"taskmanager.numberOfTaskSlots": "3"}), ID))
    assert (sizes.megabytes, sizes.cores, sizes.master_megabytes, sizes.master_cores) == (1728, 3, 1600, 1)
    more = {"taskmanager.memory.task.heap.size": "512m", "taskmanager.memory.managed.size": "512m"}
    sizes = container_sizes(cluster_settings(Settings({**more, "yarn.containers.vcores": "2"}), ID))
    assert sizes.megabytes > 1400
    assert sizes.cores == 2
    with pytest.raises(ConfigurationError, match=r"a TaskManager needs .* MiB: lower taskmanager\.memory"):
        check_sizes(sizes, 1600, 8)
    with pytest.raises(ConfigurationError, match=r"ApplicationMaster needs 1600 .* 1024 MiB: lower jobmanager\.memory"):
        check_sizes(sizes, 1024, 8)
    with pytest.raises(ConfigurationError, match=r"needs 2 .* 1 cores: lower taskmanager\.numberOfTaskSlots"):
        check_sizes(sizes, 4096, 1)
    check_sizes(sizes, 4096, 2)


def test_further_attempts_need_something_that_outlives_the_first() -> None:
    assert attempts_of(Settings({})) == 1
    assert attempts_of(Settings({"high-availability.type": "zookeeper"})) == 2
    assert attempts_of(Settings({"yarn.application-attempts": "5"})) == 5


@pytest.mark.parametrize(
    ("tracking", "rest"),
    [
        ("http://node:8081/", "http://node:8081"),
        ("N/A", ""),
        ("", ""),
        (f"http://yarn:8088/cluster/app/{ID}", ""),  # of YARN itself: no attempt is registered
    ],
)
def test_the_page_of_yarn_is_no_rest_api(tracking: str, rest: str) -> None:
    assert rest_address(tracking, ID) == rest


def test_a_description_of_containers_is_read_as_it_was_written(tmp_path: Path) -> None:
    launch = Launch("python3", (Shipped("a", "file:///a", 1, 2, "ARCHIVE"),), {"A": "1"}, megabytes=5, label="gpu")
    file = tmp_path / "launch"
    file.write_text(launch.to_json())
    assert Launch.read(file) == launch
    file.write_text("{}")
    with pytest.raises(ValueError, match="no description of containers"):
        Launch.read(file)


def test_words_of_commands_are_quoted_but_for_yarns_own() -> None:
    words = ("-m", "x", "-D", "a=b c;d", "<LOG_DIR>/l", "-D", "h={{NM_HOST}}")
    assert Launch("{{PWD}}/e/bin/python").command(*words, out="o") == (
        "exec {{PWD}}/e/bin/python -P -m x -D 'a=b c;d' <LOG_DIR>/l -D h={{NM_HOST}} 1><LOG_DIR>/o.out "
        "2><LOG_DIR>/o.err"
    )


def test_packages_are_named_by_what_is_in_them(tmp_path: Path) -> None:
    root, source = tmp_path / "site-packages", tmp_path / "src"
    for folder in (root / "a", root / "pip", root / "pip-1.dist-info", source / "mine" / "__pycache__"):
        folder.mkdir(parents=True)
    compiled = source / "mine" / "__pycache__" / "z.cpython-27.pyc"  # of another Python
    files = [root / "a" / "x.py", root / "pip" / "y.py", source / "mine" / "z.py", compiled]
    for file in files:
        file.write_text("1")
    (root / "mine.pth").write_text(f"{source}\nimport something\n")
    first = packages_here([root])
    assert list(first.files) == ["a/x.py", "mine/z.py"]
    first.pack(tmp_path / "packed.tar")
    assert (tmp_path / "packed.tar").stat().st_size > 0
    assert packages_here([root]).name == first.name
    files[2].write_text("22")
    assert packages_here([root]).name != first.name


@pytest.mark.parametrize(
    ("state", "age", "same_yarn", "goes"),
    [
        ("KILLED", 1.0, True, True),
        ("FINISHED", 1.0, False, True),
        ("FAILED", -5.0, True, True),
        ("RUNNING", 1e9, True, False),
        ("ACCEPTED", 1e9, True, False),
        (None, 60.0, True, False),  # it has an id, and is being submitted
        (None, 25 * 3600.0, True, True),  # YARN has forgotten it
        (None, 1e9, False, False),  # another YARN's, perhaps
    ],
)
def test_what_ended_applications_have_left_goes(state: str | None, age: float, same_yarn: bool, goes: bool) -> None:
    assert is_left_over(state, age, same_yarn=same_yarn) is goes
