"""The memory of a TaskManager: Flink's three ways to configure it, and what contradicts itself."""

from __future__ import annotations

import pytest

from firesteel.config import Settings
from firesteel.config.memory import TaskManagerMemory, has_memory_options, taskmanager_memory
from firesteel.core.errors import ConfigurationError

MIB = 1 << 20
SIZE = "taskmanager.memory."


def memory(**sizes: str) -> TaskManagerMemory:
    return taskmanager_memory(settings(**sizes))


def settings(**sizes: str) -> Settings:
    return Settings({SIZE + name.replace("__", "-").replace("_", "."): value for name, value in sizes.items()})


def test_process_size_as_in_flinks_own_configuration() -> None:
    sizes = memory(process_size="1728m")
    assert sizes == TaskManagerMemory(
        framework_heap=128 * MIB,
        framework_off_heap=128 * MIB,
        task_heap=sizes.task_heap,
        task_off_heap=0,
        network=128 * MIB,
        managed=512 * MIB,
        metaspace=256 * MIB,
        overhead=192 * MIB,
    )
    assert sizes.task_heap == 384 * MIB
    assert (sizes.flink_size, sizes.process_size) == (1280 * MIB, 1728 * MIB)
    assert sizes.slots_size == 1024 * MIB
    assert sizes.slot_size(2) == 512 * MIB


def test_flink_size_puts_the_jvm_on_top() -> None:
    sizes = memory(flink_size="1280m")
    assert (sizes.managed, sizes.network, sizes.task_heap) == (512 * MIB, 128 * MIB, 384 * MIB)
    assert sizes.overhead == 192 * MIB
    assert sizes.process_size == (1280 + 256 + 192) * MIB
    large = memory(flink_size="8g")
    assert large.overhead == int((8 * 1024 + 256) * MIB / 9)
    assert memory(flink_size="90g").overhead == 1024 * MIB


def test_task_heap_and_managed_memory() -> None:
    sizes = memory(task_heap_size="900m", managed_size="644m")
    assert (sizes.task_heap, sizes.managed) == (900 * MIB, 644 * MIB)
    assert sizes.network == (900 + 644 + 256) * MIB // 9
    assert sizes.flink_size == 2000 * MIB
    with_total = memory(task_heap_size="500m", managed_size="100m", flink_size="1g")
    assert with_total.network == (1024 - 256 - 600) * MIB


def test_both_totals_leave_the_overhead() -> None:
    assert memory(flink_size="1280m", process_size="1800m").overhead == (1800 - 1280 - 256) * MIB


def test_task_heap_with_a_total_leaves_managed_memory() -> None:
    sizes = memory(process_size="1728m", task_heap_size="700m")
    assert sizes.managed == (1280 - 256 - 700 - 128) * MIB


def test_sizes_and_fractions_that_are_set() -> None:
    assert memory(process_size="1728m", managed_size="100m").managed == 100 * MIB
    assert memory(process_size="1728m", managed_fraction="0.25").managed == 320 * MIB
    assert memory(process_size="1728m", network_max="70m").network == 70 * MIB
    assert memory(flink_size="300m", managed_fraction="0", network_min="1k", network_fraction="0.01").network == 3 * MIB
    assert memory(process_size="4g", jvm__metaspace_size="100m").metaspace == 100 * MIB


def test_nothing_is_configured() -> None:
    assert not has_memory_options(Settings())
    assert not has_memory_options(settings(task_heap_size="1g"))
    with pytest.raises(ConfigurationError, match=r"process\.size.*flink\.size.*task\.heap\.size"):
        memory(managed_size="1g")


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"process_size": "400m"}, r"does not cover JVM metaspace \(256 mb\)"),
        ({"process_size": "700m"}, "larger than the whole.*leaves for Flink memory is 252 MiB"),
        ({"flink_size": "500m", "managed_size": "400m"}, r"larger than the whole.*flink\.size is 500 MiB"),
        ({"flink_size": "1g", "task_heap_size": "900m"}, "larger than the whole.*task heap"),
        ({"flink_size": "1g", "task_heap_size": "900m", "managed_size": "1g"}, r"exceed taskmanager\.memory\.flink"),
        ({"flink_size": "1g", "process_size": "1100m"}, r"exceed taskmanager\.memory\.process\.size"),
        ({"flink_size": "1280m", "process_size": "1600m"}, "leave 64 MiB for JVM overhead.*192 mb"),
        ({"flink_size": "1g", "task_heap_size": "700m", "managed_size": "50m"}, "leave 18 MiB for network.*64 mb"),
        (
            {"flink_size": "1280m", "process_size": "1800m", "jvm__overhead_fraction": "0.1"},
            "leave 264 MiB for JVM overhead.*asks for 192 MiB",
        ),
        ({"process_size": "2g", "network_min": "2m", "network_max": "1m"}, "is larger than"),
        ({"process_size": "2g", "managed_fraction": "1.5"}, "managed.fraction"),
    ],
)
def test_contradictions_are_named(sizes: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        memory(**sizes)


def test_what_people_and_rest_see() -> None:
    sizes = memory(process_size="1728m")
    table = sizes.table(2)
    assert "Total Process Memory:" in table
    assert "1,728 MiB" in table.splitlines()[0]
    assert "Slots (2 x 512 MiB):" in table
    rest = sizes.to_rest()
    assert rest["totalFlinkMemory"] == 1280 * MIB
    assert sum(rest.values()) - rest["totalFlinkMemory"] == 2 * rest["totalProcessMemory"]
